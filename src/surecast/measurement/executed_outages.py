"""The outages of a run as they were executed, and the simulation of that very run.

A process takes a while to die and to start, a neighbour to notice, a link to come back: hold-down, dialling, hello. A
simulation of what was drawn has none of that. This one takes the moments at which it happened: brokers are down from
their kill until they take their publishers again, links from what broke them until both ends have said hello, and each
end notices a break when it did. It publishes what the run published, at the same times.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np

from surecast.errors import AssumptionError
from surecast.measurement.measured_events import window_of
from surecast.measurement.workload_drive import Measured
from surecast.report import QoSReport, ReportBuilder
from surecast.scenario.distributions import parse_distribution
from surecast.scenario.system import Failures, System
from surecast.simulation.reliability.protocol import (
    GivenPublication,
    GivenRun,
    Options,
    WorldResult,
    simulate_world,
)
from surecast.simulation.reliability.protocol.protocol_simulation import add_scheme

__all__ = [
    "ExecutedOutages",
    "executed_outages",
    "executed_report",
    "simulate_executed",
    "system_as_executed",
    "with_outages",
]

Intervals: TypeAlias = list[tuple[float, float]]
_SLACK_S: Final = 0.05
"""Notices of a cut may be written down so much after it has ended."""
_UP_LEAST_S: Final = 1.0
"""What was down all the time is taken for up so long, as a time between failures of 0 is none."""


@dataclass(frozen=True)
class ExecutedOutages:
    """When brokers and links were up, in the scenario's time from the start of the run to its end; the last interval
    of what was up then has no end. `notices` are the times at which a broker found its link to a neighbour down, and
    `detection_s` how long that took after a cut, on average; 0 where none was noticed."""

    up: Mapping[str, Intervals]
    notices: Mapping[tuple[str, str], list[float]]
    detection_s: float
    end_s: float

    def availability(self, name: str) -> float:
        """Returns the share of the run in which a broker or link was up."""
        return sum(min(b, self.end_s) - a for a, b in self.up[name] if a < self.end_s) / self.end_s


def executed_outages(measured: Measured) -> ExecutedOutages:
    """Returns when the brokers and links of an overlay were up in a run."""
    plan, scale, began = measured.plan, measured.plan.scale, measured.began
    if plan.overlay is None:
        raise AssumptionError(f"{plan.system.name}: only the outages of an overlay's brokers and links are recorded")
    names = [broker.name for broker in plan.system.overlay.brokers]
    brokers = {name: _broker_downs(measured, index) for index, name in enumerate(names)}
    links: dict[str, Intervals] = {}
    waits: list[float] = []
    for spec in plan.system.overlay.links:
        links[spec.name] = _link_downs(measured, (names[spec.a], names[spec.b]), brokers, waits)

    def scenario_s(moment: float) -> float:
        return max(0.0, (moment - began) * scale) if moment < math.inf else math.inf

    up = {
        name: _up_between([(scenario_s(a), scenario_s(b)) for a, b in downs])
        for name, downs in (brokers | links).items()
    }
    notices: dict[tuple[str, str], list[float]] = {}
    for change in measured.link_changes:
        if not change.is_up and change.time_s >= began:
            notices.setdefault((change.broker, change.neighbour), []).append(scenario_s(change.time_s))
    detection_s = float(np.mean(waits)) * scale if waits else 0.0
    return ExecutedOutages(up, notices, detection_s, (measured.cut - began) * scale)


def _broker_downs(measured: Measured, index: int) -> Intervals:
    """Returns when a broker was down in real time: until it takes clients, and its publishers have come back."""
    downs = []
    for crash in measured.crashes:
        if crash.number == index + 1:
            up_at = math.inf if crash.up_at is None or crash.up_at > measured.cut else crash.up_at
            following = [up for home, up in measured.publisher_ups if home == index and up > crash.killed_at]
            if up_at < math.inf and following:
                up_at = max(up_at, min(following))
            downs.append((crash.killed_at, up_at))
    return sorted(downs)


def _link_downs(
    measured: Measured, ends: tuple[str, str], brokers: Mapping[str, Intervals], waits: list[float]
) -> Intervals:
    """Returns when a link was down in real time; adds to `waits` how long its ends took to notice that it was cut."""
    a, b = ends
    kills = sorted(killed for name in ends for killed, _ in brokers[name])
    gates = [(time_s, cut) for link, time_s, cut in measured.gate_changes if link == ends]
    cuts = [
        (time_s, next((end for end, still in gates[place + 1 :] if not still), math.inf))
        for place, (time_s, cut) in enumerate(gates)
        if cut
    ]
    own = [each for each in measured.link_changes if {each.broker, each.neighbour} == {a, b}]
    events = sorted([*((each.time_s, each) for each in own), *((time_s, None) for time_s in kills)], key=lambda e: e[0])
    believing = dict.fromkeys(ends, False)
    downs: Intervals = []
    down_since: float | None = None
    for moment, change in events:
        if moment > measured.cut:
            break
        if change is not None and change.is_up:
            believing[change.broker] = True
            if all(believing.values()) and down_since is not None:
                downs.append((down_since, moment))
                down_since = None
            continue
        if change is None:
            killed = next(name for name in ends if any(at == moment for at, _ in brokers[name]))
            believing[killed] = False
            down_since = moment if down_since is None else down_since
            continue
        believing[change.broker] = False
        cut_s = _cut_before(cuts, moment)
        if cut_s is not None and (down_since is None or down_since >= cut_s):
            waits.append(moment - cut_s)
        if down_since is None:
            down_since = moment if cut_s is None else cut_s
    if down_since is not None:
        downs.append((down_since, math.inf))
    return [(start, end) for start, end in downs if end > measured.began]


def _cut_before(cuts: Sequence[tuple[float, float]], moment: float) -> float | None:
    """Returns when the cut began that was on at a moment; None where the link was open."""
    place = bisect_right(cuts, (moment, math.inf)) - 1
    return cuts[place][0] if place >= 0 and moment <= cuts[place][1] + _SLACK_S else None


def _up_between(downs: Intervals) -> Intervals:
    """Returns the intervals between those in which something was down.

    >>> _up_between([(4.0, 6.0), (9.0, math.inf)])
    [(0.0, 4.0), (6.0, 9.0)]
    """
    up: Intervals = []
    since = 0.0
    for start, end in downs:
        if start > since:
            up.append((since, start))
        since = max(since, end)
    return up if since == math.inf else [*up, (since, math.inf)]


def _down_between(up: Intervals) -> Intervals:
    """Returns the intervals between those in which something was up, from the start of the run."""
    edges = [0.0, *(edge for interval in up for edge in interval), math.inf]
    return [(a, b) for a, b in zip(edges[0::2], edges[1::2], strict=True) if a < b]


def _union(intervals: Intervals) -> Intervals:
    """Returns what is in any of some intervals, in order.

    >>> _union([(6.0, 9.0), (0.0, 4.0), (3.0, 5.0), (9.0, math.inf)])
    [(0.0, 5.0), (6.0, inf)]
    """
    union: Intervals = []
    for start, end in sorted(intervals):
        if union and start <= union[-1][1]:
            union[-1] = (union[-1][0], max(union[-1][1], end))
        else:
            union.append((start, end))
    return union


def simulate_executed(measured: Measured, outages: ExecutedOutages | None = None) -> WorldResult:
    """Returns what the protocol code makes of the run in virtual time: the same outages, notices and publications."""
    plan = measured.plan
    outages = executed_outages(measured) if outages is None else outages
    begin_s, end_s = window_of(measured)
    given = GivenRun(outages.up, outages.notices, _publications(measured, begin_s, end_s), keeps_sessions=True)
    scheme = plan.system.delivery.fault_tolerance.scheme
    options = Options(retransmission_s=0.0, drain_s=max(0.0, outages.end_s - end_s), keeps_fates=True)
    return simulate_world(
        _without_latency(plan.system),
        scheme,
        duration_s=end_s,
        warm_up_s=begin_s,
        seed=plan.seed,
        options=options,
        given=given,
    )


def _publications(measured: Measured, begin_s: float, end_s: float) -> list[GivenPublication]:
    """Returns what was published, when it was sent; but not on the other side of an end of the measured window."""
    events = measured.plan.events
    due_s = events.time_s
    published = np.flatnonzero((measured.published_at > 0) & (due_s < end_s))
    sent_s = np.maximum(due_s, (measured.sent_at - measured.began) * measured.plan.scale)
    last_s = np.where(due_s < begin_s, np.nextafter(begin_s, 0.0), np.nextafter(end_s, 0.0))
    times_s = np.minimum(sent_s, last_s)[published]
    return [
        GivenPublication(time_s, int(events.publisher[number]), int(events.topic[number]))
        for time_s, number in sorted(zip(times_s.tolist(), published.tolist(), strict=True))
    ]


def executed_report(measured: Measured) -> QoSReport:
    """Returns the simulation of the run that was executed, to set beside what was measured of it."""
    outages, plan = executed_outages(measured), measured.plan
    result = simulate_executed(measured, outages)
    builder = ReportBuilder.of_system(
        plan.system, "simulated", seed=plan.seed, method="protocol", runs=1, time_scale=plan.scale
    )
    add_scheme(builder, plan.system, plan.scheme, [result])
    for scope, components in (("broker", plan.system.overlay.brokers), ("overlay_link", plan.system.overlay.links)):
        for each in components:
            builder.add(scope, each.name, "availability", outages.availability(each.name), how="simulated",
                        variant=plan.scheme)  # fmt: skip
    builder.note(
        "the outages are those of the run as they were executed, and the publications are those of the run: what "
        "differs from the measurement is not by chance, but for messages on their way when something broke"
    )
    if outages.detection_s:
        builder.note(f"cut links were found to be down after {outages.detection_s:.4g} s, on average")
    return builder.build()


def system_as_executed(measured: Measured, outages: ExecutedOutages | None = None) -> System:
    """Returns the system with the availabilities, times up and down, and detection that the run had, for predictions.
    Where the run had something down at its beginning or end, that counts as an outage too."""
    return with_outages(measured.plan.system, executed_outages(measured) if outages is None else outages)


def with_outages(system: System, outages: ExecutedOutages) -> System:
    """Returns a system whose brokers and links fail as often and as long as they did in a run. A component that did not
    fail does not fail. A link whose end was down was not down by itself."""
    overlay = system.overlay

    def failures(name: str, *ends: str) -> Failures | None:
        ends_down = [down for end in ends for down in _down_between(outages.up[end])]
        up = _union([*outages.up[name], *ends_down])
        downs = [(a, min(b, outages.end_s)) for a, b in _down_between(up) if a < outages.end_s]
        if not downs:
            return None
        down_s = sum(b - a for a, b in downs)
        exponential = parse_distribution("exponential")
        up_s = max(outages.end_s - down_s, _UP_LEAST_S)
        return Failures(exponential.with_mean(up_s / len(downs)), exponential.with_mean(down_s / len(downs)))

    names = [each.name for each in overlay.brokers]
    brokers = tuple(replace(each, failures=failures(each.name)) for each in overlay.brokers)
    links = tuple(replace(each, failures=failures(each.name, names[each.a], names[each.b])) for each in overlay.links)
    changes = {"detection": outages.detection_s, "retransmission_interval": 0.0}
    tolerance = system.delivery.fault_tolerance.model_copy(update=changes)
    return replace(
        system,
        overlay=replace(overlay, brokers=brokers, links=links),
        delivery=system.delivery.model_copy(update={"fault_tolerance": tolerance}),
    )


def _without_latency(system: System) -> System:
    """Returns the system with links without latency: that of this machine is no part of the scenario's time."""
    links = tuple(replace(link, latency_s=0.0, loss=0.0) for link in system.overlay.links)
    return replace(system, overlay=replace(system.overlay, links=links))
