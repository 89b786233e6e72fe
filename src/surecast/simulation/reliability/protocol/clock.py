"""Virtual time: what happens next, in an order that depends on nothing but the seed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from math import inf
from typing import Final

__all__ = ["CLIENTS", "NETWORK", "TIMERS", "Clock"]

NETWORK: Final = 0
"""Messages, failures and repairs: what happens in no time is over before any timer goes off."""
TIMERS: Final = 1
"""Timers of brokers."""
CLIENTS: Final = 2
"""What publishers and subscribers do: they meet a network at rest where it has no latency."""

Action = Callable[..., None]


class Clock:
    """A heap of things to do by time, rank and number; things to do at once in the network wait in a plain queue.

    >>> clock, heard = Clock(), []
    >>> clock.at(2.0, CLIENTS, heard.append, "later")
    >>> clock.at(1.0, CLIENTS, heard.append, "client")
    >>> clock.at(1.0, NETWORK, heard.append, "network")
    >>> clock.run(until_s=1.5)
    >>> heard, clock.now
    (['network', 'client'], 1.5)
    """

    def __init__(self, start_s: float = 0.0) -> None:
        self.now = start_s
        self.steps = 0
        self._number = 0
        self._heap: list[tuple[float, int, int, Action, tuple[object, ...]]] = []
        self._at_once: deque[tuple[int, Action, tuple[object, ...]]] = deque()

    def at(self, time_s: float, rank: int, action: Action, *arguments: object) -> None:
        """Does something at a time, not before now."""
        self._number += 1
        if rank == NETWORK and time_s <= self.now:
            self._at_once.append((self._number, action, arguments))
        elif time_s < inf:
            heappush(self._heap, (max(time_s, self.now), rank, self._number, action, arguments))

    def run(self, until_s: float) -> None:
        """Lets time pass, including all that happens at the very end of it."""
        heap, at_once = self._heap, self._at_once
        while True:
            if at_once:
                if heap and heap[0][0] <= self.now and heap[0][1] == NETWORK and heap[0][2] < at_once[0][0]:
                    _, _, _, action, arguments = heappop(heap)
                else:
                    _, action, arguments = at_once.popleft()
            elif heap and heap[0][0] <= until_s:
                self.now, _, _, action, arguments = heappop(heap)
            else:
                break
            self.steps += 1
            action(*arguments)
        self.now = max(self.now, until_s)
