"""Ways to break the protocol, each of which the simulator must find."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from unittest.mock import ANY

import pytest

from surecast.protocol.paxos import Replica, Variant, admission, fast_coordinator, leader, membership, quorums
from surecast.protocol.paxos.acceptor import Acceptor
from surecast.protocol.paxos.admission import Admission
from surecast.protocol.paxos.clocks import Clocks
from surecast.protocol.paxos.incarnations import Incarnation, Objection, Reason, Seen, objection_to
from surecast.protocol.paxos.journal import Journal, Restored
from surecast.protocol.paxos.membership import Configuration
from surecast.protocol.paxos.node import Node
from surecast.protocol.paxos.paxos_messages import Message
from surecast.protocol.paxos.quorums import Vote, digest_of
from surecast.protocol.paxos.replies import ReplyCache, Session
from surecast.simulation.replication.faults import Mode

Patch = Callable[[pytest.MonkeyPatch], None]


def unless(*ignored: Reason) -> Patch:
    """Some reasons to refuse a replica that comes back are ignored."""

    def objection(told: Incarnation, seen: Seen) -> Objection | None:
        found = objection_to(told, seen)
        return None if found is None or found.reason in ignored else found

    return lambda patch: patch.setattr(admission, "objection_to", objection)


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


def replies_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ReplyCache, "session", lambda self, client: Session())


def lost_proposals_called_chosen(patch: pytest.MonkeyPatch) -> None:
    """A leader that learns what a later ballot chose in place of its own proposal goes on, and says it is chosen."""

    def applied(self: leader.Leader, slot: int, value: bytes, keys: list[tuple[int, int]]) -> None:
        self.instances.pop(slot, None)
        self.decided.discard(slot)
        self.held.difference_update(keys)

    patch.setattr(leader.Leader, "applied", applied)
    patch.setattr(leader.Leader, "jumped", lambda self: None)


def own_clock_decides(patch: pytest.MonkeyPatch) -> None:
    """Whoever proposes stamps by its own clock, as if it were the whole group."""

    def settle(self: Clocks, configurations: Iterable[Configuration], now: float) -> None:
        self._reached_s = self.epoch_s

    patch.setattr(Clocks, "settle", settle)


def empty_stores_found_anew(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Restored, "check", lambda self, replica, token, members, founds: None)
    unless(Reason.EARLIER_START, Reason.OTHER_START)(patch)


def nobody_waits_for_admission(patch: pytest.MonkeyPatch) -> None:
    """A replica takes part at once, and the others count what it says."""

    class Anyone(dict[int, int]):
        def get(self, replica: int, default: object = None) -> object:  # type: ignore[override]
            return ANY

    begin = Admission.__init__

    def init(self: Admission, *arguments: Any) -> None:
        begin(self, *arguments)
        self.is_admitted, self.starts = True, Anyone()

    patch.setattr(Admission, "__init__", init)
    patch.setattr(Admission, "on_refuse", lambda self, sender, message: None)


def lateness_counts_against_others(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Replica, "_excuse", lambda self: None)


@dataclass(frozen=True)
class Mutation:
    """A mutation, the group it is tried on, and the first seed of the worlds of a mode that finds it."""

    patch: Patch
    variant: Variant
    replicas: int
    seed: int
    breaks: str = "agreement"
    mode: Mode = "harsh"


MUTATIONS = {
    "promise not stored": Mutation(promise_not_stored, "multi", 3, 83),
    "vote not stored": Mutation(vote_not_stored, "multi", 3, 2),
    "votes told before they are stored": Mutation(votes_told_before_stored, "multi", 3, 167),
    "quorum too small": Mutation(quorum_too_small, "multi", 5, 0),
    "votes of earlier ballots ignored": Mutation(old_votes_ignored, "multi", 3, 3),
    "O4 ignored": Mutation(any_fast_value_picked, "fast", 5, 240),
    "fast quorum too small": Mutation(fast_quorum_too_small, "fast", 3, 9),
    "closing forgotten": Mutation(closing_forgotten, "fast", 3, 19, mode="overtaking"),
    "replies forgotten": Mutation(replies_forgotten, "multi", 3, 0, "exactly once"),
    "lost proposals called chosen": Mutation(lost_proposals_called_chosen, "multi", 5, 18, mode="divided"),
    "own lateness counts against others": Mutation(
        lateness_counts_against_others, "multi", 3, 2, "steadiness", "stalled"
    ),
    "stamps by the own clock": Mutation(own_clock_decides, "multi", 3, 1, "time: the stamp", "plain"),
    "fast stamps by the own clock": Mutation(own_clock_decides, "fast", 5, 4, "time: the stamp", "plain"),
    "an earlier start is admitted": Mutation(unless(Reason.EARLIER_START), "multi", 3, 1, mode="forgetful"),
    "another start is admitted": Mutation(unless(Reason.OTHER_START), "multi", 3, 189, mode="forgetful"),
    "another past is admitted": Mutation(unless(Reason.OTHER_PAST), "multi", 3, 78, mode="forgetful"),
    "lost promises and votes are admitted": Mutation(
        unless(Reason.LOST_PROMISE, Reason.LOST_VOTE), "multi", 3, 204, mode="forgetful"
    ),
    "empty stores found anew": Mutation(empty_stores_found_anew, "multi", 3, 1, mode="forgetful"),
    "nobody waits for admission": Mutation(nobody_waits_for_admission, "multi", 3, 16, mode="forgetful"),
}
