"""The failure detector: a replica not heard of for a while is suspected. It may be wrong; only liveness rests on it."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

__all__ = ["Detector"]


class Detector:
    """When each replica was heard last.

    >>> detector = Detector(suspect_s=1.0)
    >>> detector.hear(2, now=5.0)
    >>> detector.alive([1, 2], now=5.9), detector.alive([1, 2], now=6.1)
    ([2], [])
    """

    def __init__(self, suspect_s: float):
        self.suspect_s = suspect_s
        self.heard_s: dict[int, float] = {}

    def hear(self, replica: int, now: float) -> None:
        """Any message is a sign of life."""
        self.heard_s[replica] = now

    def alive(self, replicas: Iterable[int], now: float) -> list[int]:
        """Those not suspected."""
        since = now - self.suspect_s
        return [replica for replica in replicas if self.heard_s.get(replica, -inf) >= since]
