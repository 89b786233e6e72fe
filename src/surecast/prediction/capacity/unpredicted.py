"""Routing with algorithms by link: what formulas have of it, and what they do not."""

from __future__ import annotations

from collections.abc import Sequence

from surecast.errors import AssumptionError
from surecast.prediction.capacity.filter_probabilities import LAWS
from surecast.scenario.system import System

__all__ = ["own_routings", "refuse_registered", "refuse_unpredicted", "unpredicted_fields"]


def own_routings(system: System) -> tuple[str | None, ...]:
    """Returns the algorithm of each overlay link that has one of its own (`delivery.routing.links`), None for the
    others; empty where none has.

    >>> from surecast.scenario import build, parse_text
    >>> own_routings(build(parse_text('''
    ... {surecast: 1, name: two, overlay: {brokers: [{name: a}, {name: b}, {name: c}], links: [[a, b], [b, c]]},
    ...  delivery: {routing: {links: [{between: [c, b], algorithm: flooding}]}}}
    ... ''')))
    (None, 'flooding')
    """
    routing, overlay = system.delivery.routing, system.overlay
    if routing is None or not routing.links:
        return ()
    own = {frozenset(each.between): each.algorithm for each in routing.links}
    return tuple(own.get(frozenset((overlay.brokers[k.a].name, overlay.brokers[k.b].name))) for k in overlay.links)


def refuse_unpredicted(system: System) -> None:
    """Raises AssumptionError, by the two fields, for routing that has no formulas."""
    for field in unpredicted_fields(system):
        raise AssumptionError(
            f"{system.name}: delivery.routing.links beside {field} is not predicted; leave one of them out, or ask "
            "`surecast simulate`"
        )


def unpredicted_fields(system: System) -> list[str]:
    """Returns the fields of a system that cannot stand beside algorithms by link."""
    workload, routing = system.class_workload, system.delivery.routing
    if routing is None or not routing.links:
        return []
    found = []
    if workload is not None and any(each.filters is not None for each in workload.classes):
        found.append("workload.classes.filters")
    if any(broker.matching is not None for broker in system.overlay.brokers):
        found.append("overlay.brokers.matching")
    return found


def refuse_registered(system: System, algorithms: Sequence[str]) -> None:
    """Refuses algorithms of one's own where links have others: only their means by link are known."""
    registered = [name for name in algorithms if name.rpartition(" ")[2] in LAWS]
    if registered and own_routings(system):
        raise AssumptionError(
            f"{system.name}: delivery.routing.links beside --algorithm {registered[0]!r} is not predicted; leave the "
            "links out, or choose one of the nine algorithms"
        )
