"""A scenario, resolved: every name looked up, every range drawn, every generator run.

This is what `predict`, `simulate`, `run` and `plan` work on. Nothing in it is random any more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from surecast.profile import BrokerProfile
from surecast.scenario.distributions import Distribution
from surecast.scenario.network import Network

if TYPE_CHECKING:
    import networkx as nx

    from surecast.scenario.build.classes import RatePeriod
    from surecast.scenario.spec.delivery import DeliverySpec
    from surecast.scenario.spec.scenario import Experiment, Targets

__all__ = [
    "AttributeStatistics",
    "Broker",
    "ClassWorkload",
    "Connectivity",
    "Failures",
    "FilterClass",
    "Histogram",
    "Matching",
    "Overlay",
    "OverlayLink",
    "Publisher",
    "Subscriber",
    "System",
    "Topic",
]


@dataclass(frozen=True, slots=True)
class Failures:
    """Failures and repairs of a component: its up times and its down times."""

    up: Distribution
    down: Distribution

    @property
    def mtbf_s(self) -> float:
        return self.up.mean_s

    @property
    def mttr_s(self) -> float:
        return self.down.mean_s

    @property
    def availability(self) -> float:
        """The share of time the component is up."""
        return self.mtbf_s / (self.mtbf_s + self.mttr_s)


@dataclass(frozen=True, slots=True)
class Matching:
    """The time that the routing table of a broker adds to its service times, in seconds.

    A notification costs `lookup_s`, and then by the algorithm. Brute force: `entry_s` for every entry of the table and
    `predicate_s` for every entry of its class. Counting: `predicate_s` for every predicate that holds and `match_s` for
    every entry that matches. Index: `match_s` for every entry looked at. A control message costs `update_s`, and
    `comparison_s` for every entry it is compared with.
    """

    algorithm: str
    lookup_s: float
    entry_s: float
    predicate_s: float
    match_s: float
    update_s: float
    comparison_s: float


@dataclass(frozen=True, slots=True)
class Broker:
    """A logical broker. `router` is None without a physical network; `failures` is None if it never fails.

    `notification_service` and `control_service` are None where the broker adds no queueing delay of a fixed length,
    `matching` where none depends on its routing table. With a `profile` the services follow from it and the load.
    """

    name: str
    router: int | None = None
    notification_service: Distribution | None = None
    control_service: Distribution | None = None
    failures: Failures | None = None
    matching: Matching | None = None
    profile: BrokerProfile | None = None

    @property
    def availability(self) -> float:
        return 1.0 if self.failures is None else self.failures.availability


@dataclass(frozen=True, slots=True)
class OverlayLink:
    """A link between the brokers with indices `a` and `b`; `routers` is its path in the physical network, a to b."""

    name: str
    a: int
    b: int
    routers: tuple[int, ...] = ()
    latency_s: float = 0.0
    capacity_per_s: float = math.inf
    loss: float = 0.0
    failures: Failures | None = None
    burst_mean: float | None = None
    """Packets in a row that it loses, on average; None: each is lost on its own."""

    @property
    def availability(self) -> float:
        return 1.0 if self.failures is None else self.failures.availability


@dataclass(frozen=True)
class Overlay:
    """Brokers and the links between them, connected.

    `root` is the root broker of the hierarchical scheme. `trees` gives, for each topic, the indices of the links of
    its broker tree. `candidates` are the routers where planning may place brokers.
    """

    brokers: tuple[Broker, ...]
    links: tuple[OverlayLink, ...]
    root: int = 0
    trees: dict[str, tuple[int, ...]] = field(default_factory=dict)
    candidates: tuple[int, ...] = ()

    @cached_property
    def index(self) -> dict[str, int]:
        """Index of each broker by its name."""
        return {broker.name: i for i, broker in enumerate(self.brokers)}

    @cached_property
    def graph(self) -> nx.Graph[int]:
        """The overlay as a graph on broker indices; each edge carries `link` (index), `latency` and `hops` (1)."""
        return self.subgraph(range(len(self.links)))

    def subgraph(self, links: range | tuple[int, ...]) -> nx.Graph[int]:
        """Returns all brokers with only the given links."""
        import networkx as nx

        graph: nx.Graph[int] = nx.Graph()
        graph.add_nodes_from(range(len(self.brokers)))
        for i in links:
            link = self.links[i]
            graph.add_edge(link.a, link.b, link=i, latency=link.latency_s, hops=1)
        return graph

    @property
    def is_tree(self) -> bool:
        """True if the overlay, being connected, has no cycle."""
        return len(self.links) == len(self.brokers) - 1


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic and the share of subscriptions it attracts."""

    name: str
    popularity: float


