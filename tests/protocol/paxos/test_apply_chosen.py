"""A proposal does not wait until what is chosen is applied: it leaves first, and tells of what is chosen."""

from __future__ import annotations

import pytest
from paxos_group import Group

from surecast.protocol.paxos import Replica, Turn
from surecast.protocol.paxos.example_store import incr
from surecast.protocol.paxos.paxos_messages import Accept, Accepted, Entries, Message


class Busy:
    """A group in which the votes for an instance and the next request reach the leader together."""

    def __init__(self, requests: int = 1, **settings: object):
        self.group = Group(3, **settings)
        self.group.run(2.0)
        self.leader: Replica = self.group.leader
        self.before = self.leader.applied
        self.group.passes = lambda source, to, message: not isinstance(message, Accepted)
        for sequence in range(1, requests + 1):
            self.group.ask(self.leader.id, 7, sequence, incr(b"k"))
        self.group.passes = lambda source, to, message: True
        self.votes = [
            message
            for source, _, message in self.group.sent
            if isinstance(message, Accepted) and source == self.group.followers()[0]
        ]

    def take(self, sequence: int) -> Turn:
        """The turn of the leader after the votes and one more request."""
        for vote in self.votes:
            self.leader.receive(self.group.followers()[0], vote, self.group.now)
        self.leader.submit([(7, sequence, incr(b"k"))], self.group.now)
        return self.leader.take()

    def finish(self, turn: Turn) -> None:
        """Everything of the turn happens, and all that follows."""
        one = self.leader.id
        self.group.commit(one, turn)
        self.group.queue.extend((one, to, message) for to, message in (*turn.messages, *turn.after))
        self.leader.synced(turn.number, self.group.now)
        self.group.settle()


def accepts(messages: list[tuple[int, Message]], to: int) -> list[Accept]:
    return [message for other, message in messages if other == to and isinstance(message, Accept)]


def test_a_proposal_leaves_before_what_the_votes_chose_is_applied_and_tells_of_it() -> None:
    busy = Busy()
    leader, store = busy.leader, busy.group.stores[busy.leader.id]
    turn = busy.take(2)
    for one in busy.group.followers():
        (accept,) = accepts(turn.messages, one)
        assert (accept.slot, accept.applied) == (busy.before + 2, busy.before + 1)
    assert leader.applied == busy.before
    assert store.pairs == {}
    assert turn.replies == []
    ((_, answers),) = leader.apply_chosen()
    assert answers == [(7, 1, b"+1")]
    assert leader.applied == busy.before + 1
    assert leader.apply_chosen() == []  # each reply once
    busy.finish(turn)
    assert busy.group.replies[7, 2] == b"+2"
    assert (7, 1) not in busy.group.replies


def test_followers_apply_what_a_proposal_says_is_chosen() -> None:
    busy = Busy()
    one = busy.group.followers()[1]
    follower = busy.group.replicas[one]
    (accept,) = accepts(busy.take(2).messages, one)
    follower.receive(busy.leader.id, accept, busy.group.now)
    turn = follower.take()
    assert follower.applied == busy.before
    follower.synced(turn.number, busy.group.now)
    assert follower.applied == busy.before + 1
    assert busy.group.stores[one].pairs == {b"k": b"1"}


def test_synced_applies_what_nobody_applied_before() -> None:
    busy = Busy()
    turn = busy.take(2)
    busy.finish(turn)
    assert busy.group.replies == {(7, 1): b"+1", (7, 2): b"+2"}


@pytest.mark.parametrize("missing", [1, 2, 3])
def test_a_proposal_tells_only_of_what_is_chosen_without_a_gap(missing: int) -> None:
    busy = Busy(requests=3)
    slots = {busy.before + number: number for number in (1, 2, 3)}
    busy.votes = [vote for vote in busy.votes if slots[vote.slots[0]] != missing]
    (accept,) = accepts(busy.take(4).messages, busy.group.followers()[0])
    assert accept.applied == busy.before + missing - 1


def test_a_proposal_does_not_tell_of_what_others_say_is_chosen() -> None:
    """It may be another value than the one proposed in this ballot (see test_superseded)."""
    busy = Busy()
    busy.votes = []
    value = busy.leader.acceptor.votes[busy.before + 1][1]
    busy.leader.receive(3, Entries(busy.before + 1, busy.before + 1, (value,)), busy.group.now)
    (accept,) = accepts(busy.take(2).messages, busy.group.followers()[0])
    assert accept.applied == busy.before


def test_a_turn_without_a_proposal_applies_and_answers_at_once() -> None:
    busy = Busy()
    busy.leader.receive(busy.group.followers()[0], busy.votes[0], busy.group.now)
    turn = busy.leader.take()
    assert [answers for _, answers in turn.replies] == [[(7, 1, b"+1")]]
    assert busy.leader.apply_chosen() == []


def test_batch_paxos_proposes_when_the_instance_before_is_applied() -> None:
    """Its window is one instance after the last one applied."""
    busy = Busy(variant="batch")
    turn = busy.take(2)
    assert [answers for _, answers in turn.replies] == [[(7, 1, b"+1")]]
    (accept,) = accepts(turn.messages, busy.group.followers()[0])
    assert (accept.slot, accept.applied) == (busy.before + 2, busy.before + 1)
