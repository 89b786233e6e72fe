"""Refuses a system that has no steady state: a broker, link, router or group that gets more than it can carry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from surecast.errors import SaturationError
from surecast.prediction.capacity.components import queue_name
from surecast.prediction.capacity.model import ALGORITHMS, capacity_model
from surecast.scenario.group import group_of, is_replicated
from surecast.scenario.saturation import Load, broker_rates_per_s, event_loads, saturation
from surecast.scenario.system import ClassWorkload, System

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
steady state to answer for: give it a higher capacity, or publish less
    """
    refuse_overloaded_events(system)
    if system.class_workload is None:
        return
    chosen = list(ALGORITHMS if algorithms is None else algorithms)
    own = system.delivery.routing
    if own is not None and algorithms is None:
        chosen = ["flooding" if own.algorithm == "flooding" else f"{own.scheme} {own.algorithm}"]
    refusals = [refusal for name in chosen if (refusal := _class_refusal(system, system.class_workload, name))]
    if len(refusals) == len(chosen):
        raise refusals[0]


def refuse_overloaded_events(system: System) -> None:
    """Refuses a system in which a broker, a link, a router or a group gets more events than it can carry."""
    from surecast.prediction.replication.performance import saturation_per_s  # that package calls this module

    loads = event_loads(system)
    if system.publishers and is_replicated(system):
        for i, rate in enumerate(broker_rates_per_s(system)):
            group, name = group_of(system, i), system.overlay.brokers[i].name
            loads = [load for load in loads if load.component != f"broker {name}"]  # the group does its work
            loads.append(Load(f"broker {name}, a group of {group.replicas},", rate, saturation_per_s(group)))
    refusal = saturation(loads)
    if refusal is not None:
        raise refusal


def _class_refusal(system: System, workload: ClassWorkload, algorithm: str) -> SaturationError | None:
    """Returns why an algorithm cannot carry the filter classes beside the events of topics; None where it can."""
    besides = {load.component: load.utilisation for load in event_loads(system)}
    for period in workload.periods or (None,):
        rates = (workload.publication_rate_per_s, workload.subscription_rate_per_s)
        if period is not None:
            rates = (rates[0] * period.publications[:, None], rates[1] * period.subscriptions[:, None])
        during = replace(workload, publication_rate_per_s=rates[0], subscription_rate_per_s=rates[1])
        model = capacity_model(replace(system, class_workload=during))
        loads = model.loads(model.flows(algorithm))
        for i in (-loads.utilisation).argsort(kind="stable").tolist():
            name, own = queue_name(system, model, i), float(loads.utilisation[i])
            total = own + besides.get(name, 0.0)
            if total >= 1.0:
                when = "" if period is None else f" in period {period.name}"
                parts = f", {own:.4g} by filter classes and the rest by topics" if total > own else ""
                return SaturationError(
                    f"{name} is overloaded{when} under {algorithm}: its utilisation would be {total:.4g}{parts}; there "
                    "is no steady state to answer for: give it a higher capacity, or publish less"
                )
    return None
