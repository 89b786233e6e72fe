"""A scenario as coded delivery sees it: groups of subscribers, what separates them, and paths to their home brokers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from surecast.errors import AssumptionError, ConfigurationError
from surecast.prediction.coding.groups import PeerConnections
from surecast.prediction.coding.multicast import CodedLink, Way
from surecast.scenario.paths import CapacityGraph, PathKind, PathPlan, Schedule, plan_paths
from surecast.scenario.spec.delivery import Coding
from surecast.scenario.system import Overlay, System

__all__ = ["Audience", "ChannelAssumptions", "PathSet", "audiences_of", "path_set", "peers_of"]

Array = NDArray[np.float64]
Hop = tuple[float, float | None]
"""Loss of a link, and packets in a row that it loses on average; None: each on its own."""


@dataclass(frozen=True, slots=True)
class ChannelAssumptions:
    """Losses and delays beside the links of the overlay, and the assumptions for all links.

    `access_loss` is lost between a home broker and its subscriber. `peer_loss` is lost between any two subscribers;
    None: what the overlay's shortest path between their home brokers loses. With `serialise` a link passes packets
    one after the other at its capacity; else all at once.
    """

    access_loss: float = 0.0
    peer_loss: float | None = None
    serialise: bool = True

    @classmethod
    def of_scenario(cls, spec: Coding) -> ChannelAssumptions:
        """Returns the channel that a scenario describes.

        >>> ChannelAssumptions.of_scenario(Coding(access_loss=0.1)).access_loss
        0.1
        """
        return cls(spec.access_loss, spec.peer_loss)

    def __post_init__(self) -> None:
        for name in ("access_loss", "peer_loss"):
            value = getattr(self, name)
            if value is not None and not 0.0 <= value < 1.0:
                raise ConfigurationError(f"channel {name}: {value} must be a share from 0 to below 1")


@dataclass(frozen=True)
class Audience:
    """Subscribers that get the same events from one home broker.

    `homes` are their home brokers and `members` the subscribers at each, by index. `flows` are the publishers, by
    index, and the events per second that each has for them.
    """

    source: int
    deadline_s: float
    homes: tuple[int, ...]
    members: tuple[tuple[int, ...], ...]
    flows: tuple[tuple[int, float], ...]

    @cached_property
    def weights(self) -> Array:
        """The number of subscribers of each home broker."""
        return np.array([len(group) for group in self.members], dtype=np.float64)

    @property
    def size(self) -> int:
        return sum(len(group) for group in self.members)

    @property
    def rate_per_s(self) -> float:
        return math.fsum(rate for _, rate in self.flows)


@dataclass(frozen=True)
class PathSet:
    """Paths to the home brokers of an audience for events of a number of packets.

    `hops` are loss and bursts of the links of each path to each home broker, `shares` the packets on it, `latency_s`
    when its first packet comes and `arrival_s` when its last does, if no relay has to wait, and `relays` how many a
    packet passes at most.
    """

    kind: PathKind
    packets: int
    links: tuple[CodedLink, ...]
    ways: tuple[Way | None, ...]
    hops: tuple[tuple[tuple[Hop, ...], ...], ...]
    shares: tuple[tuple[int, ...], ...]
    is_single: bool
    latency_s: Array
    arrival_s: Array
    relays: NDArray[np.intp]
    limits_per_s: Array
    rate_per_s: float

    @property
    def messages(self) -> int:
        """Packets of an event on all links together."""
        return sum(link.sent for link in self.links)

    @property
    def is_bursty(self) -> bool:
        return any(link.burst_mean is not None and link.loss > 0.0 for link in self.links)


def audiences_of(system: System) -> tuple[Audience, ...]:
    """Returns the audiences of a system: one for each publisher's home broker, deadline and set of subscribers."""
    flows_by_audience: dict[tuple[int, float, tuple[int, ...]], dict[int, float]] = {}
    for p, publisher in enumerate(system.publishers):
        for topic in publisher.topics:
            wanted = tuple(i for i, s in enumerate(system.subscribers) if topic in s.topics)
            if wanted and publisher.rate_per_s > 0.0:
                flows = flows_by_audience.setdefault((publisher.home, publisher.deadline_s, wanted), {})
                flows[p] = flows.get(p, 0.0) + publisher.rate_per_s / len(publisher.topics)
    audiences = []
    for (source, deadline_s, wanted), flows in flows_by_audience.items():
        by_home: dict[int, list[int]] = {}
        for i in wanted:
            by_home.setdefault(system.subscribers[i].home, []).append(i)
        homes = tuple(sorted(by_home))
        members = tuple(tuple(by_home[home]) for home in homes)
        audiences.append(Audience(source, deadline_s, homes, members, tuple(flows.items())))
    return tuple(audiences)


