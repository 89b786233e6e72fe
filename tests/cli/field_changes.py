"""A change for every field of a resolved system: what the test of coverage changes, one at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from surecast.scenario import System
from surecast.scenario.distributions import Distribution, parse_distribution
from surecast.scenario.flows import flows_of
from surecast.scenario.spec.delivery import Gossip, LinkRouting, Routing
from surecast.scenario.system import Broker, Connectivity, Failures, Matching, OverlayLink, Publisher, Subscriber

Change = Callable[[System], System | None]
"""A system with one field changed; None where it has no such field to change."""

_SECOND = parse_distribution("exponential")


def times(mean_s: float) -> Distribution:
    return _SECOND.with_mean(mean_s)


def longer(law: Distribution | None, factor: float, new_s: float) -> Distribution:
    return times(new_s) if law is None else law.with_mean(factor * law.mean_s)


def _first_broker(change: Callable[[Broker], Broker]) -> Change:
    def changed(system: System) -> System:
        brokers = (change(system.overlay.brokers[0]), *system.overlay.brokers[1:])
        return replace(system, overlay=replace(system.overlay, brokers=brokers))

    return changed


def _first_link(change: Callable[[OverlayLink], OverlayLink]) -> Change:
    """A change of the first link that events pass."""

    def changed(system: System) -> System | None:
        links = system.overlay.links
        passed = [link for route in flows_of(system).routes for link in route.links]
        if not links or (system.publishers and not passed):
            return None
        at = passed[0] if passed else 0
        new = (*links[:at], change(links[at]), *links[at + 1 :])
        return replace(system, overlay=replace(system.overlay, links=new))

    return changed


def _first_publisher(change: Callable[[Publisher], Publisher]) -> Change:
    def changed(system: System) -> System | None:
        if not system.publishers:
            return None
        return replace(system, publishers=(change(system.publishers[0]), *system.publishers[1:]))

    return changed


def _first_subscriber(change: Callable[[Subscriber], Subscriber]) -> Change:
    def changed(system: System) -> System | None:
        if not system.subscribers:
            return None
        return replace(system, subscribers=(change(system.subscribers[0]), *system.subscribers[1:]))

    return changed


def _failing(failures: Failures | None, up: float, down: float) -> Failures:
    found = failures or Failures(times(9000.0), times(1000.0))
    return Failures(found.up.with_mean(up * found.mtbf_s), found.down.with_mean(down * found.mttr_s))


def _broker_failures(up: float, down: float) -> Change:
    return _first_broker(lambda broker: replace(broker, failures=_failing(broker.failures, up, down)))


def _delivery(part: str, **fields: Any) -> Change:
    def changed(system: System) -> System | None:
        told = getattr(system.delivery, part)
        if told is None:
            return None
        new = told.model_copy(update={n: f(getattr(told, n)) if callable(f) else f for n, f in fields.items()})
        return replace(system, delivery=system.delivery.model_copy(update={part: new}))

    return changed


def _link_with(system: System, algorithm: str) -> LinkRouting:
    """An algorithm of its own for the first link of a system."""
    link, brokers = system.overlay.links[0], system.overlay.brokers
    return LinkRouting(between=(brokers[link.a].name, brokers[link.b].name), algorithm=algorithm)


def _coding(part: str, **fields: Any) -> Change:
    """A change of a part of coded delivery."""

    def changed(system: System) -> System | None:
        coding = system.delivery.coding
        if coding is None or getattr(coding, part) is None:
            return None
        new = getattr(coding, part).model_copy(update=fields)
        told = coding.model_copy(update={part: new})
        return replace(system, delivery=system.delivery.model_copy(update={"coding": told}))

    return changed


def _targets(**fields: float) -> Change:
    return lambda system: replace(system, targets=system.targets.model_copy(update=fields))


def _workload(**fields: Callable[[Any], Any]) -> Change:
    def changed(system: System) -> System | None:
        workload = system.class_workload
        if workload is None:
            return None
        new = {name: change(getattr(workload, name)) for name, change in fields.items()}
        return replace(system, class_workload=replace(workload, **new))

    return changed


def _more(rates: Any) -> Any:
    return 1.05 * rates


def _matching(**fields: Any) -> Change:
    plain = Matching("counting", 1e-5, 1e-6, 1e-6, 1e-6, 1e-5, 1e-6)
    return _first_broker(lambda b: replace(b, matching=replace(b.matching or plain, **fields)))


def _connectivity(on: float, off: float) -> Change:
    def changed(subscriber: Subscriber) -> Subscriber:
        found = subscriber.connectivity or Connectivity(times(20.0), times(10.0))
        new = Connectivity(found.on.with_mean(on * found.on.mean_s), found.off.with_mean(off * found.off.mean_s))
        return replace(subscriber, connectivity=new)

    return _first_subscriber(changed)


def _physical(part: str) -> Change:
    def changed(system: System) -> System | None:
        network = system.network
        if network is None:
            return None
        on_path = {router for link in system.overlay.links for router in link.routers}
        if part == "routers":
            at = min(on_path, default=0)
            slow = replace(network.routers[at], service=longer(network.routers[at].service, 1.3, 1e-4))
            routers = (*network.routers[:at], slow, *network.routers[at + 1 :])
            return replace(system, network=replace(network, routers=routers))
        paths = [network.links_on(link.routers) for link in system.overlay.links if len(link.routers) > 1]
        if not paths:
            return None
        at = paths[0][0]
        slow_link = replace(network.links[at], service=longer(network.links[at].service, 1.3, 1e-4))
        links = (*network.links[:at], slow_link, *network.links[at + 1 :])
        return replace(system, network=replace(network, links=links))

    return changed


def _other(values: tuple[str, ...]) -> Callable[[str], str]:
    return lambda value: next(each for each in values if each != value)


CHANGES: dict[str, tuple[str, Change]] = {
    "Broker.notification_service": (
        "overlay.brokers.capacity",
        _first_broker(lambda b: replace(b, notification_service=longer(b.notification_service, 1.05, 1e-3))),
    ),
    "Broker.control_service": (
        "overlay.brokers.control_service",
        _first_broker(lambda b: replace(b, control_service=longer(b.control_service, 1.1, 1e-3))),
    ),
    "Broker.failures": (
        "availability.brokers",
        _first_broker(lambda b: replace(b, failures=_failing(b.failures, 0.8, 0.8))),
    ),
    "Failures.up": ("availability.brokers", _first_broker(lambda b: replace(b, failures=_failing(b.failures, 0.7, 1)))),
    "Failures.down": (
        "availability.brokers",
        _first_broker(lambda b: replace(b, failures=_failing(b.failures, 1, 1.3))),
    ),
    "Broker.matching": ("overlay.brokers.matching", _matching()),
    "Matching.algorithm": ("overlay.brokers.matching", _matching(algorithm="brute-force")),
    "Matching.lookup_s": ("overlay.brokers.matching", _matching(lookup_s=3e-5)),
    "Matching.entry_s": ("overlay.brokers.matching", _matching(algorithm="brute-force", entry_s=3e-6)),
    "Matching.predicate_s": ("overlay.brokers.matching", _matching(predicate_s=3e-6)),
    "Matching.match_s": ("overlay.brokers.matching", _matching(match_s=3e-6)),
    "Matching.update_s": ("overlay.brokers.matching", _matching(update_s=3e-5)),
    "Matching.comparison_s": ("overlay.brokers.matching", _matching(comparison_s=3e-6)),
    "OverlayLink.latency_s": (
        "overlay.links.latency",
        _first_link(lambda link: replace(link, latency_s=1.5 * link.latency_s + 0.01)),
    ),
    "OverlayLink.capacity_per_s": (
        "overlay.links.capacity",
        _first_link(lambda link: replace(link, capacity_per_s=min(0.9 * link.capacity_per_s, 5000.0))),
    ),
    "OverlayLink.loss": ("overlay.links.loss", _first_link(lambda link: replace(link, loss=0.5 * link.loss + 0.05))),
    "OverlayLink.burst_mean": (
        "overlay.links.loss, burst",
        _first_link(lambda link: replace(link, loss=link.loss or 0.05, burst_mean=3.0)),
    ),
    "OverlayLink.failures": (
        "availability.links",
        _first_link(lambda link: replace(link, failures=_failing(link.failures, 0.7, 1))),
    ),
    "Publisher.rate_per_s": (
        "workload.publishers",
        _first_publisher(lambda p: replace(p, rate_per_s=1.02 * p.rate_per_s)),
    ),
    "Publisher.deadline_s": (
        "workload.deadline",
        _first_publisher(lambda p: replace(p, deadline_s=1e-3 if p.deadline_s == math.inf else 1e-4 * p.deadline_s)),
    ),
    "Subscriber.connectivity": ("workload.subscribers.connectivity", _connectivity(0.9, 1.2)),
    "Connectivity.on": ("workload.subscribers.connectivity", _connectivity(0.8, 1.0)),
    "Connectivity.off": ("workload.subscribers.connectivity", _connectivity(1.0, 1.3)),
    "Subscriber.service": (
        "workload.subscribers.service",
        _first_subscriber(lambda s: replace(s, service=longer(s.service, 1.1, 1e-3))),
    ),
    "Subscriber.reliability_target": (
        "targets.reliability",
        _first_subscriber(lambda s: replace(s, reliability_target=0.0 if s.reliability_target else 1.0)),
    ),
    "Subscriber.response_target_s": (
        "targets.response_time",
        _first_subscriber(lambda s: replace(s, response_target_s=1e-9)),
    ),
    "System.client_failures": (
        "availability.clients",
        lambda system: replace(system, client_failures=_failing(system.client_failures, 0.7, 1)),
    ),
    "Router.service": ("network capacities", _physical("routers")),
    "PhysicalLink.service": ("network capacities", _physical("links")),
    "ClassWorkload.publication_rate_per_s": ("workload.classes", _workload(publication_rate_per_s=lambda r: 1.05 * r)),
    "ClassWorkload.subscription_rate_per_s": (
        "workload.classes",
        _workload(subscription_rate_per_s=lambda r: 1.05 * r),
    ),
    "ClassWorkload.lifetime": ("workload.classes", _workload(lifetime=lambda law: law.with_mean(1.2 * law.mean_s))),
    "FilterClass.service_factor": (
        "workload.classes",
        _workload(classes=lambda kinds: (replace(kinds[0], service_factor=1.5), *kinds[1:])),
    ),
    "Routing.scheme": (
        "delivery.routing",
        lambda s: (
            replace(s, delivery=s.delivery.model_copy(update={"routing": Routing(scheme="hierarchical")}))
            if s.class_workload
            else None
        ),
    ),
    "Routing.algorithm": (
        "delivery.routing",
        lambda s: (
            replace(s, delivery=s.delivery.model_copy(update={"routing": Routing(algorithm="covering")}))
            if s.class_workload
            else None
        ),
    ),
    "FaultTolerance.scheme": (
        "delivery.fault_tolerance",
        _delivery("fault_tolerance", scheme=_other(("buffering", "periodic-subscription"))),
    ),
    "FaultTolerance.refresh_interval": (
        "delivery.fault_tolerance",
        _delivery("fault_tolerance", refresh_interval=40.0),
    ),
    "FaultTolerance.subscription_timeout": (
        "delivery.fault_tolerance",
        _delivery("fault_tolerance", subscription_timeout=130.0),
    ),
    "FaultTolerance.retransmission_interval": (
        "delivery.fault_tolerance",
        _delivery("fault_tolerance", retransmission_interval=3.0),
    ),
    "Replication.replicas": ("delivery.replication", _delivery("replication", replicas=lambda n: n + 2)),
    "Replication.brokers": (
        "delivery.replication",
        lambda s: _delivery("replication", replicas=3, brokers=(s.overlay.brokers[0].name,))(s),
    ),
    "Replication.variant": ("delivery.replication", _delivery("replication", variant="batch", replicas=3)),
    "Replication.window": ("delivery.replication", _delivery("replication", window=1, replicas=3)),
    "Replication.durable": ("delivery.replication", _delivery("replication", durable=False)),
    "Replication.entry": ("delivery.replication", _delivery("replication", entry="any", replicas=3)),
    "Replication.delay": ("delivery.replication", _delivery("replication", delay=2e-3, replicas=3)),
    "Replication.sync": ("delivery.replication", _delivery("replication", sync=3e-3)),
    "Replication.suspect": ("delivery.replication", _delivery("replication", suspect=1.0, replicas=3)),
    "Replication.repair": ("delivery.replication", _delivery("replication", repair="single", replicas=3)),
    "Replication.instance_cost": ("delivery.replication", _delivery("replication", instance_cost=2e-4)),
    "Replication.peer_cost": ("delivery.replication", _delivery("replication", peer_cost=2e-4, replicas=3)),
    "Replication.publication_cost": ("delivery.replication", _delivery("replication", publication_cost=2e-5)),
    "Replication.follower_instance_cost": (
        "delivery.replication",
        _delivery("replication", follower_instance_cost=2e-4, replicas=3),
    ),
    "Replication.follower_publication_cost": (
        "delivery.replication",
        _delivery("replication", follower_publication_cost=2e-5, replicas=3),
    ),
    "Dropping.policy": (
        "delivery.dropping",
        lambda s: _delivery(
            "dropping",
            policy="finite-buffer" if s.delivery.dropping.policy == "none" else "none",
            buffer_size=7 if s.delivery.dropping.policy == "none" else None,
            join_probability=None,
            lifetime=None,
        )(s),
    ),
    "Dropping.join_probability": (
        "delivery.dropping",
        _delivery("dropping", policy="probabilistic", join_probability=0.35, lifetime=None, buffer_size=None),
    ),
    "Dropping.lifetime": (
        "delivery.dropping",
        _delivery("dropping", policy="expiry", lifetime=9.0, join_probability=None, buffer_size=None),
    ),
    "Dropping.lifetime_distribution": (
        "delivery.dropping",
        _delivery(
            "dropping",
            policy="expiry",
            lifetime=9.0,
            lifetime_distribution="exponential",
            join_probability=None,
            buffer_size=None,
        ),
    ),
    "Dropping.buffer_size": (
        "delivery.dropping",
        _delivery("dropping", policy="finite-buffer", buffer_size=5, join_probability=None, lifetime=None),
    ),
    "Coding.field_bits": ("delivery.coding", _delivery("coding", field_bits=1)),
    "Coding.packets": ("delivery.coding", _delivery("coding", packets=20)),
    "Coding.packet_size": ("delivery.coding", _delivery("coding", packet_size=1500.0)),
    "Coding.redundancy": ("delivery.coding", _delivery("coding", redundancy=0.5)),
    "Coding.paths": ("delivery.coding", _delivery("coding", paths=_other(("tree", "single-path")))),
    "Coding.flush": ("delivery.coding", _delivery("coding", flush=0.2)),
    "Coding.gossip": ("delivery.coding", _delivery("coding", gossip=lambda g: Gossip(rounds=2) if g is None else None)),
    "Coding.access_loss": ("delivery.coding", _delivery("coding", access_loss=0.07)),
    "Coding.peer_loss": ("delivery.coding", _delivery("coding", peer_loss=0.2)),
    "Coding.retransmission": ("delivery.coding", _coding("retransmission", tries=2)),
    "Retransmission.wait": ("delivery.coding", _coding("retransmission", wait=0.3)),
    "Retransmission.tries": ("delivery.coding", _coding("retransmission", tries=2)),
    "Gossip.mode": ("delivery.coding", _coding("gossip", mode="pull")),
    "Gossip.fan_out": ("delivery.coding", _coding("gossip", fan_out=1)),
    "Gossip.rounds": ("delivery.coding", _coding("gossip", rounds=1)),
    "Gossip.buffer_size": ("delivery.coding", _coding("gossip", buffer_size=1)),
    "Gossip.interval": ("delivery.coding", _coding("gossip", interval=0.5)),
    "Gossip.patience": ("delivery.coding", _coding("gossip", patience=0.3)),
    "Gossip.push_packets": ("delivery.coding", _coding("gossip", push_packets=2)),
    "Targets.reliability": ("targets.reliability", _targets(reliability=1.0)),
    "Targets.response_time": ("targets.response_time", _targets(response_time=1e-6)),
    "Targets.notification_delay": ("targets.notification_delay", _targets(notification_delay=1e-6)),
    "Targets.subscription_delay": ("targets.subscription_delay", _targets(subscription_delay=1e-6)),
    "Targets.utilisation": ("targets.utilisation", _targets(utilisation=1e-6)),
    "FaultTolerance.refresh": (
        "delivery.fault_tolerance",
        _delivery("fault_tolerance", refresh=_other(("link", "end-to-end"))),
    ),
    "FaultTolerance.detection": ("delivery.fault_tolerance", _delivery("fault_tolerance", detection=20.0)),
    "FaultTolerance.schemes": (
        "delivery.fault_tolerance",
        lambda s: _delivery("fault_tolerance", schemes={s.topics[0].name: "bypass-buffering"})(s) if s.topics else None,
    ),
    "Routing.links": (
        "delivery.routing",
        lambda s: (
            replace(s, delivery=s.delivery.model_copy(update={"routing": Routing(links=(_link_with(s, "covering"),))}))
            if s.class_workload
            else None
        ),
    ),
    "Routing.advertisements": (
        "delivery.routing",
        lambda s: (
            replace(s, delivery=s.delivery.model_copy(update={"routing": Routing(advertisements=True)}))
            if s.class_workload
            else None
        ),
    ),
}
"""For each field the words that name it in a warning, and a change of it."""

EXEMPT: dict[str, str] = {
    **dict.fromkeys(("Broker.name", "OverlayLink.name", "Publisher.name", "Subscriber.name", "Topic.name"), "a name"),
    **dict.fromkeys(("FilterClass.name", "FilterClass.hot_spot", "ClassWorkload.clients", "System.name"), "a name"),
    **dict.fromkeys(("Router.name", "Router.domain", "PhysicalLink.name", "System.notes", "Network.notes"), "words"),
    **dict.fromkeys(("Router.x", "Router.y", "Network.geographic", "Network.located"), "latencies are built from it"),
    **dict.fromkeys(("Broker.router", "Publisher.router", "Subscriber.router"), "paths are built from it"),
    **dict.fromkeys(
        ("Publisher.count", "Publisher.payload_bytes", "Publisher.qos", "Subscriber.qos"),
        "it is in the service times of brokers with a profile when the system is built; without one it costs nothing",
    ),
    "Broker.profile": "its service times follow from it when the system is built",
    "ClassWorkload.client_router": "where it stands is in its home",
    "FaultTolerance.start": "it is in the times of repair when the system is built",
    "PhysicalLink.latency_s": "the latency of overlay links follows from it when the system is built",
    "Topic.popularity": "who has which topic is drawn when the system is built",
    "Overlay.candidates": "for placement only",
    "System.seed": "a prediction draws nothing, or the same for every seed",
    **dict.fromkeys(("Experiment.duration", "Experiment.warm_up", "Experiment.runs"), "how long to observe, not what"),
    **dict.fromkeys(
        ("OverlayLink.a", "OverlayLink.b", "OverlayLink.routers", "Overlay.root", "Overlay.trees"), "structure"
    ),
    **dict.fromkeys(("Publisher.home", "Publisher.topics", "Subscriber.home", "Subscriber.topics"), "structure"),
    **dict.fromkeys(("ClassWorkload.client_home", "PhysicalLink.a", "PhysicalLink.b"), "structure"),
    **dict.fromkeys(("FilterClass.filters", "ClassWorkload.periods", "ClassWorkload.classes"), "has tests of its own"),
    **dict.fromkeys(
        (
            "System.network",
            "System.overlay",
            "System.topics",
            "System.publishers",
            "System.subscribers",
            "System.class_workload",
            "System.delivery",
            "System.targets",
            "System.experiment",
            "Overlay.brokers",
            "Overlay.links",
            "Network.routers",
            "Network.links",
        ),
        "its fields are changed one by one",
    ),
}
"""Fields that cannot change an answer, or are no value to change, and why."""


def changed_systems(system: System) -> Iterator[tuple[str, str, System]]:
    """Each field that a system has, the words that name it, and the system with it changed."""
    for field, (words, change) in CHANGES.items():
        found = change(system)
        if found is not None:
            yield field, words, found
