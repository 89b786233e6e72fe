"""The composed model of a system: for each subscriber and flow, what fails, what waits and what is dropped."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from surecast.errors import SaturationError
from surecast.prediction.broker_inputs import BrokerInput, broker_inputs
from surecast.prediction.composed.event_delay import Waits, interrupted
from surecast.prediction.dropping.choose import MechanismOutcome, choose, through_input
from surecast.prediction.dropping.queue import OnOffQueue
from surecast.prediction.dropping.response_distributions import ExponentialSum, ResponseLaw
from surecast.prediction.dropping.stages_before import SubscriberQueue, outlets_of
from surecast.prediction.passages import Passage, group_passages, queue_passages
from surecast.prediction.reliability.reliability_model import DeliveryModel, delivery_model
from surecast.prediction.reliability.scheme_reliability import SchemeAnswer, answers
from surecast.prediction.replication.performance import GroupPerformance, predict_open
from surecast.scenario.flows import OverlayPath
from surecast.scenario.group import group_of, is_replicated
from surecast.scenario.mechanism import Mechanism
from surecast.scenario.saturation import broker_rates_per_s
from surecast.scenario.system import Subscriber, System

__all__ = ["ComposedModel", "Outlook"]

Array = NDArray[np.float64]

_ATTEMPTS_MAX = 600
"""Attempts to pass on a stored event that are told apart; of more, several are taken together."""
_LEFT_OUT = 1e-9


@dataclass(frozen=True)
class Outlook:
    """The last stage of a subscriber: the share of arriving events that is delivered, their response time, and the
    losses by reason. `outcome` is that of the dropping model, None for a subscriber that is always connected."""

    success_share: float
    response: ResponseLaw | None
    response_mean_s: float
    dropped: Mapping[str, float]
    rate_per_s: float
    outcome: MechanismOutcome | None = None


class ComposedModel:
    """A system under one scheme and one dropping policy. With `waits` off, brokers and links take no time."""

    def __init__(self, system: System, scheme: str, policy: str, *, waits: bool = True):
        self.system, self.scheme, self.policy, self.waits = system, scheme, policy, waits
        self.delivery: DeliveryModel = delivery_model(system)
        self.flows = self.delivery.flows
        self.warnings: list[str] = []
        self._waits: dict[tuple[int, float], Waits] = {}

    @cached_property
    def answer(self) -> SchemeAnswer:
        """The answer of the reliability model for each flow."""
        model = self.delivery
        delays = np.zeros(0), np.zeros(0)
        if self.scheme == "buffering":
            delays = model.delays(model.spread.path, model.spread.deadline_s[model.spread.stream])
        return answers(model, (self.scheme,), delays, None, None)[0]

    @cached_property
    def waited_s(self) -> Array:
        """Mean time that the events of each flow wait for repairs, of those that get to their home broker."""
        late = self.answer.late
        if late is None:
            return np.zeros(len(self.flows.route))
        limit = self.delivery.full_periods(self.delivery.flow_deadline_s)
        end = np.where(np.isfinite(limit), limit, 0.0)
        term = late[0]
        sums = np.maximum(term.mean - end * term.tail, 0.0)
        arrives = 1.0 - term.tail
        return np.asarray(np.divide(sums, arrives, out=np.zeros_like(sums), where=arrives > 0), dtype=np.float64)

    def waits_of(self, flow: int) -> Waits:
        """Returns the wait for repairs of the events of a flow: P[so many intervals], given that their home was up."""
        if self.scheme != "buffering":
            return Waits.none()
        model = self.delivery
        path, deadline = int(model.flow_path[flow]), float(model.flow_deadline_s[flow])
        if (path, deadline) not in self._waits:
            self._waits[path, deadline] = self._attempts(path, deadline)
        return self._waits[path, deadline]

    def _attempts(self, path: int, deadline_s: float) -> Waits:
        table, interval = self.delivery.table, self.delivery.interval_s

        def tails(times: Array) -> Array:
            return table.tails(np.full(len(times), path, dtype=np.intp), times)[0]

        if tails(np.zeros(1))[0] <= 0.0:
            return Waits.none()
        last = int(np.floor(deadline_s / interval * (1.0 + 1e-12))) if deadline_s < math.inf else 64
        while deadline_s == math.inf and tails(np.array([last * interval]))[0] > _LEFT_OUT and last < 2**40:
            last *= 2
        steps = np.unique(np.round(np.linspace(0, last, min(last, _ATTEMPTS_MAX) + 1)).astype(np.int64))
        times = np.asarray(steps * interval, dtype=np.float64)
        left = np.maximum(tails(times), 0.0)
        shares = np.maximum(-np.diff(left, prepend=1.0), 0.0)
        # attempts that are taken together end, on average, in the middle of them
        middle = np.concatenate([[0.0], (steps[1:] + steps[:-1] + 1) / 2.0]) * interval
        return Waits(middle, shares)

    @cached_property
    def inputs(self) -> list[BrokerInput]:
        return broker_inputs(self.system, self.flows)

    @cached_property
    def groups(self) -> list[GroupPerformance] | None:
        """Ordering at each broker that is a group; None where no broker is one."""
        if not is_replicated(self.system):
            return None
        loads = broker_rates_per_s(self.system)
        return [
            predict_open(group_of(self.system, i), loads[i], f"broker {broker.name}")
            for i, broker in enumerate(self.system.overlay.brokers)
        ]

    @cached_property
    def passages(self) -> list[Passage]:
        """The time in each broker: its input queue, or the ordering in its group."""
        if not self.waits:
            return [Passage()] * len(self.system.overlay.brokers)
        if self.groups is not None:
            return group_passages(self.system, self.groups)
        return queue_passages(self.system, self.inputs)

    @cached_property
    def route_passages(self) -> list[Passage]:
        """The time in all brokers and on all links of each route."""
        passages = []
        for route in self.flows.routes:
            latency = math.fsum(self.system.overlay.links[i].latency_s for i in route.links) if self.waits else 0.0
            total = Passage(latency)
            for broker in route.brokers:
                total = total.then(self.passages[broker])
            passages.append(total)
        return passages

    @cached_property
    def staying_s(self) -> list[float]:
        """Mean time in each broker: under buffering, what is in its queue waits out its outages."""
        parts = self.delivery.components
        rests = parts.broker_failure / parts.broker_repair if self.scheme == "buffering" else 0.0 * parts.broker_up
        return [float(p.total_s * (1.0 + rest)) for p, rest in zip(self.passages, rests, strict=True)]

    @cached_property
    def passing_s(self) -> list[float]:
        """Mean time in all brokers and on all links of each route, outages of the brokers included."""
        links = self.system.overlay.links
        return [
            math.fsum(self.staying_s[b] for b in route.brokers)
            + (math.fsum(links[k].latency_s for k in route.links) if self.waits else 0.0)
            for route in self.flows.routes
        ]

    @cached_property
    def before_s(self) -> Array:
        """Mean time in queues and on links before the subscriber's own queue, by interest."""
        means = np.array([passage.total_s for passage in self.route_passages], dtype=np.float64)
        return self.flows.weighted(means[self.flows.route])

    @cached_property
    def outlets(self) -> dict[str, SubscriberQueue]:
        """The queues of the subscribers that come and go, as the dropping model has them, behind the queues here."""
        notes: list[str] = []
        outlets, _ = outlets_of(self.system, notes.append, self.warnings.append)
        interest_of = {s.name: int(i) for s, i in zip(self.system.subscribers, self.flows.interest_of, strict=True)}
        plain = self.groups is None and self.waits
        return {
            outlet.subscriber.name: outlet
            if plain
            else replace(outlet, before_s=float(self.before_s[interest_of[outlet.subscriber.name]]), exponential=False)
            for outlet in outlets
        }

    def mechanism(self, subscriber: Subscriber) -> Mechanism:
        """Returns the dropping mechanism of a subscriber that disconnects at times, as if nothing failed."""
        return choose(self.outlets[subscriber.name], self.policy, self.system.delivery.dropping).mechanism

    def outlook(self, subscriber: Subscriber, flows: NDArray[np.intp]) -> Outlook:
        """Returns the last stage of a subscriber; refuses a queue that would grow forever."""
        rate = self.rate_seen(flows)
        if subscriber.connectivity is None:
            return self._always(subscriber, rate)
        outlet = self.outlets[subscriber.name]
        mechanism = self.mechanism(subscriber)
        if not math.isclose(rate, outlet.queue.arrival_per_s, rel_tol=1e-12):
            queue = OnOffQueue(rate, outlet.queue.service_per_s, outlet.queue.phases)
            outlet = replace(outlet, queue=queue)
        outcome = through_input(outlet, mechanism)
        law, mean_s = self._interrupted(subscriber, outcome.answer.law, outcome.answer.response_mean_s)
        return Outlook(outcome.success_share, law, mean_s, outcome.dropped, rate, outcome)

    def _interrupted(self, subscriber: Subscriber, law: ResponseLaw, mean_s: float) -> tuple[ResponseLaw, float]:
        """Returns a response time and its mean, with the outages of the home broker in it."""
        parts = self.delivery.components
        if parts.brokers[subscriber.home] is None:
            return law, mean_s
        failure, repair = float(parts.broker_failure[subscriber.home]), float(parts.broker_repair[subscriber.home])
        longer = interrupted(law, failure, repair)
        if longer is None:
            self.warnings.append(
                f"composed: subscriber {subscriber.name}: where lifetimes are fixed, outages of its home broker while "
                "events wait in its queue are left out"
            )
            return law, mean_s
        return longer, mean_s * (1.0 + failure / repair)

    def _always(self, subscriber: Subscriber, rate: float) -> Outlook:
        if subscriber.service is None:
            return Outlook(1.0, None, 0.0, {}, rate)
        service = 1.0 / subscriber.service.mean_s
        if rate >= service:
            raise SaturationError(
                f"subscriber {subscriber.name}: {rate:.6g} events/s come, and {service:.6g}/s can be transmitted to "
                "it; give it a faster service, or fewer topics"
            )
        if abs(subscriber.service.squared_cv - 1.0) > 1e-9:
            self.warnings.append(
                f"subscriber {subscriber.name}: transmission times are taken as exponential with the same mean"
            )
        free = service - rate
        law, mean_s = self._interrupted(subscriber, ExponentialSum(np.ones(1), np.array([free])), 1.0 / free)
        return Outlook(1.0, law, mean_s, {}, rate)

    def rate_seen(self, flows: NDArray[np.intp]) -> float:
        """Events per second at a subscriber's queue while events come.

        What is down sends nothing. Seen by an event of one flow, another flow comes at its full rate if its route is
        up too.
        """
        rates = self.flows.rate_per_s[flows]
        routes = [self.flows.routes[int(self.flows.route[f])] for f in flows]
        reach = rates * self.answer.reliability[flows]
        if math.isclose(float(reach.sum()), float(rates.sum()), rel_tol=1e-12) or reach.sum() <= 0.0:
            return float(rates.sum())
        clients = self.delivery.client_up
        publishers = self.flows.publisher[flows]
        total = 0.0
        for i, own in enumerate(routes):
            for j, other in enumerate(routes):
                linked = 1.0 if publishers[i] == publishers[j] else clients
                total += float(reach[i] * rates[j]) * linked * self._also_up(own, other)
        return total / float(reach.sum())

    def _also_up(self, own: OverlayPath, other: OverlayPath) -> float:
        """Returns P[all of another route is up], given that all of the own one is."""
        parts = self.delivery.components
        brokers = [float(parts.broker_up[b]) for b in set(other.brokers) - set(own.brokers)]
        links = [float(parts.link_up[k]) for k in set(other.links) - set(own.links)]
        return math.prod(brokers) * math.prod(links)
