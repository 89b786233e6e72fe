"""A placement problem: all that the capacity of any set of candidate brokers depends on, as arrays."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from surecast.errors import AssumptionError, ConfigurationError, ScenarioError
from surecast.planning.placement.plain import PlainPlacements
from surecast.prediction.capacity.filter_statistics import statistics_of as statistics_of_filters
from surecast.prediction.capacity.kernel_overlay import PlacementArrays
from surecast.prediction.capacity.kernel_tables import FilterFunctions, ForwardingTables, forwarding_tables
from surecast.scenario import Scenario, System
from surecast.scenario.build.collect import Collector
from surecast.scenario.build.failures import FailureTable
from surecast.scenario.build.overlay import build_overlay
from surecast.scenario.distributions import Distribution
from surecast.scenario.network import Network
from surecast.scenario.spec.overlay import BuiltLinks
from surecast.scenario.streams import Streams
from surecast.scenario.system import ClassWorkload, Matching, Overlay

__all__ = ["PlacementProblem", "complete_overlay", "placement_problem"]

Array = NDArray[np.float64]
Index = NDArray[np.int64]
_ROOTS = ("central", "first")


@dataclass(frozen=True)
class PlacementProblem:
    """Candidates, the paths between them, clients and rates. Made by `placement_problem`.

    `pairs` lists the pairs of candidates, the shortest first and of equally long ones those of earlier candidates;
    `pair_number` numbers them otherwise, in the order of names of `latency_s` and `path_start`. `path_forward` and
    `path_backward` hold the queues between the ends of each pair, `queues` their names and `queue_moments` their
    service times. `nearest` lists for each group of clients the candidates from the nearest on; `client_group` is the
    group of each client. Rates are by group and distinct class; `copies` says how many classes coincide in each,
    `statistics` which table of `tables` they use, and `kinds` has one class of each set that delays cannot tell apart.
    `services` are the moments of service times by candidate, kind of message (notification, control) and order;
    `entry_services` what each routing entry adds to their means. `domains` has the domain of each candidate.
    `plain` is there if only the plain model can follow the costs of matching.
    """

    name: str
    candidates: tuple[str, ...]
    routers: tuple[str, ...]
    domains: tuple[str, ...]
    clients: tuple[str, ...]
    queues: tuple[str, ...]
    pairs: Index
    pair_number: Index
    path_start: Index
    path_forward: Index
    path_backward: Index
    latency_s: Array
    nearest: Index
    client_group: Index
    publications: Array
    subscriptions: Array
    copies: Array
    factor: Array
    statistics: Index
    kinds: Index
    lifetime_s: float
    services: Array
    entry_services: Array
    queue_moments: Array
    central: bool
    costs: Array
    tables: ForwardingTables
    plain: PlainPlacements
    is_compiled: bool = True

    @property
    def active_subscriptions(self) -> float:
        """Mean number of subscriptions active at a time."""
        return self.lifetime_s * float((self.subscriptions @ self.copies).sum())

    def scaled(self, *, publications: float = 1.0, subscriptions: float = 1.0) -> PlacementProblem:
        """Returns the same problem with the rates of publications and of subscriptions multiplied.

        >>> from surecast.scenario import load_system
        >>> scenario, system = load_system("examples/company.yaml")
        >>> round(placement_problem(system, scenario).scaled(subscriptions=2.0).active_subscriptions)
        100000
        """
        return replace(
            self,
            publications=publications * self.publications,
            subscriptions=subscriptions * self.subscriptions,
            plain=self.plain.scaled(publications, subscriptions),
        )

    @property
    def arrays(self) -> PlacementArrays:
        """The arrays for compiled code."""
        return PlacementArrays(*(getattr(self, name) for name in PlacementArrays._fields))

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all numbers and names: two problems with the same one have the same answers."""
        digest = hashlib.sha256()
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, PlainPlacements):
                value = tuple(broker.matching for broker in value.system.overlay.brokers)
            for part in value if isinstance(value, ForwardingTables) else (value,):
                digest.update(f"{field.name} {np.shape(part)}".encode())
                digest.update(part.tobytes() if isinstance(part, np.ndarray) else repr(part).encode())
        return digest.hexdigest()

    def component(self, number: int) -> str:
        """Returns the name of a candidate's broker or a queue, as evaluations number them; empty for none.

        >>> from surecast.scenario import load_system
        >>> scenario, system = load_system("examples/company.yaml")
        >>> placement_problem(system, scenario).component(1)
        'broker office-2'
        """
        if number < 0:
            return ""
        if number < len(self.candidates):
            return f"broker {self.candidates[number]}"
        return self.queues[number - len(self.candidates)]


