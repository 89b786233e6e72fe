"""Ways to break the protocol, each of which the simulator must find."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from surecast.protocol.paxos import fast_coordinator, leader, membership, quorums
from surecast.protocol.paxos.acceptor import Acceptor
from surecast.protocol.paxos.ballots import owner_of
from surecast.protocol.paxos.journal import Journal
from surecast.protocol.paxos.messages import Accepted, Message
from surecast.protocol.paxos.node import Node
from surecast.protocol.paxos.quorums import Vote, digest_of
from surecast.protocol.paxos.replica import Replica
from surecast.protocol.paxos.replies import ReplyCache, Session

Patch = Callable[[pytest.MonkeyPatch], None]


def promise_not_stored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Journal, "promise", lambda self, ballot: None)


def vote_not_stored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Journal, "vote", lambda self, slot, ballot, value: None)


def votes_told_before_stored(patch: pytest.MonkeyPatch) -> None:
    def send_after(self: Node, to: int, message: Message) -> None:
        (self.to_self.append(message) if to == self.id else self.messages.append((to, message)))

    patch.setattr(Node, "send_after", send_after)


def quorum_too_small(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(membership, "classic_quorum", lambda replicas: replicas // 2)


def old_votes_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(leader, "pick_value", lambda votes, replicas: None)


def lowest_ballot_picked(patch: pytest.MonkeyPatch) -> None:
    def pick(votes: Mapping[int, Vote | None], replicas: int) -> bytes | None:
        cast = [vote for vote in votes.values() if vote is not None]
        return min(cast)[1] if cast else None

    patch.setattr(leader, "pick_value", pick)
    patch.setattr(fast_coordinator, "pick_value", pick)


def any_fast_value_picked(patch: pytest.MonkeyPatch) -> None:
    """Ignores O4: of several values voted for in the highest ballot, one with the least digest."""

    def pick(votes: Mapping[int, Vote | None], replicas: int) -> bytes | None:
        cast = [vote for vote in votes.values() if vote is not None]
        highest = max((ballot for ballot, _ in cast), default=0)
        return min((value for ballot, value in cast if ballot == highest), key=digest_of, default=None)

    patch.setattr(leader, "pick_value", pick)
    patch.setattr(fast_coordinator, "pick_value", pick)


def fast_quorum_too_small(patch: pytest.MonkeyPatch) -> None:
    for module in (membership, quorums):
        patch.setattr(module, "fast_quorum", lambda replicas: replicas // 2 + 1)


def closing_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Acceptor, "close", lambda self, ballot, slot: self.promise(ballot))


def votes_told_under_the_promise(patch: pytest.MonkeyPatch) -> None:
    """Tells the votes of a turn under the promise at its end, which may be of a later ballot."""

    def flush(self: Node) -> None:
        if self.acks:
            ballot = self.acceptor.promised
            self.send_after(owner_of(ballot), Accepted(ballot, self.applied, tuple(self.acks)))
            self.acks = []

    patch.setattr(Node, "flush_acks", flush)
    patch.setattr(Node, "acknowledge", lambda self, ballot, slot: self.acks.append(slot))


def replies_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ReplyCache, "session", lambda self, client: Session())


def change_at_once(patch: pytest.MonkeyPatch) -> None:
    """A leader goes on in its ballot after a change, without the promises of the new members."""
    original = Replica._membership_changed
    patch.setattr(Replica, "_membership_changed", lambda self, added: original(self, False))


MUTATIONS: dict[str, tuple[Patch, str, int]] = {
    "promise not stored": (promise_not_stored, "multi", 3),
    "vote not stored": (vote_not_stored, "multi", 3),
    "votes told before they are stored": (votes_told_before_stored, "multi", 3),
    "quorum too small": (quorum_too_small, "multi", 5),
    "votes of earlier ballots ignored": (old_votes_ignored, "multi", 3),
    "lowest ballot picked": (lowest_ballot_picked, "multi", 5),
    "O4 ignored": (any_fast_value_picked, "fast", 5),
    "fast quorum too small": (fast_quorum_too_small, "fast", 3),
    "closing forgotten": (closing_forgotten, "fast", 3),
    "votes told under the promise": (votes_told_under_the_promise, "multi", 3),
    "replies forgotten": (replies_forgotten, "multi", 3),
    "no new promises after a change": (change_at_once, "multi", 3),
}
