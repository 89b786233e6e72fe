"""The acceptor's side of the messages: what this replica answers to those who propose."""

from __future__ import annotations

from surecast.protocol.paxos.ballots import owner_of
from surecast.protocol.paxos.fast_track import FastTrack
from surecast.protocol.paxos.node import Node
from surecast.protocol.paxos.paxos_messages import Accept, Close, Closed, Prepare, Promise, Propose, Reject, Voted
from surecast.protocol.paxos.quorums import digest_of

__all__ = ["Voter"]


class Voter:
    """Answers proposals. Every promise and every vote leaves after it is durable; a rejection rests on nothing new."""

    def __init__(self, node: Node, track: FastTrack):
        self.node = node
        self.track = track

    def reject(self, sender: int) -> None:
        """Tells of a later promise."""
        self.node.send(sender, Reject(self.node.acceptor.promised))

    def on_prepare(self, sender: int, message: Prepare) -> bool:
        """Phase 1b; true where the promise was given."""
        node = self.node
        if not node.voting:
            return False
        if not node.acceptor.promise(message.ballot):
            self.reject(sender)
            return False
        votes = node.acceptor.after(node.applied)
        node.send_after(sender, Promise(message.ballot, node.applied, votes))
        return True

    def on_accept(self, sender: int, message: Accept) -> bool:
        """Phase 2b; true where the ballot is not outdated."""
        node, slot = self.node, message.slot
        if not node.voting:
            return True
        if not node.acceptor.promise(message.ballot):
            self.reject(sender)
            return False
        if slot > node.applied + node.settings.vote_window:
            node.count("votes beyond the window")
            return True
        if slot > node.applied:
            node.acceptor.accept(message.ballot, slot, message.value)
        # What is applied is chosen, and then nothing else can be proposed in a later ballot: the vote may be told.
        node.acknowledge(message.ballot, slot)
        return True

    def on_propose(self, message: Propose) -> None:
        """Phase 2b of the fast step: the first proposal for an open instance gets the vote, which goes to all."""
        node, slot, acceptor = self.node, message.slot, self.node.acceptor
        self.track.used(slot)
        if not node.voting or not self.track.is_open(message.ballot, slot):
            node.count("fast proposals not open")
            return
        if not node.applied < slot <= node.applied + node.settings.vote_window:
            return
        again = acceptor.votes.get(slot) == (message.ballot, message.value)
        if not again and not acceptor.accept_fast(message.ballot, slot, message.value):
            return
        digest = digest_of(message.value)
        owner = owner_of(message.ballot)
        for replica in node.membership.ids():
            node.send_after(replica, Voted(message.ballot, slot, digest, message.value if replica == owner else None))

    def on_close(self, sender: int, message: Close) -> bool:
        """Phase 1b of the classic step, for some instances; true where the ballot is not outdated."""
        node, acceptor = self.node, self.node.acceptor
        if not node.voting:
            return True
        if not acceptor.promise(message.ballot):
            self.reject(sender)
            return False
        for slot in message.slots:
            if slot > node.applied:
                acceptor.close(message.ballot, slot)
            elif slot not in acceptor.votes:
                continue  # chosen, and forgotten: whoever asks has to catch up
            voted = acceptor.votes.get(slot)
            answer = Closed(message.ballot, slot, *(voted if voted else (0, None)))
            node.send_after(sender, answer)
        return True
