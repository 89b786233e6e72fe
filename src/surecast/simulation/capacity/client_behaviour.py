"""The behaviour of one client in the course of time: it subscribes, takes subscriptions back, and publishes.

Its filters and events are drawn at random from the statistics of their class.

>>> rng = np.random.default_rng(1)
>>> stock = FilterClass("stock")
>>> print(draw_filter(stock, rng))
stock: x in [0.5118216247002567, 0.9504636963259353]
>>> draw_event(stock, rng)
Event(class_name='stock', attributes=(('x', 0.14415961271963373),))
>>> grades = Histogram((1.0, 2.0, 3.0), (0.5, 0.3, 0.2))
>>> exam = FilterClass("exam", filters=(AttributeStatistics("grade", grades, ends=grades),))
>>> print(draw_filter(exam, rng))
exam: grade in [1, 3]
>>> draw_event(exam, rng), repeats(exam), repeats(stock)
(Event(class_name='exam', attributes=(('grade', 1.0),)), True, False)
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate
from typing import Final

import numpy as np
from numpy.typing import NDArray

from surecast.protocol.filters import Event, Filter, Interval
from surecast.scenario import Streams
from surecast.scenario.distributions import Distribution
from surecast.scenario.system import AttributeStatistics, FilterClass, Histogram
from surecast.simulation.capacity.delivery_oracle import SimulatedSubscription
from surecast.simulation.capacity.routing_plan import RoutingPlan
from surecast.simulation.equilibrium import residual_times

__all__ = ["ATTRIBUTE", "SimulatedClient", "arrivals", "draw_event", "draw_filter", "repeats", "times"]

ATTRIBUTE: Final = "x"
"""The one attribute that events have and filters speak of in a class without statistics of its own."""


def draw_filter(each: FilterClass, rng: np.random.Generator) -> Filter:
    """A filter of a class: an interval with two uniform ends (capacity section 3.2), or what its statistics say."""
    if each.filters is None:
        first, second = rng.random(), rng.random()
        return Filter(each.name, ((ATTRIBUTE, Interval(first, second) if first < second else Interval(second, first)),))
    wanted = [
        (attribute.name, _interval(attribute, rng))
        for attribute in each.filters
        if attribute.constrained == 1.0 or rng.random() < attribute.constrained
    ]
    return Filter(each.name, wanted)


def draw_event(each: FilterClass, rng: np.random.Generator) -> Event:
    """An event of a class: a uniform point (capacity section 3.2), or what its statistics say."""
    if each.filters is None:
        return Event(each.name, {ATTRIBUTE: rng.random()})
    return Event(each.name, {attribute.name: _number(attribute.value, rng) for attribute in each.filters})


def repeats(each: FilterClass) -> bool:
    """Returns whether two filters of a class may be equal: if every attribute may be left out or takes few numbers."""
    return each.filters is not None and all(
        attribute.constrained < 1.0 or not _is_continuous(attribute) for attribute in each.filters
    )


def _is_continuous(attribute: AttributeStatistics) -> bool:
    parts = (attribute.ends,) if attribute.ends is not None else (attribute.centre, attribute.width)
    return any(part is not None and part.is_continuous for part in parts)


def _interval(attribute: AttributeStatistics, rng: np.random.Generator) -> Interval:
    if attribute.ends is not None:
        low, high = sorted((_number(attribute.ends, rng), _number(attribute.ends, rng)))
        return Interval(low, high)
    assert attribute.centre is not None
    assert attribute.width is not None
    centre, half = _number(attribute.centre, rng), _number(attribute.width, rng) / 2.0
    return Interval(centre - half, centre + half)


@lru_cache
def _upto(histogram: Histogram) -> tuple[float, ...]:
    return tuple(accumulate(histogram.weights))


def _number(histogram: Histogram, rng: np.random.Generator) -> float:
    """A number of a distribution."""
    upto, points = _upto(histogram), histogram.points
    index = min(bisect_right(upto, rng.random() * upto[-1]), len(upto) - 1)
    if not histogram.is_continuous:
        return points[index]
    return points[index] + (points[index + 1] - points[index]) * rng.random()


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


class SimulatedClient:
    """A client, by index. It draws from streams of its own, so that it does the same whatever the brokers do."""

    def __init__(self, plan: RoutingPlan, index: int, streams: Streams, run: int):
        workload = plan.workload
        name = workload.clients[index]

        def stream(purpose: str) -> np.random.Generator:
            return streams.generator(f"routing run {run}/{purpose}", name)

        self.index = index
        self._name = name
        self._classes = workload.classes
        self._repeats = [repeats(each) for each in workload.classes]
        self._made = 0
        self._mean_active = workload.subscription_rate_per_s[:, index] * workload.lifetime.mean_s
        self._lifetime = workload.lifetime
        self._start = stream("first subscriptions")
        self._filters, self._events = stream("filters"), stream("events")
        self._subscriptions = arrivals(workload.subscription_rate_per_s[:, index], stream("subscriptions"))
        self._publications = arrivals(workload.publication_rate_per_s[:, index], stream("publications"))
        self._lifetimes = times(workload.lifetime, stream("lifetimes"))

    def first_subscriptions(self) -> Iterator[tuple[SimulatedSubscription, float]]:
        """The subscriptions that are active at the start, with the time they have left.

        Their number is Poisson distributed (M/G/infinity), whatever the distribution of lifetimes.
        """
        active = self._start.poisson(self._mean_active)
        left = residual_times(self._lifetime, self._start, int(active.sum())).tolist()
        which = np.repeat(np.arange(len(active)), active).tolist()
        for class_index, left_s in zip(which, left, strict=True):
            yield self._make(class_index, self._start), left_s

    def next_subscription(self) -> tuple[float, int] | None:
        """The time until the next subscription, and its class; None if there never is one."""
        return next(self._subscriptions, None)

    def next_publication(self) -> tuple[float, int] | None:
        """The time until the next publication, and its class; None if there never is one."""
        return next(self._publications, None)

    def subscription(self, class_index: int) -> tuple[SimulatedSubscription, float]:
        """A new subscription of a class, and how long it lives."""
        return self._make(class_index, self._filters), next(self._lifetimes)

    def event(self, class_index: int) -> Event:
        """A new event of a class."""
        return draw_event(self._classes[class_index], self._events)

    def _make(self, class_index: int, rng: np.random.Generator) -> SimulatedSubscription:
        subscriber = self._name
        if self._repeats[class_index]:
            self._made += 1
            subscriber = f"{self._name}#{self._made}"
        return SimulatedSubscription(self.index, class_index, draw_filter(self._classes[class_index], rng), subscriber)
