"""Time in the brokers and on the links of a way: what is constant in it, and the queues by mean and variance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc, gammaincinv

from surecast.prediction.broker_inputs import BrokerInput, broker_inputs
from surecast.scenario.flows import Flows, flows_of
from surecast.scenario.group import group_of, is_replicated
from surecast.scenario.saturation import broker_rates_per_s
from surecast.scenario.system import Broker, System

if TYPE_CHECKING:
    from surecast.prediction.replication.performance import GroupPerformance

__all__ = ["FlowTimes", "Passage", "flow_times", "group_passages", "queue_passages"]

Array = NDArray[np.float64]

_POINTS = 24
"""The time in the queues on the way is taken at so many points where it is added to another one."""
_ROUNDING = 1e-12


def within(shift_s: Array, mean_s: Array, variance_s2: Array, times_s: Array) -> Array:
    """Returns P[a constant plus a gamma distributed time is at most the given time], element by element.

    >>> one = np.ones(1)
    >>> within(0 * one, 2 * one, 4 * one, one).round(6)  # exponential: 1 - exp(-1/2)
    array([0.393469])
    >>> within(2 * one, 0 * one, 0 * one, np.array([1.0, 2.0]))
    array([0., 1.])
    """
    varies = variance_s2 > 0.0
    shape = np.divide(mean_s**2, variance_s2, out=np.ones_like(variance_s2), where=varies)
    scale = np.divide(variance_s2, mean_s, out=np.ones_like(variance_s2), where=varies)
    left = np.maximum(times_s - shift_s, 0.0)
    at_once = times_s * (1.0 + _ROUNDING) >= shift_s + mean_s
    probability = np.where(varies, gammainc(shape, np.where(np.isfinite(left), left, 0.0) / scale), at_once)
    return np.asarray(np.where(np.isinf(times_s), 1.0, probability), dtype=np.float64)


@dataclass(frozen=True)
class Passage:
    """Time in the queues on a way: a constant, and what varies by its mean and variance."""

    shift_s: float = 0.0
    mean_s: float = 0.0
    variance_s2: float = 0.0

    @property
    def total_s(self) -> float:
        return self.shift_s + self.mean_s

    @property
    def is_exponential(self) -> bool:
        return self.shift_s == 0.0 and math.isclose(self.variance_s2, self.mean_s**2, rel_tol=1e-9)

    def then(self, other: Passage) -> Passage:
        """Returns two passages one after the other, independent of each other.

        >>> Passage(1.0, 2.0, 4.0).then(Passage(0.0, 1.0, 1.0))
        Passage(shift_s=1.0, mean_s=3.0, variance_s2=5.0)
        """
        return Passage(self.shift_s + other.shift_s, self.mean_s + other.mean_s, self.variance_s2 + other.variance_s2)

    def within(self, times_s: Array) -> Array:
        """Returns P[it takes at most each of the times]."""
        shift, mean, variance = (np.array([part]) for part in (self.shift_s, self.mean_s, self.variance_s2))
        return within(shift, mean, variance, np.atleast_1d(times_s))

    @cached_property
    def points_s(self) -> Array:
        """Equally likely times with the same mean: that of each of as many equal parts of the distribution."""
        if self.variance_s2 <= 0.0:
            return np.array([self.total_s])
        shape, scale = self.mean_s**2 / self.variance_s2, self.variance_s2 / self.mean_s
        edges = gammaincinv(shape, np.linspace(0.0, 1.0, _POINTS + 1))
        parts = np.diff(gammainc(shape + 1.0, edges)) * _POINTS
        return np.asarray(self.shift_s + shape * scale * parts, dtype=np.float64)


@dataclass(frozen=True)
class FlowTimes:
    """The time that the events of each route take where nothing fails: constants, and the mean and variance of queues.

    `links_s` has the latency of each link.
    """

    links_s: Array
    shift_s: Array
    mean_s: Array
    variance_s2: Array

    @property
    def total_s(self) -> Array:
        return self.shift_s + self.mean_s

    @property
    def is_zero(self) -> bool:
        """Returns whether no broker and no link on any route takes any time."""
        return not self.total_s.any()

    @property
    def is_constant(self) -> bool:
        """Returns whether nothing on any route waits in a queue."""
        return not self.mean_s.any()

    def in_time(self, routes: NDArray[np.intp], deadlines_s: Array) -> Array:
        """Returns P[the brokers and links of each of the routes take no longer than its deadline]."""
        return within(self.shift_s[routes], self.mean_s[routes], self.variance_s2[routes], deadlines_s)


def flow_times(system: System, flows: Flows, load: System | None = None, *, queues: bool = True) -> FlowTimes:
    """Returns the time on each route of the flows; `load` is the system whose events fill the queues, else this one.

    Without `queues` only links take time.
    """
    brokers = [Passage()] * len(system.overlay.brokers)
    if queues:
        brokers = _broker_passages(system if load is None else load)
    links_s = np.array([link.latency_s for link in system.overlay.links], dtype=np.float64)
    rows = np.zeros((len(flows.routes), 3))
    for row, route in zip(rows, flows.routes, strict=True):
        passed = [brokers[broker] for broker in route.brokers]
        row[0] = math.fsum([*(links_s[k] for k in route.links), *(passage.shift_s for passage in passed)])
        row[1] = math.fsum(passage.mean_s for passage in passed)
        row[2] = math.fsum(passage.variance_s2 for passage in passed)
    return FlowTimes(links_s, rows[:, 0], rows[:, 1], rows[:, 2])


def _broker_passages(system: System) -> list[Passage]:
    """Returns the time in each broker: its input queue, or the ordering in its group."""
    if not is_replicated(system):
        return queue_passages(system, broker_inputs(system, flows_of(system)))
    from surecast.prediction.replication.performance import predict_open

    rates = broker_rates_per_s(system)
    names = [broker.name for broker in system.overlay.brokers]
    performances = [predict_open(group_of(system, i), rates[i], f"broker {name}") for i, name in enumerate(names)]
    return group_passages(system, performances)


def queue_passages(system: System, inputs: list[BrokerInput]) -> list[Passage]:
    """Returns the time in each broker, by the mean and the variance of its queue."""
    return [
        _queue(broker, broker_input.rate_per_s, broker_input.utilisation, broker_input.delay_mean_s)
        for broker, broker_input in zip(system.overlay.brokers, inputs, strict=True)
    ]


def group_passages(system: System, groups: list[GroupPerformance]) -> list[Passage]:
    """Returns the time that each group takes to order an event."""
    return [_ordering(performance, broker) for performance, broker in zip(groups, system.overlay.brokers, strict=True)]


def _queue(broker: Broker, rate_per_s: float, load: float, mean_s: float) -> Passage:
    service = broker.notification_service
    if service is None:
        return Passage()
    first, second, third = service.moments()
    waiting = mean_s - first
    # Takács: E[W²] = 2 E[W]² + rate E[S³] / (3 (1 - U))
    variance = waiting**2 + rate_per_s * third / (3.0 * (1.0 - load)) + second - first**2
    return Passage(0.0, mean_s, max(variance, 0.0))


def _ordering(performance: GroupPerformance, broker: Broker) -> Passage:
    """Returns the time to an acknowledgement: its constant part, and the rest by mean and variance.

    The law of the group has constant service times. Where they vary, an event waits if it finds the leader or its
    followers carrying out another one, and then for a time that is taken as exponential, with the mean of the group.
    """
    law, service = performance.acknowledged, broker.notification_service
    if law is None:
        return Passage(performance.acknowledged_mean_s)
    least = float(law.base.min())
    above = law.base - least
    mean = float(law.weight @ (above + law.width / 2.0))
    if service is not None and service.squared_cv > 0.0 and performance.throughput_per_s > 0.0:
        idle = 1.0 - performance.throughput_per_s * service.mean_s
        waits = 1.0 - idle**2 if performance.follower_cpu_s > 0.0 else 1.0 - idle
        spread = 2.0 * mean**2 / waits - mean**2 + service.squared_cv * service.mean_s**2
        return Passage(least - service.mean_s, mean + service.mean_s, spread)
    variance = float(law.weight @ (above**2 + above * law.width + law.width**2 / 3.0)) - mean**2
    if variance <= 1e-12 * mean**2 or mean <= 0.0:
        return Passage(least + mean)
    return Passage(least, mean, variance)
