"""Subscriber admission: which subscribers can be promised their target, and what would make the rest fit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from surecast.errors import AssumptionError
from surecast.planning.alternatives import Alternatives, alternatives_of, current_scheme
from surecast.scenario import Subscriber, System

__all__ = ["ReliabilityPromise", "admit"]


@dataclass(frozen=True, slots=True)
class ReliabilityPromise:
    """The reliability that one subscriber can be promised.

    `other_scheme` is the cheapest scheme, and `other_home` the best home broker, that would meet the target where it
    is not met; `best` is the most it can get anywhere. `reliability` is None where nobody publishes its topics.
    """

    subscriber: str
    home: str
    target: float
    reliability: float | None
    met: bool
    other_scheme: str | None = None
    other_home: str | None = None
    best: float | None = None


def admit(system: System) -> list[ReliabilityPromise]:
    """Returns one promise for each subscriber that has a target, those that cannot be promised first, worst first."""
    alternatives = alternatives_of(system)
    if current_scheme(system) not in alternatives.reliability:
        raise AssumptionError("without a fault-tolerance scheme nothing can be promised; set delivery.fault_tolerance")
    promises = [
        _promise(system, subscriber, wants, alternatives)
        for subscriber, wants in zip(system.subscribers, alternatives.wants, strict=True)
        if subscriber.reliability_target is not None
    ]
    if not promises:
        raise AssumptionError("no subscriber has a reliability target; set targets.reliability or reliability_target")
    return sorted(promises, key=lambda p: (p.met, p.reliability if p.reliability is not None else -1.0))


def _promise(system: System, subscriber: Subscriber, wants: int, alternatives: Alternatives) -> ReliabilityPromise:
    target = subscriber.reliability_target or 0.0
    names = [broker.name for broker in system.overlay.brokers]
    here = alternatives.reliability[current_scheme(system)][wants]
    value = float(here[subscriber.home])
    home = names[subscriber.home]
    if np.isnan(value):
        return ReliabilityPromise(subscriber.name, home, target, None, False)
    best = max(float(np.nanmax(table[wants])) for table in alternatives.reliability.values())
    if value >= target:
        return ReliabilityPromise(subscriber.name, home, target, value, True, best=best)
    schemes = [s for s in alternatives.by_price() if alternatives.reliability[s][wants, subscriber.home] >= target]
    other_home = int(np.nanargmax(here))
    return ReliabilityPromise(
        subscriber.name,
        home,
        target,
        value,
        False,
        schemes[0] if schemes else None,
        names[other_home] if here[other_home] >= target else None,
        best,
    )
