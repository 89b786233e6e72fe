"""The fields of a scenario that each model uses and leaves out: what is left out is named in its report.

A *part* is something a scenario can say, by its fields. A model either uses a part or does not model it. The tables
below say which; `left_out` has a sentence for every part that a system has and a model leaves out. Whatever is built on
such a model is an approximation, and its report says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from surecast.scenario.group import is_replicated
from surecast.scenario.spec.delivery import DeliverySpec
from surecast.scenario.system import Subscriber, System

__all__ = ["MODELS", "PARTS", "Part", "has_part", "left_out"]


@dataclass(frozen=True, slots=True)
class Part:
    """Something that a scenario can say: its fields, what they stand for, and whether a system has it."""

    fields: str
    what: str
    is_given: Callable[[System], bool]


def _served(system: System) -> Iterable[Subscriber]:
    """Returns the subscribers that somebody publishes to."""
    topics = {topic for publisher in system.publishers for topic in publisher.topics}
    return (subscriber for subscriber in system.subscribers if topics.intersection(subscriber.topics))


def _set(part: str) -> Callable[[System], bool]:
    """Returns whether a file says anything of a part of its delivery."""

    def is_set(system: System) -> bool:
        return part in system.delivery.model_fields_set and getattr(system.delivery, part) != getattr(
            DeliverySpec(), part
        )

    return is_set


PARTS: Final[dict[str, Part]] = {
    "broker failures": Part(
        "availability.brokers",
        "failures of brokers",
        lambda s: any(broker.failures is not None for broker in s.overlay.brokers),
    ),
    "link failures": Part(
        "availability.links",
        "failures of links",
        lambda s: any(link.failures is not None for link in s.overlay.links),
    ),
    "client failures": Part(
        "availability.clients", "failures of the clients' links", lambda s: s.client_failures is not None
    ),
    "broker queues": Part(
        "overlay.brokers.capacity, service",
        "queueing and service at brokers",
        lambda s: any(broker.notification_service is not None for broker in s.overlay.brokers),
    ),
    "control messages": Part(
        "overlay.brokers.control_service",
        "the time that control messages take at brokers",
        lambda s: any(b.control_service not in (None, b.notification_service) for b in s.overlay.brokers),
    ),
    "matching": Part(
        "overlay.brokers.matching",
        "the time to match events at brokers",
        lambda s: any(broker.matching is not None for broker in s.overlay.brokers),
    ),
    "link latency": Part(
        "overlay.links.latency", "the latency of links", lambda s: any(link.latency_s > 0 for link in s.overlay.links)
    ),
    "link capacity": Part(
        "overlay.links.capacity",
        "queueing at links",
        lambda s: any(link.capacity_per_s < math.inf for link in s.overlay.links),
    ),
    "link loss": Part(
        "overlay.links.loss, burst",
        "the loss of messages on links that are up",
        lambda s: any(link.loss > 0 for link in s.overlay.links),
    ),
    "physical queues": Part(
        "network capacities",
        "queueing at routers and physical links",
        lambda s: (
            s.network is not None
            and (any(r.service for r in s.network.routers) or any(link.service for link in s.network.links))
        ),
    ),
    "deadline": Part(
        "workload.deadline",
        "the lifetime of events: none is taken for late",
        lambda s: any(publisher.deadline_s < math.inf for publisher in s.publishers),
    ),
    "connectivity": Part(
        "workload.subscribers.connectivity",
        "subscribers that come and go: they are taken as always connected",
        lambda s: any(subscriber.connectivity is not None for subscriber in _served(s)),
    ),
    "transmission": Part(
        "workload.subscribers.service",
        "the time to transmit an event to a subscriber",
        lambda s: any(subscriber.service is not None for subscriber in _served(s)),
    ),
    "fan-out": Part(
        "workload.subscribers",
        "the work of sending an event to each of its subscribers",
        lambda s: any(True for _ in _served(s)) and not all(broker.profile is not None for broker in s.overlay.brokers),
    ),
    "topics": Part(
        "workload.publishers", "the load by topics, beside that of filter classes", lambda s: bool(s.publishers)
    ),
    "classes": Part(
        "workload.classes", "the load by filter classes, beside that of topics", lambda s: s.class_workload is not None
    ),
    "routing": Part(
        "delivery.routing",
        "a choice of algorithm: each of them is a variant",
        lambda s: s.delivery.routing is not None,
    ),
    "fault tolerance": Part("delivery.fault_tolerance", "schemes of fault tolerance", _set("fault_tolerance")),
    "refresh interval": Part(
        "delivery.fault_tolerance.refresh_interval, subscription_timeout",
        "refreshes at an interval: neighbours compare at every link-up what they want, unless refresh is end-to-end",
        lambda s: (
            s.delivery.fault_tolerance.refresh == "link"
            and not s.delivery.fault_tolerance.model_fields_set.isdisjoint(("refresh_interval", "subscription_timeout"))
        ),
    ),
    "replication": Part("delivery.replication", "the replication of brokers", is_replicated),
    "ordering": Part("delivery.replication", "the time that a group takes to order an event", is_replicated),
    "dropping": Part(
        "delivery.dropping",
        "dropping on purpose",
        lambda s: s.delivery.dropping.policy != "none" and any(x.connectivity is not None for x in _served(s)),
    ),
    "idle dropping": Part(
        "delivery.dropping",
        "dropping on purpose: no subscriber comes and goes",
        lambda s: (
            s.delivery.dropping.policy != "none"
            and not any(subscriber.connectivity is not None for subscriber in _served(s))
        ),
    ),
    "coding": Part(
        "delivery.coding", "network coding and gossip: events travel whole", lambda s: s.delivery.coding is not None
    ),
    "reliability target": Part(
        "targets.reliability",
        "whether this target is met",
        lambda s: s.targets.reliability is not None or any(x.reliability_target is not None for x in s.subscribers),
    ),
    "response target": Part(
        "targets.response_time",
        "whether this target is met",
        lambda s: s.targets.response_time is not None or any(x.response_target_s is not None for x in s.subscribers),
    ),
    "notification target": Part(
        "targets.notification_delay", "whether this target is met", lambda s: s.targets.notification_delay is not None
    ),
    "subscription target": Part(
        "targets.subscription_delay", "whether this target is met", lambda s: s.targets.subscription_delay is not None
    ),
    "utilisation target": Part(
        "targets.utilisation", "whether this target is met", lambda s: s.targets.utilisation is not None
    ),
}
"""Everything that a scenario can say and a model can leave out."""

_FAILURES = {"broker failures", "link failures", "client failures", "fault tolerance"}
_BESIDE = {"topics", "fan-out"}
"""The parts that only a model of filter classes, or of the load of a group, can leave out."""
_NO_REFRESH = {"refresh interval"}
"""A part of fault tolerance: models without that leave it out with the whole."""
_DELIVERY_TARGETS = {"reliability target", "response target"}
_ON_LINKS = {"link capacity", "link loss", "physical queues"}
_SCHEMES = _FAILURES | _BESIDE | {"routing", "link latency", "deadline"}
_PACKETS = {"link latency", "link loss", "link capacity", "deadline", "coding", "routing", "ordering"} | _BESIDE
_DROPPING = {"connectivity", "transmission", "dropping", "broker queues", "routing", "ordering"} | _BESIDE
_COMPOSED = _SCHEMES | _DROPPING | _DELIVERY_TARGETS | _ON_LINKS | {"replication", "classes", "control messages"}
_CLASSES = {"classes", "routing", "broker queues", "control messages", "link latency", "physical queues", "fan-out"}
_DELAY_TARGETS = {"notification target", "subscription target", "utilisation target"}
_GROUP = PARTS.keys() - {"fan-out", "control messages", "matching", "classes"}
"""The parts that concern a model of one group; other models of the report have the rest."""

MODELS: Final[dict[str, frozenset[str]]] = {
    name: frozenset(used)
    for name, used in {
        "the reliability model": _SCHEMES | {"broker queues", "replication", "ordering", "reliability target"},
        "the composed model": _COMPOSED,
        "the dropping model": _DROPPING | {"link latency", "response target"} | _NO_REFRESH,
        "the model of coded delivery": _PACKETS | _NO_REFRESH,
        "the model of groups": _GROUP,
        "the capacity model": _CLASSES | _NO_REFRESH | {"matching"} | _DELAY_TARGETS,
        "the walk": _SCHEMES,
        "the walk of groups": _SCHEMES | {"replication"},
        "the simulation of the protocol": _SCHEMES | {"link loss"},
        "the composed simulation": _COMPOSED,
        "the simulation of dropping": _DROPPING | _NO_REFRESH,
        "the simulation of coded delivery": _PACKETS | _NO_REFRESH,
        "the simulation of groups": _GROUP,
        "the simulation of routing": _CLASSES | _NO_REFRESH,
    }.items()
}
"""The parts that each model uses; all others are left out."""


def has_part(system: System, part: str) -> bool:
    """Returns whether a system has a part.

    >>> from surecast.scenario import build, parse_text
    >>> system = build(parse_text('''
    ... {surecast: 1, name: two, overlay: {brokers: [{name: a}, {name: b}], links: [{between: [a, b], loss: 0.1}]}}
    ... '''))
    >>> has_part(system, "link loss"), has_part(system, "link latency")
    (True, False)
    >>> left_out(system, "the reliability model")
    ['not modelled by the reliability model: the loss of messages on links that are up (overlay.links.loss, burst)']
    """
    return PARTS[part].is_given(system)


def left_out(system: System, model: str) -> list[str]:
    """Returns a sentence for each part of a system that a model leaves out, with the fields that say it."""
    used = MODELS[model]
    return [
        f"not modelled by {model}: {part.what} ({part.fields})"
        for name, part in PARTS.items()
        if name not in used and part.is_given(system)
    ]