def placement_problem(
    system: System,
    scenario: Scenario,
    *,
    shared_directions: bool = True,
    root: str | None = None,
    costs: float | Mapping[str, float] = 1.0,
    statistics: Sequence[FilterFunctions] = (),
    statistics_of: Sequence[int] | None = None,
    entry_services: NDArray[np.float64] | None = None,
) -> PlacementProblem:
    """Returns the placement problem of a scenario and its system.

    Every broker must stand at a candidate router of its own, links must be built as a spanning tree, and clients must
    be at home at the nearest broker, since all this is done again for each placement. `root` (`central` or `first`)
    replaces the scenario's rule. `costs` are per broker, or by name of broker. `statistics` are groups of filter
    statistics and `statistics_of` the group of each class; left out, they are those of the scenario's filters.
    `entry_services` are the seconds that each routing entry adds to the service of a notification and of a control
    message, one row per broker; left out, they follow from the scenario's matching costs. Costs that grow otherwise
    than with the number of entries are not for compiled code: the plain model then evaluates each placement.

    >>> from surecast.scenario import load_system
    >>> scenario, system = load_system("examples/company.yaml")
    >>> problem = placement_problem(system, scenario)
    >>> len(problem.candidates), len(problem.clients), int(problem.copies.sum()), len(problem.copies)
    (10, 100, 500, 5)
    """
    network, workload, built = _checked(system, scenario)
    overlay = complete_overlay(system, scenario)
    if statistics_of is None and not statistics:
        statistics, statistics_of = _own_statistics(workload)
    services = np.array([[_moments(b.notification_service), _moments(b.control_service)] for b in overlay.brokers])
    by_class = entry_services is None and not _follows_matching(overlay)
    if entry_services is None:
        services, entry_services = _matched_services(overlay, services)
    routers = [broker.router or 0 for broker in overlay.brokers]
    brokers = len(routers)
    distance = np.array([_distances(network, router, routers, built.by) for router in routers])
    ends = list(itertools.combinations(range(brokers), 2))
    pairs = sorted(ends, key=lambda pair: (distance[pair], pair))
    number = np.full((brokers, brokers), -1, dtype=np.int64)
    for i, pair in enumerate(ends):
        number[pair] = i
    hops = np.array([_distances(network, router, list(range(len(network.routers))), "hops") for router in routers])
    order = np.argsort(hops[:, [router or 0 for router in workload.client_router]].T, axis=1, kind="stable")
    nearest, group = np.unique(order, axis=0, return_inverse=True)
    rates = _distinct_classes(workload, group.ravel(), len(nearest), _groups_of(workload, statistics, statistics_of))
    start, forward, backward, queues, moments = _paths(network, overlay, shared_directions)
    rule = _root_rule(scenario, root)
    return PlacementProblem(
        system.name,
        tuple(broker.name for broker in overlay.brokers),
        tuple(network.routers[router].name for router in routers),
        tuple(network.routers[router].domain for router in routers),
        workload.clients,
        queues,
        np.array(pairs, dtype=np.int64).reshape(-1, 2),
        number,
        start,
        forward,
        backward,
        np.array([link.latency_s for link in overlay.links], dtype=np.float64),
        nearest.astype(np.int64),
        group.ravel().astype(np.int64),
        *rates,
        workload.lifetime.mean_s,
        services,
        _entry_services(entry_services, brokers),
        moments,
        rule == "central",
        _costs(costs, [broker.name for broker in overlay.brokers]),
        forwarding_tables(statistics),
        PlainPlacements(replace(system, overlay=overlay), workload, group.ravel(), queues, shared_directions),
        not by_class,
    )


def _refuse_by_link(system: System) -> None:
    """Refuses routing that the compiled formulas do not have: they know one algorithm for all links."""
    routing = system.delivery.routing
    if routing is not None and (routing.links or routing.advertisements):
        field = "links" if routing.links else "advertisements"
        raise AssumptionError(
            f"{system.name}: delivery.routing.{field}: placements are compared without it; leave it out"
        )


