"""Plan: where to place brokers, and which routing algorithm to use; every case evaluated by formula."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import surecast
from surecast.studio.page import Cell, Figure
from surecast.studio.style import plotly_layout
from surecast.studio.wording import rate
from surecast.tour.charts import Trace, axis, bars, decades, figure, picture, points, share, words
from surecast.tour.scenarios import load_scenario
from surecast.tour.stage_content import Key, Picture, StageOutcome, Tile, TourContext

if TYPE_CHECKING:
    from surecast.planning.placement import PlacementCase, PlacementPlan
    from surecast.scenario import Scenario

__all__ = ["plan_stage"]

_MS: Final = 1000.0
_NEAR: Final = 0.15
"""Places are near each other within this share of the width of all."""
_POINTS_MAX: Final = 3000
_HEADER: Final = (
    "algorithm", "brokers", "worst delay in ms", "mean delay in ms", "messages per s", "cost in brokers",
    "largest utilisation", "load may grow by a factor of",
)  # fmt: skip


def plan_stage(context: TourContext) -> StageOutcome:
    """Evaluates all placements of a company's brokers under all nine routing algorithms; shows the best, and the Pareto
    front."""
    scenario = load_scenario("company")
    plan = surecast.plan(scenario, progress=lambda done, total: context.show("evaluating placements", done, total))
    best = plan.best
    assert best is not None, "the example has placements that carry its load"
    cases = plan.evaluations * len(plan.evaluation.algorithms)
    lost = [name for name, case in plan.best_by_algorithm.items() if case is None]
    lead = (
        f"A company with ten offices in five areas asks where to put its brokers. All {cases:,} cases, which are "
        f"{plan.evaluations:,} placements under {len(plan.evaluation.algorithms)} routing algorithms, were evaluated "
        f"by formula: {best.algorithm} with {len(best.brokers)} brokers keeps the slowest notification at "
        f"{_MS * (best.notification_delay_worst_s or 0.0):.1f} ms."
    )
    if lost:
        lead += f" Under {' and '.join(lost)} every placement would be overloaded."
    tiles = (
        Tile("cases evaluated", f"{cases:,}", "none left out, none sampled"),
        Tile("best worst-path delay", f"{_MS * (best.notification_delay_worst_s or 0.0):.1f} ms", best.algorithm),
        Tile(
            "cases that carry the load", f"{plan.feasible_count:,}", f"{share(plan.feasible_count / cases, 0)} of all"
        ),
        Tile("on the Pareto front", f"{len(plan.front)}", "delay, messages, cost and headroom"),
    )
    blocks = (_front(plan), _drawing(best, scenario), _algorithms(plan))
    key: Key = {
        "cases": cases,
        "feasible": plan.feasible_count,
        "front": len(plan.front),
        "algorithm": best.algorithm,
        "brokers": ", ".join(best.brokers),
        "worst_delay_s": best.notification_delay_worst_s,
    }
    return StageOutcome(lead, tiles, blocks, key)


def _row(case: PlacementCase) -> list[Cell]:
    return [
        case.algorithm,
        ", ".join(case.brokers),
        _MS * (case.notification_delay_worst_s or np.nan),
        _MS * (case.notification_delay_mean_s or np.nan),
        case.message_rate_per_s,
        case.cost,
        case.utilisation,
        case.headroom_factor,
    ]


def _hover(case: PlacementCase) -> str:
    brokers = f"{len(case.brokers)} brokers: {', '.join(case.brokers)}"
    grows = "" if case.headroom_factor is None else f", load may grow {case.headroom_factor:.2f}-fold"
    return f"{words(case.algorithm)}<br>{words(brokers)}<br>{rate(case.message_rate_per_s)} messages{grows}"


def _front(plan: PlacementPlan) -> Picture:
    """Returns the picture of the worst delay over the number of messages: all cases that carry the load, and the front
    by algorithm."""
    evaluation = plan.evaluation
    x = np.asarray(evaluation.message_rate_per_s)[plan.feasible]
    y = _MS * np.asarray(evaluation.notification_delay_worst_s)[plan.feasible]
    step = -(-len(x) // _POINTS_MAX)
    dots = {"size": 4, "color": "var(--steady)", "opacity": 0.4}
    traces: list[Trace] = [
        {"type": "scatter", "mode": "markers", "name": "other cases", "hoverinfo": "skip", "marker": dots}
        | {"x": x[::step], "y": y[::step]}
    ]
    kinds = list(dict.fromkeys(case.algorithm for case in plan.front))
    for i, algorithm in enumerate(kinds):
        cases = [case for case in plan.front if case.algorithm == algorithm]
        traces.append(
            points(
                algorithm,
                [case.message_rate_per_s for case in cases],
                [_MS * (case.notification_delay_worst_s or np.nan) for case in cases],
                i,
                size=9,
                hoverinfo="text",
                hovertext=[_hover(case) for case in cases],
            )
        )
    best = plan.best
    assert best is not None
    ring: dict[str, Any] = {"size": 19, "symbol": "circle-open", "color": "var(--accent)", "line": {"width": 2.5}}
    position = {"x": [best.message_rate_per_s], "y": [_MS * (best.notification_delay_worst_s or np.nan)]}
    traces.append(
        {"type": "scatter", "mode": "markers", "name": "fastest", "hoverinfo": "skip", "marker": ring} | position
    )
    front_y = [_MS * (case.notification_delay_worst_s or np.nan) for case in plan.front]
    front_x = [case.message_rate_per_s for case in plan.front]
    drawn = figure(
        traces,
        axis("messages per second over all links", range=_near(front_x), tickformat=","),
        axis("slowest notification in ms", type="log", **decades(front_y)),
        alt=f"Scatter plot of delay against messages for {plan.feasible_count} cases, {len(plan.front)} on the front.",
        caption=(
            "Each dot is a placement under an algorithm. Towards the lower left is better. Coloured: cases that no "
            "other beats in delay, messages, number of brokers and headroom at once. For each grey one another is as "
            "good in all four, or better. Those far beyond the front are outside the picture."
        ),
        height_px=460,
    )
    return picture("What the offices can choose from", drawn, _HEADER, [_row(case) for case in plan.front], "front")


def _near(values: list[float]) -> list[float]:
    low, high = min(values), max(values)
    more = 0.12 * (high - low) or 1.0
    return [max(0.0, low - more), high + more]


def _algorithms(plan: PlacementPlan) -> Picture:
    """Returns the picture of the best placement of each algorithm."""
    cases = [(name, case) for name, case in plan.best_by_algorithm.items() if case is not None]
    cases.sort(key=lambda item: item[1].notification_delay_worst_s or np.inf)
    values = [_MS * (case.notification_delay_worst_s or np.nan) for _, case in cases]
    lost = [name for name, case in plan.best_by_algorithm.items() if case is None]
    caption = "The best placement under each algorithm; shorter is better."
    if lost:
        caption += f" No bar: under {' and '.join(lost)} every placement is overloaded."
    drawn = figure(
        [bars([name for name, _ in cases], values, [f"{value:.3g} ms" for value in values], best=0)],
        axis("slowest notification in ms", range=[0, 1.25 * max(values)]),
        axis("", autorange="reversed", ticksuffix=" "),
        alt=f"Bar chart of the slowest notification under {len(cases)} algorithms.",
        caption=caption,
        height_px=110 + 34 * len(cases),
    )
    return picture("The nine algorithms", drawn, _HEADER, [_row(case) for _, case in cases], "algorithms")


def _drawing(best: PlacementCase, scenario: Scenario) -> Picture:
    """Returns the drawing of the company's network with the brokers of the best placement."""
    from surecast.planning.placement import placed_scenario

    system = scenario.system
    placed, network = placed_scenario(scenario, system, best.brokers).system, system.network
    assert network is not None, "the company has a network"
    routers = network.routers
    brokers = [(broker.name, routers[broker.router or 0]) for broker in placed.overlay.brokers]
    used = {broker.router for broker in placed.overlay.brokers}
    free = [(b.name, routers[b.router or 0]) for b in system.overlay.brokers if b.router not in used]
    ends = [(brokers[link.a][1], brokers[link.b][1]) for link in placed.overlay.links]
    root = brokers[placed.overlay.root]
    ring = {"symbol": "circle-open", "size": 26, "color": "var(--accent)", "line": {"width": 3}}
    traces = [
        _lines("network", [(routers[link.a], routers[link.b]) for link in network.links], "var(--physical)", 0.7),
        _lines("links between brokers", ends, "var(--overlay)", 3.0),
        _marks("free offices", free, {"symbol": "diamond-open", "size": 11, "color": "var(--ink)"}),
        _marks("brokers", brokers, {"size": 16, "color": "var(--overlay)"}),
        _marks("root", [("", root[1])], ring),
    ]
    hidden = {"visible": False}
    margin = {"l": 8, "r": 8, "t": 8, "b": 8}
    layout = plotly_layout(xaxis=hidden, yaxis=hidden | {"scaleanchor": "x"}, margin=margin)
    drawn = Figure(
        {"data": traces, "layout": layout},
        alt=f"Map of the network with brokers at {', '.join(best.brokers)}.",
        caption=(
            f"The fastest placement in the company's network of {len(routers):,} routers: brokers at "
            f"{len(best.brokers)} of the {len(system.overlay.brokers)} offices, joined by a tree with its root at "
            f"{root[0]}. Distances on the picture have no unit."
        ),
        height_px_min=440,
        ratio=0.5,
    )
    rows: list[list[Cell]] = [[name, router.name, router.x, router.y, "broker"] for name, router in brokers]
    rows += [[name, router.name, router.x, router.y, "free"] for name, router in free]
    return picture("The best placement", drawn, ("office", "router", "x", "y", "what"), rows, "placement")


