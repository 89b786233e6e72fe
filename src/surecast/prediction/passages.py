"""Time in the brokers and on the links of a way: what is constant in it, and the queues by mean and variance.

An event may also meet what piled up in an outage, and then waits for an exponential time more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc, gammaincinv

from surecast.errors import SaturationError
from surecast.prediction.broker_inputs import BrokerInput, broker_inputs
from surecast.scenario.distributions import Distribution
from surecast.scenario.flows import Flows, flows_of
from surecast.scenario.group import groups_of, is_replicated
from surecast.scenario.saturation import (
    Component,
    Traffic,
    broker_rates_per_s,
    component_name,
    component_service,
    on_link,
)
from surecast.scenario.system import Broker, System

if TYPE_CHECKING:
    from surecast.prediction.replication.performance import GroupPerformance

__all__ = [
    "FlowTimes",
    "Passage",
    "Stations",
    "behind_outages",
    "flow_times",
    "queue_passages",
    "stations_of",
    "within",
]

Array = NDArray[np.float64]
Besides = tuple[float, float]
"""Other traffic of a queue: its utilisation, and the rate times the second moment of its service."""

_POINTS = 24
"""The time in the queues on the way is taken at so many points where it is added to another one."""
_ROUNDING = 1e-12
_LONG_SERVICE = 10.0
"""A group works in cycles where its service takes so much longer than the messages of a vote."""
_OUTAGES = 64
"""Lengths of an outage over which a backlog is averaged."""


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
    """Time in the queues on a way: a constant, and what varies by its mean and variance.

    With probability `behind_share` an event is behind a backlog, and takes an exponential time of mean `behind_s` more.
    """

    shift_s: float = 0.0
    mean_s: float = 0.0
    variance_s2: float = 0.0
    behind_share: float = 0.0
    behind_s: float = 0.0

    @property
    def total_s(self) -> float:
        return self.shift_s + self.mean_s + self.behind_share * self.behind_s

    @property
    def is_exponential(self) -> bool:
        plain = self.shift_s == 0.0 and self.behind_share == 0.0
        return plain and math.isclose(self.variance_s2, self.mean_s**2, rel_tol=1e-9)

    def then(self, other: Passage) -> Passage:
        """Returns two passages one after the other, independent of each other.

        >>> Passage(1.0, 2.0, 4.0).then(Passage(0.0, 1.0, 1.0)).mean_s
        3.0
        """
        share = 1.0 - (1.0 - self.behind_share) * (1.0 - other.behind_share)
        more = self.behind_share * self.behind_s + other.behind_share * other.behind_s
        return Passage(
            self.shift_s + other.shift_s,
            self.mean_s + other.mean_s,
            self.variance_s2 + other.variance_s2,
            share,
            more / share if share > 0.0 else 0.0,
        )

    @property
    def branches(self) -> tuple[tuple[float, Passage], ...]:
        """The passage without a backlog and behind one, each with its probability."""
        bare = Passage(self.shift_s, self.mean_s, self.variance_s2)
        if self.behind_share <= 0.0:
            return ((1.0, bare),)
        slow = Passage(self.shift_s, self.mean_s + self.behind_s, self.variance_s2 + self.behind_s**2)
        return ((1.0 - self.behind_share, bare), (self.behind_share, slow))

    def within(self, times_s: Array) -> Array:
        """Returns P[it takes at most each of the times].

        >>> Passage(behind_share=0.5, behind_s=1.0).within(np.array([0.0, 1.0])).round(6)
        array([0.5    , 0.81606])
        """
        times, total = np.atleast_1d(times_s), np.zeros(len(np.atleast_1d(times_s)))
        for weight, part in self.branches:
            shift, mean, variance = (np.array([value]) for value in (part.shift_s, part.mean_s, part.variance_s2))
            total = total + weight * within(shift, mean, variance, times)
        return total

    @cached_property
    def points(self) -> tuple[Array, Array]:
        """Times with the same mean, and their probabilities: of equal parts of the distribution of each branch."""
        times, weights = [], []
        for weight, part in self.branches:
            values = np.array([part.total_s])
            if part.variance_s2 > 0.0:
                shape, scale = part.mean_s**2 / part.variance_s2, part.variance_s2 / part.mean_s
                edges = gammaincinv(shape, np.linspace(0.0, 1.0, _POINTS + 1))
                values = part.shift_s + shape * scale * np.diff(gammainc(shape + 1.0, edges)) * _POINTS
            times.append(values)
            weights.append(np.full(len(values), weight / len(values)))
        return np.concatenate(times), np.concatenate(weights)


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

    groups, rates = groups_of(system), broker_rates_per_s(system)
    alone = queue_passages(system, broker_inputs(system, flows_of(system), groups))
    return [
        passage if group is None else _ordering(predict_open(group, rate, f"broker {broker.name}"), broker)
        for broker, group, rate, passage in zip(system.overlay.brokers, groups, rates, alone, strict=True)
    ]


def queue_passages(system: System, inputs: list[BrokerInput]) -> list[Passage]:
    """Returns the time in each broker, by the mean and the variance of its queue."""
    return [
        _queue(broker, broker_input.rate_per_s, broker_input.utilisation, broker_input.delay_mean_s)
        for broker, broker_input in zip(system.overlay.brokers, inputs, strict=True)
    ]


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
    if service is not None and performance.follower_cpu_s > 0.0:
        messages_s = least - service.mean_s
        if service.mean_s > _LONG_SERVICE * messages_s > 0.0:
            rate = performance.throughput_per_s
            # Only systems with groups load their model.
            from surecast.prediction.replication.gated_group import gated_time

            mean, variance = gated_time(rate, service.mean_s, service.squared_cv, messages_s)
            least = service.mean_s if service.squared_cv < _ROUNDING else 0.0
            return Passage(messages_s + least, mean - least, variance)
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


@dataclass(frozen=True)
class _Queue:
    """The queue of a broker or on a link: rates times moments of all that comes, and the service of an event."""

    rate_per_s: float
    load: float
    second: float
    third: float
    mean_s: float
    squared_cv: float

    @classmethod
    def of(cls, parts: Iterable[tuple[float, Distribution | None]], besides: Besides) -> _Queue | None:
        """Returns a queue from rates and service times, those of events first; None where nothing takes time."""
        timed = [(rate, service.moments(), service) for rate, service in parts if service is not None]
        if not timed:
            return None
        sums = [math.fsum(rate * moments[k] for rate, moments, _ in timed) for k in range(3)]
        load, second = besides
        third = 1.5 * second**2 / load if load > 0.0 else 0.0  # as for exponential times
        first = timed[0]
        return cls(first[0], sums[0] + load, sums[1] + second, sums[2] + third, first[1][0], first[2].squared_cv)

    def passage(self, name: str, before: Sequence[tuple[float, _Queue]]) -> Passage:
        """Returns the time in the queue, of which `before` are the streams that come through other queues.

        What waits at a queue of regular service does not wait again behind it: in a tree of queues with the same
        constant service each has the wait of M/D/1 less that of each stream alone. Variable service interpolates.
        """
        if self.load >= 1.0:
            raise SaturationError(
                f"{name} is overloaded: its utilisation would be {self.load:.4g}; there is no steady state to answer "
                f"for: give it more than {self.load:.4g} times its capacity, or publish less than "
                f"{1.0 / self.load:.4g} of this"
            )
        plain = wait = self.second / (2.0 * (1.0 - self.load))
        for rate, queue in before:
            shorter = min(self.mean_s, queue.mean_s)
            regular = 1.0 - queue.squared_cv if queue.squared_cv <= 1.0 else queue.load**2 * (1.0 - queue.squared_cv)
            alone = rate * shorter**2 / (2.0 * (1.0 - rate * shorter))
            wait -= regular * alone * rate / self.rate_per_s if self.rate_per_s > 0.0 else 0.0
        wait = max(wait, 0.0)
        # Takács: E[W²] = 2 E[W]² + rate E[S³] / (3 (1 - U))
        variance = plain**2 + self.third / (3.0 * (1.0 - self.load))
        if plain > 0.0:
            variance *= (wait / plain) ** 2
        return Passage(0.0, wait + self.mean_s, variance + self.squared_cv * self.mean_s**2)


@dataclass(frozen=True)
class Stations:
    """The time in each broker and in each queue on links, and the utilisation of both."""

    brokers: list[Passage]
    utilisation: list[float]
    links: dict[Component, Passage]
    link_utilisation: dict[Component, float]


def stations_of(
    system: System,
    traffic: Traffic,
    groups: Sequence[GroupPerformance | None] | None = None,
    besides: Mapping[str, Besides] | None = None,
) -> Stations:
    """Returns the time in every queue that messages of topics pass.

    `besides` has the utilisation and the rate times the second moment of service of other traffic, by the name of the
    component. Groups have their own times, without other traffic.
    """
    overlay, other = system.overlay, besides or {}
    none: Besides = (0.0, 0.0)
    queues: dict[Component, _Queue] = {}
    groups = [None] * len(overlay.brokers) if groups is None else groups
    for i, broker in enumerate(overlay.brokers):
        if groups[i] is not None:
            continue
        parts = (
            (traffic.events_per_s[i], broker.notification_service),
            (traffic.controls_per_s[i], broker.control_service),
        )
        queue = _Queue.of(parts, other.get(f"broker {broker.name}", none))
        if queue is not None:
            queues["broker", i, 0] = queue
    for component, (events, controls) in traffic.components.items():
        service = component_service(system, component)
        parts = ((events, service), (controls, service))
        queue = _Queue.of(parts, other.get(component_name(system, component), none))
        assert queue is not None
        queues[component] = queue
    before: dict[Component, list[tuple[float, _Queue]]] = {}
    for (link, start), (rate, _) in traffic.hops.items():
        end = overlay.links[link].b if start == overlay.links[link].a else overlay.links[link].a
        way = [("broker", start, 0), *on_link(system, link, start), ("broker", end, 0)]
        for component, following in pairwise(each for each in way if each in queues):
            before.setdefault(following, []).append((rate, queues[component]))
    times = {
        component: queue.passage(_name(system, component), before.get(component, ()))
        for component, queue in queues.items()
    }
    brokers, loads = [], []
    for i, (broker, group) in enumerate(zip(overlay.brokers, groups, strict=True)):
        key: Component = ("broker", i, 0)
        brokers.append(times.get(key, Passage()) if group is None else _ordering(group, broker))
        loads.append((queues[key].load if key in queues else 0.0) if group is None else group.utilisation)
    on_links = [component for component in queues if component[0] != "broker"]
    return Stations(brokers, loads, {c: times[c] for c in on_links}, {c: queues[c].load for c in on_links})


def _name(system: System, component: Component) -> str:
    kind, index, _ = component
    return f"broker {system.overlay.brokers[index].name}" if kind == "broker" else component_name(system, component)


def behind_outages(
    rate_per_s: float,
    passing_per_s: float,
    free_per_s: float,
    interval_s: float,
    outage_s: float,
    patience_s: float = math.inf,
    *,
    counts_held: bool = True,
) -> tuple[float, float]:
    """Returns how many messages of a queue are behind what piled up in an outage, and how long all of them wait for
    it, on average over exponential outages. What piled up itself counts with `counts_held`.

    Events at a rate wait while something is down, at most as long as they live, and then come within one interval
    between two attempts, beside all others. What the queue cannot take at once drains at its spare capacity: as a
    fluid it rises to P and falls again, and an event behind it waits for P/2 on average.

    >>> number, waited_s = behind_outages(1.0, 1.0, 2.0, 0.0, 10.0)  # E[P] is 10, and E[P²] is 200
    >>> round(number, 1), round(waited_s)
    (20.0, 100)
    """
    spare = free_per_s - passing_per_s
    if rate_per_s <= 0.0 or outage_s <= 0.0 or spare <= 0.0:
        return 0.0, 0.0
    edges = np.linspace(0.0, 1.0, _OUTAGES + 1)
    ends = -np.log1p(-edges[:-1])
    # the mean of each of equally likely parts of the exponential distribution, and its mean square
    after = np.append(ends[1:], np.inf)
    tails = np.append(np.exp(-ends[1:]), 0.0)
    finite = np.where(np.isfinite(after), after, 0.0)
    first = ((ends + 1.0) * np.exp(-ends) - (finite + 1.0) * tails) * _OUTAGES
    second = ((ends**2 + 2.0 * ends + 2.0) * np.exp(-ends) - (finite**2 + 2.0 * finite + 2.0) * tails) * _OUTAGES
    held_s, spread = first * outage_s, np.maximum(second - first**2, 0.0) * outage_s**2
    short = held_s < patience_s
    piled = rate_per_s * np.where(short, held_s, patience_s)
    peak = np.maximum(piled - interval_s * spare, 0.0)
    square = peak**2 + np.where(short & (peak > 0.0), rate_per_s**2 * spread, 0.0)
    held = piled if counts_held else np.zeros_like(piled)
    number = np.where(peak > 0.0, interval_s * passing_per_s + held, 0.0) + passing_per_s * peak / spare
    meanwhile = peak * interval_s * passing_per_s + (peak * (piled - peak) + square if counts_held else 0.0)
    waited = (meanwhile + passing_per_s * square / spare) / (2.0 * free_per_s)
    return float(number.mean()), float(waited.mean())
