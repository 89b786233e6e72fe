"""One run: draws the traces, lets all schemes work on them, and adds up what becomes of the events."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from surecast.errors import OverloadError
from surecast.scenario import Streams
from surecast.simulation.reliability.compiled.compiled_plan import CompiledPlan, EventSource
from surecast.simulation.reliability.compiled.floods import count_floods
from surecast.simulation.reliability.compiled.kernels import (
    DELIVERED,
    LATE,
    LOST,
    QUEUED,
    SHUT_OUT,
    UNNOTICED,
    component_labels,
    walk_events,
)
from surecast.simulation.reliability.compiled.outcomes import (
    KINDS,
    OUTCOMES,
    CompiledRunResult,
    ReliabilitySettings,
    SchemeAccounts,
)
from surecast.simulation.reliability.compiled.static import (
    Clock,
    Held,
    RoutingEntries,
    both,
    static_routes,
    without_refresh,
)
from surecast.simulation.reliability.compiled.traces import draw_trace
from surecast.simulation.reliability.compiled.up_intervals import Intervals, first_tick, join, total_ticks

__all__ = ["simulate_run"]

_LABELS_MAX = 500_000_000
"""At most so many states of brokers and links (their number times state changes) are kept for one run."""

_SUBSCRIPTION, _LINK_STATE = KINDS.index("subscription"), KINDS.index("link-state")


def simulate_run(
    plan: CompiledPlan, settings: ReliabilitySettings, given: Mapping[str, Intervals], run: int
) -> CompiledRunResult:
    """Run number `run`: it depends on the seed and its number only, not on which runs were done before."""
    streams = Streams(settings.seed)
    traces = [
        given[c.name]
        if c.kind in ("broker", "link") and c.name in given
        else draw_trace(c.failures, streams, f"run {run}/{c.kind}", c.name, settings.horizon_s)
        for c in plan.components
    ]
    clocks = [_clock(plan, settings, source, run) for source in plan.sources]
    accounts = {scheme: SchemeAccounts.empty(plan.interests) for scheme in settings.schemes}
    _static_schemes(plan, settings, run, traces, clocks, accounts)
    _walking_schemes(plan, settings, traces, clocks, accounts)
    return CompiledRunResult(_published(plan, settings, run), accounts)


def _phase_and_stop(
    plan: CompiledPlan, settings: ReliabilitySettings, publisher: int, run: int
) -> tuple[float, float, int, int]:
    """Phase and period of a publisher, and its first and last publication that count (the latter excluded)."""
    who = plan.system.publishers[publisher]
    period = 1.0 / who.rate_per_s if who.rate_per_s > 0 else math.inf
    if not period < math.inf:
        return 0.0, 1.0, 0, 0
    phase = period * float(Streams(settings.seed).generator(f"run {run}/phase", who.name).random())
    return phase, period, first_tick(phase, period, settings.warm_up_s), first_tick(phase, period, settings.end_s)


def _clock(plan: CompiledPlan, settings: ReliabilitySettings, source: EventSource, run: int) -> Clock:
    """The publications of a source: a publisher's events go to its topics in turn."""
    phase, period, first, stop = _phase_and_stop(plan, settings, source.publisher, run)
    return phase, period, first + (source.offset - first) % source.stride, source.stride, stop


def _published(plan: CompiledPlan, settings: ReliabilitySettings, run: int) -> int:
    ends = (_phase_and_stop(plan, settings, p, run)[2:] for p in range(len(plan.system.publishers)))
    return sum(stop - first for first, stop in ends)


def _static_schemes(
    plan: CompiledPlan,
    settings: ReliabilitySettings,
    run: int,
    traces: list[Intervals],
    clocks: list[Clock],
    accounts: dict[str, SchemeAccounts],
) -> None:
    """Counts the schemes that need no walking, and the refreshes of all schemes that have them."""
    entries = None
    if settings.refresh_interval_s > 0 and tuple(accounts) != ("none",):
        count_only = "periodic-subscription" not in accounts
        entries = RoutingEntries(plan, traces, settings, run, count_only=count_only)
        for scheme in accounts:
            accounts[scheme].messages[_SUBSCRIPTION] += 0 if scheme == "none" else entries.messages
    for scheme in accounts:
        if scheme in ("none", "periodic-subscription"):
            held: Held | None = None if entries is None else entries.of
            if scheme == "none" and not settings.by_link:
                held = without_refresh(traces, plan.brokers)
            for source, clock in zip(plan.sources, clocks, strict=True):
                static_routes(source, traces, clock, total_ticks(*clock[2:]), accounts[scheme], held)


