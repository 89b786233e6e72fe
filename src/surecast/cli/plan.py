"""`surecast plan`: where to place brokers, and which routing algorithm to use."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

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
from surecast.errors import ConfigurationError

if TYPE_CHECKING:
    from surecast.planning.placement import Miss, PlacementCase, PlacementPlan
    from surecast.scenario import Scenario

__all__ = ["check_file", "plan", "plan_data", "print_plan"]

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


OPTIONS: Final = {
    "max_utilisation": "--max-utilisation",
    "max_notification_delay_s": "--max-delay",
    "max_subscription_delay_s": "--max-subscription-delay",
    "min_headroom": "--min-headroom",
    "min_reliability": "--min-reliability",
    "max_brokers": "--max-brokers",
    "max_cost": "--max-cost",
}
"""The option that sets each limit."""


def print_plan(plan: PlacementPlan, limit: int, *files: Path | None) -> None:
    """Prints the best placement of each algorithm, `limit` cases of the front, and the saved files."""
    from surecast.cli.output import console, print_saved, print_table

    lines = _why_nothing_fits(plan) if plan.best is None else [_best_line(plan.best)]
    lines += [_first_line(plan)] if plan.optimum is None else [_first_line(plan), _against_optimum(plan, plan.optimum)]
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)
    extra = ("share",) if plan.constraints.min_reliability is not None else ()
    headers = ("worst ms", "mean ms", "msg/s", "load", "room", *extra)
    rows, styles = [], []
    for i, (algorithm, case) in enumerate(plan.best_by_algorithm.items()):
        if case is None:
            why = "overloaded" if plan.evaluation.overloaded[:, i].all() else "none keeps all limits"
            rows.append([algorithm, why, *[""] * len(headers)])
        else:
            rows.append(_cells(case, bool(extra)))
        styles.append("bold" if case is not None and case == plan.best else "")
    print_table(("algorithm", "brokers"), headers, rows, title=f"Best by {plan.objective}", styles=styles)
    if plan.front and limit > 0:
        title = f"Pareto front over {', '.join(plan.front_objectives)}"
        rows = [_cells(case, bool(extra)) for case in plan.front[:limit]]
        print_table(("algorithm", "brokers"), headers, rows, title=title)
        if len(plan.front) > limit:
            console.print(f"... and {len(plan.front) - limit} more; --limit shows more, --json shows all")
    words = "worst, mean: notification delay; load: largest utilisation; room: factor by which the load may grow"
    console.print(words + ("; share: reliability of the worst client" if extra else ""))
    print_saved(*files)


def _best_line(best: PlacementCase) -> str:
    return f"Best: {best.algorithm} with brokers at {', '.join(best.brokers)}"


def _first_line(plan: PlacementPlan) -> str:
    """Returns the number of evaluated placements, and how the search ended if it was one."""
    cases = plan.evaluations * len(plan.evaluation.algorithms)
    limited = any(value is not None for value in asdict(plan.constraints).values())
    feasible = f"{plan.feasible_count} keep all limits" if limited else f"{plan.feasible_count} are not overloaded"
    counted = f"{plan.evaluations} placements, {cases} cases, of which {feasible}."
    if plan.search is None:
        return f"Every placement was evaluated: {counted}"
    end = plan.search
    if end.converged:
        how = f"all {end.restarts} restarts converged"
    else:
        how = (
            f"the limit of {end.evaluations_max} placements (--evaluations) ended it after {end.restarts} of "
            f"{end.restarts_asked} restarts"
        )
    return f"A local search evaluated some placements; {how}: {counted}"


def _cells(case: PlacementCase, with_reliability: bool) -> list[str]:
    from surecast.scenario.summary import short_names

    cells = [
        case.algorithm,
        short_names(case.brokers),
        _milliseconds(case.notification_delay_worst_s),
        _milliseconds(case.notification_delay_mean_s),
        f"{case.message_rate_per_s:.4g}",
        f"{case.utilisation:.3f}",
        "" if case.headroom_factor is None else f"{case.headroom_factor:.3f}",
    ]
    if with_reliability:
        cells.append("" if case.reliability is None else f"{case.reliability:.4f}")
    return cells


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{1000 * seconds:.4g}"


def _why_nothing_fits(plan: PlacementPlan) -> list[str]:
    """Returns the limits that fail, by how much at least, and what would help."""
    from surecast.planning.placement import misses
    from surecast.scenario.summary import short_names

    missed = misses(plan)
    if not missed:
        return ["No case has this objective: nobody publishes or subscribes."]
    lines = []
    if not missed[0].alone:
        case = missed[0].case
        where = f"{case.algorithm} with brokers at {short_names(case.brokers)}"
        lines.append(f"No placement keeps all limits together; the closest is {where}:")
    for miss in missed:
        case = miss.case
        if miss.limit == "overload":
            lines.append(
                f"Every placement is overloaded; the least utilisation is {miss.found:.4g}, of {case.utilisation_at} "
                f"under {case.algorithm} with brokers at {short_names(case.brokers)}."
            )
        elif miss.alone:
            lines.append(
                f"No placement keeps {_limit(miss)}; the closest has {_value(miss, miss.found)}: {case.algorithm} with "
                f"brokers at {short_names(case.brokers)}."
            )
        else:
            lines.append(f"  it has {_value(miss, miss.found)} against {_limit(miss)}")
    return [*lines, "Relax a limit, or add candidates or capacity."]


def _limit(miss: Miss) -> str:
    return f"{OPTIONS[miss.limit]} {_value(miss, miss.asked)}"


def _value(miss: Miss, value: float) -> str:
    return f"{1000 * value:.4g}ms" if miss.limit.endswith("_s") else f"{value:.4g}"


def _gap(plan: PlacementPlan, optimum: PlacementPlan) -> float | None:
    """Returns the share of the optimum by which the plan's objective is worse; None if either has none."""
    from surecast.planning.placement import OBJECTIVES

    name, sign = OBJECTIVES[plan.objective]
    if plan.best is None or optimum.best is None:
        return None
    here, there = getattr(plan.best, name), getattr(optimum.best, name)
    if here == there:
        return 0.0
    gap = sign * (here - there) / abs(there) if there and math.isfinite(there) else math.nan
    # Figures computed in another order differ in their last digits.
    return None if math.isnan(gap) else gap if gap > 1e-9 else 0.0


