"""The three answers to one scenario, as commands and comparisons need them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from surecast.errors import AssumptionError, ConfigurationError, SaturationError

if TYPE_CHECKING:
    from surecast.report import QoSReport
    from surecast.scenario import System
    from surecast.scenario.mechanism import Mechanism

__all__ = [
    "AlgorithmNames",
    "Method",
    "PolicyNames",
    "SchemeNames",
    "SimulationPlan",
    "check_algorithms",
    "check_policies",
    "check_schemes",
    "check_writable",
    "predict_system",
    "progress_bar",
    "simulate_system",
]

Method = Literal["walk", "protocol"]
SchemeNames = Annotated[
    list[str] | None,
    typer.Option(
        "--scheme",
        metavar="SCHEME",
        help="A fault-tolerance scheme, such as buffering or bypass, or a scheme of packets, such as coding or tree. "
        "May be repeated; all by default.",
    ),
]
AlgorithmNames = Annotated[
    list[str] | None,
    typer.Option(
        "--algorithm",
        metavar="ALGORITHM",
        help="A routing algorithm of filter classes, such as 'peer-to-peer covering'. May be repeated; all by default.",
    ),
]
PolicyNames = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        metavar="POLICY",
        help="A dropping policy for subscribers that come and go: none, probabilistic, expiry, finite-buffer, optimal, "
        "or all. May be repeated; the scenario's by default.",
    ),
]
QUANTILES = (0.5, 0.9, 0.95, 0.99)
CODED_EVENTS_MIN, CODED_EVENTS_MAX, CODED_OBJECT_EVENTS = 200, 100_000, 100
"""Events as packets: at least and at most so many for a scheme, and so many where the protocol's own objects run."""
ROUTING_DURATION_S, ROUTING_WARM_UP_S = 60.0, 5.0
Progress = Callable[[int, int], None]


class SimulationPlan:
    """How long and how often to simulate: what the command line says, else what the scenario says.

    Where neither says how long, filter classes are simulated for a minute: their messages are many.
    """

    def __init__(self, system: System, runs: int | None, duration: str | None, seed: int | None):
        from surecast.documents.units import parse_duration

        experiment = system.experiment
        brief = not system.subscribers and "duration" not in experiment.model_fields_set
        try:
            if duration is not None:
                self.duration_s = parse_duration(duration)
            else:
                self.duration_s = ROUTING_DURATION_S if brief else experiment.duration
        except ValueError as error:
            raise ConfigurationError(f"--duration: {error}") from None
        if not 0 < self.duration_s < math.inf:
            raise ConfigurationError("--duration must be above 0 and finite, such as 14d")
        self.runs = experiment.runs if runs is None else runs
        # Coded delivery takes its intervals over batches of the events of one run.
        if self.runs < 2 and system.delivery.coding is None:
            raise ConfigurationError("one run gives no confidence interval; use --runs 2 or more")
        self.seed = system.seed if seed is None else seed
        self.warm_up_s = ROUTING_WARM_UP_S if brief and not experiment.warm_up else experiment.warm_up


def check_schemes(names: list[str] | None, packets: bool = False) -> list[str] | None:
    """Refuses unknown schemes; with `packets`, those of coded delivery and its alternatives are known too."""
    from surecast.scenario.spec.delivery import SCHEMES

    known: tuple[str, ...] = SCHEMES
    if packets and names:
        from surecast.prediction import CODING_SCHEMES

        known = (*SCHEMES, *CODING_SCHEMES)
    for name in names or []:
        if name not in known:
            raise ConfigurationError(f"there is no scheme {name!r}; there are: {', '.join(known)}")
    return names or None


def check_algorithms(names: list[str] | None) -> list[str] | None:
    from surecast.prediction.capacity.model import known_algorithms

    for name in names or []:
        if name not in known_algorithms():
            raise ConfigurationError(f"there is no algorithm {name!r}; there are: {', '.join(known_algorithms())}")
    return names or None


def check_policies(names: list[str] | None) -> list[str] | None:
    from surecast.prediction import POLICIES

    for name in names or []:
        if name not in (*POLICIES, "all"):
            raise ConfigurationError(
                f"there is no policy {name!r}; there are: {', '.join(POLICIES)}, or all of them: all"
            )
    if names and "all" in names:
        return list(POLICIES)
    return list(dict.fromkeys(names)) if names else None


