"""Independent runs of a simulation: a fixed number of them, or as many as it takes to know the figures well enough.

A run depends on the seed and its own number only: it draws from random streams that are named after both
(`scenario.Streams`). So runs can be done in any order and anywhere, and more runs only add to those before.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, TypeVar

from surecast.errors import ConfigurationError
from surecast.workers import worker_pool

__all__ = ["Extent", "Progress", "Replications", "check_at_least_one", "replicate", "replications", "until_known"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """The extent of a run: events from `warm_up_s` on, for `duration_s`, count.

    >>> Extent(duration_s=3600.0, warm_up_s=60.0, seed=1).end_s
    3660.0
    """

    duration_s: float
    warm_up_s: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.duration_s < math.inf:
            raise ConfigurationError(f"duration_s: {self.duration_s} must be above 0 and finite")
        if not 0 <= self.warm_up_s < math.inf:
            raise ConfigurationError(f"warm_up_s: {self.warm_up_s} must be 0 or more, and finite")

    @property
    def end_s(self) -> float:
        """The end of the time that counts."""
        return self.warm_up_s + self.duration_s


_COLLECTION_OBJECTS: Final = 100_000
"""So many new objects, and not 700, are looked through for garbage at a time."""

Progress = Callable[[int, int], None]
"""Called with the number of runs done and of all."""

R = TypeVar("R")
Job = tuple[Any, ...]
"""The arguments of one run besides the plan: its number, or more."""


class Replications(Generic[R]):
    """Does runs and tells of each that is done; `map_jobs` does jobs and yields their results in order."""

    def __init__(self, map_jobs: Callable[[Iterable[Job]], Iterator[R]], total: int, progress: Progress | None):
        self._map_jobs = map_jobs
        self._total = total
        self._progress = progress
        self._done = 0

    def each(self, jobs: Iterable[Job]) -> Iterator[R]:
        """Yields the results of jobs, in order."""
        for result in self._map_jobs(jobs):
            self._done += 1
            if self._progress is not None:
                self._progress(self._done, self._total)
            yield result

    def all(self, jobs: Iterable[Job]) -> list[R]:
        """The results of jobs, in order."""
        return list(self.each(jobs))

    def until(
        self,
        is_known: Callable[[list[R]], bool],
        *,
        first: int,
        most: int,
        job: Callable[[int], Job] = lambda run: (run,),
        stop: Callable[[], bool] | None = None,
    ) -> list[R]:
        """The results of runs 0, 1 and so on, as many as it takes, from `first` to `most`; at least two if it may."""
        results: list[R] = []
        begun = self._done

        def extend(count: int) -> None:
            results.extend(self.all(job(run) for run in range(len(results), len(results) + count)))

        until_known(extend, lambda: is_known(results), first=max(2, first), most=most, stop=stop)
        self._done = begun + most
        return results


@contextmanager
def replications(
    simulate: Callable[..., R],
    *,
    total: int,
    workers: int = 1,
    threads: bool = False,
    progress: Progress | None = None,
) -> Iterator[Replications[R]]:
    """Runs of `simulate`, in this process or shared by so many others, with the same results.

    With `threads` they are shared by threads of this process, which pays where the work is compiled.
    """
    work = simulate if threads else partial(_collecting_rarely, simulate)
    if workers <= 1:
        yield Replications(lambda jobs: (work(*job) for job in jobs), total, progress)
        return
    with worker_pool(workers, threads=threads) as pool:

        def map_jobs(jobs: Iterable[Job]) -> Iterator[R]:
            futures = [pool.submit(work, *job) for job in jobs]
            return (future.result() for future in futures)

        yield Replications(map_jobs, total, progress)


def _collecting_rarely(simulate: Callable[..., R], *job: Any) -> R:
    """Does a run with rare collections of garbage: a simulation keeps most of what it makes, and little of what it
    drops has cycles, so that looking at all of it again and again took up to half of the time."""
    before = gc.get_threshold()
    if before[0]:  # else the caller collects none
        gc.set_threshold(max(before[0], _COLLECTION_OBJECTS), *before[1:])
    try:
        return simulate(*job)
    finally:
        gc.set_threshold(*before)


def replicate(
    simulate: Callable[[int], R],
    runs: int,
    *,
    workers: int = 1,
    threads: bool = False,
    progress: Progress | None = None,
) -> list[R]:
    """The results of so many runs, in order; each is told its number.

    >>> replicate(lambda run: run * run, 4)
    [0, 1, 4, 9]
    """
    with replications(simulate, total=runs, workers=workers, threads=threads, progress=progress) as do:
        return do.all((run,) for run in range(runs))


def until_known(
    extend: Callable[[int], None],
    is_known: Callable[[], bool],
    *,
    first: int,
    most: int,
    more: Callable[[int], int] = lambda done: max(1, done // 4),
    stop: Callable[[], bool] | None = None,
) -> None:
    """Extends a simulation, from `first` to `most`, until its figures are known well enough or `stop` says so.

    Each time it is extended by `more` of what is done: a quarter, so that looking often costs little.

    >>> drawn = []
    >>> until_known(lambda count: drawn.extend([1] * count), lambda: len(drawn) > 20, first=8, most=100)
    >>> len(drawn)
    22
    """
    done = min(first, most)
    extend(done)
    while not is_known() and done < most and not (stop is not None and stop()):
        count = min(more(done), most - done)
        extend(count)
        done += count


def check_at_least_one(name: str, number: int) -> None:
    """Refuses a number of runs that is none."""
    if number < 1:
        raise ConfigurationError(f"{name}: {number} must be 1 or more")
