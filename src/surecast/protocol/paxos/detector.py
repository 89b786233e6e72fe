"""The failure detector: a replica not heard of for a while is suspected. It may be wrong; only liveness rests on it.

Two things tell a slow machine from a dead peer. Time in which this replica itself did not run counts against nobody:
what its peers said meanwhile is still unread. And a peer that was heard in larger and larger steps is given more time.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

__all__ = ["Detector"]

_STEPS = 2.0
"""A peer is suspected after so many times the longest silence that it lately broke, or after `suspect_s`."""
_PATIENCE = 8.0
"""And after so many times `suspect_s` in any case."""
_FORGET_S = 20.0
"""The time until an unusually long silence is forgotten."""


class Detector:
    """Remembers when each replica was heard last, and how long it is usually silent.

    >>> detector = Detector(suspect_s=1.0)
    >>> detector.hear(2, now=5.0)
    >>> detector.alive([1, 2], now=5.9), detector.alive([1, 2], now=6.1)
    ([2], [])
    >>> detector.excuse(0.5, now=6.1)  # of the time since then this replica slept half a second
    >>> detector.alive([1, 2], now=6.4), detector.alive([1, 2], now=6.6)
    ([2], [])
    """

    def __init__(self, suspect_s: float):
        self.suspect_s = suspect_s
        self.heard_s: dict[int, float] = {}
        self.silences: dict[int, tuple[float, float]] = {}
        self._notable_s = suspect_s / _STEPS
        self._longest_s = _PATIENCE * suspect_s

    def hear(self, replica: int, now: float) -> None:
        """Any message is a sign that it is up."""
        silence_s = now - self.heard_s.get(replica, now)
        if self._notable_s < silence_s <= self._longest_s and _STEPS * silence_s > self.patience_s(replica, now):
            self.silences[replica] = (silence_s, now)  # after a longer one it was away, not slow
        self.heard_s[replica] = now

    def meet(self, replica: int, now: float) -> None:
        """A replica has connected anew: it is there, and its silence before says nothing about how slow it is."""
        self.heard_s[replica] = now

    def patience_s(self, replica: int, now: float) -> float:
        """Returns how long a replica may be silent before it is suspected."""
        silence = self.silences.get(replica)
        if silence is None:
            return self.suspect_s
        silence_s, at_s = silence
        patience_s = _STEPS * silence_s * (1.0 - (now - at_s) / _FORGET_S)
        if patience_s <= self.suspect_s:
            del self.silences[replica]
        return min(max(self.suspect_s, patience_s), self._longest_s)

    def excuse(self, late_s: float, now: float) -> None:
        """This replica did not run for so long: its peers may have said something that it has not read yet."""
        for replica, heard_s in self.heard_s.items():
            self.heard_s[replica] = min(now, heard_s + late_s)

    def alive(self, replicas: Iterable[int], now: float) -> list[int]:
        """Those not suspected."""
        heard_s = self.heard_s
        return [one for one in replicas if heard_s.get(one, -inf) >= now - self.patience_s(one, now)]
