"""Distributions of response times, by whatever way the mechanism allows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from surecast.errors import ConfigurationError

__all__ = ["ExponentialSum", "ResponseLaw", "TransformLaw", "quantile_of_law"]

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]
_EULER = 16
"""Terms of the inversion: the error is about 1e-9."""


class ResponseLaw(Protocol):
    """The response time of a delivered event."""

    def within(self, time_s: float) -> float:
        """Probability that it is at most a time."""
        ...

    def quantile_s(self, quantile: float) -> float:
        """The time within which a share of the events is delivered."""
        ...


def quantile_of_law(
    within: Callable[[float], float], quantile: float, start_s: float, end_s: float = math.inf
) -> float:
    """Returns the time at which a distribution function reaches a quantile; `start_s` is a first guess of the order of
    magnitude.
    """
    if not 0.0 < quantile < 1.0:
        raise ConfigurationError(f"quantile: {quantile!r} must be between 0 and 1, both excluded")
    low, high = 0.0, min(start_s, end_s)
    while high < end_s and within(high) < quantile:
        low, high = high, min(2.0 * high, end_s)
    return float(brentq(lambda t: within(t) - quantile if t > 0 else -quantile, low, high, xtol=1e-13, rtol=1e-11))


@dataclass(frozen=True, eq=False)
class ExponentialSum:
    """A response time whose tail is a sum of exponentials, after a further exponential time if `after_s` is not 0.

    >>> law = ExponentialSum(np.array([1.0]), np.array([2.0]))
    >>> round(law.quantile_s(0.5), 6)
    0.346574
    """

    weights: Array
    rates: Array
    after_s: float = 0.0

    def within(self, time_s: float) -> float:
        if self.after_s == 0.0:
            return float(1.0 - self.weights @ np.exp(-self.rates * time_s))
        other = 1.0 / self.after_s
        small, large = np.minimum(self.rates, other), np.maximum(self.rates, other)
        gap = large - small
        # the tail of a sum of two exponential times, also where their rates are equal
        rest = np.where(gap > 0.0, -np.expm1(-gap * time_s) / np.where(gap > 0.0, gap, 1.0), time_s)
        return float(1.0 - self.weights @ (np.exp(-small * time_s) * (1.0 + small * rest)))

    def quantile_s(self, quantile: float) -> float:
        return quantile_of_law(self.within, quantile, float(1.0 / self.rates.min()) + self.after_s)


@dataclass(frozen=True, eq=False)
class TransformLaw:
    """A response time known by its Laplace transform, inverted numerically to about 1e-9."""

    transform: Callable[[Complex], Complex]
    mean_s: float

    def within(self, time_s: float) -> float:
        if time_s <= 0.0:
            return 0.0
        points, weights = _euler()
        s = points / time_s
        # the distribution function has the transform f(s) / s; its complement is the smoother one to invert
        tail = (1.0 - self.transform(s)) / s
        return float(np.clip(1.0 - 10.0 ** (_EULER / 3.0) / time_s * float((weights * tail.real).sum()), 0.0, 1.0))

    def quantile_s(self, quantile: float) -> float:
        return quantile_of_law(self.within, quantile, self.mean_s)


def _euler() -> tuple[Complex, Array]:
    """Returns points and weights of the Euler summation for Laplace inversion, without the factor 10**(M/3)."""
    m = _EULER
    points = m * math.log(10.0) / 3.0 + 1j * math.pi * np.arange(2 * m + 1)
    weights = np.ones(2 * m + 1)
    weights[0] = 0.5
    weights[2 * m] = 2.0**-m
    for k in range(1, m):
        weights[2 * m - k] = weights[2 * m - k + 1] + 2.0**-m * math.comb(m, k)
    signs = np.where(np.arange(2 * m + 1) % 2 == 0, 1.0, -1.0)
    return np.asarray(points, dtype=np.complex128), np.asarray(weights * signs, dtype=np.float64)
