"""Gossip among the active subscribers of an event: announcing, asking, answering and pushing, until the deadline.

`coded delivery` section IV, recovery phase. Whoever has notified an event starts; whoever misses packets asks for as
many as it misses, not for particular ones, as any independent combination will do.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, TypeAlias

from surecast.protocol.coding import Packet
from surecast.protocol.gossip.gossip_messages import Announced, Announcement, PacketRequest, Push, Reply, Wanted
from surecast.protocol.gossip.gossip_settings import GossipSettings
from surecast.protocol.gossip.holding import Holding
from surecast.protocol.gossip.splitmix import Draws

__all__ = ["GossipMessage", "Gossiper", "Outgoing"]

GossipMessage: TypeAlias = Announcement | PacketRequest | Push | Reply
Outgoing: TypeAlias = tuple[int, GossipMessage]
"""The receiving peer and the message."""

_ANSWERS: Final = 2
"""A peer is answered with at most this many times the packets of the event: a repeated request gains nothing."""


@dataclass(slots=True)
class _Offer:
    """An event that this subscriber offers to others."""

    holding: Holding
    rounds_left: int
    due_s: float
    answered: Counter[int] = field(default_factory=Counter)


@dataclass(slots=True)
class _Chase:
    """An event that is asked for: the peers to ask, the tries left, and the time of the next."""

    holding: Holding
    sources: list[int]
    tries_left: int
    due_s: float


class Gossiper:
    """The gossip of one subscriber. It keeps no decoders of its own: holdings are handed to it.

    `counts` says what was refused and why: `expired`, `not held`, `answered enough`, `evicted`, `too large`.

    >>> from surecast.protocol.coding import CodingSettings, EventEncoder
    >>> coding = CodingSettings(packets=2, packet_bytes=1)
    >>> giver, taker = (Gossiper(node, GossipSettings(fan_out=1), seed=1) for node in (1, 2))
    >>> giver.meet(0, [2])
    >>> whole, nothing = (Holding(Announced(9, 0, 2, deadline_s=5.0), coding) for _ in range(2))
    >>> for packet in EventEncoder(9, b"ab", coding, seed=1).plain():
    ...     _ = whole.add(packet)
    >>> [(peer, digest)] = giver.offer(whole, now=1.0)
    >>> [(peer, request)] = taker.announced(digest.events[0], nothing, sender=1, now=1.1)
    >>> request
    PacketRequest(event_id=9, wanted=(Wanted(generation=0, count=2, numbers=()),))
    >>> len(giver.asked(request, sender=2, now=1.2))
    2
    """

    def __init__(self, node: int, settings: GossipSettings, seed: int):
        self.node = node
        self.settings = settings
        self.counts: Counter[str] = Counter()
        self._draws = Draws(seed, node + 1)
        self._views: dict[int, tuple[int, ...]] = {}
        self._offers: dict[int, _Offer] = {}
        self._chases: dict[int, _Chase] = {}
        self._kept_packets = 0
        self._pull_due_s = math.inf

    @property
    def kept_packets(self) -> int:
        """Packets kept for others."""
        return self._kept_packets

    def meet(self, group: int, peers: list[int] | tuple[int, ...]) -> None:
        """Sets the partial view of a group: some of its active subscribers, without this one."""
        self._views[group] = tuple(peer for peer in peers if peer != self.node)

    def leave(self, group: int) -> None:
        """Forgets a group and what is gossiped in it."""
        self._views.pop(group, None)
        for event_id in [e for e, offer in self._offers.items() if offer.holding.announced.group == group]:
            self._withdraw(event_id)
        for event_id in [e for e, chase in self._chases.items() if chase.holding.announced.group == group]:
            del self._chases[event_id]

    def offer(self, holding: Holding, now: float) -> list[Outgoing]:
        """Offers an event to others once it is complete here (with `partial`, whenever it has grown)."""
        event = holding.announced
        if holding.complete:
            self._chases.pop(event.event_id, None)
        if now >= event.deadline_s:
            self.counts["expired"] += 1
            return []
        if event.event_id in self._offers:
            return []
        if not self._make_room(holding.layout.packets):
            self.counts["too large"] += 1
            return []
        self._kept_packets += holding.layout.packets
        offer = self._offers[event.event_id] = _Offer(holding, self.settings.rounds, now)
        if self.settings.mode != "pull":
            return self._round(offer, now)
        if self._pull_due_s == math.inf and offer.rounds_left:
            # Subscribers that complete an event together should not all speak at once.
            self._pull_due_s = now + self.settings.interval_s * self._draws.unit()
        return []

    def announced(self, event: Announced, holding: Holding | None, sender: int, now: float) -> list[Outgoing]:
        """Handles the announcement of a peer. `holding` is None if the event is not wanted or is done with."""
        if holding is None or holding.complete:
            return []
        if now >= event.deadline_s:
            self.counts["expired"] += 1
            return []
        chase = self._chases.get(event.event_id)
        if chase is None:
            return self.chase(holding, [sender], now, self.settings.patience_s)
        if sender not in chase.sources and len(chase.sources) < self.settings.peers_max:
            chase.sources.append(sender)
        return []

    def chase(self, holding: Holding, sources: list[int], now: float, after_s: float = 0.0) -> list[Outgoing]:
        """Asks peers for what is missing of an event, one after the other until it is complete or time is up.

        A late subscriber gets the events that are under way by the same method.
        """
        event = holding.announced
        if now >= event.deadline_s or not sources or holding.complete:
            return []
        if len(self._chases) >= self.settings.events_max:
            del self._chases[next(iter(self._chases))]
            self.counts["evicted"] += 1
        tries = max(1, self.settings.rounds)
        chase = self._chases[event.event_id] = _Chase(holding, list(sources), tries, now + after_s)
        return [] if after_s else self._ask(chase, now)

    def asked(self, request: PacketRequest, sender: int, now: float) -> list[Outgoing]:
        """Answers the request of a peer with the packets held here, up to the limit for that peer."""
        offer = self._offers.get(request.event_id)
        if offer is None:
            self.counts["not held"] += 1
            return []
        event = offer.holding.announced
        if now >= event.deadline_s:
            self.counts["expired"] += 1
            return []
        if sender not in offer.answered and len(offer.answered) >= self.settings.peers_max:
            self.counts["answered enough"] += 1
            return []
        budget = _ANSWERS * offer.holding.layout.packets - offer.answered[sender]
        answer = (packet for wanted in request.wanted for packet in self._packets(offer.holding, wanted))
        packets = list(islice(answer, budget))
        if next(answer, None) is not None:
            self.counts["answered enough"] += 1
        offer.answered[sender] += len(packets)
        return [(sender, Reply(event.group, event.deadline_s, packet)) for packet in packets]

    def forget(self, event_id: int) -> None:
        """Forgets an event that is over: it is no longer offered, answered or asked for."""
        self._withdraw(event_id)
        self._chases.pop(event_id, None)

    def next_timer(self) -> float:
        """Returns the time at which to call `handle_timer` next; infinite if never."""
        times_s = [chase.due_s for chase in self._chases.values()]
        if self.settings.mode != "pull":
            times_s += [offer.due_s for offer in self._offers.values() if offer.rounds_left]
        return min(times_s, default=math.inf) if self._pull_due_s == math.inf else min([*times_s, self._pull_due_s])

    def handle_timer(self, now: float) -> list[Outgoing]:
        """Holds the rounds that are due, and asks again for what was not answered."""
        for table in (self._offers, self._chases):
            expired = [key for key, entry in table.items() if now >= entry.holding.announced.deadline_s]
            for event_id in expired:
                self.forget(event_id)
        out: list[Outgoing] = []
        for chase in [chase for chase in self._chases.values() if chase.due_s <= now]:
            out += self._ask(chase, now)
        if self.settings.mode != "pull":
            for offer in [o for o in self._offers.values() if o.rounds_left and o.due_s <= now]:
                out += self._round(offer, now)
        elif self._pull_due_s <= now:
            out += self._pull_round(now)
        return out

    def _round(self, offer: _Offer, now: float) -> list[Outgoing]:
        """Tells some peers of an event, or sends them its packets."""
        if not offer.rounds_left:
            return []
        offer.rounds_left -= 1
        offer.due_s = now + self.settings.interval_s
        event = offer.holding.announced
        peers = self._draws.sample(self._views.get(event.group, ()), self.settings.fan_out)
        if self.settings.mode == "push-pull":
            return [(peer, Announcement((event,))) for peer in peers]
        return [(peer, Push(event.group, event.deadline_s, packet)) for peer in peers for packet in self._pushed(offer)]

    def _pull_round(self, now: float) -> list[Outgoing]:
        """Tells some peers of each group of the latest events in it."""
        latest: dict[int, list[Announced]] = {}
        for offer in self._offers.values():
            if offer.rounds_left:
                offer.rounds_left -= 1
                latest.setdefault(offer.holding.announced.group, []).append(offer.holding.announced)
        more = any(offer.rounds_left for offer in self._offers.values())
        self._pull_due_s = now + self.settings.interval_s if more else math.inf
        out: list[Outgoing] = []
        for group, events in latest.items():
            peers = self._draws.sample(self._views.get(group, ()), self.settings.fan_out)
            out += [(peer, Announcement(tuple(events[-self.settings.digest_events :]))) for peer in peers]
        return out

    def _pushed(self, offer: _Offer) -> list[Packet]:
        """The packets of a push, spread evenly over the generations."""
        holding = offer.holding
        layout = holding.layout
        left = layout.packets if self.settings.push_packets is None else self.settings.push_packets
        packets: list[Packet] = []
        for generation in range(layout.generations):
            share = -(-left // (layout.generations - generation))
            left -= share
            numbers = self._draws.sample(range(layout.packets_in(generation)), share)
            packets += self._packets(holding, Wanted(generation, share, () if self.settings.coded else tuple(numbers)))
        return packets

    def _packets(self, holding: Holding, wanted: Wanted) -> Iterator[Packet]:
        generation = wanted.generation
        if not 0 <= generation < holding.layout.generations:
            return
        if not wanted.numbers:
            count = min(wanted.count, holding.decoder.rank_of(generation))
            yield from (holding.fresh(generation, self._draws.word()) for _ in range(count))
        elif holding.complete:
            plain = holding.plain(generation)
            yield from (plain[number] for number in wanted.numbers if number < len(plain))

    def _ask(self, chase: _Chase, now: float) -> list[Outgoing]:
        event = chase.holding.announced
        if not chase.tries_left:
            # A peer that announces the event again starts it anew.
            del self._chases[event.event_id]
            return []
        chase.tries_left -= 1
        chase.due_s = now + self.settings.interval_s
        source = chase.sources[-1] if len(chase.sources) == 1 else self._draws.sample(chase.sources, 1)[0]
        settings = self.settings
        wanted = chase.holding.missing(settings.coded, settings.request_generations, settings.request_numbers)
        return [(source, PacketRequest(event.event_id, wanted))]

    def _make_room(self, packets: int) -> bool:
        """Drops the oldest events until `packets` more fit. Returns whether they do."""
        if packets > self.settings.buffer_packets:
            return False
        while self._kept_packets + packets > self.settings.buffer_packets or (
            len(self._offers) >= self.settings.events_max
        ):
            self._withdraw(next(iter(self._offers)))
            self.counts["evicted"] += 1
        return True

    def _withdraw(self, event_id: int) -> None:
        offer = self._offers.pop(event_id, None)
        if offer is not None:
            self._kept_packets -= offer.holding.layout.packets
