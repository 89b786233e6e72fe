"""Static routes with and without refreshed subscriptions, by interval arithmetic: no event is touched one by one.

Whether an event published at a time gets through depends only on that time: the route must be up, and every broker
on it must hold the entry of the subscriber's home. Both are lists of intervals, and counting the publications in
them is a matter of dividing by the period.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from surecast.scenario import Streams
from surecast.simulation.reliability.compiled.compiled_plan import NONE, CompiledPlan, EventSource
from surecast.simulation.reliability.compiled.outcomes import KINDS, OUTCOMES, ReliabilitySettings, SchemeAccounts
from surecast.simulation.reliability.compiled.up_intervals import (
    Intervals,
    count_ticks,
    first_tick,
    flood,
    intersect,
    join,
    refreshed,
    unite,
)

__all__ = ["Clock", "Held", "RoutingEntries", "both", "static_routes", "without_refresh"]

Clock = tuple[float, float, int, int, int]
"""Publications at `phase + k * period` for k = first, first + stride, ... below stop."""

NEVER: Intervals = (np.empty(0), np.empty(0))

Held = Callable[[str, int], dict[int, Intervals]]
"""Returns the intervals in which each broker holds the entry for a topic and a home broker."""

_PATH_DOWN, _NO_ENTRY = OUTCOMES.index("path down"), OUTCOMES.index("no routing entry")
_HOME_DOWN, _CLIENT_DOWN = OUTCOMES.index("home broker down"), OUTCOMES.index("client link down")
_LATE = OUTCOMES.index("late")
_NOTIFICATION = KINDS.index("notification")


def count(times: Intervals, clock: Clock) -> int:
    return int(count_ticks(*times, *clock))


def both(a: Intervals, b: Intervals) -> Intervals:
    starts, ends = intersect(*a, *b)
    return starts, ends


class RoutingEntries:
    """The intervals in which each broker holds the entry of a topic and a home broker, and the number of refreshes.

    The refreshes of each topic and home come every interval with a phase of their own. One gets to a broker if the
    whole way along the topic's tree is up at that moment, and goes on to all neighbours in the tree.
    """

    def __init__(
        self, plan: CompiledPlan, traces: list[Intervals], settings: ReliabilitySettings, run: int, *, count_only: bool
    ):
        self.messages = 0
        self._held: dict[tuple[str, int], dict[int, Intervals]] = {}
        joined, interval, streams = join(traces), settings.refresh_interval_s, Streams(settings.seed)
        for spread in plan.subscriptions:
            name = f"{spread.topic}\0{plan.system.overlay.brokers[spread.home].name}"
            phase = interval * float(streams.generator(f"run {run}/refresh", name).random())
            first, stop = (first_tick(phase, interval, time) for time in (settings.warm_up_s, settings.end_s))
            ways = (spread.order, spread.before, spread.link, spread.onward)
            starts, ends, offsets, messages = flood(
                joined[0], joined[1], joined[2], *ways, phase, interval, first, stop
            )
            self.messages += int(messages)
            if count_only:
                continue
            times = (phase, interval, settings.subscription_timeout_s, settings.horizon_s)
            position = {broker: i for i, broker in enumerate(spread.order.tolist())}
            held: dict[int, Intervals] = {}
            for broker in spread.needed:
                got = slice(*offsets[position[broker] : position[broker] + 2].tolist())
                held[broker] = refreshed(starts[got], ends[got], *traces[broker], *times)
            self._held[spread.topic, spread.home] = held

    def of(self, topic: str, home: int) -> dict[int, Intervals]:
        """The times at which each broker on a route to the home holds the entry."""
        return self._held[topic, home]


def _publishable(
    source: EventSource, traces: list[Intervals], clock: Clock, total: int, accounts: SchemeAccounts
) -> Intervals:
    """Returns the intervals in which events get into the overlay; the other events are booked for all targets."""
    ready, linked = traces[source.broker[0]], total
    if source.access != NONE:
        linked = count(traces[source.access], clock)
        ready = both(ready, traces[source.access])
    accepted = count(ready, clock)
    for target in source.targets:
        accounts.outcomes[target.interest, _CLIENT_DOWN] += total - linked
        accounts.outcomes[target.interest, _HOME_DOWN] += linked - accepted
    return ready


def static_routes(
    source: EventSource, traces: list[Intervals], clock: Clock, total: int, accounts: SchemeAccounts, held: Held | None
) -> None:
    """Counts the events of a source on static routes (reliability Eq. 3).

    `held` says when each broker holds the entry for a topic and a home; None where refreshes are ideal. An event is
    lost to the path where any part of its route is down, and to a missing entry where all of it is up or a broker
    never held one. Events that get to the home broker while the subscriber's access link is down are lost there.
    """
    connected = _connected(source, traces, _publishable(source, traces, clock, total, accounts))
    accepted = count(connected[0], clock)
    sent: dict[int, Intervals] = {}
    for target in source.targets:
        entries = None if held is None else held(source.topic, target.home)
        passed = _at(connected[0], entries, source.broker[0])
        for node in target.path[1:]:
            sent[node] = _united(sent.get(node), passed)
            if entries is None:
                passed = connected[node]
            else:
                passed = _at(both(passed, _hop_up(source, traces, node)), entries, source.broker[node])
        up, arrived = count(connected[target.node], clock), count(passed, clock)
        if entries is not None and any(entries[source.broker[node]] is NEVER for node in target.path):
            up = accepted
        on_time = arrived if target.access == NONE else count(both(passed, traces[target.access]), clock)
        row = accounts.outcomes[target.interest]
        is_late = target.latency_s > source.lifetime_s
        row[_LATE if is_late else 0] += on_time
        accounts.delay_s[target.interest] += 0.0 if is_late else on_time * target.latency_s
        row[_PATH_DOWN] += accepted - up
        row[_NO_ENTRY] += up - arrived
        row[_CLIENT_DOWN] += arrived - on_time
    accounts.messages[_NOTIFICATION] += sum(count(times, clock) for times in sent.values())


def without_refresh(traces: list[Intervals], brokers: int) -> Held:
    """Without any refresh an entry is lost with the first crash: in the steady state only brokers that never fail
    hold any."""
    held = {b: traces[b] if math.isinf(traces[b][1][:1].sum()) else NEVER for b in range(brokers)}
    return lambda topic, home: held


def _connected(source: EventSource, traces: list[Intervals], ready: Intervals) -> list[Intervals]:
    """Returns the intervals in which the whole path from the publisher to each node is up."""
    connected = [ready]
    for node in range(1, len(source.broker)):
        connected.append(both(connected[source.parent[node]], _hop_up(source, traces, node)))
    return connected


def _hop_up(source: EventSource, traces: list[Intervals], node: int) -> Intervals:
    """Returns the intervals in which the link to a node and the broker there are up."""
    return both(traces[source.link[node]], traces[source.broker[node]])


def _at(arriving: Intervals, entries: dict[int, Intervals] | None, broker: int) -> Intervals:
    """Returns, of the times of arrival at a broker, those at which it holds the entry and passes the event on."""
    return arriving if entries is None else both(arriving, entries[broker])


def _united(a: Intervals | None, b: Intervals) -> Intervals:
    if a is None or a is b:
        return b
    starts, ends = unite(*a, *b)
    return starts, ends