@dataclass(frozen=True, slots=True)
class Publisher:
    """Publishes on `topics` at `rate_per_s` in all, divided evenly; its events live `deadline_s`.

    A population of `count` equal publishers is one, with the rate of all: events of many that publish at random are
    those of one that publishes as much.
    """

    name: str
    home: int
    topics: tuple[str, ...]
    rate_per_s: float
    deadline_s: float
    router: int | None = None
    count: int = 1
    payload_bytes: float = 64.0
    qos: int = 0


@dataclass(frozen=True, slots=True)
class Connectivity:
    """The connected and the disconnected periods of a subscriber."""

    on: Distribution
    off: Distribution


@dataclass(frozen=True, slots=True)
class Subscriber:
    """Subscribes to `topics` at its home broker. `connectivity` is None if it never disconnects.

    `service` is the time it takes the broker to transmit one event to it, None where that is negligible.
    Targets are None where nothing was asked for.
    """

    name: str
    home: int
    topics: tuple[str, ...]
    router: int | None = None
    connectivity: Connectivity | None = None
    service: Distribution | None = None
    reliability_target: float | None = None
    response_target_s: float | None = None
    qos: int = 0


@dataclass(frozen=True, slots=True)
class Histogram:
    """A distribution of numbers; the weights sum to 1.

    With one point more than weights the points are the edges of bins and a number is uniform within its bin. With as
    many, the points are the numbers that occur.
    """

    points: tuple[float, ...]
    weights: tuple[float, ...]

    @property
    def is_continuous(self) -> bool:
        return len(self.points) > len(self.weights)


@dataclass(frozen=True, slots=True)
class AttributeStatistics:
    """The values of one attribute in notifications of a class, and the intervals that subscriptions ask for.

    A subscription constrains it with probability `constrained`, to an interval with both ends drawn from `ends` or,
    where that is None, to one with a centre and a width drawn from `centre` and `width`.
    """

    name: str
    value: Histogram
    ends: Histogram | None = None
    centre: Histogram | None = None
    width: Histogram | None = None
    constrained: float = 1.0


@dataclass(frozen=True, slots=True)
class FilterClass:
    """A class of notifications and of the subscriptions to them.

    `filters` has an entry for each attribute, all independent of each other; None stands for one attribute where the
    ends of the intervals and the values of the notifications are uniform.
    """

    name: str
    hot_spot: str = ""
    service_factor: float = 1.0
    filters: tuple[AttributeStatistics, ...] | None = None


@dataclass(frozen=True)
class ClassWorkload:
    """Subscriptions that come and go, by filter class and client (content-based routing).

    `publication_rate_per_s` and `subscription_rate_per_s` have one row per class and one column per client;
    `client_home` and `client_router` say where each client is.
    """

    classes: tuple[FilterClass, ...]
    clients: tuple[str, ...]
    client_home: tuple[int, ...]
    client_router: tuple[int | None, ...]
    publication_rate_per_s: NDArray[np.float64]
    subscription_rate_per_s: NDArray[np.float64]
    lifetime: Distribution
    periods: tuple[RatePeriod, ...] = ()

    @property
    def active_subscriptions(self) -> float:
        """Mean number of subscriptions active at a time, by Little's law."""
        return float(self.subscription_rate_per_s.sum() * self.lifetime.mean_s)

    def by_broker(self, rates: NDArray[np.float64], brokers: int) -> NDArray[np.float64]:
        """Sums client columns into one column per broker."""
        totals = np.zeros((len(self.classes), brokers))
        np.add.at(totals.T, np.array(self.client_home, dtype=np.intp), rates.T)
        return totals


@dataclass(frozen=True)
class System:
    """The whole resolved system. `notes` collects what was assumed on the way."""

    name: str
    seed: int
    network: Network | None
    overlay: Overlay
    topics: tuple[Topic, ...]
    publishers: tuple[Publisher, ...]
    subscribers: tuple[Subscriber, ...]
    class_workload: ClassWorkload | None
    client_failures: Failures | None
    delivery: DeliverySpec
    targets: Targets
    experiment: Experiment
    notes: tuple[str, ...] = ()

    def publishers_of(self, subscriber: Subscriber) -> tuple[Publisher, ...]:
        """Returns the publishers that share a topic with a subscriber."""
        wanted = set(subscriber.topics)
        return tuple(p for p in self.publishers if wanted.intersection(p.topics))
