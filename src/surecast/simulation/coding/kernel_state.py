"""What the compiled path of coded delivery works on: the network, one scheme of dissemination, the state of an event.

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
"""How a packet says what it is made of."""
DATA, ACK, DIGEST, REQUEST, PUSH, REPLY = _constants(0, 3, 4, 5, 6, 9)
"""Kinds of messages, and where they are counted. Data, pushes and replies are counted by their form: three places."""
DATA_LOCAL, ACK_LOCAL, REQUEST_NUMBERS, COUNTS = _constants(12, 15, 16, 17)
"""Where packets and acknowledgements between a home broker and its subscribers are counted, and the numbers of plain
packets in requests; how many places there are."""


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
    """Who sends what to whom: the branches of each broker, and the peers that each gossiping node knows."""

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
    """What the publisher sends, in order: branch and number (-1: a combination of its own) of each packet."""
    peers_first: Ints
    peers: Ints
    inverses: Bytes


class State(NamedTuple):
    """What changes. Of all this only the draws and the round trips outlive an event."""

    relay_draws: Words
    gossip_draws: Words
    trips: Floats
    """Mean and deviation of the round trip of each branch; below 0 where there is none."""
    # messages under way, and timers
    heap_time: Floats
    heap_key: Ints
    heap_slot: Ints
    kind: Ints
    sender: Ints
    to: Ints
    number: Ints
    form: Ints
    extra: Ints
    vector: Bytes
    free: Ints
    # links
    passed: Ints
    is_bad: Flags
    busy_s: Floats
    # what each node has: brokers, subscribers, and the publisher as one who gossips
    matrix: Bytes
    words: Words
    pivots: Ints
    known: Flags
    used: Ints
    ranks: Ints
    # brokers
    seen: Flags
    owed: Ints
    credit: Floats
    flush_at: Floats
    # packets that wait for an acknowledgement, by branch and number, and branches where some do
    tries: Ints
    sent_at: Floats
    sent_order: Ints
    was_alone: Flags
    waiting: Ints
    silences: Ints
    again_at: Floats
    # gossip
    rounds_left: Ints
    """-1 where nothing is offered."""
    round_at: Floats
    chase_at: Floats
    chase_left: Ints
    """-1 where nothing is asked for."""
    sources: NDArray[np.int32]
    source_count: Ints
    answered: NDArray[np.int32]
    """Packets that each node has given to each other."""
    # outcome of the event
    done_s: Floats
    recovered: Flags
    counts: Ints
    scratch: Ints
    now: Floats
    """Time, alone in its array so that it can change."""
    numbers: Ints
    """Entries in the heap, messages and timers so far, free slots, overflow, event number, a number for timers, and
    one for transmissions."""


def new_state(net: Net, rules: Rules, scheme: Scheme, seed: int, capacity: int, nodes: int) -> State:
    """A state in which nothing has happened."""
    from surecast.protocol.gossip.draws import Draws

    branches = len(scheme.neighbour)
    numbered = (branches, rules.sent) if rules.retransmit else (branches, 1)
    columns = (rules.packets + 7) // 8 * 8
    matrix = np.zeros((nodes, rules.packets, columns), dtype=np.uint8)
    gossiping = rules.subscribers + 1
    # The streams are those of the nodes with these numbers.
    relay = np.array([Draws(seed, node + 1)._state for node in range(rules.brokers)], dtype=np.uint64)
    numbers = [*range(rules.brokers, rules.brokers + rules.subscribers), rules.source]
    gossip = np.array([Draws(seed, node + 1)._state for node in numbers], dtype=np.uint64)

    def ints(*shape: int) -> Any:
        return np.zeros(shape, dtype=np.int64)

    links = len(net.loss)
    return State(
        relay,
        gossip,
        np.full((branches, 2), -1.0),
        np.zeros(capacity),
        ints(capacity),
        ints(capacity),
        ints(capacity),
        ints(capacity),
        ints(capacity),
        ints(capacity),
        ints(capacity),
        ints(capacity),
        np.zeros((capacity, columns), dtype=np.uint8),
        np.arange(capacity, dtype=np.int64),
        ints(links),
        np.zeros(links, dtype=np.bool_),
        np.zeros(links),
        matrix,
        matrix.view(np.uint64),
        np.full((nodes, rules.packets), -1, dtype=np.int64),
        np.zeros((nodes, rules.packets), dtype=np.bool_),
        ints(nodes),
        ints(nodes),
        np.zeros((rules.brokers, rules.sent), dtype=np.bool_),
        ints(branches),
        np.zeros(branches),
        np.full(rules.brokers, np.inf),
        ints(*numbered),
        np.zeros(numbered),
        ints(*numbered),
        np.zeros(numbered, dtype=np.bool_),
        ints(branches),
        ints(branches),
        np.full(branches, np.inf),
        ints(gossiping),
        np.full(gossiping, np.inf),
        np.full(gossiping, np.inf),
        ints(gossiping),
        np.zeros((gossiping, gossiping if rules.gossip else 1), dtype=np.int32),
        ints(gossiping),
        np.zeros((gossiping, rules.subscribers if rules.gossip else 1), dtype=np.int32),
        np.full(rules.subscribers, np.inf),
        np.zeros(rules.subscribers, dtype=np.bool_),
        ints(COUNTS),
        ints(max(rules.subscribers + 1, rules.packets)),
        np.zeros(1),
        ints(7),
    )
