"""The arrays that all runs share: the trees of all sources, the queues on links, the groups' times, and how each
subscriber is simulated."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from surecast.errors import AssumptionError, ConfigurationError, refuse_unknown
from surecast.scenario import System
from surecast.scenario.group import Group, groups_of
from surecast.scenario.mechanism import Mechanism
from surecast.scenario.saturation import (
    Component,
    broker_rates_per_s,
    component_name,
    component_service,
    control_rates_per_s,
    on_link,
    refuse_saturated_events,
)
from surecast.scenario.spec.delivery import SCHEMES
from surecast.scenario.topic_schemes import topic_schemes, without_topic_schemes
from surecast.simulation.dropping.dropping_plan import check_stable
from surecast.simulation.reliability.compiled.compiled_plan import CompiledPlan, EventSource, make_plan

__all__ = ["Besides", "ComposedPlan", "Outlet", "Stream", "compose_plan"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Besides = Mapping[str, tuple[float, float]]
"""Other traffic of brokers and links, by name: its utilisation, and its rate times the second moment of its service."""


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
class Layout:
    """The trees of all streams as arrays for `kernels.travel`; `targets` has no entries yet."""

    tree: tuple[Ints, Ints, Ints, Ints, Ints]
    target_starts: Ints
    target_place: Ints
    target_here: NDArray[np.bool_]
    target_node: Ints
    target_home: Ints
    node_parent: Ints
    node_stream: Ints
    node_of: Ints
    node_source: tuple[tuple[int, int], ...]
    """The source (-1: a stream that nobody subscribes to) and the place in it of each node."""


@dataclass(frozen=True)
class ComposedPlan:
    """The system as arrays for `kernels.travel`. `stations` are the queues on links, `others` the Poisson streams of
    other work: the queue, the rate, and the mean and squared coefficient of variation of the service."""

    system: System
    scheme: str
    walk: CompiledPlan
    streams: tuple[Stream, ...]
    outlets: tuple[Outlet, ...]
    layout: Layout
    links: tuple[Floats, Floats, Ints, Ints]
    stations: tuple[Component, ...]
    others: tuple[tuple[int, float, float, float], ...]
    groups: Floats
    laws: tuple[Group | None, ...]
    loads: tuple[float, ...]

    @cached_property
    def schemes(self) -> tuple[str, ...]:
        """The scheme of each stream: that of its topic."""
        by_topic = topic_schemes(self.system, self.scheme)
        return tuple(by_topic[stream.topic] for stream in self.streams)

    @property
    def stores(self) -> bool:
        """Returns whether the events of any stream are stored."""
        return any(scheme.endswith("buffering") for scheme in self.schemes)

    @property
    def answers(self) -> bool:
        """Returns whether acknowledgements take any time."""
        return self.stores and bool(self.stations or any(b.control_service for b in self.system.overlay.brokers))

    @property
    def around(self) -> bool:
        """Returns whether the events of any stream go around what is down."""
        return any(scheme.startswith("bypass") for scheme in self.schemes)

    def rules(self, interval_s: float) -> tuple[Flags, float, Flags, Flags]:
        """Returns what the kernel needs of the schemes: by stream, whether events are stored, acknowledged and go
        around what is down."""
        stored = np.array([scheme.endswith("buffering") for scheme in self.schemes], dtype=np.bool_)
        around = np.array([scheme.startswith("bypass") for scheme in self.schemes], dtype=np.bool_)
        return stored, interval_s, stored & self.answers, around


def compose_plan(
    system: System, scheme: str, mechanisms: Mapping[str, Mechanism], besides: Besides | None = None
) -> ComposedPlan:
    """Lays out the trees; refuses what cannot be simulated, naming it."""
    refuse_unknown("scheme", [scheme], SCHEMES)
    refuse_saturated_events(system)
    walk = make_plan(replace(without_topic_schemes(system), client_failures=None))
    if not walk.sources:
        raise AssumptionError(f"{system.name}: no subscriber has a matching publisher; there is nothing to simulate")
    streams, layout = _lay_out(system, walk)
    outlets = _outlets(system, walk, streams, mechanisms)
    groups = groups_of(system)
    rows = np.array([_group_row(group) for group in groups], dtype=np.float64)
    links, stations = _links(system)
    others = _others(system, scheme, stations, besides or {}, groups)
    loads = tuple(broker_rates_per_s(system))
    return ComposedPlan(system, scheme, walk, streams, outlets, layout, links, stations, others, rows, groups, loads)


def _links(system: System) -> tuple[tuple[Floats, Floats, Ints, Ints], tuple[Component, ...]]:
    """Returns latency, loss and queues by overlay link and direction, from its first broker and then back."""
    number: dict[Component, int] = {}
    latency, loss, starts, items = [], [], [0], []
    for i, link in enumerate(system.overlay.links):
        for start in (link.a, link.b):
            items += [number.setdefault(component, len(number)) for component in on_link(system, i, start)]
            starts.append(len(items))
            latency.append(link.latency_s)
            loss.append(link.loss)
    arrays = np.array(starts, dtype=np.int64), np.array(items, dtype=np.int64)
    return (np.array(latency, dtype=np.float64), np.array(loss, dtype=np.float64), *arrays), tuple(number)


def _others(
    system: System, scheme: str, stations: tuple[Component, ...], besides: Besides, groups: Sequence[Group | None]
) -> tuple[tuple[int, float, float, float], ...]:
    """Returns the Poisson streams of refreshes and of the states of links, and of other traffic."""
    brokers = system.overlay.brokers
    rates = control_rates_per_s(system, scheme)
    found = []
    for i, broker in enumerate(brokers):
        service = broker.control_service
        if service is not None and rates[0][i] > 0.0 and groups[i] is None:
            found.append((i, rates[0][i], service.mean_s, service.squared_cv))
    for station, component in enumerate(stations):
        rate, service = rates[1].get(component, 0.0), component_service(system, component)
        if rate > 0.0:
            found.append((len(brokers) + station, rate, service.mean_s, service.squared_cv))
    names = {f"broker {broker.name}": i for i, broker in enumerate(brokers) if groups[i] is None}
    names |= {component_name(system, component): len(brokers) + i for i, component in enumerate(stations)}
    for name, (load, second) in besides.items():
        if name in names and load > 0.0:
            mean_s = second / load / 2.0  # as of exponential times
            found.append((names[name], load / mean_s, mean_s, 1.0))
    return tuple(found)


def _group_row(group: Group | None) -> list[float]:
    """For each event an instance of its own: times to propose, to vote, to carry out, of a message and of a sync."""
    if group is None:
        return [0.0] * 7
    costs, peers = group.costs, group.replicas - 1
    share = peers * costs.peer_s / 2
    propose = costs.instance_s + share + costs.publication_s
    vote = costs.follower_instance_s + costs.follower_publication_s
    return [1.0, float(peers > 0), propose, vote, share, group.delay_s, group.sync_s]


def _lay_out(system: System, walk: CompiledPlan) -> tuple[tuple[Stream, ...], Layout]:
    brokers = len(system.overlay.brokers)
    columns: list[tuple[int, int, int, int, int]] = []
    children: list[list[int]] = []
    rows: list[list[tuple[int, bool, int, int]]] = []
    streams: list[Stream] = []
    node_source: list[tuple[int, int]] = []
    sources: dict[tuple[int, str], tuple[int, EventSource]] = {
        (source.publisher, source.topic): (i, source) for i, source in enumerate(walk.sources)
    }
    for p, publisher in enumerate(system.publishers):
        for topic in publisher.topics:
            at, source = sources.get((p, topic), (-1, None))
            root, stream = len(columns), len(streams)
            rate = publisher.rate_per_s / len(publisher.topics)
            if source is None:
                # nobody asks for these events, but their home broker has them to process
                columns.append((publisher.home, -1, 0, -1, stream))
                children.append([])
                rows.append([])
                node_source.append((-1, 0))
                streams.append(Stream(p, topic, root, (), publisher.deadline_s, rate, 1))
                continue
            below: list[list[tuple[int, bool, int, int]]] = [[] for _ in source.broker]
            for place, target in enumerate(source.targets):
                for node in target.path:
                    below[node].append((place, node == target.node, root + target.node, target.home))
            followers: list[list[int]] = [[] for _ in source.broker]
            for node, broker in enumerate(source.broker):
                parent, link = source.parent[node], source.link[node] - brokers
                if node:
                    followers[parent].append(root + node)
                over = 2 * link + (system.overlay.links[link].a == broker) if node else 0
                columns.append((broker, source.hop[node], over, root + parent if node else -1, stream))
                node_source.append((at, node))
            children += followers
            rows += below
            interests = tuple(target.interest for target in source.targets)
            streams.append(Stream(p, topic, root, interests, publisher.deadline_s, rate, len(source.broker)))
    starts, flat = _flat(children)
    ints = [np.array([row[i] for row in columns], dtype=np.int64) for i in range(5)]
    target_starts, _ = _flat([[0] * len(row) for row in rows])
    targets = [np.array([entry[i] for row in rows for entry in row], dtype=np.int64) for i in range(4)]
    node_of = np.full((len(streams), brokers), -1, dtype=np.int64)
    node_of[ints[4], ints[0]] = np.arange(len(columns))
    layout = Layout(
        (ints[0], ints[1], ints[2], starts, flat),
        target_starts,
        targets[0],
        targets[1].astype(np.bool_),
        targets[2],
        targets[3],
        ints[3],
        ints[4],
        node_of,
        tuple(node_source),
    )
    return tuple(streams), layout


def _flat(rows: list[list[int]]) -> tuple[Ints, Ints]:
    """Returns where each row starts, and all rows in one."""
    starts = np.cumsum([0, *(len(row) for row in rows)]).astype(np.int64)
    return starts, np.array([entry for row in rows for entry in row], dtype=np.int64)


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
