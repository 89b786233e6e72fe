"""Quantiles of times that were counted in bins of their leading bits."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from surecast.simulation.dropping.queue_kernel import BINS, LOWEST_BIN, SUB_BITS

__all__ = ["EDGES", "quantile"]

_BITS = (np.arange(BINS + 1, dtype=np.int64) + LOWEST_BIN) << (52 - SUB_BITS)
EDGES: NDArray[np.float64] = _BITS.view(np.float64)
"""The lower end of each bin, and the upper end of the last."""


def quantile(counts: NDArray[np.int64], share: float) -> float:
    """The time that the given share of the counted times does not exceed, linear within a bin; NaN without any.

    >>> counts = np.zeros(BINS, dtype=np.int64)
    >>> counts[int(np.searchsorted(EDGES, 1.0))] = 10
    >>> quantile(counts, 0.5)
    1.0078125
    """
    total = int(counts.sum())
    if total == 0:
        return math.nan
    cumulative = np.cumsum(counts)
    wanted = share * total
    i = min(int(np.searchsorted(cumulative, wanted)), BINS - 1)
    before = int(cumulative[i - 1]) if i else 0
    part = (wanted - before) / int(counts[i]) if counts[i] else 0.0
    low, high = (0.0 if i == 0 else float(EDGES[i])), float(EDGES[i + 1])
    return low + part * (high - low)
