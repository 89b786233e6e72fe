"""Real-time reliability where brokers are groups: events walk through groups whose replicas fail one by one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from surecast.report import QoSReport
from surecast.scenario.group import Group, group_of
from surecast.scenario.saturation import broker_rates_per_s
from surecast.scenario.system import System
from surecast.simulation.experiment import Progress, check_at_least_one, replicate
from surecast.simulation.reliability.compiled.compiled_plan import CompiledPlan
from surecast.simulation.reliability.compiled.compiled_run import simulate_run
from surecast.simulation.reliability.compiled.compiled_simulation import lay_out, report_head
from surecast.simulation.reliability.compiled.outcomes import CompiledRunResult, ReliabilitySettings
from surecast.simulation.reliability.compiled.simulated_reliability_report import build_report
from surecast.simulation.replication.group_load_run import election_gaps
from surecast.simulation.replication.outages import group_trace

__all__ = ["simulate_group_reliability"]

Floats = NDArray[np.float64]


def simulate_group_reliability(
    system: System,
    schemes: Sequence[str] | None = None,
    *,
    runs: int,
    duration_s: float,
    seed: int,
    warm_up_s: float = 0.0,
    workers: int = 1,
    progress: Progress | None = None,
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
    check_at_least_one("runs", runs)
    settings = ReliabilitySettings.of(system, schemes, duration_s=duration_s, warm_up_s=warm_up_s, seed=seed)
    plan = lay_out(system)
    groups = [group_of(system, i) for i in range(len(system.overlay.brokers))]
    gaps = election_gaps(groups, broker_rates_per_s(system), seed)
    simulate = partial(_simulate_run, plan, settings, groups, gaps)
    results = replicate(simulate, runs, workers=workers, progress=progress)
    head = report_head(plan, settings, runs, method="the walk of groups")
    head.note("each broker is a group: its replicas fail one by one, and elections take as long as measured ones")
    return build_report(plan, settings, results, head)


def _simulate_run(
    plan: CompiledPlan, settings: ReliabilitySettings, groups: list[Group], gaps: list[Floats], run: int
) -> CompiledRunResult:
    traces = {
        broker.name: group_trace(
            group, gaps_s, horizon_s=settings.horizon_s, seed=settings.seed, name=f"run {run}/{broker.name}"
        )
        for broker, group, gaps_s in zip(plan.system.overlay.brokers, groups, gaps, strict=True)
    }
    return simulate_run(plan, settings, traces, run)
