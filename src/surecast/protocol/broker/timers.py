"""Timers: things to do later, in order of time."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from math import inf
from typing import Final

__all__ = ["Timers"]

_STALE_MIN: Final = 1_000


class Timers:
    """Appointments, one for each kind and key: the earliest that was asked for.

    Whoever is called looks whether it still matters, and makes a new appointment where it was too early. So there are
    never more of them than things to look at, however often something is put off.

    >>> timers = Timers()
    >>> timers.add(5.0, "will", "ann")
    >>> timers.add(2.0, "session", "bob")
    >>> timers.add(9.0, "session", "bob")
    >>> timers.next_at(), list(timers.due(3.0)), timers.next_at()
    (2.0, [('session', 'bob')], 5.0)
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, str, str | int]] = []
        self._planned: dict[tuple[str, str | int], tuple[float, int]] = {}
        self.count = 0

    def __len__(self) -> int:
        return len(self._planned)

    def add(self, at: float, kind: str, key: str | int) -> None:
        """Makes an appointment, unless there is an earlier one for the same."""
        planned = self._planned.get((kind, key))
        if planned is not None and planned[0] <= at:
            return
        self.count += 1
        self._planned[kind, key] = (at, self.count)
        heapq.heappush(self._heap, (at, self.count, kind, key))
        self._tidy()

    def cancel(self, kind: str, key: str | int) -> None:
        """Takes an appointment back, if there is one."""
        if self._planned.pop((kind, key), None) is not None:
            self._tidy()

    def next_at(self) -> float:
        """When the first one is, or one that was taken back; infinite where there is none."""
        return self._heap[0][0] if self._heap else inf

    def entries(self) -> list[tuple[float, int, str, str | int, bool]]:
        """All of them in order: time, number, kind, key, and whether it is not one that was taken back."""
        planned = self._planned
        return [(*entry, planned.get(entry[2:]) == entry[:2]) for entry in sorted(self._heap)]

    def adopt(self, entries: Iterable[tuple[float, int, str, str | int, bool]]) -> None:
        """Takes over the `entries` of another."""
        for at, number, kind, key, is_planned in entries:
            heapq.heappush(self._heap, (at, number, kind, key))
            if is_planned:
                self._planned[kind, key] = (at, number)

    def due(self, now: float) -> list[tuple[str, str | int]]:
        """Takes out those whose time has come."""
        due = []
        while self._heap and self._heap[0][0] <= now:
            at, count, kind, key = heapq.heappop(self._heap)
            if self._planned.get((kind, key)) == (at, count):
                del self._planned[kind, key]
                due.append((kind, key))
        return due

    def _tidy(self) -> None:
        """Makes the heap anew once most of it is no longer planned, so that its size stays in proportion."""
        if len(self._heap) > _STALE_MIN + 2 * len(self._planned):
            self._heap = [(at, count, kind, key) for (kind, key), (at, count) in self._planned.items()]
            heapq.heapify(self._heap)
