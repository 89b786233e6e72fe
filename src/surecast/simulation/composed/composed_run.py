"""One run: draws traces, events and service times, lets events travel, and then through the subscribers' queues."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surecast.scenario import Streams
from surecast.scenario.saturation import component_name, component_service
from surecast.scenario.topic_schemes import topic_schemes
from surecast.simulation.composed.composed_arrays import ComposedPlan, Outlet
from surecast.simulation.composed.kernels import (
    EXPIRED,
    HOME_DOWN,
    LOST,
    NO_ENTRY,
    PARTITIONED,
    PATH_DOWN,
    REACHED,
    UNDER_WAY,
    travel,
)
from surecast.simulation.dropping.draws import Switches, draw_events, draw_switches, draw_times
from surecast.simulation.dropping.dropping_plan import tables_of
from surecast.simulation.dropping.queue_kernel import (
    BINS,
    DELIVERED,
    EXPIRED_INPUT,
    EXPIRED_OFF,
    EXPIRED_ON,
    OUTCOMES,
    OVERFLOW,
    REJECTED,
    STATES,
    SUMS,
    count_outcomes,
    get_through,
    output_queue,
)
from surecast.simulation.reliability.compiled.compiled_plan import EventSource
from surecast.simulation.reliability.compiled.outcomes import ReliabilitySettings
from surecast.simulation.reliability.compiled.static import NEVER, RoutingEntries, both, without_refresh
from surecast.simulation.reliability.compiled.traces import draw_trace
from surecast.simulation.reliability.compiled.up_intervals import Intervals, intersect, join
from surecast.simulation.replication.outages import group_trace

__all__ = ["LOST_ON_WAY", "QUEUE_LOSSES", "ComposedRunResult", "simulate_run"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LOST_ON_WAY = (
    "client link down",
    "home broker down",
    "path down",
    "no routing entry",
    "expired",
    "partitioned",
    "lost on a link",
)
"""Why an event does not get to its subscriber's queue."""

QUEUE_LOSSES = {
    "rejected while disconnected": (0, REJECTED),
    "rejected while connected": (1, REJECTED),
    "buffer full while disconnected": (0, OVERFLOW),
    "buffer full while connected": (1, OVERFLOW),
    "expired while disconnected": (None, EXPIRED_OFF),
    "expired while connected": (None, EXPIRED_ON),
    "expired in input queue": (None, EXPIRED_INPUT),
}
"""Why an event is dropped at the queue: the state in which it came (None: either), and the outcome."""

_FATES = {
    "home broker down": HOME_DOWN,
    "path down": PATH_DOWN,
    "no routing entry": NO_ENTRY,
    "expired": EXPIRED,
    "partitioned": PARTITIONED,
    "lost on a link": LOST,
}
_CLIENT_DOWN = 8
_TIMES = 65_536
"""Service times that are drawn for control messages of a broker and for a queue on a link; then they come again."""


@dataclass(frozen=True, slots=True)
class ComposedRunResult:
    """By outlet: events lost on the way by reason, counts at the queue by state and outcome, events still on the way,
    sums, and bins of delays; by broker: events, time they stayed, and time up."""

    lost: Ints
    counts: Ints
    under_way: Ints
    sums: Floats
    delays: Ints
    brokers: Floats


@dataclass(frozen=True, slots=True)
class _Travelled:
    """The events of each stream, and what became of each for each interest of the stream."""

    published: list[Floats]
    fates: list[NDArray[np.int32]]
    arrivals: list[Floats]


def simulate_run(
    plan: ComposedPlan, settings: ReliabilitySettings, gaps_s: list[Floats], run: int
) -> ComposedRunResult:
    """Run number `run`: it depends on the seed and its number only, not on which runs were done before."""
    streams = Streams(settings.seed)
    traces = _traces(plan, settings, streams, run, gaps_s)
    travelled, brokers = _travel(plan, settings, streams, run, traces)
    size = len(plan.outlets)
    lost, under_way = np.zeros((size, len(LOST_ON_WAY)), np.int64), np.zeros(size, np.int64)
    counts, sums = np.zeros((size, STATES, OUTCOMES), np.int64), np.zeros((size, SUMS))
    delays = np.zeros((size, BINS), np.int64)
    for i, outlet in enumerate(plan.outlets):
        queue = _Queue(plan, settings, streams, run, outlet, traces, travelled)
        lost[i], under_way[i] = queue.lost, queue.under_way
        queue.work(counts[i], sums[i], delays[i])
    begin, end, _ = settings.window
    up = [float(np.maximum(np.minimum(e, end) - np.maximum(s, begin), 0.0).sum()) for s, e in traces[: len(brokers)]]
    return ComposedRunResult(lost, counts, under_way, sums, delays, np.column_stack([brokers, up]))


