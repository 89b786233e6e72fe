"""Topics with a scheme of fault tolerance of their own."""

from __future__ import annotations

from dataclasses import replace

from surecast.scenario.system import System

__all__ = ["topic_schemes", "without_topic_schemes"]


def topic_schemes(system: System, scheme: str | None = None) -> dict[str, str]:
    """Returns the scheme of each topic: its own, or else `scheme`, which is that of the scenario where left out.

    >>> from surecast.scenario import build, parse_text
    >>> system = build(parse_text('''
    ... {surecast: 1, name: one, overlay: {brokers: [{name: b}]}, workload: {topics: [t, u]},
    ...  delivery: {fault_tolerance: {scheme: bypass, schemes: {u: buffering}}}}
    ... '''))
    >>> topic_schemes(system)
    {'t': 'bypass', 'u': 'buffering'}
    """
    tolerance = system.delivery.fault_tolerance
    common = tolerance.scheme if scheme is None else scheme
    return {topic.name: tolerance.schemes.get(topic.name, common) for topic in system.topics}


def without_topic_schemes(system: System) -> System:
    """Returns the system with one scheme for all topics; the same one where no topic has its own."""
    tolerance = system.delivery.fault_tolerance
    if not tolerance.schemes:
        return system
    update = {"fault_tolerance": tolerance.model_copy(update={"schemes": {}})}
    return replace(system, delivery=system.delivery.model_copy(update=update))