def _walking_schemes(
    plan: CompiledPlan,
    settings: ReliabilitySettings,
    traces: list[Intervals],
    clocks: list[Clock],
    accounts: dict[str, SchemeAccounts],
) -> None:
    walking = [scheme for scheme in accounts if scheme in ("buffering", "bypass", "bypass-buffering")]
    if not walking:
        return
    hops = []
    for first, *others in plan.hops:
        hop = traces[first]
        for other in others:
            hop = both(hop, traces[other])
        hops.append(hop)
    joined, joined_hops = join(traces), join(hops)
    with_bypass = walking != ["buffering"]
    graph = _graph(plan, settings, joined, with_labels=with_bypass)
    floods = count_floods(plan, joined, settings.warm_up_s, settings.end_s) if with_bypass else 0
    for scheme in walking:
        bypass, buffer = scheme != "buffering", scheme != "bypass"
        if bypass:
            accounts[scheme].messages[_LINK_STATE] += floods
        for source, clock in zip(plan.sources, clocks, strict=True):
            times = (source.lifetime_s, settings.retransmission_interval_s, settings.horizon_s, settings.detection_s)
            _walk_source(source, clock, times, bypass, buffer, joined, joined_hops, graph, accounts[scheme])


def _graph(
    plan: CompiledPlan, settings: ReliabilitySettings, joined: tuple[Any, ...], *, with_labels: bool
) -> tuple[Any, ...]:
    """Returns the tables of bypassing: the ends of links, and labels of the graph that is up, by time."""
    ends_a, ends_b = plan.link_ends()
    brokers = plan.brokers
    last = int(joined[2][brokers + len(ends_a)])
    changes = np.unique(np.concatenate([[0.0], joined[0][:last], joined[1][:last]]))
    changes = changes[changes <= settings.horizon_s]
    if not with_labels:
        labels, usable = np.zeros((0, brokers), dtype=np.int32), np.zeros((0, len(ends_a)), dtype=np.bool_)
        return ends_a, ends_b, brokers, changes, labels, usable
    if len(changes) * (brokers + len(ends_a)) > _LABELS_MAX:
        raise OverloadError(
            f"bypass: {len(changes)} state changes of {brokers} brokers and their links in one run are too many; "
            "simulate a shorter duration in more runs"
        )
    labels, usable = component_labels(joined[0], joined[1], joined[2], ends_a, ends_b, brokers, changes)
    return ends_a, ends_b, brokers, changes, labels, usable


def _walk_source(
    source: EventSource,
    clock: Clock,
    times: tuple[float, float, float, float],
    bypass: bool,
    buffer: bool,
    joined: tuple[Any, ...],
    joined_hops: tuple[Any, ...],
    graph: tuple[Any, ...],
    accounts: SchemeAccounts,
) -> None:
    """Lets the compiled kernel walk one source's events, and accounts what it returns."""
    tree = (_ints(source.broker), _ints(source.parent), _ints(source.hop), source.access)
    offsets = np.zeros(len(source.targets) + 1, dtype=np.int64)
    np.cumsum([len(target.path) for target in source.targets], out=offsets[1:])
    targets = (
        _ints([target.node for target in source.targets]),
        _ints([target.home for target in source.targets]),
        _ints([target.access for target in source.targets]),
        np.array([target.latency_s for target in source.targets], dtype=np.float64),
        _ints([node for target in source.targets for node in target.path]),
        offsets,
    )
    size = len(source.targets)
    booked, delays, counted = np.zeros((size, 6), np.int64), np.zeros(size), np.zeros(5, np.int64)
    home_down, client_down = walk_events(
        clock, times, bypass, buffer, joined, joined_hops, graph, tree, targets, counted, booked, delays
    )
    columns: dict[str, Any] = {
        "on time": booked[:, DELIVERED],
        "home broker down": home_down,
        "client link down": client_down + booked[:, SHUT_OUT],
        "expired" if buffer else "partitioned": booked[:, LOST],
        "queued": booked[:, QUEUED],
        "late": booked[:, LATE],
        "path down": booked[:, UNNOTICED],
    }
    interest = _ints([target.interest for target in source.targets])
    for outcome, values in columns.items():
        np.add.at(accounts.outcomes[:, OUTCOMES.index(outcome)], interest, values)
    np.add.at(accounts.delay_s, interest, delays)
    accounts.messages[: len(counted)] += counted


def _ints(values: list[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, dtype=np.int64)
