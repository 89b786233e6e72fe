"""Compiled travels of events through brokers that queue, order and fail, in the order of time.

Lists of intervals are joined (`walk.intervals.join`): list i stands at `offsets[i]` to `offsets[i + 1]`. Nothing here
draws: service times are arguments, taken by each broker in the order in which events come to it.
"""
# The kernels take many arrays and are typed by Numba.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

import math
from heapq import heappop, heappush

import numpy as np

from surecast.kernels import njit

__all__ = ["EXPIRED", "HOME_DOWN", "NO_ENTRY", "PATH_DOWN", "REACHED", "UNDER_WAY", "travel"]

UNDER_WAY, REACHED, HOME_DOWN, PATH_DOWN, NO_ENTRY, EXPIRED = range(6)
"""What becomes of an event on its way to a home broker."""

_COMES, _VOTED, _CHOSEN, _FOLLOWED = range(4)
"""What happens at a broker: an event comes; followers vote on it; it is chosen and carried out; followers do so too."""


@njit(cache=True)
def _position(ends, low, high, time):
    """The first interval from `low` on, below `high`, that ends after `time`."""
    while low < high:
        middle = (low + high) // 2
        if ends[middle] > time:
            high = middle
        else:
            low = middle + 1
    return low


@njit(cache=True)
def _is_up(lists, which, since, until):
    """Returns whether a list has all of the time from `since` to `until` in one interval."""
    starts, ends, offsets = lists
    i = _position(ends, offsets[which], offsets[which + 1], since)
    return i < offsets[which + 1] and starts[i] <= since and until < ends[i]


@njit(cache=True)
def _done(lists, which, time, work):
    """Returns when work that may begin at a time is done by a broker that rests while down; inf: not in this run."""
    starts, ends, offsets = lists
    for i in range(_position(ends, offsets[which], offsets[which + 1], time), offsets[which + 1]):
        begin = max(time, starts[i])
        if begin + work <= ends[i]:
            return begin + work
        work -= ends[i] - begin
    return math.inf


@njit(cache=True)
def _attempt(lists, which, time, interval, limit):
    """The first attempt, every `interval` from `time` on, that finds all up; inf where none is in time."""
    starts, ends, offsets = lists
    for i in range(_position(ends, offsets[which], offsets[which + 1], time), offsets[which + 1]):
        when = time
        if starts[i] > time:
            when = time + math.ceil((starts[i] - time) / interval) * interval
        if when > limit:
            return math.inf
        if when < ends[i]:
            return when
    return math.inf


@njit(cache=True)
def _synced(disk, broker, time, sync):
    """Returns when a disk that syncs all that waits in one go has synced what comes to it at a time."""
    if sync > 0.0:
        if time > disk[broker, 1]:
            disk[broker, 0], disk[broker, 1] = time, time + sync
        elif time > disk[broker, 0]:
            disk[broker, 0] = disk[broker, 1]
            disk[broker, 1] += sync
        return disk[broker, 1]
    return time


