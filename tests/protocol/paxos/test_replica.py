"""A replica in a group, step by step: P2S sections 2.1 and 3.4, Paxos Made Simple sections 2.2 and 3."""

from __future__ import annotations

import pytest
from paxos_group import Group

from surecast.broker.store_base import MemoryStore
from surecast.errors import ConfigurationError, OverloadError
from surecast.protocol.paxos import ExampleStore, Replica
from surecast.protocol.paxos.example_store import get, incr, put
from surecast.protocol.paxos.paxos_messages import (
    Accept,
    Accepted,
    Chosen,
    Heartbeat,
    Message,
    Prepare,
    Promise,
    Propose,
    Voted,
)


def started(replicas: int = 3, **settings: object) -> Group:
    group = Group(replicas, **settings)
    group.run(2.0)
    return group


@pytest.mark.parametrize("variant", ["multi", "batch", "fast"])
@pytest.mark.parametrize("replicas", [1, 3, 5, 7])
def test_one_leader_and_equal_replicas(variant: str, replicas: int) -> None:
    group = started(replicas, variant=variant)
    assert sum(replica.leads for replica in group.replicas.values()) == 1
    for sequence in range(1, 21):
        assert group.ask(group.leader.id, 7, sequence, incr(b"k")) == b"+%d" % sequence
    group.run(0.5)
    assert len({(replica.applied, replica.hash) for replica in group.replicas.values()}) == 1
    assert all(store.pairs == {b"k": b"20"} for store in group.stores.values())


def test_a_follower_forwards_to_the_leader_and_answers_its_clients_itself() -> None:
    group = started()
    assert group.ask(group.followers()[0], 7, 1, put(b"k", b"v")) == b"+"  # Algorithm 1, line 26
    assert group.ask(group.followers()[1], 8, 1, get(b"k")) == b"+v"


@pytest.mark.parametrize("variant", ["multi", "fast"])
def test_an_old_request_is_answered_again_and_not_applied_again(variant: str) -> None:
    group = started(variant=variant)
    first, second = group.followers()
    assert group.ask(first, 7, 1, incr(b"k")) == b"+1"
    group.run(0.2)
    group.replies.clear()
    instances = group.leader.applied
    assert group.ask(second, 7, 1, incr(b"k")) == b"+1"  # Algorithm 1, line 25, without another instance
    assert group.leader.applied == instances


def test_promises_and_votes_wait_for_the_disk_and_so_does_the_own_ballot() -> None:
    """Paxos Made Simple, 2.5: an acceptor records its intended response before it actually sends it."""
    group = Group(3)
    kinds: set[type[Message]] = set()
    for one in range(3):
        group.turn(one + 1)
    while not any(replica.leads for replica in group.replicas.values()):
        group.now += 0.02
        for replica in group.replicas.values():
            replica.tick(group.now)
        for one, replica in group.replicas.items():
            turn = replica.take()
            kinds |= {type(message) for _, message in turn.messages}
            group.commit(one, turn)
            group.queue.extend((one, to, message) for to, message in (*turn.messages, *turn.after))
            replica.synced(turn.number, group.now)
        while group.queue:
            source, to, message = group.queue.popleft()
            group.replicas[to].receive(source, message, group.now)
    assert not kinds & {Prepare, Promise, Accepted, Voted}


def test_a_follower_votes_before_it_applies_what_the_proposal_says_is_chosen() -> None:
    """The vote is what the leader waits for; what is chosen already may wait until it is on its way."""
    group = started()
    group.passes = lambda source, to, message: not isinstance(message, Chosen)  # the next proposal tells of it, too
    leader = group.leader
    one = group.followers()[0]
    follower, store = group.replicas[one], group.stores[one]
    assert group.ask(leader.id, 7, 1, put(b"k", b"1")) == b"+"
    assert b"k" not in store.pairs
    before = follower.applied
    leader.submit([(7, 2, put(b"k", b"2"))], group.now)
    accept = next(message for to, message in leader.take().messages if to == one and isinstance(message, Accept))
    assert accept.applied == before + 1
    follower.receive(leader.id, accept, group.now)
    turn = follower.take()
    assert [type(message) for _, message in turn.after] == [Accepted]
    assert b"k" not in store.pairs
    follower.synced(turn.number, group.now)
    assert store.pairs == {b"k": b"1"}