def _lines(name: str, pairs: list[tuple[Any, Any]], colour: str, width: float) -> Trace:
    """Returns many lines as one trace, with gaps between them."""
    x = [each for a, b in pairs for each in (a.x, b.x, None)]
    y = [each for a, b in pairs for each in (a.y, b.y, None)]
    look = {"color": colour, "width": width}
    return {"type": "scatter", "mode": "lines", "name": name, "x": x, "y": y, "hoverinfo": "skip", "line": look}


def _marks(name: str, places: list[tuple[str, Any]], marker: dict[str, Any]) -> Trace:
    """Returns named places as a trace; of two that are near each other, the southern one has its name below."""
    texts = [words(label) for label, _ in places]
    span = max((router.x for _, router in places), default=0.0) - min((router.x for _, router in places), default=0.0)
    sides = [
        "bottom center"
        if any(
            other.y > router.y and math.hypot(other.x - router.x, other.y - router.y) < _NEAR * span
            for _, other in places
        )
        else "top center"
        for _, router in places
    ]
    return {
        "type": "scatter", "mode": "markers+text", "name": name, "marker": marker, "text": texts,
        "x": [router.x for _, router in places], "y": [router.y for _, router in places],
        "textposition": sides, "textfont": {"size": 12, "color": "var(--ink)"}, "hoverinfo": "text",
    }  # fmt: skip
