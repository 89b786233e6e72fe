"""The arrays of the compiled simulation: the network, one scheme of dissemination, the state of an event.

All are named tuples of arrays, as Numba takes these. Nodes are brokers, then subscribers; the publisher's home broker
also has a place behind the subscribers for its gossip, where it gossips itself.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "ACK",
    "ACK_LOCAL",
    "COUNTS",
    "DATA",
    "DATA_LOCAL",
    "DIGEST",
    "NONE",
    "NOTHING",
    "ONCE",
    "PLAIN",
    "PUSH",
    "RECODED",
    "REPLY",
    "REQUEST",
    "REQUEST_NUMBERS",
    "SEEDED",
    "Net",
    "Rules",
    "Scheme",
    "State",
    "new_state",
]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Words = NDArray[np.uint64]
Bytes = NDArray[np.uint8]


def _constants(*values: int) -> tuple[int, ...]:
    """Numbers that compiled code takes as such: of a literal each value would be a type of its own, and every function
    that it is given to would be compiled for each."""
    return tuple(np.int64(value) for value in values)  # type: ignore[misc]


NONE, NOTHING, ONCE = _constants(-1, 0, 1)
PLAIN, SEEDED, RECODED = _constants(0, 1, 2)
"""The forms in which a packet says what it is made of."""
DATA, ACK, DIGEST, REQUEST, PUSH, REPLY = _constants(0, 3, 4, 5, 6, 9)
"""Kinds of messages, and where they are counted. Data, pushes and replies are counted by their form: three places."""
DATA_LOCAL, ACK_LOCAL, REQUEST_NUMBERS, COUNTS = _constants(12, 15, 16, 17)
"""The places at which packets and acknowledgements between a home broker and its subscribers are counted, and the
numbers of plain packets in requests; how many places there are."""


class Net(NamedTuple):
    """Links in one direction each, and the way of a message from any node to any other over them.

    The way from place i to place j is `way[starts[i, j] : starts[i, j] + lengths[i, j]]`; a place is a broker, and the
    access links of subscribers come first and last. Overlay links are the first `overlay_links`.
    """

    loss: Floats
    to_bad: Floats
    to_good: Floats
    """Per packet; a link with `to_good` 0 loses packets independently."""
    latency_s: Floats
    packet_s: Floats
    """Time that a link takes for a packet; 0 where it takes all at once."""
    home: Ints
    """The broker of each node; its own for a broker."""
    up: Ints
    down: Ints
    """Access links of each node; -1 for a broker."""
    starts: Ints
    lengths: Ints
    way: Ints
    delays_s: Floats
    """Latency of the way between two brokers."""
    peer_loss: float
    """Loss of any message between peers; below 0: what the links on its way lose."""
    overlay_links: int
    seed: np.uint64


class Rules(NamedTuple):
    """One scheme's settings, as numbers."""

    packets: int
    sent: int
    bits: int
    recode: bool
    retransmit: bool
    retransmit_s: float
    tries_max: int
    flush_s: float
    gossip: int
    """0 none, 1 push, 2 push-pull, 3 pull."""
    coded_gossip: bool
    fan_out: int
    rounds: int
    interval_s: float
    patience_s: float
    push_packets: int
    publisher_gossips: bool
    deadline_s: float
    source: int
    brokers: int
    subscribers: int


class Scheme(NamedTuple):
    """Senders and receivers: the branches of each broker, and the peers that each gossiping node knows."""

    first: Ints
    """Branches of broker b: from `first[b]` up to `first[b + 1]`."""
    neighbour: Ints
    link: Ints
    count: Ints  # type: ignore[assignment]
    contended: Flags
    wants: Flags
    """Of each branch and number of a packet."""
    expected: Ints
    order: Ints
    """The packets of the publisher, in order: branch and number (-1: a combination of its own) of each packet."""
    peers_first: Ints
    peers: Ints
    inverses: Bytes


