"""One scheme of dissemination for one audience: set up by the notification service itself, then put into arrays."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from surecast.errors import AssumptionError, ConfigurationError
from surecast.protocol.coding.fields import field_of
from surecast.protocol.dissemination import (
    DisseminationNode,
    DisseminationSettings,
    Effect,
    Install,
    NotificationService,
    PublisherNode,
    Relay,
    SendTo,
    SubscriberNode,
    View,
)
from surecast.protocol.paths import PathPlanner
from surecast.scenario.paths import CapacityGraph, Forwarding
from surecast.scenario.system import Overlay
from surecast.simulation.coding.compiled_state import NONE, Net, Rules, Scheme

__all__ = ["Casting", "compiled_scheme"]

_MODES = {"push": 1, "push-pull": 2, "pull": 3}
TOPIC = "t"


@dataclass(frozen=True)
class Casting:
    """A scheme at work: its settings and its nodes. Brokers have the numbers from 0, subscribers follow, the service is
    last."""

    settings: DisseminationSettings
    source: int
    homes: tuple[int, ...]
    service: NotificationService
    publisher: PublisherNode
    nodes: dict[int, DisseminationNode]
    forwardings: dict[int, Forwarding]
    views: dict[int, tuple[int, ...]]

    @classmethod
    def of(
        cls,
        overlay: Overlay,
        source: int,
        homes: list[int],
        settings: DisseminationSettings,
        seed: int,
        payload_bytes: int | None = None,
    ) -> Casting:
        """Makes the nodes, subscribes everybody and lets the service tell them their parts, without any loss."""
        brokers = len(overlay.brokers)
        number = brokers + len(homes)
        identifiers = range(number + 1)
        planner = PathPlanner(CapacityGraph.of_overlay(overlay))
        service = NotificationService(number, settings, planner, identifiers, seed)
        publisher = PublisherNode(source, settings, identifiers, number, seed, payload_bytes)
        nodes: dict[int, DisseminationNode] = {
            b: publisher if b == source else Relay(b, settings, identifiers, number, seed, payload_bytes)
            for b in range(brokers)
        }
        for i, home in enumerate(homes, brokers):
            nodes[i] = SubscriberNode(i, home, settings, identifiers, number, seed, payload_bytes)
            service.subscribe(i, 1, home, TOPIC, "", 0.0)
        publication, effects = service.publish(source, TOPIC, settings.coding.packets, 1.0, 0.0)
        if publication.unreachable:
            names = sorted({overlay.brokers[homes[i - brokers]].name for i in publication.unreachable})
            raise AssumptionError(
                f"{settings.paths} paths: no link with a capacity leads to {', '.join(names)}; give links a capacity"
            )
        casting = cls(settings, source, tuple(homes), service, publisher, nodes, {}, {})
        casting._set_up(effects)
        return casting

    def _set_up(self, effects: Iterable[Effect]) -> None:
        branches: dict[int, list[Install]] = {}
        for effect in effects:
            assert isinstance(effect, SendTo)
            if isinstance(effect.message, Install):
                branches.setdefault(effect.to, []).append(effect.message)
            elif isinstance(effect.message, View):
                self.views[effect.to] = effect.message.peers
            for answer in self.nodes[effect.to].handle(effect.message, self.service.node, 0.0):
                assert isinstance(answer, SendTo)
                self.service.handle(answer.message, effect.to, 0.0)
        for node, parts in branches.items():
            joined = tuple(branch for part in sorted(parts, key=lambda part: part.part) for branch in part.branches)
            self.forwardings[node] = Forwarding(node, parts[0].packets, parts[0].expected, joined)


def compiled_scheme(casting: Casting, overlay: Overlay, net: Net, deadline_s: float) -> tuple[Rules, Scheme]:
    """The arrays of a scheme. What only the objects can do is refused."""
    settings, gossip = casting.settings, casting.settings.gossip
    if settings.pace or settings.early or (gossip is not None and gossip.partial):
        raise ConfigurationError("the compiled path has no pacing, early delivery or gossip of parts; run the objects")
    brokers, subscribers = len(overlay.brokers), len(casting.homes)
    coding = settings.coding
    can_gossip = gossip is not None and gossip.buffer_packets >= coding.packets
    # A push asks nothing, and an answer never leaves a gossip whose buffer has no room for one event.
    mode = _MODES[gossip.mode] if gossip is not None and can_gossip else 0
    rules = Rules(
        coding.packets,
        settings.packets,
        coding.field_bits,
        settings.recode,
        settings.retransmit,
        settings.retransmit_s,
        settings.tries_max,
        settings.flush_s,
        mode,
        gossip is not None and gossip.coded,
        0 if gossip is None else gossip.fan_out,
        0 if gossip is None else gossip.rounds,
        1.0 if gossip is None else gossip.interval_s,
        0.0 if gossip is None else gossip.patience_s,
        coding.packets if gossip is None or gossip.push_packets is None else gossip.push_packets,
        settings.paths == "none",
        deadline_s,
        casting.source,
        brokers,
        subscribers,
    )
    return rules, _arrays(casting, overlay, net, rules)


def _arrays(casting: Casting, overlay: Overlay, net: Net, rules: Rules) -> Scheme:
    links = {}
    for i, link in enumerate(overlay.links):
        links[link.a, link.b], links[link.b, link.a] = 2 * i, 2 * i + 1
    first, neighbour, link_of, count, contended, wants, expected = [0], [], [], [], [], [], []
    for broker in range(rules.brokers):
        forwarding = casting.forwardings.get(broker, Forwarding(broker, rules.sent, 0))
        for branch in forwarding.branches:
            neighbour.append(branch.neighbour)
            is_local = branch.neighbour >= rules.brokers
            link_of.append(int(net.down[branch.neighbour]) if is_local else links[broker, branch.neighbour])
            count.append(branch.count)
            contended.append(branch.is_contended)
            wants.append([branch.wants(number) for number in range(rules.sent)])
        first.append(len(neighbour))
        expected.append(forwarding.expected)
    peers_first: list[int] = [0]
    peers: list[int] = []
    for node in [*range(rules.brokers, rules.brokers + rules.subscribers), casting.source]:
        peers += casting.views.get(node, ()) if rules.gossip else ()
        peers_first.append(len(peers))
    order: list[tuple[int, int, int, int]] = []
    for place, i in enumerate(range(first[casting.source], first[casting.source + 1])):
        if rules.recode and contended[i]:
            mine = [NONE] * count[i]
        else:
            mine = [number for number in range(rules.sent) if wants[i][number]]
        order += [(turn, place, i, number) for turn, number in enumerate(mine)]
    order.sort()

    def ints(values: list[int]) -> np.ndarray:
        return np.array(values, dtype=np.int64)

    return Scheme(
        ints(first),
        ints(neighbour),
        ints(link_of),
        ints(count),
        np.array(contended, dtype=np.bool_),
        np.array(wants, dtype=np.bool_).reshape(len(neighbour), rules.sent),
        ints(expected),
        np.array([entry[2:] for entry in order], dtype=np.int64).reshape(len(order), 2),
        ints(peers_first),
        ints(peers),
        field_of(rules.bits).inverses,
    )
