"""Simulates the delivery of events in many independent runs, and reports what subscribers get."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from surecast.errors import ConfigurationError
from surecast.report import QoSReport, ReportBuilder
from surecast.scenario import System
from surecast.scenario.coverage import left_out
from surecast.scenario.saturation import refuse_saturated_events
from surecast.simulation.experiment import Progress, check_at_least_one, replicate, replications
from surecast.simulation.reliability.compiled.compiled_plan import CompiledPlan, make_plan
from surecast.simulation.reliability.compiled.compiled_run import simulate_run
from surecast.simulation.reliability.compiled.outcomes import CompiledRunResult, ReliabilitySettings
from surecast.simulation.reliability.compiled.simulated_reliability_report import (
    add_time_notes,
    build_report,
    mean_half_width,
)
from surecast.simulation.reliability.compiled.traces import GivenTraces, checked_traces

__all__ = ["lay_out", "report_head", "run_until", "simulate_reliability"]


def simulate_reliability(
    system: System,
    schemes: Sequence[str] | None = None,
    *,
    runs: int,
    duration_s: float,
    seed: int,
    warm_up_s: float = 0.0,
    progress: Progress | None = None,
    refresh_interval_s: float | None = None,
    subscription_timeout_s: float | None = None,
    retransmission_interval_s: float | None = None,
    traces: GivenTraces | None = None,
    workers: int = 1,
) -> QoSReport:
    """Simulates which events arrive in time under each scheme, in `runs` independent runs.

    All schemes of a run see the same failures and the same events. `schemes` left out means all. Events
    published between `warm_up_s` and `warm_up_s + duration_s` count, and each is followed until its lifetime ends.
    Intervals left out are the scenario's; 0 means ideal: entries are never missing, and a buffered event moves the
    moment it can. `traces` gives the up intervals of brokers and links by name, in seconds from the start of the run
    (warm-up included), instead of drawing them; after its last interval a component stays down. `progress` is called
    with the number of runs done and of all. `workers` above 1 spreads the runs over so many processes (a script then
    needs the usual `if __name__ == "__main__"`), and changes nothing in the report.

    >>> from surecast.scenario import build, parse_text
    >>> system = build(parse_text('''
    ... {surecast: 1, name: two, overlay: {brokers: [{name: a}, {name: b}], links: [[a, b]]},
    ...  availability: {brokers: {mtbf: 9h, mttr: 1h}}, workload: {topics: [t], deadline: 600s,
    ...  publishers: [{name: p, home: a, topics: [t], rate: 1/min}], subscribers: [{name: s, home: b, topics: [t]}]}}
    ... '''))
    >>> report = simulate_reliability(system, ["buffering", "bypass"], runs=10, duration_s=14 * 86400, seed=1)
    >>> {figure.variant: round(figure.value, 2) for figure in report.figures(name="s", metric="reliability")}
    {'buffering': 0.82, 'bypass': 0.81}
    """
    check_at_least_one("runs", runs)
    settings = ReliabilitySettings.of(
        system,
        schemes,
        duration_s=duration_s,
        warm_up_s=warm_up_s,
        seed=seed,
        refresh_interval_s=refresh_interval_s,
        subscription_timeout_s=subscription_timeout_s,
        retransmission_interval_s=retransmission_interval_s,
    )
    plan, given = lay_out(system), checked_traces(system, traces)
    simulate = partial(simulate_run, plan, settings, given)
    results = replicate(simulate, runs, workers=workers, progress=progress)
    return build_report(plan, settings, results, report_head(plan, settings, runs, traced=len(given)))


def run_until(
    system: System,
    schemes: Sequence[str] | None = None,
    *,
    half_width: float,
    max_runs: int,
    duration_s: float,
    seed: int,
    min_runs: int = 5,
    warm_up_s: float = 0.0,
    progress: Progress | None = None,
    refresh_interval_s: float | None = None,
    subscription_timeout_s: float | None = None,
    retransmission_interval_s: float | None = None,
    traces: GivenTraces | None = None,
    workers: int = 1,
) -> QoSReport:
    """As `simulate_reliability`, with as many runs as it takes to know the reliabilities well enough.

    Runs are added, from `min_runs` to `max_runs`, until the mean 95 % half-width over all subscribers is at most
    `half_width` under every scheme. The report is that of `simulate_reliability` with so many runs; it warns where
    `max_runs` were not enough.

    >>> from surecast.scenario import build, parse_text
    >>> system = build(parse_text('''
    ... {surecast: 1, name: two, overlay: {brokers: [{name: a}, {name: b}], links: [[a, b]]},
    ...  availability: {brokers: {mtbf: 9h, mttr: 1h}}, workload: {topics: [t], deadline: 600s,
    ...  publishers: [{name: p, home: a, topics: [t], rate: 1/min}], subscribers: [{name: s, home: b, topics: [t]}]}}
    ... '''))
    >>> report = run_until(system, ["bypass"], half_width=0.02, max_runs=100, duration_s=14 * 86400, seed=1)
    >>> figure = report.figure("reliability", name="s")
    >>> (figure.high - figure.low) / 2 <= 0.02
    True
    """
    check_at_least_one("max_runs", max_runs)
    if not half_width > 0:
        raise ConfigurationError(f"half_width: {half_width} must be above 0")
    settings = ReliabilitySettings.of(
        system,
        schemes,
        duration_s=duration_s,
        warm_up_s=warm_up_s,
        seed=seed,
        refresh_interval_s=refresh_interval_s,
        subscription_timeout_s=subscription_timeout_s,
        retransmission_interval_s=retransmission_interval_s,
    )
    plan, given = lay_out(system), checked_traces(system, traces)

    def width(results: list[CompiledRunResult]) -> float:
        return max(mean_half_width(plan, results, scheme) for scheme in settings.schemes)

    simulate = partial(simulate_run, plan, settings, given)
    with replications(simulate, total=max_runs, workers=workers, progress=progress) as do:
        results = do.until(lambda results: width(results) <= half_width, first=min_runs, most=max_runs)
    builder = report_head(plan, settings, len(results), traced=len(given))
    reached = width(results)
    if not reached <= half_width:
        precision = f"are known to {reached:.3g} only" if math.isfinite(reached) else "have no interval"
        builder.warn(f"after {len(results)} runs the reliabilities {precision}, not to {half_width:g}: allow more runs")
    return build_report(plan, settings, results, builder)


def lay_out(system: System) -> CompiledPlan:
    """The plan of a system that is not saturated."""
    refuse_saturated_events(system)
    return make_plan(system)


def report_head(
    plan: CompiledPlan, settings: ReliabilitySettings, runs: int, *, traced: int = 0, method: str = "the walk"
) -> ReportBuilder:
    """The head of the report, with what was assumed."""
    system = plan.system
    parameters: dict[str, float | str] = {
        "method": "compiled",
        "runs": runs,
        "duration_s": settings.duration_s,
        "warm_up_s": settings.warm_up_s,
        "refresh_interval_s": settings.refresh_interval_s,
        "retransmission_interval_s": settings.retransmission_interval_s,
    }
    if settings.refresh_interval_s > 0:
        parameters["subscription_timeout_s"] = settings.subscription_timeout_s
    builder = ReportBuilder(system.name, "simulated", seed=settings.seed, parameters=parameters, notes=system.notes)
    add_time_notes(builder, plan)
    if traced:
        builder.note(f"the traces of {traced} brokers and links were given, not drawn")
    if system.client_failures is not None:
        builder.note(
            "the link of a publisher must be up at publication and that of a subscriber at delivery; nothing is stored "
            "for a client"
        )
    for sentence in left_out(system, method):
        builder.warn(sentence)
    unreached = sum(1 for interest in plan.interest_of.tolist() if interest < 0)
    if unreached:
        builder.note(f"{unreached} subscribers have no matching publisher, and so no reliability")
    if any(p.deadline_s == math.inf for p in system.publishers):
        builder.note("events without a deadline that are still buffered at the end of a run count as queued")
    return builder