def predict_system(
    system: System,
    schemes: list[str] | None,
    algorithms: list[str] | None = None,
    policies: list[str] | None = None,
) -> QoSReport:
    """The report by formula: capacity for filter classes; for topics, dropping where subscribers come and go, and
    reliability for the others. With schemes named and no policies, reliability for all. Events that travel as packets
    get the figures of coded delivery and its alternatives, and those of failures only where something fails.
    Replicated brokers also get the figures of their groups. A system that needs several of these models gets them
    composed where nothing is named."""
    from surecast.prediction import (
        MODELS,
        predict_capacity,
        predict_coding,
        predict_dropping,
        predict_periods,
        predict_reliability,
    )
    from surecast.prediction.overload import refuse_overload
    from surecast.prediction.replication import predict_replication

    refuse_overload(system, algorithms)
    added = [report for model in MODELS.values() if (report := model(system)) is not None]
    if _is_composed(system, schemes, algorithms, policies):
        from surecast.prediction.composed import predict_composed

        composed = [predict_composed(system, quantiles=QUANTILES)]
        composed += [predict_replication(system)] if _has_groups(system) else []
        composed += added
        return _joined(composed, system.name, "predicted", system.seed)
    schemes, coded = _of_packets(system, schemes, policies)
    failing, dropping = _divided(system, schemes, policies)
    reports = []
    if coded is not None and failing is not None:
        reports.append(predict_coding(failing, coded or None))
        failing = failing if schemes or _fails(failing) else None
    if failing is not None:
        reports.append(predict_reliability(failing, schemes, load=system))
    if dropping is not None:
        reports.append(_apart(predict_dropping(dropping, policies, quantiles=QUANTILES), bool(reports)))
    if system.class_workload is not None:
        periods = system.class_workload.periods
        reports.append(
            predict_periods(system, periods, algorithms) if periods else predict_capacity(system, algorithms)
        )
    if _has_groups(system):
        reports.append(predict_replication(system))
    return _joined(reports + added, system.name, "predicted", system.seed)


def simulate_system(
    system: System,
    schemes: list[str] | None,
    plan: SimulationPlan,
    method: Method,
    workers: int,
    progress: Progress | None,
    algorithms: list[str] | None = None,
    policies: list[str] | None = None,
) -> QoSReport:
    """The report in virtual time, of the same parts as the prediction.

    Reliability comes from the fast walk or from running the protocol code, dropping from compiled queues, and routing
    of filter classes from running the routing code; groups of replicas run the consensus code; events as packets take
    the steps of the dissemination code. Where dropping cannot be simulated, as over several brokers, and no policy is
    asked for, a warning says so beside what remains.
    """
    from surecast.prediction.overload import refuse_overload
    from surecast.simulation.capacity import simulate_routing
    from surecast.simulation.replication import simulate_replication

    refuse_overload(system, algorithms)
    if method == "walk" and _is_composed(system, schemes, algorithms, policies):
        return _simulate_composed(system, plan, progress)
    schemes, coded = _of_packets(system, schemes, policies)
    failing, dropping = _divided(system, schemes, policies)
    reports, warnings = [], []
    if coded is not None and failing is not None:
        reports.append(_simulate_coding(failing, coded or None, plan, method, progress))
        failing = failing if schemes or _fails(failing) else None
    if failing is not None:
        reports.append(_simulate_reliability(failing, schemes, plan, method, workers, progress))
    if dropping is not None:
        try:
            reports.append(_apart(_simulate_dropping(dropping, policies, plan, workers, progress), bool(reports)))
        except AssumptionError as refusal:
            if policies:
                raise
            if not reports:
                raise AssumptionError(
                    f"{refusal}; or name schemes (--scheme) to simulate failures, with every subscriber connected"
                ) from None
            warnings.append(f"subscribers that come and go are not simulated: {refusal}")
    if system.class_workload is not None:
        reports.append(
            simulate_routing(
                system,
                algorithms,
                duration_s=plan.duration_s,
                warm_up_s=plan.warm_up_s,
                runs=plan.runs,
                seed=plan.seed,
                workers=workers,
                progress=progress,
            )
        )
    if _has_groups(system):
        reports.append(
            simulate_replication(system, runs=plan.runs, duration_s=plan.duration_s, seed=plan.seed, progress=progress)
        )
    return _joined(reports, system.name, "simulated", plan.seed, warnings)


def _is_composed(
    system: System, schemes: list[str] | None, algorithms: list[str] | None, policies: list[str] | None
) -> bool:
    """Whether several models are to be composed: who names schemes, algorithms or policies wants these alone."""
    from surecast.prediction.composed import composes

    return not (schemes or algorithms or policies) and composes(system)


def _simulate_composed(system: System, plan: SimulationPlan, progress: Progress | None) -> QoSReport:
    """All parts in one simulation, with the dropping mechanisms that the formulas find."""
    from surecast.prediction.composed import composed_mechanisms
    from surecast.simulation.composed import simulate_composed

    return simulate_composed(
        system,
        mechanisms=composed_mechanisms(system),
        runs=plan.runs,
        duration_s=plan.duration_s,
        seed=plan.seed,
        warm_up_s=plan.warm_up_s,
        quantiles=QUANTILES,
        progress=progress,
    )


