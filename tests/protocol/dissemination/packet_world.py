"""A small world for nodes: virtual time, a latency for every message, and a say in which are lost."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from surecast.protocol.dissemination import (
    Data,
    DisseminationNode,
    DisseminationSettings,
    Effect,
    EventComplete,
    EventPrefix,
    Expire,
    GrantedPublication,
    Message,
    NotificationService,
    PublisherNode,
    Relay,
    SendTo,
    SubscriberNode,
)
from surecast.protocol.gossip import Announcement, PacketRequest, Push, Reply
from surecast.protocol.paths import PathPlanner
from surecast.scenario.paths import CapacityGraph

SERVICE = 9999
Lose = Callable[[int, int, Message], bool]


class World:
    """Brokers 0 to B-1 (0 publishes), and subscribers with the numbers given, each at a home."""

    def __init__(
        self,
        graph: CapacityGraph,
        brokers: int,
        homes: dict[int, int],
        settings: DisseminationSettings,
        seed: int = 1,
        lose: Lose = lambda a, b, message: False,
        wire: bool = False,
        latency_s: float = 0.01,
    ):
        self.planner = PathPlanner(graph)
        known = frozenset([*range(brokers), *homes, SERVICE])
        self.service = NotificationService(SERVICE, settings, self.planner, known, seed)
        self.publisher = PublisherNode(0, settings, known, SERVICE, seed)
        self.relays = {n: Relay(n, settings, known, SERVICE, seed) for n in range(1, brokers)}
        self.subscribers = {n: SubscriberNode(n, home, settings, known, SERVICE, seed) for n, home in homes.items()}
        self.nodes: dict[int, DisseminationNode] = {
            SERVICE: self.service,
            0: self.publisher,
            **self.relays,
            **self.subscribers,
        }
        self.lose = lose
        self.wire = wire
        self.latency_s = latency_s
        self.now = 0.0
        self.sent: list[tuple[float, int, int, Message]] = []
        self.notified: dict[int, dict[int, tuple[float, EventComplete]]] = {n: {} for n in homes}
        self.early: list[tuple[int, EventPrefix]] = []
        self.expired: list[tuple[int, Expire]] = []
        self._queue: list[tuple[float, int, int, int, Message]] = []
        self._serial = 0

    def subscribe_all(self, topic: str = "t") -> None:
        for n, subscriber in self.subscribers.items():
            self.service.subscribe(n, 1, subscriber.home, topic, "", self.now)

    def publish(self, data: bytes, deadline_s: float, topic: str = "t") -> GrantedPublication:
        """Publishes an event; the paths are set up before it is sent."""
        publication, effects = self.service.publish(0, topic, len(data), deadline_s, self.now)
        lose, self.lose = self.lose, lambda a, b, message: False
        self.carry_out(SERVICE, effects)
        self.run(self.now + 3 * self.latency_s)
        self.lose = lose
        group = publication.group
        self.carry_out(0, self.publisher.publish(publication.event_id, group, data, deadline_s, self.now))
        return publication

    def carry_out(self, node: int, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, SendTo):
                self.sent.append((self.now, node, effect.to, effect.message))
                if not self.lose(node, effect.to, effect.message):
                    self._serial += 1
                    due_s = self.now + effect.after_s + self.latency_s
                    heapq.heappush(self._queue, (due_s, self._serial, node, effect.to, effect.message))
            elif isinstance(effect, EventComplete):
                assert effect.event_id not in self.notified[node], "an event is notified once"
                self.notified[node][effect.event_id] = (self.now, effect)
            elif isinstance(effect, EventPrefix):
                self.early.append((node, effect))
            else:
                self.expired.append((node, effect))

    def run(self, until_s: float = math.inf) -> None:
        """Runs until a time, or until nothing is left to do."""
        while True:
            timers = {n: node.next_timer() for n, node in self.nodes.items()}
            first = min(timers, key=timers.__getitem__)
            message_s = self._queue[0][0] if self._queue else math.inf
            due_s = min(timers[first], message_s)
            if due_s > until_s or due_s == math.inf:
                self.now = max(self.now, until_s) if until_s < math.inf else self.now
                return
            self.now = max(self.now, due_s)
            if message_s <= timers[first]:
                _, _, sender, to, message = heapq.heappop(self._queue)
                node = self.nodes[to]
                if self.wire:
                    effects = node.receive(self.nodes[sender].datagram(message), sender, self.now)
                else:
                    effects = node.handle(message, sender, self.now)
                self.carry_out(to, effects)
            else:
                self.carry_out(first, self.nodes[first].handle_timer(self.now))

    def count(self, kind: type) -> int:
        return sum(isinstance(message, kind) for _, _, _, message in self.sent)


def lossy(
    probability: float, seed: int, kinds: tuple[type, ...] = (Data, Announcement, PacketRequest, Push, Reply)
) -> Lose:
    """Every message of these kinds is lost with a probability; those between a broker and its subscribers too."""
    rng = np.random.default_rng(seed)
    return lambda a, b, message: isinstance(message, kinds) and bool(rng.random() < probability)


def with_gossip(settings: DisseminationSettings, **changes: object) -> DisseminationSettings:
    assert settings.gossip is not None
    return replace(settings, gossip=replace(settings.gossip, **changes))  # type: ignore[arg-type]
