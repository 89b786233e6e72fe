"""Replicas that make different things of the same log notice it, and who differs takes the majority's state."""

from __future__ import annotations

import pytest
from tests.protocol.paxos.paxos_group import Group

from surecast.protocol.paxos import ExampleStore
from surecast.protocol.paxos.example_store import get, incr, put
from surecast.protocol.paxos.machine import CHECKPOINT_EVERY
from surecast.protocol.paxos.paxos_messages import Checkpoint, SnapshotPart


def working(replicas: int = 3, **settings: object) -> Group:
    group = Group(replicas, **settings)
    group.run(2.0)
    return group


def write(group: Group, count: int, first: int = 1) -> None:
    """Requests, each an instance of its own."""
    one = group.leader.id
    for n in range(first, first + count):
        group.ask(one, 7, n, incr(b"k"))


def alarms(group: Group) -> dict[int, str]:
    return {one: replica.agreement.alarm for one, replica in group.replicas.items()}


def discarded(group: Group) -> list[int]:
    return [one for one, replica in group.replicas.items() if replica.counts.get("states discarded")]


@pytest.mark.parametrize("variant", ["multi", "fast"])
def test_equal_replicas_say_so(variant: str) -> None:
    group = working(variant=variant)
    write(group, 3 * CHECKPOINT_EVERY)
    group.run(0.5)
    assert not any(alarms(group).values())
    assert all(replica.agreement.compared >= 3 * CHECKPOINT_EVERY for replica in group.replicas.values())
    effects = {replica.machine.effects for replica in group.replicas.values()}
    assert len(effects) == 1
    assert effects != {bytes(16)}


@pytest.mark.parametrize("which", ["leader", "follower"])
@pytest.mark.parametrize("snapshot_every", [8, 1_000])
def test_who_differs_from_the_majority_takes_its_state(which: str, snapshot_every: int) -> None:
    group = working(snapshot_every=snapshot_every, log_keep=4)
    write(group, 20)
    wrong = group.leader.id if which == "leader" else group.followers()[0]
    promised = group.replicas[wrong].acceptor.promised
    applied = group.replicas[wrong].applied
    group.stores[wrong].pairs[b"k"] = b"1000"  # what should not happen
    write(group, CHECKPOINT_EVERY, first=21)
    floor = group.replicas[wrong].applied
    group.run(2.0)
    assert discarded(group) == [wrong]
    # An older state would make it vote again on what it has forgotten its votes of.
    taken = [m.slot for _, to, m in group.sent if to == wrong and isinstance(m, SnapshotPart)]
    assert taken
    assert min(taken) >= floor
    for each in group.replicas.values():
        assert f"replica {wrong} differs from the majority" in each.agreement.notices[0]
    replica = group.replicas[wrong]
    assert not replica.blank
    assert replica.voting
    assert replica.acceptor.promised >= promised  # the acceptor has forgotten nothing
    assert replica.applied >= applied
    assert {store.pairs[b"k"] for store in group.stores.values()} == {b"36"}
    write(group, CHECKPOINT_EVERY, first=100)
    group.run(0.5)
    assert not any(alarms(group).values())
    assert {store.pairs[b"k"] for store in group.stores.values()} == {b"52"}
    for each in group.replicas.values():
        assert len(each.agreement.notices) <= 2  # said once, and not with every heartbeat


def test_a_state_is_taken_from_the_majority_and_not_older_than_the_own() -> None:
    group = working(5)
    write(group, 20)
    wrong = group.followers()[:2]
    for one in wrong:
        group.stores[one].pairs[b"k"] = b"1000"  # the same mistake at two of five
    lagging = next(one for one in group.followers() if one not in wrong)
    group.passes = lambda source, to, message: lagging not in (source, to)
    write(group, CHECKPOINT_EVERY, first=21)
    before = {one: group.replicas[one].applied for one in wrong}
    group.run(0.5)
    assert not any(alarms(group).values())  # the fifth may decide
    group.run(2.0)
    assert discarded(group) == []  # two of five say one thing, two another: nobody is chosen
    assert sum("no majority agrees" in text for text in alarms(group).values()) == 4
    group.passes = lambda source, to, message: True
    group.run(3.0)
    assert sorted(discarded(group)) == sorted(wrong)
    assert all(group.replicas[one].applied >= before[one] for one in wrong)
    assert {store.pairs[b"k"] for store in group.stores.values()} == {b"36"}


def test_only_the_majority_is_asked_for_its_state() -> None:
    group = working(5)
    write(group, 20)
    leader, wrong = group.leader.id, group.followers()[0]
    for one in (leader, wrong):
        group.stores[one].pairs[b"k"] = b"1000"
    # The leader does not notice, and would hand out what it has.
    group.passes = lambda source, to, message: not (to == leader and isinstance(message, Checkpoint))
    write(group, CHECKPOINT_EVERY, first=21)
    group.run(1.0)
    assert discarded(group) == [wrong]
    assert group.stores[wrong].pairs[b"k"] == b"36"
    assert group.stores[leader].pairs[b"k"] == b"1016"
    group.passes = lambda source, to, message: True
    group.run(2.0)
    assert {store.pairs[b"k"] for store in group.stores.values()} == {b"36"}


def test_without_a_majority_all_say_so_and_nobody_is_chosen() -> None:
    group = working(3)
    write(group, 10)
    for one, value in ((1, b"1000"), (2, b"2000")):
        group.stores[one].pairs[b"k"] = value
    write(group, CHECKPOINT_EVERY, first=11)
    group.run(1.0)
    assert discarded(group) == []
    assert all("no majority agrees" in text for text in alarms(group).values())
    assert len({store.pairs[b"k"] for store in group.stores.values()}) == 3