def _of_packets(
    system: System, schemes: list[str] | None, policies: list[str] | None
) -> tuple[list[str] | None, list[str] | None]:
    """The schemes of fault tolerance among those named, and the schemes of packets: empty for all of these, None where
    events do not travel as packets, or only others are named."""
    from surecast.prediction import CODING_SCHEMES

    packets = [name for name in schemes or () if name in CODING_SCHEMES]
    if packets and system.delivery.coding is None:
        raise ConfigurationError(
            f"--scheme {packets[0]}: {system.name} has no delivery.coding, so events do not travel as packets; add it"
        )
    others = [name for name in schemes or () if name not in CODING_SCHEMES]
    if system.delivery.coding is None or (schemes and not packets) or (policies and not packets):
        return schemes, None
    return others or None, packets


def _fails(system: System) -> bool:
    """Whether any broker or link fails at times."""
    failures = [*(b.failures for b in system.overlay.brokers), *(k.failures for k in system.overlay.links)]
    return any(law is not None for law in failures)


def _has_groups(system: System) -> bool:
    """Whether there are replicated brokers with something to order."""
    from surecast.scenario.group import is_replicated

    return is_replicated(system) and bool(system.publishers)


def _divided(
    system: System, schemes: list[str] | None, policies: list[str] | None
) -> tuple[System | None, System | None]:
    """The system as the models of failures see it, and as those of dropping see it; None where there is nothing to see.

    Subscribers that come and go belong to dropping, the others to failures. Who names schemes alone wants failures for
    all, who names policies alone wants dropping only.
    """
    from surecast.scenario.spec.delivery import Dropping

    if not system.publishers or not system.subscribers:
        if _has_groups(system) and not policies:
            return None, None
        if policies:
            raise ConfigurationError(
                f"--policy: {system.name} has no subscribers with topics, so none that come and go"
            )
        if system.class_workload is None:
            raise AssumptionError(
                f"{system.name} has no publishers and subscribers with topics, and no filter classes: "
                "there is nothing to predict or simulate; add workload.publishers and workload.subscribers"
            )
        return None, None
    coming = [s for s in system.subscribers if s.connectivity is not None and system.publishers_of(s)]
    if policies and not coming:
        raise ConfigurationError(
            "--policy: no subscriber both disconnects and has a publisher; give workload.subscribers a connectivity "
            "such as {on: 20s, off: 20s}"
        )
    if not coming or (schemes and not policies):
        return system, None
    names = {s.name for s in coming}
    steady = tuple(s for s in system.subscribers if s.name not in names)
    if schemes and not steady:
        raise ConfigurationError(
            "--scheme and --policy: every subscriber comes and goes, so that there is none for the schemes; name "
            "schemes alone to see what reaches their home brokers, or policies alone"
        )
    if not steady or (policies and not schemes):
        return None, system
    # Nothing is dropped on purpose for who is always connected.
    delivery = system.delivery.model_copy(update={"dropping": Dropping()})
    return replace(system, subscribers=steady, delivery=delivery), system


def _apart(report: QoSReport, joined: bool) -> QoSReport:
    """A report of dropping policies; beside schemes, of which one is called none too, that policy has another name."""
    from surecast.report import ReportBuilder

    if not joined or "none" not in report.variants:
        return report
    info = report.info
    builder = ReportBuilder(info.scenario, info.source, seed=info.seed, parameters=info.parameters)
    for variant in report.variants:
        builder.add_report(report.select(variant=variant), variant="no dropping" if variant == "none" else variant)
    return builder.build()


def _joined(reports: Sequence[QoSReport], name: str, source: str, seed: int, warnings: Sequence[str] = ()) -> QoSReport:
    from surecast.report import ReportBuilder

    if len(reports) == 1 and not warnings:
        return reports[0]
    parameters = {key: value for report in reports for key, value in report.info.parameters.items()}
    builder = ReportBuilder(name, source, seed=seed, parameters=parameters, warnings=warnings)
    for report in reports:
        builder.add_report(report)
    return builder.build()


def _simulate_coding(
    system: System, schemes: list[str] | None, plan: SimulationPlan, method: Method, progress: Progress | None
) -> QoSReport:
    """Events as packets: as many as shares to one percent need, and no more than the experiment has."""
    from surecast.simulation.coding import simulate_coding

    rate_per_s = math.fsum(publisher.rate_per_s for publisher in system.publishers)
    planned = max(CODED_EVENTS_MIN, min(round(plan.runs * plan.duration_s * rate_per_s), CODED_EVENTS_MAX))
    if method == "protocol":
        events = min(planned, CODED_OBJECT_EVENTS)
        return simulate_coding(system, schemes, events=events, seed=plan.seed, how="objects", progress=progress)
    return simulate_coding(
        system,
        schemes,
        events=min(planned, CODED_EVENTS_MIN),
        half_width=0.01,
        events_max=planned,
        seed=plan.seed,
        progress=progress,
    )


