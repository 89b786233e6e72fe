"""The arrays that all runs share: the trees of all sources, the groups' times, and how each subscriber is simulated."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from surecast.errors import AssumptionError, ConfigurationError
from surecast.scenario import System
from surecast.scenario.group import Group, group_of, is_replicated
from surecast.scenario.mechanism import Mechanism
from surecast.scenario.saturation import broker_rates_per_s, refuse_saturated_events
from surecast.simulation.dropping.dropping_plan import check_stable
from surecast.simulation.reliability.compiled.compiled_plan import CompiledPlan, EventSource, make_plan

__all__ = ["SCHEMES", "ComposedPlan", "Outlet", "Stream", "compose_plan"]

SCHEMES = ("none", "periodic-subscription", "buffering")
"""The schemes that can be simulated together with queues and dropping."""

_TARGETS_MAX = 62
"""Targets of one source: they are the bits of a number."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Stream:
    """One publisher's events on one topic: the node where they start, and the interests they are for."""

    publisher: int
    topic: str
    root: int
    interests: tuple[int, ...]
    deadline_s: float
    rate_per_s: float
    nodes: int


@dataclass(frozen=True, slots=True)
class Outlet:
    """A subscriber that is simulated, with its mechanism, and the streams that it gets: the place of its interest."""

    subscriber: int
    mechanism: Mechanism
    feeds: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class ComposedPlan:
    """The system as arrays for `kernels.travel`; `visits_per_s` is how often events come to each broker, at most."""

    system: System
    scheme: str
    walk: CompiledPlan
    streams: tuple[Stream, ...]
    outlets: tuple[Outlet, ...]
    tree: tuple[NDArray[np.int64], Ints, Floats, Ints, Ints, Ints, Ints]
    node_source: tuple[tuple[int, int], ...]
    """The source (-1: a stream that nobody subscribes to) and the place in it of each node."""
    groups: Floats
    laws: tuple[Group | None, ...]
    loads: tuple[float, ...]

    @property
    def bits(self) -> int:
        return max((len(stream.interests) for stream in self.streams), default=1) or 1


def compose_plan(system: System, scheme: str, mechanisms: Mapping[str, Mechanism]) -> ComposedPlan:
    """Lays out the trees; refuses what cannot be simulated, naming it."""
    if scheme not in SCHEMES:
        raise AssumptionError(
            f"delivery.fault_tolerance.scheme: {scheme} is not simulated together with queues and dropping; write one "
            f"of {', '.join(SCHEMES)}"
        )
    refuse_saturated_events(system)
    walk = make_plan(replace(system, client_failures=None))
    if not walk.sources:
        raise AssumptionError(f"{system.name}: no subscriber has a matching publisher; there is nothing to simulate")
    for source in walk.sources:
        if len(source.targets) > _TARGETS_MAX:
            raise AssumptionError(
                f"publisher {system.publishers[source.publisher].name}: its events on {source.topic} have "
                f"{len(source.targets)} different interests; the composed simulation takes at most {_TARGETS_MAX}"
            )
    streams, tree, node_source = _lay_out(system, walk)
    outlets = _outlets(system, walk, streams, mechanisms)
    replicated = is_replicated(system)
    groups = [group_of(system, i) if replicated else None for i in range(len(system.overlay.brokers))]
    rows = np.array([_group_row(group) for group in groups], dtype=np.float64)
    loads = tuple(broker_rates_per_s(system))
    return ComposedPlan(system, scheme, walk, streams, outlets, tree, node_source, rows, tuple(groups), loads)


def _group_row(group: Group | None) -> list[float]:
    """For each event an instance of its own: times to propose, to vote, to carry out, of a message and of a sync."""
    if group is None:
        return [0.0] * 7
    costs, peers = group.costs, group.replicas - 1
    share = peers * costs.peer_s / 2
    propose = costs.instance_s + share + costs.publication_s
    vote = costs.follower_instance_s + costs.follower_publication_s
    return [1.0, float(peers > 0), propose, vote, share, group.delay_s, group.sync_s]


