"""Compiled relays, subscribers and gossip: `protocol.dissemination` and `protocol.gossip`, step for step, for one event
of one generation."""
# The kernels take many arrays and are typed by Numba.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

import numpy as np

from surecast.kernels import njit
from surecast.protocol.dissemination.retransmission import DOUBLINGS_MAX, GRACE_S
from surecast.simulation.coding.compiled_parts import (
    add_packet,
    below,
    crosses,
    fresh_vector,
    push_message,
    push_timer,
    send_data,
    send_peer,
    unit,
    word,
)
from surecast.simulation.coding.compiled_state import (
    ACK,
    ACK_LOCAL,
    DIGEST,
    NONE,
    NOTHING,
    ONCE,
    PLAIN,
    PUSH,
    RECODED,
    REPLY,
    REQUEST,
    REQUEST_NUMBERS,
)

__all__ = ["acknowledged", "announced", "asked", "chase_due", "flush", "offer", "relay_data", "round_due", "try_again"]

AGAIN, FLUSH, CHASE, ROUND = np.arange(4)
"""Timers of a node, in the order in which it attends to them."""
PUSH_MODE, PUSH_PULL, PULL = 1, 2, 3
_PATIENCE = 3
_ANSWERS = 2


@njit(cache=True)
def transmit(net, rules, scheme, s, sender, branch, number, form, vector):
    """Sends a packet along a branch, and waits for its acknowledgement where that is the scheme."""
    turn = NOTHING
    if rules.retransmit:
        turn = ONCE
        s.waiting[branch] += 1
        _note(s, branch, number, turn)
        _wait(rules, s, sender, branch)
    send_data(net, scheme, s, sender, branch, number, form, vector, turn)


@njit(cache=True)
def _note(s, branch, number, turn):
    """A packet that waits for an acknowledgement is under way."""
    s.numbers[6] += 1
    s.tries[branch, number] = turn
    s.sent_at[branch, number] = s.now[0]
    s.sent_order[branch, number] = s.numbers[6]
    s.was_alone[branch, number] = s.waiting[branch] == 1


@njit(cache=True)
def _wait(rules, s, node, branch):
    """Sets the timer of a branch, if anything waits there."""
    if s.waiting[branch] == 0:
        s.again_at[branch] = np.inf
        return
    wait_s = rules.retransmit_s
    if s.trips[branch, 0] >= 0.0:
        wait_s = s.trips[branch, 0] + max(4 * s.trips[branch, 1], GRACE_S)
    due_s = s.now[0] + wait_s * 2.0 ** min(s.silences[branch], DOUBLINGS_MAX)
    if s.again_at[branch] != due_s:
        s.again_at[branch] = due_s
        push_timer(s, due_s, node, AGAIN, branch)


@njit(cache=True)
def acknowledge(net, rules, s, sender, to, number, extra, link, come):
    """Sends an acknowledgement back over the link that a packet came by, with all that has come."""
    back = link ^ 1
    s.counts[ACK_LOCAL if link >= net.overlay_links else ACK] += 1
    if crosses(net, s.passed, s.is_bad, s.numbers[4], back):
        slot = push_message(s, s.now[0] + net.latency_s[back], ACK, sender, to, number, PLAIN, extra)
        for k in range(rules.sent):
            s.vector[slot, k] = come[k] or k == number


@njit(cache=True)
def acknowledged(net, rules, scheme, s, node, branch, number, turn, come):
    """Packets have come over a hop; what was sent before the one that is answered, and has not come, is lost."""
    if s.waiting[branch] == 0:
        return
    order = 0
    if s.tries[branch, number] == turn:
        order = s.sent_order[branch, number]
        if s.was_alone[branch, number]:
            _learn(s, branch, s.now[0] - s.sent_at[branch, number])
    for k in range(rules.sent):
        if come[k] and s.tries[branch, k] > 0:
            s.tries[branch, k] = 0
            s.waiting[branch] -= 1
    s.silences[branch] = 0
    for k in range(rules.sent):
        if s.tries[branch, k] > 0 and s.sent_order[branch, k] < order:
            _again(net, rules, scheme, s, node, branch, k)
    _wait(rules, s, node, branch)


@njit(cache=True)
def _learn(s, branch, trip_s):
    """Takes in a round trip."""
    mean_s, deviation_s = s.trips[branch, 0], s.trips[branch, 1]
    if mean_s < 0.0:
        mean_s, deviation_s = trip_s, trip_s / 2
    deviation_s += 0.25 * (abs(trip_s - mean_s) - deviation_s)
    s.trips[branch, 0] = mean_s + 0.125 * (trip_s - mean_s)
    s.trips[branch, 1] = deviation_s


