"""The compiled path of coded delivery: events one after the other, each from its publication to its deadline.

It does what the protocol's objects do, message for message (the tests compare the two exactly), for events of one
generation whose lives do not overlap: an event finds all links idle.
"""
# The kernels take many arrays and are typed by Numba.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, attr-defined"

from __future__ import annotations

import numpy as np

from surecast.kernels import njit
from surecast.protocol.coding.field_kernels import draw
from surecast.simulation.coding.compiled_nodes import (
    AGAIN,
    CHASE,
    FLUSH,
    acknowledge,
    acknowledged,
    announced,
    asked,
    chase_due,
    flush,
    offer,
    relay_data,
    round_due,
    subscriber_packet,
    transmit,
    try_again,
)
from surecast.simulation.coding.compiled_parts import TIMER, mixed, pop, word
from surecast.simulation.coding.compiled_refs import NetRef, SchemeRef, StateRef
from surecast.simulation.coding.compiled_state import ACK, DATA, DIGEST, NONE, PLAIN, REQUEST, SEEDED

__all__ = ["run_events"]

_TIMERS_MAX = 4096


@njit(cache=True)
def _begin(rules, s, event):
    """Everything as before an event."""
    s.numbers[0] = s.numbers[1] = s.numbers[3] = s.numbers[5] = s.numbers[6] = 0
    s.numbers[2] = len(s.free)
    for i in range(len(s.free)):
        s.free[i] = i
    s.numbers[4] = event
    s.now[0] = 0.0
    s.passed[:] = 0
    s.is_bad[:] = False
    s.busy_s[:] = 0.0
    s.pivots[:] = -1
    s.known[:] = False
    s.used[:] = 0
    s.ranks[:] = 0
    s.seen[:] = False
    s.owed[:] = 0
    s.credit[:] = 0.0
    s.flush_at[:] = np.inf
    if rules.retransmit:
        s.tries[:] = 0
        s.waiting[:] = 0
        s.silences[:] = 0
        s.again_at[:] = np.inf
    s.rounds_left[:] = NONE
    s.chase_left[:] = NONE
    s.round_at[:] = np.inf
    s.chase_at[:] = np.inf
    s.source_count[:] = 0
    s.done_s[:] = np.inf
    s.recovered[:] = False
    s.counts[:] = 0


@njit(cache=True)
def _publish(net, rules, scheme, s):
    """The publisher sends its packets in order, or gossips."""
    source = rules.source
    seed = word(s.relay_draws, source)
    if rules.publisher_gossips:
        s.known[source] = True
        s.ranks[source] = rules.packets
        offer(net, rules, scheme, s, source, rules.subscribers)
        return
    coded = np.zeros((rules.sent, s.vector.shape[1]), np.uint8)
    for number in range(rules.packets, rules.sent):
        seed = mixed(seed)
        if not draw(seed, rules.bits, coded[number, : rules.packets]):
            coded[number, 0] = 1
    own = np.zeros(s.vector.shape[1], np.uint8)
    for k in range(len(scheme.order)):
        branch, number = scheme.order[k]
        if number == NONE:
            seed = mixed(seed)
            own[:] = 0
            if not draw(seed, rules.bits, own[: rules.packets]):
                own[0] = 1
            transmit(net, rules, scheme, s, source, branch, number, SEEDED, own)
        else:
            form = PLAIN if number < rules.packets else SEEDED
            transmit(net, rules, scheme, s, source, branch, number, form, coded[number])


@njit(cache=True)
def _deliver(net, rules, scheme, s, slot):
    """A message arrives."""
    kind, node, sender, number = s.kind[slot], s.to[slot], s.sender[slot], s.number[slot]
    vector = s.vector[slot].copy()
    form, extra = s.form[slot], s.extra[slot]
    s.free[s.numbers[2]] = slot
    s.numbers[2] += 1
    if kind == DATA:
        if rules.retransmit:
            come = s.seen[node] if node < rules.brokers else s.known[node]
            acknowledge(net, rules, s, node, sender, number, extra, scheme.link[extra >> 8], come)
        if node < rules.brokers:
            relay_data(net, rules, scheme, s, node, number, form, vector)
        else:
            subscriber_packet(net, rules, scheme, s, node, number, form, vector, kind != DATA)
    elif kind == ACK:
        acknowledged(net, rules, scheme, s, node, extra >> 8, number, extra & 255, vector)
    elif kind == DIGEST:
        announced(net, rules, scheme, s, node, sender)
    elif kind == REQUEST:
        i = node - rules.brokers if node >= rules.brokers else rules.subscribers
        asked(net, rules, s, node, i, sender, number, vector)
    else:
        subscriber_packet(net, rules, scheme, s, node, number, form, vector, kind != DATA)


@njit(cache=True)
def _timers(net, rules, scheme, s, key, which, keys, slots):
    """Handles all that is due at a node at this moment together: what comes of it can only be later."""
    count = 1
    keys[0], slots[0] = key, which
    node_of = (key - TIMER) >> np.int64(36)
    while s.numbers[0] > 0 and count < len(keys) and s.heap_time[0] == s.now[0]:
        if s.heap_key[0] < TIMER or (s.heap_key[0] - TIMER) >> np.int64(36) != node_of:
            break
        _, keys[count], slots[count] = pop(s)
        count += 1
    for k in range(count):
        kind = ((keys[k] - TIMER) >> np.int64(32)) & np.int64(15)
        if kind == AGAIN:
            try_again(net, rules, scheme, s, node_of, slots[k])
        elif kind == FLUSH:
            flush(net, rules, scheme, s, node_of)
        elif kind == CHASE:
            chase_due(net, rules, s, node_of, slots[k])
        else:
            round_due(net, rules, scheme, s, node_of, slots[k])


@njit(cache=True)
def run_events(network, rules, branches, state, first, count, done_s, recovered, counts):
    """Runs events with consecutive numbers; how many of them fitted into the memory of the state.

    Fewer than asked for means that the next one needs a larger state; the draws are then as before that one.
    """
    net, scheme, s = NetRef(*network), SchemeRef(*branches), StateRef(*state)
    keys = np.empty(_TIMERS_MAX, np.int64)
    slots = np.empty(_TIMERS_MAX, np.int64)
    for k in range(count):
        relay, gossip, trips = s.relay_draws.copy(), s.gossip_draws.copy(), s.trips.copy()
        _begin(rules, s, first + k)
        _publish(net, rules, scheme, s)
        while s.numbers[0] > 0 and s.numbers[3] == 0:
            s.now[0], key, slot = pop(s)
            if s.now[0] >= rules.deadline_s:
                break
            if key < TIMER:
                _deliver(net, rules, scheme, s, slot)
            else:
                _timers(net, rules, scheme, s, key, slot, keys, slots)
        if s.numbers[3]:
            s.relay_draws[:], s.gossip_draws[:], s.trips[:] = relay, gossip, trips
            return k
        done_s[k], recovered[k], counts[k] = s.done_s, s.recovered, s.counts
    return count
