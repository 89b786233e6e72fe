"""The reasons why nothing fits: limits that no case keeps, and the case that comes closest."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from surecast.planning.placement.placement_plan import PlacementCase, PlacementPlan

__all__ = ["Miss", "misses"]

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
