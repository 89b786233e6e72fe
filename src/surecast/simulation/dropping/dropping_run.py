"""One run: draws the events and the connected periods, and lets every policy work on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surecast.scenario import Streams, System
from surecast.scenario.mechanism import Mechanism
from surecast.simulation.dropping.draws import Floats, Switches, draw_events, draw_switches, draw_times
from surecast.simulation.dropping.dropping_plan import DroppingPlan, DroppingSettings, Policy, tables_of
from surecast.simulation.dropping.queue_kernel import (
    AREA,
    BINS,
    BUSY,
    CONNECTED,
    OUTCOMES,
    STATES,
    SUMS,
    connected_time,
    count_outcomes,
    get_through,
    input_queue,
    output_queue,
)

__all__ = ["BROKER_SUMS", "Bins", "DroppingRunResult", "simulate_run"]

Counts = NDArray[np.int64]
Bins = tuple[Counts, Counts]
"""The bins of a histogram that are not empty, and what is in them."""

BROKER_SUMS = ("processed", "delay", "area", "busy")
"""Of the events that arrive in the time that counts: how many are processed, the sum of the times they take; over that
time: the integrals of the number present and of the service."""


@dataclass(frozen=True, slots=True)
class DroppingRunResult:
    """The sums of one run. By policy and subscriber: counts by state met and outcome, sums, and bins of times; by
    policy and broker: the sums of the input queue."""

    counts: Counts
    sums: Floats
    responses: tuple[tuple[Bins, ...], ...]
    delays: tuple[tuple[Bins, ...], ...]
    brokers: Floats


@dataclass(frozen=True, slots=True)
class _Events:
    """The events published at one broker, in order."""

    published: Floats
    services: Floats
    topics: NDArray[np.int64]
    deadlines: Floats


def simulate_run(
    plan: DroppingPlan,
    policies: tuple[Policy, ...],
    settings: DroppingSettings,
    traces: Mapping[str, Switches],
    run: int,
) -> DroppingRunResult:
    """Run number `run`: it depends on the seed and its number only, not on which runs were done before."""
    streams = Streams(settings.seed)
    shape = (len(policies), len(plan.subscribers))
    counts, sums = np.zeros((*shape, STATES, OUTCOMES), np.int64), np.zeros((*shape, SUMS))
    brokers = np.zeros((len(policies), len(plan.feeds), len(BROKER_SUMS)))
    bins: list[list[tuple[Bins, Bins]]] = [[] for _ in policies]
    events = {home: _events(plan.system, feed, streams, run, settings.window[1]) for home, feed in plan.feeds.items()}
    left: dict[tuple[int, int], Floats] = {}
    for p, policy in enumerate(policies):
        for b, (home, size) in enumerate(policy.input_sizes.items()):
            if (home, size) not in left:
                queued = plan.system.overlay.brokers[home].notification_service is not None
                left[home, size] = _departures(events[home], size) if queued else events[home].published
            brokers[p, b] = _broker_sums(events[home], left[home, size], settings)
    for s in range(len(plan.subscribers)):
        subscriber = _Subscriber(plan, s, events, streams, run, settings, traces)
        for p, policy in enumerate(policies):
            departures = left[subscriber.home, policy.input_sizes[subscriber.home]]
            bins[p].append(subscriber.follow(policy.mechanisms[s], departures, counts[p, s], sums[p, s]))
    responses, delays = (tuple(tuple(pair[k] for pair in row) for row in bins) for k in (0, 1))
    return DroppingRunResult(counts, sums, responses, delays, brokers)


class _Subscriber:
    """One subscriber in one run: its events, and everything drawn for them, the same under every policy."""

    def __init__(
        self,
        plan: DroppingPlan,
        index: int,
        events: Mapping[int, _Events],
        streams: Streams,
        run: int,
        settings: DroppingSettings,
        traces: Mapping[str, Switches],
    ):
        who = plan.system.subscribers[plan.subscribers[index]]
        self.home, self.window = who.home, settings.window
        mine = events[who.home]
        wanted = [i for i, topic in enumerate(plan.system.topics) if topic.name in who.topics]
        self.chosen: NDArray[np.bool_] = np.isin(mine.topics, wanted)
        self.published = mine.published[self.chosen]
        self.deadlines = mine.deadlines[self.chosen]
        size = len(self.published)
        self.coins = streams.generator(f"run {run}/join", who.name).random(size)
        self.services = draw_times(who.service, streams.generator(f"run {run}/service", who.name), size)
        self.unit_lifetimes = streams.generator(f"run {run}/lifetime", who.name).standard_exponential(size)
        if who.name in traces:
            self.switches = traces[who.name]
        else:
            self.switches = draw_switches(who.connectivity, streams, run, who.name, self.window[2])

    def follow(self, mechanism: Mechanism, departures: Floats, counts: Counts, sums: Floats) -> tuple[Bins, Bins]:
        """Lets one mechanism work, adds up what became of the events, and returns bins of responses and delays."""
        arrivals = departures[self.chosen]
        exponential = mechanism.lifetime_distribution == "exponential"
        expiries = np.empty(0)
        if mechanism.expires:
            expiries = self.published + mechanism.lifetime_s * (self.unit_lifetimes if exponential else 1.0)
        kept = get_through(self.published, arrivals, expiries, self.window, counts)
        published, arrivals, deadlines = self.published[kept], arrivals[kept], self.deadlines[kept]
        size = len(published)
        outcome, met_on, finish = np.zeros(size, np.int8), np.zeros(size, np.bool_), np.empty(size)
        row_off, row_on = tables_of(mechanism)
        sums[AREA], sums[BUSY] = output_queue(
            arrivals,
            self.coins[kept],
            expiries[kept] if mechanism.expires else expiries,
            self.services[kept],
            *self.switches,
            (mechanism.buffer_size or 0, mechanism.protect_connected, not exponential),
            row_off,
            row_on,
            self.window,
            outcome,
            met_on,
            finish,
        )
        sums[CONNECTED] = connected_time(*self.switches, *self.window[:2])
        responses, delays = np.zeros(BINS, np.int64), np.zeros(BINS, np.int64)
        if size:
            count_outcomes(
                published, deadlines, arrivals, outcome, met_on, finish, self.window, counts, sums, responses, delays
            )
        return _filled(responses), _filled(delays)


def _events(system: System, publishers: tuple[int, ...], streams: Streams, run: int, end_s: float) -> _Events:
    """Poisson events of all publishers of a broker; each event goes to one of its publisher's topics at random."""
    index = {topic.name: i for i, topic in enumerate(system.topics)}
    times, services, topics, deadlines = [], [], [], []
    for p in publishers:
        who = system.publishers[p]
        points = draw_events(streams.generator(f"run {run}/publications", who.name), who.rate_per_s * end_s)
        size = len(points)
        times.append(points / who.rate_per_s)
        service = system.overlay.brokers[who.home].notification_service
        services.append(draw_times(service, streams.generator(f"run {run}/input", who.name), size))
        own = np.array([index[topic] for topic in who.topics], dtype=np.int64)
        drawn = streams.generator(f"run {run}/topic", who.name).random(size) if len(own) > 1 else np.zeros(size)
        topics.append(own[(drawn * len(own)).astype(np.intp)])
        deadlines.append(np.full(size, who.deadline_s))
    if len(times) == 1:
        return _Events(times[0], services[0], topics[0], deadlines[0])
    joined = np.concatenate(times)
    order = np.argsort(joined, kind="stable")
    service_s, topic, deadline_s = (np.concatenate(part)[order] for part in (services, topics, deadlines))
    return _Events(joined[order], service_s, topic, deadline_s)


def _departures(events: _Events, size: int) -> Floats:
    """Returns the times at which events leave the input queue, -1 for those that find it full."""
    departures = np.empty(len(events.published))
    input_queue(events.published, events.services, size, departures)
    return departures


def _broker_sums(events: _Events, departures: Floats, settings: DroppingSettings) -> list[float]:
    begin, end, _ = settings.window
    kept = departures >= 0.0
    arrived, left, services = events.published[kept], departures[kept], events.services[kept]
    counted = arrived >= begin
    present = np.clip(left, begin, end) - np.clip(arrived, begin, end)
    busy = np.clip(left, begin, end) - np.clip(left - services, begin, end)
    return [
        float(np.count_nonzero(counted)),
        float((left - arrived)[counted].sum()),
        float(present.sum()),
        float(busy.sum()),
    ]


def _filled(counts: Counts) -> Bins:
    where = np.flatnonzero(counts)
    return where, counts[where]