def _traces(
    plan: ComposedPlan, settings: ReliabilitySettings, streams: Streams, run: int, gaps_s: list[Floats]
) -> list[Intervals]:
    """Draws the up intervals of each broker and each link; those of a group come from its replicas."""
    traces = []
    for i, component in enumerate(plan.walk.components):
        name = f"run {run}/{component.name}"
        group = plan.laws[i] if i < len(plan.laws) else None
        if group is not None and group.replicas > 1:
            traces.append(
                group_trace(
                    group,
                    gaps_s[i],
                    horizon_s=settings.horizon_s,
                    seed=settings.seed,
                    name=name,
                )
            )
        else:
            purpose = f"run {run}/{component.kind}"
            traces.append(draw_trace(component.failures, streams, purpose, component.name, settings.horizon_s))
    return traces


def _travel(
    plan: ComposedPlan, settings: ReliabilitySettings, streams: Streams, run: int, traces: list[Intervals]
) -> tuple[_Travelled, Floats]:
    system, end = plan.system, settings.window[1]
    published = []
    for stream in plan.streams:
        name = f"{system.publishers[stream.publisher].name}\0{stream.topic}"
        points = draw_events(streams.generator(f"run {run}/publications", name), stream.rate_per_s * end)
        published.append(points / stream.rate_per_s if stream.rate_per_s > 0 else np.empty(0))
    access = [_access(plan, settings, streams, run, "publisher", p.name) for p in system.publishers]
    sizes = [len(times) * max(len(stream.interests), 1) for times, stream in zip(published, plan.streams, strict=True)]
    bases = np.cumsum([0, *sizes])
    fates, arrivals = np.full(bases[-1], UNDER_WAY, np.int32), np.full(bases[-1], math.inf)
    columns: list[tuple[Floats, Ints, Floats, Ints]] = []
    for s, (stream, times) in enumerate(zip(plan.streams, published, strict=True)):
        width = max(len(stream.interests), 1)
        base = bases[s] + np.arange(len(times)) * width
        linked = _up_at(access[stream.publisher], times)
        fates[bases[s] : bases[s + 1]][np.repeat(~linked, width)] = _CLIENT_DOWN
        kept = int(linked.sum())
        root = np.full(kept, stream.root, np.int64)
        columns.append((times[linked], root, times[linked] + stream.deadline_s, base[linked].astype(np.int64)))
    joined = [np.concatenate(parts) for parts in zip(*columns, strict=True)]
    order = np.argsort(joined[0], kind="stable")
    events = tuple(part[order] for part in joined)
    layout = plan.layout
    services = _services(plan, streams, run, [len(times) for times in published])
    entries, entry_of, route_of = _entries(plan, settings, run, traces)
    hops = []
    for first, *others in plan.walk.hops:
        hop = traces[first]
        for other in others:
            hop = both(hop, traces[other])
        hops.append(hop)
    sums = np.zeros((len(system.overlay.brokers), 2))
    interval = settings.retransmission_interval_s
    if plan.around and interval <= 0.0:
        # what is up again is looked for so often
        laws = [part.failures for part in plan.walk.components if part.failures is not None]
        interval = min((law.mttr_s for law in laws), default=1.0) / 100.0
    targets = (layout.target_starts, layout.target_place, layout.target_here, entry_of, route_of)
    seed = streams.generator(f"run {run}/losses", "links").integers(0, 2**63, 1).astype(np.uint64)
    travel(
        events, layout.tree, targets, plan.links, join(traces), join(hops), entries, plan.groups, services,
        plan.rules(interval), _ways_around(plan, traces), _background(plan, streams, run, settings.horizon_s),
        settings.window, seed, fates, arrivals, sums
    )  # fmt: skip
    cut = [slice(bases[s], bases[s + 1]) for s in range(len(sizes))]
    width_of = [max(len(stream.interests), 1) for stream in plan.streams]
    by_fate = [fates[c].reshape(-1, w) for c, w in zip(cut, width_of, strict=True)]
    by_arrival = [arrivals[c].reshape(-1, w) for c, w in zip(cut, width_of, strict=True)]
    return _Travelled(published, by_fate, by_arrival), sums


