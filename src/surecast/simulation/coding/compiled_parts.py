"""Compiled parts of coded delivery: random words, losses, the queue of what happens next, and what a node has.

Random words are those of `protocol.gossip.Draws`, and packets are added and combined by the kernels of
`protocol.coding`: the compiled path and the protocol's own objects agree to the last choice.
"""
# The kernels take many arrays and are typed by Numba.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

import numpy as np

from surecast.kernels import njit
from surecast.protocol.coding.field_kernels import insert, learn, recode_many
from surecast.simulation.coding.compiled_state import DATA, DATA_LOCAL, NOTHING, PLAIN

__all__ = ["add_packet", "below", "crosses", "fresh_vector", "mixed", "pop", "push_message", "push_timer", "word"]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_LINK = np.uint64(0xD1342543DE82EF95)
_EVENT = np.uint64(0xAEF17502108EF2D9)
_UNIT = 2.0**-53
TIMER = np.int64(1) << np.int64(62)
"""Timers come after messages of the same moment."""


@njit(cache=True)
def mixed(value):
    """The finaliser of SplitMix64."""
    value = (value ^ (value >> np.uint64(30))) * _MIX_1
    value = (value ^ (value >> np.uint64(27))) * _MIX_2
    return value ^ (value >> np.uint64(31))


@njit(cache=True)
def word(draws, i):
    """The next random word of stream i."""
    draws[i] += _GOLDEN
    return mixed(draws[i])


@njit(cache=True)
def below(draws, i, limit):
    return np.int64(word(draws, i) % np.uint64(limit))


@njit(cache=True)
def unit(draws, i):
    return np.float64(word(draws, i) >> np.uint64(11)) * _UNIT


@njit(cache=True)
def _chance(seed, event, link, number):
    value = mixed(seed ^ mixed(np.uint64(event) * _EVENT + np.uint64(link) * _LINK))
    return np.float64(mixed(value + np.uint64(number) * _GOLDEN) >> np.uint64(11)) * _UNIT


@njit(cache=True)
def crosses(net, passed, is_bad, event, link):
    """Returns whether the next packet of an event gets over a link. Each event meets links as they are at any time."""
    number = passed[link]
    passed[link] += 1
    chance = _chance(net.seed, event, link, number)
    if net.to_good[link] == 0.0:
        return chance >= net.loss[link]
    if number == 0:
        is_bad[link] = chance < net.loss[link]
    elif is_bad[link]:
        is_bad[link] = chance >= net.to_good[link]
    else:
        is_bad[link] = chance < net.to_bad[link]
    return not is_bad[link]


@njit(cache=True)
def travels(net, passed, is_bad, event, sender, to):
    """Returns whether a message between peers arrives: over the access links of both and the shortest way between."""
    if net.peer_loss >= 0.0:
        # No link loses it; a place behind the links counts these messages.
        number = passed[-1]
        passed[-1] += 1
        return _chance(net.seed, event, len(passed), number) >= net.peer_loss
    if net.up[sender] >= 0 and not crosses(net, passed, is_bad, event, net.up[sender]):
        return False
    a, b = net.home[sender], net.home[to]
    begin = net.starts[a, b]
    for i in range(begin, begin + net.lengths[a, b]):
        if not crosses(net, passed, is_bad, event, net.way[i]):
            return False
    return net.down[to] < 0 or crosses(net, passed, is_bad, event, net.down[to])


@njit(cache=True)
def _before(s, i, j):
    if s.heap_time[i] != s.heap_time[j]:
        return s.heap_time[i] < s.heap_time[j]
    return s.heap_key[i] < s.heap_key[j]


@njit(cache=True)
def _swap(s, i, j):
    s.heap_time[i], s.heap_time[j] = s.heap_time[j], s.heap_time[i]
    s.heap_key[i], s.heap_key[j] = s.heap_key[j], s.heap_key[i]
    s.heap_slot[i], s.heap_slot[j] = s.heap_slot[j], s.heap_slot[i]


