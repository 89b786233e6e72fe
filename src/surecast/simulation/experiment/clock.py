"""Virtual time: what happens next, in an order that depends on nothing but the seed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from math import inf
from typing import Any, Final

from surecast.errors import SurecastError

__all__ = ["CLIENTS", "FIRST", "NETWORK", "TIMERS", "Clock", "SafetyError"]


class SafetyError(SurecastError):
    """The protocol broke a promise. The message says which, when, and how to see it again."""

    def __init__(self, what: str, time_s: float, replay: str):
        self.what = what
        self.time_s = time_s
        self.replay = replay
        super().__init__(f"at virtual time {time_s!r} s: {what}; replay: {replay}")


FIRST: Final = -1
"""Before all else at its moment."""
NETWORK: Final = 0
"""Messages, failures and repairs: what happens in no time is over before any timer goes off."""
TIMERS: Final = 1
"""Timers of brokers."""
CLIENTS: Final = 2
"""Publishers and subscribers: they find the network at rest where it has no latency."""

Action = Callable[..., None]


class Clock:
    """A heap of things to do by time, rank and number; things to do at once in the network wait in a plain queue.

    >>> clock, heard = Clock(), []
    >>> clock.at(2.0, CLIENTS, heard.append, "later")
    >>> clock.at(1.0, CLIENTS, heard.append, "client")
    >>> clock.at(1.0, NETWORK, heard.append, "network")
    >>> clock.run(until_s=1.5)
    True
    >>> heard, clock.now, clock.steps, len(clock)
    (['network', 'client'], 1.5, 2, 1)
    """

    __slots__ = ("_at_once", "_heap", "_number", "now", "steps")

    def __init__(self, start_s: float = 0.0) -> None:
        self.now = start_s
        self.steps = 0
        self._number = 0
        self._heap: list[tuple[float, int, int, Action, tuple[Any, ...]]] = []
        self._at_once: deque[tuple[int, Action, tuple[Any, ...]]] = deque()

    def __len__(self) -> int:
        """Returns the number of actions still to be done."""
        return len(self._heap) + len(self._at_once)

    def at(self, time_s: float, rank: int, action: Action, *arguments: Any) -> None:
        """Does something at a time, not before now."""
        self._number = number = self._number + 1
        if time_s > self.now:
            if time_s < inf:
                heappush(self._heap, (time_s, rank, number, action, arguments))
        elif rank:
            heappush(self._heap, (self.now, rank, number, action, arguments))
        else:
            self._at_once.append((number, action, arguments))

    def run(self, until_s: float, most: int | None = None) -> bool:
        """Lets time pass, including all that happens at its very end; False where `most` things came before that.

        Without an end time stands still at the last thing that happened.
        """
        heap, at_once = self._heap, self._at_once
        left = inf if most is None else most
        done = 0
        try:
            while done < left:
                if at_once:
                    if heap and heap[0][0] <= self.now and heap[0][1] <= NETWORK and heap[0][2] < at_once[0][0]:
                        _, _, _, action, arguments = heappop(heap)
                    else:
                        _, action, arguments = at_once.popleft()
                elif heap and heap[0][0] <= until_s:
                    self.now, _, _, action, arguments = heappop(heap)
                else:
                    if until_s < inf:
                        self.now = max(self.now, until_s)
                    return True
                done += 1
                action(*arguments)
            return False
        finally:
            self.steps += done

    def waiting(self) -> Iterator[tuple[Any, ...]]:
        """The arguments of all that is still to be done, in no order."""
        yield from (entry[4] for entry in self._heap)
        yield from (entry[2] for entry in self._at_once)
