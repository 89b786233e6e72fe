"""Snapshot transfer: a snapshot of the state goes from one replica to another in parts, and its digest is checked.

The receiver asks for each part, so a slow replica never has more in flight than it can take.
"""

from __future__ import annotations

from typing import Final, Protocol

from surecast.protocol.paxos.journal import SnapshotReference
from surecast.protocol.paxos.node import Node
from surecast.protocol.paxos.paxos_messages import Fetch, SnapshotPart
from surecast.protocol.paxos.quorums import digest_of

__all__ = ["KeptSnapshot", "SnapshotInMemory", "SnapshotTransfer"]

_SERVED_FACTOR: Final = 10.0


class KeptSnapshot(Protocol):
    """A snapshot that can be read in parts; `name` is what a person may look for."""

    reference: SnapshotReference
    name: str

    def read(self, at: int, size: int) -> bytes:
        """Returns so many bytes from a place on."""


class SnapshotInMemory:
    """A snapshot that is here as bytes."""

    name = "snapshot in memory"

    def __init__(self, slot: int, data: bytes):
        self.reference = SnapshotReference(slot, 0, len(data), digest_of(data))
        self._data = data

    def read(self, at: int, size: int) -> bytes:
        """Returns so many bytes from a place on."""
        return self._data[at : at + size]


class SnapshotTransfer:
    """Both sides: the snapshots that this replica has for others, and the one that is coming in."""

    def __init__(self, node: Node):
        self._node = node
        self.snapshots: dict[int, KeptSnapshot] = {}  # by instance
        self._served_s: dict[int, float] = {}
        self._incoming = (0, b"", bytearray())  # of a snapshot that is coming in: instance, digest, the data so far
        self._incoming_bytes = 0  # and how many it will have
        self._floor = 0  # no older snapshot will do
        self.source = 0
        """The replica that the snapshot comes from; 0 where none is coming in."""

    @property
    def progress(self) -> tuple[int, int]:
        """Returns the bytes of a snapshot that have come in, and how many it has; zeros where none is coming in."""
        return len(self._incoming[2]), self._incoming_bytes

    @property
    def is_complete(self) -> bool:
        """Returns whether all parts of the snapshot have come in."""
        return len(self._incoming[2]) >= self._incoming_bytes

    def keep(self, kept: KeptSnapshot) -> None:
        """Keeps a snapshot for others, and one more that somebody has half of."""
        slot = kept.reference.slot
        self.snapshots[slot] = kept
        since_s = self._node.now - _SERVED_FACTOR * self._node.settings.resend_s
        served = [old for old in self.snapshots if old != slot and self._served_s.get(old, since_s) > since_s]
        slots = {slot, *served[:1]}
        self.snapshots = {old: each for old, each in self.snapshots.items() if old in slots}
        self._served_s = {old: at_s for old, at_s in self._served_s.items() if old in slots}

    def begin_anew(self, floor: int) -> None:
        """Forgets what has come in: only a snapshot that is no older than `floor` will do."""
        self._floor = floor
        self._incoming, self.source = (0, b"", bytearray()), 0

    def request(self, first: int) -> Fetch:
        """Returns the request for the values from `first` on, or for the next part of the snapshot."""
        slot, _, data = self._incoming
        return Fetch(first, max(slot, self._floor), len(data))

    def send_part(self, receiver: int, request: Fetch) -> bool:
        """Sends the part that was asked for; false where a snapshot has to be taken first."""
        node = self._node
        slot = request.slot if request.slot in self.snapshots else max(self.snapshots, default=0)
        if slot not in self.snapshots or slot < request.first or slot < request.slot:
            return False
        kept = self.snapshots[slot]
        self._served_s[slot] = node.now
        size = kept.reference.size
        offset = min(request.offset, size) if slot == request.slot else 0
        part = kept.read(offset, min(node.settings.fetch_bytes_max, size - offset))
        node.send(receiver, SnapshotPart(slot, size, offset, kept.reference.digest, part))
        return True

    def receive_part(self, sender: int, message: SnapshotPart) -> bool:
        """Takes a part; false where it is of no use: too old, or received before."""
        node = self._node
        if (message.slot <= node.applied and not node.blank) or message.slot < self._floor:
            return False
        slot, digest, data = self._incoming
        if (slot, digest) != (message.slot, message.digest):
            slot, digest, data = message.slot, message.digest, bytearray()
        if message.offset != len(data):
            return False
        data += message.data
        self._incoming = (slot, digest, data)
        self.source, self._incoming_bytes = sender, message.size
        return True

    def finish(self) -> bytes | None:
        """Returns the complete snapshot; None where its digest is wrong."""
        _, digest, received = self._incoming
        data = bytes(received)
        self._incoming, self.source, self._incoming_bytes = (0, b"", bytearray()), 0, 0
        if digest_of(data) != digest:
            self._node.count("damaged snapshots")
            return None
        self._floor = 0
        return data
