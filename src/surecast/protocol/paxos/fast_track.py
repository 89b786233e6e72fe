"""The fast step as every replica sees it: which instances are open, who voted for what, and own proposals in them."""

from __future__ import annotations

from surecast.protocol.paxos.log_values import Segment, join_segments
from surecast.protocol.paxos.membership import Configuration
from surecast.protocol.paxos.node import Node
from surecast.protocol.paxos.paxos_messages import Propose, Voted

__all__ = ["FastTrack"]


class FastTrack:
    """The open instances of one ballot. `first` to `last` are open; none where the last is less than the first."""

    def __init__(self, node: Node):
        self.node = node
        self.ballot = 0
        self.first = 1
        self.last = 0
        self.digests: dict[int, dict[int, bytes]] = {}
        self.own: dict[int, list[Segment]] = {}
        self._next = 1

    def _turn_to(self, ballot: int) -> None:
        self.ballot, self.first, self.last = ballot, 1, 0
        self.digests.clear()
        self.own.clear()
        self._next = 1

    def open(self, ballot: int, first: int, last: int) -> None:
        """The leader opened instances (phase 2a with *any*). Taking part in its ballot is a promise to it."""
        node = self.node
        if ballot < self.ballot or last < first or ballot < node.acceptor.promised:
            return
        if node.voting:
            node.acceptor.promise(ballot)
        if ballot > self.ballot:
            self._turn_to(ballot)
        if last > self.last:
            self.first, self.last = first, last

    def is_open(self, ballot: int, slot: int) -> bool:
        """Returns whether anyone may propose there."""
        return ballot == self.ballot == self.node.acceptor.promised and self.first <= slot <= self.last

    def used(self, slot: int) -> None:
        """Somebody proposes at an instance: the own next proposal goes behind it."""
        if slot >= self._next and slot <= self.last:
            self._next = slot + 1

    def free_slot(self) -> int:
        """The next open instance that nobody is known to use; 0 where there is none."""
        slot = max(self._next, self.first, self.node.applied + 1)
        return slot if slot <= self.last and self.ballot == self.node.acceptor.promised else 0

    def propose(self, slot: int, segments: list[Segment], stamp_us: int) -> Propose:
        """An own proposal to all acceptors; the own acceptor gets the returned one."""
        message = Propose(self.ballot, slot, join_segments(stamp_us, segments))
        self.own[slot] = segments
        self.used(slot)
        for other in self.node.others():
            self.node.send(other, message)
        return message

    def on_voted(self, sender: int, message: Voted) -> None:
        """Counts a vote."""
        if message.ballot > self.ballot:
            self._turn_to(message.ballot)
        if message.ballot != self.ballot or message.slot <= self.node.applied:
            return
        if message.slot > self.node.applied + self.node.settings.vote_window:
            return
        self.used(message.slot)
        self.digests.setdefault(message.slot, {})[sender] = message.digest

    def winner(self, slot: int, configuration: Configuration) -> bytes | None:
        """The digest that has a fast quorum."""
        digests = self.digests.get(slot)
        if digests is None or len(digests) < configuration.fast_quorum:
            return None
        counts: dict[bytes, int] = {}
        for replica in configuration.ids:
            digest = digests.get(replica)
            if digest is not None:
                counts[digest] = counts.get(digest, 0) + 1
        return next((digest for digest, count in counts.items() if count >= configuration.fast_quorum), None)

    def applied(self, slot: int) -> list[Segment]:
        """Forgets a decided instance; the segments that this replica had proposed there."""
        self.digests.pop(slot, None)
        return self.own.pop(slot, [])

    def jumped(self, slot: int) -> None:
        """Forgets all up to an instance: a snapshot took their place."""
        self.digests = {number: digests for number, digests in self.digests.items() if number > slot}
        self.own = {number: segments for number, segments in self.own.items() if number > slot}
