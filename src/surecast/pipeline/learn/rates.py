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
GAPS_MIN = 10
_EXPECTED_MIN = 1.0
_DRAWS = 2000
_DRAWN_GAPS_MAX = 500


@dataclass(frozen=True, slots=True)
class RateFit:
    """A rate of events. `dispersion` is the variance of counts over their mean, 1 for a Poisson stream, and None
    where there were too few windows; `p_poisson` is the probability that a Poisson stream deviates so far in its counts
    or has gaps that vary so little. `is_steady` says that gaps, or else counts, vary less than those of one."""

    rate_per_s: float
    low_per_s: float
    high_per_s: float
    events: int
    dispersion: float | None
    p_poisson: float | None
    is_steady: bool = False

    @property
    def verdict(self) -> str:
        if self.p_poisson is None:
            return "Poisson taken: too few windows to test"
        how = "steadier than Poisson" if self.is_steady else "bursty"
        how = "Poisson fits" if self.p_poisson >= SIGNIFICANCE else how
        dispersion = "" if self.dispersion is None else f"dispersion {self.dispersion:.3g}, "
        return f"{how} ({dispersion}p = {self.p_poisson:.2g})"


def fit_rate(
    counts: Array, exposure_s: Array, level: float = 0.95, gap_variation_squared: float | None = None
) -> RateFit:
    """Returns the rate of events counted in windows, each observed for `exposure_s`.

    Counts in windows that hold few events cannot tell a clock from a Poisson stream. The squared variation of the gaps
    can: it is tested too, if it is given, for gaps that vary too little. That they vary more may be due to times in
    which nothing was observed.

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
    p_gaps = 1.0 if gap_variation_squared is None else _so_steady(gap_variation_squared, round(events) - 1)
    counts, exposure_s = _coarser(counts, exposure_s, rate)
    if events == 0 or len(counts) < WINDOWS_MIN:
        p_alone = p_gaps if gap_variation_squared is not None and events > GAPS_MIN else None
        return RateFit(rate, low, high, round(events), None, p_alone, is_steady=True)
    expected = rate * exposure_s
    distance = float(((counts - expected) ** 2 / expected).sum())
    freedom = len(counts) - 1
    p = min(1.0, 2.0 * min(float(chi2.sf(distance, freedom)), float(chi2.cdf(distance, freedom))))
    dispersion = distance / freedom
    if p < SIGNIFICANCE:
        reach = float(norm.ppf(1.0 - tail)) * math.sqrt(max(dispersion, 1.0 / events) / events)
        low, high = rate * math.exp(-reach), rate * math.exp(reach)
    is_steady = dispersion <= 1.0 if p <= p_gaps else True
    if gap_variation_squared is not None:
        p = min(1.0, 2.0 * min(p, p_gaps))  # of two tests
    return RateFit(rate, low, high, round(events), dispersion, p, is_steady)


def _so_steady(variation_squared: float, gaps: int) -> float:
    """Returns the probability that the gaps of a Poisson stream vary so little; 1 if they are too few to tell."""
    if gaps < GAPS_MIN:
        return 1.0
    if gaps > _DRAWN_GAPS_MAX:
        # The squared variation of n exponential gaps has a mean of about 1 and a variance of about 4 / n.
        return float(norm.cdf((variation_squared - 1.0) * math.sqrt(gaps) / 2.0))
    drawn = np.random.default_rng(np.random.SeedSequence(gaps)).exponential(1.0, (_DRAWS, gaps))
    variations = drawn.var(axis=1, ddof=1) / drawn.mean(axis=1) ** 2
    return float((1 + (variations <= variation_squared).sum()) / (1 + _DRAWS))


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
