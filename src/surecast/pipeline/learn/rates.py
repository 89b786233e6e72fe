"""Rates of events and shares, with intervals and a test of burstiness."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2, norm

from surecast.errors import AssumptionError
from surecast.pipeline.learn.distribution_choice import SIGNIFICANCE

__all__ = ["RateFit", "even_shares", "fit_rate", "share_interval"]

Array = NDArray[np.float64]
WINDOWS_MIN = 8
_EXPECTED_MIN = 1.0


@dataclass(frozen=True, slots=True)
class RateFit:
    """A rate of events. `dispersion` is the variance of counts over their mean, 1 for a Poisson stream, and None
    where there were too few windows; `p_poisson` the probability of one so far from 1 if it were one."""

    rate_per_s: float
    low_per_s: float
    high_per_s: float
    events: int
    dispersion: float | None
    p_poisson: float | None

    @property
    def verdict(self) -> str:
        if self.dispersion is None or self.p_poisson is None:
            return "Poisson taken: too few windows to test"
        if self.p_poisson >= SIGNIFICANCE:
            return f"Poisson fits (dispersion {self.dispersion:.3g}, p = {self.p_poisson:.2g})"
        how = "bursty" if self.dispersion > 1.0 else "steadier than Poisson"
        return f"{how} (dispersion {self.dispersion:.3g}, p = {self.p_poisson:.2g})"


def fit_rate(counts: Array, exposure_s: Array, level: float = 0.95) -> RateFit:
    """Returns the rate of events counted in windows, each observed for `exposure_s`.

    The interval is that of a Poisson count (F. Garwood, 1936) unless the counts vary more or less than those of a
    Poisson stream do: then its width is that of the counts' own variance.

    >>> found = fit_rate(np.array([5.0] * 20), np.full(20, 10.0))
    >>> found.rate_per_s, found.verdict
    (0.5, 'steadier than Poisson (dispersion 0, p = 0)')
    """
    in_sight = exposure_s > 0
    counts, exposure_s = counts[in_sight], exposure_s[in_sight]
    events, total_s = float(counts.sum()), float(exposure_s.sum())
    if total_s <= 0:
        raise AssumptionError("nothing was in sight at any time: there is no rate")
    rate, tail = events / total_s, (1.0 - level) / 2.0
    low = float(chi2.ppf(tail, 2.0 * events)) / (2.0 * total_s) if events else 0.0
    high = float(chi2.ppf(1.0 - tail, 2.0 * events + 2.0)) / (2.0 * total_s)
    counts, exposure_s = _coarser(counts, exposure_s, rate)
    if events == 0 or len(counts) < WINDOWS_MIN:
        return RateFit(rate, low, high, round(events), None, None)
    expected = rate * exposure_s
    distance = float(((counts - expected) ** 2 / expected).sum())
    freedom = len(counts) - 1
    p = min(1.0, 2.0 * min(float(chi2.sf(distance, freedom)), float(chi2.cdf(distance, freedom))))
    dispersion = distance / freedom
    if p < SIGNIFICANCE:
        reach = float(norm.ppf(1.0 - tail)) * math.sqrt(max(dispersion, 1.0 / events) / events)
        low, high = rate * math.exp(-reach), rate * math.exp(reach)
    return RateFit(rate, low, high, round(events), dispersion, p)


def _coarser(counts: Array, exposure_s: Array, rate: float) -> tuple[Array, Array]:
    """Returns windows with neighbours merged until each expects an event or more."""
    while len(counts) >= 2 * WINDOWS_MIN and float(np.median(rate * exposure_s)) < _EXPECTED_MIN:
        starts = np.arange(0, len(counts), 2)
        counts, exposure_s = np.add.reduceat(counts, starts), np.add.reduceat(exposure_s, starts)
    return counts, exposure_s


def even_shares(counts: Array) -> float:
    """Returns the probability of counts so uneven if all had the same share.

    >>> round(even_shares(np.array([50.0, 50.0])), 3)
    1.0
    """
    if len(counts) < 2:
        return 1.0
    mean = float(counts.mean())
    return float(chi2.sf(float(((counts - mean) ** 2).sum()) / mean, len(counts) - 1))


def share_interval(part: float, whole: float, level: float = 0.95) -> tuple[float, float]:
    """Returns an interval for a share (E. B. Wilson, 1927).

    >>> low, high = share_interval(8, 10)
    >>> round(low, 3), round(high, 3)
    (0.49, 0.943)
    """
    z = float(norm.ppf(0.5 + level / 2.0))
    middle = (part + z * z / 2.0) / (whole + z * z)
    reach = z * math.sqrt(part * (whole - part) / whole + z * z / 4.0) / (whole + z * z)
    return max(middle - reach, 0.0), min(middle + reach, 1.0)
