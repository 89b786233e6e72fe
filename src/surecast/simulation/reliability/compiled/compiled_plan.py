"""The arrays that all runs of a simulation share: the components, and the ways of events through them.

Components are numbered: the brokers, then the overlay links, then, where the links between clients and their home
brokers can fail, one access link per publisher and per subscriber. Each *source* is one publisher's events on one
topic; its routes to all subscriber homes form a tree. Subscribers of equal interest are one target, unless their access
links can fail: then each is a target of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from surecast.errors import AssumptionError
from surecast.scenario import System
from surecast.scenario.flows import Flows, flows_of
from surecast.scenario.system import Failures

__all__ = ["NONE", "CompiledPlan", "Component", "EventSource", "EventTarget", "RefreshedEntry", "make_plan"]

NONE = -1
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Component:
    """Something that fails: its kind and name key its random streams."""

    kind: str
    name: str
    failures: Failures | None


@dataclass(frozen=True, slots=True)
class EventTarget:
    """A destination of a source's events: a node of its tree, the broker there, and an access link or NONE.

    `path` has the nodes from the root to it, and `latency_s` is that of the links between them.
    """

    interest: int
    node: int
    home: int
    access: int
    path: tuple[int, ...]
    latency_s: float = 0.0


@dataclass
class EventSource:
    """One publisher's events on one topic, and the tree of the routes they take.

    Node 0 is the publisher's home; parents stand before their children. `broker` is the broker of each node, `link`
    the component that leads to it, `hop` the index of that hop; `children` finds a broker below a node.
    """

    publisher: int
    topic: str
    stride: int
    offset: int
    lifetime_s: float
    access: int
    broker: list[int]
    parent: list[int] = field(default_factory=lambda: [NONE])
    link: list[int] = field(default_factory=lambda: [NONE])
    hop: list[int] = field(default_factory=lambda: [NONE])
    targets: list[EventTarget] = field(default_factory=list)
    children: dict[tuple[int, int], int] = field(default_factory=dict)

    def path(self, node: int) -> tuple[int, ...]:
        nodes = [node]
        while self.parent[nodes[-1]] != NONE:
            nodes.append(self.parent[nodes[-1]])
        return tuple(reversed(nodes))


@dataclass(frozen=True, slots=True)
class RefreshedEntry:
    """The refreshes of a topic from a home broker, and how they spread along the topic's tree (see `intervals.flood`).

    `needed` are the brokers whose entries matter, being on a route to that home.
    """

    topic: str
    home: int
    order: Ints
    before: Ints
    link: Ints
    onward: Ints
    needed: tuple[int, ...]


@dataclass(frozen=True)
class CompiledPlan:
    """The system as arrays. `interest_of` has the interest of each subscriber, NONE where nothing is published to it.

    `hops` has, for each hop, the components that must be up together: sender, link and receiver; `subscriptions` has
    every topic and home broker that it is refreshed from.
    """

    system: System
    components: tuple[Component, ...]
    sources: tuple[EventSource, ...]
    interests: int
    interest_of: Ints
    hops: tuple[tuple[int, ...], ...]
    subscriptions: tuple[RefreshedEntry, ...]

    @property
    def brokers(self) -> int:
        return len(self.system.overlay.brokers)

    @property
    def has_latency(self) -> bool:
        """Returns whether any event takes time on its links."""
        return any(target.latency_s > 0.0 for source in self.sources for target in source.targets)

    def link_ends(self) -> tuple[Ints, Ints]:
        """The two brokers of each overlay link."""
        links = self.system.overlay.links
        return np.array([link.a for link in links], dtype=np.int64), np.array(
            [link.b for link in links], dtype=np.int64
        )


def make_plan(system: System) -> CompiledPlan:
    """Numbers the components and grows the trees of all sources."""
    if system.delivery.fault_tolerance.schemes:
        raise AssumptionError(
            f"{system.name}: delivery.fault_tolerance.schemes gives topics schemes of their own, which this "
            "simulation does not have; leave out --alone and --scheme, or simulate with --method protocol"
        )
    overlay, flows = system.overlay, flows_of(system)
    components = [Component("broker", broker.name, broker.failures) for broker in overlay.brokers]
    components += [Component("link", link.name, link.failures) for link in overlay.links]
    by_subscriber = system.client_failures is not None
    publisher_access = subscriber_access = NONE
    if by_subscriber:
        publisher_access = len(components)
        components += [Component("publisher", p.name, system.client_failures) for p in system.publishers]
        subscriber_access = len(components)
        components += [Component("subscriber", s.name, system.client_failures) for s in system.subscribers]
    hops: dict[tuple[int, ...], int] = {}
    members: dict[int, list[int]] = {}
    for subscriber, interest in enumerate(flows.interest_of.tolist()):
        members.setdefault(interest, []).append(subscriber)
    sources: dict[tuple[int, int], EventSource] = {}
    for flow in range(len(flows.interest)):
        source = _source(system, flows, flow, sources, publisher_access)
        node = _grow(system, source, flows, flow, hops)
        interest = int(flows.interest[flow])
        path, home = source.path(node), source.broker[node]
        passed = (overlay.links[link] for link in flows.routes[int(flows.route[flow])].links)
        latency_s = math.fsum(link.latency_s for link in passed)
        if by_subscriber:
            for i in members[interest]:
                source.targets.append(EventTarget(i, node, home, subscriber_access + i, path, latency_s))
        else:
            source.targets.append(EventTarget(interest, node, home, NONE, path, latency_s))
    interest_of = np.arange(len(system.subscribers)) if by_subscriber else flows.interest_of.astype(np.int64)
    reached = {target.interest for source in sources.values() for target in source.targets}
    interest_of = np.array([i if i in reached else NONE for i in interest_of.tolist()], dtype=np.int64)
    count = len(system.subscribers) if by_subscriber else len(flows.interests)
    subscriptions = _subscriptions(system, flows, list(sources.values()))
    return CompiledPlan(
        system, tuple(components), tuple(sources.values()), count, interest_of, tuple(hops), subscriptions
    )


def _subscriptions(system: System, flows: Flows, sources: list[EventSource]) -> tuple[RefreshedEntry, ...]:
    needed: dict[tuple[str, int], set[int]] = {(t, home): set() for home, topics in flows.interests for t in topics}
    for source in sources:
        for target in source.targets:
            needed[source.topic, target.home].update(source.broker[node] for node in target.path)
    neighbours: dict[tuple[int, ...], list[list[tuple[int, int]]]] = {}
    return tuple(
        _spread(system, topic, home, neighbours, tuple(sorted(brokers))) for (topic, home), brokers in needed.items()
    )


def _spread(
    system: System,
    topic: str,
    home: int,
    neighbours: dict[tuple[int, ...], list[list[tuple[int, int]]]],
    needed: tuple[int, ...],
) -> RefreshedEntry:
    """Returns the way of the refreshes of a topic from a home broker; `neighbours` keeps those of each tree."""
    tree = system.overlay.trees[topic]
    if tree not in neighbours:
        neighbours[tree] = [[] for _ in system.overlay.brokers]
        for index in tree:
            link = system.overlay.links[index]
            neighbours[tree][link.a].append((link.b, len(system.overlay.brokers) + index))
            neighbours[tree][link.b].append((link.a, len(system.overlay.brokers) + index))
    order, before, links, onward, reached = [home], [NONE], [NONE], [], {home}
    for i, broker in enumerate(order):
        new = [(other, component) for other, component in neighbours[tree][broker] if other not in reached]
        onward.append(len(new))
        for other, component in new:
            reached.add(other)
            order.append(other)
            before.append(i)
            links.append(component)
    columns = [np.array(column, dtype=np.int64) for column in (order, before, links, onward)]
    return RefreshedEntry(topic, home, columns[0], columns[1], columns[2], columns[3], needed)


def _source(
    system: System, flows: Flows, flow: int, sources: dict[tuple[int, int], EventSource], publisher_access: int
) -> EventSource:
    key = (int(flows.publisher[flow]), int(flows.topic[flow]))
    if key not in sources:
        publisher = system.publishers[key[0]]
        topic = system.topics[key[1]].name
        sources[key] = EventSource(
            publisher=key[0],
            topic=topic,
            stride=len(publisher.topics),
            offset=publisher.topics.index(topic),
            lifetime_s=publisher.deadline_s,
            access=NONE if publisher_access == NONE else publisher_access + key[0],
            broker=[publisher.home],
        )
    return sources[key]


def _grow(system: System, source: EventSource, flows: Flows, flow: int, hops: dict[tuple[int, ...], int]) -> int:
    """Adds a route to the tree of its source; returns the node of its last broker."""
    route = flows.routes[int(flows.route[flow])]
    node = 0
    for broker, link in zip(route.brokers[1:], route.links, strict=True):
        child = source.children.get((node, broker))
        node = _add_node(source, node, broker, len(system.overlay.brokers) + link, hops) if child is None else child
    return node


def _add_node(source: EventSource, parent: int, broker: int, link: int, hops: dict[tuple[int, ...], int]) -> int:
    ends = sorted((source.broker[parent], broker))
    source.children[parent, broker] = len(source.broker)
    source.broker.append(broker)
    source.parent.append(parent)
    source.link.append(link)
    source.hop.append(hops.setdefault((*ends, link), len(hops)))
    return len(source.broker) - 1
