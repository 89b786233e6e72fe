"""Timers by name: each is set, moved and cleared by its key."""

from __future__ import annotations

import heapq
import math
from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["TimerQueue"]

K = TypeVar("K", bound=Hashable)


class TimerQueue(Generic[K]):
    """Timers by key. Those that are due come out in the order of their times.

    >>> alarms: TimerQueue[str] = TimerQueue()
    >>> alarms.set("b", 2.0), alarms.set("a", 1.0), alarms.set("b", 0.5)
    (None, None, None)
    >>> alarms.next(), alarms.due(1.5), alarms.next()
    (0.5, ['b', 'a'], inf)
    """

    def __init__(self) -> None:
        self._times: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._serial = 0

    def set(self, key: K, time_s: float) -> None:
        """Sets a timer, or moves it."""
        if self._times.get(key) == time_s:
            return
        self._times[key] = time_s
        self._serial += 1
        heapq.heappush(self._heap, (time_s, self._serial, key))
        if len(self._heap) > 4 * len(self._times) + 16:
            # Timers that are moved with every packet would otherwise leave an entry each.
            self._heap = [entry for entry in self._heap if self._times.get(entry[2]) == entry[0]]
            heapq.heapify(self._heap)

    def clear(self, key: K) -> None:
        """Clears a timer if it is set."""
        self._times.pop(key, None)

    def next(self) -> float:
        """Returns the time of the first timer; infinite if none is set."""
        while self._heap and self._times.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else math.inf

    def due(self, now: float) -> list[K]:
        """Returns the keys of the timers that are due, and clears these."""
        keys: list[K] = []
        while self.next() <= now:
            _, _, key = heapq.heappop(self._heap)
            del self._times[key]
            keys.append(key)
        return keys
