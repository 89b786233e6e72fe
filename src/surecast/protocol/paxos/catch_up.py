"""Catching up: a replica that lacks instances asks for them; it gets values, or a snapshot where they are forgotten.

The one that lacks asks, a bounded piece at a time: a slow replica never has more in flight than it can take.
"""

from __future__ import annotations

from surecast.protocol.paxos.node import Node
from surecast.protocol.paxos.paxos_messages import Entries, Fetch, SnapshotPart
from surecast.protocol.paxos.snapshot_transfer import SnapshotTransfer

__all__ = ["CatchUp"]


class CatchUp:
    """Both sides: what this replica lacks, and what it has for others."""

    def __init__(self, node: Node):
        self.node = node
        self.transfer = SnapshotTransfer(node)
        self.asked_s = -1e9
        self.attempt = 0
        self._last_applied = -1
        self._trusted: frozenset[int] | None = None  # where only these may be asked

    def begin_anew(self, floor: int, trusted: frozenset[int]) -> None:
        """The own state is of no use: asks these replicas for a snapshot that is no older than `floor`."""
        self._trusted = trusted
        self.transfer.begin_anew(floor)
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
        sources = [self.transfer.source, node.target_source, node.leader_id, *node.others()]
        sources = [source for source in dict.fromkeys(sources) if source and source != node.id]
        if self._trusted is not None:
            sources = [source for source in sources if source in self._trusted]
        if not sources:
            return
        self.asked_s = node.now
        first = 0 if node.blank else node.applied + 1
        node.send(sources[self.attempt % len(sources)], self.transfer.request(first))

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
        return self.transfer.send_part(sender, message)

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
        """Takes a part; returns the whole snapshot where it is complete and newer than the own state."""
        if self._trusted is not None and sender not in self._trusted:
            return None
        if not self.transfer.receive_part(sender, message):
            return None
        self.attempt = 0
        if not self.transfer.is_complete:
            self.ask()
            return None
        data = self.transfer.finish()
        if data is not None:
            self._trusted = None
        return data
