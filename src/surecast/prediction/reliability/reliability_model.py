"""The parts of a system that all schemes need: its flows, the routes with all their prefixes, the chains of its
components."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from surecast.errors import AssumptionError
from surecast.kernels import njit
from surecast.prediction.passages import FlowTimes, flow_times
from surecast.prediction.reliability.component_chains import Components, components_of
from surecast.prediction.reliability.hops import SpectralHop, hop_chain, spectral_hop
from surecast.prediction.reliability.inversion import HopTable, RouteTable
from surecast.prediction.reliability.static_routes import RouteParts, route_up
from surecast.scenario.flows import Flows, flows_of
from surecast.scenario.system import System

__all__ = ["DeliveryModel", "RoutePaths", "Spread", "delivery_model"]

Array = NDArray[np.float64]
Index = NDArray[np.intp]


@dataclass(frozen=True)
class RoutePaths:
    """All beginnings of all routes, each once, as a forest: `parent` is the path one hop shorter, -1 at a start.

    `of_route` has the path of each route of the flows; `parts` and `hop` lay the paths out flat.
    """

    parent: Index
    first: Index
    last: Index
    of_route: Index
    parts: RouteParts
    hop: Index
    hops: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Spread:
    """The spread of each publisher's events on each topic: the paths they reach, of all their routes together, each
    once.

    One entry per path and *stream* (publisher and topic): `stream`, `path`, and the entry of the `parent` path, -1
    where that is the start itself. `of_flow` is the entry in which each flow ends, -1 if it ends where it starts.
    """

    stream: Index
    path: Index
    parent: Index
    of_flow: Index
    rate_per_s: Array
    deadline_s: Array
    home: Index


@dataclass(frozen=True)
class DeliveryModel:
    """A system, prepared. `interval_s` is the time between two attempts to pass on a stored event, 0: at once."""

    system: System
    flows: Flows
    components: Components
    paths: RoutePaths
    spread: Spread
    interval_s: float
    is_ideal: bool
    times: FlowTimes | None = None
    """The time on brokers and links, None where it is left to others."""

    @cached_property
    def path_up(self) -> Array:
        """P[everything on the path is up], of each path."""
        return route_up(self.paths.parts, self.components.broker_up, self.components.link_up)

    @property
    def refreshes_at_once(self) -> bool:
        """Returns whether a broker that is back has its routing table."""
        return self.is_ideal or self.refreshes_by_link

    @property
    def refreshes_by_link(self) -> bool:
        """Returns whether brokers compare what they want at every link-up, under any scheme. Ideal refreshes are the
        paper's."""
        return not self.is_ideal and self.system.delivery.fault_tolerance.refresh == "link"

    @property
    def detection_s(self) -> float:
        """Time until a broker notices that a neighbour is gone."""
        return float(self.system.delivery.fault_tolerance.detection)

    @cached_property
    def flow_path(self) -> Index:
        return self.paths.of_route[self.flows.route]

    @cached_property
    def client_up(self) -> float:
        """P[the link between a client and its home broker is up]."""
        failures = self.system.client_failures
        return 1.0 if failures is None else failures.availability

    @cached_property
    def refresh_s(self) -> tuple[float, float]:
        """Time between two refreshes, and age at which an entry times out."""
        settings = self.system.delivery.fault_tolerance
        interval = float(settings.refresh_interval)
        timeout = settings.subscription_timeout
        return interval, 3.0 * interval if timeout is None else float(timeout)

    @cached_property
    def home_up(self) -> Array:
        """P[the publisher's home broker is up], of each flow."""
        return np.asarray(self.components.broker_up[self.paths.first[self.flow_path]], dtype=np.float64)

    @cached_property
    def flow_deadline_s(self) -> Array:
        deadlines = np.array([p.deadline_s for p in self.system.publishers], dtype=np.float64)
        return np.asarray(deadlines[self.flows.publisher], dtype=np.float64)

    @cached_property
    def _latency_s(self) -> Array:
        """Latency of all links of each path."""
        if self.times is None:
            return np.zeros(len(self.paths.parent))
        parts, count = self.paths.parts, len(self.paths.parent)
        links_s = np.append(self.times.links_s, 0.0)  # where there are no links, none is looked up
        over = np.repeat(np.arange(count), np.diff(parts.start))
        return np.asarray(np.bincount(over, weights=links_s[parts.link], minlength=count), dtype=np.float64)

    @cached_property
    def flow_patience_s(self) -> Array:
        """Returns how long events of each flow may wait for repairs: until the deadline, less the latency of links."""
        return np.asarray(np.maximum(self.flow_deadline_s - self._latency_s[self.flow_path], 0.0), dtype=np.float64)

    @cached_property
    def spread_patience_s(self) -> Array:
        """The same for each entry of the spread."""
        spread = self.spread
        left = spread.deadline_s[spread.stream] - self._latency_s[spread.path]
        return np.asarray(np.maximum(left, 0.0), dtype=np.float64)

    @cached_property
    def in_time(self) -> Array:
        """P[what an event of each flow takes on brokers and links is within its deadline]."""
        if self.times is None:
            return np.ones(len(self.flows.route))
        return self.times.in_time(self.flows.route, self.flow_deadline_s)

    @cached_property
    def table(self) -> RouteTable:
        """The delay distributions of the paths."""
        brokers, links = self.components.brokers, self.components.links
        hops: list[SpectralHop] = []
        number_of: dict[tuple[bytes, ...], int] = {}
        index = np.empty(len(self.paths.hops), dtype=np.intp)
        for i, (a, link, b) in enumerate(self.paths.hops):
            parts = (brokers[a], links[link], brokers[b])
            key = tuple(b"" if p is None else p.generator.tobytes() + bytes([p.up]) for p in parts)
            if key not in number_of:
                number_of[key] = len(hops)
                hops.append(spectral_hop(hop_chain(*parts, self.interval_s), self.interval_s))
            index[i] = number_of[key]
        return RouteTable(HopTable.of(hops), self.paths.parts.start, index[self.paths.hop])

    @cached_property
    def bare(self) -> DeliveryModel:
        """The same with links that never fail."""
        overlay = self.system.overlay
        links = tuple(replace(link, failures=None) for link in overlay.links)
        system = replace(self.system, overlay=replace(overlay, links=links))
        return replace(self, system=system, components=components_of(system))

    @cached_property
    def bypass_routes(self) -> tuple[RouteTable, Index]:
        """A table with what bypass needs, and for each path the numbers in it of: the path's delay, its excess, and
        both with links that never fail. -1 means no excess: the path is not the whole of a route, or its last broker
        never fails, or does so after times that are not exponential."""
        parts, paths = self.components, self.paths
        forgets = np.array([b is not None and b.is_exponential for b in parts.brokers], dtype=np.bool_)
        ends = np.unique(paths.of_route)
        chosen = ends[forgets[paths.last[ends]] & (paths.parent[ends] >= 0)]
        shifts = (parts.broker_failure + parts.broker_repair)[paths.last[chosen]]
        count = len(paths.parent)
        numbers = np.full((4, count), -1, dtype=np.intp)
        numbers[0] = np.arange(count)
        numbers[1, chosen] = count + np.arange(len(chosen))
        numbers[2:] = np.where(numbers[:2] >= 0, numbers[:2] + count + len(chosen), -1)
        table = self.table.with_excess(chosen, shifts)
        return table.joined(self.bare.table.with_excess(chosen, shifts)), numbers

    def full_periods(self, times_s: Array) -> Array:
        """Returns times rounded down to whole retransmission intervals: nothing moves in between."""
        if self.interval_s <= 0:
            return times_s
        finite = np.isfinite(times_s)
        periods = np.floor(np.where(finite, times_s, 0.0) / self.interval_s * (1.0 + 1e-12))
        return np.where(finite, periods * self.interval_s, np.inf)

    def delays(self, paths: Index, deadlines_s: Array) -> tuple[Array, Array]:
        """Returns P[delay > deadline] of paths, and the mean of min(delay, deadline)."""
        return self._delays(self.table, paths, deadlines_s)

    def bypass_delays(self, routes: Index, deadlines_s: Array) -> tuple[Array, Array]:
        """As `delays`, for routes of the table for bypass; 0 where there is none."""
        unique, number = np.unique(deadlines_s, return_inverse=True)
        keys, back = np.unique(np.maximum(routes, 0) * len(unique) + number, return_inverse=True)
        tails, means = self._delays(self.bypass_routes[0], keys // len(unique), unique[keys % len(unique)])
        return np.where(routes >= 0, tails[back], 0.0), np.where(routes >= 0, means[back], 0.0)

    def _delays(self, table: RouteTable, routes: Index, deadlines_s: Array) -> tuple[Array, Array]:
        times = self.full_periods(deadlines_s)
        tails, means = table.tails(routes, times)
        if self.interval_s > 0:
            # the mean is a sum over attempts, not an integral: half an interval more for each event that moved late
            late = (table.totals - table.atoms)[routes] - tails
            means = means + np.where(np.isfinite(times), 0.5 * self.interval_s * late, 0.0)
        return tails, means


def delivery_model(
    system: System, *, ideal: bool = False, timed: bool = False, queues: bool = True, load: System | None = None
) -> DeliveryModel:
    """Prepares a system; refuses one in which no events flow.

    With `timed` links take time and, with `queues`, brokers too, filled with the events of `load` where that is another
    system.
    """
    if not system.publishers or not system.subscribers:
        missing = "publishers" if not system.publishers else "subscribers"
        raise AssumptionError(
            f"{system.name}: it has no {missing} of topics, so there is no delivery to predict; add workload.{missing}"
        )
    if system.delivery.fault_tolerance.schemes:
        raise AssumptionError(
            f"{system.name}: delivery.fault_tolerance.schemes gives topics schemes of their own, which only the "
            "composed model has; leave out --alone and --scheme, or the field"
        )
    flows = flows_of(system)
    if not len(flows.route):
        raise AssumptionError(
            f"{system.name}: no publisher publishes on a topic that somebody subscribes to; "
            "check the topics in workload.publishers and workload.subscribers"
        )
    paths = _paths(flows)
    interval = 0.0 if ideal else float(system.delivery.fault_tolerance.retransmission_interval)
    times = flow_times(system, flows, load, queues=queues) if timed else None
    spread = _spread(system, flows, paths)
    return DeliveryModel(system, flows, components_of(system), paths, spread, interval, ideal, times)


def _paths(flows: Flows) -> RoutePaths:
    index: dict[tuple[int, int], int] = {}
    hop_index: dict[tuple[int, int, int], int] = {}
    parent: list[int] = []
    first: list[int] = []
    last: list[int] = []
    step: list[int] = []
    ends: list[int] = []
    links: list[int] = []
    for route in flows.routes:
        start = route.brokers[0]
        path = index.setdefault((-1 - start, -1), len(parent))
        if path == len(parent):
            parent.append(-1)
            first.append(start)
            last.append(start)
            step.append(-1)
            links.append(-1)
        for link, a, b in zip(route.links, route.brokers, route.brokers[1:], strict=False):
            before, path = path, index.setdefault((path, link), len(parent))
            if path == len(parent):
                parent.append(before)
                first.append(start)
                last.append(b)
                step.append(hop_index.setdefault((a, link, b), len(hop_index)))
                links.append(link)
        ends.append(path)
    up, begin, end, hop, via = (np.array(column, dtype=np.intp) for column in (parent, first, last, step, links))
    starts, flat_broker, flat_link, flat_hop = _flatten(up, end, via, hop)
    parts = RouteParts(starts, flat_broker, flat_link)
    return RoutePaths(up, begin, end, np.array(ends, dtype=np.intp), parts, flat_hop, tuple(hop_index))


def _spread(system: System, flows: Flows, paths: RoutePaths) -> Spread:
    keys, stream = np.unique(flows.publisher * len(system.topics) + flows.topic, return_inverse=True)
    publishers = [system.publishers[int(key) // len(system.topics)] for key in keys]
    entries = _entries_of(stream.astype(np.intp), paths.of_route[flows.route], paths.parent)
    return Spread(
        *entries,
        rate_per_s=np.array([p.rate_per_s / len(p.topics) for p in publishers], dtype=np.float64),
        deadline_s=np.array([p.deadline_s for p in publishers], dtype=np.float64),
        home=np.array([p.home for p in publishers], dtype=np.intp),
    )


@njit(cache=True)
def _flatten(parent: Index, last: Index, link: Index, hop: Index) -> tuple[Index, Index, Index, Index]:
    n = len(parent)
    depth = np.zeros(n, dtype=np.intp)
    starts = np.zeros(n + 1, dtype=np.intp)
    for i in range(n):
        if parent[i] >= 0:
            depth[i] = depth[parent[i]] + 1
        starts[i + 1] = starts[i] + depth[i]
    brokers = np.empty(starts[n] + n, dtype=np.intp)
    links = np.empty(starts[n], dtype=np.intp)
    hops = np.empty(starts[n], dtype=np.intp)
    for i in range(n):
        path = i
        for position in range(depth[i] - 1, -1, -1):
            brokers[starts[i] + i + position + 1] = last[path]
            links[starts[i] + position] = link[path]
            hops[starts[i] + position] = hop[path]
            path = parent[path]
        brokers[starts[i] + i] = last[path]
    return starts, brokers, links, hops


@njit(cache=True)
def _entries_of(stream: Index, flow_path: Index, parent: Index) -> tuple[Index, Index, Index, Index]:
    """Returns the entries of a `Spread`: stream by stream, each path of its flows and all paths before it, once."""
    order = np.argsort(stream, kind="mergesort")
    entry_of = np.full(len(parent), -1, dtype=np.intp)
    seen_by = np.full(len(parent), -1, dtype=np.intp)
    of_flow = np.empty(len(stream), dtype=np.intp)
    room = 1024
    out_stream, out_path = np.empty(room, dtype=np.intp), np.empty(room, dtype=np.intp)
    out_parent = np.empty(room, dtype=np.intp)
    count = 0
    trail = np.empty(len(parent), dtype=np.intp)
    for flow in order:
        path, steps = flow_path[flow], 0
        while parent[path] >= 0 and seen_by[path] != stream[flow]:
            trail[steps] = path
            steps += 1
            path = parent[path]
        above = entry_of[path] if parent[path] >= 0 else -1
        while count + steps > room:
            room *= 2
            grown = np.empty((3, room), dtype=np.intp)
            grown[0, :count], grown[1, :count], grown[2, :count] = (
                out_stream[:count],
                out_path[:count],
                out_parent[:count],
            )
            out_stream, out_path, out_parent = grown[0], grown[1], grown[2]
        for i in range(steps - 1, -1, -1):
            seen_by[trail[i]] = stream[flow]
            entry_of[trail[i]] = count
            out_stream[count], out_path[count], out_parent[count] = stream[flow], trail[i], above
            above = count
            count += 1
        of_flow[flow] = above
    return out_stream[:count], out_path[:count], out_parent[:count], of_flow
