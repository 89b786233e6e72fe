"""Confidence intervals of simulated and measured figures over independent runs: one formula, Student's t."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

__all__ = ["half_width", "interval_ends", "ratio_estimate", "relative_width", "student_t"]

Floats = NDArray[np.float64]


def student_t(freedom: float, level: float = 0.95) -> float:
    """The factor of the standard error at the ends of an interval of this level.

    >>> round(student_t(9), 3), round(student_t(1e9), 3)
    (2.262, 1.96)
    """
    return float(stdtrit(freedom, 0.5 + level / 2.0))


def half_width(deviations: Floats) -> Floats:
    """95 % half-width of a mean over runs (rows), for each column, from how far each run is from the mean.

    NaN in fewer than two runs. A figure that is not linear in what runs add up is made so first (delta method).

    >>> half_width(np.array([[-1.0], [0.0], [1.0]])).round(3)
    array([2.484])
    """
    runs = len(deviations)
    if runs < 2:
        return np.full(deviations.shape[1:], math.nan)
    half: Floats = student_t(runs - 1) * np.sqrt((deviations**2).sum(axis=0) / (runs - 1) / runs)
    return half


def ratio_estimate(numerators: Floats, denominators: Floats) -> tuple[Floats, Floats]:
    """Value and 95 % half-width of a ratio of means, over runs (rows), for each column.

    With equal denominators it is the mean with its Student-t interval. NaN where there is no value or, in fewer than
    two runs, no interval.

    >>> value, half = ratio_estimate(np.array([[8.0], [10.0]]), np.array([[10.0], [10.0]]))
    >>> float(value[0]), round(float(half[0]), 3)
    (0.9, 1.271)
    """
    total = denominators.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        value = numerators.sum(axis=0) / total
        return value, half_width((numerators - value * denominators) * (len(denominators) / total))


def relative_width(value: Floats, half: Floats) -> float:
    """The largest half-width relative to its value, over values above 0; infinite where one has no interval.

    >>> relative_width(np.array([2.0, 0.0]), np.array([0.5, 3.0]))
    0.25
    """
    positive = value > 0
    relative = np.where(np.isnan(half), math.inf, half)[positive] / value[positive]
    return float(relative.max(initial=0.0))


def interval_ends(
    value: float, half: float, least: float = 0.0, most: float = math.inf
) -> tuple[float | None, float | None]:
    """The ends of an interval within what is possible; None without one.

    >>> interval_ends(0.9, 0.2, most=1.0), interval_ends(0.9, math.nan)
    ((0.7, 1.0), (None, None))
    """
    return (None, None) if math.isnan(half) else (max(least, value - half), min(most, value + half))
