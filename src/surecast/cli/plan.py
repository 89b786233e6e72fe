"""`surecast plan`: where to place brokers, and which routing algorithm to use."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from surecast.cli.answers import AlgorithmNames, check_algorithms, progress_bar
from surecast.cli.options import AsJson, Overrides, ScenarioFile, parse_overrides
from surecast.errors import ConfigurationError

if TYPE_CHECKING:
    from surecast.plan.placement import Constraints, PlacementCase, PlacementPlan
    from surecast.scenario import Scenario, System

__all__ = ["check_file", "plan"]

Objective = Literal["worst-delay", "mean-delay", "messages", "cost", "headroom"]


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
    limit: Annotated[int, typer.Option(min=0, help="How many cases of the front to list.")] = 10,
    overrides: Overrides = None,
    json: AsJson = False,
) -> None:
    """Find the best placement of brokers among the candidates of a scenario, under every routing algorithm.

    The scenario's targets are constraints; options replace them. Every placement is evaluated where that is possible;
    with too many candidates a local search finds good ones.
    """
    check_file(out, ".parquet", "--out")
    check_file(page, ".html", "--page")
    check_file(save_scenario, ".yaml", "--save-scenario")
    from surecast.cli.output import print_json, working
    from surecast.plan.placement import Constraints, placed_scenario, placement_problem
    from surecast.scenario import load_system

    algorithms = check_algorithms(algorithm)
    scenario, system = load_system(file, parse_overrides(overrides))
    given: dict[str, Any] = {
        "max_utilisation": max_utilisation,
        "max_notification_delay_s": _seconds(max_delay, "--max-delay"),
        "max_subscription_delay_s": _seconds(max_subscription_delay, "--max-subscription-delay"),
        "min_headroom": min_headroom,
        "min_reliability": min_reliability,
        "max_brokers": max_brokers,
        "max_cost": max_cost,
    }
    limits = replace(
        Constraints.of_targets(system.targets), **{name: value for name, value in given.items() if value is not None}
    )
    problem = placement_problem(system, scenario, root=root, costs=broker_cost)
    effort = (restarts, evaluations, workers, resume)
    found = _find(problem, system, scenario, objective, limits, algorithms, front, search, effort, out)
    if out is not None:
        found.save(out)
    if save_scenario is not None and found.best is not None:
        from surecast.report.files import write_whole

        text = placed_scenario(scenario, system, found.best.brokers).to_yaml()
        write_whole(save_scenario, lambda opened: opened.write(text.encode()))
    if page is not None:
        from surecast.studio.plan_page import write_plan_page

        with working(f"drawing {page}"):
            write_plan_page(found, scenario, system, page)
    if json:
        print_json(_as_data(found))
        return
    _print(found, limit, out, page, save_scenario if found.best is not None else None)


def _find(
    problem: Any,
    system: System,
    scenario: Scenario,
    objective: str,
    limits: Constraints,
    algorithms: list[str] | None,
    front: Sequence[str] | None,
    search: bool,
    effort: tuple[int, int, int, bool],
    out: Path | None,
) -> PlacementPlan:
    """All placements where they are few enough, otherwise a search."""
    from surecast.plan.placement import (
        CASES_MAX,
        FRONT,
        PlacementReliability,
        count_placements,
        plan_placement,
        search_placement,
    )
    from surecast.predict.capacity import ALGORITHMS

    restarts, evaluations, workers, resume = effort
    reliability = None
    if limits.min_reliability is not None:
        reliability = PlacementReliability(problem, system, scenario)
    common: dict[str, Any] = {
        "objective": objective,
        "constraints": limits,
        "algorithms": algorithms,
        "front": front or FRONT,
        "reliability": reliability,
    }
    cases = count_placements(problem, limits) * len(algorithms or ALGORITHMS)
    with progress_bar("evaluating placements") as progress:
        if search or cases > CASES_MAX:
            return search_placement(
                problem,
                restarts=restarts,
                evaluations_max=evaluations,
                exact_max=0,
                seed=system.seed,
                progress=progress,
                **common,
            )
        folder = None if out is None else out.with_name(f"{out.name}.work")
        return plan_placement(problem, workers=workers, checkpoint=folder, resume=resume, progress=progress, **common)


def _print(found: PlacementPlan, limit: int, *files: Path | None) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from surecast.cli.output import console

    cases = found.evaluations * len(found.evaluation.algorithms)
    how = "Every placement was evaluated" if found.exact else "A local search evaluated some placements"
    console.print(
        f"{how}: {found.evaluations} placements, {cases} cases, of which {found.feasible_count} keep all limits."
    )
    extra = ("share",) if found.constraints.min_reliability is not None else ()

    def new_table(title: str) -> Table:
        table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False)
        table.add_column("algorithm", no_wrap=True)
        for name in ("worst ms", "mean ms", "msg/s", "load", "room", *extra):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("brokers", overflow="fold")
        return table

    table = new_table(f"Best by {found.objective}")
    for algorithm, case in found.best_by_algorithm.items():
        if case is None:
            table.add_row(algorithm, *[""] * (5 + len(extra)), "none keeps all limits")
        else:
            table.add_row(*_cells(case, bool(extra)), style="bold" if case == found.best else None)
    console.print(table)
    if found.front:
        table = new_table(f"Pareto front over {', '.join(found.front_objectives)}")
        for case in found.front[:limit]:
            table.add_row(*_cells(case, bool(extra)))
        console.print(table)
        if len(found.front) > limit:
            console.print(f"... and {len(found.front) - limit} more; --limit shows more, --json shows all")
    words = "worst, mean: notification delay; load: largest utilisation; room: factor on the load at saturation"
    console.print(words + ("; share: reliability of the worst client" if extra else ""))
    if found.best is None:
        console.print("No placement keeps all limits; relax one, or add candidates or capacity.")
    else:
        console.print(f"Best: {found.best.algorithm} with brokers at {', '.join(found.best.brokers)}", soft_wrap=True)
    for file in files:
        if file is not None:
            console.print(f"saved {file}", markup=False, soft_wrap=True)


def _cells(case: PlacementCase, with_reliability: bool) -> list[str]:
    from surecast.plan.placement import short_names

    cells = [
        case.algorithm,
        _milliseconds(case.notification_delay_worst_s),
        _milliseconds(case.notification_delay_mean_s),
        f"{case.message_rate_per_s:.4g}",
        f"{case.utilisation:.3f}",
        "" if case.headroom_factor is None else f"{case.headroom_factor:.3f}",
    ]
    if with_reliability:
        cells.append("" if case.reliability is None else f"{case.reliability:.4f}")
    return [*cells, short_names(case.brokers)]


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{1000 * seconds:.4g}"


def _as_data(found: PlacementPlan) -> dict[str, Any]:
    """The plan as plain values for JSON; null where a figure is not known or has no end."""

    def case(row: PlacementCase | None) -> dict[str, Any] | None:
        if row is None:
            return None
        return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in asdict(row).items()}

    return {
        "scenario": found.problem.name,
        "objective": found.objective,
        "constraints": {k: v for k, v in asdict(found.constraints).items() if v is not None},
        "exact": found.exact,
        "placements": found.evaluations,
        "feasible": found.feasible_count,
        "best": case(found.best),
        "best_by_algorithm": {name: case(row) for name, row in found.best_by_algorithm.items()},
        "front_objectives": list(found.front_objectives),
        "front": [case(row) for row in found.front],
    }


def _seconds(text: str | None, option: str) -> float | None:
    from surecast.scenario.units import parse_duration

    if text is None:
        return None
    try:
        return parse_duration(text)
    except ValueError as error:
        raise ConfigurationError(f"{option}: {error}") from None


def check_file(path: Path | None, suffix: str, option: str) -> None:
    """Refuses a file that cannot be written before any work is done."""
    if path is None:
        return
    if path.suffix.lower() != suffix:
        raise ConfigurationError(f"{option} {path}: end its name in {suffix}")
    if not path.parent.is_dir():
        raise ConfigurationError(f"{option} {path}: the folder {path.parent} does not exist; create it first")
