"""Connection probabilities of all pairs of brokers at once, from sampled states of the overlay."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from surecast.kernels import njit

__all__ = ["sample_connections"]

Array = NDArray[np.float64]
Index = NDArray[np.intp]

_Z = 1.959963984540054
"""The 97.5 % quantile of the normal distribution."""


def sample_connections(
    broker_up: Array, ends: Index, link_up: Array, pairs: Index, samples: int, seed: int
) -> tuple[Array, Array, Array]:
    """Returns the estimate and 95 % interval of P[connected] for each row of `pairs`; `ends` has the two brokers of
    each link.

    The share of samples in which a pair is connected is taken among those in which both are up, and multiplied by the
    exact probability of that; the interval is Wilson's.

    >>> ends, pairs = np.array([[0, 1]]), np.array([[0, 1]])
    >>> value, low, high = sample_connections(np.array([0.9, 0.9]), ends, np.array([1.0]), pairs, 1000, 1)
    >>> round(float(value[0]), 12), bool(low[0] < 0.81)
    (0.81, True)
    """
    both, connected = _count(broker_up, ends, link_up, pairs, samples, np.uint64(seed))
    certain = broker_up[pairs[:, 0]] * np.where(pairs[:, 0] == pairs[:, 1], 1.0, broker_up[pairs[:, 1]])
    n = np.maximum(both, 1)
    share = connected / n
    centre = (share + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    half = _Z / (1 + _Z**2 / n) * np.sqrt(share * (1 - share) / n + _Z**2 / (4 * n**2))
    low, high = np.maximum(centre - half, 0.0), np.minimum(centre + half, 1.0)
    unsampled = both == 0
    return (
        certain * np.where(unsampled, 0.5, share),
        certain * np.where(unsampled, 0.0, np.minimum(low, share)),
        certain * np.where(unsampled, 1.0, np.maximum(high, share)),
    )


@njit(cache=True)
def _root(parent: Index, v: int) -> int:
    while parent[v] != v:
        parent[v] = parent[parent[v]]
        v = parent[v]
    return v


@njit(cache=True)
def _uniform(state: NDArray[np.uint64]) -> float:
    """Returns the next number of a SplitMix64 generator, in [0, 1)."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return float((z ^ (z >> np.uint64(31))) >> np.uint64(11)) * 2.0**-53


@njit(cache=True)
def _count(
    broker_up: Array, ends: Index, link_up: Array, pairs: Index, samples: int, seed: np.uint64
) -> tuple[Index, Index]:
    """In how many samples both brokers of a pair are up, and in how many of these they are connected."""
    state = np.array([seed], dtype=np.uint64)
    n = len(broker_up)
    both, connected = np.zeros(len(pairs), dtype=np.int64), np.zeros(len(pairs), dtype=np.int64)
    parent, label = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    up = np.empty(n, dtype=np.bool_)
    for _ in range(samples):
        for v in range(n):
            parent[v] = v
            up[v] = _uniform(state) < broker_up[v]
        for i in range(len(ends)):
            if _uniform(state) < link_up[i] and up[ends[i, 0]] and up[ends[i, 1]]:
                a, b = _root(parent, ends[i, 0]), _root(parent, ends[i, 1])
                if a != b:
                    parent[a] = b
        for v in range(n):
            label[v] = _root(parent, v) if up[v] else -1
        for i in range(len(pairs)):
            a, b = label[pairs[i, 0]], label[pairs[i, 1]]
            if a >= 0 and b >= 0:
                both[i] += 1
                if a == b:
                    connected[i] += 1
    return both, connected
