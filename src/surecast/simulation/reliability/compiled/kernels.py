"""Compiled walks of events through the traces of all components (buffering, bypass, bypass with buffering).

Lists of intervals are joined (`intervals.join`): list i stands at `offsets[i]` to `offsets[i + 1]`.
"""
# The kernels take many arrays and are typed by Numba.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

import math

import numpy as np

from surecast.kernels import njit

__all__ = ["DELIVERED", "LATE", "LOST", "QUEUED", "SHUT_OUT", "UNNOTICED", "component_labels", "walk_events"]

NOTIFICATION, ACKNOWLEDGEMENT, RETRANSMISSION, DETOUR, DUPLICATE = range(5)
"""The first of `outcomes.KINDS`."""

DELIVERED, LOST, SHUT_OUT, QUEUED, LATE, UNNOTICED = range(6)
"""The outcomes of an event: on time; expired or partitioned; access link down at delivery; waiting at the end; there,
but later than the deadline by the latency of its links; lost in a failure that nobody had noticed."""


@njit(cache=True)
def _first_tick(phase, period, time):
    """As `intervals.first_tick`; kept here because cached kernels that call each other live in one module."""
    k = max(0, math.ceil((time - phase) / period))
    while k > 0 and phase + (k - 1) * period >= time:
        k -= 1
    while phase + k * period < time:
        k += 1
    return k


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
def _is_up(starts, ends, offsets, which, time):
    i = _position(ends, offsets[which], offsets[which + 1], time)
    return i < offsets[which + 1] and starts[i] <= time


@njit(cache=True)
def _next_up(starts, ends, offsets, which, time, interval, limit):
    """Returns when a message held since `time` gets through: at the first attempt with all up; inf: none in time.

    With `interval` 0 an attempt is made at every moment, else every `interval` seconds.
    """
    stop = offsets[which + 1]
    i = _position(ends, offsets[which], stop, time)
    while i < stop and starts[i] <= limit:
        when = max(time, starts[i])
        if interval > 0.0 and starts[i] > time:
            when = time + _first_tick(time, interval, starts[i]) * interval
        if when > limit:
            return math.inf
        if when < ends[i]:
            return when
        i += 1
    return math.inf


@njit(cache=True)
def _attempts(starts, ends, offsets, sender, time, interval, last):
    """Returns how many attempts after the one at `time` the sender makes up to `last` (inclusive), being up."""
    if interval <= 0.0:
        return 0
    total = 0
    for i in range(_position(ends, offsets[sender], offsets[sender + 1], time), offsets[sender + 1]):
        if starts[i] > last:
            break
        low = max(1, _first_tick(time, interval, starts[i]))
        if ends[i] <= last:
            high = _first_tick(time, interval, ends[i])
        else:
            high = _first_tick(time, interval, last)
            if time + high * interval == last:
                high += 1
        total += max(0, high - low)
    return total


@njit(cache=True)
def _root(parents, i):
    while parents[i] != i:
        parents[i] = parents[parents[i]]
        i = parents[i]
    return i


@njit(cache=True)
def component_labels(starts, ends, offsets, ends_a, ends_b, brokers, changes):
    """Connected components of the up graph from each change to the next: one label per broker, -1 where it is down.

    Returns the labels and, for each link, whether it is usable: up, between two brokers that are up.
    """
    links = len(ends_a)
    labels = np.empty((len(changes), brokers), dtype=np.int32)
    usable = np.zeros((len(changes), links), dtype=np.bool_)
    at = offsets[:-1].copy()
    parents = np.empty(brokers, dtype=np.int64)
    up = np.zeros(brokers + links, dtype=np.bool_)
    for s in range(len(changes)):
        time = changes[s]
        for c in range(brokers + links):
            while at[c] < offsets[c + 1] and ends[at[c]] <= time:
                at[c] += 1
            up[c] = at[c] < offsets[c + 1] and starts[at[c]] <= time
        for b in range(brokers):
            parents[b] = b
        for i in range(links):
            a, b = ends_a[i], ends_b[i]
            if up[brokers + i] and up[a] and up[b]:
                usable[s, i] = True
                parents[_root(parents, a)] = _root(parents, b)
        for b in range(brokers):
            labels[s, b] = _root(parents, b) if up[b] else -1
    return labels, usable