def test_the_leader_counts_its_own_vote_when_it_is_stored() -> None:
    group = started()
    leader = group.leader
    leader.submit([(7, 1, incr(b"k"))], group.now)
    turn = leader.take()
    accepts = [message for _, message in turn.messages if isinstance(message, Accept)]
    assert len(accepts) == 2  # the others may hear of it before
    (slot,) = {message.slot for message in accepts}
    assert leader.leader.instances[slot].acks == set()
    leader.synced(turn.number, group.now)
    assert leader.leader.instances[slot].acks == {leader.id}


def test_votes_of_one_turn_in_two_ballots_are_told_apart() -> None:
    group = started()
    replica = group.replicas[group.followers()[0]]
    old, other = group.leader.leader.ballot, group.followers()[1]
    later = ((old >> 17) + 1) << 17 | other << 1
    replica.receive(group.leader.id, Accept(old, replica.applied + 1, replica.applied, b""), group.now)
    replica.receive(other, Prepare(later), group.now)
    after = replica.take().after
    assert (group.leader.id, Accepted(old, replica.applied, (replica.applied + 1,))) in after
    assert any(to == other and isinstance(m, Promise) and m.votes[0][1] == old | 1 for to, m in after)


def test_at_most_alpha_instances_are_under_way_and_one_in_batch_paxos() -> None:
    for variant, window in (("multi", 4), ("batch", 1)):
        group = started(variant=variant, alpha=4)
        group.passes = lambda source, to, message: not isinstance(message, Accepted)
        for sequence in range(1, 9):
            group.ask(group.leader.id, 7, sequence, incr(b"k"))
        assert len(group.leader.leader.instances) == window
        group.passes = lambda source, to, message: True
        group.run(0.5)
        assert group.replies[7, 8] == b"+8"
        if variant == "batch":
            assert group.leader.applied == 2  # what arrived meanwhile went into one instance


def test_a_new_leader_finishes_what_the_old_one_began() -> None:
    group = started()
    old = group.leader.id
    group.passes = lambda source, to, message: not isinstance(message, Accepted)
    group.ask(old, 7, 1, incr(b"k"))
    del group.replicas[old]
    group.passes = lambda source, to, message: True
    group.run(3.0)
    assert group.leader.id != old
    assert group.ask(group.leader.id, 7, 1, incr(b"k")) == b"+1"
    assert all(group.stores[one].pairs == {b"k": b"1"} for one in group.replicas)


@pytest.mark.parametrize("snapshot_every", [4, 1_000])
def test_a_replica_starts_again_from_its_records(snapshot_every: int) -> None:
    group = started(snapshot_every=snapshot_every, log_keep=1)
    for sequence in range(1, 51):
        group.ask(group.leader.id, 7, sequence, incr(b"k"))
    group.run(0.2)
    one = group.followers()[0]
    before = group.replicas[one]
    after = group.restart(one)
    assert after.acceptor.promised == before.acceptor.promised
    assert 50 - 16 <= after.applied <= before.applied  # it is stored every 16 instances how far they are chosen
    group.run(0.5)
    assert (after.applied, after.hash) == (group.leader.applied, group.leader.hash)


@pytest.mark.parametrize(("log_keep", "kind"), [(100, "Entries"), (0, "SnapshotPart")])
def test_a_replica_that_lags_gets_values_or_a_snapshot(log_keep: int, kind: str) -> None:
    group = started(snapshot_every=5, log_keep=log_keep, fetch_bytes_max=100)
    slow = group.followers()[1]
    group.passes = lambda source, to, message: slow not in (source, to)
    for sequence in range(1, 31):
        group.ask(group.leader.id, 7, sequence, incr(b"k"))
    group.sent.clear()
    group.passes = lambda source, to, message: True
    group.run(3.0)
    assert group.replicas[slow].hash == group.leader.hash
    assert kind in {type(message).__name__ for _, to, message in group.sent if to == slow}
    assert all(len(replica.acceptor.votes) <= log_keep + 10 for replica in group.replicas.values())


