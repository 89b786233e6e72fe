"""Changes of failures while they are observed: drift between the halves of the observation, trends, change points.

Fitted intervals hold where a component goes on as it was. Machines do not: how often and for how long they fail drifts.
The drift of one machine cannot be told from chance; that of many together can, by how much further apart the two halves
of their observation are than chance makes them. Intervals are widened by it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surecast.pipeline.learn.samples import ObservedPeriod

__all__ = ["Change", "change_of", "drift_of", "trend_of", "widened"]

Array = NDArray[np.float64]

ENDS_MIN = 8
"""Failures below which no change is looked for."""
COMPONENTS_MIN = 3
"""Components below which no common drift is estimated."""
_CHANGE_AT = 16.0
"""A change point is told where twice the logarithm of the likelihood ratio is above this: about one in a thousand
without a change (D. Andrews, Econometrica 61, 1993)."""
_TREND_AT = 3.3
_EDGE = 0.15
"""No change is looked for in this share of the failures at either end."""
_AT_97_5 = 1.959963984540054


@dataclass(frozen=True, slots=True)
class Change:
    """A time at which failures became more or less frequent, and the mean time between them before and after."""

    at_s: float
    before_s: float
    after_s: float

    def __str__(self) -> str:
        means = f"from one in {self.before_s:.4g} s to one in {self.after_s:.4g} s"
        return f"at {self.at_s:.6g} s its failures changed, {means}"


def _mean_times(periods: Sequence[ObservedPeriod], up: bool) -> tuple[Array, float] | None:
    """Returns the differences of both halves: their ends and their time in a state, and the squared coefficient of
    variation of the times; None without any."""
    own = [period for period in periods if period.up == up]
    if not own or not periods:
        return None
    begin, end = min(p.start_s for p in periods), max(p.end_s for p in periods)
    middle = (begin + end) / 2.0
    halves = np.zeros((2, 2))
    for period in own:
        halves[0, 1] += max(0.0, min(period.end_s, middle) - period.start_s)
        halves[1, 1] += max(0.0, period.end_s - max(period.start_s, middle))
        if period.end_seen:
            halves[int(period.end_s > middle), 0] += 1.0
    whole = np.array([p.length_s for p in own if p.start_seen and p.end_seen])
    squared_cv = float(whole.var() / whole.mean() ** 2) if len(whole) > 1 and whole.mean() > 0.0 else 1.0
    return halves, max(squared_cv, 1.0)


def _log_ratio(halves: Array, squared_cv: float) -> tuple[float, float] | None:
    """Returns the logarithm of the ratio of the mean times of both halves, and its variance by chance."""
    if (halves[:, 1] <= 0.0).any() or halves[:, 0].sum() < 2.0:
        return None
    ends = halves[:, 0] + 0.5
    means = np.log(halves[:, 1] / ends)
    return float(means[1] - means[0]), float(squared_cv * (1.0 / ends).sum())


def drift_of(components: Sequence[Sequence[ObservedPeriod]], up: bool) -> float:
    """Returns the standard deviation of the logarithm of mean times up (or down) from one half of the observation to
    the next, beyond chance; 0 for too few components.

    >>> def alternating(length_s, count):
    ...     return [ObservedPeriod(i % 2 == 0, i * length_s, (i + 1) * length_s) for i in range(count)]
    >>> drift_of([alternating(5.0, 40)] * 3, True)
    0.0
    """
    pairs = [pair for pair in (_mean_times(periods, up) for periods in components) if pair is not None]
    found = [ratio for ratio in (_log_ratio(*pair) for pair in pairs) if ratio is not None]
    if len(found) < COMPONENTS_MIN:
        return 0.0
    ratios, chance = np.array(found).T
    # a drift makes what fails less often: to weight by how often something failed would hide it
    return math.sqrt(max(float(np.mean(ratios**2 - chance)), 0.0))


def widened(mean_s: float, low_s: float, high_s: float, drift: float) -> tuple[float, float]:
    """Returns the ends of an interval that has a drift in it, too.

    >>> widened(10.0, 5.0, 20.0, 0.0)
    (5.0, 20.0)
    """
    if drift <= 0.0 or not 0.0 < low_s <= mean_s <= high_s:
        return low_s, high_s
    below, above = (math.log(mean_s / low_s) / _AT_97_5, math.log(high_s / mean_s) / _AT_97_5)
    wider = [_AT_97_5 * math.hypot(width, drift) for width in (below, above)]
    return mean_s * math.exp(-wider[0]), mean_s * math.exp(wider[1])


def trend_of(periods: Sequence[ObservedPeriod]) -> float | None:
    """Returns by which factor failures became rarer from the first to the second half of the observation; None where
    that may be chance."""
    pair = _mean_times(periods, True)
    ratio = None if pair is None or pair[0][:, 0].sum() < ENDS_MIN else _log_ratio(*pair)
    if ratio is None or abs(ratio[0]) <= _TREND_AT * math.sqrt(ratio[1]):
        return None
    return math.exp(ratio[0])


def change_of(periods: Sequence[ObservedPeriod]) -> Change | None:
    """Returns the time at which the rate of failures changed most, where that is no chance.

    The likelihood of one rate is compared with that of two, before and after each failure, in time spent up.

    >>> rare = [ObservedPeriod(True, 10.0 * i, 10.0 * i + 10.0) for i in range(30)]
    >>> often = [ObservedPeriod(True, 300.0 + i, 301.0 + i) for i in range(60)]
    >>> change_of(rare) is None, str(change_of(rare + often))
    (True, 'at 300 s its failures changed, from one in 10 s to one in 1 s')
    """
    ups = sorted((p for p in periods if p.up), key=lambda p: p.start_s)
    lengths = np.array([p.length_s for p in ups])
    ended = np.array([p.end_seen for p in ups], dtype=bool)
    count, total = int(ended.sum()), float(lengths.sum()) if len(ups) else 0.0
    if count < 2 * ENDS_MIN or total <= 0.0:
        return None
    clock, number = np.cumsum(lengths)[ended], np.arange(1, count + 1)
    inner = (number >= max(_EDGE * count, 2)) & (number <= min((1.0 - _EDGE) * count, count - 2)) & (clock < total)
    first, after = number[inner], count - number[inner]
    share = clock[inner] / total
    gain = first * np.log(first / (count * share)) + after * np.log(after / (count * (1.0 - share)))
    whole = lengths[ended]
    # times that vary more than exponential ones look like changes
    spread = max(_inner_cv(whole), 1.0)
    best = int(np.argmax(gain)) if len(gain) else -1
    if best < 0 or 2.0 * float(gain[best]) / spread < _CHANGE_AT:
        return None
    at = np.array([p.end_s for p in ups])[ended][inner][best]
    spent = float(clock[inner][best])
    return Change(float(at), spent / float(first[best]), (total - spent) / float(after[best]))


def _inner_cv(lengths: Array) -> float:
    """Returns the squared coefficient of variation of times next to each other: a change between two rates is not in
    it."""
    pairs = lengths[: len(lengths) // 2 * 2].reshape(-1, 2)
    means = pairs.mean(axis=1)
    spread = (pairs[:, 0] - pairs[:, 1]) ** 2 / 2.0
    # of two exponential times: E[(x - y)²] / 2 is the variance, and E[mean²] 1.5 times the squared mean
    return float(spread.mean() / max((means**2).mean() / 1.5, 1e-300))
