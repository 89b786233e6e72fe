"""Simulates content-based routing in independent runs, and reports what it costs and how fast it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from surecast.errors import ConfigurationError
from surecast.report import QoSReport, ReportBuilder
from surecast.scenario.coverage import left_out
from surecast.scenario.system import System
from surecast.simulation.capacity.estimates import Estimates
from surecast.simulation.capacity.routing_plan import RoutingPlan, Settings, check_algorithms, make_plan
from surecast.simulation.capacity.routing_run import simulate_run
from surecast.simulation.capacity.run_sums import RunResult
from surecast.simulation.capacity.simulated_capacity_report import add_algorithm
from surecast.simulation.experiment import Progress, check_at_least_one, replications

__all__ = ["simulate_routing", "simulate_routing_until"]


def simulate_routing(
    system: System,
    algorithms: Sequence[str] | None = None,
    *,
    duration_s: float,
    warm_up_s: float,
    runs: int,
    seed: int,
    shared_directions: bool = True,
    workers: int = 1,
    progress: Progress | None = None,
    check: bool = False,
) -> QoSReport:
    """Routing tables, message rates, utilisation and delays of a system, by running the routing code in virtual time.

    Each algorithm is a variant of the report; left out, all nine. The report has the figures of `predict_capacity`
    with 95 % confidence intervals over `runs` independent runs, and the delays of what each client gets. A run begins
    in the stationary state of the subscriptions with empty queues; what happens in the `duration_s` after `warm_up_s`
    counts. Clients do the same under every algorithm. `check` compares every delivery with an oracle that knows all
    subscriptions (slow). `progress` is called with the number of runs done and of all, over all algorithms. `workers`
    above 1 spreads the runs over so many processes (a script then needs the usual `if __name__ == "__main__"`), and
    changes nothing in the report.

    >>> from surecast.scenario import build, parse_text
    >>> system = build(parse_text('''
    ... surecast: 1
    ... name: pair
    ... overlay: {brokers: [{name: a, capacity: 100/s}, {name: b, capacity: 100/s}], links: [[a, b]]}
    ... workload:
    ...   classes: [{name: c, count: 50}]
    ...   clients: [{name: x, home: a}, {name: y, home: b}]
    ...   subscriptions: {active: 100, lifetime: 100s}
    ...   publications: 20/s
    ... '''))
    >>> report = simulate_routing(system, ["peer-to-peer covering"], duration_s=50, warm_up_s=5, runs=5, seed=1)
    >>> rate = report.figure("message_rate_per_s", detail="")
    >>> rate.low < 7.21 < rate.high  # predicted
    True
    """
    check_at_least_one("runs", runs)
    plan, settings = _prepare(system, algorithms, duration_s, warm_up_s, seed, shared_directions, check)
    jobs = [(algorithm, run) for algorithm in settings.algorithms for run in range(runs)]
    simulate = partial(simulate_run, plan, settings)
    with replications(simulate, total=len(jobs), workers=workers, progress=progress) as do:
        done = do.all(jobs)
    results = {name: done[i * runs : (i + 1) * runs] for i, name in enumerate(settings.algorithms)}
    return _report(plan, settings, results, _builder(plan, settings, dict.fromkeys(results, runs)))


def simulate_routing_until(
    system: System,
    algorithms: Sequence[str] | None = None,
    *,
    relative_half_width: float = 0.01,
    delay_half_width: float = 0.02,
    max_runs: int,
    duration_s: float,
    warm_up_s: float,
    seed: int,
    min_runs: int = 5,
    shared_directions: bool = True,
    workers: int = 1,
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
    check: bool = False,
) -> QoSReport:
    """As `simulate_routing`, with as many runs of each algorithm as it takes to know the whole system well enough.

    Runs are added, from `min_runs` to `max_runs`, until the 95 % half-widths of the message rate, of all table entries
    and of the mean utilisation are at most `relative_half_width` of their values, and those of the delay of what
    clients get and of the worst path at most `delay_half_width`. Before runs are added, `stop` may say that it is time
    to end. A warning says where it was not enough.

    >>> from surecast.scenario import build, parse_text
    >>> system = build(parse_text('''
    ... surecast: 1
    ... name: alone
    ... overlay: {brokers: [{name: a, capacity: 100/s}]}
    ... workload:
    ...   classes: [{name: c}]
    ...   clients: [{name: x, home: a}]
    ...   subscriptions: {active: 10, lifetime: 10s}
    ...   publications: 20/s
    ... '''))
    >>> report = simulate_routing_until(
    ...     system, ["flooding"], relative_half_width=0.1, delay_half_width=0.1, max_runs=40, duration_s=100,
    ...     warm_up_s=1, seed=1)
    >>> waiting = report.figure("waiting_mean_s", name="a")
    >>> (waiting.high - waiting.low) / 2 <= 0.1 * waiting.value
    True
    """
    check_at_least_one("max_runs", max_runs)
    for name, width in (("relative_half_width", relative_half_width), ("delay_half_width", delay_half_width)):
        if not width > 0:
            raise ConfigurationError(f"{name}: {width} must be above 0")
    plan, settings = _prepare(system, algorithms, duration_s, warm_up_s, seed, shared_directions, check)
    results: dict[str, list[RunResult]] = {}
    missing: dict[str, list[str]] = {}

    def is_known(algorithm: str, done: list[RunResult]) -> bool:
        missing[algorithm] = _missing(Estimates(plan, algorithm, done), relative_half_width, delay_half_width)
        return not missing[algorithm]

    total = len(settings.algorithms) * max_runs
    with replications(partial(simulate_run, plan, settings), total=total, workers=workers, progress=progress) as do:
        for algorithm in settings.algorithms:
            results[algorithm] = do.until(
                partial(is_known, algorithm),
                first=min_runs,
                most=max_runs,
                job=partial(_job, algorithm),
                stop=stop,
            )
    builder = _builder(plan, settings, {name: len(done) for name, done in results.items()})
    for algorithm, what in missing.items():
        if what:
            builder.warn(f"{algorithm}: after {len(results[algorithm])} runs not known well enough: {', '.join(what)}")
    return _report(plan, settings, results, builder)


def _missing(estimates: Estimates, relative: float, delay: float) -> list[str]:
    """Returns the figures whose intervals are still too wide, in words; a saturated system has no delays."""
    loads, delays = estimates.aggregates()
    if bool((estimates.offered >= 1.0).any()):
        delays = {}
    required = [(name, estimate, relative) for name, estimate in loads.items()]
    required += [(name, estimate, delay) for name, estimate in delays.items()]
    return [f"{name} ({e.half / e.value:.2%})" for name, e, width in required if not e.within(width)]


def _prepare(
    system: System,
    algorithms: Sequence[str] | None,
    duration_s: float,
    warm_up_s: float,
    seed: int,
    shared_directions: bool,
    check: bool,
) -> tuple[RoutingPlan, Settings]:
    chosen = check_algorithms(algorithms)
    settings = Settings(
        algorithms=chosen, duration_s=float(duration_s), warm_up_s=float(warm_up_s), seed=seed, check=check
    )
    return make_plan(system, shared_directions=shared_directions), settings


def _job(algorithm: str, run: int) -> tuple[str, int]:
    return algorithm, run


def _report(
    plan: RoutingPlan, settings: Settings, results: dict[str, list[RunResult]], builder: ReportBuilder
) -> QoSReport:
    for algorithm, runs in results.items():
        add_algorithm(builder, Estimates(plan, algorithm, runs))
    return builder.build()


def _builder(plan: RoutingPlan, settings: Settings, runs: dict[str, int]) -> ReportBuilder:
    """The head of the report, with what was assumed."""
    system = plan.system
    counts = set(runs.values())
    parameters = {
        "method": "routing",
        "algorithms": list(settings.algorithms),
        "runs": counts.pop() if len(counts) == 1 else runs,
        "duration_s": settings.duration_s,
        "warm_up_s": settings.warm_up_s,
        "shared_directions": plan.shared_directions,
    }
    builder = ReportBuilder(system.name, "simulated", seed=settings.seed, notes=system.notes, parameters=parameters)
    builder.note("subscriptions are intervals with uniform ends, events uniform points on one attribute")
    builder.note("worst-path delays are the largest sums of mean delays over paths in use, with measured waiting times")
    if any(algorithm.startswith("hierarchical") for algorithm in settings.algorithms):
        builder.note(f"the root of the hierarchy is broker {plan.names[system.overlay.root]}")
    routing = system.delivery.routing
    if routing is not None and routing.links:
        links = ", ".join(f"{each.between[0]}--{each.between[1]} {each.algorithm}" for each in routing.links)
        builder.note(f"links with an algorithm of their own, under every algorithm: {links} (delivery.routing.links)")
    if routing is not None and routing.advertisements:
        builder.note(
            "publishers have advertised their classes before time begins, and subscriptions travel towards them only "
            "(delivery.routing.advertisements); worst-path delays are over all paths nevertheless"
        )
    if system.network is not None:
        ways = "one queue" if plan.shared_directions else "a queue each"
        builder.note(
            f"both directions of a physical link have {ways}; the routers at both ends of a path are passed too"
        )
    for sentence in left_out(system, "the simulation of routing"):
        builder.warn(sentence)
    return builder
