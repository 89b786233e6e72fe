"""The load of each component of a system against what it can carry: one that gets too much is refused by name."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from surecast.errors import SaturationError
from surecast.scenario.distributions import Distribution
from surecast.scenario.flows import Flows, flows_of
from surecast.scenario.system import System

__all__ = ["ComponentLoad", "broker_rates_per_s", "event_loads", "refuse_saturated_events", "saturation"]

_Stream = tuple[int, int]
"""A publisher's events on one topic: both by their index."""


@dataclass(frozen=True, slots=True)
class ComponentLoad:
    """The load of one component, and what it can carry.

    >>> ComponentLoad("broker b", 5.0, 4.0).is_saturated
    True
    """

    component: str
    rate_per_s: float
    capacity_per_s: float
    messages: str = "events"

    @property
    def utilisation(self) -> float:
        return self.rate_per_s / self.capacity_per_s

    @property
    def is_saturated(self) -> bool:
        """Returns whether its queue grows forever, as it does at a utilisation of exactly 1, too."""
        return self.rate_per_s >= self.capacity_per_s


def saturation(loads: list[ComponentLoad]) -> SaturationError | None:
    """Returns the refusal that names the overloaded components, the worst first; None if there are none."""
    worst = sorted((load for load in loads if load.is_saturated), key=lambda load: -load.utilisation)
    if not worst:
        return None
    first = worst[0]
    others = ", ".join(load.component for load in worst[1:4]) + (
        f" and {len(worst) - 4} more" if len(worst) > 4 else ""
    )
    return SaturationError(
        f"{first.component} is overloaded: {first.rate_per_s:.6g} {first.messages}/s come, and it carries "
        f"{first.capacity_per_s:.6g}/s" + (f"; so are {others}" if others else "") + "; there is no steady state to "
        "answer for: give it a higher capacity, or publish less"
    )


def refuse_saturated_events(system: System) -> None:
    """Refuses a system in which a broker, a link or a router gets more events of its topics than it can carry.

    >>> from surecast.scenario import build, parse_text
    >>> refuse_saturated_events(build(parse_text('''
    ... {surecast: 1, name: busy, overlay: {brokers: [{name: b, capacity: 4/s}]}, workload: {topics: [t],
    ...  publishers: [{name: p, home: b, topics: [t], rate: 5/s}], subscribers: [{name: s, home: b, topics: [t]}]}}
    ... ''')))
    Traceback (most recent call last):
    ...
    surecast.errors.SaturationError: broker b is overloaded: 5 events/s come, and it carries 4/s; there is no steady \
state to answer for: give it a higher capacity, or publish less
    """
    refusal = saturation(event_loads(system))
    if refusal is not None:
        raise refusal


def broker_rates_per_s(system: System, flows: Flows | None = None, *, ends_only: bool = False) -> list[float]:
    """Returns the events per second that each broker handles: those of its own publishers and those that pass it, each
    once.

    An event counts once however many subscribers it goes to, and also if it goes to none. With `ends_only` it passes
    the home brokers of its publisher and of its subscribers only, whatever way it takes between them.
    """
    flows = flows_of(system) if flows is None else flows
    passing: list[set[_Stream]] = [set() for _ in system.overlay.brokers]
    index = {topic.name: i for i, topic in enumerate(system.topics)}
    for i, publisher in enumerate(system.publishers):
        passing[publisher.home].update((i, index[topic]) for topic in publisher.topics)
    for stream, route in _ways(flows):
        brokers = flows.routes[route].brokers
        for broker in (brokers[0], brokers[-1]) if ends_only else brokers:
            passing[broker].add(stream)
    return [_rate_per_s(system, streams) for streams in passing]


def event_loads(system: System) -> list[ComponentLoad]:
    """Returns the loads of brokers, overlay links, routers and physical links that have a capacity, by the events of
    topics.

    A link has its capacity in each direction; a router or a physical link is one queue for both. Events that travel as
    packets bring a home broker at least the plain packets of each event, and choose their links themselves.
    """
    if not system.publishers:
        return []
    flows, coding = flows_of(system), system.delivery.coding
    packets, messages = (1, "events") if coding is None else (coding.packets, "packets")
    rates = broker_rates_per_s(system, flows, ends_only=coding is not None)
    loads = [
        ComponentLoad(f"broker {broker.name}", packets * rate, _capacity_per_s(broker.notification_service), messages)
        for broker, rate in zip(system.overlay.brokers, rates, strict=True)
        if broker.notification_service is not None
    ]
    return loads if coding is not None else loads + _network_loads(system, flows)


def _network_loads(system: System, flows: Flows) -> list[ComponentLoad]:
    """Returns the loads of overlay links, by direction, and of the components on their physical paths."""
    links, network = system.overlay.links, system.network
    over: dict[tuple[int, int], set[_Stream]] = {}
    through: dict[tuple[bool, int], set[_Stream]] = {}
    for stream, number in _ways(flows):
        route = flows.routes[number]
        for start, link in zip(route.brokers, route.links, strict=False):
            over.setdefault((link, start), set()).add(stream)
            path = links[link].routers
            if network is None or not path:
                continue
            for router in path:
                through.setdefault((True, router), set()).add(stream)
            for physical in network.links_on(path):
                through.setdefault((False, physical), set()).add(stream)
    loads = [
        ComponentLoad(f"link {links[link].name}", _rate_per_s(system, streams), links[link].capacity_per_s)
        for (link, _), streams in over.items()
        if links[link].capacity_per_s < math.inf
    ]
    for (is_router, number), streams in through.items():
        assert network is not None
        part = network.routers[number] if is_router else network.links[number]
        if part.service is not None:
            kind = "router" if is_router else "physical link"
            loads.append(
                ComponentLoad(f"{kind} {part.name}", _rate_per_s(system, streams), _capacity_per_s(part.service))
            )
    return loads


def _ways(flows: Flows) -> Iterator[tuple[_Stream, int]]:
    """Yields each flow's publisher and topic, and its route."""
    columns = (flows.publisher.tolist(), flows.topic.tolist(), flows.route.tolist())
    for publisher, topic, route in zip(*columns, strict=True):
        yield (publisher, topic), route


def _rate_per_s(system: System, streams: set[_Stream]) -> float:
    publishers = system.publishers
    return math.fsum(publishers[i].rate_per_s / len(publishers[i].topics) for i, _ in sorted(streams))


def _capacity_per_s(service: Distribution | None) -> float:
    return math.inf if service is None or service.mean_s <= 0.0 else 1.0 / service.mean_s
