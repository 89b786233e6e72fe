"""Confidence intervals of simulated and measured figures over independent runs."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

__all__ = ["ratio_estimate"]

Floats = NDArray[np.float64]


def ratio_estimate(numerators: Floats, denominators: Floats) -> tuple[Floats, Floats]:
    """Value and 95 % half-width of a ratio of means, over runs (rows), for each column.

    With equal denominators it is the mean with its Student-t interval. NaN where there is no value or, in fewer than
    two runs, no interval.

    >>> value, half = ratio_estimate(np.array([[8.0], [10.0]]), np.array([[10.0], [10.0]]))
    >>> float(value[0]), round(float(half[0]), 3)
    (0.9, 1.271)
    """
    runs = len(numerators)
    total = denominators.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        value = numerators.sum(axis=0) / total
        if runs < 2:
            return value, np.full(value.shape, math.nan)
        spread = np.sqrt(((numerators - value * denominators) ** 2).sum(axis=0) / (runs - 1))
        half = float(stdtrit(runs - 1, 0.975)) * spread * math.sqrt(runs) / total
    return value, half