@njit(cache=True)
def _push(s, time_s, key, slot):
    if s.numbers[0] >= len(s.heap_time):
        s.numbers[3] = 1
        return
    i = s.numbers[0]
    s.numbers[0] += 1
    s.heap_time[i], s.heap_key[i], s.heap_slot[i] = time_s, key, slot
    while i > 0 and _before(s, i, (i - 1) // 2):
        _swap(s, i, (i - 1) // 2)
        i = (i - 1) // 2


@njit(cache=True)
def pop(s):
    """Takes out what comes first: its time, key and slot."""
    found = s.heap_time[0], s.heap_key[0], s.heap_slot[0]
    s.numbers[0] -= 1
    last = s.numbers[0]
    _swap(s, NOTHING, last)
    i = NOTHING
    while True:
        child = 2 * i + 1
        if child >= last:
            return found
        if child + 1 < last and _before(s, child + 1, child):
            child += 1
        if not _before(s, child, i):
            return found
        _swap(s, i, child)
        i = child


@njit(cache=True)
def push_message(s, due_s, kind, sender, to, number, form, extra):
    """A message that arrives at a time; its slot, for the vector to be written to."""
    if s.numbers[2] == 0:
        s.numbers[3] = 1
        return s.free[0]
    s.numbers[2] -= 1
    slot = s.free[s.numbers[2]]
    s.kind[slot], s.sender[slot], s.to[slot] = kind, sender, to
    s.number[slot], s.form[slot], s.extra[slot] = number, form, extra
    s.numbers[1] += 1
    _push(s, due_s, s.numbers[1], slot)
    return slot


@njit(cache=True)
def push_timer(s, due_s, node, kind, which):
    """A timer of a node; of several at a time those of the lowest kind come first, and then those set first."""
    s.numbers[5] += 1
    key = TIMER + (np.int64(node) << np.int64(36)) + (np.int64(kind) << np.int64(32)) + s.numbers[5]
    _push(s, due_s, key, which)


@njit(cache=True)
def send_data(net, scheme, s, sender, branch, number, form, vector, turn):
    """Sends a packet along a branch. It takes its time on the link, and may be lost behind it."""
    link, to = scheme.link[branch], scheme.neighbour[branch]
    local = link >= net.overlay_links
    s.counts[(DATA_LOCAL if local else DATA) + form] += 1
    start_s = s.now[0]
    if net.packet_s[link] > 0.0:
        start_s = max(start_s, s.busy_s[link]) + net.packet_s[link]
        s.busy_s[link] = start_s
    if crosses(net, s.passed, s.is_bad, s.numbers[4], link):
        slot = push_message(s, start_s + net.latency_s[link], DATA, sender, to, number, form, branch * 256 + turn)
        if form != PLAIN:
            s.vector[slot] = vector


@njit(cache=True)
def send_peer(net, s, kind, sender, to, number, form, extra):
    """Sends a message to a peer; the slot for its vector, or -1 where it is lost."""
    if not travels(net, s.passed, s.is_bad, s.numbers[4], sender, to):
        return -1
    due_s = s.now[0] + net.delays_s[net.home[sender], net.home[to]]
    return push_message(s, due_s, kind, sender, to, number, form, extra)


@njit(cache=True)
def add_packet(rules, scheme, s, node, form, number, vector):
    """Gives a node a packet; whether that was new to it."""
    if s.ranks[node] == rules.packets:
        return False
    width = s.words.shape[2]
    matrix, words, pivots, known = s.matrix[node], s.words[node], s.pivots[node], s.known[node]
    column = number
    if form != PLAIN:
        filled = 0
        for i in range(rules.packets):
            if vector[i] != 0:
                filled += 1
                column = i
        if filled == 0:
            return False
        if filled > 1:
            row = s.used[node]
            matrix[row] = vector
            new = insert(matrix, words, pivots, known, row, width, rules.bits, scheme.inverses) >= 0
            s.used[node] += new
            s.ranks[node] += new
            return new
    new = learn(matrix, words, pivots, known, column, width, rules.bits, scheme.inverses)
    s.ranks[node] += new
    return new


@njit(cache=True)
def fresh_vector(rules, s, node, seed):
    """A random combination of what a node has."""
    out = np.zeros((1, s.vector.shape[1]), np.uint8)
    nodes = np.array([node])
    seeds = np.array([seed])
    recode_many(s.matrix, s.words, s.pivots, s.known, nodes, seeds, rules.bits, out, out.view(np.uint64))
    return out[0]
