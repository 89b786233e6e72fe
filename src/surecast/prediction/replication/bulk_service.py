"""A bulk-service queue: a server that takes all at once whatever came while it was busy.

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

__all__ = ["BulkService", "Cycle", "Mixture", "Times", "solve_bulk_service", "solve_cycle"]

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
        """Returns P[longer than this]."""
        width = np.maximum(self.width, 1e-15)
        return float(self.weight @ (1.0 - np.clip((time_s - self.base) / width, 0.0, 1.0)))

    def quantile_s(self, share: float) -> float:
        """Returns the time that this share does not exceed."""
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
class Cycle:
    """The time that an instance keeps the server busy, by how it began, and the time that the server then rests.

    `driven`: others waited while the one before was in flight. Where nobody did, the server stays busy for `rest` of
    that one: who came meanwhile begins `rested`. Where nobody came then either, the next one begins alone, and closes
    the server for `alone_s`.
    """

    driven: Times
    rested: Times
    rest: Times
    alone_s: float


@dataclass(frozen=True)
class BulkService:
    """The stationary state: `share[i]` of the instances have `sizes[i]` publications, close for `closed_s[i]`, and
    rest for `rest_s[i]` where nobody came meanwhile. `begun[i]` says how: 0 driven, 1 rested, 2 alone.
    """

    rate_per_s: float
    sizes: Array
    share: Array
    closed_s: Array
    rest_s: Array
    begun: Array

    @cached_property
    def batch_mean(self) -> float:
        """Publications of an instance."""
        return float(self.share @ self.sizes)

    @cached_property
    def driving(self) -> Array:
        """P[an instance was this one, given that others waited for it]; of all, where that hardly happens."""
        weight = self.share * -np.expm1(-self.rate_per_s * self.closed_s)
        return np.asarray(weight / weight.sum() if weight.sum() > 1e-12 else self.share)

    def latency(self, driven: Times, rested: Times | None = None, alone: Mixture | None = None) -> Mixture:
        """Returns the time from arrival until the own instance is done, given its duration by batch size.

        A publication that arrives while the server is busy waits for the rest of that time, which is uniform, together
        with all that arrive in the same period. One that finds it open begins alone.
        """
        load = self.rate_per_s * self.closed_s
        if len(self.sizes) == 1 and self.sizes[0] > BATCH_MAX:
            return Mixture(np.ones(1), driven(self.sizes), self.closed_s)
        none, count = self.share * np.exp(-load), np.arange(1.0, self.sizes.max() + 1)
        first = alone or Mixture(np.ones(1), driven(np.ones(1)), np.zeros(1))
        parts = [
            (self.share, self.closed_s, driven(count)),
            (none, self.rest_s, (rested or driven)(count)),
        ]
        weights, bases, widths = [], [], []
        for share, closed_s, done_s in parts:
            mean = self.rate_per_s * closed_s
            # an arrival's batch has itself and all others of that while (of a Poisson process)
            weight = (share * mean)[:, None] * _poisson(count - 1, mean)
            base, width = np.broadcast_arrays(done_s[None, :], closed_s[:, None])
            weights.append(weight.ravel())
            bases.append(base.ravel())
            widths.append(width.ravel())
        opened = float(none @ np.exp(-self.rate_per_s * self.rest_s))
        weight = np.concatenate([*weights, opened * first.weight])
        base, width = np.concatenate([*bases, first.base]), np.concatenate([*widths, first.width])
        relevant = weight > 1e-12 * weight.sum()
        return Mixture(weight[relevant] / weight[relevant].sum(), base[relevant], width[relevant])


def solve_bulk_service(rate_per_s: float, closed: Times) -> BulkService | None:
    """Returns the service of a server that does not rest, under Poisson arrivals; None where it cannot keep up.

    >>> batches = solve_bulk_service(100.0, lambda k: 0.001 + 0.0 * k)
    >>> round(batches.batch_mean, 3)  # a fixed time begins with every first arrival, and takes those of a while
    1.005
    """
    return solve_cycle(rate_per_s, Cycle(closed, closed, lambda k: 0.0 * k, float(closed(np.ones(1))[0])))


def solve_cycle(rate_per_s: float, cycle: Cycle) -> BulkService | None:
    """Returns the service under Poisson arrivals, None where it cannot keep up: the exact chain of successive batch
    sizes.

    >>> cycle = Cycle(lambda k: 0.001 + 0.0 * k, lambda k: 0.001 + 0.0 * k, lambda k: 0.001 + 0.0 * k, 0.001)
    >>> round(solve_cycle(100.0, cycle).batch_mean, 3)
    1.009
    """
    size = _typical(rate_per_s, cycle.driven)
    if size is None:
        return None
    if size > BATCH_MAX:
        single = np.array([size])
        return BulkService(rate_per_s, single, np.ones(1), cycle.driven(single), cycle.rest(single), np.zeros(1))
    top = int(size + 12.0 * np.sqrt(size) + 20)
    while True:
        count = np.arange(1.0, top + 1)
        rests = bool(cycle.rest(count).any())
        sizes = np.concatenate([count, count[: top * rests], np.ones(1)])
        begun = np.repeat([0.0, 1.0, 2.0], [top, top * rests, 1])
        closed_s = np.concatenate([cycle.driven(count), cycle.rested(count[: top * rests]), [cycle.alone_s]])
        rest_s = cycle.rest(sizes)
        steps, none = [_poisson(count, rate_per_s * closed_s)], np.exp(-rate_per_s * closed_s)[:, None]
        if rests:
            steps.append(none * _poisson(count, rate_per_s * rest_s))
            none = none * np.exp(-rate_per_s * rest_s)[:, None]
        step = np.hstack([*steps, none])
        lost = 1.0 - step.sum(axis=1)
        step[:, top - 1] += lost
        share = _stationary(step)
        if share @ lost < 1e-9 or top > 4 * BATCH_MAX:
            return BulkService(rate_per_s, sizes, share, closed_s, rest_s, begun)
        top *= 2


def _stationary(step: Array) -> Array:
    system = step.T - np.eye(len(step))
    system[-1] = 1.0
    share = np.maximum(np.linalg.solve(system, np.append(np.zeros(len(step) - 1), 1.0)), 0.0)
    return np.asarray(share / share.sum())


def _typical(rate_per_s: float, closed: Times) -> float | None:
    """Returns the batch that reproduces itself: k publications come while k of them keep the server busy."""
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
    """Returns P[so many come], for each mean (rows) and each count (columns)."""
    logs = np.log(np.maximum(means, 1e-300))[:, None] * counts - means[:, None] - gammaln(counts + 1.0)
    return np.asarray(np.exp(logs), dtype=np.float64)
