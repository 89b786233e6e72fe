"""A placement plan in the terminal, and as data."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from surecast.planning.placement import Miss, PlacementCase, PlacementPlan

__all__ = ["plan_data", "print_plan"]

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
