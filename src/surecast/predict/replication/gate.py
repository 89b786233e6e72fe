"""A gate that lets through, all at once, whatever came while it was closed.

That is how a group batches: while an instance of k publications keeps it busy for a time that depends on k, others
gather, and the next instance takes them all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

__all__ = ["Gate", "Mixture", "Times", "solve_gate"]

Array = NDArray[np.float64]
Times = Callable[[Array], Array]
"""Seconds, by the number of publications of an instance."""

BATCH_MAX = 400
"""Above about so many publications in an instance their number hardly varies, and is taken as fixed."""


@dataclass(frozen=True)
class Mixture:
    """A time that is, with probability `weight`, uniform from `base` to `base + width`."""

    weight: Array
    base: Array
    width: Array

    @property
    def mean_s(self) -> float:
        return float(self.weight @ (self.base + self.width / 2.0))

    def tail(self, time_s: float) -> float:
        """P[longer than this]."""
        width = np.maximum(self.width, 1e-15)
        return float(self.weight @ (1.0 - np.clip((time_s - self.base) / width, 0.0, 1.0)))

    def quantile_s(self, share: float) -> float:
        """The time that this share does not exceed."""
        low, high = 0.0, float((self.base + self.width).max())
        while high - low > 1e-9 * high:
            middle = (low + high) / 2.0
            low, high = (middle, high) if self.tail(middle) > 1.0 - share else (low, middle)
        return high

    def plus(self, chances: list[tuple[float, float]]) -> Mixture:
        """With one of several constants added, each with its probability."""
        weight = np.concatenate([chance * self.weight for chance, _ in chances])
        base = np.concatenate([self.base + extra for _, extra in chances])
        return Mixture(weight, base, np.tile(self.width, len(chances)))


@dataclass(frozen=True)
class Gate:
    """The stationary state: `share[i]` of the instances have `sizes[i]` publications and close for `closed_s[i]`."""

    rate_per_s: float
    sizes: Array
    share: Array
    closed_s: Array

    @cached_property
    def batch_mean(self) -> float:
        """Publications of an instance."""
        return float(self.share @ self.sizes)

    def latency(self, done: Times) -> Mixture:
        """From arrival until the own instance, of k publications, is done, `done(k)` after it began.

        Who comes while the gate is closed waits for the rest of that time, which is uniform, with all who come in the
        same while; who finds it open begins alone.
        """
        load = self.rate_per_s * self.closed_s
        if len(self.sizes) == 1 and self.sizes[0] > BATCH_MAX:
            return Mixture(np.ones(1), done(self.sizes), self.closed_s)
        alone = float(self.share @ np.exp(-load))
        count = np.arange(1.0, len(self.sizes) + 1)
        # an arrival's batch has itself and all others of that while (of a Poisson process)
        weight = (self.share * load)[:, None] * _poisson(count - 1, load)
        base, width = np.broadcast_arrays(done(count)[None, :], self.closed_s[:, None])
        weights = np.append(weight.ravel(), alone)
        bases, widths = np.append(base.ravel(), done(np.ones(1))), np.append(width.ravel(), 0.0)
        kept = weights > 1e-12 * weights.sum()
        return Mixture(weights[kept] / weights[kept].sum(), bases[kept], widths[kept])


def solve_gate(rate_per_s: float, closed: Times) -> Gate | None:
    """The gate under Poisson arrivals, None where it cannot keep up: the exact chain of successive batch sizes.

    >>> gate = solve_gate(100.0, lambda k: 0.001 + 0.0 * k)
    >>> round(gate.batch_mean, 3)  # a gate of fixed length closes with every first arrival, and takes those of a while
    1.005
    """
    size = _typical(rate_per_s, closed)
    if size is None:
        return None
    if size > BATCH_MAX:
        one = np.array([size])
        return Gate(rate_per_s, one, np.ones(1), closed(one))
    top = int(size + 12.0 * np.sqrt(size) + 20)
    while True:
        sizes = np.arange(1.0, top + 1)
        lengths = closed(sizes)
        load = rate_per_s * lengths
        step = _poisson(sizes, load)
        step[:, 0] += np.exp(-load)
        lost = 1.0 - step.sum(axis=1)
        step[:, -1] += lost
        system = np.vstack([step.T - np.eye(top), np.ones(top)])
        share = np.linalg.lstsq(system, np.append(np.zeros(top), 1.0), rcond=None)[0]
        share = np.maximum(share, 0.0) / np.maximum(share, 0.0).sum()
        if share @ lost < 1e-9 or top > 4 * BATCH_MAX:
            return Gate(rate_per_s, sizes, share, lengths)
        top *= 2


def _typical(rate_per_s: float, closed: Times) -> float | None:
    """The batch that reproduces itself: k publications come while k of them keep the gate closed."""
    size = 1.0
    for _ in range(10_000):
        after = max(1.0, rate_per_s * float(closed(np.array([size]))[0]))
        if after > 1e7:
            return None
        if abs(after - size) <= 1e-9 * size:
            break
        size = after
    return size


def _poisson(counts: Array, means: Array) -> Array:
    """P[so many come], for each mean (rows) and each count (columns)."""
    logs = np.log(np.maximum(means, 1e-300))[:, None] * counts - means[:, None] - gammaln(counts + 1.0)
    return np.asarray(np.exp(logs), dtype=np.float64)
