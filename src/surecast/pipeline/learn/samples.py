"""Times as logs show them: some ended, some cut off by the end of what was observed, equal ones counted together."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surecast.errors import ConfigurationError

__all__ = ["ObservedPeriod", "Times", "periods_of"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ObservedPeriod:
    """An interval in one state. `start_seen` and `end_seen`: whether it began and ended there, or was in sight only
    from or until there."""

    up: bool
    start_s: float
    end_s: float
    start_seen: bool = True
    end_seen: bool = True

    @property
    def length_s(self) -> float:
        return self.end_s - self.start_s


@dataclass(frozen=True, eq=False)
class Times:
    """Lengths of time, each with a count and whether it ended.

    `residual_ends` and `residual_s` are of times whose beginning was not seen: how many of them ended, and how long
    they were in sight. They count for memoryless times only; what else they say depends on the unknown beginning.

    >>> times = Times.of([3.0, 5.0], cut_off_s=[4.0])
    >>> times.ends, times.total_s
    (2.0, 12.0)
    """

    value_s: Array
    count: Array
    ended: NDArray[np.bool_]
    residual_ends: float = 0.0
    residual_s: float = 0.0

    def __post_init__(self) -> None:
        if not (len(self.value_s) == len(self.count) == len(self.ended)):
            raise ConfigurationError("times: value_s, count and ended must be equally long")
        if len(self.value_s) and not (np.isfinite(self.value_s).all() and (self.value_s > 0).all()):
            raise ConfigurationError("times: every length must be above 0 and finite")

    @classmethod
    def of(
        cls,
        ended_s: Sequence[float] | Array,
        cut_off_s: Sequence[float] | Array = (),
        residual_ends: float = 0.0,
        residual_s: float = 0.0,
    ) -> Times:
        """Returns times from lists of those that ended and those that were cut off."""
        value = np.concatenate([np.asarray(ended_s, dtype=np.float64), np.asarray(cut_off_s, dtype=np.float64)])
        ended = np.arange(len(value)) < len(ended_s)
        positive = value > 0
        return cls(value[positive], np.ones(int(positive.sum())), ended[positive], residual_ends, residual_s)

    @classmethod
    def of_periods(cls, periods: Iterable[ObservedPeriod]) -> Times:
        """Returns times of periods in one state."""
        whole: list[float] = []
        cut: list[float] = []
        residual_ends, residual_s = 0, 0.0
        for period in periods:
            if not period.start_seen:
                residual_ends += period.end_seen
                residual_s += period.length_s
            else:
                (whole if period.end_seen else cut).append(period.length_s)
        return cls.of(whole, cut, residual_ends, residual_s)

    @property
    def ends(self) -> float:
        """The number of times that ended, of those whose beginning was observed."""
        return float(self.count[self.ended].sum())

    @property
    def cut_off(self) -> float:
        """The number of times that the end of the observation cut off."""
        return float(self.count[~self.ended].sum())

    @property
    def total_s(self) -> float:
        return float(self.count @ self.value_s)

    def joined(self, other: Times) -> Times:
        """Returns both together."""
        return Times(
            np.concatenate([self.value_s, other.value_s]),
            np.concatenate([self.count, other.count]),
            np.concatenate([self.ended, other.ended]),
            self.residual_ends + other.residual_ends,
            self.residual_s + other.residual_s,
        )


def periods_of(
    intervals: Sequence[tuple[bool, float, float]], gaps: bool | None, window: tuple[float, float] | None = None
) -> list[ObservedPeriod]:
    """Returns the periods of one component from its intervals (up, start, end).

    `gaps` is the state between intervals: False where a trace lists times up only, True where it lists times down
    only, None where nobody knows. Intervals of one state that touch or overlap are one. With `window`, a trace that
    lists times up is known to have watched from its start to its end.

    >>> [(p.up, p.length_s, p.start_seen, p.end_seen) for p in periods_of([(True, 2, 5), (True, 6, 9)], False, (0, 9))]
    [(False, 2, False, True), (True, 3, True, True), (False, 1, True, True), (True, 3, True, False)]
    """
    joined: list[tuple[bool, float, float]] = []
    for up, start, end in sorted((each for each in intervals if each[2] > each[1]), key=lambda each: each[1:]):
        if joined and joined[-1][0] == up and start <= joined[-1][2]:
            joined[-1] = (up, joined[-1][1], max(end, joined[-1][2]))
        elif joined and start < joined[-1][2]:
            # Two states at once: the later record is taken from where the earlier one ends.
            if end > joined[-1][2]:
                joined.append((up, joined[-1][2], end))
        else:
            joined.append((up, start, end))
    if gaps is not None:
        joined = _filled([each for each in joined if each[0] != gaps], gaps, window)
    periods = []
    for i, (up, start, end) in enumerate(joined):
        start_seen = i > 0 and joined[i - 1][2] == start and joined[i - 1][0] != up
        end_seen = i + 1 < len(joined) and joined[i + 1][1] == end and joined[i + 1][0] != up
        # Where only one state is listed, its first and last interval are whole unless the window cuts them.
        if gaps is not None and window is None:
            start_seen, end_seen = True, True
        periods.append(ObservedPeriod(up, start, end, start_seen, end_seen))
    return periods


def _filled(
    listed: list[tuple[bool, float, float]], gaps: bool, window: tuple[float, float] | None
) -> list[tuple[bool, float, float]]:
    """Returns the intervals together with the gaps between them, and before and after them within the window."""
    filled: list[tuple[bool, float, float]] = []
    for before, after in itertools.pairwise(listed):
        filled += [before, (gaps, before[2], after[1])] if after[1] > before[2] else [before]
    filled += listed[-1:]
    if window is not None and filled:
        if filled[0][1] > window[0]:
            filled.insert(0, (gaps, window[0], filled[0][1]))
        if filled[-1][2] < window[1]:
            filled.append((gaps, filled[-1][2], window[1]))
    return filled
