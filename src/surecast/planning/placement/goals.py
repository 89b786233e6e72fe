"""The goals of a placement: objectives, constraints, and the cases that no other beats in everything."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from surecast.errors import ConfigurationError, refuse_unknown
from surecast.planning.placement.evaluate import Evaluation
from surecast.scenario.spec.scenario import Targets

__all__ = [
    "OBJECTIVES",
    "Constraints",
    "best_case",
    "checked_objectives",
    "losses",
    "pareto_front",
    "rounded",
    "violations",
]

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

OBJECTIVES: Final = {
    "worst-delay": ("notification_delay_worst_s", 1.0),
    "mean-delay": ("notification_delay_mean_s", 1.0),
    "messages": ("message_rate_per_s", 1.0),
    "cost": ("cost", 1.0),
    "headroom": ("headroom_factor", -1.0),
}
"""The figure of each objective, and -1 where more of it is better."""

_DIGITS = 10
_ROUNDS = 64


@dataclass(frozen=True)
class Constraints:
    """The limits that a placement must keep; None is no limit. An overloaded system keeps none.

    >>> Constraints(max_brokers=4).max_brokers
    4
    """

    max_utilisation: float | None = None
    max_notification_delay_s: float | None = None
    max_subscription_delay_s: float | None = None
    min_headroom: float | None = None
    max_brokers: int | None = None
    max_cost: float | None = None
    min_reliability: float | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and not (value > 0.0 and math.isfinite(value)):
                raise ConfigurationError(f"`{field.name}` {value}: give a number above 0, or leave it out")
        if self.min_reliability is not None and self.min_reliability > 1.0:
            raise ConfigurationError(f"`min_reliability` {self.min_reliability}: a share is at most 1")

    @classmethod
    def of_targets(cls, targets: Targets, **others: Any) -> Constraints:
        """Returns the targets of a scenario as constraints; those of `others` that are not None replace them."""
        constraints: dict[str, Any] = {
            "max_utilisation": targets.utilisation,
            "max_notification_delay_s": targets.notification_delay,
            "max_subscription_delay_s": targets.subscription_delay,
            "min_reliability": targets.reliability,
        }
        return cls(**constraints | {name: value for name, value in others.items() if value is not None})


def checked_objectives(names: Sequence[str]) -> tuple[str, ...]:
    """Objectives by name, each once."""
    refuse_unknown("objective", names, OBJECTIVES)
    return tuple(dict.fromkeys(names))


def losses(evaluation: Evaluation, objective: str) -> Array:
    """Returns the objective by placement and algorithm, such that less is better; inf where it is unknown."""
    name, sign = OBJECTIVES[objective]
    values = np.asarray(getattr(evaluation, name), dtype=np.float64)
    if values.ndim == 1:
        values = np.repeat(values[:, None], len(evaluation.algorithms), axis=1)
    return np.where(np.isnan(values), np.inf, sign * values)


def violations(evaluation: Evaluation, constraints: Constraints) -> Array:
    """Returns by how much each case misses the constraints other than reliability, relative to each and summed; 0:
    none.

    Where nobody publishes or subscribes there is no delay to miss a limit.
    """
    shape = evaluation.utilisation.shape
    total = np.where(evaluation.overloaded, evaluation.utilisation, 0.0)

    def at_most(values: Array, limit: float | None) -> None:
        if limit is not None:
            excess = np.maximum(np.nan_to_num(values, nan=0.0) / limit - 1.0, 0.0)
            total.__iadd__(np.broadcast_to(excess, shape))

    at_most(evaluation.utilisation, constraints.max_utilisation)
    at_most(evaluation.notification_delay_worst_s, constraints.max_notification_delay_s)
    at_most(evaluation.subscription_delay_worst_s, constraints.max_subscription_delay_s)
    at_most(evaluation.brokers[:, None].astype(np.float64), constraints.max_brokers)
    at_most(evaluation.cost[:, None], constraints.max_cost)
    if constraints.min_headroom is not None:
        total += np.maximum(1.0 - evaluation.headroom_factor / constraints.min_headroom, 0.0)
    return total


def best_case(order: Sequence[Array], allowed: Mask) -> tuple[int, int] | None:
    """Returns placement and algorithm of the least loss among those allowed; ties go by the next losses, then to the
    first."""
    rows = np.argwhere(allowed & ~np.isposinf(order[0]))
    if not len(rows):
        return None
    keys = [rounded(loss[rows[:, 0], rows[:, 1]]) for loss in order]
    placement, algorithm = rows[np.lexsort(keys[::-1])[0]]
    return int(placement), int(algorithm)


def pareto_front(points: Array, allowed: Mask | None = None) -> NDArray[np.intp]:
    """Returns rows of `points` that no other row beats: less or equal in every column and less in one. Of equals, the
    first.

    >>> pareto_front(np.array([[1.0, 5.0], [2.0, 2.0], [3.0, 2.0], [1.0, 5.0]])).tolist()
    [0, 1]
    """
    rows = np.arange(len(points)) if allowed is None else np.flatnonzero(allowed)
    rows = rows[~np.isposinf(points[rows]).any(axis=1)]
    values = np.stack([rounded(column) for column in points[rows].T], axis=1)
    unbeaten = _unbeaten(values)
    rows, values = rows[unbeaten], values[unbeaten]
    # In this order a row can only be beaten by one before it.
    order = np.lexsort(values.T[::-1])
    front_values = np.empty((len(rows), points.shape[1]))
    front: list[int] = []
    for i in order.tolist():
        if (front_values[: len(front)] <= values[i]).all(axis=1).any():
            continue
        front_values[len(front)] = values[i]
        front.append(i)
    return np.sort(rows[np.array(front, dtype=np.intp)])


def _unbeaten(values: Array) -> NDArray[np.intp]:
    """Returns rows without most of those that another one beats, so that few are left to compare one by one.

    Every round takes a good row, one with a small sum, and leaves out all that it beats.

    >>> _unbeaten(np.array([[1.0, 1.0], [2.0, 3.0], [3.0, 0.5]])).tolist()
    [0, 2]
    """
    left = np.arange(len(values))
    finite = np.where(np.isfinite(values), values, 0.0)
    merit = (finite / np.maximum(np.abs(finite).max(axis=0, initial=0.0), 1e-300)).sum(axis=1)
    for _ in range(_ROUNDS):
        if not np.isfinite(merit).any():
            break
        best = int(np.argmin(merit))
        merit[best] = np.inf
        unbeaten = ~((values[best] <= values).all(axis=1) & (values[best] < values).any(axis=1))
        left, values, merit = left[unbeaten], values[unbeaten], merit[unbeaten]
    return left


def rounded(values: Array) -> Array:
    """Rounds to so many digits that the same figure, computed in another order, stays the same."""
    finite = np.isfinite(values) & (values != 0.0)
    scale = 10.0 ** (_DIGITS - 1 - np.floor(np.log10(np.abs(np.where(finite, values, 1.0)))))
    return np.where(finite, np.rint(np.where(finite, values, 0.0) * scale) / scale, values)
