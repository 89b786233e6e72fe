"""A system as a simulation of content-based routing takes it: brokers, queues and the ways between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from surecast.errors import AssumptionError, ConfigurationError, refuse_unknown
from surecast.protocol.demand import SUMMARIES
from surecast.protocol.mqtt.topics import has_wildcard
from surecast.scenario.distributions import Distribution
from surecast.scenario.system import ClassWorkload, OverlayLink, System
from surecast.simulation.experiment import Extent

__all__ = ["ALGORITHMS", "Passed", "Queue", "RoutingPlan", "Settings", "check_algorithms", "make_plan"]

ROUTING_SCHEMES: Final = ("peer-to-peer", "hierarchical")
"""The relation of two neighbours to each other."""

ALGORITHMS: Final[tuple[str, ...]] = (
    "flooding",
    *(f"{scheme} {name}" for scheme in ROUTING_SCHEMES for name in ("simple", "identity", "covering", "merging")),
)
"""The nine routing algorithms: flooding, and four in each of two schemes."""

Passed = tuple[bool, int, bool]
"""A part of the network on a path: whether it is a router, its index, and whether a link is passed backward."""


@dataclass(frozen=True, slots=True)
class Queue:
    """A single server that serves first come, first served: a broker, a router, a physical link or one way of it.

    Brokers come first, in their order, `part` None. Both kinds of message have the same service in the network.
    """

    name: str
    part: Passed | None
    notification: Distribution | None
    control: Distribution | None

    @property
    def scope(self) -> str:
        """The kind of component, as reports name it."""
        if self.part is None:
            return "broker"
        return "router" if self.part[0] else "physical_link"

    def mean_s(self, *, control: bool) -> float:
        """The mean service time of a kind of message with service factor 1."""
        service = self.control if control else self.notification
        return 0.0 if service is None else service.mean_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(Extent):
    """The settings of a simulation of routing: its extent and the algorithms."""

    algorithms: tuple[str, ...]
    check: bool = False


@dataclass(frozen=True)
class RoutingPlan:
    """A system, laid out for the simulation.

    Link i is the directed link i from its first end to its second, and i + `links` back; `tail` and `head` are its
    sender and its receiver. A message on a directed link first travels `lead_s`, and then passes its `stages`: each a
    queue, and a time to travel afterwards. `passed` lists all parts of the network on the way, served or not.
    `parent` is the neighbour of each broker towards the root, None at the root.
    """

    system: System
    queues: tuple[Queue, ...]
    tail: tuple[int, ...]
    head: tuple[int, ...]
    lead_s: tuple[float, ...]
    stages: tuple[tuple[tuple[int, float], ...], ...]
    passed: tuple[tuple[Passed, ...], ...]
    parent: tuple[int | None, ...]
    shared_directions: bool

    @property
    def workload(self) -> ClassWorkload:
        workload = self.system.class_workload
        assert workload is not None, "make_plan refuses a system without filter classes"
        return workload

    @property
    def brokers(self) -> int:
        return len(self.system.overlay.brokers)

    @property
    def links(self) -> int:
        return len(self.system.overlay.links)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the brokers."""
        return tuple(broker.name for broker in self.system.overlay.brokers)

    def leaving(self, broker: int) -> list[int]:
        """The directed links that start at a broker."""
        return [link for link, start in enumerate(self.tail) if start == broker]


def check_algorithms(algorithms: Sequence[str] | None) -> tuple[str, ...]:
    """The algorithms to simulate, each once; all nine where None."""
    if isinstance(algorithms, str):
        raise ConfigurationError(f"algorithms: write a list, such as [{algorithms!r}]")
    chosen = ALGORITHMS if algorithms is None else tuple(dict.fromkeys(algorithms))
    registered = [f"{scheme} {name}" for scheme in ROUTING_SCHEMES for name in SUMMARIES]
    refuse_unknown("algorithm", chosen, list(dict.fromkeys((*ALGORITHMS, *registered))))
    return chosen


