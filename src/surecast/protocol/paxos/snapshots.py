"""When a replica takes a snapshot of its state, and how much of the log it keeps below one."""

from __future__ import annotations

from surecast.protocol.paxos.node import Node
from surecast.protocol.paxos.snapshot_transfer import SnapshotTransfer

__all__ = ["Snapshots"]


class Snapshots:
    """The snapshots of one replica: `slot` is the instance of the last one, `log_bytes` what was applied since."""

    def __init__(self, node: Node, transfer: SnapshotTransfer):
        self._node = node
        self._transfer = transfer
        self._bytes = 0
        self.slot = 0
        self.log_bytes = 0

    def is_due(self) -> bool:
        """A snapshot costs as much as the state is large, so the log since the last one must be worth it."""
        settings = self._node.settings
        if self._node.applied - self.slot >= settings.snapshot_every and 2 * self.log_bytes >= self._bytes:
            return True
        return self.log_bytes >= max(settings.snapshot_bytes, self._bytes)

    def take(self) -> None:
        """Takes one now, and forgets the log below it but for what slow replicas may ask for."""
        node = self._node
        data = node.machine.encode()
        node.journal.snapshot(node.applied, data)
        self._keep(data)
        node.acceptor.truncate(self._kept_from() - 1)

    def restore(self, data: bytes) -> None:
        """The state becomes that of a snapshot, from the own store or from another replica."""
        self._node.restore(data)
        self._keep(data)

    def _keep(self, data: bytes) -> None:
        self.slot = self._node.applied
        self.log_bytes, self._bytes = 0, len(data)
        self._transfer.keep(self.slot, data)

    def _kept_from(self) -> int:
        """The first instance that is kept for slow replicas."""
        node, room = self._node, self._node.settings.log_keep_bytes
        first = end = node.applied + 1
        while first > end - node.settings.log_keep and (voted := node.acceptor.votes.get(first - 1)) is not None:
            room -= len(voted[1])
            if room < 0:
                break
            first -= 1
        return first
