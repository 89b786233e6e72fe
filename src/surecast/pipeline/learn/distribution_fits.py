"""Families of distributions for times that may be cut off: likelihood, maximum-likelihood fit, survival.

Every family has its logarithmic mean as its first parameter, so that an interval for the mean is one for a parameter.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import NonlinearConstraint, brentq, minimize
from scipy.special import gammaln, log_ndtr
from scipy.stats import chi2, norm

from surecast.errors import AssumptionError
from surecast.pipeline.learn.samples import Times
from surecast.simulation.experiment.confidence import student_t

__all__ = [
    "FittedDistribution",
    "exponential",
    "exponential_interval",
    "fit_exponential",
    "fit_lognormal",
    "fit_weibull",
    "hessian",
    "observed_interval",
]

Array = NDArray[np.float64]
_HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)
_SHAPE_RANGE = (0.06, 90.0)  # of a Weibull time in a scenario file
_CV_MAX = 90.0  # of a lognormal time in a scenario file
_PROFILE_REACH = 4.0  # parameters are logarithms: a mean 50 times as long as the likeliest one is as good as none


@dataclass(frozen=True, eq=False)
class FittedDistribution:
    """A fitted distribution of times.

    `parameters` are where the likelihood is largest; `log_density` and `log_survival` are functions of times and
    parameters, so that tests and intervals can move away from there. `spec` is what a scenario file says of it.
    """

    name: str
    parameters: Array
    log_density: Callable[[Array, Array], Array]
    log_survival: Callable[[Array, Array], Array]
    log_mean: Callable[[Array], float]
    spec: Callable[[Array], dict[str, Any]]
    log_likelihood: float

    @property
    def mean_s(self) -> float:
        return math.exp(self.log_mean(self.parameters))

    @property
    def aic(self) -> float:
        """Akaike's criterion: 2 x parameters - 2 x log likelihood; less is better."""
        return 2.0 * len(self.parameters) - 2.0 * self.log_likelihood

    def likelihood(self, times: Times, parameters: Array) -> float:
        """Returns the logarithm of the likelihood: the density of times that ended, the survival of those cut off."""
        return _likelihood(times, parameters, self.log_density, self.log_survival)

    def mean_interval(self, times: Times, level: float = 0.95) -> tuple[float, float] | None:
        """Returns an interval for the mean from the profile of the likelihood; None where its ends cannot be found.

        It has all means at which the family can be nearly as likely as at its best: the logarithm of the likelihood
        is less by half the squared quantile of Student's t at most, with as many degrees as ends less parameters; for
        many ends that is chi-square's. Unlike one from the information it is longer on the side where long times may
        have been missed. Without an upper limit where no mean is too long.
        """
        freedom = max(times.ends - len(self.parameters), 1.0)
        drop = student_t(freedom, level) ** 2 / 2.0
        step = self._uncertainty(times) * math.sqrt(2.0 * drop)
        low, high = (self._farthest(times, drop, sign * step, sign) for sign in (-1.0, 1.0))
        return None if low is None or high is None else (math.exp(low), math.exp(high))

    def _uncertainty(self, times: Times) -> Array:
        """Returns the change of each parameter with the logarithm of the mean, for one standard deviation of it."""
        information = -hessian(lambda p: self.likelihood(times, p), self.parameters)
        covariance = np.linalg.pinv(information, hermitian=True)
        if not 0.0 < covariance[0, 0] < 1.0:
            return np.asarray(np.eye(len(self.parameters))[0] / math.sqrt(times.ends))
        return np.asarray(np.clip(covariance[0] / math.sqrt(covariance[0, 0]), -1.0, 1.0))

    def _farthest(self, times: Times, drop: float, step: Array, sign: float) -> float | None:
        """Returns the logarithmic mean farthest from the best at which the likelihood has not dropped by more."""
        best = self.parameters

        def left(p: Array) -> float:
            return max(self.likelihood(times, p) - self.log_likelihood, -1e6) + drop

        def nearness(p: Array) -> float:
            return -sign * float(p[0] - best[0]) / abs(float(step[0]))

        bounds = [(float(value) - _PROFILE_REACH, float(value) + _PROFILE_REACH) for value in best]
        limit = NonlinearConstraint(lambda p: np.array([left(p)]), 0.0, math.inf)
        farthest = minimize(nearness, best + step, method="SLSQP", bounds=bounds, constraints=limit, tol=1e-4).x
        if left(farthest) < -0.01 * drop or sign * (farthest[0] - best[0]) < 0.0:
            return None
        return math.inf if farthest[0] > best[0] + _PROFILE_REACH - 1e-3 else float(farthest[0])