def test_a_slow_replica_is_sent_no_more_than_the_window() -> None:
    group = started(alpha=2, vote_window=3)
    slow = group.followers()[1]
    group.passes = lambda source, to, message: to != slow
    for sequence in range(1, 21):
        group.ask(group.leader.id, 7, sequence, incr(b"k"))
    group.run(0.1)
    group.ask(group.leader.id, 7, 21, incr(b"k"))
    assert group.leader.counts["proposals held back from a slow replica"] > 0


def test_a_fast_instance_is_decided_without_the_leader_in_between() -> None:
    """Fast Paxos, section 3: proposer to acceptors, acceptors to learners."""
    group = started(variant="fast")
    group.run(0.3)
    group.sent.clear()
    one = group.followers()[0]
    assert group.ask(one, 7, 1, incr(b"k")) == b"+1"
    kinds = [type(message) for _, _, message in group.sent]
    assert Propose in kinds
    assert Voted in kinds
    assert Accept not in kinds


def test_colliding_fast_proposals_are_settled_in_a_classic_step() -> None:
    group = started(variant="fast")
    group.run(0.3)
    for one in group.replicas:
        group.replicas[one].submit([(one, 1, incr(b"k"))], group.now)
    group.settle()  # each acceptor hears its own replica's proposal first
    group.run(1.0)
    assert sorted(group.replies.values(), key=str) == [b"+1", b"+2", b"+3"]
    assert Accept in {type(message) for _, _, message in group.sent}


def test_fast_paxos_goes_on_in_classic_rounds_with_a_majority() -> None:
    group = started(variant="fast")
    del group.replicas[group.followers()[0]]
    group.run(2.0)
    assert group.ask(group.leader.id, 7, 1, incr(b"k")) == b"+1"


def test_a_replica_is_replaced_by_a_blank_one_while_requests_go_on() -> None:
    group = started(alpha=4)
    group.ask(group.leader.id, 7, 1, incr(b"k"))
    old = group.followers()[0]
    del group.replicas[old]
    blank = group.join(4, token=99)
    assert not blank.voting
    group.run(0.5)
    assert not blank.voting  # it caught up, but nobody counts on it yet
    assert blank.applied == group.leader.applied
    group.leader.replace(old, 4, 99, group.now)
    group.run(2.0)
    assert group.replies[0, 0] == b"+6"  # decided by instance 2, in effect alpha later
    assert blank.voting
    assert set(group.leader.membership.ids()) == {*group.replicas}
    assert group.ask(4, 7, 2, incr(b"k")) == b"+2"
    assert group.ask(group.leader.id, 0, 0, b"") == b"!not a change of the membership"


def test_a_new_replica_with_another_token_never_votes() -> None:
    group = started(alpha=2)
    impostor = group.join(4, token=5)
    group.leader.replace(group.followers()[0], 4, 99, group.now)
    group.run(2.0)
    assert not impostor.voting


def test_too_many_requests_are_refused() -> None:
    replica = Replica(1, ExampleStore(), [1, 2, 3], Group(3, queue_bytes_max=100).settings)
    replica.submit([(7, 1, bytes(40))], 0.0)
    with pytest.raises(OverloadError, match="queue_bytes_max is 100"):
        replica.submit([(7, 2, bytes(60))], 0.0)


def test_identities_are_checked() -> None:
    with pytest.raises(ConfigurationError, match="not among the founders"):
        Replica(9, ExampleStore(), [1, 2, 3])
    store = MemoryStore()
    store.commit(Replica(1, ExampleStore(), [1, 2, 3]).take().records)
    with pytest.raises(ConfigurationError, match="belongs to replica 1"):
        Replica(2, ExampleStore(), [1, 2, 3], records=store.items())


def test_the_time_of_the_log_never_goes_back() -> None:
    group = started()
    group.ask(group.leader.id, 7, 1, incr(b"k"))
    before = group.leader.machine.context.time_us
    group.leader.clocks.epoch_s = -1.0
    group.ask(group.leader.id, 7, 2, incr(b"k"))
    assert group.leader.machine.context.time_us >= before > 0


