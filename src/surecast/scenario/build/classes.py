"""Resolves a workload of filter classes: who publishes and subscribes to which class, when, at what rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surecast.documents.source import FieldPath
from surecast.scenario.build.clients import Surroundings, locate, popularity
from surecast.scenario.build.collect import Collector, expand, unique_names
from surecast.scenario.spec.workload import AttributeSpec, ClassSpec, HistogramSpec, PeriodSpec, WorkloadSpec
from surecast.scenario.system import AttributeStatistics, ClassWorkload, FilterClass, Histogram

__all__ = ["RatePeriod", "build_class_workload", "build_periods"]

PERIODS: FieldPath = ("workload", "periods")


@dataclass(frozen=True)
class RatePeriod:
    """A share of the time in which the rates of each class are these factors times the workload's."""

    name: str
    share: float
    publications: NDArray[np.float64]
    subscriptions: NDArray[np.float64]


def build_periods(
    periods: Sequence[PeriodSpec], classes: Sequence[tuple[str, str]], collect: Collector
) -> tuple[RatePeriod, ...]:
    """Returns the periods with a factor for every class; shares are made to sum to 1 exactly.

    `classes` has the name of each class and the name of its group, which are the same for a class alone.

    >>> day = [PeriodSpec(name="busy", share=0.25, classes=[{"name": "b", "publications": 3}]),
    ...        PeriodSpec(name="rest", share=0.75)]
    >>> busy = build_periods(day, [("a", "a"), ("b-1", "b"), ("b-2", "b")], Collector(None, "example"))[0]
    >>> busy.publications.tolist(), busy.subscriptions.tolist()
    ([1.0, 3.0, 3.0], [1.0, 1.0, 1.0])
    """
    total = sum(period.share for period in periods)
    built = []
    for i, period in enumerate(periods):
        publications = np.full(len(classes), float(period.publications))
        subscriptions = np.full(len(classes), float(period.subscriptions))
        for j, change in enumerate(period.classes):
            meant = [k for k, names in enumerate(classes) if change.name in names]
            if not meant:
                existing = list(dict.fromkeys(name for pair in classes for name in pair))
                collect.unknown((*PERIODS, i, "classes", j, "name"), "class", change.name, existing)
            if change.publications is not None:
                publications[meant] = change.publications
            if change.subscriptions is not None:
                subscriptions[meant] = change.subscriptions
        built.append(RatePeriod(period.name, period.share / total, publications, subscriptions))
    return tuple(built)


CLASSES: FieldPath = ("workload", "classes")
CLIENTS: FieldPath = ("workload", "clients")
MOST_CELLS = 50_000_000


def build_class_workload(spec: WorkloadSpec, where: Surroundings) -> ClassWorkload | None:
    """Returns rates of every class and client, or None where there are no classes or a problem was collected."""
    if not spec.classes or spec.subscriptions is None or spec.publications is None:
        return None
    before = len(where.collect.problems)
    cells = sum(c.count or 1 for c in spec.classes) * sum(c.count or 1 for c in spec.clients)
    if cells > MOST_CELLS:
        message = f"classes times clients is {cells:,}, and {MOST_CELLS:,} is the limit"
        where.collect.add(CLASSES, message, "use fewer classes or fewer clients")
        return None
    clients, homes_and_routers = _clients(spec, where)
    shares = popularity(spec.classes, spec.popularity_exponent)
    unique_names([((*CLASSES, entry), name) for name, entry, _ in shares], "class", where.collect)
    domains = _client_domains([router for _, router in homes_and_routers], where)
    hot_spots = _hot_spots([(name, spec.classes[entry], entry) for name, entry, _ in shares], domains, where)
    names = [(name, spec.classes[entry].name) for name, entry, _ in shares]
    periods = build_periods(spec.periods, names, where.collect)
    if len(where.collect.problems) > before or not clients:
        return None
    spread = _spread([spec.classes[entry] for _, entry, _ in shares], hot_spots, domains, len(clients))
    by_class = np.array([share for _, _, share in shares])[:, None] * spread
    lifetime = spec.subscriptions.lifetime
    arrivals = spec.subscriptions.rate
    if arrivals is None:
        arrivals = (spec.subscriptions.active or 0.0) / lifetime.mean_s
    filters = [_statistics(spec.filters if each.filters is None else each.filters) for each in spec.classes]
    classes = [
        FilterClass(name, hot_spot, spec.classes[entry].service_factor, filters[entry])
        for (name, entry, _), hot_spot in zip(shares, hot_spots, strict=True)
    ]
    return ClassWorkload(
        tuple(classes),
        tuple(clients),
        tuple(home for home, _ in homes_and_routers),
        tuple(router for _, router in homes_and_routers),
        by_class * spec.publications,
        by_class * arrivals,
        lifetime,
        periods,
    )