def _simulate_reliability(
    system: System,
    schemes: list[str] | None,
    plan: SimulationPlan,
    method: Method,
    workers: int,
    progress: Progress | None,
) -> QoSReport:
    if method == "protocol":
        from surecast.simulation import simulate_protocol

        return simulate_protocol(
            system, schemes, runs=plan.runs, duration_s=plan.duration_s, seed=plan.seed, progress=progress
        )
    if system.delivery.replication.replicas > 1:
        from surecast.simulation.replication import simulate_group_reliability

        return simulate_group_reliability(
            system,
            schemes,
            runs=plan.runs,
            duration_s=plan.duration_s,
            seed=plan.seed,
            warm_up_s=plan.warm_up_s,
            progress=progress,
        )
    from surecast.simulation import simulate_reliability

    return simulate_reliability(
        system,
        schemes,
        runs=plan.runs,
        duration_s=plan.duration_s,
        seed=plan.seed,
        warm_up_s=plan.warm_up_s,
        workers=workers,
        progress=progress,
    )


def _simulate_dropping(
    system: System, policies: list[str] | None, plan: SimulationPlan, workers: int, progress: Progress | None
) -> QoSReport:
    """The queues of the subscribers that come and go, with the mechanisms that the formulas find.

    Where a policy cannot serve a subscriber, it is simulated for the others.
    """
    from surecast.simulation import simulate_dropping

    coming = tuple(s for s in system.subscribers if s.connectivity is not None and system.publishers_of(s))
    alone = replace(system, subscribers=coming)
    groups: dict[tuple[str, ...], dict[str, Mapping[str, Mechanism]]] = {}
    refusals: list[AssumptionError] = []
    for policy in policies or [system.delivery.dropping.policy]:
        found, refused = _mechanisms(alone, policy)
        refusals += refused
        if found:
            groups.setdefault(tuple(found), {})[policy] = found
    if not groups:
        raise refusals[0]
    reports = [
        simulate_dropping(
            replace(alone, subscribers=tuple(s for s in coming if s.name in names)),
            mechanisms=mechanisms,
            runs=plan.runs,
            duration_s=plan.duration_s,
            seed=plan.seed,
            warm_up_s=plan.warm_up_s,
            workers=workers,
            progress=progress,
            quantiles=QUANTILES,
        )
        for names, mechanisms in groups.items()
    ]
    return _joined(reports, system.name, "simulated", plan.seed, [str(refusal) for refusal in refusals])


def _mechanisms(system: System, policy: str) -> tuple[Mapping[str, Mechanism], list[AssumptionError]]:
    """The mechanisms of all subscribers, or of those that the policy can serve and the reasons why not the others."""
    from surecast.prediction import find_mechanisms

    try:
        return find_mechanisms(system, policy), []
    except AssumptionError:
        found: dict[str, Mechanism] = {}
        refused = []
        for subscriber in system.subscribers:
            try:
                found.update(find_mechanisms(replace(system, subscribers=(subscriber,)), policy))
            except AssumptionError as refusal:
                kind = SaturationError if isinstance(refusal, SaturationError) else AssumptionError
                refused.append(kind(f"{policy}: {refusal}"))
        return found, refused


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error, on a terminal, that a function of (done, total) moves."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from surecast.cli.output import errors

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task(what, total=None)

        def move(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield move


def check_out(out: Path | None) -> None:
    """Refuses a report file that cannot be written before any work is done."""
    if out is not None:
        from surecast.report.files import suffix_of

        suffix_of(out)
        check_writable(out, str(out))


def check_writable(path: Path, where: str) -> None:
    """Refuses a file that is a folder, or in whose folder no file can be made; tries it, and leaves no trace."""
    import os
    import tempfile

    folder = Path(os.path.realpath(path)).parent
    if path.is_dir():
        raise ConfigurationError(f"{where}: this is a folder; name a file")
    if not folder.is_dir():
        raise ConfigurationError(f"{where}: the folder {path.parent} does not exist; create it first")
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise ConfigurationError(
            f"{where}: no file can be made in the folder {path.parent} ({error.strerror or error}); name another"
        ) from None


def save_report(report: QoSReport, out: Path | None) -> None:
    """Saves a report where a file was named."""
    if out is not None:
        from surecast.report import save

        save(report, out)