def _likelihood(
    times: Times, parameters: Array, density: Callable[[Array, Array], Array], survival: Callable[[Array, Array], Array]
) -> float:
    ended = times.ended
    with np.errstate(all="ignore"):
        total = float(times.count[ended] @ density(times.value_s[ended], parameters))
        total += float(times.count[~ended] @ survival(times.value_s[~ended], parameters))
    return total if math.isfinite(total) else -1e300


def hessian(function: Callable[[Array], float], point: Array, step: float = 1e-3) -> Array:
    """Returns the second derivatives by central differences."""
    size = len(point)
    second = np.empty((size, size))
    steps = np.eye(size) * step
    for i in range(size):
        for j in range(i, size):
            a, b = steps[i], steps[j]
            value = (
                function(point + a + b) - function(point + a - b) - function(point - a + b) + function(point - a - b)
            )
            second[i, j] = second[j, i] = value / (4.0 * step * step)
    return second


def _first(parameters: Array) -> float:
    return float(parameters[0])


def exponential_interval(ends: float, total_s: float, level: float = 0.95, fixed: bool = False) -> tuple[float, float]:
    """Returns an interval for the mean of exponential times of which `ends` ended in `total_s` together.

    By the chi-square distribution: exact where all times ended (`fixed` number of ends), and at least of its level
    where the observation ended at a time of its own. With no end there is a lower limit only.

    >>> low, high = exponential_interval(10, 1000.0)
    >>> round(low, 1), round(high, 1)
    (54.4, 208.5)
    """
    tail = (1.0 - level) / 2.0
    low = 2.0 * total_s / float(chi2.ppf(1.0 - tail, 2.0 * ends + (0.0 if fixed else 2.0)))
    high = 2.0 * total_s / float(chi2.ppf(tail, 2.0 * ends)) if ends > 0 else math.inf
    return low, high


def observed_interval(times: Times, level: float = 0.95) -> tuple[float, float]:
    """Returns an interval for the mean of times of any distribution, of which hardly any were cut off.

    By the area under the share of times that last longer (E. L. Kaplan and P. Meier, 1958), and its variance
    (M. Greenwood, 1926). A longest time that was cut off counts as if it had ended.

    >>> low, high = observed_interval(Times.of([1.0, 2.0, 3.0, 4.0, 5.0]))
    >>> round(low, 2), round(high, 2)
    (1.89, 4.76)
    """
    order = np.lexsort((~times.ended, times.value_s))
    value, count = times.value_s[order], times.count[order]
    ends = np.where(times.ended[order], count, 0.0)
    at_risk = np.cumsum(count[::-1])[::-1]
    left = at_risk - ends
    longer = np.concatenate([[1.0], np.cumprod(left / at_risk)[:-1]])
    area = longer * np.diff(value, prepend=0.0)
    beyond = np.concatenate([np.cumsum(area[::-1])[::-1][1:], [0.0]])
    # After the last end nothing is left of the area, and it has no part in the variance.
    terms = beyond**2 * ends / (at_risk * np.maximum(left, 1e-300))
    mean_s = float(area.sum())
    variance = float(terms[left > 0].sum()) * times.ends / max(times.ends - 1.0, 1.0)
    reach = float(norm.ppf(0.5 + level / 2.0)) * math.sqrt(variance) / mean_s
    return mean_s * math.exp(-reach), mean_s * math.exp(reach)


def exponential(times: Times, mean_s: float) -> FittedDistribution:
    """Returns the law of exponential times with a given mean."""

    def survival(t: Array, p: Array) -> Array:
        return np.asarray(-t * math.exp(-p[0]))

    def density(t: Array, p: Array) -> Array:
        return np.asarray(survival(t, p) - p[0])

    parameters = np.array([math.log(mean_s)])
    likelihood = _likelihood(times, parameters, density, survival)
    return FittedDistribution(
        "exponential", parameters, density, survival, _first, lambda p: {"distribution": "exponential"}, likelihood
    )