def test_a_state_is_not_passed_on_while_nobody_knows_whose_is_right() -> None:
    group = working(3, snapshot_every=8, log_keep=2)
    write(group, 4)
    away = group.followers()[0]
    group.passes = lambda source, to, message: away not in (source, to)
    write(group, 40, first=5)
    one, other = (number for number in group.replicas if number != away)
    group.stores[other].pairs[b"k"] = b"1000"
    write(group, 2 * CHECKPOINT_EVERY, first=45)
    group.run(2.0)
    group.passes = lambda source, to, message: True
    group.run(2.0)
    assert group.replicas[away].applied < group.replicas[one].applied
    assert all("no majority agrees" in group.replicas[number].agreement.alarm for number in (one, other))
    assert group.leader.counts["snapshots kept back"]
    assert group.ask(group.leader.id, 7, 100, get(b"k"))  # the two go on


def test_who_is_said_to_be_right_passes_its_state_to_those_that_join() -> None:
    """The alarm says: replace whoever is wrong. The new one has nobody to ask but the one that is right."""
    group = working(3, snapshot_every=8, log_keep=2)
    write(group, 20)
    right, (gone, wrong) = group.leader.id, group.followers()
    group.passes = lambda source, to, message: gone not in (source, to)
    group.stores[wrong].pairs[b"k"] = b"1000"
    write(group, 2 * CHECKPOINT_EVERY, first=21)
    group.run(2.0)
    assert all("no majority agrees" in group.replicas[number].agreement.alarm for number in (right, wrong))
    new = group.join(4, token=9)
    group.sent.clear()
    group.leader.replace(wrong, 4, 9, group.now)
    group.run(3.0)
    assert new.voting
    assert {source for source, _, message in group.sent if isinstance(message, SnapshotPart)} == {right}
    assert group.ask(group.leader.id, 7, 100, get(b"k")) == b"+52"
    write(group, CHECKPOINT_EVERY, first=101)
    group.run(1.0)
    assert not group.replicas[right].agreement.alarm


def test_a_replica_that_discards_its_state_does_not_vote_until_it_has_another() -> None:
    group = working()
    write(group, 20)
    wrong = group.followers()[0]
    group.stores[wrong].pairs[b"k"] = b"1000"
    group.passes = lambda source, to, message: type(message).__name__ != "SnapshotPart"
    write(group, CHECKPOINT_EVERY, first=21)
    group.run(1.0)
    replica = group.replicas[wrong]
    assert (replica.blank, replica.voting) == (True, False)
    assert group.ask(group.leader.id, 7, 100, get(b"k")) == b"+36"  # the others go on
    restarted = group.restart(wrong)  # its own store leads it to the wrong state again, or to the right one
    group.passes = lambda source, to, message: True
    group.run(3.0)
    assert not restarted.blank
    write(group, CHECKPOINT_EVERY, first=101)
    group.run(1.0)
    assert {store.pairs[b"k"] for store in group.stores.values()} == {b"52"}


class Forgetful(ExampleStore):
    """Makes something else of the log when it is applied again."""

    def execute(self, command, context):  # type: ignore[no-untyped-def]
        return super().execute(incr(b"k", 2) if command == incr(b"k") else command, context)


def test_replay_with_other_effects_is_noticed() -> None:
    group = working()
    write(group, 40)
    group.run(0.5)
    one = group.followers()[0]
    group.stores[one] = Forgetful()
    group.replicas[one] = group._make(one)
    assert f"replica {one} applied its log again" in group.replicas[one].agreement.alarm
    other = group.restart(group.followers()[-1])
    assert not other.agreement.alarm


def test_the_state_of_the_majority_is_not_compared_with_the_discarded_one() -> None:
    group = working(snapshot_every=8, log_keep=4)
    write(group, 20)
    wrong = group.followers()[0]
    group.stores[wrong].pairs[b"k"] = b"1000"
    write(group, CHECKPOINT_EVERY, first=21)
    group.replicas[wrong]._store_chosen()  # as happens every so often
    for _ in range(100):  # nothing is written: the snapshot is of the instance at which the state was discarded
        group.run(0.02)
        if discarded(group) == [wrong] and not group.replicas[wrong].blank:
            break
    assert discarded(group) == [wrong]
    group.stores[wrong] = ExampleStore()
    group.replicas[wrong] = group._make(wrong)
    assert not group.replicas[wrong].agreement.alarm


def test_the_whole_state_is_hashed_at_one_instance() -> None:
    group = working()
    write(group, 5)
    group.ask(group.leader.id, 8, 1, put(b"quiet", b"1"))
    group.replicas[group.followers()[0]].verify(group.now)
    group.run(0.5)
    assert len({replica.machine.verified for replica in group.replicas.values()}) == 1
    assert group.replies[0, 0] == b"+%d" % group.leader.machine.verified[0]
    wrong = group.followers()[0]
    group.stores[wrong].pairs[b"quiet"] = b"2"  # nobody asks for it, so the running hash cannot know
    write(group, 2 * CHECKPOINT_EVERY, first=6)
    group.run(0.5)
    assert not any(alarms(group).values())
    group.leader.verify(group.now)
    group.run(1.0)
    assert discarded(group) == [wrong]
    assert {store.pairs[b"quiet"] for store in group.stores.values()} == {b"1"}
