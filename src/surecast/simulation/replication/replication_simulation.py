"""The reports of the groups of a system in virtual time: their own figures, and reliability where they are brokers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from surecast.report import QoSReport, ReportBuilder
from surecast.scenario.coverage import left_out
from surecast.scenario.group import Group, groups_of
from surecast.scenario.saturation import broker_rates_per_s, refuse_saturated_events
from surecast.scenario.system import System
from surecast.simulation.experiment import (
    Extent,
    Progress,
    check_at_least_one,
    interval_ends,
    ratio_estimate,
    replicate,
    replications,
)
from surecast.simulation.reliability.compiled.compiled_plan import CompiledPlan
from surecast.simulation.reliability.compiled.compiled_run import simulate_run
from surecast.simulation.reliability.compiled.compiled_simulation import lay_out, report_head
from surecast.simulation.reliability.compiled.outcomes import CompiledRunResult, ReliabilitySettings
from surecast.simulation.reliability.compiled.simulated_reliability_report import build_report
from surecast.simulation.replication.group_load import OpenLoad
from surecast.simulation.replication.group_load_run import GroupRun, election_gaps, measure_failovers, simulate_group
from surecast.simulation.replication.outages import WARM_UP_CYCLES, group_trace, simulate_outages

__all__ = ["simulate_group_reliability", "simulate_replication"]

Floats = NDArray[np.float64]

PUBLICATIONS_MAX = 2_000
"""Publications of one run on average, at most: a run of the real code takes its time."""
FAILOVERS = 20
"""Fail-overs measured at least, over all runs."""
CYCLES = 2_000
"""The failures of a replica in one run of the outages."""


class _Figures:
    """Adds figures of one broker, each from one value a run, with its 95 % interval."""

    def __init__(self, builder: ReportBuilder, name: str, variant: str):
        self.builder, self.name, self.variant = builder, name, variant

    def add(
        self, metric: str, values: Sequence[float], weights: Sequence[float] | None = None, detail: str = ""
    ) -> None:
        """The mean over runs, or with weights the ratio of the sums."""
        top = np.array(values, dtype=np.float64)[:, None]
        below = np.ones_like(top) if weights is None else np.array(weights, dtype=np.float64)[:, None]
        if not below.sum() > 0:
            return
        value, half = (float(part[0]) for part in ratio_estimate(top, below))
        most = 1.0 if metric == "availability" else math.inf
        low, high = interval_ends(value, half, most=most)
        self.builder.add(
            "broker",
            self.name,
            metric,
            min(value, most),
            how="simulated",
            detail=detail,
            variant=self.variant,
            low=low,
            high=high,
            samples=len(values),
        )


def simulate_replication(
    system: System,
    *,
    runs: int = 10,
    duration_s: float = 60.0,
    seed: int = 0,
    quantiles: Sequence[float] = (0.5, 0.95),
    workers: int = 1,
    progress: Progress | None = None,
) -> QoSReport:
    """Latency, throughput, processor time and availability of each broker of a system as a group of replicas.

    The load runs through the real replica code for `duration_s`, or for as long as about `PUBLICATIONS_MAX`
    publications take. Leaders are made to fail in worlds of their own. The outages of years come from the failures and
    repairs of replicas alone, with elections as long as those measured.

    >>> from surecast.scenario import build, parse_text
    >>> system = build(parse_text('''
    ... {surecast: 1, name: one, overlay: {brokers: [{name: b}]},
    ...  workload: {topics: [t], publishers: [{name: p, home: b, topics: [t], rate: 10/s}]},
    ...  delivery: {replication: {replicas: 3}}}
    ... '''))
    >>> report = simulate_replication(system, runs=2, duration_s=2.0, seed=1)
    >>> 0.001 < report.value("acknowledgement_mean_s", name="b") < 0.002
    True
    """
    check_at_least_one("runs", runs)
    extent = Extent(duration_s=duration_s, seed=seed)
    refuse_saturated_events(system)
    builder = ReportBuilder(
        system.name,
        "simulated",
        seed=seed,
        notes=system.notes,
        parameters={"method": "replicas", "runs": runs, "duration_s": duration_s},
    )
    plans = _plans(builder, system, runs, extent)
    jobs = [(plan, run) for plan in plans for run in range(runs)]
    with replications(_simulate_run, total=len(jobs), workers=workers, progress=progress) as do:
        measured = do.all(jobs)
    for i, (broker, plan) in enumerate(zip(system.overlay.brokers, plans, strict=True)):
        group, own = plan.group, measured[i * runs : (i + 1) * runs]
        results, gaps = [result for result, _ in own], [gaps for _, gaps in own]
        figures = _Figures(builder, broker.name, group.label)
        _add_performance(figures, group, results, quantiles)
        _add_availability(figures, group, gaps, plan.seed, quantiles)
        if any(result.published > len(result.acknowledged_s) for result in results):
            builder.warn(
                f"broker {broker.name}: some publications were not acknowledged by the end of their run; their times "
                "are not counted: it is overloaded, or was without a majority"
            )
    for sentence in left_out(system, "the simulation of groups"):
        builder.warn(sentence)
    builder.note("replication: publications at random; processors, disks and links are simulated, the code is real")
    return builder.build()


@dataclass(frozen=True, slots=True)
class _GroupPlan:
    """The plan that all runs of one group share."""

    group: Group
    load: OpenLoad
    duration_s: float
    seed: int
    failovers: int


def _plans(builder: ReportBuilder, system: System, runs: int, extent: Extent) -> list[_GroupPlan]:
    plans = []
    groups = groups_of(system)
    for i, (broker, rate_per_s) in enumerate(zip(system.overlay.brokers, broker_rates_per_s(system), strict=True)):
        group = groups[i]
        if group is None:
            continue
        publishers = max(1, sum(publisher.home == i for publisher in system.publishers))
        length_s = min(extent.duration_s, PUBLICATIONS_MAX / rate_per_s if rate_per_s > 0 else 1.0)
        if length_s < extent.duration_s and rate_per_s > 0:
            builder.note(f"broker {broker.name}: its load is simulated for {length_s:.4g} s of each run")
        load, seed = OpenLoad(rate_per_s, publishers), _own_seed(extent.seed, i)
        plans.append(_GroupPlan(group, load, length_s, seed, -(-FAILOVERS // runs)))
    return plans


def _simulate_run(plan: _GroupPlan, run: int) -> tuple[GroupRun, Floats]:
    """The group under its load, and the lengths of fail-overs."""
    result = simulate_group(plan.group, plan.load, duration_s=plan.duration_s, seed=plan.seed, run=run)
    rate_per_s = plan.load.rate_per_s
    return result, measure_failovers(plan.group, rate_per_s, count=plan.failovers, seed=plan.seed, run=run)


def _own_seed(seed: int, broker: int) -> int:
    return int(np.random.SeedSequence([seed, broker]).generate_state(1)[0])


def _add_performance(figures: _Figures, group: Group, results: Sequence[GroupRun], quantiles: Sequence[float]) -> None:
    served = [result for result in results if len(result.acknowledged_s)]
    figures.add("throughput_per_s", [result.throughput_per_s for result in results])
    if not served:
        return
    counts = [float(len(result.acknowledged_s)) for result in served]
    lengths = [result.duration_s for result in served]
    figures.add("utilisation", [result.leader_cpu_s for result in served], lengths)
    figures.add("batch_size_mean", counts, [float(result.instances) for result in served])
    figures.add("acknowledgement_mean_s", [float(result.acknowledged_s.sum()) for result in served], counts)
    for q in quantiles:
        values = [float(np.quantile(result.acknowledged_s, q)) for result in served]
        figures.add("acknowledgement_quantile_s", values, detail=f"p{100 * q:.10g}")
    figures.add("cpu_per_event_s", [result.leader_cpu_s for result in served], counts, "leader")
    others = group.replicas - 1
    if others:
        committed = [result for result in served if len(result.commit_s)]
        figures.add(
            "commit_delay_mean_s",
            [float(result.commit_s.sum()) for result in committed],
            [float(len(result.commit_s)) for result in committed],
        )
        figures.add("cpu_per_event_s", [result.follower_cpu_s for result in served], counts, "follower")
    figures.add("cpu_per_event_s", [result.leader_cpu_s + others * result.follower_cpu_s for result in served], counts)


def _add_availability(
    figures: _Figures, group: Group, gaps: Sequence[Floats], seed: int, quantiles: Sequence[float]
) -> None:
    measured = [float(part.mean()) for part in gaps if len(part)]
    if measured:
        figures.add("failover_mean_s", measured)
    if group.failures is None:
        return
    every = np.concatenate(list(gaps))
    cycle_s = group.failures.mtbf_s + group.failures.mttr_s
    horizon_s = CYCLES * cycle_s
    up_s, count, outages = [], [], []
    for run in range(len(gaps)):
        starts, ends = simulate_outages(
            group, every, horizon_s=horizon_s, seed=seed, name=f"run {run}", warm_up_s=WARM_UP_CYCLES * cycle_s
        )
        up_s.append(float((ends - starts).sum()))
        outages.append(starts[1:] - ends[:-1])
        count.append(float(len(outages[-1])))
    figures.add("availability", up_s, [horizon_s] * len(up_s))
    figures.add("mtbf_s", up_s, count)
    figures.add("mttr_s", [horizon_s - up for up in up_s], count)
    for q in quantiles:
        values = [float(np.quantile(lengths, q)) for lengths in outages if len(lengths)]
        figures.add("outage_quantile_s", values, [1.0] * len(values), f"p{100 * q:.10g}")


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
    """As `simulate_reliability`, with brokers as groups whose replicas fail and are repaired one by one.

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
    groups = groups_of(system)
    gaps = election_gaps(groups, broker_rates_per_s(system), seed)
    simulate = partial(_simulate_walk, plan, settings, groups, gaps)
    results = replicate(simulate, runs, workers=workers, progress=progress)
    head = report_head(plan, settings, runs, method="the walk of groups")
    head.note(f"{_which(system)}: replicas fail one by one, and elections take as long as measured ones")
    return build_report(plan, settings, results, head)


def _which(system: System) -> str:
    """Returns which brokers are groups, for a note."""
    names = system.delivery.replication.brokers
    if not names:
        return "each broker is a group"
    return f"broker {names[0]} is a group" if len(names) == 1 else f"brokers {', '.join(names)} are groups"


def _simulate_walk(
    plan: CompiledPlan, settings: ReliabilitySettings, groups: Sequence[Group | None], gaps: list[Floats], run: int
) -> CompiledRunResult:
    traces = {
        broker.name: group_trace(
            group, gaps_s, horizon_s=settings.horizon_s, seed=settings.seed, name=f"run {run}/{broker.name}"
        )
        for broker, group, gaps_s in zip(plan.system.overlay.brokers, groups, gaps, strict=True)
        if group is not None
    }
    return simulate_run(plan, settings, traces, run)
