"""Compiled gossip of one event in a group: who tells whom, who asks whom, and how many packets come of it.

What is drawn is no packet: only how many of an answer get through, and of these how many are of use.
"""
# The kernels take many arrays and are typed by Numba.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from surecast.kernels import njit
from surecast.prediction.coding.gossip_kernel_parts import (
    UNMET,
    PendingEvents,
    among,
    new,
    new_pending_events,
    pop,
    push,
    some_of,
    through,
    unit,
)

__all__ = [
    "DIGEST",
    "PULL",
    "PUSH",
    "PUSH_PULL",
    "REPLY",
    "REQUEST",
    "Laws",
    "PathArrivals",
    "Ways",
    "follow_groups",
    "new_state",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PUSH, PUSH_PULL, PULL = 1, 2, 3
DIGEST, REQUEST, REPLY = 0, 1, 2
"""Indices of messages in the counts; pushed packets stand where answers do."""
_ROUND, _HEARD, _ASK, _COME, _PATHS = 0, 1, 2, 3, 4
"""Pending events: a round of announcements, an announcement arrives, a request is due, packets of a peer arrive, the
paths have brought enough."""
_ANSWERS = 2
_GIVERS_MAX = 256
"""Peers of which one member remembers that they have the event."""


class Laws(NamedTuple):
    """The parameters of gossip in a group. The publisher, if it gossips too, is the last member and has the event from
    the start.

    `waste` is one over the size of the field: who misses d packets learns nothing from a combination with chance
    waste^d. An event is kept for others for `kept_s`.
    """

    mode: int
    members: int
    has_publisher: bool
    packets: int
    coded: bool
    waste: float
    fan_out: int
    view_size: int
    rounds: int
    interval_s: float
    patience_s: float
    pushed: int
    kept_s: float
    deadline_s: float


class Ways(NamedTuple):
    """The connections between the sites of members: the site of each, and between each two the success probability
    and the latency of a message. With bursty links also the links on each way, one after the other from `first` on, and
    of each link the loss and the probabilities to become bad and good again; `beside` is the probability to pass
    everything else that may lose.
    """

    site: Ints
    success: Floats
    latency_s: Floats
    first: Ints
    way: Ints
    loss: Floats
    to_bad: Floats
    to_good: Floats
    beside: float


class PathArrivals(NamedTuple):
    """The packets that paths bring to sites (columns): the time of the first packet, that of the last, and that at
    which relays have made up for losses; and in draws (rows) the number of packets missing at the second time and from
    the third on.
    """

    first_s: Floats
    last_s: Floats
    again_s: Floats
    missed: Ints
    missed_again: Ints


class GossipState(NamedTuple):
    """One event in a group: the pending events of the calculation, and what each member has, asks and announces.

    The publisher, if it gossips, stands behind the members in the arrays by *gossiper*.
    """

    queue: PendingEvents
    now: Floats
    """[1] The present time, an array so that it can change."""
    gained: Ints
    """[member] Packets that it got from peers."""
    tries: Ints
    """[member] Requests that it may still send; -1 while it asks nobody."""
    ask_s: Floats
    """[member] When it asks next."""
    known: Ints
    """[member] How many peers it knows to have the event."""
    givers: Ints
    """[member, i] These peers."""
    given: Ints
    """[member, i] Packets that the i-th of them has given to it."""
    is_source: NDArray[np.bool_]
    """[member, i] Whether the i-th of them may be asked: it announced the event since the requests began."""
    since_s: Floats
    """[gossiper] Since when it is complete; infinite before."""
    rounds: Ints
    """[gossiper] Rounds of announcements that it still holds."""
    order: Ints
    """[member] Room for drawing a view: all members in some order."""
    views: Ints
    """[gossiper, i] The peers that it gossips with."""
    view_of: Ints
    """[gossiper] How many these are; -1 while they are not drawn."""
    links: Ints
    """[link] The state of a bursty link at its last packet, or UNMET."""


def new_state(laws: Laws, ways: Ways, capacity: int) -> GossipState:
    """Returns the arrays for a group, with space for `capacity` pending events."""
    members, everyone = laws.members, laws.members + laws.has_publisher
    return GossipState(
        queue=new_pending_events(capacity),
        now=np.zeros(1),
        gained=np.empty(members, dtype=np.int64),
        tries=np.empty(members, dtype=np.int64),
        ask_s=np.empty(members),
        known=np.empty(members, dtype=np.int64),
        givers=np.empty((members, _GIVERS_MAX), dtype=np.int64),
        given=np.empty((members, _GIVERS_MAX), dtype=np.int64),
        is_source=np.empty((members, _GIVERS_MAX), dtype=np.bool_),
        since_s=np.empty(everyone),
        rounds=np.empty(everyone, dtype=np.int64),
        order=np.arange(members),
        views=np.empty((everyone, min(laws.view_size, members)), dtype=np.int64),
        view_of=np.empty(everyone, dtype=np.int64),
        links=np.empty(len(ways.loss), dtype=np.int64),
    )


@njit(cache=True)
def follow_groups(words, laws, ways, arrival, s, by_site, start, done_s, helped, counts):
    """Follows an event in each draw from `start` on. Writes when each member (columns) is complete, infinite if not in
    time, and whether a peer completed it; and adds to the counts of messages. Returns the first draw that was not
    followed, for want of room.

    `by_site`: members of one site miss the same packets, so that draws of what they miss are by site.
    """
    mine = np.zeros(3, np.int64)
    for draw in range(start, len(done_s)):
        done_s[draw] = np.inf
        helped[draw] = False
        mine[:] = 0
        _begin(words, laws, ways, arrival, s, draw, by_site)
        times_s, things, numbers = s.queue
        while numbers[0] > 0 and times_s[0] < laws.deadline_s and numbers[2] == 0:
            s.now[0] = times_s[0]
            kind, i, a, b = things[0, 0], things[0, 1], things[0, 2], things[0, 3]
            pop(s.queue)
            if kind == _ROUND:
                _hold_round(words, laws, ways, s, i, mine)
                continue
            if s.since_s[i] < np.inf:
                continue
            if kind == _HEARD:
                _hear(laws, s, i, a)
                continue
            site = ways.site[i]
            column = site if by_site else i
            missing = _missing(laws, arrival, draw, column, site, s.now[0]) - s.gained[i]
            if kind == _ASK:
                if s.ask_s[i] == s.now[0]:
                    _ask(words, laws, ways, s, i, missing, mine)
                continue
            if kind == _COME:
                # Of the packets that were missed then, so many came; some have come otherwise since.
                useful = new(words, laws.waste, missing, b) if laws.coded else among(words, a, missing, b)
                missing -= useful
                s.gained[i] += useful
                if missing > 0 and useful > 0:
                    due_s = _paths_s(laws, arrival, draw, column, site, s.gained[i])
                    push(s.queue, max(due_s, s.now[0]), _PATHS, i, 0, 0)
                helped[draw, i] = missing <= 0
            if missing <= 0:
                done_s[draw, i] = s.now[0]
                _complete(words, laws, s, i)
        if numbers[2] != 0:
            return draw
        counts += mine
    return len(done_s)


@njit(cache=True)
def _begin(words, laws, ways, arrival, s, draw, by_site):
    """Packets set out; a publisher that gossips has the event."""
    s.queue.numbers[:] = 0
    s.now[0] = 0.0
    s.gained[:] = 0
    s.tries[:] = -1
    s.ask_s[:] = np.inf
    s.known[:] = 0
    s.since_s[:] = np.inf
    s.view_of[:] = -1
    s.links[:] = UNMET
    for i in range(laws.members):
        site = ways.site[i]
        push(s.queue, _paths_s(laws, arrival, draw, site if by_site else i, site, 0), _PATHS, i, 0, 0)
    if laws.has_publisher:
        _complete(words, laws, s, laws.members)


@njit(cache=True)
def _complete(words, laws, s, i):
    """Marks a member as complete; from now on it announces the event."""
    s.since_s[i] = s.now[0]
    s.rounds[i] = laws.rounds
    push(s.queue, s.now[0] + (laws.interval_s * unit(words) if laws.mode == PULL else 0.0), _ROUND, i, 0, 0)


@njit(cache=True)
def _hold_round(words, laws, ways, s, i, counts):
    """Tells some peers of the event, or sends them packets."""
    if s.rounds[i] == 0 or s.now[0] - s.since_s[i] >= laws.kept_s:
        return
    s.rounds[i] -= 1
    push(s.queue, s.now[0] + laws.interval_s, _ROUND, i, 0, 0)
    if s.view_of[i] < 0:
        s.view_of[i] = some_of(words, s.order, s.views[i], i)
    view, peers = s.views[i], s.view_of[i]
    here = ways.site[i]
    is_bursty = len(ways.first) > 1
    for k in range(min(laws.fan_out, peers)):
        j = k + int(unit(words) * (peers - k))
        view[k], view[j] = view[j], view[k]
        peer = view[k]
        there = ways.site[peer]
        counts[REPLY if laws.mode == PUSH else DIGEST] += laws.pushed if laws.mode == PUSH else 1
        # Where losses are one by one it does not matter what becomes of messages to those who are complete.
        if s.since_s[peer] < np.inf and not is_bursty:
            continue
        received = through(words, ways, s.links, here, there, laws.pushed if laws.mode == PUSH else 1)
        due_s = s.now[0] + ways.latency_s[here, there]
        if received > 0 and laws.mode == PUSH:
            push(s.queue, due_s, _COME, peer, laws.packets, received)
        elif received > 0:
            push(s.queue, due_s, _HEARD, peer, i, 0)


@njit(cache=True)
def _hear(laws, s, i, sender):
    """Notes that a peer has the event, for a member that misses packets; the first announcer is asked for them."""
    k = 0
    while k < s.known[i] and s.givers[i, k] != sender:
        k += 1
    if k == _GIVERS_MAX:
        return
    if k == s.known[i]:
        s.known[i] += 1
        s.givers[i, k] = sender
        s.given[i, k] = 0
        s.is_source[i, k] = False
    if s.tries[i] < 0:
        s.is_source[i, : s.known[i]] = False
        s.tries[i] = max(1, laws.rounds)
        s.ask_s[i] = s.now[0] + laws.patience_s
        push(s.queue, s.ask_s[i], _ASK, i, 0, 0)
    s.is_source[i, k] = True


@njit(cache=True)
def _ask(words, laws, ways, s, i, missing, counts):
    """Requests packets from a peer that announced the event; after the last try a new announcement starts again."""
    if s.tries[i] == 0:
        s.tries[i] = -1
        return
    s.tries[i] -= 1
    s.ask_s[i] = s.now[0] + laws.interval_s
    push(s.queue, s.ask_s[i], _ASK, i, 0, 0)
    chosen, sources = 0, 0
    for k in range(s.known[i]):
        if s.is_source[i, k]:
            sources += 1
            if unit(words) * sources < 1.0:
                chosen = k
    counts[REQUEST] += 1
    giver = s.givers[i, chosen]
    here, there = ways.site[i], ways.site[giver]
    asked_s = s.now[0] + ways.latency_s[here, there]
    is_held = asked_s < laws.deadline_s and asked_s - s.since_s[giver] < laws.kept_s
    if through(words, ways, s.links, here, there, 1) == 0 or not is_held:
        return
    sent = min(missing, _ANSWERS * laws.packets - s.given[i, chosen])
    s.given[i, chosen] += sent
    counts[REPLY] += sent
    received = through(words, ways, s.links, there, here, sent)
    if received > 0:
        push(s.queue, asked_s + ways.latency_s[there, here], _COME, i, missing, received)


@njit(cache=True)
def _missing(laws, arrival, draw, column, site, now):
    """Returns packets that paths have not brought by now."""
    if now >= arrival.again_s[site]:
        return arrival.missed_again[draw, column]
    first_s, last_s = arrival.first_s[site], arrival.last_s[site]
    if now < first_s:
        return laws.packets
    missed = arrival.missed[draw, column]
    if now >= last_s:
        return missed
    # They come one after the other.
    return laws.packets - int((laws.packets - missed) * (now - first_s) / (last_s - first_s) + 1e-9)


@njit(cache=True)
def _paths_s(laws, arrival, draw, column, site, gained):
    """Returns the time at which paths have brought all but `gained` packets; infinite if never."""
    missed = arrival.missed[draw, column]
    first_s, last_s = arrival.first_s[site], arrival.last_s[site]
    if missed <= gained:
        needed = laws.packets - gained
        part = needed / max(1, laws.packets - missed)
        return first_s + part * (last_s - first_s)
    if arrival.missed_again[draw, column] <= gained:
        return arrival.again_s[site]
    return np.inf
