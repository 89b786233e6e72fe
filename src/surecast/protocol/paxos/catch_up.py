"""Catching up: a replica that lacks instances asks for them; it gets values, or a snapshot where they are forgotten.

The one that lacks asks, a bounded piece at a time: a slow replica never has more under way than it can take.
"""

from __future__ import annotations

from surecast.protocol.paxos.messages import Entries, Fetch, SnapshotPart
from surecast.protocol.paxos.node import Node
from surecast.protocol.paxos.quorums import digest_of

__all__ = ["CatchUp"]

_SERVED_FACTOR = 10.0


class CatchUp:
    """Both sides: what this replica lacks, and what it has for others."""

    def __init__(self, node: Node):
        self.node = node
        self.snapshots: dict[int, tuple[bytes, bytes]] = {}  # by instance: data and digest
        self.asked_s = -1e9
        self.attempt = 0
        self._last_applied = -1
        self._served_s: dict[int, float] = {}
        self._incoming = (0, b"", b"")  # of a snapshot that is coming in: instance, digest, the data so far
        self._incoming_bytes = 0  # and how many it will have
        self._incoming_from = 0
        self._floor = 0  # no older snapshot will do
        self._trusted: frozenset[int] | None = None  # where only these may be asked

    @property
    def progress(self) -> tuple[int, int]:
        """Returns the bytes of a snapshot that have come in, and how many it has; zeros where none is coming in."""
        return len(self._incoming[2]), self._incoming_bytes

    def keep(self, slot: int, data: bytes) -> None:
        """Keeps a snapshot for others, and one more that somebody has half of."""
        self.snapshots[slot] = (data, digest_of(data))
        since_s = self.node.now - _SERVED_FACTOR * self.node.settings.resend_s
        served = [old for old in self.snapshots if old != slot and self._served_s.get(old, since_s) > since_s]
        kept = {slot, *served[:1]}
        self.snapshots = {old: kept_data for old, kept_data in self.snapshots.items() if old in kept}
        self._served_s = {old: at_s for old, at_s in self._served_s.items() if old in kept}

    def begin_anew(self, floor: int, trusted: frozenset[int]) -> None:
        """The own state is of no use: asks these replicas for a snapshot that is no older than `floor`."""
        self._floor, self._trusted = floor, trusted
        self._incoming, self._incoming_from = (0, b"", b""), 0
        self.asked_s = -1e9

    def tick(self) -> None:
        """Asks where something is missing and did not come by itself since the last tick."""
        node = self.node
        stuck = node.blank or (node.target > node.applied and node.applied == self._last_applied)
        self._last_applied = node.applied
        if stuck and node.now - self.asked_s >= node.settings.resend_s:
            self.ask()
            self.attempt += 1

    def ask(self) -> None:
        """Asks the one that is known to have more, and somebody else where that one does not answer."""
        node = self.node
        sources = [self._incoming_from, node.target_source, node.leader, *node.others()]
        sources = [source for source in dict.fromkeys(sources) if source and source != node.id]
        if self._trusted is not None:
            sources = [source for source in sources if source in self._trusted]
        if not sources:
            return
        self.asked_s = node.now
        slot, _, data = self._incoming
        first = 0 if node.blank else node.applied + 1
        node.send(sources[self.attempt % len(sources)], Fetch(first, max(slot, self._floor), len(data)))

    def on_fetch(self, sender: int, message: Fetch, is_doubtful: bool) -> bool:
        """Answers with values or with a part of a snapshot; false where a snapshot has to be made first.

        Values are agreed on. A state that is doubtful is not passed on.
        """
        node, first = self.node, message.first
        if node.blank:
            return True
        if first and (first in node.acceptor.votes or first > node.applied):
            node.send(sender, Entries(first, node.applied, self._values(first)))
            return True
        if is_doubtful:
            node.count("snapshots kept back")
            return True
        slot = message.slot if message.slot in self.snapshots else max(self.snapshots, default=0)
        if slot not in self.snapshots or slot < first or slot < message.slot:
            return False
        data, digest = self.snapshots[slot]
        self._served_s[slot] = node.now
        offset = min(message.offset, len(data)) if slot == message.slot else 0
        part = data[offset : offset + node.settings.fetch_bytes_max]
        node.send(sender, SnapshotPart(slot, len(data), offset, digest, part))
        return True

    def _values(self, first: int) -> tuple[bytes, ...]:
        values: list[bytes] = []
        size = 0
        votes = self.node.acceptor.votes
        for slot in range(first, self.node.applied + 1):
            voted = votes.get(slot)
            if voted is None or size > self.node.settings.fetch_bytes_max:
                break
            values.append(voted[1])
            size += len(voted[1]) + 4
        return tuple(values)

    def on_entries(self, sender: int, message: Entries) -> None:
        """Takes chosen values."""
        node = self.node
        if node.blank:
            return
        if message.values:
            self.attempt = 0
        for slot, value in enumerate(message.values, message.first):
            if slot > node.applied:
                node.chosen[slot] = value
        node.aim(message.applied, sender)

    def on_part(self, sender: int, message: SnapshotPart) -> bytes | None:
        """Takes a part; the whole snapshot where it is complete and newer than the own state."""
        node = self.node
        if (message.slot <= node.applied and not node.blank) or message.slot < self._floor:
            return None
        if self._trusted is not None and sender not in self._trusted:
            return None
        slot, digest, data = self._incoming
        if (slot, digest) != (message.slot, message.digest):
            slot, digest, data = message.slot, message.digest, b""
        if message.offset != len(data):
            return None  # it came twice
        data += message.data
        self._incoming, self._incoming_from, self._incoming_bytes = (slot, digest, data), sender, message.size
        self.attempt = 0
        if len(data) < message.size:
            self.ask()
            return None
        self._incoming, self._incoming_from, self._incoming_bytes = (0, b"", b""), 0, 0
        if digest_of(data) != digest:
            node.count("damaged snapshots")
            return None
        self._floor, self._trusted = 0, None
        return data