class State(NamedTuple):
    """All that changes while one event is delivered. Only the random streams and the round trips outlive an event.

    A *slot* holds one message in flight. A *branch* is one outgoing link of one broker in the scheme. A *gossiper* is a
    subscriber, or, in the last place, the publisher's home broker.
    """

    relay_draws: Words
    """[broker] The state of its random stream."""
    gossip_draws: Words
    """[gossiper] The state of its random stream."""
    trips: Floats
    """[branch, 2] Mean and deviation of the measured round trip, in seconds; below 0 while none was measured."""

    # The event queue: a binary heap over messages and timers, ordered by (time, key).
    heap_time: Floats
    """[heap] When it is due."""
    heap_key: Ints
    """[heap] What comes first at equal times: messages in the order of sending, then timers by node and kind."""
    heap_slot: Ints
    """[heap] The slot of a message; for a timer, the branch or gossiper that it is of."""

    # Messages in flight.
    kind: Ints
    """[slot] DATA, ACK, DIGEST, REQUEST, PUSH or REPLY."""
    sender: Ints
    """[slot] The node that sent it."""
    to: Ints
    """[slot] The node that gets it."""
    number: Ints
    """[slot] The number of a plain packet, NONE for a combination; for a REQUEST, how many packets are missing."""
    form: Ints
    """[slot] PLAIN, SEEDED or RECODED."""
    extra: Ints
    """[slot] For DATA and ACK: 256 times the branch, plus the number of this transmission."""
    vector: Bytes
    """[slot, packet] Coefficients of a combination; for ACK and REQUEST, flags of the packets received or wanted."""
    free: Ints
    """[slot] A stack of unused slots."""

    # Links.
    passed: Ints
    """[link] Packets sent over it so far: the position in its random stream."""
    is_bad: Flags
    """[link] The state of a Gilbert-Elliott link at its last packet."""
    busy_s: Floats
    """[link] When it has sent all that it was given."""

    # The decoder of each node: brokers, subscribers, and the publisher as a gossiper.
    matrix: Bytes
    """[node, row, column] Rows of coefficients in echelon form."""
    words: Words
    """[node, row, column / 8] The same memory, eight coefficients at a time."""
    pivots: Ints
    """[node, column] The row whose pivot the column is; -1 where there is none."""
    known: Flags
    """[node, packet] Whether the packet is known by itself."""
    used: Ints
    """[node] Rows in use."""
    ranks: Ints
    """[node] Independent packets received."""

    # Brokers.
    seen: Flags
    """[broker, number] Whether the numbered packet came before."""
    owed: Ints
    """[branch] Packets sent along it."""
    credit: Floats
    """[branch] Fractions of combinations that it is owed for packets received."""
    flush_at: Floats
    """[broker] When it sends the rest that it owes; infinite if no timer is set."""

    # Retransmission by hop: packets sent and not yet acknowledged.
    tries: Ints
    """[branch, number] Transmissions of a packet that waits for its acknowledgement; 0 if it waits for none."""
    sent_at: Floats
    """[branch, number] The time of its last transmission."""
    sent_order: Ints
    """[branch, number] The order of its last transmission among all."""
    was_alone: Flags
    """[branch, number] Whether nothing else waited then: only such packets measure a round trip."""
    waiting: Ints
    """[branch] Packets that wait for an acknowledgement."""
    silences: Ints
    """[branch] Timeouts since the last acknowledgement: each doubles the next."""
    again_at: Floats
    """[branch] When the oldest is sent again; infinite if none waits."""

    # Gossip.
    rounds_left: Ints
    """[gossiper] Rounds in which it still offers the event; -1 where nothing is offered."""
    round_at: Floats
    """[gossiper] When its next round begins."""
    chase_at: Floats
    """[gossiper] When it asks again for what is missing."""
    chase_left: Ints
    """[gossiper] Requests that it may still send; -1 where nothing is asked for."""
    sources: NDArray[np.int32]
    """[gossiper, i] The peers that announced the event to it."""
    source_count: Ints
    """[gossiper] How many these are."""
    answered: NDArray[np.int32]
    """[gossiper, subscriber] Packets that it has given to another one."""

    # The outcome of the event.
    done_s: Floats
    """[subscriber] When it could decode the event; infinite before."""
    recovered: Flags
    """[subscriber] Whether a peer's packet completed it."""
    counts: Ints
    """[COUNTS] Messages by kind and form."""

    scratch: Ints
    """Room for drawing a random sample."""
    now: Floats
    """[1] The present time, an array so that it can change."""
    numbers: Ints
    """[7] Entries in the heap, messages so far, free slots, whether there was no room, the number of the event, timers
    so far, and transmissions so far."""


