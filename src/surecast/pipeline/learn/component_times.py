"""Failures and repairs of brokers, links and connections, from incarnations in logs and intervals in traces."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from surecast.documents.source import FieldPath
from surecast.documents.units import format_duration
from surecast.pipeline.learn.distribution_choice import LifetimeFit, choose_lifetime
from surecast.pipeline.learn.distribution_fits import exponential_interval
from surecast.pipeline.learn.drift import widened
from surecast.pipeline.learn.learned_scenario import LearnedValue, estimate_at
from surecast.pipeline.learn.log_statistics import AvailabilityRow, ReplicaSet, Statistics, UptimeRow
from surecast.pipeline.learn.samples import ObservedPeriod, Times, periods_of

__all__ = [
    "Membership",
    "ObservedComponent",
    "UpDown",
    "broker_periods",
    "duration",
    "find_components",
    "fit_pair",
    "join_replicas",
    "law_fields",
    "process_periods",
    "serving",
]

CLIENT_SOURCES: Final = ("activity", "bandwidth")
"""Traces of users and of connections; all others are of machines, services and links."""
_GAPS: Final[dict[str, bool | None]] = {"avt": False, "activity": False, "outages": True, "lanl": True}
"""The state between the intervals of a trace, where it is known."""

Pathed = tuple[FieldPath, LearnedValue]


@dataclass(frozen=True, eq=False)
class UpDown:
    """Times up and times down of one component."""

    up: Times
    down: Times

    @classmethod
    def of(cls, periods: Iterable[ObservedPeriod]) -> UpDown:
        each = list(periods)
        return cls(Times.of_periods(p for p in each if p.up), Times.of_periods(p for p in each if not p.up))


@dataclass(frozen=True, eq=False)
class ObservedComponent:
    """A broker, a link (`a--b`) or a connection, and when it was up."""

    name: str
    kind: str
    times: UpDown
    periods: tuple[ObservedPeriod, ...] = ()


def broker_periods(incarnations: Iterable[UptimeRow], alive_s: float) -> list[ObservedPeriod]:
    """Returns the periods of one broker.

    It crashed after its last record and at most `alive_s` later, so half of that later, and before it started again.
    That it was stopped for the last time is the end of what was observed, and no failure.

    >>> incarnations = [UptimeRow("b", 0.0, 90.0, "crash", True), UptimeRow("b", 120.0, 200.0, "open", True)]
    >>> [(p.up, p.length_s, p.end_seen) for p in broker_periods(incarnations, 20.0)]
    [(True, 100.0, True), (False, 20.0, True), (True, 80.0, False)]
    """
    ordered = sorted(incarnations, key=lambda incarnation: incarnation.up_from_s)
    periods = []
    for incarnation, following in itertools.zip_longest(ordered, ordered[1:]):
        end_s = incarnation.up_to_s
        if incarnation.ended_by == "crash" and following is not None:
            end_s += min(alive_s, following.up_from_s - incarnation.up_to_s) / 2.0
        ended = incarnation.ended_by == "crash" or (incarnation.ended_by == "stopped" and following is not None)
        periods.append(ObservedPeriod(True, incarnation.up_from_s, end_s, incarnation.seen_start, ended))
        if following is not None and incarnation.ended_by != "open":
            periods.append(ObservedPeriod(False, end_s, following.up_from_s))
    return periods


def process_periods(incarnations: Iterable[UptimeRow], alive_s: Mapping[str, float]) -> dict[str, list[ObservedPeriod]]:
    """Returns the periods of each broker or replica that has a log."""
    incarnations_by_broker: dict[str, list[UptimeRow]] = defaultdict(list)
    for incarnation in incarnations:
        incarnations_by_broker[incarnation.broker].append(incarnation)
    return {name: broker_periods(each, alive_s.get(name, 0.0)) for name, each in sorted(incarnations_by_broker.items())}


def find_components(statistics: Statistics) -> list[ObservedComponent]:
    """Returns all brokers, links and connections in logs or traces. A broker's own log takes precedence over a
    trace."""
    by_name: dict[str, ObservedComponent] = {}
    by_broker: dict[str, list[UptimeRow]] = defaultdict(list)
    for incarnation in statistics.incarnations:
        by_broker[incarnation.broker].append(incarnation)
    for name, incarnations in sorted(by_broker.items()):
        group = statistics.groups.get(name)
        # What fails of a group is a replica; all are taken as alike.
        processes = process_periods(incarnations if group is None else group.incarnations, statistics.alive_s)
        periods = tuple(itertools.chain(*processes.values()))
        # the periods of replicas lie beside each other: they say nothing of one component's changes
        by_name[name] = ObservedComponent(name, "broker", UpDown.of(periods), () if group else periods)
    by_trace: dict[tuple[str, str], list[AvailabilityRow]] = defaultdict(list)
    for row in statistics.intervals:
        by_trace[row.source, row.trace].append(row)
    for (source, _), rows in sorted(by_trace.items()):
        for name, observed in _trace_periods(source, rows).items():
            kind = "connection" if source in CLIENT_SOURCES else "link" if "--" in name else "broker"
            times = UpDown.of(observed)
            component = by_name.get(name)
            if component is None:
                by_name[name] = ObservedComponent(name, kind, times, tuple(observed))
            elif name not in by_broker:
                both = UpDown(component.times.up.joined(times.up), component.times.down.joined(times.down))
                by_name[name] = ObservedComponent(name, component.kind, both)
    return list(by_name.values())


def _trace_periods(source: str, rows: list[AvailabilityRow]) -> dict[str, list[ObservedPeriod]]:
    by_component: dict[str, list[tuple[bool, float, float]]] = defaultdict(list)
    for row in rows:
        by_component[row.component].append((row.up, row.start_s, row.end_s))
    gaps = _GAPS.get(source)
    # A source of up times was observed from the first to the last of all; a source of outages, only between them.
    window = (min(row.start_s for row in rows), max(row.end_s for row in rows)) if gaps is False else None
    return {name: periods_of(each, gaps, window) for name, each in by_component.items()}


def fit_pair(up: Times, down: Times) -> tuple[LifetimeFit, LifetimeFit] | str:
    """Returns both fits, or the reason if one is impossible."""
    if up.ends + up.residual_ends <= 0:
        seen_s = up.total_s + up.residual_s
        least = exponential_interval(0, seen_s)[0] if seen_s > 0 else 0.0
        return f"none ended in {duration(seen_s)}, so its mean is above {duration(least)} (95 %)"
    if down.ends + down.residual_ends <= 0:
        return "none of those in between ended while it was observed"
    return choose_lifetime(up), choose_lifetime(down)


def law_fields(fit: LifetimeFit, mean: str, shape: str) -> dict[str, Any]:
    """Returns a fit as two fields of a scenario: its mean, and its shape unless exponential; or a shape with its own
    scale."""
    spec = fit.spec()
    if "means" in spec or "rates" in spec:
        return {shape: spec}
    fields: dict[str, Any] = {mean: duration(fit.mean_s)}
    return fields if spec["distribution"] == "exponential" else {**fields, shape: spec}


def fit_estimate(path: FieldPath, subject: str, fit: LifetimeFit, drift: float = 0.0) -> Pathed:
    """Returns the estimate of a mean time; its interval is wider where such times drift."""
    cut = f"{fit.verdict}; {fit.cut_off} cut off" if fit.cut_off else fit.verdict
    if drift > 0.0:
        cut += f"; wider for a drift by a factor of {math.exp(drift):.3g}"
    ends = widened(fit.mean_s, fit.low_s, fit.high_s, drift)
    return estimate_at(path, subject, (fit.mean_s, *ends), "s", fit.ends, cut)


def duration(seconds: float) -> str:
    """Returns a duration of six digits, with its unit."""
    return format_duration(float(f"{seconds:.6g}"))


Membership = Mapping[str, tuple[str, int]]
"""The group of each replica, by the name in its log, and how many replicas it has."""


def join_replicas(
    incarnations: Iterable[UptimeRow], membership: Membership, alive_s: Mapping[str, float]
) -> tuple[tuple[UptimeRow, ...], dict[str, ReplicaSet]]:
    """Returns the incarnations of brokers, each group as a single broker, and the groups.

    >>> incarnations = [UptimeRow(name, 0.0, 60.0, "open", True) for name in ("g-1", "g-2", "alone")]
    >>> joined, groups = join_replicas(incarnations, {"g-1": ("g", 3), "g-2": ("g", 3)}, {})
    >>> [incarnation.broker for incarnation in joined], groups["g"].size
    (['alone', 'g'], 3)
    """
    alone: list[UptimeRow] = []
    of_group: dict[str, list[UptimeRow]] = defaultdict(list)
    for incarnation in incarnations:
        if incarnation.broker in membership:
            of_group[membership[incarnation.broker][0]].append(incarnation)
        else:
            alone.append(incarnation)
    groups = {}
    for name, own in sorted(of_group.items()):
        logs = len({incarnation.broker for incarnation in own})
        stated = max(size for group, size in membership.values() if group == name)
        groups[name] = ReplicaSet(max(stated, logs), tuple(own))
        alone += serving(name, groups[name], alive_s)
    return tuple(alone), groups


def serving(name: str, group: ReplicaSet, alive_s: Mapping[str, float]) -> list[UptimeRow]:
    """Returns the intervals in which a majority was up, and so the group served. Replicas without a log count as up.

    >>> three = ReplicaSet(3, (UptimeRow("g-1", 0.0, 9.0, "open", True), UptimeRow("g-2", 1.0, 4.0, "crash", True),
    ...                        UptimeRow("g-2", 6.0, 9.0, "open", True), UptimeRow("g-3", 0.0, 5.0, "open", True)))
    >>> [(incarnation.up_from_s, incarnation.up_to_s) for incarnation in serving("g", three, {})]
    [(0.0, 5.0), (6.0, 9.0)]
    """
    processes = process_periods(group.incarnations, alive_s)
    needed = max(1, group.size // 2 + 1 - (group.size - len(processes)))
    ups = [period for periods in processes.values() for period in periods if period.up]
    # At the same time, one that comes up goes before one that goes down.
    edges = sorted([(up.start_s, -1) for up in ups] + [(up.end_s, 1) for up in ups])
    spans: list[tuple[float, float]] = []
    count, since_s = 0, 0.0
    for at_s, step in edges:
        before, count = count, count - step
        if before < needed <= count:
            since_s = at_s
        elif count < needed <= before and at_s > since_s:
            spans.append((since_s, at_s))
    last = len(spans) - 1
    return [
        UptimeRow(name, start_s, end_s, "open" if i == last else "crash", True)
        for i, (start_s, end_s) in enumerate(spans)
    ]
