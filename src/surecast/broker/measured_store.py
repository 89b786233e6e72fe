"""A store whose commits are timed, for the metrics of a broker."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from surecast.broker.store import Durability, Operation, Store, StoreStatistics

__all__ = ["BOUNDS_S", "MeasuredStore"]

BOUNDS_S = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)


class MeasuredStore:
    """A store that measures how long its commits take.

    >>> from surecast.broker.store import MemoryStore
    >>> store = MeasuredStore(MemoryStore())
    >>> store.commit([(b"key", b"value")])
    >>> sum(store.counts)
    1
    """

    def __init__(self, store: Store):
        self._store = store
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.total_s = 0.0
        self._written_s = 0.0

    @property
    def folder(self) -> Path | None:
        """The folder that it is in, and locks; None where it is in memory only."""
        return self._store.folder

    @property
    def durability(self) -> Durability:
        """The failures that a commit survives once it has returned."""
        return self._store.durability

    def commit(self, operations: Iterable[Operation]) -> None:
        """Commits, and takes the time."""
        begun = time.perf_counter()
        self._store.commit(operations)
        self._note(time.perf_counter() - begun)

    def write(self, operations: Iterable[Operation]) -> None:
        """Writes, and takes the time, which counts as a part of that until the next `barrier` is over."""
        begun = time.perf_counter()
        self._store.write(operations)
        self._written_s += time.perf_counter() - begun

    def barrier(self) -> Callable[[], None] | None:
        """Returns what makes all that was written durable, and takes the time."""
        sync, took_s = self._store.barrier(), self._written_s
        self._written_s = 0.0
        if sync is None:
            if took_s:
                self._note(took_s)
            return None
        return partial(self._sync, sync, took_s)

    def _sync(self, sync: Callable[[], None], took_s: float) -> None:
        begun = time.perf_counter()
        sync()
        self._note(took_s + time.perf_counter() - begun)

    def _note(self, took_s: float) -> None:
        self.counts[bisect_left(BOUNDS_S, took_s)] += 1
        self.total_s += took_s

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """Every live pair once."""
        return self._store.items()

    def statistics(self) -> StoreStatistics:
        """The present size."""
        return self._store.statistics()

    @property
    def warnings(self) -> tuple[str, ...]:
        """Returns what the store found when it was opened, in words."""
        return self._store.warnings

    def close(self) -> None:
        """Lets go of the files."""
        self._store.close()