def fit_exponential(times: Times) -> FittedDistribution:
    """Returns exponential times whose mean is total time over ends, of times whose beginning was observed."""
    if times.ends <= 0:
        raise AssumptionError("no time ended while it was observed: there is no largest likelihood")
    return exponential(times, times.total_s / times.ends)


def fit_weibull(times: Times) -> FittedDistribution:
    """Returns Weibull times: the shape solves one monotone equation, the scale follows from it."""
    if times.ends <= 0:
        raise AssumptionError("no time ended while it was observed: there is no largest likelihood")
    unit = float(np.exp(np.average(np.log(times.value_s), weights=times.count)))
    logs = np.log(times.value_s / unit)
    ended_mean = float(times.count[times.ended] @ logs[times.ended]) / times.ends

    def score(shape: float) -> float:
        # Largest likelihood: 1/shape + mean log of ended times = mean log weighted by t^shape.
        weights = times.count * np.exp(shape * (logs - logs.max()))
        return 1.0 / shape + ended_mean - float(weights @ logs) / float(weights.sum())

    low, high = _SHAPE_RANGE
    shape = high if score(high) > 0 else low if score(low) < 0 else float(brentq(score, low, high, xtol=1e-12))
    top = float(logs.max())
    log_scale = math.log(unit) + top + math.log(float(times.count @ np.exp(shape * (logs - top))) / times.ends) / shape
    parameters = np.array([log_scale + float(gammaln(1.0 + 1.0 / shape)), math.log(shape)])

    def hazard(t: Array, p: Array) -> Array:
        return np.asarray(math.exp(p[1]) * (np.log(t) - p[0] + gammaln(1.0 + math.exp(-p[1]))))

    def survival(t: Array, p: Array) -> Array:
        return np.asarray(-np.exp(np.minimum(hazard(t, p), 700.0)))

    def density(t: Array, p: Array) -> Array:
        return np.asarray(p[1] + hazard(t, p) - np.log(t) + survival(t, p))

    def spec(p: Array) -> dict[str, Any]:
        return {"distribution": "weibull", "shape": _rounded(math.exp(p[1]))}

    return FittedDistribution(
        "weibull", parameters, density, survival, _first, spec, _likelihood(times, parameters, density, survival)
    )


def fit_lognormal(times: Times) -> FittedDistribution:
    """Returns lognormal times, by their logarithmic mean and the standard deviation of their logarithm."""
    if times.ends <= 0:
        raise AssumptionError("no time ended while it was observed: there is no largest likelihood")
    sigma_max = math.sqrt(math.log1p(_CV_MAX**2))

    def standard(t: Array, p: Array) -> tuple[Array, float]:
        sigma = math.exp(p[1])
        return np.asarray((np.log(t) - p[0] + sigma * sigma / 2.0) / sigma), sigma

    def survival(t: Array, p: Array) -> Array:
        return np.asarray(log_ndtr(-standard(t, p)[0]))

    def density(t: Array, p: Array) -> Array:
        z, sigma = standard(t, p)
        return np.asarray(-0.5 * z * z - np.log(t) - math.log(sigma) - _HALF_LOG_TWO_PI)

    logs = np.log(times.value_s)
    mu = float(np.average(logs, weights=times.count))
    sigma = min(max(math.sqrt(float(np.average((logs - mu) ** 2, weights=times.count))), 1e-3), sigma_max)

    # The search is in the median and sigma, which hardly depend on each other, unlike mean and sigma.
    def cost(q: Array) -> float:
        if not math.log(1e-4) < q[1] <= math.log(sigma_max):
            return 1e300
        return -_likelihood(times, np.array([q[0] + math.exp(2.0 * q[1]) / 2.0, q[1]]), density, survival)

    start = np.array([mu, math.log(sigma)])
    optimum = minimize(cost, start, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-9, "maxiter": 2000}).x
    parameters = np.array([optimum[0] + math.exp(2.0 * optimum[1]) / 2.0, optimum[1]])

    def spec(p: Array) -> dict[str, Any]:
        return {"distribution": "lognormal", "cv": _rounded(math.sqrt(math.expm1(math.exp(2.0 * p[1]))))}

    return FittedDistribution(
        "lognormal", parameters, density, survival, _first, spec, _likelihood(times, parameters, density, survival)
    )


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")
