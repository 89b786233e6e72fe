"""The models out of four that a system needs, and systems with some of them switched off."""

from __future__ import annotations

from dataclasses import replace

from surecast.scenario.group import is_replicated
from surecast.scenario.spec.delivery import DeliverySpec
from surecast.scenario.system import System

__all__ = [
    "COMPOSED_SCHEMES",
    "COMPOSED_VARIANT",
    "composes",
    "parts_of",
    "without_failures",
    "without_outlets",
    "without_replication",
]

COMPOSED_SCHEMES = ("none", "periodic-subscription", "buffering")
"""The schemes that are composed: those in which an event keeps to its topic's tree."""

COMPOSED_VARIANT = "composed"
"""The variant under which reports have the figures of all models together."""

_TOGETHER = (
    {"path failure", "dropping"},
    {"replication", "dropping"},
    {"path failure", "queueing", "replication"},
)
"""Parts that are composed unasked. Failures and queues alone are not: failures over months are simulated faster without
queues, and queues of milliseconds change little of what they do."""


def parts_of(system: System) -> tuple[str, ...]:
    """Returns the parts of a system that have a model each: path failure, queueing, replication and dropping.

    >>> from surecast.scenario import build, parse_text
    >>> system = build(parse_text('''
    ... {surecast: 1, name: one, overlay: {brokers: [{name: b, capacity: 9/s}]},
    ...  availability: {brokers: {mtbf: 9h, mttr: 1h}}, delivery: {replication: {replicas: 3}}}
    ... '''))
    >>> parts_of(system)
    ('path failure', 'queueing', 'replication')
    """
    overlay = system.overlay
    present = {
        "path failure": system.client_failures is not None
        or any(broker.failures is not None for broker in overlay.brokers)
        or any(link.failures is not None for link in overlay.links),
        "queueing": _transmits(system) or any(broker.notification_service is not None for broker in overlay.brokers),
        "replication": is_replicated(system),
        "dropping": any(s.connectivity is not None and system.publishers_of(s) for s in system.subscribers),
    }
    return tuple(part for part, there in present.items() if there)


def composes(system: System) -> bool:
    """Returns whether a system needs several models at once, and they can be composed for it.

    Events have topics and travel whole, along their topic's tree. Queues where nothing fails are all there is to know.
    A group alone, whose subscribers stay connected, has no paths and no queues but its own, which the model of groups
    is about.
    """
    parts = set(parts_of(system))
    if system.class_workload is not None or system.delivery.coding is not None:
        return False
    if not any(system.publishers_of(subscriber) for subscriber in system.subscribers):
        return False
    if system.delivery.fault_tolerance.scheme not in COMPOSED_SCHEMES:
        return False
    if _transmits(system):
        return True
    if "queueing" in parts and not parts & {"path failure", "replication", "dropping"}:
        return True
    if len(system.overlay.brokers) == 1 and "dropping" not in parts:
        return False
    return any(pair <= parts for pair in _TOGETHER)


def _transmits(system: System) -> bool:
    """Returns whether transmission takes time to a subscriber that is always connected."""
    steady = (s for s in system.subscribers if s.connectivity is None and s.service is not None)
    return any(system.publishers_of(subscriber) for subscriber in steady)


def without_failures(system: System) -> System:
    """Returns the system with everything always up; groups stay groups."""
    overlay = replace(
        system.overlay,
        brokers=tuple(replace(broker, failures=None) for broker in system.overlay.brokers),
        links=tuple(replace(link, failures=None) for link in system.overlay.links),
    )
    return replace(system, overlay=overlay, client_failures=None)


def without_outlets(system: System) -> System:
    """Returns the system with every subscriber always connected, and transmission to it taking no time."""
    subscribers = tuple(replace(subscriber, connectivity=None, service=None) for subscriber in system.subscribers)
    return replace(system, subscribers=subscribers)


def without_replication(system: System) -> System:
    """Returns the system with each broker on its own, failing as one replica does."""
    before = system.delivery
    delivery = DeliverySpec(
        routing=before.routing, fault_tolerance=before.fault_tolerance, dropping=before.dropping, coding=before.coding
    )
    return replace(system, delivery=delivery)
