"""Numbers of states of links that brokers flood: the protocol of `protocol.overlay.overlay_view`, compiled.

Every broker's view is followed through all changes of brokers and links, frame by frame, in the order in which the
protocol code runs in virtual time without latency: what happens at the same time is first noticed by all, then frames
are taken in the order in which they were sent, until none is left. So the count is the protocol's own. A frame with the
states of several brokers counts once for each.
"""
# The kernels take many arrays and are typed by Numba.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import Any

import numpy as np

from surecast.kernels import njit
from surecast.simulation.reliability.compiled.compiled_plan import CompiledPlan

__all__ = ["count_floods"]

_QUEUE = 4096
"""Frames there is room for at first."""
_LIFE = np.int64(1) << 32
"""The age of a state is the life of its broker times this, and a count of its states in that life."""
_NOTICE, _HELLO, _FRAME = 0, 1, 2


def count_floods(plan: CompiledPlan, joined: tuple[Any, ...], begin_s: float, end_s: float) -> int:
    """States of links sent from `begin_s` on, before `end_s`; `joined` has the traces, brokers and links first.

    All views are complete at the start. What is down then is noticed at time 0, which does not count.
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


def _neighbours(plan: CompiledPlan) -> tuple[Any, ...]:
    """Each broker's neighbours, in the protocol's order (by name): where its list starts, the neighbours, the links.

    Also the two ends of each link.
    """
    overlay = plan.system.overlay
    names = [broker.name for broker in overlay.brokers]
    own: list[list[tuple[str, int, int]]] = [[] for _ in names]
    for i, link in enumerate(overlay.links):
        own[link.a].append((names[link.b], link.b, i))
        own[link.b].append((names[link.a], link.a, i))
    first = np.zeros(len(names) + 1, dtype=np.int64)
    np.cumsum([len(slots) for slots in own], out=first[1:])
    slots = [slot for slots in own for slot in sorted(slots)]
    neighbour = np.array([slot[1] for slot in slots], dtype=np.int64)
    link_of = np.array([slot[2] for slot in slots], dtype=np.int64)
    return first, neighbour, link_of, *plan.link_ends()


@njit(cache=True)
def _run(time, which, up, begin_s, brokers, first, neighbour, link_of, ends_a, ends_b):
    """Takes in the changes time by time and returns the number of states sent from `begin_s` on, but not at 0.

    `age[b, o]` is the age of the last state of broker o that b knows, 0 where it knows none. `joined` tells for each
    neighbour of each broker whether it takes the connection for up. A connection has an epoch, which rises when it is
    made or broken. Rows of `queue`: what it is, sender, receiver, link, epoch, and where its states are in `states`
    (rows of broker and age). `sent` counts.
    """
    net = first, neighbour, link_of, ends_a, ends_b
    links = len(ends_a)
    age = np.zeros((brokers, brokers), dtype=np.int64)
    for b in range(brokers):
        for o in range(brokers):
            if first[o + 1] > first[o]:
                age[b, o] = _LIFE + first[o + 1] - first[o]
    lives = np.ones(brokers, dtype=np.int64)
    joined = np.ones(len(neighbour), dtype=np.bool_)
    made, epoch = np.ones(links, dtype=np.bool_), np.zeros(links, dtype=np.int64)
    views = age, lives, joined, made, epoch
    state = np.ones(brokers + links, dtype=np.bool_)
    sizes = np.zeros(3, dtype=np.int64)  # rows in the queue, rows of states, states sent
    queue, states = np.empty((_QUEUE, 7), dtype=np.int64), np.empty((_QUEUE, 2), dtype=np.int64)
    total = np.int64(0)
    i = 0
    while i < len(time):
        now = time[i]
        sizes[:] = 0
        while i < len(time) and time[i] == now:
            queue, states = _room(queue, states, sizes, net)
            queue, states = _change(which[i], up[i] == 1, state, net, views, queue, states, sizes)
            i += 1
        head = np.int64(0)
        while head < sizes[0]:
            queue, states = _room(queue, states, sizes, net)
            if queue[head, 4] == epoch[queue[head, 3]]:
                _take(queue[head], net, views, state, queue, states, sizes)
            head += 1
        if now > 0.0 and now >= begin_s:
            total += sizes[2]
    return total


@njit(cache=True)
def _grown(rows, size):
    """The rows, with room for some more."""
    if size <= len(rows):
        return rows
    grown = np.empty((2 * size, rows.shape[1]), dtype=np.int64)
    for i in range(len(rows)):  # a loop compiles in a tenth of the time of an assignment of arrays
        for j in range(rows.shape[1]):
            grown[i, j] = rows[i, j]
    return grown


@njit(cache=True)
def _room(queue, states, sizes, net):
    """The queue and the states, with room for all that one broker can say at once."""
    most = len(net[0]) + len(net[1])
    return _grown(queue, sizes[0] + 2 * most), _grown(states, sizes[1] + 2 * most)


@njit(cache=True)
def _put(queue, sizes, kind, sender, to, link, epoch, start, stop):
    row = queue[sizes[0]]
    row[0], row[1], row[2], row[3], row[4], row[5], row[6] = kind, sender, to, link, epoch, start, stop
    sizes[0] += 1
    sizes[2] += stop - start


@njit(cache=True)
def _slot(broker, other, net):
    j = net[0][broker]
    while net[1][j] != other:
        j += 1
    return j


@njit(cache=True)
def _change(which, up, state, net, views, queue, states, sizes):
    """A component changes: connections break, or are made, which their ends notice in turn."""
    first, link_of = net[0], net[2]
    age, lives, joined = views[0], views[1], views[2]
    brokers = len(lives)
    state[which] = up
    if which >= brokers:
        if up:
            _join(which - brokers, net, views, state, queue, states, sizes)
        else:
            _break(which - brokers, net, views, state, queue, sizes)
        return queue, states
    if up:
        lives[which] += 1
    else:
        for other in range(brokers):
            age[which, other] = 0
        for j in range(first[which], first[which + 1]):
            joined[j] = False
    for j in range(first[which], first[which + 1]):
        queue, states = _room(queue, states, sizes, net)
        if up:
            _join(link_of[j], net, views, state, queue, states, sizes)
        else:
            _break(link_of[j], net, views, state, queue, sizes)
    return queue, states


@njit(cache=True)
def _join(link, net, views, state, queue, states, sizes):
    """Makes a connection if all that it needs is up: both ends say hello."""
    ends_a, ends_b = net[3], net[4]
    lives, joined, made, epoch = views[1], views[2], views[3], views[4]
    a, b = ends_a[link], ends_b[link]
    if made[link] or not state[len(lives) + link] or not state[a] or not state[b]:
        return
    for one, other in ((a, b), (b, a)):
        if joined[_slot(one, other, net)]:
            _notice(one, other, net, views, queue, states, sizes)
    made[link] = True
    epoch[link] += 1
    _put(queue, sizes, _HELLO, a, b, link, epoch[link], 0, 0)
    _put(queue, sizes, _HELLO, b, a, link, epoch[link], 0, 0)


@njit(cache=True)
def _break(link, net, views, state, queue, sizes):
    """Breaks a connection: its ends that are up are going to notice it."""
    made, epoch = views[3], views[4]
    if not made[link]:
        return
    made[link] = False
    epoch[link] += 1
    for one, other in ((net[3][link], net[4][link]), (net[4][link], net[3][link])):
        if state[one]:
            _put(queue, sizes, _NOTICE, other, one, link, epoch[link], 0, 0)


@njit(cache=True)
def _notice(broker, other, net, views, queue, states, sizes):
    """A broker finds that a neighbour is gone, and tells the others."""
    views[2][_slot(broker, other, net)] = False
    start = _own_state(broker, views, states, sizes)
    _send_on(broker, other, net, views, queue, sizes, start, sizes[1])


@njit(cache=True)
def _own_state(broker, views, states, sizes):
    """Writes the next state of a broker itself; returns where it is."""
    age, lives = views[0], views[1]
    age[broker, broker] = max(age[broker, broker], lives[broker] * _LIFE) + 1
    return _write(states, sizes, broker, age[broker, broker])


@njit(cache=True)
def _write(states, sizes, origin, age):
    states[sizes[1], 0], states[sizes[1], 1] = origin, age
    sizes[1] += 1
    return sizes[1] - 1


@njit(cache=True)
def _send_on(broker, besides, net, views, queue, sizes, start, stop):
    """Sends states to all neighbours that are up but one."""
    first, neighbour, link_of = net[0], net[1], net[2]
    for j in range(first[broker], first[broker + 1]):
        if views[2][j] and neighbour[j] != besides:
            _put(queue, sizes, _FRAME, broker, neighbour[j], link_of[j], _epoch(link_of[j], views), start, stop)


@njit(cache=True)
def _epoch(link, views):
    """The epoch of a connection; what is sent where there is none, which its sender has not noticed, is lost."""
    return views[4][link] if views[3][link] else -1


@njit(cache=True)
def _take(row, net, views, state, queue, states, sizes):
    """A broker notices that a neighbour is gone, hears that it is there, or takes its news and passes them on."""
    first, neighbour, link_of = net[0], net[1], net[2]
    age, lives, joined = views[0], views[1], views[2]
    kind, sender, broker, start, stop = row[0], row[1], row[2], row[5], row[6]
    if kind == _NOTICE:
        if joined[_slot(broker, sender, net)]:
            _notice(broker, sender, net, views, queue, states, sizes)
        return
    if kind == _HELLO:
        joined[_slot(broker, sender, net)] = True
        own = _own_state(broker, views, states, sizes)
        known = sizes[1]
        for origin in range(len(lives)):
            if age[broker, origin] > 0:
                _write(states, sizes, origin, age[broker, origin])
        for j in range(first[broker], first[broker + 1]):
            if joined[j]:
                low, high = (known, sizes[1]) if neighbour[j] == sender else (own, own + 1)
                _put(queue, sizes, _FRAME, broker, neighbour[j], link_of[j], _epoch(link_of[j], views), low, high)
        return
    news = sizes[1]
    for i in range(start, stop):
        origin, number = states[i, 0], states[i, 1]
        if origin != broker and number > age[broker, origin]:
            age[broker, origin] = number
            _write(states, sizes, origin, number)
    if sizes[1] > news:
        _send_on(broker, sender, net, views, queue, sizes, news, sizes[1])
