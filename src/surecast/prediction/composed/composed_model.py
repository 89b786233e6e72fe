"""The composed model of a system: for each subscriber and flow, what fails, what waits and what is dropped."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from surecast.errors import SaturationError
from surecast.prediction.composed.event_delay import interrupted
from surecast.prediction.composed.ways import RouteTimes, Ways, ways_of
from surecast.prediction.dropping.choose import MechanismOutcome, choose, through_input
from surecast.prediction.dropping.queue import OnOffQueue
from surecast.prediction.dropping.response_distributions import ExponentialSum, ResponseLaw
from surecast.prediction.dropping.stages_before import SubscriberQueue, outlets_of
from surecast.prediction.passages import Passage, Stations, behind_outages, stations_of
from surecast.prediction.reliability.pairs import PairConnections
from surecast.prediction.reliability.reliability_model import DeliveryModel, delivery_model
from surecast.prediction.reliability.reliability_report import scheme_connections
from surecast.prediction.reliability.scheme_reliability import SchemeAnswer, answers
from surecast.prediction.replication.performance import GroupPerformance, predict_open
from surecast.scenario.flows import OverlayPath
from surecast.scenario.group import groups_of, is_replicated
from surecast.scenario.mechanism import Mechanism
from surecast.scenario.saturation import Traffic, on_link, traffic_of
from surecast.scenario.system import Subscriber, System

__all__ = ["ComposedModel", "Outlook"]

Array = NDArray[np.float64]


def _columns(passage: Passage) -> tuple[float, ...]:
    """Returns what of a passage adds up along a way."""
    share = min(passage.behind_share, 1.0 - 1e-12)
    return (
        passage.shift_s,
        passage.mean_s,
        passage.variance_s2,
        math.log1p(-share),
        passage.behind_share * passage.behind_s,
    )


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
    """A system under one scheme and one dropping policy. With `waits` off, brokers and links take no time.

    `besides` has the utilisation and the squares of what else the brokers and links carry, by name.
    """

    def __init__(
        self,
        system: System,
        scheme: str,
        policy: str,
        *,
        waits: bool = True,
        besides: Mapping[str, tuple[float, float]] | None = None,
    ):
        self.system, self.scheme, self.policy, self.waits, self.besides = system, scheme, policy, waits, besides
        self.delivery: DeliveryModel = delivery_model(system)
        self.flows = self.delivery.flows
        self.stores = scheme.endswith("buffering")
        self.warnings: list[str] = []

    @property
    def label(self) -> str:
        """The scheme, for notes."""
        return self.scheme

    @property
    def stored_share(self) -> float:
        """The share of the events that are stored until they are acknowledged."""
        return float(self.stores)

    @property
    def stored_flows(self) -> NDArray[np.bool_]:
        """Returns whether the events of each flow are stored."""
        return np.full(len(self.flows.route), self.stores)

    @cached_property
    def connections(self) -> tuple[PairConnections | None, PairConnections | None]:
        """The connections of each flow, and those with links that never fail, where the scheme needs them."""
        return scheme_connections(self.delivery, (self.scheme,))

    @cached_property
    def answer(self) -> SchemeAnswer:
        """The answer of the reliability model for each flow."""
        model = self.delivery
        delays = np.zeros(0), np.zeros(0)
        if self.stores:
            delays = model.delays(model.spread.path, model.spread.deadline_s[model.spread.stream])
        return answers(model, (self.scheme,), delays, *self.connections)[0]

    @cached_property
    def groups(self) -> list[GroupPerformance | None] | None:
        """Ordering at each broker, None at one that is no group; None where no broker is one."""
        if not is_replicated(self.system):
            return None
        return [
            None if group is None else predict_open(group, rate, f"broker {broker.name}")
            for broker, group, rate in zip(
                self.system.overlay.brokers, groups_of(self.system), self.traffic.events_per_s, strict=True
            )
        ]

    @cached_property
    def traffic(self) -> Traffic:
        return traffic_of(self.system, self.flows, self.scheme)

    @cached_property
    def stations(self) -> Stations:
        """The time in each broker, its input queue or the ordering in its group, and in the queues on links."""
        if not self.waits:
            count = len(self.system.overlay.brokers)
            return Stations([Passage()] * count, [0.0] * count, {}, {})
        return stations_of(self.system, self.traffic, self.groups, self.besides)

    @cached_property
    def passages(self) -> list[Passage]:
        """The time in each broker, and behind what piled up in outages."""
        groups = self.groups or [None] * len(self.system.overlay.brokers)
        if not self.stores or not self.waits or all(groups):
            return self.stations.brokers
        return [
            replace(passage, behind_share=share, behind_s=mean_s) if group is None else passage
            for passage, group, (share, mean_s) in zip(self.stations.brokers, groups, self._behind(), strict=True)
        ]

    def _behind(self) -> list[tuple[float, float]]:
        """Returns the share of each broker's events that are behind a backlog, and their mean wait for it."""
        parts, links, model = self.delivery.components, self.system.overlay.links, self.delivery
        deadlines, rates = model.flow_deadline_s, self.flows.rate_per_s
        patience_s = float(np.average(np.minimum(deadlines, 1e12), weights=rates)) if rates.sum() > 0 else math.inf
        if model.interval_s > 0.0:
            # waits end at attempts: what would wait longer than its last one expires
            patience_s = math.floor(patience_s / model.interval_s * (1.0 - 1e-9)) * model.interval_s
        around = 1.0
        if self.connections[0] is not None:
            # what a way around takes does not pile up
            down = float((rates * (model.home_up - model.path_up[model.flow_path])).sum())
            parted = float((rates * np.maximum(model.home_up - self.connections[0].value, 0.0)).sum())
            around = min(parted / down, 1.0) if down > 0.0 else 0.0
        # by broker: what is held for it, and whose outages hold it; of acknowledgements, who waits for what is held
        into: dict[int, list[tuple[int, int, float]]] = {}
        answers: dict[int, list[tuple[int, int, float]]] = {}
        for (link, start), rate in self.traffic.stored.items():
            end = links[link].b if start == links[link].a else links[link].a
            held = rate * float(parts.broker_up[start])
            into.setdefault(end, []).append((link, end, held))
            if self.system.overlay.brokers[start].control_service is not None:
                answers.setdefault(start, []).append((link, end, held))
        found = []
        for i, broker in enumerate(self.system.overlay.brokers):
            sums = [0.0, 0.0]
            service, events = broker.notification_service, self.traffic.events_per_s[i]
            if service is not None and events > 0.0:
                passing = events + self.traffic.controls_per_s[i]
                free = passing + (1.0 - self.stations.utilisation[i]) / service.mean_s
                here = math.fsum(held for _, _, held in into.get(i, ()))
                outages = [(True, here, parts.broker_failure[i], parts.broker_repair[i])]
                outages += [(True, held, parts.link_failure[k], parts.link_repair[k]) for k, _, held in into.get(i, ())]
                for k, end, held in answers.get(i, ()):
                    outages.append((False, held, parts.link_failure[k], parts.link_repair[k]))
                    outages.append((False, held, parts.broker_failure[end], parts.broker_repair[end]))
                for own, held, failure, repair in outages:
                    if failure <= 0.0:
                        continue
                    per_s = around * float(failure * repair / (failure + repair))
                    lasts_s, interval_s = 1.0 / float(repair), model.interval_s
                    number, waited_s = behind_outages(
                        held, passing, free, interval_s, lasts_s, patience_s, counts_held=own
                    )
                    # of acknowledgements that pile up, only the events beside them matter
                    among = events if own else passing
                    sums[0] += per_s * number / among
                    sums[1] += per_s * waited_s / among
            share = min(sums[0], 0.95)
            found.append((share, sums[1] / share if share > 0.0 else 0.0))
        return found

    @cached_property
    def hop_passages(self) -> dict[tuple[int, int], Passage]:
        """The time over each overlay link from the broker that sends: its latency and all queues on it."""
        found = {}
        for link, start in self.traffic.hops:
            total = Passage(self.system.overlay.links[link].latency_s if self.waits else 0.0)
            for component in on_link(self.system, link, start):
                total = total.then(self.stations.links.get(component, Passage()))
            found[link, start] = total
        return found

    @cached_property
    def route_times(self) -> RouteTimes:
        """The time on each route: all brokers and links of it."""
        paths, links = self.delivery.paths, self.system.overlay.links
        parts, count = paths.parts, len(paths.parent)
        hop_columns = np.zeros((2 * len(links) + 1, 5))
        for (link, start), passage in self.hop_passages.items():
            hop_columns[2 * link + (start == links[link].b)] = _columns(passage)
        broker_columns = np.array([_columns(passage) for passage in self.passages])
        staying = np.array(self.staying_s)
        lengths = np.diff(parts.start)
        over, through = np.repeat(np.arange(count), lengths), np.repeat(np.arange(count), lengths + 1)
        senders = parts.broker[np.arange(len(parts.link)) + over]
        second = np.array([link.b for link in links] + [-1], dtype=np.intp)
        hop = 2 * parts.link + (senders == second[parts.link])
        sums = [
            np.bincount(through, weights=broker_columns[parts.broker, k], minlength=count)
            + np.bincount(over, weights=hop_columns[hop, k], minlength=count)
            for k in range(5)
        ]
        hop_total_s = hop_columns[:, 0] + hop_columns[:, 1] + hop_columns[:, 4]
        stays = np.bincount(through, weights=staying[parts.broker], minlength=count)
        stays += np.bincount(over, weights=hop_total_s[hop], minlength=count)
        share = -np.expm1(sums[3])
        behind = np.divide(sums[4], share, out=np.zeros(count), where=share > 0.0)
        chosen = paths.of_route
        columns = (sums[0], sums[1], sums[2], share, behind, stays)
        return RouteTimes(*(np.asarray(column[chosen], dtype=np.float64) for column in columns))

    @cached_property
    def staying_s(self) -> list[float]:
        """Mean time in each broker: where events are stored, what is in its queue waits out its outages."""
        parts = self.delivery.components
        rests = self.stored_share * parts.broker_failure / parts.broker_repair
        return [float(p.total_s * (1.0 + rest)) for p, rest in zip(self.passages, rests, strict=True)]

    @cached_property
    def ways(self) -> Ways:
        return ways_of(self)

    @cached_property
    def before_s(self) -> Array:
        """Mean time in queues and on links before the subscriber's own queue, by interest."""
        return self.flows.weighted(self.route_times.total_s[self.flows.route])

    @cached_property
    def outlets(self) -> dict[str, SubscriberQueue]:
        """The queues of the subscribers that come and go, as the dropping model has them, behind the queues here."""
        notes: list[str] = []
        outlets, _ = outlets_of(self.system, notes.append, self.warnings.append)
        interest_of = {s.name: int(i) for s, i in zip(self.system.subscribers, self.flows.interest_of, strict=True)}
        plain = self.groups is None and self.waits and len(self.system.overlay.brokers) == 1 and not self.besides
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
        rates = rates * np.where(self.stored_flows[flows], 1.0, self.ways.passes[self.ways.of_flow[flows]])
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
