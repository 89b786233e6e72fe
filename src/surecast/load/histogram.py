"""A histogram of times whose classes are everywhere 0.8 % wide or narrower, in the manner of HdrHistogram."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

__all__ = ["SAMPLES_MAX", "Histogram"]

_BITS: Final = 7
_HALF: Final = 1 << _BITS

SAMPLES_MAX: Final = 4
"""Of the times that are noted together, so many are looked at, evenly spread; each stands for its neighbours."""


class Histogram:
    """Counts of times in whole nanoseconds. A time is known to within 0.4 % of itself.

    >>> times = Histogram()
    >>> times.add(1_000_000, 3)
    >>> times.add(2_000_000)
    >>> times.count, round(times.quantile_s(0.5) * 1e3, 1), round(times.mean_s() * 1e3, 2), times.max_s
    (4, 1.0, 1.25, 0.002)
    """

    __slots__ = ("_counts", "_largest", "_sum", "count")

    def __init__(self) -> None:
        self.count = 0
        self._counts: dict[int, int] = {}
        self._sum = 0
        self._largest = 0

    def add(self, time_ns: int, count: int = 1) -> None:
        """Notes a time, or as many equal ones as there are; a negative one counts as 0."""
        time_ns = max(0, time_ns)
        shift = max(0, time_ns.bit_length() - _BITS - 1)
        index = (shift << _BITS) + (time_ns >> shift)
        self._counts[index] = self._counts.get(index, 0) + count
        self.count += count
        self._sum += time_ns * count
        self._largest = max(self._largest, time_ns)

    def add_since(self, now_ns: int, begins_ns: Sequence[int]) -> None:
        """Notes the times from many moments until now.

        >>> times = Histogram()
        >>> times.add_since(1_100, range(100, 1_100))
        >>> times.count
        1000
        """
        total = len(begins_ns)
        if total <= SAMPLES_MAX:
            for begin in begins_ns:
                self.add(now_ns - begin)
            return
        for sample in range(SAMPLES_MAX):
            first, end = sample * total // SAMPLES_MAX, (sample + 1) * total // SAMPLES_MAX
            self.add(now_ns - begins_ns[(first + end) // 2], end - first)

    def merge(self, other: Histogram) -> None:
        """Adds the counts of another histogram."""
        for index, count in other._counts.items():
            self._counts[index] = self._counts.get(index, 0) + count
        self.count += other.count
        self._sum += other._sum
        self._largest = max(self._largest, other._largest)

    @property
    def max_s(self) -> float:
        """The longest time, in seconds; NaN if there is none."""
        return self._largest / 1e9 if self.count else math.nan

    def mean_s(self) -> float:
        """Returns the mean, in seconds; NaN if there is no time."""
        return self._sum / self.count / 1e9 if self.count else math.nan

    def quantile_s(self, share: float) -> float:
        """Returns the time below or at which a share of all is, in seconds; NaN if there is no time."""
        wanted, below = max(1, math.ceil(share * self.count)), 0
        for index in sorted(self._counts):
            below += self._counts[index]
            if below >= wanted:
                return min(_middle_ns(index), self._largest) / 1e9
        return math.nan

    def classes(self) -> list[tuple[float, int]]:
        """Returns the middle of each class in seconds and its count, in order of time.

        >>> times = Histogram()
        >>> times.add(100, 2)
        >>> times.classes()
        [(1e-07, 2)]
        """
        return [(_middle_ns(index) / 1e9, self._counts[index]) for index in sorted(self._counts)]

    def as_dict(self) -> dict[str, object]:
        """Returns the figures and the classes, for JSON."""
        shares: Iterable[tuple[str, float]] = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999))
        return {
            "count": self.count,
            "mean_s": self.mean_s(),
            **{f"{name}_s": self.quantile_s(share) for name, share in shares},
            "max_s": self.max_s,
            "classes": [[time_s, count] for time_s, count in self.classes()],
        }


def _middle_ns(index: int) -> float:
    """Returns the middle of a class; below 256 ns each class is a single nanosecond."""
    shift = max(0, (index >> _BITS) - 1)
    return float((index - (shift << _BITS)) << shift) + ((1 << shift) - 1) / 2