def test_what_arrives_while_an_instance_is_under_way_waits_for_it_or_for_a_moment() -> None:
    """`proposal_interval_s`: on a quick network one instance at a time, on a slow one as many as fit."""
    group = started(proposal_interval_s=0.01)
    leader, one = group.leader, group.leader.id
    group.passes = lambda source, to, message: not isinstance(message, Accepted)
    before = leader.applied
    group.ask(one, 7, 1, incr(b"k"))
    group.ask(one, 7, 2, incr(b"k"))
    group.ask(one, 7, 3, incr(b"k"))
    proposed = [message.slot for _, to, message in group.sent if isinstance(message, Accept) and message.slot > before]
    assert set(proposed) == {before + 1}
    assert leader.wake_s == pytest.approx(group.now + 0.01)
    group.now += 0.011
    leader.now = group.now
    assert leader.has_more
    group.turn(one)
    proposed = [message.slot for _, to, message in group.queue if isinstance(message, Accept)]
    assert set(proposed) == {before + 2}  # both that waited, together
    group.passes = lambda source, to, message: True
    group.run(0.5)
    assert group.replies[7, 3] == b"+3"
    assert leader.applied == before + 2


def test_heartbeats_and_ticks_that_tell_nothing_new_are_no_reason_for_a_turn() -> None:
    """Most of the turns of a group in which nobody publishes would be empty."""
    group = started()
    group.ask(group.leader.id, 7, 1, incr(b"k"))
    group.run(0.3)
    sent: list[tuple[int, Message]] = []
    for replica in group.replicas.values():
        group.now += 1.01 * replica.settings.heartbeat_s
        replica.tick(group.now)
        assert replica.has_more  # its heartbeats
        turn = replica.take()
        replica.synced(turn.number, group.now)
        sent += [(replica.id, message) for to, message in turn.messages]
        replica.tick(group.now + 0.1 * replica.settings.heartbeat_s)
        assert not replica.has_more
    assert {type(message) for _, message in sent} >= {Heartbeat}
    for replica in group.replicas.values():
        for sender, message in sent:
            if sender != replica.id:
                replica.receive(sender, message, group.now)
        assert not replica.has_more


def test_a_heartbeat_that_tells_of_more_is_a_reason_for_a_turn() -> None:
    """A follower that missed the notification learns from it what is chosen."""
    group = started(commit_notification_s=1.0)
    group.passes = lambda source, to, message: not isinstance(message, Chosen)
    leader, follower = group.leader, group.replicas[group.followers()[0]]
    for sequence in range(1, 4):
        group.ask(leader.id, 7, sequence, incr(b"k"))
    assert follower.applied < leader.applied
    leader.tick(group.now + 1.01 * leader.settings.heartbeat_s)
    heartbeats = [message for to, message in leader.take().messages if to == follower.id]
    for message in heartbeats:
        if isinstance(message, Heartbeat):
            follower.receive(leader.id, message, group.now)
    assert follower.has_more
    follower.take()
    assert follower.applied == leader.applied


def test_a_shell_may_keep_requests_for_as_long_as_they_would_not_be_proposed() -> None:
    """`Pacing.batching_delay_until`: not where they could go at once, and never at a replica that does not lead."""
    group = started(proposal_interval_s=0.01)
    leader, one = group.leader, group.leader.id
    assert leader.pacing.batching_delay_until(100, group.now) is None  # nothing is in flight
    group.passes = lambda source, to, message: not isinstance(message, Accepted)
    group.ask(one, 7, 1, incr(b"k"))
    assert leader.pacing.batching_delay_until(100, group.now) == pytest.approx(group.now + 0.01)
    assert leader.pacing.batching_delay_until(leader.settings.value_bytes_max, group.now) is None
    assert group.replicas[group.followers()[0]].pacing.batching_delay_until(100, group.now) is None
    group.now += 0.011
    leader.now = group.now
    assert leader.pacing.batching_delay_until(100, group.now) is None  # the moment is over
    group.ask(one, 7, 2, incr(b"k"))
    assert leader.pacing.batching_delay_until(100, group.now) == pytest.approx(group.now + 0.01)
    group.ask(one, 7, 3, incr(b"k"))
    assert leader.pacing.batching_delay_until(100, group.now) is None  # nothing may overtake what waits already


