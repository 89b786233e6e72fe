"""Counts of the link-state messages that brokers send: the protocol of `protocol.overlay.link_state`, compiled.

Every broker's view is followed through all changes of brokers and links, message by message, in the order in which the
protocol code runs in virtual time without latency: what happens at the same time is detected together, then messages
are taken in the order in which they were sent, until none is left. So the count is the protocol's own.
"""
# The kernels take many arrays and are typed by Numba.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import Any

import numpy as np

from surecast.kernels import njit
from surecast.simulation.reliability.compiled.compiled_plan import Plan

__all__ = ["count_floods"]

_QUEUE = 4096
"""Messages there is room for at first."""


def count_floods(plan: Plan, joined: tuple[Any, ...], begin_s: float, end_s: float) -> int:
    """Link-state messages sent from `begin_s` on, before `end_s`; `joined` has the traces, brokers and links first.

    All views are complete at the start. What is down then is announced at time 0, which does not count.
    """
    size = plan.brokers + len(plan.system.overlay.links)
    last = int(joined[2][size])
    starts, ends = joined[0][:last], joined[1][:last]
    component = np.repeat(np.arange(size), np.diff(joined[2][: size + 1]))
    first_up = np.zeros(size, dtype=np.bool_)
    first_up[component[(starts <= 0) & (ends > 0)]] = True
    dead = np.flatnonzero(~first_up)
    time = np.concatenate([np.zeros(len(dead)), ends, starts])
    which = np.concatenate([dead, component, component])
    up = np.repeat([0, 0, 1], [len(dead), last, last])
    chosen = np.flatnonzero(((time > 0) | (np.arange(len(time)) < len(dead))) & (time < end_s))
    order = chosen[np.lexsort((up[chosen], which[chosen], time[chosen]))]
    return int(_run(time[order], which[order], up[order], begin_s, plan.brokers, *_neighbours(plan)))


def _neighbours(plan: Plan) -> tuple[Any, ...]:
    """Each broker's neighbours, in the protocol's order (by name): where its list starts, the neighbours, the links.

    Also the two ends of each link and, for each neighbour, a random number: what a broker says is down is told apart
    by the sum of these, modulo 2 to the 64.
    """
    overlay = plan.system.overlay
    names = [broker.name for broker in overlay.brokers]
    own: list[list[tuple[str, int, int]]] = [[] for _ in names]
    for i, link in enumerate(overlay.links):
        own[link.a].append((names[link.b], link.b, i))
        own[link.b].append((names[link.a], link.a, i))
    first = np.zeros(len(names) + 1, dtype=np.int64)
    np.cumsum([len(found) for found in own], out=first[1:])
    slots = [slot for found in own for slot in sorted(found)]
    neighbour = np.array([slot[1] for slot in slots], dtype=np.int64)
    link_of = np.array([slot[2] for slot in slots], dtype=np.int64)
    marks = np.random.default_rng(1).integers(2**63, size=len(slots))
    return first, neighbour, link_of, *plan.link_ends(), marks


@njit(cache=True)
def _run(time, which, up, begin_s, brokers, first, neighbour, link_of, ends_a, ends_b, marks):
    """Takes in the changes time by time and returns the number of messages sent from `begin_s` on, but not at 0."""
    net = first, neighbour, marks
    sequence = np.zeros((brokers, brokers), dtype=np.int64)  # what each broker (row) knows of each; 0: nothing
    said_down = np.zeros((brokers, brokers), dtype=np.int64)  # what that says is down, as a number
    heard = np.zeros((brokers, brokers), dtype=np.int32)  # of whom each broker knows, in the order it heard of them
    count = np.zeros(brokers, dtype=np.int64)
    unreached = np.zeros(len(neighbour), dtype=np.bool_)
    own_down = np.zeros(brokers, dtype=np.int64)
    views = sequence, said_down, heard, count, unreached, own_down
    state, lives = np.ones(brokers + len(ends_a), dtype=np.bool_), np.zeros(brokers, dtype=np.int64)
    reports = np.empty((16, 5), dtype=np.int64)
    queue = np.empty((_QUEUE, 5), dtype=np.int64)
    total = np.int64(0)
    i = 0
    while i < len(time):
        now, reported = time[i], np.int64(0)  # a literal would be of another type, and all of it compiled twice
        alone = i + 1 == len(time) or time[i + 1] > now  # then nobody sends over a link that is down
        while i < len(time) and time[i] == now:
            reports = _room(reports, reported + 2 * len(neighbour))
            reported = _change(which[i], up[i], state, lives, net, link_of, ends_a, ends_b, views, reports, reported)
            i += 1
        tail = np.int64(0)
        for r in range(reported):
            queue = _room(queue, tail + len(neighbour) + brokers)
            if lives[reports[r, 0]] == reports[r, 1]:
                tail = _report(reports[r, 0], reports[r, 2], reports[r, 3] == 1, net, views, queue, tail)
        head = np.int64(0)
        while head < tail:
            sender, to, origin = queue[head, 0], queue[head, 1], queue[head, 2]
            # most messages are what their receiver has already, which has no consequences
            if origin == to or queue[head, 3] != sequence[to, origin]:
                queue = _room(queue, tail + len(neighbour))
                if state[to] and (alone or _link_up(sender, to, first, neighbour, link_of, state, brokers)):
                    tail = _receive(queue, head, net, views, tail)
            head += 1
        if now > 0.0 and now >= begin_s:
            total += tail
    return total


