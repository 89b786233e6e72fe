"""A placement plan as a page: the Pareto front, the best placement drawn, bars by algorithm, and the tables."""

from __future__ import annotations

from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from surecast.studio import wording
from surecast.studio.page import Cell, Downloads, Figure, Heading, Page, Paragraph, Section, Table, write_page
from surecast.studio.style import SYMBOLS, clean, plotly_axis, plotly_layout, series_variable

if TYPE_CHECKING:
    from surecast.planning.placement import PlacementCase, PlacementPlan
    from surecast.scenario.system import System

__all__ = ["write_plan_page"]

Trace = dict[str, Any]
_POINTS_MAX: Final = 4000
_LOG_FROM: Final = 10.0
_AXES: Final = {
    "worst-delay": ("notification_delay_worst_s", "notification delay on the worst path in ms", 1000.0),
    "mean-delay": ("notification_delay_mean_s", "mean notification delay in ms", 1000.0),
    "messages": ("message_rate_per_s", "messages per second", 1.0),
    "cost": ("cost", "cost", 1.0),
    "headroom": ("headroom_factor", "headroom, factor on the load", 1.0),
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


def _hover(case: PlacementCase) -> str:
    lines = [clean(case.algorithm), clean(", ".join(case.brokers))]
    lines += [f"{name}: {value:.6g}" for name, value in _figures(case)[2:] if isinstance(value, float)]
    return "<br>".join(escape(line, quote=False) for line in lines)


def _axis(title: str, **more: Any) -> dict[str, Any]:
    words = {"text": escape(title, quote=False), "font": {"size": 13, "color": "var(--muted)"}, "standoff": 10}
    return plotly_axis(title=words, **more)


def _front(plan: PlacementPlan) -> Figure:
    """Returns the figure of all feasible cases as faint points, and the front by algorithm, over the first two
    objectives."""
    names = (*plan.front_objectives, plan.objective, "messages", "worst-delay")
    down, across = list(dict.fromkeys(names))[:2]
    (x_name, x_title, x_factor), (y_name, y_title, y_factor) = _AXES[across], _AXES[down]
    shape = plan.feasible.shape

    def flat(name: str, factor: float) -> Any:
        values = np.asarray(getattr(plan.evaluation, name), dtype=np.float64)
        wide = np.broadcast_to(values[:, None] if values.ndim == 1 else values, shape)
        return factor * wide[plan.feasible]

    x, y = flat(x_name, x_factor), flat(y_name, y_factor)
    step = -(-len(x) // _POINTS_MAX) if len(x) else 1
    traces: list[Trace] = [
        {"type": "scatter", "mode": "markers", "name": "other case that keeps all limits", "hoverinfo": "skip"}
        | {"x": x[::step], "y": y[::step], "marker": {"size": 4, "color": "var(--steady)", "opacity": 0.45}}
    ]
    for i, algorithm in enumerate(plan.evaluation.algorithms):
        cases = [case for case in plan.front if case.algorithm == algorithm]
        if cases:
            traces.append(
                {"type": "scatter", "mode": "markers", "name": escape(algorithm, quote=False), "hoverinfo": "text"}
                | {"x": [x_factor * (getattr(case, x_name) or 0.0) for case in cases]}
                | {"y": [y_factor * (getattr(case, y_name) or 0.0) for case in cases]}
                | {"hovertext": [_hover(case) for case in cases]}
                | {
                    "marker": {
                        # Nine algorithms share eight colours; the ninth differs in shape.
                        "symbol": SYMBOLS[(i + 3 * (i // len(SYMBOLS))) % len(SYMBOLS)],
                        "size": 11,
                        "color": series_variable(i),
                        "line": {"color": "var(--surface)", "width": 1},
                    }
                }
            )
    across_range, down_range = (
        _near([factor * (getattr(case, name) or 0.0) for case in plan.front], values)
        for name, factor, values in ((x_name, x_factor, x), (y_name, y_factor, y))
    )
    beyond = int(((x > across_range[1]) | (x < across_range[0]) | (y > down_range[1]) | (y < down_range[0])).sum())
    layout = plotly_layout(
        xaxis=_axis(x_title, showline=True, **_range(*across_range)),
        yaxis=_axis(y_title, showline=True, **_range(*down_range)),
        margin={"l": 70, "r": 16, "t": 16, "b": 56},
    )
    shown = "" if step == 1 else f" Of the other cases one in {step} is drawn."
    if beyond:
        shown += f" {wording.count(beyond, 'case')} far from the front are beyond the edges."
    return Figure(
        {"data": traces, "layout": layout},
        alt=f"Scatter plot of {y_title} against {x_title}: {wording.count(len(plan.front), 'case')} of the front.",
        caption=f"The front over {', '.join(plan.front_objectives)}, shown in two of them.{shown}",
        height_px_min=460,
    )


def _near(front: list[float], others: Any) -> tuple[float, float, bool]:
    """Returns the range of an axis: the front and the cases near it; and whether it is logarithmic, as a wide front
    needs."""
    values = np.array([value for value in front if np.isfinite(value)])
    finite = others[np.isfinite(others)]
    if not len(values) or not len(finite):
        return 0.0, 1.0, False
    low, high = float(values.min()), float(values.max())
    if low > 0.0 and high > _LOG_FROM * low:
        return max(low / 2.0, float(finite.min())) / 1.1, 1.1 * min(2.0 * high, float(finite.max())), True
    more = 0.6 * (high - low) or 0.2 * abs(high) or 1.0
    low, high = max(low - more, float(finite.min())), min(high + more, float(finite.max()))
    edge = 0.04 * (high - low) or 0.1 * abs(high) or 1.0
    return low - edge, high + edge, False


def _range(low: float, high: float, logarithmic: bool) -> dict[str, Any]:
    if logarithmic:
        decades = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
        # Plotly itself would write the digits between the powers of ten alone.
        ticks = [step * 10.0**decade for decade in decades for step in (1, 2, 5)]
        texts = [f"{tick:,.10g}" for tick in ticks]
        ends = [float(np.log10(low)), float(np.log10(high))]
        return {"type": "log", "range": ends, "tickmode": "array", "tickvals": ticks, "ticktext": texts}
    return {"range": [low, high]}


def _bars(plan: PlacementPlan) -> Figure:
    """Returns the figure of the objective of the best placement under each algorithm."""
    name, title, factor = _AXES[plan.objective]
    cases = [(algorithm, case) for algorithm, case in plan.best_by_algorithm.items() if case is not None]
    values = [factor * (getattr(case, name) or 0.0) for _, case in cases]
    bars: Trace = {
        "type": "bar",
        "orientation": "h",
        "x": values,
        "y": [escape(algorithm, quote=False) for algorithm, _ in cases],
        "text": [f"{value:.4g}" for value in values],
        "textposition": "outside",
        "cliponaxis": False,
        "hoverinfo": "text",
        "hovertext": [_hover(case) for _, case in cases],
        "marker": {"color": ["var(--accent)" if case == plan.best else series_variable(0) for _, case in cases]},
    }
    layout = plotly_layout(
        xaxis=_axis(title, rangemode="tozero"),
        yaxis=plotly_axis(autorange="reversed", automargin=True),
        margin={"l": 160, "r": 60, "t": 34, "b": 56},
        showlegend=False,
    )
    lost = {name: bool(plan.evaluation.overloaded[:, i].all()) for i, name in enumerate(plan.evaluation.algorithms)}
    missing = [algorithm for algorithm, case in plan.best_by_algorithm.items() if case is None]
    overloaded, others = [name for name in missing if lost[name]], [name for name in missing if not lost[name]]
    caption = f"Every placement is overloaded under {', '.join(overloaded)}. " if overloaded else ""
    caption += f"No placement keeps all limits under {', '.join(others)}." if others else ""
    return Figure(
        {"data": [bars], "layout": layout},
        alt=f"Bar chart of {title} of the best placement under each of {len(cases)} algorithms.",
        caption=caption,
        ratio=0.0,
        height_px_min=120 + 34 * len(cases),
    )


def _drawing(best: PlacementCase, placed: System, system: System) -> Figure:
    """Returns the drawing of the network with the brokers and overlay links of the best placement, and the free
    candidates."""
    network = system.network
    routers = () if network is None else network.routers
    where = {router.name: (router.x, router.y) for router in routers}
    positions = [where[routers[broker.router].name] for broker in placed.overlay.brokers if broker.router is not None]
    used = {broker.router for broker in placed.overlay.brokers}
    free = [broker for broker in system.overlay.brokers if broker.router not in used and broker.router is not None]
    links = [] if network is None else network.links
    traces = [
        _lines("physical link", [((routers[k.a].x, routers[k.a].y), (routers[k.b].x, routers[k.b].y)) for k in links])
        | {"line": {"color": "var(--physical)", "width": 0.7}},
        _lines("overlay link", [(positions[link.a], positions[link.b]) for link in placed.overlay.links])
        | {"line": {"color": "var(--overlay)", "width": 3.0}},
        _points("free candidate", [where[routers[b.router or 0].name] for b in free], [b.name for b in free])
        | {"marker": {"symbol": "diamond-open", "size": 12, "color": "var(--ink)"}},
        _points("broker", positions, [broker.name for broker in placed.overlay.brokers])
        | {"marker": {"size": 17, "color": "var(--overlay)"}},
    ]
    root = placed.overlay.brokers[placed.overlay.root].name
    if best.algorithm.startswith("hierarchical"):
        ring = {"symbol": "circle-open", "size": 24, "color": "var(--accent)", "line": {"width": 3}}
        traces.append(_points("root", [positions[placed.overlay.root]], [""]) | {"marker": ring})
    hidden = {"visible": False}
    layout = plotly_layout(xaxis=hidden, yaxis=hidden | {"scaleanchor": "x"}, margin={"l": 8, "r": 8, "t": 8, "b": 8})
    return Figure(
        {"data": traces, "layout": layout},
        alt=f"Drawing of the best placement: brokers {', '.join(best.brokers)}; root {root}.",
        caption="Brokers stand at chosen candidates; overlay links are drawn straight, whatever their physical path.",
        height_px_min=460,
    )


def _lines(name: str, lines: list[tuple[tuple[float, float], tuple[float, float]]]) -> Trace:
    """Returns many lines as one trace, with gaps between them."""
    points = [point for a, b in lines for point in (a, b, (np.nan, np.nan))]
    x, y = np.array(points, dtype=np.float64).reshape(-1, 2).T
    return {"type": "scatter", "mode": "lines", "name": name, "x": x, "y": y, "hoverinfo": "skip"}


def _points(name: str, positions: list[tuple[float, float]], labels: list[str]) -> Trace:
    x, y = np.array(positions, dtype=np.float64).reshape(-1, 2).T
    texts = [escape(clean(label), quote=False) for label in labels]
    return {
        "type": "scatter",
        "mode": "markers+text",
        "name": name,
        "x": x,
        "y": y,
        "text": texts,
        "textposition": "top center",
        "textfont": {"size": 12, "color": "var(--ink)"},
        "hoverinfo": "text",
        "hovertext": texts,
    }
