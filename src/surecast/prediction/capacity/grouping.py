"""Rows of numbers that coincide, up to rounding: what is equal is computed once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["coinciding"]

Array = NDArray[np.float64]
Index = NDArray[np.intp]

_BITS = 24


def coinciding(keys: Array) -> tuple[Index, Index]:
    """Returns the first of each set of rows that agree to about seven digits, and for every row the number of its set.

    >>> first, of = coinciding(np.array([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0 + 1e-13]]))
    >>> first.tolist(), of.tolist()
    ([0, 1], [0, 1, 0])
    """
    mantissa, exponent = np.frexp(np.ascontiguousarray(keys, dtype=np.float64))
    # Adding 0 makes one of the two zeros.
    rounded = np.ldexp(np.round(np.ldexp(mantissa, _BITS)), exponent) + 0.0
    numbers: dict[bytes, int] = {}
    first: list[int] = []
    of: list[int] = []
    for i, key in enumerate(rounded):
        number = numbers.setdefault(key.tobytes(), len(first))
        if number == len(first):
            first.append(i)
        of.append(number)
    return np.array(first, dtype=np.intp), np.array(of, dtype=np.intp)
