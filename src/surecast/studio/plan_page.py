"""A placement plan as a page: the Pareto front, the best placement drawn, bars by algorithm, and the tables."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from surecast.studio import wording
from surecast.studio.bars import bar_rows
from surecast.studio.chart import Axis, Chart, Hover, Layer, Points
from surecast.studio.page import Cell, Downloads, Heading, Page, Paragraph, Section, Table, write_page
from surecast.studio.scene_chart import placement_chart
from surecast.studio.style import colours_of

if TYPE_CHECKING:
    from surecast.planning.placement import PlacementCase, PlacementPlan
    from surecast.scenario.system import System

__all__ = ["write_plan_page"]

_POINTS_MAX: Final = 4000
_LOG_FROM: Final = 10.0
_AXES: Final = {
    "worst-delay": ("notification_delay_worst_s", "notification delay on the worst path (ms)", 1000.0),
    "mean-delay": ("notification_delay_mean_s", "mean notification delay (ms)", 1000.0),
    "messages": ("message_rate_per_s", "messages (1/s)", 1.0),
    "cost": ("cost", "cost", 1.0),
    "headroom": ("headroom_factor", "headroom (factor on the load)", 1.0),
}


def write_plan_page(plan: PlacementPlan, system: System, placed: System | None, path: Path | str) -> Path:
    """Writes the page of a plan to an ``.html`` file and returns its path.

    `system` has all candidates, and `placed` the brokers of the best placement; None where there is none.
    """
    cases = plan.evaluations * len(plan.evaluation.algorithms)
    how = "every placement" if plan.exact else "a local search over placements"
    if plan.search is not None:
        tries = f"{plan.search.restarts} of {plan.search.restarts_asked} restarts"
        ended = "converged" if plan.search.converged else "carried through, then the limit on evaluations ended it"
        how += f" ({tries} {ended})"
    sections: list[Section] = [Paragraph(_answer(plan))]
    if plan.best is not None and placed is not None:
        sections += [
            Heading("The best placement"),
            _drawing(plan.best, placed, system),
            Heading("By algorithm"),
            _bars(plan),
        ]
    best = _table([case for case in plan.best_by_algorithm.values() if case is not None], "Best of each algorithm")
    sections += [best, Downloads(best, f"{plan.problem.name}-best")]
    if plan.front:
        front = _table(plan.front, f"Cases that no other beats in {', '.join(plan.front_objectives)}")
        sections += [Heading("Pareto front"), _front(plan), front, Downloads(front, f"{plan.problem.name}-front")]
    subtitle = f"{how}: {wording.count(plan.evaluations, 'placement')}, {wording.count(cases, 'case')}"
    return write_page(Page(f"{plan.problem.name}: placement of brokers", sections, subtitle=subtitle), path)


def _answer(plan: PlacementPlan) -> str:
    limited = any(value is not None for value in asdict(plan.constraints).values())
    verdict = (
        f"{wording.count(plan.feasible_count, 'case')} of all {'keep every limit' if limited else 'carry the load'}."
    )
    if plan.best is None:
        return f"{verdict} Relax a limit, or add candidates or capacity."
    return f"Best by {plan.objective}: {plan.best.algorithm} with brokers at {', '.join(plan.best.brokers)}. {verdict}"


def _figures(case: PlacementCase) -> list[tuple[str, Cell]]:
    def scaled(value: float | None, factor: float = 1.0) -> float | None:
        return None if value is None or not np.isfinite(value) else factor * value

    return [
        ("algorithm", case.algorithm),
        ("brokers", ", ".join(case.brokers)),
        ("cost", case.cost),
        ("worst delay in ms", scaled(case.notification_delay_worst_s, 1000.0)),
        ("mean delay in ms", scaled(case.notification_delay_mean_s, 1000.0)),
        ("subscription delay in ms", scaled(case.subscription_delay_worst_s, 1000.0)),
        ("messages per s", case.message_rate_per_s),
        ("utilisation", case.utilisation),
        ("headroom", scaled(case.headroom_factor)),
        ("first to saturate", case.headroom_at),
        ("reliability", case.reliability),
    ]


def _table(cases: tuple[PlacementCase, ...] | list[PlacementCase], caption: str) -> Table:
    rows = [[value for _, value in _figures(case)] for case in cases]
    header = ["algorithm", "brokers"] if not cases else [name for name, _ in _figures(cases[0])]
    return Table(header, rows, caption)


def _hover(case: PlacementCase) -> Hover:
    figures = [f"{name}: {value:.6g}" for name, value in _figures(case)[2:] if isinstance(value, float)]
    return case.algorithm, ", ".join(case.brokers), *figures


def _front(plan: PlacementPlan) -> Chart:
    """Returns the chart of all feasible cases as faint points, and the front by algorithm, over the first two
    objectives."""
    names = (*plan.front_objectives, plan.objective, "messages", "worst-delay")
    down, across = list(dict.fromkeys(names))[:2]
    (x_name, x_title, x_factor), (y_name, y_title, y_factor) = _AXES[across], _AXES[down]
    shape = plan.feasible.shape

    def flat(name: str, factor: float) -> Any:
        values = np.asarray(getattr(plan.evaluation, name), dtype=np.float64)
        wide = np.broadcast_to(values[:, None] if values.ndim == 1 else values, shape)
        return factor * wide[plan.feasible]

    def of(case: PlacementCase, name: str, factor: float) -> float:
        return factor * (getattr(case, name) or 0.0)

    x, y = flat(x_name, x_factor), flat(y_name, y_factor)
    step = -(-len(x) // _POINTS_MAX) if len(x) else 1
    faint: dict[str, Any] = {"colour": "steady", "size_px": 4.0, "edge_px": 0.0, "opacity": 0.45, "hover": ()}
    layers: list[Layer] = [Points("other case that keeps all limits", x[::step], y[::step], **faint)]
    colours = colours_of(plan.evaluation.algorithms)
    for algorithm in plan.evaluation.algorithms:
        cases = [case for case in plan.front if case.algorithm == algorithm]
        if cases:
            xs, ys = [of(case, x_name, x_factor) for case in cases], [of(case, y_name, y_factor) for case in cases]
            hover = [_hover(case) for case in cases]
            layers.append(Points(algorithm, xs, ys, colour=colours[algorithm], size_px=11.0, hover=hover))
    x_axis, y_axis = (
        _near([of(case, name, factor) for case in plan.front], values, title)
        for name, factor, values, title in ((x_name, x_factor, x, x_title), (y_name, y_factor, y, y_title))
    )
    (left, right), (bottom, top) = x_axis.ends or (0.0, 0.0), y_axis.ends or (0.0, 0.0)
    beyond = int(((x > right) | (x < left) | (y > top) | (y < bottom)).sum())
    shown = "" if step == 1 else f" Of the other cases one in {step} is drawn."
    if beyond:
        shown += f" {wording.count(beyond, 'case')} far from the front are beyond the edges."
    return Chart(
        layers,
        title=f"{plan.problem.name}: Pareto front",
        x=x_axis,
        y=y_axis,
        about=f"scatter plot of {y_title} against {x_title}: {wording.count(len(plan.front), 'case')} of the front.",
        caption=f"The front over {', '.join(plan.front_objectives)}, shown in two of them.{shown}",
        height_px_min=460,
    )


def _near(front: list[float], others: Any, title: str) -> Axis:
    """Returns an axis with the front and the cases near it, logarithmic where the front is wide."""
    values = np.array([value for value in front if np.isfinite(value)])
    finite = others[np.isfinite(others)]
    if not len(values) or not len(finite):
        return Axis(title, ends=(0.0, 1.0))
    low, high = float(values.min()), float(values.max())
    if low > 0.0 and high > _LOG_FROM * low:
        ends = max(low / 2.0, float(finite.min())) / 1.1, 1.1 * min(2.0 * high, float(finite.max()))
        return Axis(title, ends=ends, log=True)
    more = 0.6 * (high - low) or 0.2 * abs(high) or 1.0
    low, high = max(low - more, float(finite.min())), min(high + more, float(finite.max()))
    edge = 0.04 * (high - low) or 0.1 * abs(high) or 1.0
    return Axis(title, ends=(low - edge, high + edge))


def _bars(plan: PlacementPlan) -> Chart:
    """Returns the chart of the objective of the best placement under each algorithm."""
    name, title, factor = _AXES[plan.objective]
    cases = [case for case in plan.best_by_algorithm.values() if case is not None]
    values = [factor * (getattr(case, name) or 0.0) for case in cases]
    best = next((i for i, case in enumerate(cases) if case == plan.best), None)
    lost = {name: bool(plan.evaluation.overloaded[:, i].all()) for i, name in enumerate(plan.evaluation.algorithms)}
    missing = [algorithm for algorithm, case in plan.best_by_algorithm.items() if case is None]
    overloaded, others = [name for name in missing if lost[name]], [name for name in missing if not lost[name]]
    caption = f"Every placement is overloaded under {', '.join(overloaded)}. " if overloaded else ""
    caption += f"No placement keeps all limits under {', '.join(others)}." if others else ""
    return bar_rows(
        [case.algorithm for case in cases],
        values,
        [f"{value:.4g}" for value in values],
        Axis(title, from_zero=True),
        title=f"{plan.problem.name}: best placement under each algorithm",
        marked=best,
        hover=[_hover(case) for case in cases],
        caption=caption.strip(),
    )


def _drawing(best: PlacementCase, placed: System, system: System) -> Chart:
    """Returns the drawing of the network with the brokers and overlay links of the best placement, and the free
    candidates."""
    chart = placement_chart(placed, system, f"{system.name}: the best placement")
    root = placed.overlay.brokers[placed.overlay.root].name
    return replace(chart, about=f"drawing of the best placement: brokers {', '.join(best.brokers)}; root {root}.")
