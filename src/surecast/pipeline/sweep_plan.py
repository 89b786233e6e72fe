"""A plan of placements on Spark: every case is a row of Parquet, and the best answers are those of `plan_placement`.

A task judges its placements as a small plan of its own and marks those that could be an answer: its best, its front,
and what comes closest where nothing fits. The best of all is among the best of the parts, and the front of all within
their fronts, so only marked placements come back, and the plan is made from these.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
from numpy.typing import NDArray

from surecast.errors import AssumptionError, ConfigurationError
from surecast.pipeline.spark_sweep import Sweep, run_blocks
from surecast.planning.placement import (
    FRONT,
    Constraints,
    PlacementPlan,
    PlacementProblem,
    PlacementReliability,
    misses,
)
from surecast.planning.placement.evaluate import as_evaluation, checked_algorithms, figures_of
from surecast.planning.placement.exhaustive import count_placements
from surecast.planning.placement.goals import checked_objectives, losses, pareto_front, violations
from surecast.planning.placement.placement_plan import FIGURES, judged, needs_headroom

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["PLACEMENTS_PER_BLOCK", "SweptPlan", "plan_on_spark", "unrank"]

Array = NDArray[np.float64]
Masks = NDArray[np.bool_]
PLACEMENTS_PER_BLOCK: Final = 1 << 14
PLACEMENTS_MAX: Final = 1 << 40
SCHEMA: Final = pa.schema(
    [
        ("number", pa.int64()),
        ("marked", pa.bool_()),
        ("placement", pa.string()),
        ("algorithm", pa.string()),
        ("brokers", pa.int64()),
        ("cost", pa.float64()),
        ("feasible", pa.bool_()),
        ("overloaded", pa.bool_()),
        *[(name, pa.float64()) for name in FIGURES],
        ("utilisation_at", pa.string()),
        ("headroom_at", pa.string()),
        ("reliability", pa.float64()),
    ]
)
"""The columns of `PlacementPlan.table`, with the number of the placement and whether it may be an answer."""


@dataclass(frozen=True)
class SweptPlan(PlacementPlan):
    """The plan of the marked placements; `evaluations` and `feasible_count` are those of all."""

    feasible_total: int = 0

    @property
    def feasible_count(self) -> int:
        return self.feasible_total


@dataclass(frozen=True)
class _Task:
    """All that the evaluation of placements needs, as it is sent to the workers."""

    problem: PlacementProblem
    objective: str
    limits: Constraints
    algorithms: tuple[str, ...]
    front: tuple[str, ...]
    reliability: PlacementReliability | None

    def plan(self, masks: Masks) -> PlacementPlan:
        headroom = needs_headroom(self.objective, self.limits, self.front)
        figures = figures_of(self.problem, masks, self.algorithms, headroom)
        evaluation = as_evaluation(self.problem, masks, self.algorithms, figures)
        return judged(self.problem, evaluation, self.objective, self.limits, self.front, self.reliability, exact=True)

    def masks(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], Masks]:
        """Returns the placements with these numbers, without those that cost too much."""
        masks = unrank(numbers, len(self.problem.candidates))
        if self.limits.max_cost is not None:
            affordable = masks @ self.problem.costs <= self.limits.max_cost
            numbers, masks = numbers[affordable], np.ascontiguousarray(masks[affordable])
        return numbers, masks

    def __call__(self, numbers: NDArray[np.int64]) -> pa.Table:
        numbers, masks = self.masks(numbers)
        if not len(numbers):
            return SCHEMA.empty_table()
        plan = self.plan(masks)
        algorithms = len(self.algorithms)
        table = plan.table()
        table = table.add_column(0, "number", pa.array(np.repeat(numbers, algorithms)))
        table = table.add_column(1, "marked", pa.array(np.repeat(_marked(plan), algorithms)))
        return table.select(SCHEMA.names)


def plan_on_spark(
    spark: SparkSession,
    problem: PlacementProblem,
    storage: str,
    *,
    objective: str = "worst-delay",
    constraints: Constraints | None = None,
    algorithms: Sequence[str] | None = None,
    front: Sequence[str] = FRONT,
    reliability: PlacementReliability | None = None,
    block: int = PLACEMENTS_PER_BLOCK,
    resume: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> SweptPlan:
    """Returns the plan of `plan_placement`, with as many cases as the cluster has time for; every case is a row in
    `storage`.

    A plan that was interrupted goes on from the last block of placements that was done.
    """
    limits = Constraints() if constraints is None else constraints
    checked_objectives([objective])
    fronts, chosen = checked_objectives(front), checked_algorithms(algorithms)
    if limits.min_reliability is not None and reliability is None:
        raise ConfigurationError("min_reliability needs reliability=PlacementReliability(problem, system, scenario)")
    count = count_placements(problem, limits)
    if not 0 < count <= PLACEMENTS_MAX:
        raise AssumptionError(
            f"{len(problem.candidates)} candidates have {count:,} placements within the limits; a sweep takes 1 to "
            f"{PLACEMENTS_MAX:,}: give max_brokers, or use search_placement"
        )
    task = _Task(problem, objective, limits, chosen, fronts, reliability)
    sweep = Sweep(storage, _fingerprint(task), count, block, SCHEMA)
    rows = run_blocks(spark, sweep, task, resume=resume, progress=progress)
    cases = rows.count_rows()
    if not cases:
        raise AssumptionError("no placement is within max_cost and max_brokers; even one broker costs more")
    marked = rows.to_table(columns=["number"], filter=ds.field("marked")).column(0)
    numbers = marked.unique().to_numpy()
    _, masks = task.masks(np.sort(numbers))
    plan = replace(task.plan(masks), evaluations=cases // len(chosen))
    return SweptPlan(**vars(plan), feasible_total=rows.count_rows(filter=ds.field("feasible")))


def unrank(numbers: NDArray[np.int64], candidates: int) -> Masks:
    """Placements by number: those of one broker first, then of two, each in the order of the candidates.

    >>> unrank(np.array([0, 2, 3, 6]), 3).astype(int).tolist()
    [[1, 0, 0], [0, 0, 1], [1, 1, 0], [1, 1, 1]]
    """
    ends = np.cumsum([math.comb(candidates, size) for size in range(1, candidates + 1)])
    size = np.searchsorted(ends, numbers, side="right") + 1
    left = numbers - np.concatenate([[0], ends])[size - 1]
    ways = np.array([[math.comb(n, k) for k in range(candidates + 1)] for n in range(candidates + 1)])
    masks = np.zeros((len(numbers), candidates), dtype=np.bool_)
    wanted = size.copy()
    for i in range(candidates):
        # So many placements of the rest follow with candidate i; the others come after them.
        with_it = np.where(wanted > 0, ways[candidates - i - 1, np.maximum(wanted - 1, 0)], 0)
        takes = left < with_it
        masks[:, i] = takes
        left = np.where(takes, left, left - with_it)
        wanted = wanted - takes
    return masks


def _marked(plan: PlacementPlan) -> NDArray[np.bool_]:
    """Placements that may be an answer of the whole: the best, the front, and what comes closest."""
    evaluation = plan.evaluation
    marked = np.zeros(len(evaluation.placements), dtype=np.bool_)
    points = np.stack([losses(evaluation, name).ravel() for name in plan.front_objectives], axis=1)
    marked[pareto_front(points, plan.feasible.ravel()) // len(evaluation.algorithms)] = True
    names = {case.brokers for case in (plan.best, *plan.best_by_algorithm.values()) if case is not None}
    names |= {miss.case.brokers for miss in misses(plan)}
    for each in names:
        mask = np.isin(plan.problem.candidates, each)
        marked |= (evaluation.placements == mask).all(axis=1)
    # Whether an algorithm is ever without overload, and which case misses all limits together by least.
    marked[np.argmin(evaluation.utilisation, axis=0)] = True
    missed = np.where(evaluation.overloaded, np.inf, violations(evaluation, plan.constraints))
    marked[np.unravel_index(int(np.argmin(missed)), missed.shape)[0]] = True
    return marked


def _fingerprint(task: _Task) -> str:
    """Returns a digest of everything that rows depend on, including the marks."""
    settings = (task.algorithms, task.objective, task.front, task.limits)
    return hashlib.sha256(f"{task.problem.fingerprint} {settings!r}".encode()).hexdigest()