def _lay_out(
    system: System, walk: CompiledPlan
) -> tuple[tuple[Stream, ...], tuple[Ints, Ints, Floats, Ints, Ints, Ints, Ints], tuple[tuple[int, int], ...]]:
    brokers = len(system.overlay.brokers)
    columns: list[tuple[int, int, float, int, int]] = []
    children: list[list[int]] = []
    streams, node_source = [], []
    sources: dict[tuple[int, str], tuple[int, EventSource]] = {
        (source.publisher, source.topic): (i, source) for i, source in enumerate(walk.sources)
    }
    for p, publisher in enumerate(system.publishers):
        for topic in publisher.topics:
            at, source = sources.get((p, topic), (-1, None))
            root = len(columns)
            rate = publisher.rate_per_s / len(publisher.topics)
            if source is None:
                # nobody asks for these events, but their home broker has them to process
                columns.append((publisher.home, -1, 0.0, 0, 0))
                children.append([])
                node_source.append((-1, 0))
                streams.append(Stream(p, topic, root, (), publisher.deadline_s, rate, 1))
                continue
            here, below = _masks(source)
            for node, broker in enumerate(source.broker):
                link = source.link[node] - brokers
                latency = system.overlay.links[link].latency_s if node else 0.0
                columns.append((broker, source.hop[node], latency, here[node], below[node]))
                children.append([root + c for c, parent in enumerate(source.parent) if parent == node])
                node_source.append((at, node))
            interests = tuple(target.interest for target in source.targets)
            streams.append(Stream(p, topic, root, interests, publisher.deadline_s, rate, len(source.broker)))
    starts = np.cumsum([0, *(len(row) for row in children)]).astype(np.int64)
    flat = np.array([child for row in children for child in row], dtype=np.int64)
    ints = [np.array([row[i] for row in columns], dtype=np.int64) for i in (0, 1, 3, 4)]
    latencies = np.array([row[2] for row in columns], dtype=np.float64)
    tree = (ints[0], ints[1], latencies, ints[2], ints[3], starts, flat)
    return tuple(streams), tree, tuple(node_source)


def _masks(source: EventSource) -> tuple[list[int], list[int]]:
    """The targets of a source at each node, and at it or behind it."""
    here, below = [0] * len(source.broker), [0] * len(source.broker)
    for bit, target in enumerate(source.targets):
        here[target.node] |= 1 << bit
        for node in target.path:
            below[node] |= 1 << bit
    return here, below


def _outlets(
    system: System, walk: CompiledPlan, streams: tuple[Stream, ...], mechanisms: Mapping[str, Mechanism]
) -> tuple[Outlet, ...]:
    found = []
    for i, subscriber in enumerate(system.subscribers):
        interest = int(walk.interest_of[i])
        feeds = tuple(
            (s, stream.interests.index(interest)) for s, stream in enumerate(streams) if interest in stream.interests
        )
        if not feeds:
            continue
        if subscriber.connectivity is not None and subscriber.name not in mechanisms:
            continue
        mechanism = mechanisms[subscriber.name] if subscriber.connectivity is not None else Mechanism()
        if mechanism.input_buffer_size is not None:
            raise ConfigurationError(
                f"mechanisms: {subscriber.name}: input buffers are not simulated together with failures; leave out "
                "input_buffer_size"
            )
        rate = math.fsum(streams[s].rate_per_s for s, _ in feeds)
        where = f"subscriber {subscriber.name}"
        check_stable(where, rate, subscriber.service, subscriber.connectivity, mechanism)
        found.append(Outlet(i, mechanism, feeds))
    if not found:
        raise AssumptionError(f"{system.name}: no subscriber can be served; there is nothing to simulate")
    return tuple(found)