def _clients(spec: WorkloadSpec, where: Surroundings) -> tuple[list[str], list[tuple[int, int | None]]]:
    clients: list[str] = []
    homes_and_routers: list[tuple[int, int | None]] = []
    named: list[tuple[FieldPath, str]] = []
    for entry, group in enumerate(spec.clients):
        names = expand(group.name, group.count)
        located = locate(group, names, (*CLIENTS, entry), where)
        if located:
            clients += names
            homes_and_routers += located
        named += [((*CLIENTS, entry), name) for name in names]
    unique_names(named, "client", where.collect)
    return clients, homes_and_routers


def _statistics(attributes: list[AttributeSpec]) -> tuple[AttributeStatistics, ...] | None:
    """Returns the attributes of a class in the order of their names; None where there are none."""
    statistics = []
    for spec in sorted(attributes, key=lambda each: each.name):
        value, interval = _histogram(spec.value), spec.interval
        if interval.centre is not None and interval.width is not None:
            centre, width = _histogram(interval.centre), _histogram(interval.width)
            statistics.append(AttributeStatistics(spec.name, value, None, centre, width, spec.constrained))
            continue
        ends = value
        if interval.ends == "uniform":
            ends = Histogram(spec.value.range, (1.0,))
        elif interval.ends != "values":
            ends = _histogram(interval.ends)
        statistics.append(AttributeStatistics(spec.name, value, ends, constrained=spec.constrained))
    return tuple(statistics) or None


def _histogram(spec: HistogramSpec) -> Histogram:
    """Returns a measured distribution with weights that sum to 1; equal numbers are merged, and those of weight 0 left
    out."""
    if spec.edges is not None:
        weights = np.array(spec.weights, dtype=np.float64)
        used = np.flatnonzero(weights)
        first, last = int(used[0]), int(used[-1]) + 1
        shares = weights[first:last] / weights.sum()
        return Histogram(tuple(spec.edges[first : last + 1]), tuple(shares.tolist()))
    values, inverse = np.unique(np.array(spec.values, dtype=np.float64), return_inverse=True)
    counts = np.bincount(inverse, spec.weights, minlength=len(values))
    positive = counts > 0
    return Histogram(tuple(values[positive].tolist()), tuple((counts[positive] / counts.sum()).tolist()))


def _client_domains(routers: list[int | None], where: Surroundings) -> list[str]:
    if where.network is None:
        return [""] * len(routers)
    return ["" if router is None else where.network.routers[router].domain for router in routers]


def _hot_spots(classes: list[tuple[str, ClassSpec, int]], domains: list[str], where: Surroundings) -> list[str]:
    """Returns the hot-spot domain of each class; only domains where a client lives can be one."""
    inhabited = sorted(set(domains) - {""})
    if any(spec.hot_spot is not None for _, spec, _ in classes) and not inhabited and domains:
        hint = "use a network with domains, or leave out hot_spot and locality"
        where.collect.add((*CLASSES, 0, "hot_spot"), "no client is in any domain", hint)
        return []
    drawn = [name for name, spec, _ in classes if spec.hot_spot == "random"]
    choice = iter(where.streams.choose("hot-spot", drawn, inhabited)) if drawn and inhabited else iter(())
    hot_spots: list[str] = []
    for _, spec, entry in classes:
        if spec.hot_spot is None:
            hot_spots.append("")
        elif spec.hot_spot == "random":
            hot_spots.append(inhabited[int(next(choice, 0))] if inhabited else "")
        else:
            if spec.hot_spot not in inhabited and domains:
                kind = "domain with clients"
                where.collect.unknown((*CLASSES, entry, "hot_spot"), kind, spec.hot_spot, inhabited, "random")
            hot_spots.append(spec.hot_spot)
    return hot_spots


def _spread(specs: list[ClassSpec], hot_spots: list[str], domains: list[str], clients: int) -> NDArray[np.float64]:
    """Returns the share of each class (row) that each client (column) has; every row sums to 1.

    A share L comes from the hot spot; the rest is divided evenly among the other domains that have clients, and
    within a domain evenly among its clients. Without other domains the hot spot has it all.
    """
    members = {domain: np.array([d == domain for d in domains]) for domain in set(domains)}
    spread = np.empty((len(specs), clients))
    for row, (spec, hot_spot) in enumerate(zip(specs, hot_spots, strict=True)):
        if spec.locality is None:
            spread[row] = 1.0 / clients
            continue
        others = [domain for domain in members if domain != hot_spot]
        local = spec.locality if others else 1.0
        spread[row] = local * members[hot_spot] / members[hot_spot].sum()
        for domain in others:
            spread[row] += (1.0 - local) / len(others) * members[domain] / members[domain].sum()
    return spread
