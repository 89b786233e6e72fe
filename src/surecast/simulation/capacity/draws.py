"""Endless streams of random numbers, drawn in blocks that grow: a short run draws few, a long one seldom."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from surecast.scenario.distributions import Distribution

__all__ = ["arrivals", "times"]

_BLOCK_MIN, _BLOCK_MAX = 32, 4096


def times(distribution: Distribution | None, rng: np.random.Generator) -> Iterator[float]:
    """Times of a distribution, one after the other; always 0 without one.

    >>> from surecast.scenario import parse_distribution
    >>> stream = times(parse_distribution("2s"), np.random.default_rng(1))
    >>> round(sum(next(stream) for _ in range(10_000)) / 10_000, 1)
    2.0
    """
    size = _BLOCK_MIN
    while True:
        if distribution is None:
            yield 0.0
            continue
        yield from distribution.sample(rng, size).tolist()
        size = min(2 * size, _BLOCK_MAX)


def arrivals(rates_per_s: NDArray[np.float64], rng: np.random.Generator) -> Iterator[tuple[float, int]]:
    """Poisson streams, superposed: the time to the next arrival, and which stream it belongs to; none without rates.

    >>> stream = arrivals(np.array([1.0, 0.0, 3.0]), np.random.default_rng(1))
    >>> drawn = [next(stream) for _ in range(10_000)]
    >>> round(sum(gap for gap, _ in drawn) / 2500, 1), round(sum(which == 2 for _, which in drawn) / 10_000, 2)
    (1.0, 0.75)
    """
    used = np.flatnonzero(rates_per_s > 0)
    if not len(used):
        return
    upto = np.cumsum(rates_per_s[used])
    total, size = float(upto[-1]), _BLOCK_MIN
    while True:
        gaps = rng.standard_exponential(size) / total
        which = used[np.minimum(np.searchsorted(upto, rng.random(size) * total, side="right"), len(used) - 1)]
        yield from zip(gaps.tolist(), which.tolist(), strict=True)
        size = min(2 * size, _BLOCK_MAX)