@njit(cache=True)
def _distances(usable, ends_a, ends_b, origin, distance):
    """Fewest hops over usable links from `origin` to every broker, -1 where there is no way."""
    distance[:] = -1
    distance[origin] = 0
    step, grown = 0, True
    while grown:
        grown = False
        for i in range(len(ends_a)):
            if usable[i]:
                for a, b in ((ends_a[i], ends_b[i]), (ends_b[i], ends_a[i])):
                    if distance[a] == step and distance[b] == -1:
                        distance[b] = step + 1
                        grown = True
        step += 1


@njit(cache=True)
def _arrivals(starts, ends, offsets, parent, hop, interval, limit, arrival):
    """Returns when the event at node 0 gets to the other nodes, hop by hop; inf where it does not by the limit."""
    for n in range(1, len(parent)):
        held = arrival[parent[n]]
        arrival[n] = math.inf
        if held <= limit:
            arrival[n] = _next_up(starts, ends, offsets, hop[n], held, interval, limit)


@njit(cache=True)
def _shortcut(changes, labels, node_broker, arrival, paths, low, high, home):
    """The first node of a path from which the home is reachable when the event gets there, and the change before.

    -1 where the event is not there earlier than along the path, which is `paths[low:high]`.
    """
    for i in range(low, high - 1):
        n = paths[i]
        if arrival[n] >= arrival[paths[high - 1]]:
            break
        s = np.searchsorted(changes, arrival[n], side="right") - 1
        if labels[s, node_broker[n]] == labels[s, home]:
            return n, s
    return -1, -1


@njit(cache=True)
def _way_around(hops, hop, changes, labels, node_broker, arrival, paths, low, high, home, detection, buffer):
    """As `_shortcut`, where a failure takes so long to be noticed; and when the event leaves the path.

    The last is True where the event meets a failure that nobody has noticed, with a way around it. It is lost then,
    unless it is stored.
    """
    if detection <= 0.0:
        origin, s = _shortcut(changes, labels, node_broker, arrival, paths, low, high, home)
        return origin, s, arrival[max(origin, 0)], False
    ends, offsets = hops[1], hops[2]
    for i in range(low, high - 1):
        n, following = paths[i], paths[i + 1]
        if arrival[n] >= arrival[paths[high - 1]]:
            break
        if arrival[following] <= arrival[n]:
            continue
        leaves, which = arrival[n], hop[following]
        last = _position(ends, offsets[which], offsets[which + 1], arrival[n]) - 1
        if last >= offsets[which]:
            leaves = max(leaves, ends[last] + detection)
        s = np.searchsorted(changes, leaves, side="right") - 1
        label = labels[s, node_broker[n]]
        if leaves < arrival[following] and label >= 0 and label == labels[s, home]:
            is_unnoticed = leaves > arrival[n] and not buffer
            return (-1 if is_unnoticed else n), s, leaves, is_unnoticed
    return -1, -1, math.inf, False


@njit(cache=True)
def _count_hops(
    starts, ends, offsets, node_broker, parent, arrival, used, buffer, knows, interval, limit, weight, counted
):
    """Counts what is sent over the links of the tree that are used.

    A broker that `knows` which neighbours are reachable sends nothing to the others, and once when one comes back.
    """
    for n in range(1, len(parent)):
        held = arrival[parent[n]]
        if not used[n] or held > limit:
            continue
        if not buffer or not knows or arrival[n] == held:
            counted[NOTIFICATION] += weight
        if buffer and arrival[n] <= limit:
            counted[ACKNOWLEDGEMENT] += weight
        if buffer and knows:
            counted[RETRANSMISSION] += weight if held < arrival[n] <= limit else 0
        elif buffer and arrival[n] > held:
            last, sender = min(arrival[n], limit), node_broker[parent[n]]
            counted[RETRANSMISSION] += weight * _attempts(starts, ends, offsets, sender, held, interval, last)
            if interval <= 0.0 and arrival[n] <= limit:
                counted[RETRANSMISSION] += weight


@njit(cache=True)
def _alike(changes, s, phase, period, k, stride, stop):
    """Returns the number of events from k on before anything changes, and the change before them (s or later)."""
    time = phase + k * period
    while s + 1 < len(changes) and changes[s + 1] <= time:
        s += 1
    last = stop
    if s + 1 < len(changes) and changes[s + 1] < phase + stop * period:
        last = min(stop, _first_tick(phase, period, changes[s + 1]))
    return (last - 1 - k) // stride + 1, s