@njit(cache=True)
def travel(  # noqa: C901 - one loop over one state
    events,
    tree,
    traces,
    hops,
    entries,
    entry_of,
    route_of,
    groups,
    services,
    service_starts,
    rules,
    window,
    fates,
    arrivals,
    sums,
):
    """Follows all events from their publication to the home brokers of their subscribers.

    `events` are times, root nodes, masks of targets, limits (when each expires) and where its targets stand in `fates`
    and `arrivals`. `tree` has, by node, its broker, hop, latency, masks of the targets here and from here on, and the
    children. `entry_of` and `route_of` say which of `entries` has the times at which a node holds the entry for a
    target, and which those at which the whole route to it is up; -1: always. `groups` has, by broker, whether it is a
    group, whether it has followers, the times to propose, to vote and to carry out, of a message and of a sync. `rules`
    are whether brokers store events, and the time between two attempts. `sums` gets the number of events that come to
    each broker in the window and the time they stay.
    """
    times, roots, masks, limits, bases = events
    node_broker, node_hop, latency, here, below, child_starts, children = tree
    stores, interval = rules
    begin, stop, horizon = window
    brokers = len(groups)
    free, follower_free, used = np.zeros(brokers), np.zeros(brokers), service_starts.copy()
    disk = np.full((brokers, 2), -1.0)
    room = len(services)
    visit_event, visit_node = np.empty(room, np.int64), np.empty(room, np.int64)
    visit_mask, visit_work, visit_came = np.empty(room, np.int64), np.empty(room), np.empty(room)
    visits = 0
    queue = [(math.inf, _COMES, -1)]
    following = 0
    while True:
        published = times[following] if following < len(times) else math.inf
        if published <= queue[0][0]:
            if published == math.inf:
                break
            event = following
            following += 1
            node, now, kind = roots[event], published, _COMES
            if not _is_up(traces, node_broker[node], now, now):
                _settle(fates, bases[event], masks[event], HOME_DOWN)
                continue
            visit = visits
            visits += 1
            visit_event[visit], visit_node[visit], visit_mask[visit] = event, node, masks[event]
        else:
            now, kind, visit = heappop(queue)
            event, node = visit_event[visit], visit_node[visit]
        broker = node_broker[node]
        is_group, has_followers = groups[broker, 0] > 0.0, groups[broker, 1] > 0.0
        delay, sync = groups[broker, 5], groups[broker, 6]
        if now > horizon:
            continue
        if kind == _COMES:
            visit_came[visit], visit_work[visit] = now, services[used[broker]]
            used[broker] += 1
            if is_group:
                free[broker] = _done(traces, broker, max(now, free[broker]), groups[broker, 2])
                if has_followers:
                    heappush(queue, (free[broker] + delay, _VOTED, visit))
                else:
                    heappush(queue, (_synced(disk, broker, free[broker], sync), _CHOSEN, visit))
                continue
        elif kind == _VOTED:
            follower_free[broker] = max(now, follower_free[broker]) + groups[broker, 3]
            heappush(queue, (_synced(disk, broker, follower_free[broker], sync) + delay, _CHOSEN, visit))
            continue
        elif kind == _FOLLOWED:
            follower_free[broker] = max(now, follower_free[broker]) + visit_work[visit]
            continue
        left = _done(traces, broker, max(now, free[broker]), visit_work[visit] + groups[broker, 4])
        free[broker] = left
        if has_followers and visit_work[visit] > 0.0:
            heappush(queue, (left + delay, _FOLLOWED, visit))
        if left > horizon:
            continue
        mask, base, came = visit_mask[visit], bases[event], visit_came[visit]
        if not stores and not _is_up(traces, broker, came, left):
            _settle(fates, base, mask, PATH_DOWN)
            continue
        if begin <= came < stop:
            sums[broker, 0] += 1.0
            sums[broker, 1] += left - came
        for bit in range(entry_of.shape[1]):
            entry, route = entry_of[node, bit], route_of[node, bit]
            if mask >> bit & 1 and entry >= 0 and not _is_up(entries, entry, left, left):
                mask ^= 1 << bit
                # where part of the route is down, that is the reason
                fates[base + bit] = NO_ENTRY if route < 0 or _is_up(entries, route, left, left) else PATH_DOWN
            if mask & here[node] & 1 << bit:
                fates[base + bit], arrivals[base + bit] = REACHED, left
        for i in range(child_starts[node], child_starts[node + 1]):
            child = children[i]
            onward = mask & below[child]
            if onward == 0:
                continue
            when = left
            if stores:
                when = _attempt(hops, node_hop[child], left, interval, min(limits[event], horizon))
                if when == math.inf:
                    _settle(fates, base, onward, EXPIRED if limits[event] <= horizon else UNDER_WAY)
                    continue
            elif not _is_up(hops, node_hop[child], left, left):
                _settle(fates, base, onward, PATH_DOWN)
                continue
            visit_event[visits], visit_node[visits], visit_mask[visits] = event, child, onward
            heappush(queue, (when + latency[child], _COMES, visits))
            visits += 1


@njit(cache=True)
def _settle(fates, base, mask, fate):
    """Counts one outcome for all targets of a mask."""
    bit = 0
    while mask >> bit:
        if mask >> bit & 1:
            fates[base + bit] = fate
        bit += 1
