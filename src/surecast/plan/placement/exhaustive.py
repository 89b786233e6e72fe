"""Every placement evaluated: in pieces that are saved on the way, so that an interrupted plan is continued."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import IO, Final

import numpy as np
from numpy.typing import NDArray

from surecast.errors import AssumptionError, ConfigurationError
from surecast.plan.placement.evaluate import as_evaluation, checked_algorithms, figures_of
from surecast.plan.placement.goals import Constraints, checked_objectives
from surecast.plan.placement.plan import FRONT, PlacementPlan, judged, needs_headroom
from surecast.plan.placement.problem import PlacementProblem
from surecast.plan.placement.reliability import PlacementReliability
from surecast.report.files import write_whole

__all__ = ["CASES_MAX", "count_placements", "plan_placement"]

Array = NDArray[np.float64]
Masks = NDArray[np.bool_]
Progress = Callable[[int, int], None]

CASES_MAX: Final = 2_500_000
"""Placements times algorithms up to which all are evaluated."""
_CHUNK = 256
_HEAD = "plan.json"


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
    `reliability`. Pieces are saved in the folder `checkpoint` on the way; a plan that was interrupted goes on from
    there and gives the same result, unless `resume` is false. `workers` processes share the work, also with the same
    result.

    >>> from surecast.plan.placement import *
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
    folder = None if checkpoint is None else Path(checkpoint)
    if folder is not None:
        _open_folder(folder, _fingerprint(problem, masks, chosen, headroom), resume)
    figures = _figures(problem, masks, chosen, headroom, folder, workers, progress)
    evaluation = as_evaluation(problem, masks, chosen, figures)
    plan = judged(problem, evaluation, objective, limits, fronts, reliability, exact=True)
    if folder is not None:
        shutil.rmtree(folder)
    return plan


def count_placements(problem: PlacementProblem, constraints: Constraints) -> int:
    """How many placements have at most so many brokers as the constraints allow."""
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
    """All placements within the limits: by number of brokers, then in the order of the candidates."""
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
    folder: Path | None,
    workers: int,
    progress: Progress | None,
) -> Array:
    """The figures of all placements, piece by piece; pieces found in the folder are not computed again."""
    from surecast.predict.capacity.kernel import FIGURES

    figures = np.empty((len(masks), len(algorithms), len(FIGURES)))
    starts = range(0, len(masks), _CHUNK)
    missing = []
    for start in starts:
        part = figures[start : start + _CHUNK]
        saved = None if folder is None else _load(folder, start, part.shape)
        if saved is None:
            missing.append(start)
        else:
            part[:] = saved
    done = len(masks) - sum(min(_CHUNK, len(masks) - start) for start in missing)
    if progress is not None:
        progress(done, len(masks))
    pieces = [masks[start : start + _CHUNK] for start in missing]
    with _runner(problem, algorithms, headroom, workers) as run:
        for start, found in zip(missing, run(pieces), strict=True):
            figures[start : start + _CHUNK] = found
            if folder is not None:
                write_whole(_piece(folder, start), _writer(found))
            done += len(found)
            if progress is not None:
                progress(done, len(masks))
    return figures


@contextmanager
def _runner(
    problem: PlacementProblem, algorithms: tuple[str, ...], headroom: bool, workers: int
) -> Iterator[Callable[[list[Masks]], Iterator[Array]]]:
    """Something that evaluates pieces and yields what it finds in order, in this process or in several."""
    if workers <= 1:
        yield lambda pieces: (figures_of(problem, piece, algorithms, headroom) for piece in pieces)
        return
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import active_children, get_context

    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:

        def run(pieces: list[Masks]) -> Iterator[Array]:
            futures = [pool.submit(figures_of, problem, piece, algorithms, headroom) for piece in pieces]
            return (future.result() for future in futures)

        before = {child.pid for child in active_children()}
        try:
            yield run
        except BaseException:
            # Interrupted or failed: running workers would otherwise go on to the end of their pieces.
            pool.shutdown(wait=False, cancel_futures=True)
            for process in active_children():
                if process.pid not in before:
                    process.terminate()
            raise


def _fingerprint(problem: PlacementProblem, masks: Masks, algorithms: tuple[str, ...], headroom: bool) -> str:
    digest = hashlib.sha256(problem.fingerprint.encode())
    digest.update(np.packbits(masks).tobytes())
    digest.update(repr((masks.shape, algorithms, headroom, _CHUNK)).encode())
    return digest.hexdigest()


def _open_folder(folder: Path, fingerprint: str, resume: bool) -> None:
    """Makes the folder for a plan, or finds the one it was interrupted with; refuses what belongs to another plan."""
    head = folder / _HEAD
    if folder.exists():
        known = _read_head(head)
        if known is None and (not folder.is_dir() or any(folder.iterdir())):
            raise ConfigurationError(f"{folder} is no folder of an interrupted plan; name another, or remove it")
        if resume and known is not None and known != fingerprint:
            raise ConfigurationError(
                f"{folder} was left by a plan of another scenario or with other options; start anew with resume=False "
                "(--no-resume), or remove it"
            )
        if resume and known is not None:
            return
        shutil.rmtree(folder)
    try:
        folder.mkdir()
    except OSError as error:
        raise ConfigurationError(f"{folder}: the folder cannot be made: {error.strerror or error}") from error
    text = json.dumps({"plan": fingerprint})
    write_whole(head, lambda file: file.write(text.encode()))


def _read_head(head: Path) -> str | None:
    try:
        return str(json.loads(head.read_text(encoding="utf-8"))["plan"])
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _piece(folder: Path, start: int) -> Path:
    return folder / f"placements-{start:09d}.npy"


def _writer(found: Array) -> Callable[[IO[bytes]], object]:
    return lambda file: np.save(file, found)


def _load(folder: Path, start: int, shape: tuple[int, ...]) -> Array | None:
    """A saved piece; None where there is none, or not a whole one."""
    try:
        found = np.load(BytesIO(_piece(folder, start).read_bytes()))
    except (OSError, ValueError, EOFError):
        return None
    return found if found.shape == shape else None
