"""`surecast plan`: where to place brokers, and which routing algorithm to use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from surecast.cli import NOTHING_FITS
from surecast.cli.options import (
    AlgorithmNames,
    AsJson,
    ScenarioInput,
    SparkOptions,
    spark_folder,
    spark_settings,
    takes_groups,
)
from surecast.cli.plan_output import plan_data, print_plan
from surecast.errors import ConfigurationError

if TYPE_CHECKING:
    from surecast.planning.placement import PlacementPlan
    from surecast.scenario import Scenario

__all__ = ["check_file", "plan"]

Objective = Literal["worst-delay", "mean-delay", "messages", "cost", "headroom"]


@takes_groups
def plan(
    source: ScenarioInput,
    on_spark: SparkOptions,
    objective: Annotated[Objective, typer.Option(help="What to optimise.")] = "worst-delay",
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
        float | None,
        typer.Option(min=0.0, max=1.0, help="Least share of its notifications that every client gets in time."),
    ] = None,
    max_brokers: Annotated[int | None, typer.Option(min=1, help="Most brokers of a placement.")] = None,
    max_cost: Annotated[float | None, typer.Option(min=0.0, help="Largest cost of a placement.")] = None,
    broker_cost: Annotated[float, typer.Option(min=0.0, help="Cost of each broker.")] = 1.0,
    root: Annotated[
        str | None, typer.Option(help="Root of hierarchical schemes, central or first; by default the scenario's rule.")
    ] = None,
    search: Annotated[
        bool,
        typer.Option("--search", help="Search for the best placement only, even if all placements could be evaluated."),
    ] = False,
    restarts: Annotated[int, typer.Option(min=1, help="Number of random starts of a search.")] = 8,
    evaluations: Annotated[
        int, typer.Option(min=1, help="Largest number of placements that a search evaluates.")
    ] = 20_000,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Save every case to a .parquet file; an interrupted command resumes."),
    ] = None,
    resume: Annotated[bool, typer.Option(help="Resume an interrupted plan of the same --out file.")] = True,
    page: Annotated[Path | None, typer.Option(help="Write a page with pictures and tables to an .html file.")] = None,
    save_scenario: Annotated[Path | None, typer.Option(help="Save the best placement as a scenario (.yaml).")] = None,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Processes to share the work.")] = 1,
    limit: Annotated[int, typer.Option(min=0, help="How many cases of the front to list.")] = 10,
    json: AsJson = False,
) -> None:
    """Find the best placement of brokers among the candidates of a scenario, under every routing algorithm.

    The scenario's targets are constraints; options replace them. Every placement is evaluated where that is possible;
    with too many candidates a local search finds good ones. Exits with 3 if nothing fits.
    """
    check_file(out if on_spark.spark is None else None, ".parquet", "--out")
    check_file(page, ".html", "--page")
    check_file(save_scenario, ".yaml", "--save-scenario")
    import surecast
    from surecast.cli.output import print_json, working
    from surecast.planning.placement import placed_scenario

    scenario = source.load()
    limits: dict[str, Any] = {
        "max_utilisation": max_utilisation,
        "max_delay": max_delay,
        "max_subscription_delay": max_subscription_delay,
        "min_headroom": min_headroom,
        "min_reliability": min_reliability,
        "max_brokers": max_brokers,
        "max_cost": max_cost,
    }
    choices: dict[str, Any] = {
        "objective": objective,
        "front": front,
        "algorithms": algorithm or None,
        "resume": resume,
    }
    if on_spark.spark is not None:
        if search or page is not None or workers > 1:
            raise ConfigurationError("--spark: evaluates every case, without --search, --page and --workers")
        result = _plan_on_spark(scenario, limits, choices, broker_cost, root, (on_spark.spark, on_spark.conf), out)
    else:
        folder = None if out is None else out.with_name(f"{out.name}.work")
        with _interruptible(folder) as progress:
            result = surecast.plan(
                scenario,
                broker_cost=broker_cost,
                root=root,
                search=search,
                restarts=restarts,
                evaluations=evaluations,
                workers=workers,
                checkpoint=folder,
                progress=progress,
                **limits,
                **choices,
            )
        if out is not None:
            result.save(out)
    if save_scenario is not None and result.best is not None:
        from surecast.report.report_files import write_whole

        text = placed_scenario(scenario, scenario.system, result.best.brokers).to_yaml()
        write_whole(save_scenario, lambda opened: opened.write(text.encode()))
    if page is not None:
        from surecast.scenario import build
        from surecast.studio.plan_page import write_plan_page

        with working(f"drawing {page}"):
            best, system = result.best, scenario.system
            placed = None if best is None else build(placed_scenario(scenario, system, best.brokers))
            write_plan_page(result, system, placed, page)
    if json:
        print_json(plan_data(result))
    else:
        print_plan(result, limit, out, page, save_scenario if result.best is not None else None)
    if result.best is None:
        raise typer.Exit(NOTHING_FITS)


def _plan_on_spark(
    scenario: Scenario,
    limits: dict[str, Any],
    choices: dict[str, Any],
    broker_cost: float,
    root: str | None,
    spark: tuple[str, list[str] | None],
    out: Path | None,
) -> PlacementPlan:
    """Evaluates every case on the cores of a cluster; all of them are in the folder `out`."""
    from surecast.cli.output import progress_bar
    from surecast.pipeline.spark_sweep import sweep_session
    from surecast.pipeline.sweep_plan import plan_on_spark
    from surecast.planning.placement import FRONT, PlacementReliability, constraints_of, placement_problem

    folder = spark_folder(out)
    constraints = constraints_of(scenario, **limits)
    problem = placement_problem(scenario.system, scenario, root=root, costs=broker_cost)
    reliability = None
    if constraints.min_reliability is not None:
        reliability = PlacementReliability(problem, scenario.system, scenario)
    master, conf = spark
    with (
        sweep_session(master, folder.with_name(f"{folder.name}.spark"), spark_settings(master, conf)) as session,
        progress_bar("evaluating placements") as progress,
    ):
        return plan_on_spark(
            session,
            problem,
            str(folder),
            **choices | {"front": choices["front"] or FRONT},
            constraints=constraints,
            reliability=reliability,
            progress=progress,
        )


@contextmanager
def _interruptible(folder: Path | None) -> Iterator[Callable[[int, int], None]]:
    """Yields a progress bar; after an interruption says what is kept, and how to go on."""
    from surecast.cli.output import errors, progress_bar
    from surecast.planning.placement import kept_placements

    total = 0
    try:
        with progress_bar("evaluating placements") as move:

            def progress(done: int, of: int) -> None:
                nonlocal total
                # The first total counts all placements; later ones may count only those still to be judged.
                total = total or of
                move(done, of)

            yield progress
    except KeyboardInterrupt:
        if folder is None or not folder.exists():
            message = "interrupted; nothing is kept"
        else:
            placements = kept_placements(folder)
            message = f"interrupted; {placements:,} of {total:,} placements are kept in {folder}; "
            message += "the same command goes on from there"
        errors.print(message, markup=False, soft_wrap=True)
        raise typer.Exit(130) from None


def check_file(path: Path | None, suffix: str, option: str) -> None:
    """Refuses a file that cannot be written before any work is done."""
    from surecast.cli.output import check_writable

    if path is None:
        return
    if path.suffix.lower() != suffix:
        raise ConfigurationError(f"{option} {path}: end its name in {suffix}")
    check_writable(path, f"{option} {path}")
