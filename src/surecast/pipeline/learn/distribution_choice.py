"""Does a distribution fit times of which some were cut off? And which of several does?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2, norm

from surecast.errors import AssumptionError
from surecast.pipeline.learn.distribution_fits import (
    FittedDistribution,
    exponential_interval,
    fit_exponential,
    fit_lognormal,
    fit_weibull,
    hessian,
    observed_interval,
)
from surecast.pipeline.learn.phase_type_fit import fit_phase_type
from surecast.pipeline.learn.samples import Times

__all__ = ["LifetimeFit", "cell_test", "choose_lifetime", "ratio_test"]

Array = NDArray[np.float64]
ENDS_MIN: Final = 20
"""Ends below which no other distribution than the exponential is tried: too few to tell them apart."""
SIGNIFICANCE: Final = 0.01
"""A distribution is rejected where what was seen would come about less often than this."""
AIC_MARGIN: Final = 4.0
"""By how much another distribution must have the better criterion to be taken in place of the exponential."""
NEAR: Final = 6.0
"""A distribution whose criterion is worse than the best by at most this has its means in the interval."""
NEAR_OF_FEW: Final = 2.0
"""The same for lognormal times where exponential ones are taken because ends are few. With a larger value the interval
of twenty times says nothing; without lognormal times, that of times with a heavy tail lacks the mean too often."""
WEIBULL_ENDS_MIN: Final = 5
"""Ends from which on the interval has the means of Weibull and lognormal times too, although exponential ones are
taken."""
FEW_CUT_OFF: Final = 0.15
"""The share of times cut off up to which the interval has that of their mean whatever their distribution."""
_CELLS_MAX = 10
_PER_CELL = 10.0
_FLAT = 0.1  # directions in which the fit leaves less than this share of the variance say nothing


@dataclass(frozen=True, eq=False)
class LifetimeFit:
    """The distribution chosen for times, and how it was judged.

    `low_s` and `high_s` bound the means of all distributions that are nearly as likely as the best, and the mean of
    what was seen where hardly anything was cut off: the interval does not hang on the choice.
    `p_exponential` is the probability of what was seen if times were exponential (the smaller of two tests, doubled),
    None where there were too few; `p_chosen` is that of the one chosen, by cells. `aic` has Akaike's criterion of all
    that were tried.
    """

    law: FittedDistribution
    mean_s: float
    low_s: float
    high_s: float
    ends: int
    cut_off: int
    p_exponential: float | None
    p_chosen: float | None
    aic: dict[str, float]

    @property
    def verdict(self) -> str:
        """The verdict in words: the distribution, and whether it fits.

        >>> choose_lifetime(Times.of([1.0, 2.0, 3.0])).verdict
        'exponential taken: 3 ends are too few to test'
        """
        if self.p_exponential is None:
            return f"exponential taken: {self.ends} {'end is' if self.ends == 1 else 'ends are'} too few to test"
        if self.law.name == "exponential" and self.p_exponential >= SIGNIFICANCE:
            return f"exponential fits (p = {self.p_exponential:.2g})"
        if self.law.name == "exponential":
            return f"exponential is nearest but does not fit (p = {self.p_exponential:.2g})"
        if self.p_chosen is None or self.p_chosen >= SIGNIFICANCE:
            fits = "fits" if self.p_chosen is None else f"fits (p = {self.p_chosen:.2g})"
        else:
            fits = f"is nearest but does not fit (p = {self.p_chosen:.2g})"
        worse = self.aic["exponential"] - self.aic[self.law.name]
        return f"exponential rejected (p = {self.p_exponential:.2g}, AIC worse by {worse:.3g}), {self.law.name} {fits}"

    def spec(self) -> dict[str, Any]:
        """Returns the shape in the form of a scenario file, with its mean where it has no scale of its own."""
        return self.law.spec(self.law.parameters)


def ratio_test(narrow: FittedDistribution, wide: FittedDistribution) -> float:
    """Returns the probability of so large a likelihood ratio if the narrower of two nested families is right."""
    gain = 2.0 * (wide.log_likelihood - narrow.log_likelihood)
    return float(chi2.sf(max(gain, 0.0), len(wide.parameters) - len(narrow.parameters)))


def cell_test(times: Times, law: FittedDistribution) -> float | None:
    """Returns the probability of so large a distance between observed and expected ends in cells of time; None for too
    few ends.

    What is expected in a cell is the cumulative hazard that all times went through in it, so that times cut off count
    as far as they were seen (N. L. Hjort, Annals of Statistics 18, 1990). The variance allows for the
    parameters having been fitted.
    """
    cells = min(_CELLS_MAX, int(times.ends / _PER_CELL))
    if cells <= len(law.parameters):
        return None
    ended = times.value_s[times.ended]
    order = np.argsort(ended)
    reached = np.cumsum(times.count[times.ended][order]) / times.ends
    inner = ended[order][np.searchsorted(reached, np.arange(1, cells) / cells)]
    edges = np.concatenate([[0.0], np.unique(inner), [math.inf]])
    observed = np.histogram(ended, np.append(edges[:-1], ended.max() * 2.0), weights=times.count[times.ended])[0]
    # A time on an edge belongs to the cell that it ends, as the hazard up to it does.
    on_edge = np.array([times.count[times.ended][ended == edge].sum() for edge in edges[1:-1]])
    observed[:-1] += on_edge
    observed[1:] -= on_edge

    def expected(parameters: Array) -> Array:
        reach = np.minimum(times.value_s[:, None], edges[1:])
        hazard = -law.log_survival(reach.ravel(), parameters).reshape(reach.shape)
        return np.asarray(np.diff(times.count @ hazard, prepend=0.0))

    point = law.parameters
    mean = np.maximum(expected(point), 1e-12)
    steps = np.eye(len(point)) * 1e-4
    slope = np.stack([(expected(point + each) - expected(point - each)) / 2e-4 for each in steps], axis=1)
    information = -hessian(lambda p: law.likelihood(times, p), point)
    scaled = slope / np.sqrt(mean)[:, None]
    spread = np.eye(len(mean)) - scaled @ np.linalg.pinv(information, hermitian=True) @ scaled.T
    sizes, directions = np.linalg.eigh((spread + spread.T) / 2.0)
    informative = sizes > _FLAT
    if not informative.any():
        return None
    along = directions.T @ ((observed - mean) / np.sqrt(mean))
    return float(chi2.sf(float((along[informative] ** 2 / sizes[informative]).sum()), int(informative.sum())))


def choose_lifetime(times: Times, level: float = 0.95) -> LifetimeFit:
    """Returns the distribution of times: exponential unless it is rejected and another is clearly more likely.

    Weibull, lognormal and phase-type times are tried, and the one with the best criterion by Akaike is chosen.
    Exponential times are tested by their likelihood ratio to Weibull times, and by cells. The interval of the mean
    covers those of all distributions that come near the best.
    """
    ends, total_s = times.ends + times.residual_ends, times.total_s + times.residual_s
    if ends <= 0 or total_s <= 0:
        raise AssumptionError("no time ended while it was observed")
    whole = times.cut_off == 0 and times.residual_s == 0
    ranges = [exponential_interval(ends, total_s, level, fixed=whole)]
    if times.ends < ENDS_MIN:
        law = fit_exponential(times if times.ends > 0 else Times.of([total_s / ends]))
        if times.ends >= WEIBULL_ENDS_MIN:
            laws, lognormal = [law, fit_weibull(times)], fit_lognormal(times)
            if lognormal.aic <= min(each.aic for each in laws) + NEAR_OF_FEW:
                laws.append(lognormal)
            ranges += _near_ranges(times, laws, level)
        low, high = min(each[0] for each in ranges), max(each[1] for each in ranges)
        return LifetimeFit(law, total_s / ends, low, high, round(ends), round(times.cut_off), None, None, {})
    plain, weibull, lognormal = fit_exponential(times), fit_weibull(times), fit_lognormal(times)
    by_cells = cell_test(times, plain)
    p_plain = min(1.0, 2.0 * min(ratio_test(plain, weibull), 1.0 if by_cells is None else by_cells))
    laws = [plain, weibull, lognormal]
    # Phases cost the most to fit, and nothing is gained by them where exponential times do.
    if p_plain < SIGNIFICANCE or min(law.aic for law in laws) < plain.aic - AIC_MARGIN:
        laws.append(fit_phase_type(times, variable=bool(weibull.parameters[1] < 0.0)))
    aic = {law.name: law.aic for law in laws}
    best = min(laws, key=lambda law: law.aic)
    if plain.aic > best.aic + NEAR:
        ranges = []
    ranges += _near_ranges(times, laws, level)
    if times.cut_off <= FEW_CUT_OFF * times.count.sum():
        ranges.append(observed_interval(times, level))
    low, high = min(each[0] for each in ranges), max(each[1] for each in ranges)
    cut_off = round(times.cut_off)
    if best.aic > plain.aic - AIC_MARGIN:
        return LifetimeFit(plain, total_s / ends, low, high, round(ends), cut_off, p_plain, by_cells, aic)
    p_best = cell_test(times, best)
    return LifetimeFit(best, best.mean_s, low, high, round(times.ends), cut_off, p_plain, p_best, aic)


def _near_ranges(times: Times, laws: list[FittedDistribution], level: float) -> list[tuple[float, float]]:
    """Intervals of the mean under the distributions that come near the best, other than the exponential."""
    best = min(law.aic for law in laws)
    near = [law for law in laws if law.name != "exponential" and law.aic <= best + NEAR]
    return [law.mean_interval(times, level) or _wide_interval(times, law, level) for law in near]


def _wide_interval(times: Times, law: FittedDistribution, level: float) -> tuple[float, float]:
    """Returns an interval for the mean where the likelihood has no clear maximum: by the variance of the fitted law.

    As if only the times that ended had been seen, so that it is rather too wide than too narrow.
    """
    value = times.value_s[times.ended]
    count = times.count[times.ended]
    mean = float(count @ value) / times.ends
    spread = max(float(count @ (value - mean) ** 2) / times.ends / mean**2, 1.0)
    reach = float(norm.ppf(0.5 + level / 2.0)) * math.sqrt(spread / times.ends)
    return law.mean_s * math.exp(-reach), law.mean_s * math.exp(reach)
