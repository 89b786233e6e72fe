"""Plan: where to place brokers, and which routing algorithm to use; every case evaluated by formula."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import surecast
from surecast.studio.bars import bar_rows
from surecast.studio.chart import Axis, Chart, Hover, Layer, Points
from surecast.studio.page import Cell
from surecast.studio.scene_chart import placement_chart
from surecast.studio.wording import rate
from surecast.tour.scenarios import load_scenario
from surecast.tour.stage_content import Key, Picture, StageOutcome, Tile, TourContext, picture, share

if TYPE_CHECKING:
    from surecast.planning.placement import PlacementCase, PlacementPlan
    from surecast.scenario import Scenario

__all__ = ["plan_stage"]

_MS: Final = 1000.0
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


def _hover(case: PlacementCase) -> Hover:
    brokers = f"{len(case.brokers)} brokers: {', '.join(case.brokers)}"
    grows = "" if case.headroom_factor is None else f", load may grow {case.headroom_factor:.2f}-fold"
    return case.algorithm, brokers, f"{rate(case.message_rate_per_s)} messages{grows}"


def _front(plan: PlacementPlan) -> Picture:
    """Returns the picture of the worst delay over the number of messages: all cases that carry the load, and the front
    by algorithm."""
    evaluation = plan.evaluation
    x = np.asarray(evaluation.message_rate_per_s)[plan.feasible]
    y = _MS * np.asarray(evaluation.notification_delay_worst_s)[plan.feasible]
    step = -(-len(x) // _POINTS_MAX)
    faint: dict[str, Any] = {"colour": "steady", "size_px": 4.0, "edge_px": 0.0, "opacity": 0.4, "hover": ()}
    layers: list[Layer] = [Points("other cases", x[::step], y[::step], **faint)]
    for algorithm in dict.fromkeys(case.algorithm for case in plan.front):
        cases = [case for case in plan.front if case.algorithm == algorithm]
        rates = [case.message_rate_per_s for case in cases]
        delays = [_slowest_ms(case) for case in cases]
        layers.append(Points(algorithm, rates, delays, size_px=9.0, hover=[_hover(case) for case in cases]))
    best = plan.best
    assert best is not None
    ring: dict[str, Any] = {"colour": "accent", "symbol": "circle", "hollow": True, "size_px": 19.0, "edge_px": 2.5}
    layers.append(Points("fastest", [best.message_rate_per_s], [_slowest_ms(best)], hover=(), **ring))
    delays = [_slowest_ms(case) for case in plan.front]
    chart = Chart(
        layers,
        title="What the offices can choose from",
        x=Axis("messages over all links (1/s)", ends=_near([case.message_rate_per_s for case in plan.front])),
        y=Axis("slowest notification (ms)", log=True, ends=(min(delays) / 1.3, 1.6 * max(delays))),
        about=f"scatter plot of delay over messages for {plan.feasible_count} cases, {len(plan.front)} on the front.",
        caption=(
            "Each dot is a placement under an algorithm. Towards the lower left is better. Coloured: cases that no "
            "other beats in delay, messages, number of brokers and headroom at once. For each grey one another is as "
            "good in all four, or better. Those far beyond the front are outside the picture."
        ),
        height_px_min=480,
        ratio=0.0,
    )
    return picture(chart, _HEADER, [_row(case) for case in plan.front], "front")


def _slowest_ms(case: PlacementCase) -> float:
    return _MS * (case.notification_delay_worst_s or np.nan)


def _near(values: list[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    more = 0.12 * (high - low) or 1.0
    return max(0.0, low - more), high + more


def _algorithms(plan: PlacementPlan) -> Picture:
    """Returns the picture of the best placement of each algorithm."""
    cases = [(name, case) for name, case in plan.best_by_algorithm.items() if case is not None]
    cases.sort(key=lambda item: item[1].notification_delay_worst_s or np.inf)
    values = [_slowest_ms(case) for _, case in cases]
    lost = [name for name, case in plan.best_by_algorithm.items() if case is None]
    caption = "The best placement under each algorithm; shorter is better."
    if lost:
        caption += f" No bar: under {' and '.join(lost)} every placement is overloaded."
    chart = bar_rows(
        [name for name, _ in cases],
        values,
        [f"{value:.3g} ms" for value in values],
        Axis("slowest notification (ms)", from_zero=True),
        title="The nine algorithms",
        marked=0,
        caption=caption,
    )
    return picture(chart, _HEADER, [_row(case) for _, case in cases], "algorithms")


def _drawing(best: PlacementCase, scenario: Scenario) -> Picture:
    """Returns the drawing of the company's network with the brokers of the best placement."""
    from surecast.planning.placement import placed_scenario

    system = scenario.system
    placed, network = placed_scenario(scenario, system, best.brokers).system, system.network
    assert network is not None, "the company has a network"
    offices = [(broker.name, broker.router or 0) for broker in system.overlay.brokers]
    root = placed.overlay.brokers[placed.overlay.root].name
    chart = replace(
        placement_chart(placed, system, "The best placement"),
        about=f"map of the network with brokers at {', '.join(best.brokers)}.",
        caption=(
            f"The fastest placement in the company's network of {len(network.routers):,} routers: brokers at "
            f"{len(best.brokers)} of the {len(offices)} offices, joined by a tree with its root at {root}. Bold lines "
            "join brokers; the broad pale bands are the physical paths they follow. Hollow diamonds are free offices."
        ),
        height_px_min=720,
        ratio=0.0,
    )
    rows: list[list[Cell]] = []
    for name, number in offices:
        router = network.routers[number]
        rows.append([name, router.name, router.x, router.y, "broker" if name in best.brokers else "free"])
    return picture(chart, ("office", "router", "x", "y", "what"), rows, "placement")
