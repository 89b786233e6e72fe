"""When a replica takes a snapshot of its state, and how much of the log it keeps below one.

A small state is written at once, and stored with the records of the turn. One that is large would hold the replica for
seconds: where the shell has a `Shelf`, it makes a copy of the state (`begin`), writes it beside the replica, which goes
on, and says when that is done (`finish`) or why not (`fail`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from math import inf
from typing import Final, Protocol

from surecast.errors import ConfigurationError
from surecast.protocol.paxos.journal import Restored, SnapshotReference
from surecast.protocol.paxos.node import Node
from surecast.protocol.paxos.quorums import digest_of
from surecast.protocol.paxos.snapshot_transfer import KeptSnapshot, SnapshotInMemory, SnapshotTransfer

__all__ = ["Shelf", "Snapshots"]

_AGAIN_S: Final = 5.0
"""After a snapshot failed, the next attempt waits so long."""
_FORGOTTEN_MAX: Final = 256
"""Votes that are forgotten together, once they are in a snapshot: a million would hold the replica for a second."""


class Shelf(Protocol):
    """Where the shell has snapshots that it wrote beside the replica."""

    def open(self, reference: SnapshotReference) -> KeptSnapshot:
        """Opens the one that the records of the replica name, when it starts again."""


class Snapshots:
    """The snapshots of one replica: `slot` is the instance of the last one, `log_bytes` what was applied since.

    `is_wanted`: the shell should call `begin` at the end of this turn, when all records are durable.
    """

    def __init__(self, node: Node, transfer: SnapshotTransfer, shelf: Shelf | None = None):
        self._node = node
        self._transfer = transfer
        self._shelf = shelf
        self._bytes = 0
        self.slot = 0
        self.log_bytes = 0
        self.is_wanted = False
        self._copied: tuple[int, int] | None = None  # what the shell writes now: its instance, and `log_bytes` then
        self._again_s = -inf
        self._forgetting: Iterator[int] = iter(())
        self._forgotten_upto = 0

    def advance(self) -> None:
        """Something was applied: takes a snapshot where one is due, and forgets some of the log below the last one."""
        node = self._node
        settings, log_bytes = node.settings, self.log_bytes
        if self._shelf is not None:
            for number in islice(self._forgetting, _FORGOTTEN_MAX):
                if number <= self._forgotten_upto:
                    node.acceptor.forget(number)
        # A snapshot costs as much as the state is large, so the log since the last one must be worth it.
        is_worth_it = node.applied - self.slot >= settings.snapshot_every and 2 * log_bytes >= self._bytes
        if is_worth_it or (log_bytes >= settings.snapshot_bytes and log_bytes >= self._bytes):
            self.take()

    def take(self) -> None:
        """Takes one now, or has the shell take it, and forgets the log below it but for what slow replicas may want."""
        node = self._node
        if self._shelf is not None and self._bytes + self.log_bytes > node.settings.snapshot_at_once_bytes:
            self.is_wanted = self._copied is None and node.now >= self._again_s
        else:
            self.take_at_once()

    def take_at_once(self) -> None:
        """Takes one now, however long that takes."""
        node = self._node
        data = node.machine.encode()
        self.is_wanted = False
        node.journal.snapshot(node.applied, data)
        self._keep(data)
        node.acceptor.truncate(self._kept_from() - 1)

    def begin(self) -> tuple[int, Iterator[bytes]]:
        """Returns the instance of the state, and its bytes in pieces, to be read from a copy of the process."""
        self.is_wanted = False
        self._copied = (self._node.applied, self.log_bytes)
        return self._node.applied, self._node.machine.pieces()

    def finish(self, kept: KeptSnapshot) -> None:
        """The snapshot that was begun is written. It is of no use where another state came in meanwhile."""
        node, copied = self._node, self._copied
        self._copied = None
        if copied is None or kept.reference.slot != copied[0] or node.blank:
            return
        self._take_kept(kept)
        self.log_bytes -= copied[1]
        node.journal.snapshot_file(kept.reference)
        self._forgotten_upto = self._kept_from() - 1
        self._forgetting = iter(list(node.acceptor.votes))

    def fail(self) -> None:
        """The snapshot that was begun was not written; another one is begun later."""
        if self._copied is not None:
            self._copied = None
            self._node.count("snapshots failed")
            self._again_s = self._node.now + _AGAIN_S

    def resume(self, found: Restored) -> None:
        """The state becomes that of the snapshot that was stored."""
        if found.file is None:
            self.restore(found.snapshot)
        else:
            self._node.restore(self._read(found.file))
        self._node.journal.resume(found.pieces, found.file is not None)

    def _read(self, reference: SnapshotReference) -> bytes:
        if self._shelf is None:
            raise ConfigurationError("paxos store: its snapshot is in a file, and this replica has no place for files")
        kept = self._shelf.open(reference)
        data = kept.read(0, reference.size)
        if len(data) != reference.size or digest_of(data) != reference.digest:
            raise ConfigurationError(f"{kept.name}: damaged: {len(data)} bytes are not the {reference.size} written")
        self._take_kept(kept)
        self.log_bytes = 0
        return data

    def restore(self, data: bytes) -> None:
        """The state becomes that of a snapshot, from the own store or from another replica."""
        self._copied, self.is_wanted = None, False
        self._node.restore(data)
        self._keep(data)

    def _keep(self, data: bytes) -> None:
        self.log_bytes = 0
        self._take_kept(SnapshotInMemory(self._node.applied, data))

    def _take_kept(self, kept: KeptSnapshot) -> None:
        self.slot, self._bytes = kept.reference.slot, kept.reference.size
        self._transfer.keep(kept)

    def _kept_from(self) -> int:
        """The first instance that is kept for slow replicas."""
        node, room = self._node, self._node.settings.log_keep_bytes
        first = end = self.slot + 1
        while first > end - node.settings.log_keep and (voted := node.acceptor.votes.get(first - 1)) is not None:
            room -= len(voted[1])
            if room < 0:
                break
            first -= 1
        return first