@njit(cache=True)
def _room(rows, size):
    """The rows, with room for some more."""
    if size <= len(rows):
        return rows
    grown = np.empty((2 * size, rows.shape[1]), dtype=np.int64)
    for i in range(len(rows)):  # a loop compiles in a tenth of the time of an assignment of arrays
        for j in range(rows.shape[1]):
            grown[i, j] = rows[i, j]
    return grown


@njit(cache=True)
def _put(rows, n, a, b, c, d, e):
    rows[n, 0], rows[n, 1], rows[n, 2], rows[n, 3], rows[n, 4] = a, b, c, d, e
    return n + 1


@njit(cache=True)
def _link_up(sender, to, first, neighbour, link_of, state, brokers):
    for j in range(first[sender], first[sender + 1]):
        if neighbour[j] == to:
            return state[brokers + link_of[j]]
    return False


@njit(cache=True)
def _change(which, up, state, lives, net, link_of, ends_a, ends_b, views, reports, n):
    """A component changes; who notices is written to `reports`: broker, its life, neighbour, whether that is up."""
    first, neighbour, marks = net
    sequence, _, _, count, unreached, own_down = views
    state[which] = up == 1
    brokers = len(lives)
    if which >= brokers:
        a, b = ends_a[which - brokers], ends_b[which - brokers]
        if state[a] and state[b]:
            n = _put(reports, n, a, lives[a], b, up, 0)
            n = _put(reports, n, b, lives[b], a, up, 0)
        return n
    lives[which] += 1
    low, high = first[which], first[which + 1]
    if up == 1:
        for j in range(low, high):
            if state[brokers + link_of[j]] and state[neighbour[j]]:
                n = _put(reports, n, which, lives[which], neighbour[j], up, 0)
    else:
        count[which] = 0
        own_down[which] = 0
        for other in range(brokers):
            sequence[which, other] = 0
        for j in range(low, high):
            unreached[j] = True
            own_down[which] += marks[j]
    for j in range(low, high):
        other = neighbour[j]
        if state[brokers + link_of[j]] and state[other]:
            n = _put(reports, n, other, lives[other], which, up, 0)
    return n


@njit(cache=True)
def _report(broker, other, up, net, views, queue, tail):
    """A broker finds that a neighbour is up or down: it announces that, and tells one that is up all it knows."""
    first, neighbour, marks = net
    sequence, said_down, heard, count, unreached, own_down = views
    j = first[broker]
    while neighbour[j] != other:
        j += 1
    if unreached[j] != up:
        return tail
    unreached[j] = not up
    own_down[broker] += -marks[j] if up else marks[j]
    tail = _announce(broker, 0, net, views, queue, tail)
    if up:
        for k in range(count[broker]):
            origin = heard[broker, k]
            tail = _put(queue, tail, broker, other, origin, sequence[broker, origin], said_down[broker, origin])
    return tail


@njit(cache=True)
def _announce(broker, outbid, net, views, queue, tail):
    """A broker tells its neighbours which of them it can reach, under a higher number than before and than `outbid`."""
    sequence, said_down, own_down = views[0], views[1], views[5]
    sequence[broker, broker] = max(sequence[broker, broker], outbid) + 1
    said_down[broker, broker] = own_down[broker]
    return _send_on(broker, broker, -1, net, views, queue, tail)


@njit(cache=True)
def _send_on(broker, origin, besides, net, views, queue, tail):
    first, neighbour, _ = net
    sequence, said_down, unreached = views[0], views[1], views[4]
    for j in range(first[broker], first[broker + 1]):
        if not unreached[j] and neighbour[j] != besides:
            tail = _put(queue, tail, broker, neighbour[j], origin, sequence[broker, origin], said_down[broker, origin])
    return tail


@njit(cache=True)
def _receive(queue, head, net, views, tail):
    """News are passed on, old news answered with newer ones, and a broker's own from before a crash are outbid."""
    sequence, said_down, heard, count = views[0], views[1], views[2], views[3]
    sender, broker, origin = queue[head, 0], queue[head, 1], queue[head, 2]
    number, down = queue[head, 3], queue[head, 4]
    known = sequence[broker, origin]
    if origin == broker:
        if known > 0 and (number < known or (number == known and down == said_down[broker, broker])):
            return tail
        return _announce(broker, number, net, views, queue, tail)
    if known > 0 and number <= known:
        if number < known:
            tail = _put(queue, tail, broker, sender, origin, known, said_down[broker, origin])
        return tail
    if known == 0:
        heard[broker, count[broker]] = origin
        count[broker] += 1
    sequence[broker, origin], said_down[broker, origin] = number, down
    return _send_on(broker, origin, sender, net, views, queue, tail)
