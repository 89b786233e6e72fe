"""Any distribution of times as the time to absorption of a small Markov chain."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from surecast.scenario.distributions import Distribution, Erlang, Hyperexponential, PhaseType

__all__ = ["fit_phase_type"]

Array = NDArray[np.float64]
_EXPONENTIAL = 1e-9
"""A squared coefficient of variation this near to 1 is that of an exponential time."""


def fit_phase_type(distribution: Distribution, stages_max: int = 100) -> tuple[Array, Array]:
    """Initial probabilities and sub-generator (per second) of a phase-type distribution for a distribution of times.

    Phase-type, Erlang and hyperexponential times are taken as they are. Any other is replaced by one with the same
    first two moments: two exponential branches of balanced means where it is more variable than an exponential time,
    a mixture of two Erlang distributions where it is less so. A squared coefficient of variation below
    1/`stages_max` would need too many stages: then only the mean is kept, with `stages_max` stages.

    >>> from surecast.scenario import parse_distribution
    >>> initial, matrix = fit_phase_type(parse_distribution({"distribution": "uniform", "low": "0s", "high": "6s"}))
    >>> len(initial)
    3
    >>> round(float(initial @ np.linalg.inv(-matrix) @ np.ones(3)), 12)
    3.0
    """
    mean = distribution.mean_s
    if isinstance(distribution, PhaseType):
        return distribution.generator()
    if isinstance(distribution, Hyperexponential):
        probabilities, means = distribution.branches()
        return probabilities, np.diag(-1.0 / means)
    if isinstance(distribution, Erlang):
        return _erlang_mixture(mean, min(distribution.stages, stages_max), 0.0)
    scv = distribution.squared_cv
    if abs(scv - 1.0) < _EXPONENTIAL:
        return _erlang_mixture(mean, 1, 0.0)
    if scv > 1.0:
        upper = (1.0 + math.sqrt((scv - 1.0) / (scv + 1.0))) / 2.0
        branches = np.array([upper, 1.0 - upper])
        return branches, np.diag(-2.0 * branches / mean)
    if scv * stages_max <= 1.0:
        return _erlang_mixture(mean, stages_max, 0.0)
    stages = math.ceil(1.0 / scv - 1e-12)
    root = math.sqrt(max(stages * (1.0 + scv) - stages**2 * scv, 0.0))
    return _erlang_mixture(mean, stages, (stages * scv - root) / (1.0 + scv))


def _erlang_mixture(mean: float, stages: int, shorter: float) -> tuple[Array, Array]:
    """`stages` equal stages, the first of which is left out with probability `shorter`."""
    rate = (stages - shorter) / mean
    matrix = np.diag(np.full(stages, -rate)) + np.diag(np.full(stages - 1, rate), 1)
    initial = np.zeros(stages)
    initial[0] = 1.0 - shorter
    if stages > 1:
        initial[1] = shorter
    return initial, matrix