def _services(
    plan: ComposedPlan, streams: Streams, run: int, events: list[int]
) -> tuple[Floats, Ints, Ints, Floats, Floats]:
    """Service times enough for all events that may come to each broker, one broker behind the other; those of control
    messages, and those in the queues on links."""
    brokers = plan.system.overlay.brokers
    visits = np.zeros(len(brokers), np.int64)
    for stream, count in zip(plan.streams, events, strict=True):
        np.add.at(visits, plan.layout.tree[0][stream.root : stream.root + stream.nodes], count)
    if plan.around:
        visits = np.maximum(visits, _TIMES // 16)
    drawn = [
        draw_times(broker.notification_service, streams.generator(f"run {run}/input", broker.name), int(count))
        for broker, count in zip(brokers, visits, strict=True)
    ]
    starts = np.cumsum([0, *visits])[:-1].astype(np.int64)
    some = plan.stores and any(broker.control_service for broker in brokers)
    control = [
        draw_times(
            broker.control_service if plan.laws[i] is None else None,
            streams.generator(f"run {run}/control", broker.name),
            _TIMES if some else 1,
        )
        for i, broker in enumerate(brokers)
    ]
    on_links = [
        draw_times(
            component_service(plan.system, component),
            streams.generator(f"run {run}/{component[0]}", f"{component_name(plan.system, component)}\0{component[2]}"),
            _TIMES,
        )
        for component in plan.stations
    ]
    stations = np.array(on_links, dtype=np.float64).reshape(len(on_links), -1 if on_links else 1)
    return np.concatenate([*drawn, np.zeros(1)]), starts, visits, np.array(control, dtype=np.float64), stations


def _background(plan: ComposedPlan, streams: Streams, run: int, until_s: float) -> tuple[Floats, Ints, Floats]:
    """Draws the other work of brokers and of queues on links: times, queues, and how long it takes, in order."""
    columns: list[tuple[Floats, Ints, Floats]] = [(np.empty(0), np.empty(0, np.int64), np.empty(0))]
    for queue, rate, mean_s, squared_cv in plan.others:
        rng = streams.generator(f"run {run}/other work", f"{queue} {rate!r} {mean_s!r}")
        times = draw_events(rng, rate * until_s) / rate
        work = np.full(len(times), mean_s)
        if squared_cv > 1e-12:
            work = rng.gamma(1.0 / squared_cv, mean_s * squared_cv, len(times))
        columns.append((times, np.full(len(times), queue, np.int64), work))
    times, queues, work = (np.concatenate(parts) for parts in zip(*columns, strict=True))
    order = np.argsort(times, kind="stable")
    return times[order], queues[order], work[order]


def _ways_around(plan: ComposedPlan, traces: list[Intervals]) -> tuple[object, ...]:
    """Returns what going around failures needs: the overlay, all changes in the order of time, and where targets
    are."""
    overlay, layout = plan.system.overlay, plan.layout
    brokers, links = len(overlay.brokers), overlay.links
    link_to = np.array([end for link in links for end in (link.b, link.a)], dtype=np.int64)
    if not plan.around:
        none = np.empty(0, np.int64)
        graph = (np.zeros(brokers + 1, np.int64), none, none)
        changes: tuple[Floats, Ints] = (np.empty(0), none)
    else:
        tail = np.array([link.a for link in links] + [link.b for link in links], dtype=np.int64)
        head = np.array([link.b for link in links] + [link.a for link in links], dtype=np.int64)
        order = np.argsort(tail, kind="stable")
        first = np.cumsum(np.concatenate([[0], np.bincount(tail, minlength=brokers)])).astype(np.int64)
        graph = (first, head[order], np.tile(np.arange(len(links)), 2)[order])
        columns = [(np.empty(0), np.empty(0, np.int64))]
        for i, (starts, ends) in enumerate(traces[: brokers + len(links)]):
            edges = np.concatenate([starts[starts > 0.0], ends[np.isfinite(ends)]])
            columns.append((edges, np.full(len(edges), i, np.int64)))
        times, which = (np.concatenate(parts) for parts in zip(*columns, strict=True))
        order = np.argsort(times, kind="stable")
        changes = times[order], which[order]
    return (
        graph, *changes, layout.target_node, layout.target_home, layout.node_of, layout.node_stream,
        layout.node_parent, link_to,
    )  # fmt: skip


def _entries(
    plan: ComposedPlan, settings: ReliabilitySettings, run: int, traces: list[Intervals]
) -> tuple[tuple[Floats, Floats, Ints], Ints, Ints]:
    """Lists of times; which of them says when the entry is there that each node needs for each target (-1: it needs
    none), and which when the whole route is up (-1: that does not matter). Where subscriptions are stored, or refreshed
    at every link-up, entries are there."""
    layout = plan.layout
    shape = len(layout.target_place)
    entry_of, route_of = np.full(shape, -1, np.int64), np.full(shape, -1, np.int64)
    helds = {}
    for scheme in () if settings.by_link else dict.fromkeys(plan.schemes):
        if scheme == "none":
            helds[scheme] = without_refresh(traces, plan.walk.brokers)
        elif scheme == "periodic-subscription":
            helds[scheme] = RoutingEntries(plan.walk, traces, settings, run, count_only=False).of
    if not helds:
        return join([NEVER]), entry_of, route_of
    by_topic = topic_schemes(plan.system, plan.scheme)
    lists: list[Intervals] = [NEVER]
    routes: dict[tuple[int, int], int] = {}
    for node, (which, at) in enumerate(layout.node_source):
        if which < 0:
            continue
        source = plan.walk.sources[which]
        held = helds.get(by_topic[source.topic])
        if held is None:
            continue
        for row in range(int(layout.target_starts[node]), int(layout.target_starts[node + 1])):
            place = int(layout.target_place[row])
            target = source.targets[place]
            known = held(source.topic, target.home)
            if any(known[source.broker[n]] is NEVER for n in target.path):
                entry_of[row] = 0
                continue
            if (which, place) not in routes:
                routes[which, place] = len(lists)
                lists.append(_route_up(source, target.path, traces))
            entry_of[row], route_of[row] = len(lists), routes[which, place]
            lists.append(known[source.broker[at]])
    return join(lists), entry_of, route_of


def _route_up(source: EventSource, path: tuple[int, ...], traces: list[Intervals]) -> Intervals:
    """Returns the intervals in which all parts of a path are up."""
    up = traces[source.broker[0]]
    for node in path[1:]:
        up = both(both(up, traces[source.link[node]]), traces[source.broker[node]])
    return up


def _access(
    plan: ComposedPlan, settings: ReliabilitySettings, streams: Streams, run: int, kind: str, name: str
) -> Intervals:
    """Draws the up intervals of the link of a client."""
    return draw_trace(plan.system.client_failures, streams, f"run {run}/{kind}", name, settings.horizon_s)


def _up_at(intervals: Intervals, times: Floats) -> NDArray[np.bool_]:
    starts, ends = intervals
    i = np.minimum(np.searchsorted(ends, times, side="right"), len(ends) - 1) if len(ends) else np.zeros(0, np.intp)
    if not len(ends):
        return np.zeros(len(times), np.bool_)
    return np.asarray((starts[i] <= times) & (times < ends[i]), dtype=np.bool_)


class _Queue:
    """The last stage of one subscriber: the events that got to its home broker, in order."""

    def __init__(
        self,
        plan: ComposedPlan,
        settings: ReliabilitySettings,
        streams: Streams,
        run: int,
        outlet: Outlet,
        traces: list[Intervals],
        travelled: _Travelled,
    ):
        self.plan, self.settings, self.streams, self.run, self.outlet = plan, settings, streams, run, outlet
        self.subscriber = plan.system.subscribers[outlet.subscriber]
        self.home = traces[self.subscriber.home]
        published, fates, arrivals, deadlines = (
            np.concatenate(parts)
            for parts in zip(
                *(
                    (
                        travelled.published[s],
                        travelled.fates[s][:, bit],
                        travelled.arrivals[s][:, bit],
                        np.full(len(travelled.published[s]), plan.streams[s].deadline_s),
                    )
                    for s, bit in outlet.feeds
                ),
                strict=True,
            )
        )
        reached = fates == REACHED
        begin, end, _ = settings.window
        counted = (begin <= published) & (published < end)
        access = _access(plan, settings, streams, run, "subscriber", self.subscriber.name)
        linked = _up_at(access, np.where(reached, arrivals, 0.0))
        shut_out = reached & ~linked
        lost = {reason: fates == fate for reason, fate in _FATES.items()}
        lost["client link down"] = (fates == _CLIENT_DOWN) | shut_out
        self.lost = np.array([int((lost[reason] & counted).sum()) for reason in LOST_ON_WAY], np.int64)
        self.under_way = int(((fates == UNDER_WAY) & counted).sum())
        kept = np.flatnonzero(reached & linked)
        kept = kept[np.argsort(arrivals[kept], kind="stable")]
        self.published, self.arrivals, self.deadlines = published[kept], arrivals[kept], deadlines[kept]

    def _switches(self) -> Switches:
        """Transmission needs a connected subscriber and a home broker that is up."""
        name, until = self.subscriber.name, self.settings.horizon_s
        is_on, changes = draw_switches(self.subscriber.connectivity, self.streams, self.run, name, until)
        if len(self.home[0]) == 1 and math.isinf(self.home[1][0]):
            return is_on, changes
        edges = np.concatenate([[0.0], changes]) if is_on else changes
        edges = np.append(edges, math.inf) if len(edges) % 2 else edges
        starts, ends = intersect(edges[0::2].copy(), edges[1::2].copy(), *self.home)
        times = np.column_stack([starts, ends]).ravel()
        times = times[times < math.inf]
        return (True, times[1:]) if len(times) and times[0] <= 0.0 else (False, times)

    def work(self, counts: Ints, sums: Floats, delays: Ints) -> None:
        """Lets the subscriber's queue work on the events, and counts what it does."""
        window, mechanism, size = self.settings.window, self.outlet.mechanism, len(self.published)
        name, at = self.subscriber.name, f"run {self.run}"
        coins = self.streams.generator(f"{at}/join", name).random(size)
        services = draw_times(self.subscriber.service, self.streams.generator(f"{at}/service", name), size)
        expiries, exponential = np.empty(0), mechanism.lifetime_distribution == "exponential"
        if mechanism.expires:
            lives = np.ones(size)
            if exponential:
                lives = self.streams.generator(f"{at}/lifetime", name).standard_exponential(size)
            expiries = self.published + lives * mechanism.lifetime_s
        kept = get_through(self.published, self.arrivals, expiries, window, counts)
        published, arrivals, deadlines = self.published[kept], self.arrivals[kept], self.deadlines[kept]
        outcome, met_on = np.zeros(len(published), np.int8), np.zeros(len(published), np.bool_)
        finish = np.empty(len(published))
        if not len(published):
            return
        if self.subscriber.connectivity is None and self.subscriber.service is None:
            outcome[:], met_on[:], finish[:] = DELIVERED, True, arrivals
        else:
            is_on, switches = self._switches()
            # events that waited out a failure are older than those that came before them: no order of expiry
            rules = (mechanism.buffer_size or 0, mechanism.protect_connected, False)
            row_off, row_on = tables_of(mechanism)
            expiring = expiries[kept] if mechanism.expires else expiries
            output_queue(
                arrivals, coins[kept], expiring, services[kept], is_on, switches, rules, row_off, row_on, window,
                outcome, met_on, finish
            )  # fmt: skip
        responses = np.zeros(BINS, np.int64)
        count_outcomes(published, deadlines, arrivals, outcome, met_on, finish, window, counts, sums, responses, delays)
