"""The load of a broker per second, and what a broker of given costs uses for it.

A broker works in turns: it takes all that has come, and sleeps where nothing has. Each turn and each waking costs time
beside the messages themselves, and both become rarer as the load grows, so that a message costs less then. With work
of R cores for the messages, events that come at rate r and turns of length T, the next turn takes x + exp(-x) events,
x = r T being those that came meanwhile, or the one that wakes it. All follows from the share of time that it sleeps:
exp(-x) / (x + exp(-x)).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

__all__ = ["BrokerLoad", "BrokerUse", "events_meanwhile", "quantities", "solve_use", "turn_quantities"]

_STEPS = 80


@dataclass(frozen=True, slots=True)
class BrokerLoad:
    """The load of a broker: messages that come and deliveries that go, per second, and what is open meanwhile.

    `acknowledged_messages_per_s` and `acknowledged_deliveries_per_s` are those of QoS 1 among them. `receivers` are
    the clients that get messages.
    """

    messages_per_s: float = 0.0
    deliveries_per_s: float = 0.0
    received_bytes_per_s: float = 0.0
    sent_bytes_per_s: float = 0.0
    acknowledged_messages_per_s: float = 0.0
    acknowledged_deliveries_per_s: float = 0.0
    pings_per_s: float = 0.0
    receivers: float = 0.0
    subscriptions: float = 0.0
    connections: float = 0.0

    @property
    def events_per_s(self) -> float:
        """Packets that come and may wake the broker: messages, acknowledgements of deliveries, and pings."""
        return self.messages_per_s + self.acknowledged_deliveries_per_s + self.pings_per_s

    def times(self, factor: float) -> BrokerLoad:
        """Returns the load with all rates multiplied; what is open stays.

        >>> BrokerLoad(messages_per_s=2.0, connections=7.0).times(3.0)
        BrokerLoad(messages_per_s=6.0, ..., connections=7.0)
        """
        rates = {each.name: getattr(self, each.name) * factor for each in fields(self) if each.name.endswith("_per_s")}
        return replace(self, **rates)


@dataclass(frozen=True, slots=True)
class BrokerUse:
    """The use that a load makes of a broker: cores, and the share of all it can use; above 1 it is overloaded.

    `per_message_s` is processor time for a message with its deliveries. `parts` are the cores by kind of cost.
    """

    cores: float
    utilisation: float
    per_message_s: float
    wakes_per_s: float
    parts: Mapping[str, float]


def quantities(load: BrokerLoad) -> dict[str, float]:
    """Returns how often each cost of the messages themselves occurs in a second."""
    return {
        "message": load.messages_per_s,
        "delivery": load.deliveries_per_s,
        "received_byte": load.received_bytes_per_s,
        "sent_byte": load.sent_bytes_per_s,
        "acknowledged_message": load.acknowledged_messages_per_s,
        "acknowledged_delivery": load.acknowledged_deliveries_per_s,
        "ping": load.pings_per_s,
        "lookup": load.messages_per_s * load.subscriptions,
    }


def events_meanwhile(busy: float) -> float:
    """Returns how many events come during a turn of a broker that is busy for a share of the time.

    >>> events_meanwhile(0.0), events_meanwhile(1.0), round(events_meanwhile(0.5), 3)
    (0.0, inf, 0.567)
    """
    if busy <= 0.0:
        return 0.0
    if busy >= 1.0:
        return math.inf
    low, high = 0.0, 60.0
    for _ in range(_STEPS):
        middle = (low + high) / 2.0
        asleep = math.exp(-middle) / (middle + math.exp(-middle))
        low, high = (middle, high) if asleep > 1.0 - busy else (low, middle)
    return low


def turn_quantities(load: BrokerLoad, busy: float) -> dict[str, float]:
    """Returns how often each cost of turns occurs in a second, in a broker that is busy for a share of the time.

    The deliveries of one turn to one receiver share a write. A receiver gets nothing in a turn of n events with
    probability z^n, z being the share of events that are not for it.

    >>> load = BrokerLoad(messages_per_s=100.0, deliveries_per_s=4000.0, receivers=40.0)
    >>> turn_quantities(load, 0.0)
    {'turn': 100.0, 'wake_up': 100.0, 'flush': 4000.0}
    """
    x = events_meanwhile(busy)
    if math.isinf(x) or not load.events_per_s:
        return dict.fromkeys(("turn", "wake_up", "flush"), 0.0)
    alone = math.exp(-x)
    turns_per_s = load.events_per_s / (x + alone)
    flushed = 0.0
    if load.receivers:
        other = 1.0 - min(1.0, load.deliveries_per_s / load.receivers / load.events_per_s)
        flushed = load.receivers * (1.0 - alone * other - math.exp(-x * (1.0 - other)) + alone)
    return {"turn": turns_per_s, "wake_up": turns_per_s * alone, "flush": turns_per_s * flushed}


def solve_use(costs: Mapping[str, float], idle_cores: float, load: BrokerLoad, cores_max: float) -> BrokerUse:
    """Returns what a broker uses for a load, given its costs in seconds: the fixed point of work and turns."""
    work = {name: costs.get(name, 0.0) * count for name, count in quantities(load).items()}
    plain = idle_cores + math.fsum(work.values())

    def total(cores: float) -> float:
        rare = turn_quantities(load, cores / cores_max)
        return plain + math.fsum(costs.get(name, 0.0) * count for name, count in rare.items())

    used, rare = plain, dict.fromkeys(("turn", "wake_up", "flush"), 0.0)
    if plain < cores_max:
        low, high = plain, cores_max
        for _ in range(_STEPS):
            middle = (low + high) / 2.0
            low, high = (middle, high) if total(middle) > middle else (low, middle)
        used, rare = low, turn_quantities(load, low / cores_max)
    parts = {"idle": idle_cores, **work, **{name: costs.get(name, 0.0) * count for name, count in rare.items()}}
    per_message_s = (used - idle_cores) / load.messages_per_s if load.messages_per_s else 0.0
    return BrokerUse(used, used / cores_max, per_message_s, rare["wake_up"], {k: v for k, v in parts.items() if v})
