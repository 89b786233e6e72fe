"""Proposals held back from those whose votes the leader needs not (`lazy_delay_s`): who hears of what, and when."""

from __future__ import annotations

import pytest
from paxos_group import Group

from surecast.protocol.paxos import Replica
from surecast.protocol.paxos.example_store import incr, put
from surecast.protocol.paxos.paxos_messages import Accept, Accepted, Chosen, Heartbeat, Reject

LAZY_DELAY_S = 0.1
STEP_S = 0.001


class Steady:
    """A group in which replica 1 leads, and the votes of 1 and those after it have decided an instance."""

    def __init__(self, replicas: int = 3, lazy_delay_s: float = LAZY_DELAY_S, **settings: object):
        self.group = Group(replicas, lazy_delay_s=lazy_delay_s, **settings)
        self.group.run(2.0)
        self.leader: Replica = self.group.leader
        assert self.leader.id == 1
        self.sequence = 0
        self.deciding = list(self.group.founders[1 : replicas // 2 + 1])
        self.waiting = list(self.group.founders[replicas // 2 + 1 :])
        assert self.ask() == b"+1"
        self.pass_by(lazy_delay_s + STEP_S)  # until all know that it is chosen
        self.group.sent.clear()

    def ask(self, one: int = 1) -> bytes | None:
        """A request a moment later; what is answered in no time."""
        self.group.now += STEP_S
        self.sequence += 1
        return self.group.ask(one, 7, self.sequence, incr(b"k"))

    def pass_by(self, seconds: float) -> None:
        """Time passes for the leader, and nothing happens."""
        self.group.now += seconds
        self.leader.now = self.group.now
        self.group.settle()

    def heard(self, one: int) -> list[Accept | Chosen]:
        """What a replica heard of proposals and choices."""
        return [m for _, to, m in self.group.sent if to == one and isinstance(m, (Accept, Chosen))]

    def proposed(self, one: int) -> list[int]:
        return [message.slot for message in self.heard(one) if isinstance(message, Accept)]

    def is_told_at_once(self, one: int) -> bool:
        """Whether a replica hears in no time of the next proposal."""
        before = len(self.proposed(one))
        assert self.ask() is not None
        return len(self.proposed(one)) > before


@pytest.mark.parametrize("replicas", [3, 5])
def test_only_a_majority_hears_of_a_proposal_at_once_and_the_others_of_several_together(replicas: int) -> None:
    steady = Steady(replicas)
    first = steady.leader.applied + 1
    for number in range(2, 7):
        assert steady.ask() == b"+%d" % number
    for one in steady.deciding:
        assert steady.proposed(one) == list(range(first, first + 5))
    for one in steady.waiting:
        assert steady.heard(one) == []
        assert steady.group.replicas[one].applied == first - 1
    steady.pass_by(LAZY_DELAY_S - 5 * STEP_S)  # since the first of them was held back: less than lazy_delay_s
    assert all(steady.heard(one) == [] for one in steady.waiting)
    steady.pass_by(2 * STEP_S)
    for one in steady.waiting:
        assert steady.heard(one) == steady.heard(steady.deciding[0])  # all of it, in order
        assert steady.group.replicas[one].hash == steady.leader.hash


def test_without_delay_everybody_hears_at_once() -> None:
    steady = Steady(lazy_delay_s=0.0)
    assert all(steady.is_told_at_once(one) for one in (2, 3))
    assert steady.leader.wake_s is None


def test_in_the_fast_variant_everybody_decides_and_nobody_waits() -> None:
    group = Group(3, lazy_delay_s=3.0, variant="fast", cooldown_s=1e9)
    group.run(2.0)
    leader = group.leader
    leader.coordinator.cool_until_s = 1e9  # classic instances, as after collisions
    for sequence in range(1, 6):
        assert group.ask(leader.id, 7, sequence, incr(b"k")) == b"+%d" % sequence
    slots = [{m.slot for _, to, m in group.sent if to == one and isinstance(m, Accept)} for one in group.followers()]
    assert slots[0] == slots[1]
    assert len(slots[0]) >= 4
    assert len({replica.hash for replica in group.replicas.values()}) == 1


def test_the_leader_asks_for_a_turn_when_something_is_held_back() -> None:
    steady = Steady()
    assert steady.leader.wake_s is None
    steady.ask()
    held_s = steady.group.now
    steady.ask()
    assert steady.leader.wake_s == pytest.approx(held_s + LAZY_DELAY_S)  # since the first of them
    assert not steady.leader.has_more
    steady.group.now = steady.leader.now = held_s + LAZY_DELAY_S + STEP_S
    assert steady.leader.has_more
    steady.group.settle()
    assert steady.leader.wake_s is None
    assert not steady.leader.has_more
    assert len(steady.proposed(3)) == 2


def test_when_the_one_that_decides_falls_silent_another_decides_after_lazy_delay_s_and_from_then_on_at_once() -> None:
    steady = Steady()
    group = steady.group
    group.passes = lambda source, to, message: 2 not in (source, to)
    assert steady.ask() is None
    assert steady.proposed(3) == []
    steady.pass_by(LAZY_DELAY_S + STEP_S)
    assert group.replies[7, steady.sequence] == b"+2"
    assert steady.ask() == b"+3"
    assert steady.is_told_at_once(3)
    assert not steady.is_told_at_once(2)  # now it is the one whose vote is not needed
    group.passes = lambda source, to, message: True
    group.run(0.5)
    assert group.replicas[2].hash == steady.leader.hash


def test_whoever_comes_to_decide_hears_at_once_what_was_held_back_from_it() -> None:
    steady = Steady()
    group = steady.group
    group.passes = lambda source, to, message: source != 2 and not isinstance(message, Accepted)
    assert steady.ask() is None
    steady.pass_by(LAZY_DELAY_S + STEP_S)
    vote = next(message for source, _, message in group.sent if source == 3 and isinstance(message, Accepted))
    assert steady.ask() is None
    held = steady.proposed(3)
    group.passes = lambda source, to, message: source != 2
    steady.leader.receive(3, vote, group.now)
    group.settle()
    assert steady.proposed(3) == [*held, held[-1] + 1]
    assert group.replies[7, steady.sequence] == b"+3"


def test_a_replica_that_forwards_hears_at_once_for_a_second() -> None:
    steady = Steady()
    assert not steady.is_told_at_once(3)
    held = steady.leader.applied
    assert steady.ask(3) == b"+3"  # it had to apply first what was held back
    assert steady.proposed(3) == [held, held + 1]
    forwarded_s = steady.group.now
    assert steady.is_told_at_once(3)
    steady.pass_by(forwarded_s + 0.99 - steady.group.now)
    assert steady.is_told_at_once(3)
    steady.pass_by(forwarded_s + 1.001 - steady.group.now)
    assert not steady.is_told_at_once(3)


def test_a_replica_at_which_somebody_waits_says_so_and_hears_at_once_until_a_second_after() -> None:
    steady = Steady()
    group, one = steady.group, steady.group.replicas[3]
    group.run(0.2)
    assert not steady.is_told_at_once(3)
    one.urgent = True
    one.tick(group.now + steady.leader.settings.heartbeat_s)
    group.settle()
    assert one.applied == steady.leader.applied  # what was held back went when the leader heard of it
    assert steady.is_told_at_once(3)
    group.run(1.5)
    assert steady.is_told_at_once(3)  # it says so with every heartbeat
    last_s = group.now
    one.urgent = False
    group.run(0.8)
    assert steady.is_told_at_once(3)
    group.run(0.25)
    assert group.now > last_s + 1.0
    assert not steady.is_told_at_once(3)
    assert {m.urgent for source, _, m in group.sent if isinstance(m, Heartbeat) and source == 2} == {False}


@pytest.mark.parametrize("how", ["steps down", "prepares anew"])
def test_a_leader_that_is_none_any_more_forgets_what_it_held_back(how: str) -> None:
    steady = Steady()
    steady.ask()
    leader, ballot = steady.leader, steady.leader.leader.ballot
    assert leader.wake_s is not None
    if how == "steps down":
        leader.receive(2, Reject(ballot + (1 << 17)), steady.group.now)
    else:
        leader.leader.prepare(leader.election.next_ballot())
    assert not leader.leads
    assert leader.wake_s is None
    steady.group.run(1.0)
    late = [m for m in steady.heard(3) if m.ballot == ballot]
    assert late == []
    assert steady.group.leader.hash == steady.group.replicas[3].hash


def test_nobody_is_held_back_from_before_the_first_decision_of_a_ballot() -> None:
    steady = Steady()
    leader = steady.leader
    leader.leader.prepare(leader.election.next_ballot())
    steady.group.run(0.1)
    assert leader.leads
    steady.group.passes = lambda source, to, message: source != 2  # who decided in the ballot before
    assert steady.is_told_at_once(3)


@pytest.mark.parametrize(("old", "lazy_delay_s"), [(5, 3.0), (3, LAZY_DELAY_S)], ids=["who waits", "who decides"])
def test_a_membership_changes_while_proposals_are_held_back(old: int, lazy_delay_s: float) -> None:
    steady = Steady(5, lazy_delay_s, alpha=3)
    group, leader = steady.group, steady.leader
    ballot = leader.leader.ballot
    group.join(6, token=99)
    assert steady.ask() == b"+2"
    assert steady.heard(4) == steady.heard(5) == []
    del group.replicas[old]
    leader.replace(old, 6, 99, group.now)
    group.run(2.0)
    assert leader.leads
    assert leader.leader.ballot > ballot  # a majority of the new members had to promise
    assert set(leader.membership.ids()) == {1, 2, 3, 4, 5, 6} - {old}
    if lazy_delay_s > 2.0:  # nothing goes because of the time
        assert [m for one in (4, 5) for m in steady.heard(one) if m.ballot == ballot] == []
    assert steady.ask() is not None
    group.run(lazy_delay_s + 0.5)
    assert len({replica.hash for replica in group.replicas.values()}) == 1
    assert all(group.stores[one].pairs == {b"k": b"3"} for one in group.replicas)


def test_much_is_not_held_back() -> None:
    """What would fill an instance goes at once, together with what waited before."""
    steady = Steady(value_bytes_max=400)
    group = steady.group
    group.ask(1, 8, 1, put(b"a", bytes(150)))
    assert steady.proposed(3) == []
    group.ask(1, 8, 2, put(b"a", bytes(250)))
    assert len(steady.proposed(3)) == 2
    group.ask(1, 8, 3, put(b"a", bytes(150)))
    assert len(steady.proposed(3)) == 2  # counted anew
    group.ask(1, 8, 4, put(b"a", bytes(500)))
    assert len(steady.proposed(3)) == 4
