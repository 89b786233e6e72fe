"""The delay of a stored event over a whole route, as one phase-type distribution (reliability Eqs. 4-11)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import expm
from scipy.optimize import brentq
from scipy.sparse import csr_array

from surecast.kernels import njit
from surecast.prediction.reliability.component_chains import component_of
from surecast.prediction.reliability.hops import Hop, hop_chain
from surecast.scenario.system import Failures

__all__ = ["PhaseTypeDelay", "route_delay"]

Array = NDArray[np.float64]
Integers = NDArray[np.int32]
Method = Literal["auto", "uniformisation", "expm"]

STEPS_MAX = 20_000
"""Jumps of the uniformised chain up to which they are followed one by one."""


@dataclass(frozen=True, eq=False)
class PhaseTypeDelay:
    """A time that is 0 with probability `atom`, and else the time to absorption of a Markov chain.

    `alpha` holds the probabilities of starting in each phase, which sum to 1 - atom; `matrix` the rates per second.

    >>> wait = PhaseTypeDelay(0.9, np.array([0.1]), np.array([[-0.5]]))
    >>> round(wait.mean, 12), wait.cdf(0.0), round(wait.cdf(2.0), 6), round(wait.quantile(0.99), 6)
    (0.2, 0.9, 0.963212, 4.60517)
    >>> round(wait.then(wait).mean, 12)
    0.4
    """

    atom: float
    alpha: Array
    matrix: Array

    @cached_property
    def exits(self) -> Array:
        """Rate of absorption from each phase."""
        return np.asarray(-self.matrix.sum(axis=1), dtype=np.float64)

    @cached_property
    def mean(self) -> float:
        """The mean, zeros included."""
        if not len(self.alpha):
            return 0.0
        return float(np.linalg.solve(-self.matrix.T, self.alpha).sum())

    def tail(self, time_s: float, method: Method = "auto") -> float:
        """Returns P[delay > time]."""
        if time_s == 0 or not len(self.alpha):
            return float(self.alpha.sum())
        return float(self._phases(time_s, method).sum()) if time_s < math.inf else 0.0

    def cdf(self, time_s: float, method: Method = "auto") -> float:
        """Returns P[delay <= time]: the atom at 0 counts (reliability Eq. 4 needs `<=`)."""
        return 1.0 - self.tail(time_s, method)

    def density(self, time_s: float) -> float:
        """Density of the delay at a time above 0."""
        return float(self._phases(time_s, "auto") @ self.exits) if len(self.alpha) else 0.0

    def quantile(self, probability: float) -> float:
        """Returns the least time with P[delay <= time] of at least `probability`."""
        if probability <= self.atom or not len(self.alpha):
            return 0.0
        if probability >= 1:
            return math.inf
        high = max(self.mean, 1e-300)
        while self.cdf(high) < probability:
            high *= 2.0
        return float(brentq(lambda t: self.cdf(t) - probability, 0.0, high, xtol=1e-12 * high, rtol=1e-12))

    def then(self, other: PhaseTypeDelay) -> PhaseTypeDelay:
        """Returns the sum of this delay and an independent other one."""
        n = len(self.alpha)
        matrix = np.zeros((n + len(other.alpha),) * 2)
        matrix[:n, :n], matrix[n:, n:] = self.matrix, other.matrix
        matrix[:n, n:] = np.outer(self.exits, other.alpha)
        return PhaseTypeDelay(self.atom * other.atom, np.concatenate([self.alpha, self.atom * other.alpha]), matrix)

    def _phases(self, time_s: float, method: Method) -> Array:
        """Returns the probability of each phase at a time."""
        rate = float(-self.matrix.diagonal().min())
        if method == "expm" or (method == "auto" and rate * time_s > STEPS_MAX):
            return np.asarray(self.alpha @ expm(self.matrix * time_s), dtype=np.float64)
        jumps = csr_array(self.matrix.T / rate + np.eye(len(self.alpha)))
        return np.asarray(uniformise(jumps.data, jumps.indices, jumps.indptr, self.alpha, rate * time_s))


def route_delay(brokers: Sequence[Failures | None], links: Sequence[Failures | None]) -> PhaseTypeDelay:
    """Returns the delay of an event from its arrival at the first broker of a route to its arrival at the last.

    For exponential times this is exact: when an event arrives at a broker, that broker is up, and what comes after it
    is still in its stationary state, so the hops are independent.

    >>> from surecast.scenario import Failures, parse_distribution
    >>> weak = Failures(parse_distribution("90s"), parse_distribution("10s"))
    >>> delay = route_delay([None, None, None], [weak, weak])
    >>> round(delay.atom, 12), round(delay.mean, 12)
    (0.81, 2.0)
    """
    if len(brokers) != len(links) + 1:
        raise ValueError(f"{len(brokers)} brokers and {len(links)} links are no route")
    nodes = [component_of(f"broker {i}", failures) for i, failures in enumerate(brokers)]
    edges = [component_of(f"link {i}", failures) for i, failures in enumerate(links)]
    total = PhaseTypeDelay(1.0, np.zeros(0), np.zeros((0, 0)))
    # reliability Eq. 11: the last hop, to the client, takes no time
    for holder, link, after in zip(nodes[:-1], edges, nodes[1:], strict=True):
        total = total.then(_delay_of(hop_chain(holder, link, after)))
    return total


def _delay_of(hop: Hop) -> PhaseTypeDelay:
    return PhaseTypeDelay(hop.atom, hop.alpha, hop.matrix)


@njit(cache=True)
def uniformise(data: Array, indices: Integers, starts: Integers, initial: Array, jumps: float) -> Array:
    """Returns the state of a chain after a Poisson number of jumps with the given mean; the matrix comes transposed, by
    rows.

    The Poisson weights are followed in logarithms, and the sum stops when less than 1e-15 of them is left.
    """
    state = initial.copy()
    following = np.empty_like(state)
    total = np.zeros_like(state)
    log_weight = -jumps
    total_weight = 0.0
    last = int(jumps + 12.0 * math.sqrt(jumps) + 60.0)
    for k in range(last + 1):
        weight = math.exp(log_weight)
        total_weight += weight
        for i in range(len(state)):
            total[i] += weight * state[i]
        if k > jumps and 1.0 - total_weight < 1e-15:
            break
        log_weight += math.log(jumps / (k + 1))
        for i in range(len(state)):
            value = 0.0
            for j in range(starts[i], starts[i + 1]):
                value += data[j] * state[indices[j]]
            following[i] = value
        state, following = following, state
    return total