def new_state(net: Net, rules: Rules, scheme: Scheme, seed: int, capacity: int, nodes: int) -> State:
    """Returns a state in which nothing has happened, with room for `capacity` messages and timers."""
    from surecast.protocol.gossip.splitmix import Draws

    branches, links = len(scheme.neighbour), len(net.loss)
    numbered = (branches, rules.sent) if rules.retransmit else (branches, 1)
    columns = (rules.packets + 7) // 8 * 8
    matrix = np.zeros((nodes, rules.packets, columns), dtype=np.uint8)
    gossiping = rules.subscribers + 1
    # The streams are those of the nodes with these numbers.
    gossipers = [*range(rules.brokers, rules.brokers + rules.subscribers), rules.source]

    def ints(*shape: int) -> Any:
        return np.zeros(shape, dtype=np.int64)

    def flags(*shape: int) -> Any:
        return np.zeros(shape, dtype=np.bool_)

    return State(
        relay_draws=np.array([Draws(seed, node + 1)._state for node in range(rules.brokers)], dtype=np.uint64),
        gossip_draws=np.array([Draws(seed, node + 1)._state for node in gossipers], dtype=np.uint64),
        trips=np.full((branches, 2), -1.0),
        heap_time=np.zeros(capacity),
        heap_key=ints(capacity),
        heap_slot=ints(capacity),
        kind=ints(capacity),
        sender=ints(capacity),
        to=ints(capacity),
        number=ints(capacity),
        form=ints(capacity),
        extra=ints(capacity),
        vector=np.zeros((capacity, columns), dtype=np.uint8),
        free=np.arange(capacity, dtype=np.int64),
        passed=ints(links),
        is_bad=flags(links),
        busy_s=np.zeros(links),
        matrix=matrix,
        words=matrix.view(np.uint64),
        pivots=np.full((nodes, rules.packets), -1, dtype=np.int64),
        known=flags(nodes, rules.packets),
        used=ints(nodes),
        ranks=ints(nodes),
        seen=flags(rules.brokers, rules.sent),
        owed=ints(branches),
        credit=np.zeros(branches),
        flush_at=np.full(rules.brokers, np.inf),
        tries=ints(*numbered),
        sent_at=np.zeros(numbered),
        sent_order=ints(*numbered),
        was_alone=flags(*numbered),
        waiting=ints(branches),
        silences=ints(branches),
        again_at=np.full(branches, np.inf),
        rounds_left=ints(gossiping),
        round_at=np.full(gossiping, np.inf),
        chase_at=np.full(gossiping, np.inf),
        chase_left=ints(gossiping),
        sources=np.zeros((gossiping, gossiping if rules.gossip else 1), dtype=np.int32),
        source_count=ints(gossiping),
        answered=np.zeros((gossiping, rules.subscribers if rules.gossip else 1), dtype=np.int32),
        done_s=np.full(rules.subscribers, np.inf),
        recovered=flags(rules.subscribers),
        counts=ints(COUNTS),
        scratch=ints(max(rules.subscribers + 1, rules.packets)),
        now=np.zeros(1),
        numbers=ints(7),
    )