@njit(cache=True)
def _again(net, rules, scheme, s, node, branch, number):
    """Sends a packet again, if it may be."""
    turn = s.tries[branch, number]
    if turn >= rules.tries_max:
        s.tries[branch, number] = 0
        s.waiting[branch] -= 1
        return
    _note(s, branch, number, turn + 1)
    send_data(net, scheme, s, node, branch, number, PLAIN, s.vector[0], turn + 1)


@njit(cache=True)
def try_again(net, rules, scheme, s, node, branch):
    """A neighbour is silent: the oldest packet is sent again."""
    if s.again_at[branch] != s.now[0]:
        return
    s.again_at[branch] = np.inf
    s.silences[branch] += 1
    oldest = NONE
    for k in range(rules.sent):
        if s.tries[branch, k] > 0 and (oldest < 0 or s.sent_order[branch, k] < s.sent_order[branch, oldest]):
            oldest = k
    _again(net, rules, scheme, s, node, branch, oldest)
    _wait(rules, s, node, branch)


@njit(cache=True)
def relay_data(net, rules, scheme, s, node, number, form, vector):
    """A packet comes to a broker, which passes it on."""
    if number != NONE:
        if s.seen[node, number]:
            return
        s.seen[node, number] = True
    new = add_packet(rules, scheme, s, node, form, number, vector) if rules.recode else True
    unsent = False
    for branch in range(scheme.first[node], scheme.first[node + 1]):
        share = scheme.count[branch]
        most = 2 * share if new else share
        if not rules.recode or (number != NONE and not scheme.contended[branch]):
            if number != NONE and s.owed[branch] < most and scheme.wants[branch, number]:
                s.owed[branch] += 1
                transmit(net, rules, scheme, s, node, branch, number, form, vector)
        else:
            s.credit[branch] += share / max(1, scheme.expected[node])
            while s.credit[branch] >= 1.0 - 1e-9 and s.owed[branch] < most:
                s.credit[branch] -= 1.0
                _send_fresh(net, rules, scheme, s, node, branch)
        unsent = unsent or s.owed[branch] < share
    if rules.recode and unsent:
        lacks = s.ranks[node] < min(rules.packets, scheme.expected[node])
        due_s = s.now[0] + rules.flush_s * (_PATIENCE if lacks else 1)
        if s.flush_at[node] != due_s:
            s.flush_at[node] = due_s
            push_timer(s, due_s, node, FLUSH, NOTHING)


@njit(cache=True)
def _send_fresh(net, rules, scheme, s, node, branch):
    s.owed[branch] += 1
    vector = fresh_vector(rules, s, node, word(s.relay_draws, node))
    send_data(net, scheme, s, node, branch, NONE, RECODED, vector, NOTHING)


@njit(cache=True)
def flush(net, rules, scheme, s, node):
    """A broker has heard nothing for a while, and sends what its branches are still owed."""
    if s.flush_at[node] != s.now[0]:
        return
    s.flush_at[node] = np.inf
    if s.ranks[node] == 0:
        return
    for branch in range(scheme.first[node], scheme.first[node + 1]):
        s.credit[branch] = 0.0
        for _ in range(scheme.count[branch] - s.owed[branch]):
            _send_fresh(net, rules, scheme, s, node, branch)


@njit(cache=True)
def subscriber_packet(net, rules, scheme, s, node, number, form, vector, by_peer):
    """A packet comes to a subscriber."""
    i = node - rules.brokers
    if s.done_s[i] < np.inf:
        return
    if add_packet(rules, scheme, s, node, form, number, vector) and s.ranks[node] == rules.packets:
        s.done_s[i] = s.now[0]
        s.recovered[i] = by_peer
        s.chase_left[i] = NONE
        s.chase_at[i] = np.inf
        if rules.gossip:
            offer(net, rules, scheme, s, node, i)


@njit(cache=True)
def offer(net, rules, scheme, s, node, i):
    """From now on others may have the event from here."""
    s.rounds_left[i] = rules.rounds
    s.answered[i] = 0
    if rules.gossip != PULL:
        s.round_at[i] = s.now[0]
        hold_round(net, rules, scheme, s, node, i)
    elif rules.rounds:
        s.round_at[i] = s.now[0] + rules.interval_s * unit(s.gossip_draws, i)
        push_timer(s, s.round_at[i], node, ROUND, i)


@njit(cache=True)
def _sample(s, i, size, count):
    """The first `count` of `s.scratch` become a random choice from 0 to size - 1."""
    for k in range(size):
        s.scratch[k] = k
    for k in range(min(count, size)):
        j = k + below(s.gossip_draws, i, size - k)
        s.scratch[k], s.scratch[j] = s.scratch[j], s.scratch[k]
    return min(count, size)