def test_after_a_large_instance_a_shell_keeps_requests_for_a_while_though_it_is_chosen() -> None:
    """Fewer and larger instances cost less; but not for little, and not where enough waits already."""
    group = started(proposal_interval_s=0.01)
    leader, one = group.leader, group.leader.id
    group.ask(one, 7, 1, incr(b"k"))
    assert leader.pacing.batching_delay_until(100, group.now) is None
    group.ask(one, 7, 2, incr(bytes(10_000)))
    assert not leader.leader.instances
    until_s = leader.pacing.batching_delay_until(100, group.now)
    assert until_s is not None
    assert group.now < until_s < group.now + 0.01
    assert leader.pacing.batching_delay_until(100_000, group.now) is None
    leader.pacing.flush(group.now)
    assert leader.pacing.batching_delay_until(100, group.now) is None


def test_a_leader_with_nothing_else_to_do_proposes_beside_the_instance_under_way() -> None:
    """`Pacing.flush` is for the next proposal only; it is worth it for many bytes, and one instance more."""
    group = started(proposal_interval_s=0.01)
    leader, one = group.leader, group.leader.id
    group.passes = lambda source, to, message: not isinstance(message, Accepted)
    before = leader.applied
    group.ask(one, 7, 1, incr(b"k"))
    assert leader.pacing.may_flush(1 << 14)
    assert not leader.pacing.may_flush(100)
    leader.pacing.flush(group.now)
    assert leader.pacing.batching_delay_until(100, group.now) is None
    group.ask(one, 7, 2, incr(b"k"))
    assert not leader.pacing.may_flush(1 << 14)  # two are in flight
    group.ask(one, 7, 3, incr(b"k"))
    proposed = {message.slot for _, _, message in group.sent if isinstance(message, Accept) and message.slot > before}
    assert proposed == {before + 1, before + 2}
    group.passes = lambda source, to, message: True
    group.run(0.5)
    assert group.replies[7, 3] == b"+3"


def test_where_storing_takes_long_proposals_keep_their_distance() -> None:
    """Three times what storing takes, so that votes that come meanwhile need not wait for the next one to be stored."""
    group = started(proposal_interval_s=0.01)
    leader, one = group.leader, group.leader.id
    for sequence in range(1, 61):
        leader.submit([(7, sequence, incr(b"k"))], group.now)
        turn = leader.take()
        group.commit(one, turn)
        group.queue.extend((one, to, message) for to, message in (*turn.messages, *turn.after))
        group.now += 0.02  # that is how long the disk takes
        leader.synced(turn.number, group.now)
        group.settle()
    group.passes = lambda source, to, message: not isinstance(message, Accepted)
    group.ask(one, 7, 61, incr(b"k"))
    group.ask(one, 7, 62, incr(b"k"))
    assert leader.wake_s == pytest.approx(group.now + 0.06, rel=0.1)


def test_a_leader_in_haste_says_what_is_chosen_with_the_next_proposal() -> None:
    """`commit_notification_s`: the others hear of it with the next proposal, or after a moment by itself."""
    group = started(commit_notification_s=0.01)
    leader, other = group.leader, group.replicas[group.followers()[0]]
    for sequence in (1, 2, 3):
        group.now += 0.001
        assert group.ask(leader.id, 7, sequence, incr(b"k")) == b"+%d" % sequence
    assert other.applied == leader.applied - 1
    assert not leader.has_more
    assert leader.wake_s == pytest.approx(group.now + 0.01)
    group.now += 0.011
    leader.now = group.now
    assert leader.has_more
    group.settle()
    assert other.applied == leader.applied


def test_a_stranger_is_answered_with_the_next_heartbeats_and_not_at_once() -> None:
    """Two replicas that know each other as strangers would else answer each other without end."""
    group = started()
    one = group.replicas[group.followers()[0]]
    beat = 1.01 * one.settings.heartbeat_s
    one.tick(group.now + beat)
    one.take()
    for _ in range(3):
        one.receive(9, Heartbeat(0, False, 0, 0, 0, False, 0, 0, 0, 0, 0), group.now + beat)
    assert 9 not in {to for to, _ in one.take().messages}
    for step, answers in ((2, 1), (3, 0)):
        one.tick(group.now + step * beat)
        assert [to for to, _ in one.take().messages].count(9) == answers
