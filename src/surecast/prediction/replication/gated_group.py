"""The time of events in a group whose service takes far longer than its messages: it works in cycles.

Leader and followers carry out each event. While the leader carries out a batch, what comes waits with it to be
proposed; when the batch is done it is proposed and reaches a follower, which is behind by the longest service of the
batch and votes when it is done. All that has come by then is the next batch. So a cycle of n events takes the sum of
their services, the longest of them again, and the messages. The number of events of successive cycles is a Markov
chain: arrivals of a Poisson process in a time that is taken as gamma distributed with its mean and variance.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv
from scipy.stats import nbinom, poisson

__all__ = ["gated_time"]

Array = NDArray[np.float64]

_EVENTS_MAX = 600
_NODES = 64
_LEFT_OUT = 1e-10


def _longest(squared_cv: float, counts: Array) -> tuple[Array, Array]:
    """Returns mean and variance of the longest of so many services of mean 1, which are gamma distributed."""
    if squared_cv <= 1e-9:
        return np.ones(len(counts)), np.zeros(len(counts))
    # of n uniform shares the largest has the density n u^(n - 1): u = v^(1/n) with v uniform
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    v, weights = (nodes + 1.0) / 2.0, weights / 2.0
    shape = 1.0 / squared_cv
    times = gammaincinv(shape, v[None, :] ** (1.0 / counts[:, None])) * squared_cv
    mean = times @ weights
    return mean, np.maximum((times**2) @ weights - mean**2, 0.0)


def _arrivals(mean: Array, variance: Array, most: int) -> Array:
    """Returns P[so many arrivals], by cycle (row), where their mean number is gamma distributed."""
    numbers = np.arange(most + 1)
    table = np.empty((len(mean), most + 1))
    varies = variance > 1e-9 * mean**2
    table[~varies] = poisson.pmf(numbers[None, :], mean[~varies, None])
    shape = mean[varies] ** 2 / variance[varies]
    scale = variance[varies] / mean[varies]
    table[varies] = nbinom.pmf(numbers[None, :], shape[:, None], 1.0 / (1.0 + scale[:, None]))
    return table


@lru_cache(maxsize=256)
def gated_time(rate_per_s: float, service_s: float, squared_cv: float, messages_s: float) -> tuple[float, float]:
    """Returns mean and variance of the time from an event's coming until it is carried out, beyond the messages of a
    vote, `messages_s`.

    >>> mean_s, variance_s2 = gated_time(1e-9, 2.0, 1.0, 0.1)  # alone in the group: its own service
    >>> round(mean_s, 6), round(variance_s2, 6)
    (2.0, 4.0)
    """
    load = rate_per_s * service_s
    most = int(min(40 + 30.0 * load / (1.0 - load) * (1.0 + squared_cv), _EVENTS_MAX))
    counts = np.arange(1, most + 1, dtype=np.float64)
    longest_s, spread = _longest(squared_cv, counts)
    mean_s = service_s * (counts + longest_s) + messages_s
    # of gamma distributed times the share of the longest is independent of their sum
    sum_square = counts**2 + counts * squared_cv
    share_mean, share_square = longest_s / counts, (longest_s**2 + spread) / sum_square
    square = sum_square * (1.0 + 2.0 * share_mean + share_square)
    variance = service_s**2 * np.maximum(square - (counts + longest_s) ** 2, 0.0)
    arrivals = _arrivals(rate_per_s * mean_s, rate_per_s**2 * variance, most)
    arrivals[:, -1] += np.maximum(1.0 - arrivals.sum(axis=1), 0.0)
    # nobody has come: the next cycle begins with the next event
    chain = arrivals[:, 1:].copy()
    chain[:, 0] += arrivals[:, 0]
    share = _stationary(chain)
    # an event that comes in a cycle waits for its end, and for those before it; shares of events by cycle
    second = variance + mean_s**2
    shape = np.divide(mean_s**2, variance, out=np.full(most, math.inf), where=variance > 0.0)
    third = mean_s**3 * (1.0 + 1.0 / shape) * (1.0 + 2.0 / shape)
    alone = float(share @ arrivals[:, 0])
    events = alone + rate_per_s * float(share @ mean_s)
    square_s2 = service_s**2 * (1.0 + squared_cv)
    half_s = (1.0 + load) * rate_per_s * float(share @ second) / 2.0
    wait_s = half_s / events
    squares = rate_per_s * float(share @ third) * (1.0 + load + load**2) / 3.0
    squares += rate_per_s**2 * square_s2 * float(share @ second) / 2.0
    wait_square = squares / events
    time_s = wait_s + service_s
    return time_s, max(wait_square - wait_s**2 + square_s2 - service_s**2, 0.0)


def _stationary(chain: Array) -> Array:
    size = len(chain)
    system = chain.T - np.eye(size)
    system[-1] = 1.0
    right = np.zeros(size)
    right[-1] = 1.0
    share = np.maximum(np.linalg.solve(system, right), 0.0)
    return np.asarray(share / share.sum(), dtype=np.float64)
