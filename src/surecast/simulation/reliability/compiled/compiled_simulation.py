"""Simulates the delivery of events in many independent runs, and reports what subscribers get."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from surecast.errors import ConfigurationError
from surecast.report import QoSReport, ReportBuilder
from surecast.scenario import System
from surecast.scenario.coverage import left_out
from surecast.scenario.saturation import refuse_saturated_events
from surecast.simulation.reliability.compiled.compiled_plan import Plan, make_plan
from surecast.simulation.reliability.compiled.compiled_run import simulate_run
from surecast.simulation.reliability.compiled.outcomes import SCHEMES, RunResult, Settings
from surecast.simulation.reliability.compiled.simulated_reliability_report import (
    add_time_notes,
    build_report,
    mean_half_width,
)
from surecast.simulation.reliability.compiled.traces import GivenTraces, checked_traces
from surecast.simulation.reliability.compiled.up_intervals import Intervals

__all__ = ["run_until", "simulate_reliability"]

Progress = Callable[[int, int], None]
_Runner = Callable[[int, int], Iterator[RunResult]]


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
    _check_runs("runs", runs)
    plan, settings, given = _prepare(
        system,
        schemes,
        duration_s,
        seed,
        warm_up_s,
        (refresh_interval_s, subscription_timeout_s, retransmission_interval_s),
        traces,
    )
    results: list[RunResult] = []
    with _runner(plan, settings, given, workers) as do_runs:
        for result in do_runs(0, runs):
            results.append(result)
            if progress is not None:
                progress(len(results), runs)
    return build_report(plan, settings, results, _builder(plan, settings, runs, sorted(given)))


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
    _check_runs("max_runs", max_runs)
    if not half_width > 0:
        raise ConfigurationError(f"half_width: {half_width} must be above 0")
    plan, settings, given = _prepare(
        system,
        schemes,
        duration_s,
        seed,
        warm_up_s,
        (refresh_interval_s, subscription_timeout_s, retransmission_interval_s),
        traces,
    )
    results: list[RunResult] = []
    reached, width = False, math.inf
    with _runner(plan, settings, given, workers) as do_runs:
        while not reached and len(results) < max_runs:
            wanted = max(2, min_runs) if not results else len(results) + max(1, len(results) // 4)
            for result in do_runs(len(results), min(max_runs, wanted)):
                results.append(result)
                if progress is not None:
                    progress(len(results), max_runs)
            width = max(mean_half_width(plan, results, scheme) for scheme in settings.schemes)
            reached = width <= half_width
    builder = _builder(plan, settings, len(results), sorted(given))
    if not reached:
        known = f"are known to {width:.3g} only" if math.isfinite(width) else "have no interval"
        builder.warn(f"after {len(results)} runs the reliabilities {known}, not to {half_width:g}: allow more runs")
    return build_report(plan, settings, results, builder)


def _check_runs(name: str, runs: int) -> None:
    if runs < 1:
        raise ConfigurationError(f"{name}: {runs} must be 1 or more")


def _prepare(
    system: System,
    schemes: Sequence[str] | None,
    duration_s: float,
    seed: int,
    warm_up_s: float,
    intervals: tuple[float | None, float | None, float | None],
    traces: GivenTraces | None,
) -> tuple[Plan, Settings, dict[str, Intervals]]:
    tolerance = system.delivery.fault_tolerance
    refresh, timeout, retransmission = intervals
    if refresh is None:
        refresh = tolerance.refresh_interval
        timeout = tolerance.subscription_timeout if timeout is None else timeout
    if isinstance(schemes, str):
        raise ConfigurationError(f"schemes: write a list, such as [{schemes!r}]")
    refuse_saturated_events(system)
    plan = make_plan(system)
    lifetimes = [p.deadline_s for p in system.publishers if p.deadline_s < math.inf]
    settings = Settings(
        schemes=SCHEMES if schemes is None else tuple(schemes),
        duration_s=float(duration_s),
        warm_up_s=float(warm_up_s),
        horizon_s=float(warm_up_s + duration_s + max(lifetimes, default=0.0)),
        seed=seed,
        refresh_interval_s=float(refresh),
        subscription_timeout_s=float(3.0 * refresh if timeout is None else timeout),
        retransmission_interval_s=float(
            tolerance.retransmission_interval if retransmission is None else retransmission
        ),
    )
    return plan, settings, checked_traces(system, traces)


@contextmanager
def _runner(plan: Plan, settings: Settings, given: Mapping[str, Intervals], workers: int) -> Iterator[_Runner]:
    """Something that does runs and yields their results in order, in this process or in several."""
    if workers <= 1:
        yield lambda start, stop: (simulate_run(plan, settings, run, given) for run in range(start, stop))
        return
    from surecast.workers import worker_pool

    with worker_pool(workers) as pool:

        def do_runs(start: int, stop: int) -> Iterator[RunResult]:
            futures = [pool.submit(simulate_run, plan, settings, run, given) for run in range(start, stop)]
            return (future.result() for future in futures)

        yield do_runs


def _builder(plan: Plan, settings: Settings, runs: int, traced: list[str]) -> ReportBuilder:
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
        builder.note(f"the traces of {len(traced)} brokers and links were given, not drawn")
    if system.client_failures is not None:
        builder.note(
            "the link of a publisher must be up at publication and that of a subscriber at delivery; nothing is stored "
            "for a client"
        )
    for sentence in left_out(system, "the walk"):
        builder.warn(sentence)
    unreached = sum(1 for interest in plan.interest_of.tolist() if interest < 0)
    if unreached:
        builder.note(f"{unreached} subscribers have no matching publisher, and so no reliability")
    if any(p.deadline_s == math.inf for p in system.publishers):
        builder.note("events without a deadline that are still buffered at the end of a run count as queued")
    return builder
