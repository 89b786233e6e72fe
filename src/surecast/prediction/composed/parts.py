"""The parts of a system that the composed model has together, and systems with some of them switched off."""

from __future__ import annotations

from dataclasses import replace

from surecast.scenario.coverage import has_part
from surecast.scenario.group import is_replicated
from surecast.scenario.spec.delivery import SCHEMES, DeliverySpec
from surecast.scenario.system import System

__all__ = [
    "COMPOSED_SCHEMES",
    "COMPOSED_VARIANT",
    "NOT_COMPOSED",
    "composes",
    "parts_of",
    "without_failures",
    "without_outlets",
    "without_replication",
]

COMPOSED_SCHEMES = SCHEMES
"""The schemes that are composed: all."""

COMPOSED_VARIANT = "composed"
"""The variant under which reports have the figures of all models together."""

_ASKS = ("broker queues", "link capacity", "physical queues", "link loss", "connectivity", "transmission")
"""The parts of a scenario that only the composed model has beside failures and deadlines. Constant latency is in the
single models of failures, which leave nothing out where there is nothing else."""

NOT_COMPOSED = (("delivery.coding", "workload.publishers", "events that travel as packets have a model of their own"),)
"""Pairs of fields that cannot be composed yet, and why; a system with both is refused, or a warning names them."""


def parts_of(system: System) -> tuple[str, ...]:
    """Returns the parts of a system: path failure, queueing, loss on links, replication and dropping.

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
        "queueing": _transmits(system)
        or any(has_part(system, part) for part in ("broker queues", "link capacity", "physical queues")),
        "loss": has_part(system, "link loss"),
        "replication": is_replicated(system),
        "dropping": any(s.connectivity is not None and system.publishers_of(s) for s in system.subscribers),
    }
    return tuple(part for part, there in present.items() if there)


def composes(system: System) -> bool:
    """Returns whether a system needs all models at once: where queues, losses or subscribers that come and go stand
    beside its topics, or topics have schemes of their own.

    Events travel whole. A group alone, whose subscribers stay connected and whose events live forever, is all that the
    model of groups is about.
    """
    if system.delivery.coding is not None:
        return False
    if not any(system.publishers_of(subscriber) for subscriber in system.subscribers):
        return False
    alone = len(system.overlay.brokers) == 1 and is_replicated(system)
    if alone and not any(has_part(system, part) for part in ("connectivity", "transmission", "deadline")):
        return False
    if system.delivery.fault_tolerance.schemes:
        return True
    return any(has_part(system, part) for part in _ASKS)


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
