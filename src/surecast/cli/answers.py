"""The three answers to one scenario, as commands and comparisons need them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from surecast.errors import AssumptionError, ConfigurationError

if TYPE_CHECKING:
    from surecast.report import QoSReport
    from surecast.scenario import System

__all__ = [
    "AlgorithmNames",
    "Method",
    "SchemeNames",
    "SimulationPlan",
    "check_algorithms",
    "check_schemes",
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
        help="A fault-tolerance scheme, such as buffering or bypass. May be repeated; all by default.",
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


class SimulationPlan:
    """How long and how often to simulate: what the command line says, else what the scenario says."""

    def __init__(self, system: System, runs: int | None, duration: str | None, seed: int | None):
        from surecast.scenario.units import parse_duration

        try:
            self.duration_s = system.experiment.duration if duration is None else parse_duration(duration)
        except ValueError as error:
            raise ConfigurationError(f"--duration: {error}") from None
        if not 0 < self.duration_s < math.inf:
            raise ConfigurationError("--duration must be above 0 and finite, such as 14d")
        self.runs = system.experiment.runs if runs is None else runs
        if self.runs < 2:
            raise ConfigurationError("one run gives no confidence interval; use --runs 2 or more")
        self.seed = system.seed if seed is None else seed
        self.warm_up_s = system.experiment.warm_up


def check_schemes(names: list[str] | None) -> list[str] | None:
    from surecast.scenario.spec.delivery import SCHEMES

    for name in names or []:
        if name not in SCHEMES:
            raise ConfigurationError(f"there is no scheme {name!r}; there are: {', '.join(SCHEMES)}")
    return names or None


def check_algorithms(names: list[str] | None) -> list[str] | None:
    from surecast.predict import ALGORITHMS

    for name in names or []:
        if name not in ALGORITHMS:
            raise ConfigurationError(f"there is no algorithm {name!r}; there are: {', '.join(ALGORITHMS)}")
    return names or None


def predict_system(system: System, schemes: list[str] | None, algorithms: list[str] | None = None) -> QoSReport:
    """The report by formula: reliability for topics, capacity for filter classes, both where there are both."""
    from surecast.predict import predict_capacity, predict_periods, predict_reliability
    from surecast.report import ReportBuilder

    topics = bool(system.publishers and system.subscribers)
    if not topics and system.class_workload is None:
        raise AssumptionError(
            f"{system.name} has no publishers and subscribers with topics, and no filter classes: "
            "there is nothing to predict; add workload.publishers and workload.subscribers"
        )
    if system.class_workload is None:
        return predict_reliability(system, schemes)
    periods = system.class_workload.periods
    capacity = predict_periods(system, periods, algorithms) if periods else predict_capacity(system, algorithms)
    if not topics:
        return capacity
    builder = ReportBuilder(system.name, "predicted", seed=system.seed)
    builder.add_report(predict_reliability(system, schemes))
    builder.add_report(capacity)
    return builder.build()


def simulate_system(
    system: System,
    schemes: list[str] | None,
    plan: SimulationPlan,
    method: Method,
    workers: int,
    progress: Callable[[int, int], None] | None,
) -> QoSReport:
    """The report in virtual time: by the fast walk, or by running the protocol code."""
    if not system.publishers or not system.subscribers:
        raise AssumptionError(
            f"{system.name} has no publishers and subscribers with topics, which the simulation needs; "
            "content-based routing with filter classes is predicted, and not simulated yet"
        )
    if method == "protocol":
        from surecast.simulate import simulate_protocol

        return simulate_protocol(
            system, schemes, runs=plan.runs, duration_s=plan.duration_s, seed=plan.seed, progress=progress
        )
    from surecast.simulate import simulate_reliability

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
        if not out.parent.is_dir():
            raise ConfigurationError(f"{out}: the folder {out.parent} does not exist; create it first")


def save_report(report: QoSReport, out: Path | None) -> None:
    """Saves a report where a file was named."""
    if out is not None:
        from surecast.report import save

        save(report, out)
