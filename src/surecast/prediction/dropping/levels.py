"""Queues whose rates depend on how many events they hold: stationary distribution and tagged events.

The state is the number of events (the level) and the phase of the subscriber. Levels change by one, phases change as
the subscriber comes and goes. One event joins at a rate by level and phase; one leaves at a rate by level and phase.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from surecast.kernels import njit

__all__ = ["delivered_moments", "delivery_transforms", "level_distribution"]

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]


@njit(cache=True)
def _invert(matrix: Any, out: Any) -> None:
    """The inverse of a small matrix, by elimination with pivots; `matrix` is used up. Compiles faster than LAPACK."""
    size = len(matrix)
    for i in range(size):
        for j in range(size):
            out[i, j] = 1.0 if i == j else 0.0
    for k in range(size):
        best = k
        for i in range(k + 1, size):
            if abs(matrix[i, k]) > abs(matrix[best, k]):
                best = i
        if best != k:
            for j in range(size):
                matrix[k, j], matrix[best, j] = matrix[best, j], matrix[k, j]
                out[k, j], out[best, j] = out[best, j], out[k, j]
        scale = 1.0 / matrix[k, k]
        for j in range(size):
            matrix[k, j] *= scale
            out[k, j] *= scale
        for i in range(size):
            factor = matrix[i, k]
            if i != k and factor != 0.0:
                for j in range(size):
                    matrix[i, j] -= factor * matrix[k, j]
                    out[i, j] -= factor * out[k, j]


@njit(cache=True)
def _times(matrix: Any, vector: Any, out: Any) -> None:
    for i in range(len(out)):
        total = matrix[i, 0] * vector[0]
        for j in range(1, len(vector)):
            total += matrix[i, j] * vector[j]
        out[i] = total


@njit(cache=True)
def _reduce(generator: Array, up: Array, down: Array, climb: Any, inverse: Any) -> None:
    """Fills in the matrices that lead from each level to the next, and the inverse that gives the empty queue."""
    levels, size = up.shape
    after, local = np.zeros((size, size)), np.zeros((size, size))
    for n in range(levels - 1, 0, -1):
        for i in range(size):
            for j in range(size):
                local[i, j] = -generator[i, j] - after[i, j]
            local[i, i] += up[n, i] + down[n, i]
        _invert(local, inverse)
        for i in range(size):
            for j in range(size):
                climb[n, i, j] = up[n - 1, i] * inverse[i, j]
                after[i, j] = climb[n, i, j] * down[n, j]
    # the empty queue: one balance equation is redundant and gives way to the scale
    for i in range(size):
        for j in range(size):
            local[j, i] = generator[i, j] + after[i, j]
    for i in range(size):
        local[i, i] -= up[0, i]
    for i in range(size):
        local[size - 1, i] = 1.0
    _invert(local, inverse)


@njit(cache=True)
def level_distribution(generator: Array, up: Array, down: Array) -> Array:
    """Returns the probability of each level (rows) and phase (columns), by linear level reduction from the top.

    `up[n]` holds the rates from level n to n + 1 and `down[n]` those from n to n - 1; the last row of `up` and the
    first of `down` are zero. The inverses have no negative entries, so that even tiny probabilities keep their digits.
    """
    levels, size = up.shape
    climb, inverse = np.zeros((levels, size, size)), np.zeros((size, size))
    _reduce(generator, up, down, climb, inverse)
    probability = np.zeros((levels, size))
    for i in range(size):
        probability[0, i] = inverse[i, size - 1]
    total = 1.0
    for n in range(1, levels):
        for j in range(size):
            for i in range(size):
                probability[n, j] += probability[n - 1, i] * climb[n, i, j]
            total += probability[n, j]
        if total > 1e200:
            probability[: n + 1] *= 1e-200
            total *= 1e-200
    return probability / total


@njit(cache=True)
def delivered_moments(generator: Array, serve: Array, renege: float, joins: Array) -> tuple[float, float]:
    """Returns the probability that a joining event is delivered, and its mean response time on that event (not divided
    by it).

    `joins[k]` holds the probabilities that it joins behind k events in each phase; `serve` the rates of transmission
    by phase, `renege` the rate at which each event expires.
    """
    size = len(serve)
    share, time = 0.0, 0.0
    reach, spent, right = np.ones(size), np.zeros(size), np.zeros(size)
    local, inverse = np.zeros((size, size)), np.zeros((size, size))
    for k in range(len(joins)):
        if k == 0 or renege > 0.0:
            for i in range(size):
                for j in range(size):
                    local[i, j] = -generator[i, j]
                local[i, i] += serve[i] + (k + 1) * renege
            _invert(local, inverse)
        for i in range(size):
            right[i] = (serve[i] + k * renege) * reach[i]
        _times(inverse, right, reach)
        for i in range(size):
            right[i] = reach[i] + (serve[i] + k * renege) * spent[i]
        _times(inverse, right, spent)
        for i in range(size):
            share += joins[k, i] * reach[i]
            time += joins[k, i] * spent[i]
    return share, time


@njit(cache=True)
def delivery_transforms(generator: Array, serve: Array, renege: float, joins: Array, points: Complex) -> Complex:
    """Laplace transforms of the response time on delivery, at each point; arguments as for `delivered_moments`."""
    size = len(serve)
    out = np.zeros(len(points), dtype=np.complex128)
    reach, right = np.ones(size, dtype=np.complex128), np.ones(size, dtype=np.complex128)
    local, inverse = np.zeros((size, size), dtype=np.complex128), np.zeros((size, size), dtype=np.complex128)
    for p in range(len(points)):
        reach[:] = 1.0
        for k in range(len(joins)):
            if k == 0 or renege > 0.0:
                for i in range(size):
                    for j in range(size):
                        local[i, j] = -generator[i, j]
                    local[i, i] += points[p] + serve[i] + (k + 1) * renege
                _invert(local, inverse)
            for i in range(size):
                right[i] = (serve[i] + k * renege) * reach[i]
            _times(inverse, right, reach)
            for i in range(size):
                out[p] += joins[k, i] * reach[i]
    return out
