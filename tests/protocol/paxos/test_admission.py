"""A replica that starts is checked against what the others remember of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paxos_group import Group

from surecast.errors import ConfigurationError
from surecast.protocol.paxos import ExampleStore, Replica
from surecast.protocol.paxos.example_store import incr
from surecast.protocol.paxos.incarnations import HistoryError, Incarnation, Reason, Seen, objection_to
from surecast.protocol.paxos.journal import read_records, refusal
from surecast.protocol.paxos.paxos_messages import Accepted, Admit, Heartbeat, Message, Rejoin


@pytest.fixture
def group() -> Group:
    """A group of three with a leader, whose starts are numbered."""
    made = Group(3, numbers=True)
    made.run(2.0)
    assert made.leader.voting
    return made


def ask(group: Group, client: int, count: int) -> None:
    for sequence in range(1, count + 1):
        group.leader.submit([(client, sequence, incr(b"k"))], group.now)
        group.run(0.1)
    group.run(1.0)  # what was seen is stored


def test_an_ordinary_restart_is_admitted(group: Group) -> None:
    ask(group, 7, 5)
    for one in (1, 2, 3):
        group.restart(one)
        group.run(2.0)
        assert group.replicas[one].voting
    ask(group, 8, 1)
    assert group.replies[8, 1] == b"+6"


@pytest.mark.parametrize("restarts", [0, 1, 3])
def test_an_older_copy_is_refused_however_often_it_starts(group: Group, restarts: int) -> None:
    old = group.followers()[0]
    ask(group, 7, 3)
    copy = dict(group.disks[old])
    group.restart(old)
    group.run(1.0)
    ask(group, 8, 5)
    group.disks[old] = copy
    group.passes = lambda source, to, message: old not in (source, to)
    for _ in range(restarts):
        group.restart(old)
        group.run(0.1)
    group.passes = lambda source, to, message: True
    group.restart(old)
    with pytest.raises(HistoryError, match=f"replica {old}: replica . does not take it back"):
        group.run(2.0)
    assert not group.replicas[old].voting


def test_a_replica_that_was_refused_does_not_start_again() -> None:
    record = refusal(HistoryError("it was refused"))
    with pytest.raises(HistoryError, match="it was refused"):
        Replica(1, ExampleStore(), [1, 2, 3], records=[(record[0], record[1] or b"")])


def test_a_store_of_an_earlier_version_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="earlier version of surecast; back the group up"):
        read_records([(b"Pi", b"\0\1" + bytes(22))])


def test_an_empty_store_founds_only_where_it_is_told_to() -> None:
    assert Replica(1, ExampleStore(), [1, 2, 3]).id == 1
    with pytest.raises(ConfigurationError, match="its store is empty, but the group was founded before"):
        Replica(1, ExampleStore(), [1, 2, 3], founds=False)


def test_it_takes_part_only_when_it_is_admitted(group: Group) -> None:
    """One answer makes a majority of three; the other one has `suspect_s` for its own."""
    back, other = group.followers()
    ask(group, 7, 3)
    group.passes = lambda source, to, message: not (source != back and to == back and isinstance(message, Admit))
    group.restart(back)
    group.sent.clear()
    group.run(1.0)
    assert not group.replicas[back].voting
    assert not any(isinstance(message, Accepted) for source, _, message in group.sent if source == back)
    group.passes = lambda source, to, message: not (source == other and to == back and isinstance(message, Admit))
    group.run(0.5)
    assert group.replicas[back].voting


def test_time_in_which_it_did_not_run_is_no_time_for_an_answer(group: Group) -> None:
    """The refusal may be there, and unread."""
    back, other = group.followers()
    ask(group, 7, 3)
    group.passes = lambda source, to, message: not (source == other and to == back and isinstance(message, Admit))
    group.restart(back)
    group.run(0.1)
    replica = group.replicas[back]
    assert not replica.voting
    group.now += 5.0
    replica.tick(group.now)
    assert not replica.voting
    group.run(0.5)
    assert replica.voting


def test_messages_of_a_start_that_was_not_admitted_do_not_count(group: Group) -> None:
    follower = group.followers()[0]
    leader = group.leader
    counts = leader.counts.copy()
    leader.receive(follower, Accepted(leader.leader.ballot, 0, (1,)), group.now, start=99)
    name = "messages of starts that were not admitted"
    assert leader.counts[name] == counts.get(name, 0) + 1


def test_a_heartbeat_tells_only_what_is_stored(group: Group) -> None:
    """Votes on their way to the disk may be lost with the power, and are no reason to refuse anybody."""
    follower = group.replicas[group.followers()[0]]
    ask(group, 7, 2)
    follower.synced(follower.take().number, group.now)
    stored = follower.stored
    follower.acceptor.accept(follower.acceptor.promised, follower.applied + 1, b"")
    turn = follower.take()
    assert follower.stored == stored
    follower.synced(turn.number, group.now)
    assert follower.stored == (stored[0], stored[1] + 1)


def test_who_finds_another_log_stops(group: Group) -> None:
    ask(group, 7, 20)
    one = group.followers()[0]
    group.restart(one)
    group.run(1.0)
    replica = group.replicas[one]
    with pytest.raises(HistoryError, match="its log up to instance 16 is another one"):
        replica.receive(group.leader.id, Admit(group.starts[one], 16, b"another hash 123"), group.now, 0)


def test_every_claim_of_a_run_is_durable(group: Group) -> None:
    """Whatever others saw of a replica is in its store: else an honest restart would be refused."""
    claims: list[tuple[int, Message]] = []

    def watch(source: int, to: int, message: Message) -> bool:
        found = read_records(group.disks[source].items())
        if isinstance(message, Heartbeat):
            assert message.promised <= found.promised
            assert message.voted <= found.voted
            claims.append((source, message))
        if isinstance(message, Accepted):
            assert message.ballot <= found.promised
            assert max(message.slots) <= found.voted
            claims.append((source, message))
        return True

    group.passes = watch
    ask(group, 7, 10)
    assert len(claims) > 20


def test_a_disk_of_another_history_stops_nobody_but_itself(group: Group) -> None:
    """Copies of all folders were run elsewhere, and one comes back; it hears of the others before they hear of it."""
    ask(group, 7, 5)
    elsewhere = Group(3, numbers=True)
    elsewhere.disks = {one: dict(disk) for one, disk in group.disks.items()}
    elsewhere.now, elsewhere.last_start = group.now, 1_000
    for one in elsewhere.founders:
        elsewhere.restart(one)
    elsewhere.run(2.0)
    ask(elsewhere, 8, 20)
    group.restart(3)
    group.run(1.0)
    group.passes = lambda source, to, message: 3 not in (source, to)
    for one in (1, 2):
        group.restart(one)
        group.run(2.0)
    ask(group, 9, 1)
    group.disks[3] = elsewhere.disks[3]
    since = group.now
    group.restart(3)
    group.passes = lambda source, to, message: (
        not (isinstance(message, Rejoin) and source == 3) or group.now > since + 0.3
    )
    with pytest.raises(HistoryError, match=r"replica 3: replica . does not take it back"):
        group.run(2.0)
    assert len(group.replicas[3].admission.notices) == 2  # each of the others is named once
    group.passes = lambda source, to, message: 3 not in (source, to)
    group.run(1.0)
    ask(group, 9, 2)
    assert group.replies[9, 2] == b"+7"


LIVES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=8)


@given(LIVES, st.data())
def test_an_honest_history_is_never_refused_and_a_branch_always_is(
    incarnations: list[tuple[int, int]], data: st.DataObject
) -> None:
    """A replica stores more and more in each incarnation. Another one saw it in some incarnation, up to some point."""
    promised = voted = 0
    told = []
    for at, (more_promised, more_voted) in enumerate(incarnations, 1):
        told.append(Incarnation(at, tuple(range(at, 0, -1)), promised, voted))
        promised, voted = promised + more_promised, voted + more_voted
    saw = data.draw(st.integers(0, len(incarnations) - 1))
    seen = Seen(saw + 1, saw + 1, told[saw].promised, told[saw].voted)
    assert all(objection_to(later, seen) is None for later in told[saw:])
    for earlier in told[:saw]:
        branch = Incarnation(earlier.number, (1_000, *earlier.starts[1:]), earlier.promised, earlier.voted)
        assert objection_to(branch, seen) is not None
        climbed = Incarnation(saw + 2, (1_001, 1_000, *earlier.starts[1:]), earlier.promised, earlier.voted)
        assert objection_to(climbed, seen) is not None
    if incarnations[saw][1]:
        lost = Incarnation(saw + 2, (1_000, *told[saw].starts), told[saw].promised, told[saw].voted)
        seen.voted += incarnations[saw][1]
        objection = objection_to(lost, seen)
        assert objection is not None
        assert objection.reason is Reason.LOST_VOTE


def test_a_rejoin_is_said_first_and_again_until_it_is_answered() -> None:
    group = Group(3, numbers=True)
    group.passes = lambda source, to, message: False
    group.run(1.0)
    asked = [to for source, to, message in group.sent if source == 1 and isinstance(message, Rejoin)]
    assert set(asked) == {2, 3}
    assert len(asked) > 4
