"""Finds a placement: every one is evaluated where that is possible, otherwise searched; and why nothing fits.

A placement can then be a scenario of its own, to predict, simulate, draw or save.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from surecast.documents.units import seconds_of
from surecast.errors import ConfigurationError
from surecast.planning.placement.evaluate import checked_algorithms
from surecast.planning.placement.exhaustive import CASES_MAX, Progress, count_placements, plan_placement
from surecast.planning.placement.goals import Constraints
from surecast.planning.placement.local import search_placement
from surecast.planning.placement.placement_plan import FRONT, PlacementCase, PlacementPlan
from surecast.planning.placement.placement_reliability import PlacementReliability
from surecast.planning.placement.problem import PlacementProblem
from surecast.scenario import Scenario, System
from surecast.scenario.build.collect import expand

__all__ = ["Miss", "constraints_of", "find_placement", "misses", "placed_scenario"]

COMPARED_MAX: Final = 20_000
"""Placements up to which the result of a search is compared with the optimum."""


def constraints_of(
    scenario: Scenario,
    *,
    max_delay: str | float | None = None,
    max_subscription_delay: str | float | None = None,
    **limits: float | None,
) -> Constraints:
    """Returns the targets of a scenario as constraints, with the limits that are given in their place."""
    return Constraints.of_targets(
        scenario.targets,
        max_notification_delay_s=seconds_of("`max_delay`", max_delay, is_positive=True),
        max_subscription_delay_s=seconds_of("`max_subscription_delay`", max_subscription_delay, is_positive=True),
        **limits,
    )


def find_placement(
    problem: PlacementProblem,
    scenario: Scenario,
    *,
    objective: str = "worst-delay",
    constraints: Constraints,
    algorithms: Sequence[str] | None = None,
    front: Sequence[str] = FRONT,
    search: bool = False,
    restarts: int = 8,
    evaluations_max: int = 20_000,
    workers: int = 1,
    checkpoint: Path | str | None = None,
    resume: bool = True,
    progress: Progress | None = None,
) -> PlacementPlan:
    """Evaluates all placements where they are few enough, and searches otherwise; the arguments are those of both.

    After a search all are evaluated where that is quick: the plan has them as its `optimum`.
    """
    chosen = checked_algorithms(algorithms)
    reliability = None
    if constraints.min_reliability is not None:
        reliability = PlacementReliability(problem, scenario.system, scenario)
    common: dict[str, Any] = {
        "objective": objective,
        "constraints": constraints,
        "algorithms": chosen,
        "reliability": reliability,
        "progress": progress,
    }
    count = count_placements(problem, constraints)
    if not count:
        cheapest = problem.costs.min()
        raise ConfigurationError(f"`max_cost` {constraints.max_cost:g}: the cheapest broker costs {cheapest:g}")
    if not search and count * len(chosen) <= CASES_MAX:
        return plan_placement(problem, workers=workers, checkpoint=checkpoint, resume=resume, front=front, **common)
    plan = search_placement(
        problem,
        restarts=restarts,
        evaluations_max=evaluations_max,
        exact_max=0,
        seed=scenario.seed,
        front=front,
        **common,
    )
    if count > COMPARED_MAX or not problem.is_compiled:
        return plan
    return replace(plan, optimum=plan_placement(problem, front=(objective,), **common))


def placed_scenario(scenario: Scenario, system: System, brokers: Iterable[str]) -> Scenario:
    """Returns the scenario with only the named brokers, each written out at its router; all else is as before.

    >>> from surecast.scenario import build, load_system
    >>> scenario, system = load_system("examples/company.yaml")
    >>> placed = build(placed_scenario(scenario, system, ["office-2", "office-7"]))
    >>> [broker.name for broker in placed.overlay.brokers], len(placed.overlay.links)
    (['office-2', 'office-7'], 1)
    """
    wanted = set(brokers)
    index = system.overlay.index
    for name in sorted(wanted):
        if name not in index:
            raise ConfigurationError(f"there is no broker {name!r} to place; there are: {', '.join(list(index)[:10])}")
    if not wanted or system.network is None:
        raise ConfigurationError("a placement needs at least one broker, in a physical network")
    entries = []
    for entry in scenario.overlay.brokers:
        count = entry.count
        if entry.at == "candidates" and count is None:
            count = len(system.overlay.candidates)
        for name in expand(entry.name, count):
            router = system.overlay.brokers[index[name]].router
            if name in wanted and router is not None:
                router_name = system.network.routers[router].name
                entries.append(entry.model_copy(update={"name": name, "count": None, "at": router_name}))
    overlay = scenario.overlay.model_copy(update={"brokers": entries, "candidates": []})
    return scenario.model_copy(update={"overlay": overlay})


Array = NDArray[np.float64]

_FIGURE = {
    "max_utilisation": "utilisation",
    "max_notification_delay_s": "notification_delay_worst_s",
    "max_subscription_delay_s": "subscription_delay_worst_s",
    "min_headroom": "headroom_factor",
}


@dataclass(frozen=True)
class Miss:
    """A limit that a case misses: its name among the constraints, what it asks, and what the case has.

    `alone` says that no case at all keeps this limit, whatever the others. The limit "overload" is that of every
    system: a utilisation below 1.
    """

    limit: str
    asked: float
    found: float
    alone: bool
    case: PlacementCase


def misses(plan: PlacementPlan) -> tuple[Miss, ...]:
    """Returns the limits that are missed if no case is feasible; nothing if one is.

    Where no case keeps some limit, these limits, each with the case that comes closest to it. Otherwise the limits that
    the case misses which misses all together by least.

    >>> from surecast.planning.placement import *
    >>> from surecast.scenario import load_system
    >>> scenario, system = load_system("examples/company.yaml")
    >>> plan = plan_placement(placement_problem(system, scenario), constraints=Constraints(min_headroom=2.0))
    >>> [(miss.limit, miss.asked, round(miss.found, 3), miss.alone) for miss in misses(plan)]
    [('min_headroom', 2.0, 1.649, True)]
    """
    if plan.feasible.any():
        return ()
    carried = ~plan.evaluation.overloaded
    if not carried.any():
        placement, algorithm = np.unravel_index(int(np.argmin(plan.evaluation.utilisation)), carried.shape)
        case = plan.case(int(placement), int(algorithm))
        return (Miss("overload", 1.0, case.utilisation, True, case),)
    total = np.where(carried, 0.0, np.inf)
    limits, values, missed = _missed(plan)
    alone = []
    for name, by in missed.items():
        total += by
        of_carried = np.where(carried, by, np.inf)
        if of_carried.min() > 0.0:
            alone.append(_miss(plan, name, limits[name], values[name], of_carried, alone=True))
    if alone:
        return tuple(alone)
    placement, algorithm = np.unravel_index(int(np.argmin(total)), total.shape)
    here = np.full(total.shape, np.inf)
    here[placement, algorithm] = 0.0
    return tuple(
        _miss(plan, name, limits[name], values[name], here, alone=False)
        for name, by in missed.items()
        if by[placement, algorithm] > 0.0
    )


def _missed(plan: PlacementPlan) -> tuple[dict[str, float], dict[str, Array], dict[str, Array]]:
    """Returns, by limit, the limit itself, the figure of each case, and the share by which the case misses it.

    The limits on brokers and cost are kept by every placement that a plan looks at.
    """
    limits = {
        field.name: float(limit)
        for field in fields(plan.constraints)
        if (limit := getattr(plan.constraints, field.name)) is not None
        and (field.name in _FIGURE or field.name == "min_reliability")
    }
    values, missed = {}, {}
    for name, limit in limits.items():
        if name == "min_reliability":
            # Only of placements that keep all other limits; of the others it is not known.
            figures = np.repeat(plan.reliability[:, None], len(plan.evaluation.algorithms), axis=1)
        else:
            figures = np.asarray(getattr(plan.evaluation, _FIGURE[name]), dtype=np.float64)
        share = figures / limit - 1.0 if name.startswith("max") else 1.0 - figures / limit
        values[name] = figures
        missed[name] = np.maximum(np.nan_to_num(share, nan=0.0, neginf=0.0), 0.0)
    return limits, values, missed


def _miss(plan: PlacementPlan, name: str, limit: float, values: Array, by: Array, *, alone: bool) -> Miss:
    placement, algorithm = np.unravel_index(int(np.argmin(by)), by.shape)
    case = plan.case(int(placement), int(algorithm))
    return Miss(name, limit, float(values[placement, algorithm]), alone, case)
