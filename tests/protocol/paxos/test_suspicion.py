"""Suspicion tells a slow machine from a dead peer: who was late itself has no ground to suspect."""

from __future__ import annotations

from paxos_group import Group

from surecast.protocol.paxos.ballots import first_ballot, owner_of, round_of
from surecast.protocol.paxos.example_store import incr
from surecast.protocol.paxos.node import Detector
from surecast.protocol.paxos.paxos_messages import Grant, Prepare, PreVote, Promise

TICK_S = 0.02


def started(**settings: object) -> Group:
    group = Group(3, **settings)
    group.run(2.0)
    return group


def rounds(group: Group) -> int:
    return max(round_of(replica.acceptor.promised) for replica in group.replicas.values())


def sleep(group: Group, sleeping: set[int], seconds: float) -> None:
    """Lets time pass for the others only; what is sent to those that sleep waits for them."""
    held: list[tuple[int, int, object]] = []
    awake = group.passes

    def passes(source: int, to: int, message: object) -> bool:
        if to in sleeping:
            held.append((source, to, message))
            return False
        return True

    group.passes = passes
    end = group.now + seconds
    while group.now < end:
        group.now += TICK_S
        for one, replica in group.replicas.items():
            if one not in sleeping:
                replica.tick(group.now)
        for one in group.replicas:
            if one not in sleeping:
                group.turn(one)
        while group.queue:
            source, to, message = group.queue.popleft()
            group.sent.append((source, to, message))
            if passes(source, to, message):
                group.replicas[to].receive(source, message, group.now)
                group.turn(to)
    group.passes = awake
    group.queue.extend(held)  # type: ignore[arg-type]


def test_a_follower_that_did_not_run_for_long_suspects_nobody() -> None:
    group = started()
    leader, before = group.leader.id, rounds(group)
    follower = group.followers()[0]
    sleep(group, {follower}, 3.0)
    group.sent.clear()
    group.replicas[follower].tick(group.now)  # before it has read anything
    group.turn(follower)
    assert not any(isinstance(message, PreVote) for _, _, message in group.queue)
    group.run(1.0)
    assert (group.leader.id, rounds(group)) == (leader, before)
    assert group.replicas[follower].late_s > 2.5


def test_a_leader_that_did_not_run_leads_on_where_nobody_took_its_place() -> None:
    group = started()
    leader, before = group.leader.id, rounds(group)
    sleep(group, {1, 2, 3}, 5.0)
    for one in (1, 2, 3):  # the whole machine slept
        group.replicas[one].tick(group.now)
        group.turn(one)
    group.run(1.0)
    assert (group.leader.id, rounds(group)) == (leader, before)


def test_a_leader_that_slept_too_long_steps_down_when_it_hears_of_the_next() -> None:
    group = started()
    old = group.leader
    sleep(group, {old.id}, 2.0)
    assert sum(replica.leads for replica in group.replicas.values()) == 2
    before = rounds(group)
    old.tick(group.now)
    group.settle()
    group.run(0.5)
    assert not old.leads
    assert rounds(group) == before
    assert group.ask(old.id, 7, 1, incr(b"k")) == b"+1"


def test_who_was_late_supports_nobody_before_it_has_listened() -> None:
    group = started()
    one, other = group.followers()
    sleep(group, {one}, 2.0)
    ballot = first_ballot(rounds(group) + 1, other)
    group.queue.clear()
    group.replicas[one].receive(other, PreVote(ballot), group.now)  # the first thing that it reads
    group.turn(one)
    assert not any(isinstance(message, Grant) for _, _, message in group.queue)


def test_nobody_stands_against_a_candidate_whose_promises_are_on_their_way() -> None:
    group = Group(5)
    group.run(2.0)
    old, before = group.leader.id, rounds(group)
    promised: set[int] = set()

    def passes(source: int, to: int, message: object) -> bool:
        if isinstance(message, Promise):
            promised.add(source)
            return source == min(promised)  # the others have slow disks
        return old not in (source, to)

    group.passes = passes
    group.run(1.2)
    ballots = {message.ballot for _, _, message in group.sent if isinstance(message, Prepare)}
    standing = {owner_of(ballot) for ballot in ballots if round_of(ballot) > before}
    assert len(standing) == 1
    group.passes = lambda source, to, message: old not in (source, to)
    group.run(0.3)
    assert {replica.id for replica in group.replicas.values() if replica.leads} - {old} == standing


def test_questions_do_not_make_the_wait_longer() -> None:
    group = started()
    lonely = group.followers()[0]
    group.passes = lambda source, to, message: lonely not in (source, to)
    group.sent.clear()
    group.run(10.0)
    asked = [message for source, to, message in group.sent if source == lonely and isinstance(message, PreVote)]
    assert len(asked) > 2 * 10  # about every 0.4 s, to two others each


def test_a_peer_that_is_heard_in_larger_steps_is_given_more_time_and_a_calm_one_is_not() -> None:
    detector = Detector(suspect_s=0.25)
    now = 0.0
    for _ in range(100):
        now += 0.05
        detector.hear(2, now)
    assert detector.patience_s(2, now) == 0.25
    for step_s in (0.2, 0.3, 0.5):
        now += step_s
        detector.hear(2, now)
    assert detector.patience_s(2, now) == 1.0
    for _ in range(800):
        now += 0.05
        detector.hear(2, now)
    assert detector.patience_s(2, now) == 0.25


def test_a_peer_that_was_away_is_not_taken_for_slow() -> None:
    detector = Detector(suspect_s=0.25)
    detector.hear(2, 1.0)
    detector.hear(2, 60.0)
    assert detector.patience_s(2, 60.0) == 0.25
    detector.hear(3, 1.0)
    detector.meet(3, 2.0)  # it started again
    detector.hear(3, 2.01)
    assert detector.patience_s(3, 2.01) == 0.25
    assert detector.alive([2, 3], 2.2) == [2, 3]
