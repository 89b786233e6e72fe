"""Resolves where clients are and what publishers and subscribers do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surecast.documents.source import FieldPath
from surecast.scenario.build.collect import Collector, expand, unique_names
from surecast.scenario.distributions import Distribution, Exponential
from surecast.scenario.network import Network
from surecast.scenario.spec.scenario import Targets
from surecast.scenario.spec.workload import (
    ClassSpec,
    ClientSpec,
    ConnectivitySpec,
    PublisherSpec,
    SubscriberSpec,
    TopicSpec,
    WorkloadSpec,
)
from surecast.scenario.streams import Streams
from surecast.scenario.system import Connectivity, Overlay, Publisher, Subscriber, Topic

__all__ = ["Surroundings", "build_publishers", "build_subscribers", "build_topics", "locate", "popularity"]

WORKLOAD: FieldPath = ("workload",)
CELLS_AT_A_TIME = 4_000_000
POPULATION_MIN = 1000
"""Equal publishers from this number on are one population, and not listed one by one."""


@dataclass(frozen=True)
class Surroundings:
    """The surroundings that clients are placed in; the overlay is None if it could not be resolved, and no client has a
    place.

    Populations are kept as counts unless what happens to one of its clients does not happen to the others.
    """

    network: Network | None
    overlay: Overlay | None
    streams: Streams
    collect: Collector
    keeps_populations: bool = True


def popularity(specs: Sequence[TopicSpec | ClassSpec], exponent: float) -> list[tuple[str, int, float]]:
    """Returns the name, entry and share of each topic or class: a power law over the order given, or the weight of its
    entry."""
    weights: list[tuple[str, int, float]] = []
    for entry, spec in enumerate(specs):
        for name in expand(spec.name, spec.count):
            rank = len(weights) + 1
            weights.append((name, entry, rank**-exponent if spec.weight is None else spec.weight))
    total = sum(weight for _, _, weight in weights)
    return [(name, entry, weight / total) for name, entry, weight in weights]


def build_topics(spec: WorkloadSpec, collect: Collector) -> tuple[Topic, ...]:
    shares = popularity(spec.topics, spec.popularity_exponent)
    unique_names([((*WORKLOAD, "topics", entry), name) for name, entry, _ in shares], "topic", collect)
    return tuple(Topic(name, share) for name, _, share in shares)


def locate(
    spec: PublisherSpec | SubscriberSpec | ClientSpec, names: list[str], path: FieldPath, where: Surroundings
) -> list[tuple[int, int | None]]:
    """Returns home broker and router of each client of a group; empty, with the problem collected, where that fails."""
    overlay, network, collect = where.overlay, where.network, where.collect
    if overlay is None or not collect.intact(("network",)):
        return []
    kind = str(path[1])
    if spec.home == "nearest" and network is None:
        hint = "add network:, or write home: random"
        collect.add((*path, "home"), "the nearest broker needs a physical network", hint)
        return []
    if spec.home not in ("random", "nearest") and spec.home not in overlay.index:
        collect.unknown((*path, "home"), "broker", spec.home, overlay.index, "random", "nearest")
        return []
    if spec.at is not None and network is None:
        collect.add((*path, "at"), "the scenario has no network to stand in", "leave it out, or add network:")
        return []
    if spec.at is not None and network is not None and spec.at != "random" and spec.at not in network.index:
        collect.unknown((*path, "at"), "router", spec.at, network.index, "random")
        return []
    brokers = [broker.name for broker in overlay.brokers]
    routers: list[int | None] = [None] * len(names)
    if network is not None and spec.at not in (None, "random"):
        routers = [network.index[str(spec.at)]] * len(names)
    elif network is not None and (spec.at == "random" or spec.home == "nearest"):
        routers = [int(r) for r in _choose(where.streams, f"attach/{kind}", names, [r.name for r in network.routers])]
    if spec.home == "nearest" and network is not None:
        nearest = nearest_broker(network, [b.router for b in overlay.brokers if b.router is not None])
        homes = [int(nearest[r or 0]) for r in routers]
    elif spec.home == "random":
        homes = [int(h) for h in _choose(where.streams, f"home/{kind}", names, brokers)]
    else:
        homes = [overlay.index[spec.home]] * len(names)
    return [(h, overlay.brokers[h].router if r is None else r) for h, r in zip(homes, routers, strict=True)]


def nearest_broker(network: Network, routers: Sequence[int]) -> NDArray[np.intp]:
    """Returns, for each router of the network, the broker with the fewest hops to it; of equally near ones the
    first."""
    rows = []
    for router in routers:
        distances = network.distances_from(router, "hops")
        rows.append([distances[i] for i in range(len(network.routers))])
    return np.asarray(np.argmin(np.array(rows), axis=0), dtype=np.intp)


def _choose(streams: Streams, purpose: str, names: list[str], options: list[str]) -> list[int]:
    chosen: list[int] = []
    rows = max(1, CELLS_AT_A_TIME // len(options))
    for start in range(0, len(names), rows):
        chosen += streams.choose(purpose, names[start : start + rows], options).tolist()
    return chosen


def build_publishers(spec: WorkloadSpec, topics: tuple[Topic, ...], where: Surroundings) -> tuple[Publisher, ...]:
    publishers: list[Publisher] = []
    named: list[tuple[FieldPath, str]] = []
    default = (math.inf, math.inf) if spec.deadline is None else (spec.deadline, spec.deadline)
    for entry, group in enumerate(spec.publishers):
        path = (*WORKLOAD, "publishers", entry)
        is_one = is_population(group, spec, where)
        names = [group.name] if is_one else expand(group.name, group.count)
        named += [(path, name) for name in names]
        count = (group.count or 1) if is_one else 1
        payload = spec.payload if group.payload is None else group.payload
        interests = _publisher_topics(group, names, topics, path, where)
        for name, wanted, (home, router) in zip(names, interests, locate(group, names, path, where), strict=False):
            rate = where.streams.between("rate", name, *group.rate)
            deadline = where.streams.between("deadline", name, *(group.deadline or default))
            publishers.append(Publisher(name, home, wanted, rate * count, deadline, router, count, payload, spec.qos))
    unique_names(named, "publisher", where.collect)
    return tuple(publishers)


def is_population(group: PublisherSpec, spec: WorkloadSpec, where: Surroundings) -> bool:
    """Returns whether a group of publishers is kept as a count: a large one, in which nothing is drawn for each."""
    several_homes = group.home == "random" or group.at == "random" or (group.home == "nearest" and group.at is None)
    deadline = group.deadline or (0.0, 0.0)
    return (
        (group.count or 1) >= POPULATION_MIN
        and where.keeps_populations
        and not several_homes
        and isinstance(group.topics, list)
        and group.rate[0] == group.rate[1]
        and deadline[0] == deadline[1]
    )


def _publisher_topics(
    group: PublisherSpec, names: list[str], topics: tuple[Topic, ...], path: FieldPath, where: Surroundings
) -> list[tuple[str, ...]]:
    if group.topics == "one-each":
        if len(names) > len(topics):
            message = f"{len(names)} publishers with a topic each, but only {len(topics)} topics"
            where.collect.add((*path, "topics"), message, "add topics to workload.topics")
            return []
        return [(topic.name,) for topic, _ in zip(topics, names, strict=False)]
    if group.topics == "by-popularity":
        return _drawn_topics(names, topics, 1, path, where)
    return [_known_topics(group.topics, topics, path, where)] * len(names)


def build_subscribers(
    spec: WorkloadSpec, topics: tuple[Topic, ...], targets: Targets, where: Surroundings
) -> tuple[Subscriber, ...]:
    subscribers: list[Subscriber] = []
    named: list[tuple[FieldPath, str]] = []
    for entry, group in enumerate(spec.subscribers):
        path = (*WORKLOAD, "subscribers", entry)
        names = expand(group.name, group.count)
        named += [(path, name) for name in names]
        if group.topics == "by-popularity":
            interests = _drawn_topics(names, topics, group.topic_count, path, where)
        elif group.topics == "all":
            if not topics and where.collect.intact((*WORKLOAD, "topics")):
                where.collect.add((*path, "topics"), "there are no topics", "add topics to workload.topics")
            interests = [tuple(topic.name for topic in topics)] * len(names)
        else:
            interests = [_known_topics(group.topics, topics, path, where)] * len(names)
        if group.service is not None and not group.service.has_mean:
            where.collect.add((*path, "service"), "needs a mean", "write for example 8/s or {mean: 125ms}")
        reliability = targets.reliability if group.reliability_target is None else group.reliability_target
        for name, wanted, (home, router) in zip(names, interests, locate(group, names, path, where), strict=False):
            response = targets.response_time
            if group.response_target is not None:
                response = where.streams.between("response-target", name, *group.response_target)
            connectivity = _connectivity(group.connectivity, name, where.streams)
            subscribers.append(
                Subscriber(name, home, wanted, router, connectivity, group.service, reliability, response, spec.qos)
            )
    unique_names(named, "subscriber", where.collect)
    return tuple(subscribers)


def _connectivity(spec: ConnectivitySpec | None, name: str, streams: Streams) -> Connectivity | None:
    if spec is None:
        return None

    def period(which: str) -> Distribution:
        mean: tuple[float, float] | None = getattr(spec, which)
        shape: Distribution = getattr(spec, f"{which}_shape") or Exponential()
        return shape if mean is None else shape.with_mean(streams.between(f"connectivity/{which}", name, *mean))

    return Connectivity(period("on"), period("off"))


def _known_topics(
    wanted: list[str], topics: tuple[Topic, ...], path: FieldPath, where: Surroundings
) -> tuple[str, ...]:
    names = {topic.name for topic in topics}
    for i, name in enumerate(wanted):
        if name not in names and where.collect.intact((*WORKLOAD, "topics")):
            where.collect.unknown((*path, "topics", i), "topic", name, names)
    if not wanted:
        where.collect.add((*path, "topics"), "no topic at all", "name at least one")
    return tuple(dict.fromkeys(wanted))


def _drawn_topics(
    names: list[str], topics: tuple[Topic, ...], count: int, path: FieldPath, where: Surroundings
) -> list[tuple[str, ...]]:
    """Draws `count` different topics for each name by popularity: an exponential race, keyed by name and topic."""
    if count > len(topics):
        if where.collect.intact((*WORKLOAD, "topics")):
            field = (*path, "topic_count") if topics else (*path, "topics")
            message = f"{count} topics for each, but there are {len(topics)}"
            where.collect.add(field, message, "add topics to workload.topics")
        return []
    weights = np.array([topic.popularity for topic in topics])
    labels = [topic.name for topic in topics]
    drawn: list[tuple[str, ...]] = []
    rows = max(1, CELLS_AT_A_TIME // len(labels))
    for start in range(0, len(names), rows):
        uniforms = where.streams.uniform_pairs(f"topic/{path[1]}", names[start : start + rows], labels)
        arrival = -np.log1p(-uniforms) / weights
        chosen = np.argsort(arrival, axis=1)[:, :count]
        drawn += [tuple(labels[i] for i in row) for row in chosen.tolist()]
    return drawn
