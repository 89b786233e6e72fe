"""The load of each component of a system against what it can carry: one that gets too much is refused by name.

`traffic_of` counts all messages of topics in one place: events, acknowledgements, copies sent again after a loss,
refreshes of subscriptions, detours and the states of links. Prediction and simulation both start from it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from surecast.errors import SaturationError
from surecast.scenario.distributions import Distribution, Exponential
from surecast.scenario.flows import Flows, flows_of
from surecast.scenario.group import groups_of
from surecast.scenario.system import System
from surecast.scenario.topic_schemes import topic_schemes

__all__ = [
    "Component",
    "ComponentLoad",
    "Traffic",
    "broker_rates_per_s",
    "component_name",
    "component_service",
    "control_rates_per_s",
    "event_loads",
    "on_link",
    "refuse_saturated_events",
    "saturation",
    "traffic_of",
]

Component = tuple[str, int, int]
"""A queue on a link: `link` with the index of the overlay link and of the broker that sends, or `router` or
`physical link` with its index and 0."""

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
    others: float = 0.0
    """The utilisation by other messages: acknowledgements, refreshes and the states of links."""

    @property
    def utilisation(self) -> float:
        return self.rate_per_s / self.capacity_per_s + self.others

    @property
    def is_saturated(self) -> bool:
        """Returns whether its queue grows forever, as it does at a utilisation of exactly 1, too."""
        return self.utilisation >= 1.0


def saturation(loads: list[ComponentLoad]) -> SaturationError | None:
    """Returns the refusal that names the overloaded components, the worst first; None if there are none."""
    worst = sorted((load for load in loads if load.is_saturated), key=lambda load: -load.utilisation)
    if not worst:
        return None
    first = worst[0]
    others = ", ".join(load.component for load in worst[1:4]) + (
        f" and {len(worst) - 4} more" if len(worst) > 4 else ""
    )
    beside = f", and acknowledgements and other control messages take {first.others:.3g} of it" if first.others else ""
    return SaturationError(
        f"{first.component} is overloaded: {first.rate_per_s:.6g} {first.messages}/s come, and it carries "
        f"{first.capacity_per_s:.6g}/s" + beside + (f"; so are {others}" if others else "") + "; there is no steady "
        f"state to answer for: give it a capacity above {first.capacity_per_s * first.utilisation:.6g}/s, or publish "
        f"less than {1.0 / first.utilisation:.4g} of this"
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
state to answer for: give it a capacity above 5/s, or publish less than 0.8 of this
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
    flows, coding, brokers = flows_of(system), system.delivery.coding, system.overlay.brokers
    if coding is not None:
        rates = broker_rates_per_s(system, flows, ends_only=True)
        return [
            ComponentLoad(
                f"broker {broker.name}", coding.packets * rate, _capacity_per_s(broker.notification_service), "packets"
            )
            for broker, rate in zip(brokers, rates, strict=True)
            if broker.notification_service is not None
        ]
    traffic = traffic_of(system, flows)
    loads = []
    for broker, events, controls in zip(brokers, traffic.events_per_s, traffic.controls_per_s, strict=True):
        if broker.notification_service is None:
            continue
        control_s = 0.0 if broker.control_service is None else broker.control_service.mean_s
        capacity = _capacity_per_s(broker.notification_service)
        loads.append(ComponentLoad(f"broker {broker.name}", events, capacity, others=controls * control_s))
    for component, (events, controls) in traffic.components.items():
        service_s, name = component_service(system, component).mean_s, component_name(system, component)
        loads.append(ComponentLoad(name, events, 1.0 / service_s, others=controls * service_s))
    return loads


@dataclass(frozen=True)
class Traffic:
    """All messages of topics per second, while nothing is down.

    `events_per_s` and `controls_per_s` have an entry for each broker: what it receives, events published at home
    included. `hops` has events and control messages over each overlay link from the broker that sends them, and
    `components` those of each queue on links that takes time. `stored` has the events over each overlay link that are
    sent again until they are acknowledged.
    """

    events_per_s: tuple[float, ...]
    controls_per_s: tuple[float, ...]
    hops: Mapping[tuple[int, int], tuple[float, float]]
    components: Mapping[Component, tuple[float, float]] = field(default_factory=dict)
    stored: Mapping[tuple[int, int], float] = field(default_factory=dict, repr=False)


def traffic_of(system: System, flows: Flows | None = None, scheme: str | None = None) -> Traffic:
    """Returns all messages of topics per second under a scheme, that of the scenario where left out; topics with a
    scheme of their own keep it.

    Where events are stored, each that comes over a link is acknowledged, also a copy that comes again because an
    acknowledgement was lost. A message of control takes a broker its `control_service`; a group takes no time for it.

    >>> from surecast.scenario import build, parse_text
    >>> system = build(parse_text('''
    ... {surecast: 1, name: pair, overlay: {brokers: [{name: a}, {name: b}], links: [[a, b]]}, workload: {topics: [t],
    ...  publishers: [{name: p, home: a, topics: [t], rate: 6/s}], subscribers: [{name: s, home: b, topics: [t]}]},
    ...  delivery: {fault_tolerance: {scheme: buffering, refresh: link}}}
    ... '''))
    >>> traffic_of(system)
    Traffic(events_per_s=(6.0, 6.0), controls_per_s=(6.0, 0.0), hops={(0, 0): (6.0, 0.0), (0, 1): (0.0, 6.0)}, \
components={})
    """
    scheme = system.delivery.fault_tolerance.scheme if scheme is None else scheme
    for counted, under, traffic in _COUNTED:
        if counted is system and under == scheme:
            return traffic
    traffic = _counted(system, flows_of(system) if flows is None else flows, scheme)
    _COUNTED.append((system, scheme, traffic))
    del _COUNTED[:-2]
    return traffic


_COUNTED: list[tuple[System, str, Traffic]] = []
"""The systems that were counted last: a large one is asked about by several models, and takes seconds."""


def _counted(system: System, flows: Flows, scheme: str) -> Traffic:
    links = system.overlay.links
    by_topic = topic_schemes(system, scheme)
    stores = [by_topic[topic.name].endswith("buffering") for topic in system.topics]
    events, controls = [0.0] * len(system.overlay.brokers), [0.0] * len(system.overlay.brokers)
    for publisher in system.publishers:
        events[publisher.home] += publisher.rate_per_s
    over: dict[tuple[int, int], list[float]] = {}
    stored: dict[tuple[int, int], float] = {}
    for (link, start), (sent, received, again, kept, heard) in _hop_rates(system, flows, stores).items():
        end = links[link].b if start == links[link].a else links[link].a
        over.setdefault((link, start), [0.0, 0.0])[0] += sent
        events[end] += received + again
        if kept > 0.0:
            stored[link, start] = kept
            over.setdefault((link, end), [0.0, 0.0])[1] += heard + again
            controls[start] += heard
    for (link, start), rate in _control_rates(system, flows, scheme).items():
        over.setdefault((link, start), [0.0, 0.0])[1] += rate
        controls[links[link].b if start == links[link].a else links[link].a] += rate
    controls = [0.0 if group is not None else rate for group, rate in zip(groups_of(system), controls, strict=True)]
    hops = {hop: (rates[0], rates[1]) for hop, rates in over.items()}
    through: dict[Component, list[float]] = {}
    for (link, start), (passing, control) in hops.items():
        for component in on_link(system, link, start):
            sums = through.setdefault(component, [0.0, 0.0])
            sums[0] += passing
            sums[1] += control
    components = {component: (sums[0], sums[1]) for component, sums in through.items()}
    return Traffic(tuple(events), tuple(controls), hops, components, stored)


def on_link(system: System, link: int, start: int) -> list[Component]:
    """Returns the queues that a message over an overlay link passes on its way from a broker, in their order.

    The link has a queue of its own in each direction; a router or a physical link is one queue for both.
    """
    way, network = system.overlay.links[link], system.network
    passed: list[Component] = [("link", link, start)] if way.capacity_per_s < math.inf else []
    if network is None or not way.routers:
        return passed
    routers = way.routers if start == way.a else tuple(reversed(way.routers))
    for i, router in enumerate(routers):
        if i:
            (physical,) = network.links_on(routers[i - 1 : i + 1])
            passed.append(("physical link", physical, 0))
        passed.append(("router", router, 0))
    return [component for component in passed if component[0] == "link" or _service(system, component) is not None]


def component_service(system: System, component: Component) -> Distribution:
    """Returns the time that a message takes in a queue on a link; on an overlay link it is exponential."""
    kind, index, _ = component
    if kind == "link":
        return Exponential().with_mean(1.0 / system.overlay.links[index].capacity_per_s)
    service = _service(system, component)
    assert service is not None, "only queues that take time are listed"
    return service


def component_name(system: System, component: Component) -> str:
    """Returns the name of a queue on a link."""
    kind, index, _ = component
    if kind == "link":
        return f"link {system.overlay.links[index].name}"
    assert system.network is not None
    return f"{kind} {(system.network.routers if kind == 'router' else system.network.links)[index].name}"


def _service(system: System, component: Component) -> Distribution | None:
    assert system.network is not None
    kind, index, _ = component
    return (system.network.routers if kind == "router" else system.network.links)[index].service


def _hop_rates(
    system: System, flows: Flows, stores: Sequence[bool]
) -> dict[tuple[int, int], tuple[float, float, float, float, float]]:
    """Returns the messages per second over each overlay link from the broker that sends them: all copies sent, events
    received for the first time, copies received again, and of topics that are stored those sent and those received.

    What a link loses does not come further, unless it is stored and sent again before it expires.
    """
    over: dict[tuple[int, int], dict[_Stream, float]] = {}
    links, interval = system.overlay.links, float(system.delivery.fault_tolerance.retransmission_interval)
    tries = [_tries(publisher.deadline_s, interval) for publisher in system.publishers]
    lossy = any(link.loss > 0.0 for link in links)
    for stream, number in _ways(flows):
        route, share = flows.routes[number], 1.0
        for start, link in zip(route.brokers, route.links, strict=False):
            over.setdefault((link, start), {})[stream] = share
            if lossy:
                share *= 1.0 - links[link].loss ** (tries[stream[0]] if stores[stream[1]] else 1.0)
    rates = {}
    for (link, start), shares in over.items():
        loss = links[link].loss
        sent = received = again = kept = heard = 0.0
        for stream, share in sorted(shares.items()):
            publisher, most = system.publishers[stream[0]], tries[stream[0]] if stores[stream[1]] else 1.0
            rate = share * publisher.rate_per_s / len(publisher.topics)
            copies = min(1.0 / (1.0 - loss) ** 2, most) if 0.0 < loss < 1.0 else 1.0
            sent += rate * copies
            received += rate * (1.0 - loss**most)
            again += rate * max(copies * (1.0 - loss) - (1.0 - loss**most), 0.0)
            if stores[stream[1]]:
                kept, heard = kept + rate * copies, heard + rate * (1.0 - loss**most)
        rates[link, start] = sent, received, again, kept, heard
    return rates


def _tries(deadline_s: float, interval_s: float) -> float:
    """Returns how many copies of an event can be sent before it expires."""
    if interval_s <= 0.0 or deadline_s == math.inf:
        return math.inf
    return 1.0 + math.floor(deadline_s / interval_s * (1.0 - 1e-9))


def control_rates_per_s(system: System, scheme: str) -> tuple[list[float], dict[Component, float]]:
    """Returns the refreshes and the states of links per second, by the broker that receives them and by the queue on a
    link."""
    brokers, components = [0.0] * len(system.overlay.brokers), dict[Component, float]()
    for (index, start), rate in _control_rates(system, flows_of(system), scheme).items():
        link = system.overlay.links[index]
        brokers[link.b if start == link.a else link.a] += rate
        for component in on_link(system, index, start):
            components[component] = components.get(component, 0.0) + rate
    return brokers, components


def _control_rates(system: System, flows: Flows, scheme: str) -> dict[tuple[int, int], float]:
    """Returns the refreshes and the states of links per second over each overlay link from the broker that sends them.

    Every home broker refreshes each of its topics over the topic's tree. A change of a broker or a link goes over
    every link once, and over those that do not bring it first in both directions.
    """
    rates: dict[tuple[int, int], float] = {}
    overlay, tolerance = system.overlay, system.delivery.fault_tolerance
    schemes = topic_schemes(system, scheme)
    if tolerance.refresh != "link":
        homes: dict[tuple[int, ...], Counter[int]] = {}
        for home, topic in {(home, topic) for home, topics in flows.interests for topic in topics}:
            if schemes[topic] == "none":
                continue
            homes.setdefault(overlay.trees[topic], Counter())[home] += 1
        for tree, counts in homes.items():
            for hop, number in _away_from(system, tree, counts).items():
                rates[hop] = rates.get(hop, 0.0) + number / float(tolerance.refresh_interval)
    if any(schemes[topic].startswith("bypass") for _, topics in flows.interests for topic in topics):
        laws = [*(broker.failures for broker in overlay.brokers), *(link.failures for link in overlay.links)]
        changes = math.fsum(2.0 / (law.mtbf_s + law.mttr_s) for law in laws if law is not None)
        count = len(overlay.links)
        share = (2 * count - len(overlay.brokers) + 1) / (2 * count) if count else 0.0
        for i, link in enumerate(overlay.links if changes else ()):
            for start in (link.a, link.b):
                rates[i, start] = rates.get((i, start), 0.0) + changes * share
    return rates


def _away_from(system: System, tree: Sequence[int], homes: Counter[int]) -> dict[tuple[int, int], int]:
    """Returns how many of some brokers are on the near side of each link of a tree, from each of its ends."""
    neighbours: dict[int, list[tuple[int, int]]] = {}
    for i in tree:
        link = system.overlay.links[i]
        neighbours.setdefault(link.a, []).append((link.b, i))
        neighbours.setdefault(link.b, []).append((link.a, i))
    start = next(iter(homes))
    order, parent = [start], {start: (-1, -1)}
    for broker in order:
        for other, link_index in neighbours.get(broker, ()):
            if other not in parent:
                parent[other] = (broker, link_index)
                order.append(other)
    below = {broker: homes.get(broker, 0) for broker in order}
    total = sum(homes.values())
    away = {}
    for broker in reversed(order[1:]):
        before, link_index = parent[broker]
        below[before] += below[broker]
        away[link_index, broker] = below[broker]
        away[link_index, before] = total - below[broker]
    return {hop: number for hop, number in away.items() if number}


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