def make_plan(system: System, *, shared_directions: bool = True) -> RoutingPlan:
    """Lays a system out; refuses one without filter classes or whose overlay is no tree."""
    workload, overlay = system.class_workload, system.overlay
    if workload is None:
        raise AssumptionError(
            f"{system.name} has no filter classes: routing by content is simulated with workload.classes, "
            "workload.clients, workload.subscriptions and workload.publications"
        )
    for each in workload.classes:
        if has_wildcard(each.name) or each.name.startswith("$"):
            raise AssumptionError(
                f"{system.name}: classes are topics of the overlay, and {each.name!r} (workload.classes) has a "
                "wildcard of MQTT, or begins with $; give it another name"
            )
    for broker in overlay.brokers:
        if broker.matching is not None:
            raise AssumptionError(
                f"the service times of broker {broker.name} depend on its routing table (matching), which is not "
                "simulated; give it a capacity or a service time instead"
            )
    parent = _parents(system)
    queues = [Queue(b.name, None, b.notification_service, b.control_service) for b in overlay.brokers]
    index: dict[Passed, int] = {}
    ways = [_passed(system, link) for link in overlay.links]
    ways += [tuple((router, part, not router and not turned) for router, part, turned in way[::-1]) for way in ways]
    lead: list[float] = []
    stages: list[tuple[tuple[int, float], ...]] = []
    for link, way in zip(overlay.links * 2, ways, strict=True):
        first, after = _stages(system, link, way, shared_directions, queues, index)
        lead.append(first)
        stages.append(after)
    return RoutingPlan(
        system,
        tuple(queues),
        tuple(link.a for link in overlay.links) + tuple(link.b for link in overlay.links),
        tuple(link.b for link in overlay.links) + tuple(link.a for link in overlay.links),
        tuple(lead),
        tuple(stages),
        tuple(ways),
        parent,
        shared_directions,
    )


def _parents(system: System) -> tuple[int | None, ...]:
    """The neighbour of each broker towards the root."""
    overlay = system.overlay
    near: dict[int, list[int]] = {broker: [] for broker in range(len(overlay.brokers))}
    for link in overlay.links:
        near[link.a].append(link.b)
        near[link.b].append(link.a)
    parent: dict[int, int | None] = {overlay.root: None}
    order = [overlay.root]
    for broker in order:
        for other in near[broker]:
            if other not in parent:
                parent[other] = broker
                order.append(other)
    if len(order) < len(near) or not overlay.is_tree:
        raise AssumptionError(
            f"the overlay of {system.name} is no tree: {len(near)} brokers, {len(overlay.links)} links; routing by "
            "content needs an acyclic overlay: write links: {build: spanning-tree}, or leave out a link"
        )
    return tuple(parent[broker] for broker in range(len(near)))


def _passed(system: System, link: OverlayLink) -> tuple[Passed, ...]:
    """Routers and physical links of a path, in the order in which they are passed from its first end."""
    network = system.network
    if network is None or not link.routers:
        return ()
    passed: list[Passed] = [(True, link.routers[0], False)]
    for start, end, part in zip(link.routers, link.routers[1:], network.links_on(link.routers), strict=False):
        passed += [(False, part, network.links[part].a != start), (True, end, False)]
    return tuple(passed)


def _stages(
    system: System,
    link: OverlayLink,
    way: tuple[Passed, ...],
    shared_directions: bool,
    queues: list[Queue],
    index: dict[Passed, int],
) -> tuple[float, tuple[tuple[int, float], ...]]:
    """The time before the first queue of a path, and its queues with the time after each.

    The latency of the overlay link is spread over its physical links in proportion to theirs.
    """
    network = system.network
    total = sum(network.links[part].latency_s for router, part, _ in way if not router) if network is not None else 0.0
    share = link.latency_s / total if total > 0 else 0.0
    times = [link.latency_s if total == 0 else 0.0]
    passed: list[int] = []
    for router, part, turned in way if network is not None else ():
        assert network is not None
        where = network.routers[part] if router else network.links[part]
        if where.service is not None:
            key = (router, part, turned and not shared_directions)
            if key not in index:
                index[key] = len(queues)
                queues.append(Queue(where.name, key, where.service, where.service))
            passed.append(index[key])
            times.append(0.0)
        if not router:
            times[-1] += share * network.links[part].latency_s
    return times[0], tuple(zip(passed, times[1:], strict=True))