def _checked(system: System, scenario: Scenario) -> tuple[Network, ClassWorkload, BuiltLinks]:
    """Returns the parts that placement needs, or a refusal that says what the scenario lacks."""
    spec, overlay = scenario.overlay, system.overlay
    if system.class_workload is None:
        raise AssumptionError(
            f"{system.name} has no filter classes: placement is by the capacity of content-based routing, which needs "
            "workload.classes, workload.clients, workload.subscriptions and workload.publications"
        )
    _refuse_by_link(system)
    if system.network is None or not overlay.candidates:
        raise AssumptionError(f"{system.name} has no candidates: say in overlay.candidates where brokers may stand")
    for broker in overlay.brokers:
        if broker.router not in overlay.candidates:
            raise AssumptionError(
                f"broker {broker.name} does not stand at a candidate router; write at: candidates, so that there is "
                "one broker at each position that planning may choose"
            )
    places = [broker.router for broker in overlay.brokers]
    for broker in overlay.brokers:
        if places.count(broker.router) > 1:
            raise AssumptionError(
                f"broker {broker.name} shares its router with another; write one broker for each candidate"
            )
    for router in overlay.candidates:
        if router not in places:
            raise AssumptionError(
                f"candidate {system.network.routers[router].name} has no broker to place there; write at: candidates"
            )
    if not isinstance(spec.links, BuiltLinks) or spec.links.build != "spanning-tree":
        raise AssumptionError(
            "overlay.links are not built as a spanning tree, so there is no rule to link the brokers of a placement; "
            "write links: {build: spanning-tree}"
        )
    for group in scenario.workload.clients:
        if group.home != "nearest":
            raise AssumptionError(
                f"clients {group.name} are at home at {group.home!r}, whatever the placement; write home: nearest"
            )
    return system.network, system.class_workload, spec.links


def _own_statistics(workload: ClassWorkload) -> tuple[tuple[FilterFunctions, ...], list[int]]:
    """Returns the statistics of the filters that classes have, and which of them each class has; none where all are
    uniform."""
    kinds = list(dict.fromkeys(each.filters for each in workload.classes))
    if kinds == [None]:
        return (), [0] * len(workload.classes)
    place = {kind: i for i, kind in enumerate(kinds)}
    return tuple(statistics_of_filters(kind) for kind in kinds), [place[each.filters] for each in workload.classes]


def _root_rule(scenario: Scenario, root: str | None) -> str:
    rule = scenario.overlay.root if root is None else root
    if rule not in _ROOTS:
        setting = f"overlay.root is {rule!r}" if root is None else f"root={rule!r}"
        raise ConfigurationError(f"{setting}, a broker that not every placement has; use central or first for planning")
    return rule


def complete_overlay(system: System, scenario: Scenario) -> Overlay:
    """Returns all brokers with a link between any two, each with the path, latency and failures it has if it is
    built."""
    built = scenario.overlay.links
    if not isinstance(built, BuiltLinks):
        raise AssumptionError("overlay.links are written out; write links: {build: spanning-tree}")
    links = BuiltLinks(
        build="complete", latency=built.latency, capacity=built.capacity, loss=built.loss, burst=built.burst
    )
    spec = scenario.overlay.model_copy(update={"links": links, "root": "first"})
    streams, collect = Streams(scenario.seed), Collector(scenario.source, scenario.name)
    failures = FailureTable(scenario.availability, streams, scenario.delivery.fault_tolerance.start)
    overlay = build_overlay(spec, system.network, failures, streams, collect)
    if overlay is None or collect.problems:
        raise ScenarioError(collect.problems)
    return replace(overlay, candidates=system.overlay.candidates)


def _distances(network: Network, router: int, others: list[int], by: str) -> list[float]:
    distances = network.distances_from(router, "hops" if by == "hops" else "latency")
    return [distances[other] for other in others]


def _groups_of(
    workload: ClassWorkload, statistics: Sequence[FilterFunctions], statistics_of: Sequence[int] | None
) -> Index:
    classes = len(workload.classes)
    groups = np.zeros(classes, dtype=np.int64) if statistics_of is None else np.asarray(statistics_of, dtype=np.int64)
    if groups.shape != (classes,) or groups.min(initial=0) < 0 or groups.max(initial=0) >= max(len(statistics), 1):
        raise ConfigurationError(
            f"statistics_of must name one of the {max(len(statistics), 1)} groups of filter statistics for each of the "
            f"{classes} classes"
        )
    return groups


def _distinct_classes(
    workload: ClassWorkload, group: NDArray[np.intp], groups: int, statistics: Index
) -> tuple[Array, Array, Array, Array, Index, Index]:
    """Returns rates by group of clients and distinct class, how many coincide, factors, statistics, and one of each
    kind."""
    both = np.zeros((2, len(workload.classes), groups))
    for total, rates in zip(both, (workload.publication_rate_per_s, workload.subscription_rate_per_s), strict=True):
        np.add.at(total.T, group, rates.T)
    factor = np.array([each.service_factor for each in workload.classes])
    rows = np.concatenate([*both, factor[:, None], statistics[:, None]], axis=1)
    distinct, count = np.unique(rows, axis=0, return_counts=True)
    rates = distinct[:, :-2]
    pattern = np.concatenate([rates > 0, distinct[:, -2:-1]], axis=1)
    kinds = np.unique(pattern, axis=0, return_index=True)[1]
    return (
        np.ascontiguousarray(rates[:, :groups].T),
        np.ascontiguousarray(rates[:, groups:].T),
        count.astype(np.float64),
        np.ascontiguousarray(distinct[:, -2]),
        distinct[:, -1].astype(np.int64),
        np.sort(kinds).astype(np.int64),
    )


