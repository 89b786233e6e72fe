"""`surecast plan`: where to place brokers, and which routing algorithm to use."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from surecast.cli import NOTHING_FITS
from surecast.cli.answers import AlgorithmNames, check_algorithms, check_writable, progress_bar
from surecast.cli.options import AsJson, Overrides, ScenarioFile, parse_overrides, seconds_of
from surecast.cli.plan_output import OPTIONS, plan_data, print_plan
from surecast.cli.spark import SparkConf, SparkMaster, spark_folder, spark_settings
from surecast.errors import ConfigurationError

if TYPE_CHECKING:
    from surecast.planning.placement import Constraints, PlacementPlan, PlacementProblem
    from surecast.scenario import Scenario, System

__all__ = ["check_file", "plan"]

Objective = Literal["worst-delay", "mean-delay", "messages", "cost", "headroom"]
COMPARED_MAX: Final = 20_000
"""Placements up to which the result of a search is compared with the optimum."""


def plan(
    file: ScenarioFile,
    objective: Annotated[Objective, typer.Option(help="What the best placement is best in.")] = "worst-delay",
    front: Annotated[
        list[str] | None,
        typer.Option(
            metavar="OBJECTIVE",
            help="An objective of the Pareto front. May be repeated; worst-delay, messages, cost, headroom.",
        ),
    ] = None,
    algorithm: AlgorithmNames = None,
    max_utilisation: Annotated[
        float | None, typer.Option(min=0.0, max=1.0, help="Largest utilisation of any broker, link or router.")
    ] = None,
    max_delay: Annotated[
        str | None, typer.Option(metavar="TIME", help="Longest notification delay on the worst path, such as 200ms.")
    ] = None,
    max_subscription_delay: Annotated[
        str | None, typer.Option(metavar="TIME", help="Longest subscription delay on the worst path.")
    ] = None,
    min_headroom: Annotated[float | None, typer.Option(min=0.0, help="Least factor by which load may grow.")] = None,
    min_reliability: Annotated[
        float | None, typer.Option(min=0.0, max=1.0, help="Share of its notifications every client gets in time.")
    ] = None,
    max_brokers: Annotated[int | None, typer.Option(min=1, help="Most brokers of a placement.")] = None,
    max_cost: Annotated[float | None, typer.Option(min=0.0, help="Largest cost of a placement.")] = None,
    broker_cost: Annotated[float, typer.Option(min=0.0, help="Cost of each broker.")] = 1.0,
    root: Annotated[
        str | None, typer.Option(help="Root of hierarchical schemes, central or first; by default the scenario's rule.")
    ] = None,
    search: Annotated[
        bool, typer.Option("--search", help="Search even if all placements could be evaluated, for the best only.")
    ] = False,
    restarts: Annotated[int, typer.Option(min=1, help="How often a search starts anew.")] = 8,
    evaluations: Annotated[int, typer.Option(min=1, help="Most placements that a search evaluates.")] = 20_000,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Save every case to a .parquet file; can be interrupted.")
    ] = None,
    resume: Annotated[bool, typer.Option(help="Go on with an interrupted plan of the same --out file.")] = True,
    page: Annotated[Path | None, typer.Option(help="Write a page with pictures and tables to an .html file.")] = None,
    save_scenario: Annotated[Path | None, typer.Option(help="Save the best placement as a scenario (.yaml).")] = None,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Processes to share the work.")] = 1,
    spark: SparkMaster = None,
    conf: SparkConf = None,
    limit: Annotated[int, typer.Option(min=0, help="How many cases of the front to list.")] = 10,
    overrides: Overrides = None,
    json: AsJson = False,
) -> None:
    """Find the best placement of brokers among the candidates of a scenario, under every routing algorithm.

    The scenario's targets are constraints; options replace them. Every placement is evaluated where that is possible;
    with too many candidates a local search finds good ones. Exits with 3 if nothing fits.
    """
    check_file(out if spark is None else None, ".parquet", "--out")
    check_file(page, ".html", "--page")
    check_file(save_scenario, ".yaml", "--save-scenario")
    from surecast.cli.output import print_json, working
    from surecast.planning.placement import Constraints, placed_scenario, placement_problem
    from surecast.scenario import load_system

    algorithms = check_algorithms(algorithm)
    scenario, system = load_system(file, parse_overrides(overrides))
    options: dict[str, float | None] = {
        "max_utilisation": max_utilisation,
        "max_notification_delay_s": seconds_of("--max-delay", max_delay, is_positive=True),
        "max_subscription_delay_s": seconds_of("--max-subscription-delay", max_subscription_delay, is_positive=True),
        "min_headroom": min_headroom,
        "min_reliability": min_reliability,
        "max_brokers": max_brokers,
        "max_cost": max_cost,
    }
    chosen: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    for name, value in chosen.items():
        _check_above_zero(value, OPTIONS[name])
    if not math.isfinite(broker_cost):
        raise ConfigurationError(f"--broker-cost {broker_cost}: give a number of 0 or more")
    limits = replace(Constraints.of_targets(system.targets), **chosen)
    problem = placement_problem(system, scenario, root=root, costs=broker_cost)
    effort = (restarts, evaluations, workers, resume)
    if spark is not None:
        if search or page is not None or workers > 1:
            raise ConfigurationError("--spark: evaluates every case, without --search, --page and --workers")
        result, optimum = _find_on_spark(
            spark, problem, system, scenario, objective, limits, algorithms, front, resume, out, conf
        )
    else:
        result, optimum = _find(problem, system, scenario, objective, limits, algorithms, front, search, effort, out)
        if out is not None:
            result.save(out)
    if save_scenario is not None and result.best is not None:
        from surecast.report.files import write_whole

        text = placed_scenario(scenario, system, result.best.brokers).to_yaml()
        write_whole(save_scenario, lambda opened: opened.write(text.encode()))
    if page is not None:
        from surecast.studio.plan_page import write_plan_page

        with working(f"drawing {page}"):
            write_plan_page(result, scenario, system, page)
    if json:
        print_json(plan_data(result, optimum))
    else:
        print_plan(result, optimum, limit, out, page, save_scenario if result.best is not None else None)
    if result.best is None:
        raise typer.Exit(NOTHING_FITS)


def _find(
    problem: PlacementProblem,
    system: System,
    scenario: Scenario,
    objective: str,
    limits: Constraints,
    algorithms: list[str] | None,
    front: Sequence[str] | None,
    search: bool,
    effort: tuple[int, int, int, bool],
    out: Path | None,
) -> tuple[PlacementPlan, PlacementPlan | None]:
    """Returns the plan over all placements if they are few enough, otherwise of a search; after a search also over all
    if that is quick."""
    from surecast.planning.placement import (
        CASES_MAX,
        FRONT,
        PlacementReliability,
        count_placements,
        plan_placement,
        search_placement,
    )
    from surecast.prediction.capacity import ALGORITHMS

    restarts, evaluations, workers, resume = effort
    reliability = None
    if limits.min_reliability is not None:
        reliability = PlacementReliability(problem, system, scenario)
    common: dict[str, Any] = {
        "objective": objective,
        "constraints": limits,
        "algorithms": algorithms,
        "reliability": reliability,
    }
    count = count_placements(problem, limits)
    if not count:
        raise ConfigurationError(f"--max-cost {limits.max_cost:g}: the cheapest broker costs {problem.costs.min():g}")
    fronts = front or FRONT
    if search or count * len(algorithms or ALGORITHMS) > CASES_MAX:
        with _interruptible(None) as progress:
            result = search_placement(
                problem,
                restarts=restarts,
                evaluations_max=evaluations,
                exact_max=0,
                seed=system.seed,
                progress=progress,
                front=fronts,
                **common,
            )
            if count > COMPARED_MAX or problem.plain is not None:
                return result, None
            return result, plan_placement(problem, front=(objective,), progress=progress, **common)
    folder = None if out is None else out.with_name(f"{out.name}.work")
    with _interruptible(folder) as progress:
        result = plan_placement(
            problem, workers=workers, checkpoint=folder, resume=resume, progress=progress, front=fronts, **common
        )
    return result, None


def _find_on_spark(
    spark: str,
    problem: PlacementProblem,
    system: System,
    scenario: Scenario,
    objective: str,
    limits: Constraints,
    algorithms: list[str] | None,
    front: Sequence[str] | None,
    resume: bool,
    out: Path | None,
    conf: list[str] | None,
) -> tuple[PlacementPlan, None]:
    """Returns the plan over every case, computed on a cluster; all cases are in the folder `out`."""
    from surecast.pipeline.sweep import sweep_session
    from surecast.pipeline.sweep_plan import plan_on_spark
    from surecast.planning.placement import FRONT, PlacementReliability

    folder = spark_folder(out)
    reliability = PlacementReliability(problem, system, scenario) if limits.min_reliability is not None else None
    with (
        sweep_session(spark, folder.with_name(f"{folder.name}.spark"), spark_settings(spark, conf)) as session,
        progress_bar("evaluating placements") as progress,
    ):
        result = plan_on_spark(
            session,
            problem,
            str(folder),
            objective=objective,
            constraints=limits,
            algorithms=algorithms,
            front=front or FRONT,
            reliability=reliability,
            resume=resume,
            progress=progress,
        )
    return result, None


@contextmanager
def _interruptible(folder: Path | None) -> Iterator[Callable[[int, int], None]]:
    """Yields a progress bar; after an interruption says what is kept, and how to go on."""
    from surecast.cli.output import errors
    from surecast.planning.placement import kept_placements

    total = 0
    try:
        with progress_bar("evaluating placements") as move:

            def progress(done: int, of: int) -> None:
                nonlocal total
                # The first total is of placements; later ones may be of those that are left to be judged.
                total = total or of
                move(done, of)

            yield progress
    except KeyboardInterrupt:
        if folder is None:
            message = "interrupted; nothing is kept"
        else:
            placements = kept_placements(folder)
            message = f"interrupted; {placements:,} of {total:,} placements are kept in {folder}; "
            message += "the same command goes on from there"
        errors.print(message, markup=False, soft_wrap=True)
        raise typer.Exit(130) from None


def _check_above_zero(value: float, option: str) -> None:
    if not (math.isfinite(value) and value > 0.0):
        raise ConfigurationError(f"{option} {value:g}: give a number above 0, or leave it out")


def check_file(path: Path | None, suffix: str, option: str) -> None:
    """Refuses a file that cannot be written before any work is done."""
    if path is None:
        return
    if path.suffix.lower() != suffix:
        raise ConfigurationError(f"{option} {path}: end its name in {suffix}")
    check_writable(path, f"{option} {path}")
