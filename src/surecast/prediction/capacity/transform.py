"""Expectations of exp(-x R) over a random rate R, as functions of x, and of products of independent rates.

With a Poisson number of subscriptions of mean x, each of which does something with probability R, nobody does it with
probability exp(-x R). The law of R is kept as weighted points. Where there are many, they are collected in bins of a
logarithmic scale, two points for each with the same weight and the same first three moments (Gauss quadrature), so
that the expectation changes by less than 1e-7 of the weight.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["Transform"]

Array = NDArray[np.float64]

_POINTS_MAX: Final = 1000
_NEGLIGIBLE: Final = 1e-24
_ENDLESS: Final = 1e290
_COARSE_BELOW: Final = 1e-9
_FINE_STEP: Final = 0.05
_COARSE_STEP: Final = 0.25
_CELLS_MAX: Final = 4_000_000


@dataclass(frozen=True)
class Transform:
    """Weighted points of a law of rates; the weights need not sum to 1.

    >>> coin = Transform.of(np.array([0.0, np.inf]), np.array([0.25, 0.75]))
    >>> coin(np.array([0.0, 5.0])).tolist()
    [1.0, 0.25]
    >>> coin.complement(np.array([0.0, 5.0])).tolist()
    [0.0, 0.75]
    """

    rates: Array
    weights: Array

    @classmethod
    def of(cls, rates: Array, weights: Array) -> Transform:
        """Returns the transform of a law given by points, collected in bins where there are many."""
        positive = weights > 0
        rates = np.minimum(rates[positive], _ENDLESS)
        weights = weights[positive]
        return cls(rates, weights) if len(rates) <= _POINTS_MAX else cls(*_collected(rates, weights))

    def __call__(self, x: Array) -> Array:
        """Returns the expectation of exp(-x R)."""
        return self._sum(x, complement=False)

    def complement(self, x: Array) -> Array:
        """Returns the expectation of 1 - exp(-x R), accurate for small x too."""
        return self._sum(x, complement=True)

    def times(self, other: Transform) -> Transform:
        """Returns the transform of the product of two independent rates."""
        rates = np.multiply.outer(self.rates, other.rates).ravel()
        return Transform.of(rates, np.multiply.outer(self.weights, other.weights).ravel())

    def _sum(self, x: Array, complement: bool) -> Array:
        points = x.ravel()
        sums = np.empty_like(points)
        step = max(1, _CELLS_MAX // max(1, len(self.rates)))
        for start in range(0, len(points), step):
            power = -np.multiply.outer(points[start : start + step], self.rates)
            sums[start : start + step] = (-np.expm1(power) if complement else np.exp(power)) @ self.weights
        return sums.reshape(x.shape)


def _collected(rates: Array, weights: Array) -> tuple[Array, Array]:
    """Returns two points for each bin of a logarithmic scale; rates of (almost) 0 and infinite rates are points of
    their own.
    """
    tiny, endless = rates < _NEGLIGIBLE, rates >= _ENDLESS
    inner = ~(tiny | endless)
    inside, mass = rates[inner], weights[inner]
    fine = inside >= _COARSE_BELOW
    step = np.where(fine, _FINE_STEP, _COARSE_STEP)
    number = np.floor(np.log(inside) / step)
    key = np.where(fine, number, number - 1e6)  # no fine bin and no coarse one share a key
    _, first, bin_of = np.unique(key, return_index=True, return_inverse=True)
    centre = np.exp((number + 0.5) * step)[first]
    offset = inside / centre[bin_of] - 1.0
    total = np.bincount(bin_of, mass)
    mean = np.bincount(bin_of, mass * offset) / total
    offset -= mean[bin_of]
    deviation = np.sqrt(np.bincount(bin_of, mass * offset**2) / total)
    spread = deviation > 1e-12
    cube = np.bincount(bin_of, mass * offset**3) / total
    half_skew = np.where(spread, cube / np.where(spread, deviation, 1.0) ** 3, 0.0) / 2.0
    root = np.hypot(1.0, half_skew)
    upper, lower = (half_skew + root) * deviation, (half_skew - root) * deviation
    points = np.concatenate([[0.0, _ENDLESS], centre * (1.0 + mean + upper), centre * (1.0 + mean + lower)])
    share = (root - half_skew) / (2.0 * root)
    masses = np.concatenate([[weights[tiny].sum(), weights[endless].sum()], total * share, total * (1.0 - share)])
    positive = masses > 0
    return points[positive], masses[positive]
