"""The capacity model of a system: what does not depend on the routing algorithm, and the traffic that does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from surecast.errors import AssumptionError
from surecast.prediction.capacity.filter_probabilities import LAWS, ROUTINGS
from surecast.prediction.capacity.filter_statistics import FilterStatistics, statistics_of
from surecast.prediction.capacity.mixed_routing import LinkLaws, link_laws
from surecast.prediction.capacity.overlay_tree import BrokerTree, broker_tree
from surecast.prediction.capacity.service_times import Services, services_of
from surecast.prediction.capacity.unpredicted import own_routings, refuse_unpredicted
from surecast.scenario.distributions import Distribution
from surecast.scenario.network import Network
from surecast.scenario.saturation import Component, component_service, traffic_of
from surecast.scenario.system import ClassWorkload, Matching, System

__all__ = ["ALGORITHMS", "CapacityModel", "LinkFlows", "Loads", "Servers", "capacity_model", "known_algorithms"]

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]

ALGORITHMS: Final[tuple[str, ...]] = (
    "flooding",
    *(f"{scheme} {routing}" for scheme in ("peer-to-peer", "hierarchical") for routing in ROUTINGS[1:]),
)
"""The nine routing algorithms: flooding, and four in each of two schemes."""


def known_algorithms() -> tuple[str, ...]:
    """Returns the nine routing algorithms, and those that `register_routing` added, in both schemes."""
    return (*ALGORITHMS, *(f"{scheme} {name}" for scheme in ("peer-to-peer", "hierarchical") for name in LAWS))


@dataclass(frozen=True)
class Servers:
    """The queues of the physical network: routers and links that overlay links pass.

    One per router, one per physical link or, where directions do not share it, one per direction. `component` is the
    index of the router or the link; `backward` marks the queue of a link's second direction. `used` and `by` say
    which queue each directed overlay link passes. `moments` are those of the service time; both are 0 without one.
    """

    is_router: Mask
    component: Index
    backward: Mask
    moments: Array
    used: Index
    by: Index


@dataclass(frozen=True)
class LinkFlows:
    """Messages of each class over each directed link under one algorithm.

    `notify` and `subscribe` are P_n and P_s; `notifications` and `controls` are rates per second of one class.
    `algorithm` says what is in the routing tables; empty, nothing is.
    """

    notify: Array
    subscribe: Array
    notifications: Array
    controls: Array
    algorithm: str = ""


@dataclass(frozen=True)
class Loads:
    """Offered load. Columns of the rates: messages, messages weighted by service factor, and by its square.

    `link_rates` has one plane for notifications and one for control messages; so has `broker_rates`. `utilisation`
    and `squares` (rate times second moment of the service time) list brokers first, then the physical queues.
    `notification_s` and `control_s` are the mean service times of a broker (rows) for a class (columns).
    """

    link_rates: Array
    broker_rates: Array
    server_rates: Array
    utilisation: Array
    squares: Array
    notification_s: Array
    control_s: Array

    @property
    def stable(self) -> bool:
        """True if every utilisation is below 1 (at exactly 1 a queue grows too)."""
        return bool((self.utilisation < 1.0).all())


@dataclass(frozen=True)
class CapacityModel:
    """Rates by broker and directed link (rows) and by distinct class (columns).

    `count` says how many classes coincide in each column, `factor` their service factor. `active` is the mean number
    of subscriptions beyond each directed link (x_a), `publications_behind` and `subscriptions_behind` the rates of
    the brokers on its near side (omega_a and lambda_a of the opposite direction). `statistics` are the filter
    statistics of each column, `matching` what the routing table of each broker adds to its service times.
    """

    tree: BrokerTree
    count: Array
    factor: Array
    publications: Array
    subscriptions: Array
    lifetime_s: float
    active: Array
    publications_behind: Array
    subscriptions_behind: Array
    latency_s: Array
    notification_service: Array
    control_service: Array
    servers: Servers
    statistics: tuple[FilterStatistics, ...]
    matching: tuple[Matching | None, ...]
    besides: Array | None = None
    """The load of all queues by the events of topics: their utilisation, and their rate times the second moment of the
    service time."""
    own_routings: tuple[str | None, ...] = ()
    """The algorithm of each link that has one of its own; empty where none has."""
    is_advertised: bool = False
    """Whether subscriptions travel only towards brokers where their class is published."""

    @property
    def serves(self) -> Mask:
        """For each broker, whether messages take service time there."""
        adds = np.array([each is not None for each in self.matching], dtype=np.bool_)
        return adds | (self.notification_service[:, 0] > 0) | (self.control_service[:, 0] > 0)

    def by_class(self, function: Callable[[FilterStatistics, Array], Array], x: Array) -> Array:
        """Returns a function of the statistics and of x, by column; columns with the same statistics are computed
        together.
        """
        kinds = dict.fromkeys(self.statistics)
        if len(kinds) == 1:
            return function(self.statistics[0], x)
        values = np.empty_like(x)
        for kind in kinds:
            columns = [i for i, each in enumerate(self.statistics) if each is kind]
            values[:, columns] = function(kind, x[:, columns])
        return values

    def passing(self, algorithm: str) -> tuple[Mask, Mask]:
        """Returns whether P_n and P_s are above 0, by directed link and class; derived from the structure, so free of
        underflow.
        """
        rising = self.tree.rising[:, None]
        if self.own_routings:
            laws = self._link_laws(algorithm)
            return laws.notified, laws.subscribed
        if algorithm == "flooding":
            return np.ones(self.active.shape, dtype=np.bool_), np.zeros(self.active.shape, dtype=np.bool_)
        if algorithm.startswith("hierarchical"):
            return rising | (self.active > 0), rising & self.publishers_ahead
        return self.active > 0, self.publishers_ahead

    def known_behind(self, algorithm: str) -> Array:
        """Returns x_a as routing tables see it: in a hierarchy nothing is known of the brokers above (change 3), and
        with advertisements nothing that nobody on this side publishes."""
        known = self.active
        if algorithm.startswith("hierarchical"):
            known = np.where(self.tree.rising[:, None], 0.0, known)
        return np.where(self.publications_behind > 0.0, known, 0.0) if self.is_advertised else known

    @cached_property
    def publishers_ahead(self) -> Mask:
        """Returns whether subscriptions of each class go over each directed link: to advertisers, or everywhere."""
        if not self.is_advertised:
            return np.ones(self.active.shape, dtype=np.bool_)
        return np.asarray(self.tree.reverse(self.publications_behind) > 0.0)

    def _link_laws(self, algorithm: str, scale: float = 1.0) -> LinkLaws:
        """Returns the laws of all links where some have an algorithm of their own."""
        scheme, _, common = algorithm.rpartition(" ")
        routings = [own or common for own in self.own_routings]
        advertised = self.publications_behind > 0.0 if self.is_advertised else None
        own = scale * self.lifetime_s * self.subscriptions
        return link_laws(self.tree, routings, scheme == "hierarchical", own, advertised)

    def entries_for_all(self, algorithm: str) -> Array:
        """Returns, by directed link, the entries that stand for all classes, behind a link of flooding."""
        if not self.own_routings:
            return np.zeros(2 * self.tree.links)
        return self._link_laws(algorithm).everything

    def remote_entries(self, algorithm: str, scale: float = 1.0) -> Array:
        """Entries of one class for the neighbour that each directed link leads to (capacity Eqs. 3, 5)."""
        if self.own_routings:
            return self._link_laws(algorithm, scale).entries
        routing = algorithm.rpartition(" ")[2]
        return self.by_class(lambda kind, x: kind.remote_entries(routing, x), scale * self.known_behind(algorithm))

    def flows(self, algorithm: str, scale: float = 1.0) -> LinkFlows:
        """Returns the traffic under an algorithm with all arrivals `scale` times as frequent, lifetimes unchanged."""
        if self.own_routings:
            laws = self._link_laws(algorithm, scale)
            return self._passing_flows(laws.notify, laws.subscribe, algorithm, scale)
        routing = algorithm.rpartition(" ")[2]
        active = scale * self.active
        notify = self.by_class(lambda kind, x: kind.notification_probability(routing, x), active)
        back = self.tree.reverse(active)
        subscribe = self.by_class(lambda kind, x: kind.subscription_probability(routing, x), back)
        if algorithm.startswith("hierarchical"):
            # capacity section 3.8, changes 1 and 2
            rising = self.tree.rising[:, None]
            notify, subscribe = np.where(rising, 1.0, notify), np.where(rising, subscribe, 0.0)
        return self._passing_flows(notify, np.where(self.publishers_ahead, subscribe, 0.0), algorithm, scale)

    def _passing_flows(self, notify: Array, subscribe: Array, algorithm: str, scale: float) -> LinkFlows:
        # capacity Eqs. 22, 25
        notifications = scale * notify * self.publications_behind
        controls = 2.0 * scale * subscribe * self.subscriptions_behind
        return LinkFlows(notify, subscribe, notifications, controls, algorithm)

    def _rates(self, notifications: Array, controls: Array) -> Array:
        """Returns rates of both kinds over all classes: messages, and weighted by service factor and by its square."""
        by_class = np.stack([self.count, self.count * self.factor, self.count * self.factor**2], axis=1)
        return np.stack([notifications @ by_class, controls @ by_class])

    @cached_property
    def _own_rates(self) -> Array:
        """The rates that each broker gets from its own clients; every subscription is revoked once."""
        return self._rates(self.publications, 2.0 * self.subscriptions)

    def loads(self, flows: LinkFlows, scale: float = 1.0) -> Loads:
        """Returns the load of every broker and every queue of the physical network."""
        link_rates = self._rates(flows.notifications, flows.controls)
        # capacity Eqs. 21, 24, 27
        broker_rates = scale * self._own_rates
        for kind in (0, 1):
            np.add.at(broker_rates[kind], self.tree.head, link_rates[kind])
        # capacity Eqs. 32, 33
        server_rates = np.zeros((len(self.servers.component), 3))
        np.add.at(server_rates, self.servers.used, link_rates.sum(axis=0)[self.servers.by])
        # capacity Eqs. 28, 34, and the second moments of Eqs. 29, 35
        services = services_of(self, flows, scale)
        both = np.concatenate([self._by_broker(flows, scale, services), server_rates[:, 1:] * self.servers.moments])
        if self.besides is not None:
            both = both + self.besides
        mean_s = services.first
        return Loads(link_rates, broker_rates, server_rates, both[:, 0], both[:, 1], mean_s[0], mean_s[1])

    def _by_broker(self, flows: LinkFlows, scale: float, services: Services) -> Array:
        """Returns rates times first and second moments of service times, summed over both kinds of message and all
        classes.
        """
        moments = np.zeros((self.tree.brokers, 2))
        for kind, (own, passing) in enumerate(
            ((self.publications, flows.notifications), (2.0 * self.subscriptions, flows.controls))
        ):
            rates = scale * own
            np.add.at(rates, self.tree.head, passing)
            for moment, values in enumerate((services.first[kind], services.second[kind])):
                moments[:, moment] += (rates * values) @ self.count
        return moments


def capacity_model(system: System, *, shared_directions: bool = True) -> CapacityModel:
    """Prepares a system for the capacity formulas; refuses one without filter classes or with a cyclic overlay."""
    workload, overlay = system.class_workload, system.overlay
    if workload is None:
        raise AssumptionError(
            f"{system.name} has no filter classes: the capacity model needs workload.classes, workload.clients, "
            "workload.subscriptions and workload.publications"
        )
    refuse_unpredicted(system)
    tree = broker_tree(overlay)
    publications, subscriptions, factor, count, statistics = _distinct_classes(workload, tree.brokers)
    lifetime_s = workload.lifetime.mean_s
    beyond = tree.beyond(subscriptions)
    latency = np.array([link.latency_s for link in overlay.links], dtype=np.float64)
    servers = _servers(system, shared_directions)
    return CapacityModel(
        tree,
        count,
        factor,
        publications,
        subscriptions,
        lifetime_s,
        lifetime_s * beyond,  # capacity Eqs. 1, 2
        tree.reverse(tree.beyond(publications)),  # capacity Eq. 23
        tree.reverse(beyond),  # capacity Eq. 26
        np.concatenate([latency, latency]),
        _moments(broker.notification_service for broker in overlay.brokers),
        _moments(broker.control_service for broker in overlay.brokers),
        servers,
        statistics,
        tuple(broker.matching for broker in overlay.brokers),
        _by_topics(system, servers) if system.publishers and shared_directions else None,
        own_routings(system),
        system.delivery.routing is not None and system.delivery.routing.advertisements,
    )


def _by_topics(system: System, servers: Servers) -> Array:
    """Returns the load of brokers and physical queues by the events of topics, with all that they bring."""
    traffic = traffic_of(system)
    rows: list[list[float]] = []
    for broker, events, controls in zip(
        system.overlay.brokers, traffic.events_per_s, traffic.controls_per_s, strict=True
    ):
        parts = ((events, broker.notification_service), (controls, broker.control_service))
        moments = [(rate, service.moments()) for rate, service in parts if service is not None]
        rows.append([sum(rate * each[k] for rate, each in moments) for k in (0, 1)])
    for is_router, component in zip(servers.is_router.tolist(), servers.component.tolist(), strict=True):
        key: Component = ("router" if is_router else "physical link", component, 0)
        first, second = component_service(system, key).moments()[:2] if key in traffic.components else (0.0, 0.0)
        rate = sum(traffic.components.get(key, (0.0, 0.0)))
        rows.append([rate * first, rate * second])
    return np.array(rows, dtype=np.float64).reshape(-1, 2)


def _distinct_classes(
    workload: ClassWorkload, brokers: int
) -> tuple[Array, Array, Array, Array, tuple[FilterStatistics, ...]]:
    """Returns rates by broker of the classes that differ, their service factors, how many each stands for, and
    statistics.
    """
    kinds = list(dict.fromkeys(each.filters for each in workload.classes))
    index_of = {kind: i for i, kind in enumerate(kinds)}
    rows = np.concatenate(
        [
            workload.by_broker(workload.publication_rate_per_s, brokers),
            workload.by_broker(workload.subscription_rate_per_s, brokers),
            np.array([[each.service_factor, index_of[each.filters]] for each in workload.classes]),
        ],
        axis=1,
    )
    distinct, count = np.unique(rows, axis=0, return_counts=True)
    columns = np.ascontiguousarray(distinct.T)
    statistics = tuple(statistics_of(kinds[int(i)]) for i in columns[-1])
    return columns[:brokers], columns[brokers:-2], columns[-2], count.astype(np.float64), statistics


def _moments(services: Iterable[Distribution | None]) -> Array:
    """Returns the first and second moments of service times, one row each; 0 where there is no service."""
    rows = [(0.0, 0.0) if service is None else service.moments()[:2] for service in services]
    return np.array(rows, dtype=np.float64).reshape(len(rows), 2)


def _servers(system: System, shared_directions: bool) -> Servers:
    """Returns the queues on the paths of the overlay links; the routers at both ends of a path are on it."""
    network, links = system.network, system.overlay.links
    index: dict[tuple[bool, int, bool], int] = {}
    used: list[int] = []
    by: list[int] = []
    for i, link in enumerate(links):
        for key, backward in [] if network is None else _passed(network, link.routers):
            is_router, component = key
            for directed, turned in ((i, backward), (i + len(links), not backward)):
                own = not is_router and not shared_directions and turned
                used.append(index.setdefault((is_router, component, own), len(index)))
                by.append(directed)
    services: list[Distribution | None] = []
    if network is not None:
        services = [network.routers[c].service if is_router else network.links[c].service for is_router, c, _ in index]
    return Servers(
        np.array([key[0] for key in index], dtype=np.bool_),
        np.array([key[1] for key in index], dtype=np.intp),
        np.array([key[2] for key in index], dtype=np.bool_),
        _moments(services),
        np.array(used, dtype=np.intp),
        np.array(by, dtype=np.intp),
    )


def _passed(network: Network, routers: tuple[int, ...]) -> list[tuple[tuple[bool, int], bool]]:
    """Routers and links of a path, each as (is it a router, index), with whether a link is passed backward."""
    passed = [((True, router), False) for router in routers]
    for start, link in zip(routers, network.links_on(routers), strict=False):
        passed.append(((False, link), network.links[link].a != start))
    return passed