def _against_optimum(plan: PlacementPlan, optimum: PlacementPlan) -> str:
    gap = _gap(plan, optimum)
    every = f"all {optimum.evaluations} placements"
    if gap is None:
        if (plan.best is None) == (optimum.best is None):
            return f"Checked against {every}: none of them fits either."
        return f"Checked against {every}: some fit, and the search found none; raise --restarts or --evaluations."
    if gap == 0.0:
        return f"Checked against {every}: this is the optimum."
    return f"Checked against {every}: {100 * gap:.2g} % worse than the optimum; without --search it is found."


def plan_data(plan: PlacementPlan) -> dict[str, Any]:
    """Returns the plan as plain values for JSON; null where a figure is unknown or infinite."""
    from surecast.planning.placement import misses

    def case(row: PlacementCase | None) -> dict[str, Any] | None:
        return None if row is None else asdict(row)

    end = plan.search
    return {
        "scenario": plan.problem.name,
        "objective": plan.objective,
        "constraints": {k: v for k, v in asdict(plan.constraints).items() if v is not None},
        "exact": plan.exact,
        "search": None
        if end is None
        else {
            "ended_by": "convergence" if end.converged else "evaluations",
            **asdict(end),
            "gap_to_optimum": None if plan.optimum is None else _gap(plan, plan.optimum),
        },
        "placements": plan.evaluations,
        "feasible": plan.feasible_count,
        "misses": [{**asdict(miss), "case": case(miss.case)} for miss in misses(plan)],
        "best": case(plan.best),
        "best_by_algorithm": {name: case(row) for name, row in plan.best_by_algorithm.items()},
        "front_objectives": list(plan.front_objectives),
        "front": [case(row) for row in plan.front],
    }
