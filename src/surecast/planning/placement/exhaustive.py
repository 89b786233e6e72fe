"""Every placement evaluated: in pieces that are saved on the way, so that an interrupted plan is continued."""

from __future__ import annotations

import hashlib
import itertools
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from surecast.errors import AssumptionError, ConfigurationError
from surecast.planning.placement.evaluate import as_evaluation, checked_algorithms, figures_of
from surecast.planning.placement.goals import Constraints, checked_objectives
from surecast.planning.placement.pieces import WorkFolder, work_folder
from surecast.planning.placement.placement_plan import FRONT, PlacementPlan, judged, needs_headroom
from surecast.planning.placement.placement_reliability import PlacementReliability
from surecast.planning.placement.problem import PlacementProblem

__all__ = ["CASES_MAX", "count_placements", "plan_placement"]

Array = NDArray[np.float64]
Masks = NDArray[np.bool_]
Progress = Callable[[int, int], None]

CASES_MAX: Final = 2_500_000
"""Placements times algorithms up to which all are evaluated."""
_STEP_S = 0.25
_FIRST_STEP = 8
_STEP_MAX = 16_384


def plan_placement(
    problem: PlacementProblem,
    *,
    objective: str = "worst-delay",
    constraints: Constraints | None = None,
    algorithms: Sequence[str] | None = None,
    front: Sequence[str] = FRONT,
    reliability: PlacementReliability | None = None,
    progress: Progress | None = None,
    workers: int = 1,
    checkpoint: Path | str | None = None,
    resume: bool = True,
) -> PlacementPlan:
    """Evaluates every placement that `max_brokers` and `max_cost` allow and finds the best.

    `objective` is one of `OBJECTIVES`, `front` those that the Pareto front is over. A reliability target needs
    `reliability`. About every second a piece is saved in the folder `checkpoint`; a plan that was interrupted goes on
    from there and gives the same result, unless `resume` is false. One plan at a time may use the folder. `workers`
    processes share the work, also with the same result. `progress` is told how many placements of how many are
    evaluated, and then how many are judged by their reliability.

    >>> from surecast.planning.placement import *
    >>> from surecast.scenario import load_system
    >>> scenario, system = load_system("examples/company.yaml")
    >>> plan = plan_placement(placement_problem(system, scenario), constraints=Constraints(max_brokers=2))
    >>> plan.evaluations, plan.feasible_count, plan.best.brokers, plan.best.algorithm
    (55, 23, ('office-6', 'office-9'), 'peer-to-peer identity')
    """
    limits = Constraints() if constraints is None else constraints
    checked_objectives([objective])
    fronts, chosen = checked_objectives(front), checked_algorithms(algorithms)
    if limits.min_reliability is not None and reliability is None:
        raise ConfigurationError("min_reliability needs reliability=PlacementReliability(problem, system, scenario)")
    count = count_placements(problem, limits)
    if count * len(chosen) > CASES_MAX:
        raise AssumptionError(
            f"{len(problem.candidates)} candidates have {count:,} placements; with {len(chosen)} algorithms that is "
            f"more than the {CASES_MAX:,} cases that are all evaluated; give max_brokers, or use search_placement"
        )
    headroom = needs_headroom(objective, limits, fronts)
    masks = _masks(problem, limits)
    with (
        nullcontext()
        if checkpoint is None
        else work_folder(Path(checkpoint), _fingerprint(problem, masks, chosen, headroom), resume) as folder
    ):
        figures = _figures(problem, masks, chosen, headroom, folder, workers, progress)
        if folder is not None:
            folder.save()
        evaluation = as_evaluation(problem, masks, chosen, figures)
        return judged(problem, evaluation, objective, limits, fronts, reliability, exact=True, progress=progress)


def count_placements(problem: PlacementProblem, constraints: Constraints) -> int:
    """Returns the number of placements that have at most as many brokers as the constraints allow."""
    count = len(problem.candidates)
    return sum(math.comb(count, size) for size in range(1, _size_max(problem, constraints) + 1))


def _size_max(problem: PlacementProblem, constraints: Constraints) -> int:
    most = len(problem.candidates)
    if constraints.max_cost is not None:
        most = int((np.cumsum(np.sort(problem.costs)) <= constraints.max_cost).sum())
    if constraints.max_brokers is not None:
        most = min(most, int(constraints.max_brokers))
    return most