@njit(cache=True)
def hold_round(net, rules, scheme, s, node, i):
    """Tells some peers of the event, or sends them its packets."""
    if s.rounds_left[i] <= 0:
        return
    s.rounds_left[i] -= 1
    first = scheme.peers_first[i]
    count = _sample(s, i, scheme.peers_first[i + 1] - first, rules.fan_out)
    chosen = np.empty(count, np.int64)
    for k in range(count):
        chosen[k] = scheme.peers[first + s.scratch[k]]
    for peer in chosen:
        if rules.gossip == PUSH_MODE:
            _push_packets(net, rules, s, node, i, peer)
        else:
            s.counts[DIGEST] += 1
            send_peer(net, s, DIGEST, node, peer, NOTHING, PLAIN, NOTHING)
    s.round_at[i] = s.now[0] + rules.interval_s
    if s.rounds_left[i] > 0:
        push_timer(s, s.round_at[i], node, ROUND, i)


@njit(cache=True)
def _push_packets(net, rules, s, node, i, peer):
    count = _sample(s, i, rules.packets, rules.push_packets)
    for k in range(count):
        if rules.coded_gossip:
            _give(net, rules, s, PUSH, node, i, peer)
        else:
            s.counts[PUSH + PLAIN] += 1
            send_peer(net, s, PUSH, node, peer, s.scratch[k], PLAIN, NOTHING)


@njit(cache=True)
def _give(net, rules, s, kind, node, i, peer):
    """Sends a peer a fresh combination."""
    vector = fresh_vector(rules, s, node, word(s.gossip_draws, i))
    s.counts[kind + RECODED] += 1
    slot = send_peer(net, s, kind, node, peer, NONE, RECODED, NOTHING)
    if slot >= 0:
        s.vector[slot] = vector


@njit(cache=True)
def round_due(net, rules, scheme, s, node, i):
    if s.round_at[i] == s.now[0] and s.rounds_left[i] > 0:
        hold_round(net, rules, scheme, s, node, i)


@njit(cache=True)
def announced(net, rules, scheme, s, node, sender):
    """A peer has the event."""
    i = node - rules.brokers
    if s.done_s[i] < np.inf:
        return
    if s.chase_left[i] == NONE:
        s.source_count[i] = 1
        s.sources[i, 0] = sender
        s.chase_left[i] = max(1, rules.rounds)
        if rules.patience_s > 0.0:
            s.chase_at[i] = s.now[0] + rules.patience_s
            push_timer(s, s.chase_at[i], node, CHASE, i)
        else:
            _ask(net, rules, s, node, i)
        return
    for k in range(s.source_count[i]):
        if s.sources[i, k] == sender:
            return
    s.sources[i, s.source_count[i]] = sender
    s.source_count[i] += 1


@njit(cache=True)
def chase_due(net, rules, s, node, i):
    if s.chase_at[i] == s.now[0] and s.chase_left[i] != NONE:
        _ask(net, rules, s, node, i)


@njit(cache=True)
def _ask(net, rules, s, node, i):
    """Asks a peer that has announced the event for what is missing."""
    if s.chase_left[i] == 0:
        s.chase_left[i] = NONE
        s.chase_at[i] = np.inf
        return
    s.chase_left[i] -= 1
    s.chase_at[i] = s.now[0] + rules.interval_s
    push_timer(s, s.chase_at[i], node, CHASE, i)
    count = s.source_count[i]
    source = np.int64(s.sources[i, 0 if count == 1 else below(s.gossip_draws, i, count)])
    missing = rules.packets - s.ranks[node]
    s.counts[REQUEST] += 1
    if not rules.coded_gossip:
        s.counts[REQUEST_NUMBERS] += missing
    slot = send_peer(net, s, REQUEST, node, source, missing, PLAIN, NOTHING)
    if slot >= 0 and not rules.coded_gossip:
        for k in range(rules.packets):
            s.vector[slot, k] = not s.known[node, k]


@njit(cache=True)
def asked(net, rules, s, node, i, sender, missing, wanted):
    """A peer misses packets, and gets as many as it may have."""
    if s.rounds_left[i] == NONE:
        return
    budget = _ANSWERS * rules.packets - s.answered[i, sender - rules.brokers]
    count = min(missing, budget)
    s.answered[i, sender - rules.brokers] += count
    if rules.coded_gossip:
        for _ in range(count):
            _give(net, rules, s, REPLY, node, i, sender)
        if count < missing:
            word(s.gossip_draws, i)  # the packet beyond the budget is drawn and not sent
        return
    given = 0
    for k in range(rules.packets):
        if wanted[k] and given < count:
            given += 1
            s.counts[REPLY + PLAIN] += 1
            send_peer(net, s, REPLY, node, sender, k, PLAIN, NOTHING)
