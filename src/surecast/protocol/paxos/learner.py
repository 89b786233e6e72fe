"""The learner: finds out which values are chosen, and applies them in order."""

from __future__ import annotations

from collections.abc import Callable

from surecast.protocol.paxos.fast_coordinator import FastCoordinator
from surecast.protocol.paxos.fast_track import FastTrack
from surecast.protocol.paxos.leader import Leader
from surecast.protocol.paxos.machine import Answer
from surecast.protocol.paxos.node import Node
from surecast.protocol.paxos.quorums import digest_of
from surecast.protocol.paxos.snapshots import Snapshots
from surecast.protocol.paxos.submissions import Submissions

__all__ = ["Learner"]


class Learner:
    """Applies instances. `replies` are the answers to own requests, by the number of their segment.

    `changed` is called after an instance that changed the membership, and told whether a configuration came in.
    """

    def __init__(
        self,
        node: Node,
        leader: Leader,
        track: FastTrack,
        coordinator: FastCoordinator,
        submissions: Submissions,
        snapshots: Snapshots,
        changed: Callable[[bool], None],
    ):
        self._node = node
        self._leader = leader
        self._track = track
        self._coordinator = coordinator
        self._submissions = submissions
        self._snapshots = snapshots
        self._changed = changed
        self.replies: list[tuple[int, list[Answer]]] = []

    def learn(self) -> None:
        """Applies whatever is known to be chosen, in order; a blank replica has nothing to begin with."""
        node = self._node
        if node.blank:
            return
        slot = before = node.applied + 1
        digests = self._track.digests
        while (slot <= node.hint[1] or node.chosen or digests) and (value := self._known(slot)) is not None:
            self._apply(slot, value)
            slot += 1
        if slot != before:
            self._snapshots.advance()

    def answer_known(self) -> None:
        """Answers own requests that were applied before."""
        self.replies += self._submissions.answer()

    def take_replies(self) -> list[tuple[int, list[Answer]]]:
        """The replies since the last call."""
        replies, self.replies = self.replies, []
        return replies

    def _known(self, slot: int) -> bytes | None:
        node = self._node
        value = node.chosen.get(slot)
        if value is None:
            value = node.told(slot)
        if value is None and slot in self._track.digests:
            value = self._won(slot)
        return value

    def _won(self, slot: int) -> bytes | None:
        """The value with a fast quorum of votes, where it is at hand."""
        node = self._node
        digest = self._track.winner(slot, node.membership.at(slot))
        if digest is None:
            return None
        voted = node.acceptor.votes.get(slot)
        if voted is not None and digest_of(voted[1]) == digest:
            return voted[1]
        node.aim(slot, node.leader)
        return self._coordinator.value_of(slot, digest)

    def _apply(self, slot: int, value: bytes) -> None:
        node, membership = self._node, self._node.membership
        node.acceptor.learn(slot, value)
        self._snapshots.log_bytes += len(value)
        before = membership.configurations
        done = node.apply(value, node.id)
        node.chosen.pop(slot, None)
        keys = [(origin, number) for origin, number, _ in done]
        self._leader.applied(slot, value, keys)
        for origin, number, answers in done:
            if origin == node.id and answers is not None:
                self._submissions.done(number)
                self.replies.append((number, answers))
        if node.settings.variant == "fast":
            self._applied_fast(slot, keys)
        if before is not (now := membership.configurations):
            self._changed(now[-1] != before[-1])

    def _applied_fast(self, slot: int, keys: list[tuple[int, int]]) -> None:
        """Own proposals that lost the instance go again."""
        self._coordinator.applied(slot)
        for segment in self._track.applied(slot):
            key = segment.key
            if key not in keys:
                self._leader.return_to_queue(segment)
                if key[0] == self._node.id and not self._leader.leads:
                    self._submissions.again(key[1])