def _paths(
    network: Network, overlay: Overlay, shared_directions: bool
) -> tuple[Index, Index, Index, tuple[str, ...], Array]:
    """Returns the queues on the path of each pair, in both directions; components without a service time are left out.

    The routers at both ends of a path are on it. A link's directions share a queue or have one each.
    """
    index: dict[tuple[str, int], int] = {}
    moments: list[tuple[float, float]] = []
    start, forward, backward = [0], list[int](), list[int]()

    def queue(name: str, component: int, service: Distribution | None) -> int:
        number = index.setdefault((name, component), len(index))
        if number == len(moments):
            moments.append(_moments(service))
        return number

    for link in overlay.links:
        for router in link.routers:
            if network.routers[router].service is not None:
                queue_number = queue(f"router {network.routers[router].name}", router, network.routers[router].service)
                forward.append(queue_number)
                backward.append(queue_number)
        for begin, number in zip(link.routers, network.links_on(link.routers), strict=False):
            physical = network.links[number]
            if physical.service is not None:
                name = f"physical link {physical.name}"
                there = queue(name, number, physical.service)
                back = there if shared_directions else queue(f"{name} (backward)", number, physical.service)
                along = physical.a == begin
                forward.append(there if along else back)
                backward.append(back if along else there)
        start.append(len(forward))
    return (
        np.array(start, dtype=np.int64),
        np.array(forward, dtype=np.int64),
        np.array(backward, dtype=np.int64),
        tuple(name for name, _ in index),
        np.array(moments, dtype=np.float64).reshape(-1, 2),
    )


def _moments(service: Distribution | None) -> tuple[float, float]:
    return (0.0, 0.0) if service is None else service.moments()[:2]


def _entry_services(entry_services: NDArray[np.float64] | None, brokers: int) -> Array:
    moments = np.zeros((brokers, 2)) if entry_services is None else np.asarray(entry_services, dtype=np.float64)
    if moments.shape != (brokers, 2) or not (moments >= 0.0).all():
        raise ConfigurationError(
            f"entry_services must have a row of two numbers of 0 or more for each of the {brokers} brokers"
        )
    return np.ascontiguousarray(moments)


def _costs(costs: float | Mapping[str, float], names: list[str]) -> Array:
    if isinstance(costs, Mapping):
        for name in costs:
            if name not in names:
                raise ConfigurationError(f"costs: there is no broker {name!r}; there are: {', '.join(names[:10])}")
        missing = [name for name in names if name not in costs]
        if missing:
            raise ConfigurationError(f"costs: broker {missing[0]} has none; give one for every candidate")
        values = np.array([costs[name] for name in names], dtype=np.float64)
    else:
        values = np.full(len(names), float(costs))
    if not (np.isfinite(values) & (values >= 0.0)).all():
        raise ConfigurationError("costs: a cost is negative or not finite; give numbers of 0 or more")
    return values


def _follows_matching(overlay: Overlay) -> bool:
    """Returns whether compiled code covers the matching costs of all brokers.

    It knows how many entries a table has, not of which class they are. So the costs must grow with that number alone:
    brute force without a time per predicate, and control messages that are compared with nothing.
    """
    return all(broker.matching is None or _by_entries_alone(broker.matching) for broker in overlay.brokers)


def _by_entries_alone(matching: Matching) -> bool:
    return matching.algorithm == "brute-force" and matching.predicate_s == 0.0 and matching.comparison_s == 0.0


def _matched_services(overlay: Overlay, services: Array) -> tuple[Array, Array]:
    """Returns moments of service times including the fixed part of matching, and the part that each entry adds, both by
    broker.

    `services` are by broker, kind of message (notification, control) and order. Their coefficient of variation stays.
    """
    grown, slopes = services.copy(), np.zeros((len(overlay.brokers), 2))
    for i, broker in enumerate(overlay.brokers):
        if broker.matching is not None:
            slopes[i, 0] = broker.matching.entry_s
            for kind, fixed_s in enumerate((broker.matching.lookup_s, broker.matching.update_s)):
                mean, square = services[i, kind]
                shape = square / mean**2 if mean > 0.0 else 1.0
                grown[i, kind] = mean + fixed_s, shape * (mean + fixed_s) ** 2
    return grown, slopes
