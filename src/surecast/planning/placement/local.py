"""Search for a good placement where there are too many to evaluate: local search with restarts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from surecast.errors import ConfigurationError
from surecast.planning.placement.evaluate import as_evaluation, checked_algorithms, figures_of
from surecast.planning.placement.exhaustive import count_placements, plan_placement
from surecast.planning.placement.goals import Constraints, checked_objectives, losses, rounded, violations
from surecast.planning.placement.placement_plan import FRONT, PlacementPlan, SearchEnd, judged, needs_headroom
from surecast.planning.placement.placement_reliability import PlacementReliability
from surecast.planning.placement.problem import PlacementProblem

__all__ = ["search_placement"]

Array = NDArray[np.float64]
Masks = NDArray[np.bool_]
Score = tuple[float, float, float]
Progress = Callable[[int, int], None]

_BATCH: Final = 64
_EXACT_MAX: Final = 20_000


def search_placement(
    problem: PlacementProblem,
    *,
    objective: str = "worst-delay",
    constraints: Constraints | None = None,
    algorithms: Sequence[str] | None = None,
    front: Sequence[str] = FRONT,
    reliability: PlacementReliability | None = None,
    restarts: int = 8,
    evaluations_max: int = 20_000,
    exact_max: int = _EXACT_MAX,
    seed: int = 1,
    progress: Progress | None = None,
) -> PlacementPlan:
    """Returns a good placement under each algorithm, by adding, dropping and swapping brokers while that helps.

    Where there are at most `exact_max` placements within the limits all are evaluated, and the plan is `exact`.
    Otherwise each algorithm starts `restarts` times: from one broker, and from random placements. What was evaluated
    once, for any algorithm, is not evaluated again; the search ends after `evaluations_max` placements. The plan has
    all placements that were evaluated, its front is over these, and its `search` says how the search ended.
    Constraints that are missed count before the objective, by how far.

    >>> from surecast.planning.placement import *
    >>> from surecast.scenario import load_system
    >>> scenario, system = load_system("examples/company.yaml")
    >>> problem = placement_problem(system, scenario)
    >>> plan = search_placement(problem, exact_max=0, seed=3)
    >>> plan.exact, plan.best == plan_placement(problem).best
    (False, True)
    """
    limits = Constraints() if constraints is None else constraints
    checked_objectives([objective])
    fronts, chosen = checked_objectives(front), checked_algorithms(algorithms)
    if restarts < 1 or evaluations_max < 1:
        raise ConfigurationError("restarts and evaluations_max must be 1 or more")
    if limits.min_reliability is not None and reliability is None:
        raise ConfigurationError("min_reliability needs reliability=PlacementReliability(problem, system, scenario)")
    if count_placements(problem, limits) <= exact_max:
        return plan_placement(
            problem,
            objective=objective,
            constraints=limits,
            algorithms=chosen,
            front=fronts,
            reliability=reliability,
            progress=progress,
        )
    headroom = needs_headroom(objective, limits, fronts)
    cache = _Known(problem, objective, limits, chosen, headroom, reliability, evaluations_max, progress)
    generator = np.random.default_rng(np.random.SeedSequence(seed))
    done = 0
    for restart in range(restarts):
        start = _first(problem, limits, generator, restart)
        if not all(_descend(cache, start, algorithm, limits, generator) for algorithm in range(len(chosen))):
            break
        done += 1
    end = SearchEnd(done, restarts, evaluations_max)
    masks, figures = cache.all()
    evaluation = as_evaluation(problem, masks, chosen, figures)
    return judged(problem, evaluation, objective, limits, fronts, reliability, exact=False, search=end)


class _Known:
    """All placements evaluated so far, with their score under each algorithm: violation, then loss, then cost."""

    def __init__(
        self,
        problem: PlacementProblem,
        objective: str,
        constraints: Constraints,
        algorithms: tuple[str, ...],
        headroom: bool,
        reliability: PlacementReliability | None,
        most: int,
        progress: Progress | None,
    ):
        self.problem = problem
        self._objective, self._constraints = objective, constraints
        self._algorithms, self._headroom, self._reliability = algorithms, headroom, reliability
        self._most, self._progress = most, progress
        self._scores: dict[bytes, Array] = {}
        self._masks: list[Masks] = []
        self._figures: list[Array] = []

    def all(self) -> tuple[Masks, Array]:
        return np.concatenate(self._masks), np.concatenate(self._figures)

    def scores(self, masks: Masks, algorithm: int) -> list[Score | None]:
        """Returns the score of each placement; None for those that the limit on evaluations leaves out."""
        keys = [mask.tobytes() for mask in masks]
        new = [i for i, key in enumerate(keys) if key not in self._scores]
        new = list({keys[i]: i for i in reversed(new)}.values())[::-1][: self._most - len(self._scores)]
        if new:
            self._evaluate(masks[new])
        scores = [self._scores.get(key) for key in keys]
        return [None if row is None else tuple(row[:, algorithm].tolist()) for row in scores]

    def _evaluate(self, masks: Masks) -> None:
        figures = figures_of(self.problem, masks, self._algorithms, self._headroom)
        evaluation = as_evaluation(self.problem, masks, self._algorithms, figures)
        missed, loss = violations(evaluation, self._constraints), rounded(losses(evaluation, self._objective))
        target = self._constraints.min_reliability
        if target is not None and self._reliability is not None:
            rows = np.flatnonzero((missed <= 0.0).any(axis=1))
            values = np.nan_to_num(self._reliability.worst(masks[rows]))
            missed[rows] += np.maximum(1.0 - values / target, 0.0)[:, None]
        for mask, row in zip(masks, np.stack([missed, loss, losses(evaluation, "cost")], axis=1), strict=True):
            self._scores[mask.tobytes()] = row
        self._masks.append(masks)
        self._figures.append(figures)
        if self._progress is not None:
            self._progress(len(self._scores), self._most)


def _first(problem: PlacementProblem, constraints: Constraints, generator: np.random.Generator, restart: int) -> Masks:
    """Returns the start of a search: starts alternate between few and many brokers, chosen at random."""
    candidates = len(problem.candidates)
    most = candidates if constraints.max_brokers is None else min(candidates, int(constraints.max_brokers))
    size = 1 if restart == 0 else int(generator.integers(1, most + 1))
    mask = np.zeros(candidates, dtype=np.bool_)
    mask[generator.permutation(candidates)[:size]] = True
    return mask


def _descend(
    cache: _Known, start: Masks, algorithm: int, constraints: Constraints, generator: np.random.Generator
) -> bool:
    """Moves to the best of a batch of neighbours as long as one is better; returns whether it reached a local
    optimum."""
    here = start
    score = cache.scores(here[None, :], algorithm)[0]
    if score is None:
        return False
    moved = True
    while moved:
        moved = False
        neighbours = _neighbours(here, constraints, generator)
        for first in range(0, len(neighbours), _BATCH):
            batch = neighbours[first : first + _BATCH]
            scores = cache.scores(batch, algorithm)
            best = min((s, i) for i, s in enumerate(scores) if s is not None) if any(scores) else None
            if best is not None and best[0] < score:
                score, here, moved = best[0], batch[best[1]], True
                break
            if None in scores:
                return False
    return True


def _neighbours(mask: Masks, constraints: Constraints, generator: np.random.Generator) -> Masks:
    """Returns all placements with a broker more, one less, or one elsewhere, in random order."""
    inside, outside = np.flatnonzero(mask), np.flatnonzero(~mask)
    rows = []

    def changed(*flips: np.intp) -> Masks:
        row = mask.copy()
        row[list(flips)] ^= True
        return row

    def all_of() -> Iterator[Masks]:
        if constraints.max_brokers is None or len(inside) < constraints.max_brokers:
            yield from (changed(i) for i in outside)
        if len(inside) > 1:
            yield from (changed(i) for i in inside)
        yield from (changed(i, j) for i in inside for j in outside)

    rows = list(all_of())
    return np.array([rows[i] for i in generator.permutation(len(rows))], dtype=np.bool_).reshape(-1, len(mask))