def _masks(problem: PlacementProblem, constraints: Constraints) -> Masks:
    """Returns all placements within the limits: by number of brokers, then in the order of the candidates."""
    candidates = len(problem.candidates)
    parts = []
    for size in range(1, _size_max(problem, constraints) + 1):
        chosen = np.fromiter(
            itertools.chain.from_iterable(itertools.combinations(range(candidates), size)), dtype=np.intp
        ).reshape(-1, size)
        part = np.zeros((len(chosen), candidates), dtype=np.bool_)
        part[np.arange(len(chosen))[:, None], chosen] = True
        parts.append(part)
    masks = np.concatenate(parts) if parts else np.zeros((0, candidates), dtype=np.bool_)
    if constraints.max_cost is not None:
        masks = masks[masks @ problem.costs <= constraints.max_cost]
    if not len(masks):
        raise AssumptionError("no placement is within max_cost and max_brokers; even one broker costs more")
    return np.ascontiguousarray(masks)


def _figures(
    problem: PlacementProblem,
    masks: Masks,
    algorithms: tuple[str, ...],
    headroom: bool,
    folder: WorkFolder | None,
    workers: int,
    progress: Progress | None,
) -> Array:
    """Returns the figures of all placements, step by step; figures in the folder are not computed again."""
    from surecast.prediction.capacity.placement_kernel import FIGURES

    figures = np.empty((len(masks), len(algorithms), len(FIGURES)))
    computed = np.zeros(len(masks), dtype=np.bool_) if folder is None else folder.read(figures)
    done = int(computed.sum())
    if progress is not None:
        progress(done, len(masks))
    with _runner(problem, algorithms, headroom, workers) as run:
        for start, piece in run(masks, _Steps(computed)):
            figures[start : start + len(piece)] = piece
            if folder is not None:
                folder.add(start, piece)
            done += len(piece)
            if progress is not None:
                progress(done, len(masks))
    return figures


class _Steps:
    """Cuts the placements that are not known yet into steps of about a quarter of a second, by how long others took."""

    def __init__(self, computed: NDArray[np.bool_]):
        edges = np.flatnonzero(np.diff(np.concatenate([[True], computed, [True]]).astype(np.int8)))
        self._gaps = deque(edges.reshape(-1, 2).tolist())
        self._size = _FIRST_STEP

    def next(self) -> tuple[int, int] | None:
        """Returns the first placement of the next step and the one after its last; None at the end."""
        if not self._gaps:
            return None
        start, end = self._gaps.popleft()
        stop = min(start + self._size, end)
        if stop < end:
            self._gaps.appendleft([stop, end])
        return start, stop

    def took(self, count: int, seconds: float) -> None:
        """Sets the size of what follows; it grows at most fourfold at once."""
        wanted = _STEP_S / max(seconds, 1e-6) * count
        self._size = max(1, min(int(wanted), 4 * self._size, _STEP_MAX))


@contextmanager
def _runner(
    problem: PlacementProblem, algorithms: tuple[str, ...], headroom: bool, workers: int
) -> Iterator[Callable[[Masks, _Steps], Iterator[tuple[int, Array]]]]:
    """Returns a function that evaluates steps and yields their figures in order, in this process or in several."""
    if workers <= 1:

        def run_here(masks: Masks, steps: _Steps) -> Iterator[tuple[int, Array]]:
            while (step := steps.next()) is not None:
                figures, seconds = _timed(problem, masks[slice(*step)], algorithms, headroom)
                steps.took(len(figures), seconds)
                yield step[0], figures

        yield run_here
        return
    from concurrent.futures import Future

    from surecast.workers import worker_pool

    with worker_pool(workers) as pool:

        def run_there(masks: Masks, steps: _Steps) -> Iterator[tuple[int, Array]]:
            waiting: deque[tuple[int, Future[tuple[Array, float]]]] = deque()
            while True:
                while len(waiting) < 2 * workers and (step := steps.next()) is not None:
                    part = masks[slice(*step)]
                    waiting.append((step[0], pool.submit(_timed, problem, part, algorithms, headroom)))
                if not waiting:
                    return
                start, future = waiting.popleft()
                figures, seconds = future.result()
                steps.took(len(figures), seconds)
                yield start, figures

        yield run_there


def _timed(problem: PlacementProblem, masks: Masks, algorithms: tuple[str, ...], headroom: bool) -> tuple[Array, float]:
    """Returns the figures of placements, and how long they took."""
    began_s = time.perf_counter()
    figures = figures_of(problem, masks, algorithms, headroom)
    return figures, time.perf_counter() - began_s


def _fingerprint(problem: PlacementProblem, masks: Masks, algorithms: tuple[str, ...], headroom: bool) -> str:
    digest = hashlib.sha256(problem.fingerprint.encode())
    digest.update(np.packbits(masks).tobytes())
    digest.update(repr((masks.shape, algorithms, headroom)).encode())
    return digest.hexdigest()
