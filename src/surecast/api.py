"""The commands of Surecast as functions: predict, simulate, run, plan and compare a scenario.

Each takes a `Scenario` and the choices of its command as keyword arguments. A wrong argument raises
`ConfigurationError`, whose message names it in backticks; a scenario that no model answers raises `AssumptionError`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from surecast.errors import AssumptionError, ConfigurationError

if TYPE_CHECKING:
    from surecast.measurement import TraceReplay
    from surecast.models import Method, Progress
    from surecast.planning.placement import PlacementPlan
    from surecast.report import Comparison, QoSReport, SideBySide
    from surecast.scenario import Scenario, System

__all__ = ["compare", "plan", "predict", "run", "simulate"]

LONG_S = 600.0
"""A longer run than this has to be asked for explicitly."""
SOURCE_ORDER = ("measured", "predicted", "simulated")
COMPOSED = "composed"


class _Names(TypedDict):
    """The variants that a prediction or a simulation is asked for."""

    schemes: Sequence[str] | None
    algorithms: Sequence[str] | None
    policies: Sequence[str] | None
    alone: bool


def predict(
    scenario: Scenario | System,
    *,
    schemes: Sequence[str] | None = None,
    algorithms: Sequence[str] | None = None,
    policies: Sequence[str] | None = None,
    alone: bool = False,
    draws: int | None = None,
    over: str | float | None = None,
) -> QoSReport:
    """Returns what each subscriber will get, by formula.

    Filter classes get the figures of capacity; subscribers with topics those of all models composed, or of failures
    where nothing else stands beside them; events that travel as packets those of coded delivery; replicated brokers
    those of their groups. Where `schemes` (of fault tolerance or of packets), routing `algorithms` or drop `policies`
    are named, and with `alone`, each model answers alone. The policy `all` stands for all.

    Where values of a scenario are estimates, `{estimate: 30d, low: 21d, high: 44d}`, each figure has the 95 % interval
    that they give it, from so many `draws` of them (200 by default, none with 0). With `over`, a length of observation
    such as 30d, it has that of what will be observed in a window so long: failures in it are drawn too.

    >>> from surecast import Scenario, predict
    >>> report = predict(Scenario.load("examples/dropping.yaml"), policies=["expiry"])
    >>> round(report.value("success_share", name="subscriber"), 3)
    0.851
    """
    from surecast.documents.units import seconds_of
    from surecast.models import ask, predict_question
    from surecast.models.estimate_intervals import DRAWS, with_intervals
    from surecast.scenario import Scenario

    def answer(system: System) -> QoSReport:
        return predict_question(ask(system, schemes, algorithms, policies, compose=not alone))

    over_s = seconds_of("`over`", over, is_positive=True)
    count = DRAWS if draws is None else draws
    report = answer(_system(scenario))
    if not isinstance(scenario, Scenario):
        if over_s is not None:
            raise ConfigurationError("`over`: a system has no estimates; give the scenario")
        return report
    if count == 0 or (not scenario.estimates and over_s is None):
        return report
    return with_intervals(scenario, report, answer, draws=count, over_s=over_s)


def simulate(
    scenario: Scenario | System,
    *,
    schemes: Sequence[str] | None = None,
    algorithms: Sequence[str] | None = None,
    policies: Sequence[str] | None = None,
    alone: bool = False,
    method: Method = "compiled",
    runs: int | None = None,
    duration: str | float | None = None,
    seed: int | None = None,
    workers: int = 1,
    progress: Progress | None = None,
) -> QoSReport:
    """Returns what each subscriber gets in virtual time, with confidence intervals; of the same parts as `predict`.

    `method` compiled follows events through failures fast, protocol runs the protocol code. `runs`, `duration`
    (text such as 14d, or seconds) and `seed` are those of the scenario by default. `workers` processes share the runs,
    with the same result. `progress` is called with how much of how much is done.

    >>> from surecast import Scenario, simulate
    >>> report = simulate(Scenario.load("examples/dropping.yaml"), runs=4, duration="1h", seed=1)
    >>> report.figure("success_share", name="subscriber").how
    'simulated'
    """
    from surecast.models import ask, plan_simulation, simulate_question

    system = _system(scenario)
    extent = plan_simulation(
        system, runs=runs, duration=duration, seed=seed, method=method, workers=workers, progress=progress
    )
    question = ask(system, schemes, algorithms, policies, compose=method == "compiled" and not alone)
    return simulate_question(question, extent)


def run(
    scenario: Scenario | System,
    *,
    time_scale: float | None = None,
    duration: str | float | None = None,
    warm_up: str | float | None = None,
    seed: int | None = None,
    patience: str | float | None = None,
    kill_leader: Sequence[str | float] = (),
    freeze: bool = False,
    client_processes: int | None = None,
    replay: TraceReplay | None = None,
    ask_targets: bool = False,
    logs: str | Path | None = None,
    executed: str | Path | None = None,
    progress: Progress | None = None,
) -> QoSReport:
    """Runs the scenario's broker, group or overlay as real processes with real clients; returns what subscribers got.

    `time_scale` seconds of the scenario pass in one of real time. `duration` and `warm_up` are the scenario's time, by
    default that of its experiment. `patience` is how long, in real time, a publisher sends an event again that is not
    acknowledged. At each time of `kill_leader` whoever leads is killed too. With `freeze`, brokers of an overlay are
    frozen while they are down, not killed. The clients are in `client_processes` processes, by default as many as their
    messages need. `replay` is an availability trace whose components brokers fail as. With `ask_targets`, subscribers
    that come and go ask the broker for their response target, and it chooses the policy's parameter. `logs` is a new
    folder for the brokers' event logs. `executed` is the file for a report of an overlay's run simulated again, with
    the same outages and publications. A run of more than ten minutes that nobody asked for is refused.

    >>> from surecast import Scenario, run
    >>> report = run(Scenario.load("examples/p2s.yaml"), duration="5s")  # doctest: +SKIP
    """
    from surecast.documents.units import format_duration, seconds_of
    from surecast.measurement import make_plan, run_plan
    from surecast.models.simulation_extent import whole_number

    system = _system(scenario)
    decided = make_plan(
        system,
        scale=1.0 if time_scale is None else time_scale,
        duration_s=seconds_of("`duration`", duration),
        warm_up_s=seconds_of("`warm_up`", warm_up),
        seed=None if seed is None else whole_number("seed", seed, 0),
        patience_s=seconds_of("`patience`", patience),
        leader_kills_s=[seconds_of("`kill_leader`", moment) for moment in kill_leader],
        freezes=freeze,
        client_processes=client_processes,
        replay=replay,
        asks_targets=ask_targets,
    )
    if decided.real_s > LONG_S and time_scale is None and duration is None:
        raise ConfigurationError(
            f"{system.name} runs for {format_duration(decided.end_s)}, and so would this: give a `time_scale`, a "
            "`duration`, or both"
        )
    return run_plan(
        decided,
        logs=None if logs is None else Path(logs),
        executed=None if executed is None else Path(executed),
        progress=progress,
    )


def plan(
    scenario: Scenario,
    *,
    objective: str = "worst-delay",
    front: Sequence[str] | None = None,
    algorithms: Sequence[str] | None = None,
    max_utilisation: float | None = None,
    max_delay: str | float | None = None,
    max_subscription_delay: str | float | None = None,
    min_headroom: float | None = None,
    min_reliability: float | None = None,
    max_brokers: int | None = None,
    max_cost: float | None = None,
    broker_cost: float = 1.0,
    root: str | None = None,
    search: bool = False,
    restarts: int = 8,
    evaluations: int = 20_000,
    workers: int = 1,
    checkpoint: str | Path | None = None,
    resume: bool = True,
    progress: Progress | None = None,
) -> PlacementPlan:
    """Returns the best placement of brokers among the candidates of a scenario, under every routing algorithm.

    The scenario's targets are constraints; arguments replace them. `objective` and `front`, the objectives of the
    Pareto front, are among worst-delay, mean-delay, messages, cost and headroom. Every placement is evaluated where
    that is possible; with too many candidates, or with `search`, a local search finds good ones, and where it is quick
    the plan's `optimum` has the result of all. The folder `checkpoint` keeps what was evaluated: interrupted, a plan
    goes on from there, unless `resume` is false. The plan's `best` is None where no placement keeps the constraints.

    >>> from surecast import Scenario, plan
    >>> plan(Scenario.load("examples/company.yaml"), max_brokers=2).best.brokers
    ('office-6', 'office-9')
    """
    from surecast.models.question import check_algorithms
    from surecast.planning.placement import FRONT, constraints_of, find_placement, placement_problem

    system = _system(scenario)
    if not 0 <= broker_cost < math.inf:
        raise ConfigurationError(f"`broker_cost` {broker_cost}: give a number of 0 or more")
    constraints = constraints_of(
        scenario,
        max_utilisation=max_utilisation,
        max_delay=max_delay,
        max_subscription_delay=max_subscription_delay,
        min_headroom=min_headroom,
        min_reliability=min_reliability,
        max_brokers=max_brokers,
        max_cost=max_cost,
    )
    return find_placement(
        placement_problem(system, scenario, root=root, costs=broker_cost),
        scenario,
        objective=objective,
        constraints=constraints,
        algorithms=check_algorithms(algorithms),
        front=front or FRONT,
        search=search,
        restarts=restarts,
        evaluations_max=evaluations,
        workers=workers,
        checkpoint=checkpoint,
        resume=resume,
        progress=progress,
    )


def compare(
    a: Scenario | QoSReport,
    b: QoSReport | None = None,
    *,
    answers: Sequence[str] = ("predicted", "simulated"),
    vary: Mapping[str, Mapping[str, object]] | None = None,
    schemes: Sequence[str] | None = None,
    algorithms: Sequence[str] | None = None,
    policies: Sequence[str] | None = None,
    alone: bool = False,
    method: Method = "compiled",
    runs: int | None = None,
    duration: str | float | None = None,
    seed: int | None = None,
    workers: int = 1,
    time_scale: float | None = None,
    progress: Progress | None = None,
) -> Comparison | SideBySide:
    """Compares two reports, or two or all three of the `answers` to a scenario: predicted, simulated and measured.

    Two give a `Comparison`, three a `SideBySide`.
    `vary` has settings of the scenario by label: it is answered under each of them. The other arguments are those of
    `predict`, `simulate` and `run`.

    >>> from surecast import Scenario, compare
    >>> scenario = Scenario.load("examples/dropping.yaml")
    >>> comparison = compare(scenario, runs=4, duration="1h", vary={"busy": {"workload.publishers[0].rate": "4/s"}})
    >>> [row.variant for row in comparison.rows(metric="success_share", scope="subscriber")]
    ['composed, busy']
    """
    from surecast.report import QoSReport, place_side_by_side
    from surecast.report import compare as compare_reports
    from surecast.scenario import Scenario

    if isinstance(a, QoSReport):
        if b is None:
            raise ConfigurationError("a report needs a second report to compare with; or give one scenario")
        return compare_reports(a, b)
    if not isinstance(a, Scenario):
        raise ConfigurationError(f"{a!r} is neither a scenario nor a report; load one: Scenario.load('shop.yaml')")
    if b is not None:
        raise ConfigurationError("a scenario is compared with its own answers; leave out the second report")
    sources = _sources(answers, time_scale)
    if "measured" in sources and (schemes or algorithms or policies):
        raise ConfigurationError(
            "`schemes`, `algorithms` and `policies`: a run has what the scenario says; set it there, such as by "
            "delivery.dropping.policy"
        )

    def answer(source: str, system: System, names: _Names) -> QoSReport:
        if source == "measured":
            return run(system, time_scale=time_scale, duration=duration, seed=seed, progress=progress)
        if source == "predicted":
            return predict(system, **names)
        extent: dict[str, Any] = {"runs": runs, "duration": duration, "seed": seed, "workers": workers}
        return simulate(system, method=method, progress=progress, **extent, **names)

    named: _Names = {"schemes": schemes, "algorithms": algorithms, "policies": policies, "alone": alone}
    reports = _answers(a, vary or {"": {}}, sources, named, answer)
    return compare_reports(*reports) if len(reports) == 2 else place_side_by_side(*reports)


def _answers(
    scenario: Scenario,
    vary: Mapping[str, Mapping[str, object]],
    sources: tuple[str, ...],
    names: _Names,
    answer: Callable[[str, System, _Names], QoSReport],
) -> list[QoSReport]:
    """Returns the answers to a scenario, under each of the settings to vary."""
    from surecast.report import ReportBuilder

    builders: dict[str, ReportBuilder] = {}
    for label, settings in vary.items():
        system = scenario.change(settings).system if settings else scenario.system
        # A run comes first: what it refuses is refused at once.
        reports: dict[str, QoSReport] = {}
        for source in sorted(sources, key=SOURCE_ORDER.index):
            reports[source] = answer(source, system, names)
        if measured := reports.get("measured"):
            for source in [each for each in reports if each != "measured"]:
                reports |= beside_run(system, measured, reports[source], partial(answer, source, system))
        variants = reports["measured"].variants if "measured" in reports else reports[sources[0]].variants
        for source in sources:
            report = reports[source]
            builder = builders.setdefault(source, ReportBuilder(system.name, source, seed=report.info.seed))
            # Beside a run, only the variants that it has.
            for variant in [v for v in report.variants if "measured" not in reports or v in variants]:
                builder.add_report(report.select(variant=variant), variant=f"{variant}, {label}" if label else variant)
    return [builders[source].build() for source in sources]


def beside_run(
    system: System, measured: QoSReport, whole: QoSReport, answer: Callable[[_Names], QoSReport]
) -> dict[str, QoSReport]:
    """Returns a run and another answer, with names in common where the other composes several models.

    What was measured of a subscriber stands beside the composed answer, and beside that of the scheme or policy under
    which the run has it, which `answer` gives. Without composition both stay as they are.
    """
    from surecast.prediction.composed import composes
    from surecast.report import ReportBuilder

    source = whole.info.source
    if COMPOSED not in whole.variants or not composes(system):
        return {"measured": measured, source: whole}
    coming = {s.name for s in system.subscribers if s.connectivity is not None and system.publishers_of(s)}
    of_subscribers = measured.select(scope="subscriber")
    schemes = sorted({figure.variant for figure in of_subscribers.figures() if figure.name not in coming})
    answers = {"measured": [measured], source: [whole.select(variant=COMPOSED)]}
    policies = [system.delivery.dropping.policy] if coming else None
    try:
        names: _Names = {"schemes": schemes or None, "algorithms": None, "policies": policies, "alone": True}
        answers[source].append(answer(names))
    except AssumptionError:
        # A model may refuse by itself what it takes as a part of the composed one.
        answers[source] = [whole]
    joined: dict[str, QoSReport] = {}
    for name, reports in answers.items():
        info = reports[0].info
        builder = ReportBuilder(info.scenario, info.source, seed=info.seed, parameters=info.parameters)
        for report in reports:
            builder.add_report(report)
        if name == "measured":
            builder.add_report(of_subscribers, variant=COMPOSED)
        joined[name] = builder.build()
    return joined


def _sources(answers: Sequence[str], time_scale: float | None) -> tuple[str, ...]:
    """Returns the two or three answers that are asked for, checked."""
    from surecast.report import SOURCES

    names = [name.strip() for name in (answers.split(",") if isinstance(answers, str) else answers)]
    if not 2 <= len(names) == len(set(names)) or any(name not in SOURCES for name in names):
        raise ConfigurationError(
            f"`answers` {','.join(names)}: write two or all of {', '.join(SOURCES)}, such as predicted,measured"
        )
    if time_scale is not None and "measured" not in names:
        raise ConfigurationError("`time_scale`: only a run has one; write `answers` predicted,measured")
    return tuple(names)


def _system(scenario: Scenario | System) -> System:
    """Returns the system that a scenario means; who has a system already may give that."""
    from surecast.scenario import Scenario, System

    if isinstance(scenario, Scenario):
        return scenario.system
    if not isinstance(scenario, System):
        raise ConfigurationError(f"{scenario!r} is no scenario; load one first: Scenario.load('shop.yaml')")
    return scenario