def peers_of(
    overlay: Overlay, audience: Audience, channel: ChannelAssumptions, with_source: bool = False
) -> PeerConnections:
    """Losses and latencies between the home brokers of an audience, and its publisher's where that gossips too: over
    fewest links, and the fastest among these."""
    import networkx as nx

    sites = [*audience.homes, audience.source] if with_source else list(audience.homes)
    graph = overlay.subgraph(range(len(overlay.links)))
    longest_s = 1.0 + math.fsum(link.latency_s for link in overlay.links)
    for _, _, data in graph.edges(data=True):
        data["length"] = 1.0 + data["latency"] / longest_s
    success, latency_s = np.ones((len(sites), len(sites))), np.zeros((len(sites), len(sites)))
    beside = (1.0 - channel.access_loss) ** 2
    ways: list[tuple[int, ...]] = []
    for i, start in enumerate(sites):
        paths = nx.single_source_dijkstra_path(graph, start, weight="length")
        for j, end in enumerate(sites):
            steps = [(a, graph.edges[a, b]["link"]) for a, b in zip(paths[end], paths[end][1:], strict=False)]
            links = [overlay.links[k] for _, k in steps]
            latency_s[i, j] = math.fsum(link.latency_s for link in links)
            success[i, j] = math.prod(1.0 - link.loss for link in links) * beside
            ways.append(tuple(2 * k + (overlay.links[k].a != a) for a, k in steps))
    if channel.peer_loss is not None:
        success[:] = 1.0 - channel.peer_loss
    elif any(link.burst_mean is not None and link.loss > 0.0 for link in overlay.links):
        facts = tuple((link.loss, link.burst_mean) for link in overlay.links for _ in range(2))
        return PeerConnections(success, latency_s, facts, tuple(ways), beside)
    return PeerConnections(success, latency_s)


def path_set(
    overlay: Overlay, audience: Audience, kind: PathKind, packets: int, channel: ChannelAssumptions
) -> PathSet:
    """Plans the paths of an audience and divides the packets of an event among them."""
    plan = plan_paths(CapacityGraph.of_overlay(overlay), kind, audience.source, audience.homes)
    if plan.unreachable:
        names = ", ".join(overlay.brokers[broker].name for broker in plan.unreachable)
        raise AssumptionError(f"{kind} paths: no link with a capacity leads to {names}; give links a capacity")
    schedule = Schedule.of(plan, packets) if plan.paths else None
    facts = {}
    for link in overlay.links:
        facts[link.a, link.b] = facts[link.b, link.a] = link
    counts = {} if schedule is None else schedule.counts
    links = tuple(CodedLink(a, b, sent, facts[a, b].loss, facts[a, b].burst_mean) for (a, b), sent in counts.items())
    ways: list[Way | None] = []
    hops, shares, latency_s, arrival_s, relays = [], [], [], [], []
    for home in audience.homes:
        paths = sorted(plan.paths.get(home, ()), key=lambda path: path.nodes)
        # Brokers combine all that they have, so that packets on the paths of others help as well.
        ways.append(Way(home, tuple(range(len(links)))) if paths else None)
        hops.append(tuple(tuple((facts[k].loss, facts[k].burst_mean) for k in path.links) for path in paths))
        shares.append(_shares(plan, home, packets))
        times = [math.fsum(facts[link].latency_s for link in path.links) for path in paths]
        busy = [max(_busy_s(counts.get(k, 0), facts[k].capacity_per_s, channel) for k in p.links) for p in paths]
        latency_s.append(max(times, default=0.0))
        arrival_s.append(max((t + b for t, b in zip(times, busy, strict=True)), default=0.0))
        relays.append(max((len(path.links) - 1 for path in paths), default=0))
    limits = np.array([plan.limits.get(home, math.inf) for home in audience.homes])
    return PathSet(
        kind,
        packets,
        links,
        tuple(ways),
        tuple(hops),
        tuple(shares),
        kind != "maximum-flow",
        np.array(latency_s),
        np.array(arrival_s),
        np.array(relays, dtype=np.intp),
        limits,
        plan.rate_per_s if plan.paths else math.inf,
    )


def _shares(plan: PathPlan, home: int, packets: int) -> tuple[int, ...]:
    from surecast.scenario.paths import apportion

    paths = sorted(plan.paths.get(home, ()), key=lambda path: path.nodes)
    return tuple(apportion(packets, [path.rate_per_s for path in paths])) if paths else ()


def _busy_s(packets: int, capacity_per_s: float, channel: ChannelAssumptions) -> float:
    return packets / capacity_per_s if channel.serialise and capacity_per_s < math.inf else 0.0
