"""The residual life of a period: how much of it is left at an arbitrary moment.

A component observed in its stationary state is in the middle of an up or down time, and long times are more likely to
be hit than short ones. What is left has the density `(1 - F(x)) / mean`. It is drawn exactly: a length-biased time X*
(density `x f(x) / mean`), of which a uniformly distributed part is left.
"""

from __future__ import annotations

import math

import numpy as np

from surecast.errors import AssumptionError
from surecast.scenario.distributions import (
    Deterministic,
    Distribution,
    Empirical,
    Erlang,
    Exponential,
    Hyperexponential,
    Lognormal,
    PhaseType,
    Uniform,
    Weibull,
)

__all__ = ["residual_times"]


def residual_times(
    distribution: Distribution, rng: np.random.Generator, size: int
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Independent times that are left at an arbitrary moment.

    >>> from surecast.scenario import parse_distribution
    >>> fixed = parse_distribution({"distribution": "deterministic", "mean": "10s"})
    >>> left = residual_times(fixed, np.random.default_rng(1), 10_000)
    >>> bool(0 <= left.min() and left.max() <= 10), round(float(left.mean()), 1)
    (True, 5.0)
    """
    if isinstance(distribution, Exponential):
        return distribution.sample(rng, size)
    if isinstance(distribution, Hyperexponential):
        p, means = distribution.branches()
        weights = p * means / float(p @ means)
        return rng.standard_exponential(size) * means[rng.choice(len(p), size=size, p=weights)]
    if isinstance(distribution, PhaseType):
        return _phase_type(distribution).sample(rng, size)
    return np.asarray(rng.random(size) * _length_biased(distribution, rng, size), dtype=np.float64)


def _length_biased(
    distribution: Distribution, rng: np.random.Generator, size: int
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    mean = distribution.mean_s
    if isinstance(distribution, Deterministic):
        return np.full(size, mean)
    if isinstance(distribution, Erlang):
        return rng.standard_gamma(distribution.stages + 1, size) * (mean / distribution.stages)
    if isinstance(distribution, Uniform):
        low, high = distribution.low, distribution.high
        scale = mean / ((low + high) / 2.0)
        return np.asarray(np.sqrt(low**2 + rng.random(size) * (high**2 - low**2)) * scale)
    if isinstance(distribution, Weibull):
        shape = distribution.shape
        scale = mean / math.gamma(1.0 + 1.0 / shape)
        return np.asarray(rng.standard_gamma(1.0 + 1.0 / shape, size) ** (1.0 / shape) * scale)
    if isinstance(distribution, Lognormal):
        variance = math.log1p(distribution.cv**2)
        return rng.lognormal(math.log(mean) + variance / 2.0, math.sqrt(variance), size)
    if isinstance(distribution, Empirical):
        values = np.array(distribution.values)
        weights = np.ones(len(values)) if distribution.weights is None else np.array(distribution.weights)
        biased = weights * values
        scale = mean / float(biased.sum() / weights.sum())
        return np.asarray(rng.choice(values, size=size, p=biased / biased.sum()) * scale)
    raise AssumptionError(
        f"the {distribution.kind} distribution cannot be started in its stationary state; use another one for up and "
        "down times"
    )


def _phase_type(distribution: PhaseType) -> PhaseType:
    """The same chain, started in the phase it is in at an arbitrary moment."""
    initial, matrix = distribution.generator()
    phases = np.maximum(initial @ np.linalg.inv(-matrix), 0.0)
    phases = phases / phases.sum()
    rates = matrix - np.diag(np.diag(matrix))
    return PhaseType(
        initial=tuple(phases.tolist()),
        rates=tuple(tuple(row) for row in np.maximum(rates, 0.0).tolist()),
        exits=tuple(np.maximum(-matrix.sum(axis=1), 0.0).tolist()),
    )
