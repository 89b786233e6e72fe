"""Refuses a system that has no steady state: a broker, link, router or group that gets more than it can carry."""

from __future__ import annotations

from collections.abc import Sequence

from surecast.scenario.group import groups_of
from surecast.scenario.saturation import ComponentLoad, broker_rates_per_s, event_loads, saturation
from surecast.scenario.system import System

__all__ = ["refuse_overload", "refuse_overloaded_events"]


def refuse_overload(system: System, algorithms: Sequence[str] | None = None) -> None:
    """Refuses a system in which a component gets more than it can carry, of events or of filter classes.

    Classes are refused where the scenario's own routing, or each of the algorithms, overloads a component: one that
    can be carried by another algorithm is a comparison.

    >>> from surecast.scenario import build, parse_text
    >>> refuse_overload(build(parse_text('''
    ... {surecast: 1, name: busy, overlay: {brokers: [{name: b, capacity: 10/s}]}, workload: {topics: [t],
    ...  publishers: [{name: p, home: b, topics: [t], rate: 5001/s}], subscribers: [{name: s, home: b, topics: [t]}]}}
    ... ''')))
    Traceback (most recent call last):
    ...
    surecast.errors.SaturationError: broker b is overloaded: 5001 events/s come, and it carries 10/s; there is no \
steady state to answer for: give it a capacity above 5001/s, or publish less than 0.002 of this
    """
    refuse_overloaded_events(system)
    if system.class_workload is None:
        return
    from surecast.prediction.capacity.class_overload import refuse_overloaded_classes

    refuse_overloaded_classes(system, system.class_workload, algorithms)


def refuse_overloaded_events(system: System) -> None:
    """Refuses a system in which a broker, a link, a router or a group gets more events than it can carry."""
    loads = event_loads(system)
    groups = groups_of(system)
    if system.publishers and any(groups):
        from surecast.prediction.replication.performance import saturation_per_s

        for broker, group, rate in zip(system.overlay.brokers, groups, broker_rates_per_s(system), strict=True):
            if group is None:
                continue
            name = broker.name
            loads = [load for load in loads if load.component != f"broker {name}"]  # the group does its work
            loads.append(ComponentLoad(f"broker {name}, a group of {group.replicas},", rate, saturation_per_s(group)))
    refusal = saturation(loads)
    if refusal is not None:
        raise refusal
