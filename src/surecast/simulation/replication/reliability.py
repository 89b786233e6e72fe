"""Real-time reliability where brokers are groups: events walk through groups whose replicas fail one by one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from surecast.errors import ConfigurationError
from surecast.report import QoSReport, ReportBuilder
from surecast.scenario.coverage import left_out
from surecast.scenario.group import Group, group_of
from surecast.scenario.saturation import broker_rates_per_s, refuse_saturated_events
from surecast.scenario.system import System
from surecast.simulation.reliability.compiled.compiled_plan import Plan, make_plan
from surecast.simulation.reliability.compiled.compiled_run import simulate_run
from surecast.simulation.reliability.compiled.outcomes import SCHEMES, Settings
from surecast.simulation.reliability.compiled.simulated_reliability_report import add_time_notes, build_report
from surecast.simulation.reliability.compiled.up_intervals import Intervals
from surecast.simulation.replication.group_load_run import measure_failovers
from surecast.simulation.replication.outages import simulate_outages

__all__ = ["simulate_group_reliability"]

Floats = NDArray[np.float64]
FAILOVERS = 10
"""Fail-overs measured of each group, from which the lengths of elections are drawn."""
WARM_UP_CYCLES = 20
"""Mean times between failures for which a group has been running when a run begins."""


def simulate_group_reliability(
    system: System,
    schemes: Sequence[str] | None = None,
    *,
    runs: int,
    duration_s: float,
    seed: int,
    warm_up_s: float = 0.0,
    progress: Callable[[int, int], None] | None = None,
) -> QoSReport:
    """As `simulate_reliability`, with each broker as a group whose replicas fail and are repaired one by one.

    >>> from surecast.scenario import build, parse_text
    >>> system = build(parse_text('''
    ... {surecast: 1, name: two, overlay: {brokers: [{name: a}, {name: b}], links: [[a, b]]},
    ...  availability: {brokers: {mtbf: 9h, mttr: 1h}}, workload: {topics: [t], deadline: 600s,
    ...  publishers: [{name: p, home: a, topics: [t], rate: 1/min}], subscribers: [{name: s, home: b, topics: [t]}]},
    ...  delivery: {replication: {replicas: 3}}}
    ... '''))
    >>> report = simulate_group_reliability(system, ["bypass"], runs=20, duration_s=14 * 86400, seed=1)
    >>> abs(report.value("reliability", name="s") - 0.972**2) < 0.01
    True
    """
    if runs < 1:
        raise ConfigurationError(f"runs: {runs} must be 1 or more")
    refuse_saturated_events(system)
    plan, settings = make_plan(system), _settings(system, schemes, duration_s, warm_up_s, seed)
    groups = [group_of(system, i) for i in range(len(system.overlay.brokers))]
    gaps = _gaps(groups, broker_rates_per_s(system), seed)
    results = []
    for run in range(runs):
        given = {
            broker.name: _trace(group, found, settings.horizon_s, seed, f"run {run}/{broker.name}")
            for broker, group, found in zip(system.overlay.brokers, groups, gaps, strict=True)
        }
        results.append(simulate_run(plan, settings, run, given))
        if progress is not None:
            progress(run + 1, runs)
    return build_report(plan, settings, results, _builder(plan, settings, runs))


def _settings(
    system: System, schemes: Sequence[str] | None, duration_s: float, warm_up_s: float, seed: int
) -> Settings:
    tolerance = system.delivery.fault_tolerance
    refresh, timeout = tolerance.refresh_interval, tolerance.subscription_timeout
    lifetimes = [p.deadline_s for p in system.publishers if p.deadline_s < math.inf]
    return Settings(
        schemes=SCHEMES if schemes is None else tuple(schemes),
        duration_s=float(duration_s),
        warm_up_s=float(warm_up_s),
        horizon_s=float(warm_up_s + duration_s + max(lifetimes, default=0.0)),
        seed=seed,
        refresh_interval_s=float(refresh),
        subscription_timeout_s=float(3.0 * refresh if timeout is None else timeout),
        retransmission_interval_s=float(tolerance.retransmission_interval),
    )


def _gaps(groups: Sequence[Group], loads: Sequence[float], seed: int) -> list[Floats]:
    """Measured lengths of elections; groups that differ only in how they fail share theirs."""
    known: dict[tuple[object, ...], Floats] = {}
    found = []
    for group, rate in zip(groups, loads, strict=True):
        key = (group.service, rate)
        if key not in known:
            fails = group.failures is not None
            known[key] = measure_failovers(group, rate, count=FAILOVERS if fails else 0, seed=seed)
        found.append(known[key])
    return found


def _trace(group: Group, gaps_s: Floats, horizon_s: float, seed: int, name: str) -> Intervals:
    """When a group serves; beyond the horizon the last state goes on."""
    if group.failures is None:
        return np.zeros(1), np.full(1, math.inf)
    warm_up_s = WARM_UP_CYCLES * (group.failures.mtbf_s + group.failures.mttr_s)
    starts, ends = simulate_outages(group, gaps_s, horizon_s=horizon_s, seed=seed, name=name, warm_up_s=warm_up_s)
    return starts, np.where(ends >= horizon_s, math.inf, ends)


def _builder(plan: Plan, settings: Settings, runs: int) -> ReportBuilder:
    system = plan.system
    parameters: dict[str, float | str] = {
        "method": "compiled",
        "runs": runs,
        "duration_s": settings.duration_s,
        "warm_up_s": settings.warm_up_s,
        "refresh_interval_s": settings.refresh_interval_s,
        "retransmission_interval_s": settings.retransmission_interval_s,
        "subscription_timeout_s": settings.subscription_timeout_s,
    }
    builder = ReportBuilder(system.name, "simulated", seed=settings.seed, parameters=parameters, notes=system.notes)
    add_time_notes(builder, plan)
    builder.note("each broker is a group: its replicas fail one by one, and elections take as long as measured ones")
    for sentence in left_out(system, "the walk of groups"):
        builder.warn(sentence)
    if any(p.deadline_s == math.inf for p in system.publishers):
        builder.note("events without a deadline that are still buffered at the end of a run count as queued")
    return builder
