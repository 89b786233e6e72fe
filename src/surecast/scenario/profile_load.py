"""The load of each broker as profiles count it: messages, deliveries, bytes and acknowledgements, from one traffic."""

from __future__ import annotations

from collections import Counter

import numpy as np

from surecast.profile import BrokerLoad
from surecast.scenario.flows import flows_of
from surecast.scenario.saturation import traffic_of
from surecast.scenario.system import System

__all__ = ["profile_loads"]


def profile_loads(system: System) -> list[BrokerLoad]:
    """Returns what each broker carries while nothing is down.

    An event that is passed on to another broker is one delivery there, and one message at the other. Losses on links
    are those of the traffic; deliveries to clients are those of all events.

    >>> from surecast.scenario import build, parse_text
    >>> system = build(parse_text('''
    ... {surecast: 1, name: pair, overlay: {brokers: [{name: a}, {name: b}], links: [[a, b]]}, workload: {topics: [t],
    ...  qos: 1, payload: 200B, publishers: [{name: p, count: 5000, home: a, topics: [t], rate: 1/10s}],
    ...  subscribers: [{name: s, count: 40, home: b, topics: [t]}]}}
    ... '''))
    >>> [(load.messages_per_s, load.deliveries_per_s, load.connections) for load in profile_loads(system)]
    [(500.0, 500.0, 5001.0), (500.0, 20000.0, 41.0)]
    """
    flows, traffic, count = flows_of(system), traffic_of(system), len(system.overlay.brokers)
    members = Counter(flows.interest_of.tolist())
    sizes = np.array([publisher.payload_bytes for publisher in system.publishers] or [0.0])
    qos = np.array([float(publisher.qos) for publisher in system.publishers] or [0.0])
    home = np.array([publisher.home for publisher in system.publishers], dtype=np.intp)
    rates = np.array([publisher.rate_per_s for publisher in system.publishers], dtype=np.float64)
    copies = np.array([float(members[i]) for i in range(len(flows.interests))] or [0.0])
    served = np.array([place for place, _ in flows.interests], dtype=np.intp)
    delivered = flows.rate_per_s * copies[flows.interest] if len(flows.interest) else np.zeros(0)
    at = served[flows.interest] if len(flows.interest) else np.zeros(0, dtype=np.intp)
    out = np.bincount(at, delivered, count)
    out_bytes = np.bincount(at, delivered * sizes[flows.publisher], count)
    out_acknowledged = np.bincount(at, delivered * qos[flows.publisher], count)
    own_acknowledged = np.bincount(home, rates * qos[: len(home)], count)
    mean_bytes = float(np.average(sizes[: len(rates)], weights=rates)) if rates.sum() > 0 else 0.0
    over = np.zeros(count)
    for (_, start), (events, _) in traffic.hops.items():
        over[start] += events
    degree = Counter(end for link in system.overlay.links for end in (link.a, link.b))
    clients = Counter(s.home for s in system.subscribers)
    topics = Counter(dict.fromkeys(range(count), 0))
    for subscriber in system.subscribers:
        topics[subscriber.home] += len(subscriber.topics)
    publishers = np.bincount(home, [publisher.count for publisher in system.publishers], count)
    return [
        BrokerLoad(
            messages_per_s=traffic.events_per_s[i],
            deliveries_per_s=float(out[i] + over[i]),
            received_bytes_per_s=traffic.events_per_s[i] * mean_bytes,
            sent_bytes_per_s=float(out_bytes[i] + over[i] * mean_bytes),
            acknowledged_messages_per_s=float(own_acknowledged[i]),
            acknowledged_deliveries_per_s=float(out_acknowledged[i]),
            receivers=float(clients[i] + degree[i]),
            subscriptions=float(topics[i] + degree[i]),
            connections=float(publishers[i] + clients[i] + degree[i]),
        )
        for i in range(count)
    ]
