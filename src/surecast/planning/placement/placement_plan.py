"""The plan of a placement: every case evaluated, those that keep the constraints, the best and the front."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from surecast.planning.placement.evaluate import Evaluation
from surecast.planning.placement.goals import Constraints, best_case, losses, pareto_front, violations
from surecast.planning.placement.placement_reliability import PlacementReliability
from surecast.planning.placement.problem import PlacementProblem
from surecast.report.report_files import save_table

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FIGURES", "FRONT", "PlacementCase", "PlacementPlan", "SearchEnd", "judged", "needs_headroom"]

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

FRONT: Final = ("worst-delay", "messages", "cost", "headroom")
"""The objectives that a front is over, if no others are named."""

_JUDGED_AT_ONCE: Final = 64

FIGURES: Final = (
    "notification_delay_worst_s",
    "subscription_delay_worst_s",
    "notification_delay_mean_s",
    "notification_rate_per_s",
    "control_rate_per_s",
    "message_rate_per_s",
    "utilisation",
    "headroom_factor",
    "table_entries",
)


@dataclass(frozen=True)
class PlacementCase:
    """One placement under one algorithm.

    What is not known is None: a delay under overload, what was not computed. A headroom of inf says that nothing ever
    saturates.
    """

    brokers: tuple[str, ...]
    algorithm: str
    cost: float
    feasible: bool
    overloaded: bool
    notification_delay_worst_s: float | None
    subscription_delay_worst_s: float | None
    notification_delay_mean_s: float | None
    notification_rate_per_s: float
    control_rate_per_s: float
    message_rate_per_s: float
    utilisation: float
    utilisation_at: str
    headroom_factor: float | None
    headroom_at: str
    table_entries: float
    reliability: float | None


@dataclass(frozen=True)
class SearchEnd:
    """The end of a search: after all its restarts, or before, when it had evaluated as many placements as allowed.

    `restarts` counts those that were carried through under every algorithm.
    """

    restarts: int
    restarts_asked: int
    evaluations_max: int

    @property
    def converged(self) -> bool:
        """True if every restart reached a placement that no neighbour beats."""
        return self.restarts == self.restarts_asked


@dataclass(frozen=True)
class PlacementPlan:
    """All cases with what was asked for. `exact` says that every placement within the limits was evaluated.

    `reliability` is by placement, NaN where other constraints settled the matter or it was not asked for. `evaluations`
    counts placements, each under all algorithms. `search` says how a search ended; None where all were evaluated.
    `optimum` is the plan over every placement that a search was checked with, where that is quick.
    """

    problem: PlacementProblem
    objective: str
    front_objectives: tuple[str, ...]
    constraints: Constraints
    evaluation: Evaluation
    reliability: Array
    feasible: Mask
    evaluations: int
    exact: bool
    search: SearchEnd | None = None
    optimum: PlacementPlan | None = None

    @property
    def feasible_count(self) -> int:
        """Cases that keep all constraints."""
        return int(self.feasible.sum())

    @cached_property
    def best(self) -> PlacementCase | None:
        """The best case of all, None if none keeps the constraints; of equally good ones the cheaper, then faster."""
        return self._best(self.feasible)

    @cached_property
    def best_by_algorithm(self) -> dict[str, PlacementCase | None]:
        """The best case under each algorithm."""
        cases = {}
        for i, algorithm in enumerate(self.evaluation.algorithms):
            only = np.zeros_like(self.feasible)
            only[:, i] = self.feasible[:, i]
            cases[algorithm] = self._best(only)
        return cases

    @cached_property
    def front(self) -> tuple[PlacementCase, ...]:
        """The feasible cases that no other one beats in all objectives of the front, the best by the first of them."""
        points = np.stack([losses(self.evaluation, name).ravel() for name in self.front_objectives], axis=1)
        rows = pareto_front(points, self.feasible.ravel())
        order = rows[np.lexsort(points[rows].T[::-1])]
        return tuple(self.case(*divmod(int(row), len(self.evaluation.algorithms))) for row in order)

    def case(self, placement: int, algorithm: int) -> PlacementCase:
        """Returns one case by its row and column."""
        evaluation = self.evaluation

        def figure(values: Array) -> float | None:
            value = float(values[placement, algorithm])
            return None if np.isnan(value) else value

        figures: dict[str, Any] = {name: figure(getattr(evaluation, name)) for name in FIGURES}
        reliability = float(self.reliability[placement])
        return PlacementCase(
            brokers=self.names(placement),
            algorithm=evaluation.algorithms[algorithm],
            cost=float(evaluation.cost[placement]),
            feasible=bool(self.feasible[placement, algorithm]),
            overloaded=bool(evaluation.overloaded[placement, algorithm]),
            utilisation_at=self.problem.component(int(evaluation.utilisation_at[placement, algorithm])),
            headroom_at=self.problem.component(int(evaluation.headroom_at[placement, algorithm])),
            reliability=None if np.isnan(reliability) else reliability,
            **figures,
        )

    def names(self, placement: int) -> tuple[str, ...]:
        """Returns the brokers of a placement."""
        return tuple(self.problem.candidates[i] for i in np.flatnonzero(self.evaluation.placements[placement]))

    def table(self) -> pa.Table:
        """Returns one row per placement and algorithm; null where a figure is not known."""
        import pyarrow as pa

        evaluation = self.evaluation
        placements, algorithms = self.feasible.shape
        by_placement = np.repeat(np.arange(placements), algorithms)

        def words(values: Sequence[str], codes: NDArray[np.intp]) -> pa.Array:
            return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), pa.array(values, pa.string()))

        def components(numbers: NDArray[np.int64]) -> pa.Array:
            used, codes = np.unique(numbers.ravel(), return_inverse=True)
            return words([self.problem.component(int(i)) for i in used], codes.ravel())

        def numbers(values: Array) -> pa.Array:
            flat = values.ravel()
            return pa.array(flat, mask=np.isnan(flat))

        columns: dict[str, pa.Array] = {
            "placement": words([", ".join(self.names(i)) for i in range(placements)], by_placement),
            "algorithm": words(evaluation.algorithms, np.tile(np.arange(algorithms), placements)),
            "brokers": pa.array(evaluation.brokers[by_placement]),
            "cost": pa.array(evaluation.cost[by_placement]),
            "feasible": pa.array(self.feasible.ravel()),
            "overloaded": pa.array(evaluation.overloaded.ravel()),
            **{name: numbers(getattr(evaluation, name)) for name in FIGURES},
            "utilisation_at": components(evaluation.utilisation_at),
            "headroom_at": components(evaluation.headroom_at),
            "reliability": numbers(self.reliability[by_placement]),
        }
        return pa.table(columns)

    def save(self, path: Path | str) -> Path:
        """Writes the table as Parquet, whole or not at all, and returns the path."""
        return save_table(self.table(), path)

    def _best(self, allowed: Mask) -> PlacementCase | None:
        order = dict.fromkeys((self.objective, "cost", "worst-delay", "messages"))
        position = best_case([losses(self.evaluation, name) for name in order], allowed)
        return None if position is None else self.case(*position)


def judged(
    problem: PlacementProblem,
    evaluation: Evaluation,
    objective: str,
    constraints: Constraints,
    front: tuple[str, ...],
    reliability: PlacementReliability | None,
    exact: bool,
    progress: Callable[[int, int], None] | None = None,
    search: SearchEnd | None = None,
) -> PlacementPlan:
    """Returns the plan that an evaluation makes; reliability is computed where nothing else rules a placement out."""
    feasible = violations(evaluation, constraints) <= 0.0
    values = np.full(len(evaluation.placements), np.nan)
    if reliability is not None:
        rows = np.flatnonzero(feasible.any(axis=1))
        for start in range(0, len(rows), _JUDGED_AT_ONCE):
            some = rows[start : start + _JUDGED_AT_ONCE]
            values[some] = reliability.worst(evaluation.placements[some])
            if progress is not None:
                progress(start + len(some), len(rows))
        if constraints.min_reliability is not None:
            feasible &= (values >= constraints.min_reliability)[:, None]
    count = len(evaluation.placements)
    return PlacementPlan(problem, objective, front, constraints, evaluation, values, feasible, count, exact, search)


def needs_headroom(objective: str, constraints: Constraints, front: Sequence[str]) -> bool:
    """Returns whether anything asked for depends on the headroom, which takes most of the time."""
    return constraints.min_headroom is not None or "headroom" in (objective, *front)