@njit(cache=True)
def _outcome(starts, ends, offsets, access, when, limit, end, horizon, is_late, is_unnoticed):
    """Returns the fate of an event that gets to the home at `when`, or not by the limit; its lifetime ends at `end`.

    `is_late` says that the latency of its links is more than is left of its lifetime.
    """
    if when > limit:
        if end > horizon:
            return QUEUED
        return UNNOTICED if is_unnoticed else LOST
    if access >= 0 and not _is_up(starts, ends, offsets, access, when):
        return SHUT_OUT
    return LATE if is_late else DELIVERED


@njit(cache=True)
def walk_events(clock, settings, bypass, buffer, traces, hop_traces, graph, tree, targets, counted, booked, delays):
    """Walks all events of one source through its tree, and adds up what becomes of them.

    `clock`: phase, period, first, stride, stop of the publications. `settings`: lifetime, interval between attempts,
    horizon, time until a failure is noticed. `traces` and `hop_traces`: joined intervals of components and of hops.
    `graph`: ends of the links, number of brokers, times of changes, labels, usable links. `tree`: broker, parent and
    hop of each node, and the publisher's access link. `targets`: node, home, access link, latency of its links, and the
    joined paths. Adds to `counted` (messages by kind), to `booked` (events by target and outcome) and to `delays` (of
    the events delivered to each target). Returns how many events found the home broker down, and how many the
    publisher's access link.

    Events without any wait that are published between the same two changes have the same fate, and are walked once.
    """
    phase, period, first, stride, stop = clock
    lifetime, interval, horizon, detection = settings
    starts, ends, offsets = traces
    hop_starts, hop_ends, hop_offsets = hop_traces
    ends_a, ends_b, brokers, changes, labels, usable = graph
    node_broker, parent, hop, gate = tree
    target_node, target_home, target_access, target_latency, paths, path_offsets = targets
    home_down, gate_down, k, since = 0, 0, first, 0
    arrival, used = np.empty(len(parent)), np.zeros(len(parent), dtype=np.bool_)
    known = np.full(brokers if bypass else 0, -1, dtype=np.int64)
    distance = np.empty((brokers if bypass else 0, brokers), dtype=np.int64)
    told = np.full(distance.shape, -1, dtype=np.int64)
    while k < stop:
        time, event, weight = phase + k * period, k, 1
        if gate < 0 and detection <= 0.0:
            weight, since = _alike(changes, since, phase, period, k, stride, stop)
        linked = gate < 0 or _is_up(starts, ends, offsets, gate, time)
        if not linked or not _is_up(starts, ends, offsets, node_broker[0], time):
            gate_down += 0 if linked else weight
            home_down += weight if linked else 0
            k += stride * weight
            continue
        limit = min(time + lifetime, horizon) if buffer else time
        arrival[0] = time
        _arrivals(hop_starts, hop_ends, hop_offsets, parent, hop, interval, limit, arrival)
        if buffer and arrival.max() > time:
            weight = 1
        k += stride * weight
        used[:] = buffer
        for j in range(len(target_node)):
            when, home, is_unnoticed = arrival[target_node[j]], target_home[j], False
            if bypass and when > time:
                low, high = path_offsets[j], path_offsets[j + 1]
                origin, s, leaves, is_unnoticed = _way_around(
                    hop_traces, hop, changes, labels, node_broker, arrival, paths, low, high, home, detection, buffer
                )
                if origin >= 0:
                    counted[DUPLICATE] += weight if when <= limit else 0
                    when, b = leaves, node_broker[origin]
                    if known[b] != s:
                        _distances(usable[s], ends_a, ends_b, b, distance[b])
                        known[b] = s
                    if told[b, home] != event:  # once for all who are there
                        told[b, home] = event
                        counted[DETOUR] += weight * distance[b, home]
            elif not buffer:
                used[paths[path_offsets[j] : path_offsets[j + 1]]] = True
            end = time + lifetime if buffer else time
            is_late = when + target_latency[j] > time + lifetime
            outcome = _outcome(
                starts, ends, offsets, target_access[j], when, limit, end, horizon, is_late, is_unnoticed
            )
            booked[j, outcome] += weight
            if outcome == DELIVERED:
                delays[j] += weight * (when - time + target_latency[j])
        _count_hops(
            starts, ends, offsets, node_broker, parent, arrival, used, buffer, bypass, interval, limit, weight, counted
        )
    return home_down, gate_down
