"""Compiled look-ups in the tables of `kernel_tables`."""
# The kernels take many arrays and are typed by Numba.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

import math

import numpy as np

from surecast.kernels import njit
from surecast.prediction.capacity.kernel_tables import CELLS as _CELLS
from surecast.prediction.capacity.kernel_tables import LOWEST as _LOWEST
from surecast.prediction.capacity.kernel_tables import OCTAVES as _OCTAVES

__all__ = ["look_up_all", "value_at", "values_at"]


@njit(cache=True)
def _outside(ends, x):
    """Returns a function outside its table: linear from its value at 0 below the first point, a power of x above the
    last.
    """
    if x <= 0.0:
        return ends[0]
    low = 2.0**_LOWEST
    if x < low:
        return ends[0] + (ends[1] - ends[0]) * (x / low)
    return ends[2] * (x / 2.0 ** (_LOWEST + _OCTAVES)) ** ends[3]


@njit(cache=True)
def _cell(x):
    """Returns the cell of x, and the position in it from -1/2 to 1/2; the cell is -1 outside the tables."""
    if x <= 0.0:
        return -1, 0.0
    mantissa, exponent = math.frexp(x)
    octave = exponent - 1 - _LOWEST
    if octave < 0 or octave >= _OCTAVES:
        return -1, 0.0
    offset = (2.0 * mantissa - 1.0) * _CELLS
    part = int(offset)
    return octave * _CELLS + part, offset - part - 0.5


@njit(cache=True, inline="always")
def _polynomial(c, t):
    return c[0] + t * (c[1] + t * (c[2] + t * (c[3] + t * (c[4] + t * c[5]))))


@njit(cache=True)
def value_at(tables, group, slot, x):
    cell, offset = _cell(x)
    if cell < 0:
        return _outside(tables.ends[group, slot], x)
    return _polynomial(tables.coefficients[group, cell, slot], offset)


@njit(cache=True)
def values_at(tables, group, x, out):
    """Writes the values of all functions at x."""
    cell, offset = _cell(x)
    if cell < 0:
        for slot in range(len(out)):
            out[slot] = _outside(tables.ends[group, slot], x)
    else:
        for slot in range(len(out)):
            out[slot] = _polynomial(tables.coefficients[group, cell, slot], offset)


@njit(cache=True)
def look_up_all(tables, group, slot, x):
    """Returns the values of one function at many x."""
    values = np.empty(len(x))
    for i in range(len(x)):
        values[i] = value_at(tables, group, slot, x[i])
    return values
