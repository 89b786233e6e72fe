"""The delay of an event as a sum: waiting out failures, queues on the way, and the subscriber's own queue.

The three are independent of each other. Waiting out failures ends at an attempt, so it takes whole retransmission
intervals; what it adds is summed attempt by attempt. The queues on the way have the gamma distribution with the mean
and the variance of their sum, after a constant; a single M/M/1 queue is exponential, and then nothing is fitted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import PchipInterpolator
from scipy.optimize import brentq

from surecast.prediction.dropping.queue import after
from surecast.prediction.dropping.response_distributions import ExponentialSum, ResponseLaw, TransformLaw
from surecast.prediction.passages import Passage

__all__ = ["EventDelay", "Waits", "interrupted", "mixture_quantile_s"]

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]

_TABLE = 400
"""Points at which a response time is tabulated where it is needed often."""
_LEFT_OUT = 1e-9


@dataclass(frozen=True)
class Waits:
    """Waiting out failures: P[so many intervals] for each of `times_s`, together P[not expired]; 0 s where nothing
    fails or nothing is stored."""

    times_s: Array
    shares: Array

    @classmethod
    def none(cls) -> Waits:
        return cls(np.zeros(1), np.ones(1))

    @cached_property
    def total(self) -> float:
        return float(self.shares.sum())

    def surviving(self, survives: Callable[[Array], Array]) -> Waits:
        """Returns the waits of the events that survive them, by length."""
        return Waits(self.times_s, np.asarray(self.shares * survives(self.times_s), dtype=np.float64))


class EventDelay:
    """The delay of a flow's events that are delivered, from publication on.

    >>> from surecast.prediction.dropping.response_distributions import ExponentialSum
    >>> response = ExponentialSum(np.array([1.0]), np.array([0.5]))
    >>> delay = EventDelay(Waits(np.array([0.0, 10.0]), np.array([0.9, 0.1])), Passage(), response)
    >>> round(delay.within(10.0), 6)  # 0.9 (1 - exp(-5))
    0.893936
    """

    def __init__(self, waits: Waits, passage: Passage, response: ResponseLaw | None):
        self.waits, self.passage, self.response = waits, passage, response
        self._direct = None
        if response is not None and passage.is_exponential:
            self._direct = after(response, passage.mean_s)

    @property
    def law(self) -> ResponseLaw | None:
        """The whole delay as a law of its own, where it is known without fitting and summing."""
        if len(self.waits.times_s) > 1:
            return None
        if self._direct is not None:
            return self._direct
        return self.response if self.passage == Passage() else None

    def within(self, time_s: float) -> float:
        """Returns P[an event waits no longer than it lives, and is delivered within a time]."""
        if time_s == math.inf:
            return self.waits.total
        left = time_s - self.waits.times_s
        in_time = left >= 0.0
        if not in_time.any():
            return 0.0
        probabilities = np.empty(int(in_time.sum()))
        # nearly all events wait for nothing: they are worth the exact value
        probabilities[0] = self._passing(left[in_time][:1])[0]
        if len(probabilities) > 1:
            probabilities[1:] = self.tabulated(left[in_time][1:])
        return float(self.waits.shares[in_time] @ probabilities)

    def roughly_within(self, time_s: float) -> float:
        """As `within`, from the table alone."""
        left = time_s - self.waits.times_s
        return float(self.waits.shares @ np.where(left >= 0.0, self.tabulated(np.maximum(left, 0.0)), 0.0))

    def tabulated(self, times_s: Array) -> Array:
        """Returns P[queues on the way and response together take at most each of the times], from a table."""
        if self.response is None:
            return self.passage.within(times_s)
        times = np.atleast_1d(times_s)[:, None]
        if self._direct is not None:
            return np.asarray(self._table(times)[:, 0], dtype=np.float64)
        points, weights = self.passage.points
        return np.asarray(self._table(times - points) @ weights, dtype=np.float64)

    def _passing(self, times_s: Array) -> Array:
        if self.response is None:
            return self.passage.within(times_s)
        if self._direct is not None:
            return np.array([self._direct.within(float(t)) if t > 0.0 else 0.0 for t in times_s])
        points, weights = self.passage.points
        left = times_s[:, None] - points
        probabilities = np.array([[self.response.within(float(t)) if t > 0.0 else 0.0 for t in row] for row in left])
        return np.asarray(probabilities @ weights, dtype=np.float64)

    @cached_property
    def _table(self) -> Callable[[Array], Array]:
        law = self._direct or self.response
        assert law is not None
        cached = _TABLES.get(id(law))
        if cached is not None and cached[0] is law:
            return cached[1]
        table = _tabulate(law)
        if len(_TABLES) > 64:
            _TABLES.clear()
        _TABLES[id(law)] = (law, table)
        return table


def interrupted(law: ResponseLaw, failure_per_s: float, repair_per_s: float) -> ResponseLaw | None:
    """Returns a time that stops for a repair whenever something fails, with exponential up and down times; None where
    its law is not known.

    With the transform L(s) it has L(s + f - f r / (r + s)), f and r being the rates of failure and of repair. Each
    exponential time of a sum becomes one with two phases, whose tail is a sum of two exponentials.

    >>> law = interrupted(ExponentialSum(np.array([1.0]), np.array([0.5])), 0.01, 0.1)
    >>> round(float(law.weights @ (1.0 / law.rates)), 9)  # 2 s of work, 1.1 s for each second of it
    2.2
    """
    f, r = failure_per_s, repair_per_s
    if f == 0.0:
        return law
    if isinstance(law, ExponentialSum):
        total, product = law.rates + f + r, law.rates * r
        root = np.sqrt(total**2 - 4.0 * product)
        slow = 2.0 * product / (total + root)
        fast = (total + root) / 2.0
        # the tail is 1 at time 0 and falls there at the rate of the work alone
        first = (fast - law.rates) / root
        weights = np.concatenate([law.weights * first, law.weights * (1.0 - first)])
        return ExponentialSum(weights, np.concatenate([slow, fast]), law.after_s)
    if isinstance(law, TransformLaw):
        inner = law.transform

        def transform(points: Complex) -> Complex:
            return inner(points + f - f * r / (r + points))

        return TransformLaw(transform, law.mean_s * (1.0 + f / r))
    return None


_TABLES: dict[int, tuple[ResponseLaw, Callable[[Array], Array]]] = {}
"""Tables of the laws used last: the flows of a subscriber share its response time."""


def _tabulate(law: ResponseLaw) -> Callable[[Array], Array]:
    """Returns a response time's distribution function, monotone between points that are closer where it is shorter."""
    last = max(law.quantile_s(0.5), 1e-12)
    for _ in range(60):
        if law.within(last) >= 1.0 - _LEFT_OUT:
            break
        last *= 2.0
    times = np.geomspace(1e-6 * last, last, _TABLE)
    values = np.maximum.accumulate([law.within(float(t)) for t in times])
    first, slope = float(times[0]), float(values[0] / times[0])
    curve = PchipInterpolator(np.log(times), values)

    def within(asked_s: Array) -> Array:
        inner = curve(np.log(np.clip(asked_s, first, last)))
        probabilities = np.where(asked_s < first, slope * np.maximum(asked_s, 0.0), inner)
        return np.asarray(np.where(asked_s >= last, np.maximum(inner, values[-1]), probabilities), dtype=np.float64)

    return within


def mixture_quantile_s(parts: Sequence[tuple[float, EventDelay]], quantile: float) -> float:
    """Returns the time that a share of the delivered events does not exceed, over flows with their weights."""
    if len(parts) == 1 and parts[0][1].law is not None:
        return parts[0][1].law.quantile_s(quantile)
    total = math.fsum(weight * delay.waits.total for weight, delay in parts)

    def share(time_s: float) -> float:
        return math.fsum(weight * delay.roughly_within(time_s) for weight, delay in parts) / total

    if share(0.0) >= quantile:
        return 0.0
    high = max(max(d.passage.total_s for _, d in parts), 1e-6)
    for _ in range(80):
        if share(high) >= quantile:
            break
        high *= 2.0
    # where the distribution jumps, the search ends at the jump: only its place matters
    return float(brentq(lambda t: share(t) - quantile if t < high else 1.0, 0.0, high, xtol=1e-9 * high, rtol=1e-9))
