"""The group's time: what a majority of clocks have reached, whoever leads."""

from __future__ import annotations

import pytest
from paxos_group import Group

from surecast.protocol.paxos.clocks import Clocks
from surecast.protocol.paxos.example_store import incr
from surecast.protocol.paxos.log_values import stamp_of
from surecast.protocol.paxos.membership import Membership
from surecast.protocol.paxos.paxos_messages import Accept, Heartbeat, Propose

HOURS_S = 7_200.0
RIGHT_S = 1e9


def started(replicas: int = 3, **settings: object) -> Group:
    """A group with a leader whose clocks all are right."""
    group = Group(replicas, **settings)
    for one in group.founders:
        set_clock(group, one, 0.0)
    group.run(2.0)
    return group


def set_clock(group: Group, one: int, ahead_s: float) -> None:
    group.replicas[one].clocks.epoch_s = RIGHT_S + ahead_s


def stamps_s(group: Group) -> list[float]:
    """Returns how far the stamps of all proposals so far were ahead of the right time at the end."""
    values = [message.value for _, _, message in group.sent if isinstance(message, Accept | Propose)]
    return [stamp_of(value) / 1e6 - RIGHT_S - group.now for value in values if stamp_of(value)]


@pytest.mark.parametrize("ahead_s", [HOURS_S, -HOURS_S, 3.0])
@pytest.mark.parametrize(("variant", "replicas"), [("multi", 3), ("multi", 5), ("fast", 3)])
def test_a_leader_with_a_wrong_clock_does_not_move_the_time(ahead_s: float, variant: str, replicas: int) -> None:
    group = started(replicas, variant=variant)
    set_clock(group, group.leader.id, ahead_s)
    group.run(0.5)
    group.sent.clear()
    for sequence in range(1, 6):
        group.ask(group.leader.id, 7, sequence, incr(b"k"))
        group.run(0.1)
    assert group.replies[7, 5] == b"+5"
    assert stamps_s(group)
    assert all(-1.0 < ahead < 0.1 for ahead in stamps_s(group))


def test_a_proposer_with_a_wrong_clock_does_not_move_the_time_of_the_fast_variant() -> None:
    group = started(variant="fast")
    proposer = group.followers()[0]
    set_clock(group, proposer, HOURS_S)
    group.run(0.5)
    group.sent.clear()
    group.ask(proposer, 7, 1, incr(b"k"))
    assert [sender for sender, _, message in group.sent if isinstance(message, Propose)]
    assert all(-1.0 < ahead < 0.1 for ahead in stamps_s(group))


def test_nothing_new_is_proposed_before_the_clocks_of_a_majority_are_known() -> None:
    group = Group(3)
    group.passes = lambda source, to, message: not isinstance(message, Heartbeat)
    group.run(1.0)
    assert group.leader.time_us() is None
    assert group.ask(group.leader.id, 7, 1, incr(b"k")) is None
    group.passes = lambda source, to, message: True
    group.run(0.2)
    assert group.replies[7, 1] == b"+1"


def test_clocks_that_are_set_back_slow_the_time_down_until_they_have_caught_up() -> None:
    group = started()
    group.ask(group.leader.id, 7, 1, incr(b"k"))
    before_us, at_s = group.leader.machine.context.time_us, group.now
    for one in group.founders:
        set_clock(group, one, -4.0)
    seen = []
    for sequence in range(2, 30):
        group.run(0.4)
        group.ask(group.leader.id, 7, sequence, incr(b"k"))
        seen.append((group.now - at_s, (group.leader.machine.context.time_us - before_us) / 1e6))
    assert [time_s for _, time_s in seen] == sorted(time_s for _, time_s in seen)
    passed_s, time_s = seen[9]
    assert 0.3 * passed_s < time_s <= 0.55 * passed_s  # neither still nor as fast as ever
    passed_s, time_s = seen[-1]
    assert time_s == pytest.approx(passed_s - 4.0, abs=0.2)  # and right in the end


def test_the_time_goes_forward_with_the_clocks_of_a_majority() -> None:
    group = started()
    for one in (2, 3):
        set_clock(group, one, HOURS_S)
    group.run(0.5)
    group.ask(group.leader.id, 7, 1, incr(b"k"))
    assert stamps_s(group)[-1] == pytest.approx(HOURS_S, abs=0.5)


def test_a_dead_member_counts_by_what_its_clock_would_show() -> None:
    """Of three, one is down and the clock of another is two hours behind: the time goes on."""
    group = started()
    leader = group.leader.id
    slow, dead = group.followers()
    set_clock(group, slow, -HOURS_S)
    group.run(0.5)
    group.passes = lambda source, to, message: dead not in (source, to)
    group.run(3.0)
    assert group.replicas[leader].leads
    group.sent.clear()
    group.ask(leader, 7, 1, incr(b"k"))
    assert all(-1.0 < ahead < 0.1 for ahead in stamps_s(group))


def test_an_echo_bounds_the_error_and_a_quick_one_narrows_it() -> None:
    clocks = Clocks(1, epoch_s=100.0, now=0.0)
    clocks.hear(2, clock_us=103_000_000, sent_us=5_000_000, echo_us=0, now=2.0)
    assert clocks.difference(2) is None  # how old that is, is not known
    clocks.hear(2, clock_us=104_000_000, sent_us=6_000_000, echo_us=2_600_000, now=3.0)
    found = clocks.difference(2)
    assert found is not None
    assert (found.ahead_s, found.error_s) == (pytest.approx(1.2), pytest.approx(0.2))
    clocks.hear(2, clock_us=104_800_000, sent_us=7_000_000, echo_us=2_000_000, now=4.0)  # slow: it adds nothing
    found = clocks.difference(2)
    assert found is not None
    assert (found.ahead_s, found.error_s) == (pytest.approx(1.2, abs=0.01), pytest.approx(0.2, abs=0.01))
    clocks.hear(2, clock_us=1_000_000, sent_us=8_000_000, echo_us=4_900_000, now=5.0)  # its clock was set
    found = clocks.difference(2)
    assert found is not None
    assert found.ahead_s == pytest.approx(-103.95)
    assert found.least_s == pytest.approx(103.9)
    assert clocks.shown(2, 5.5)[2] == 8_500_000


def test_an_echo_of_an_earlier_life_is_no_echo() -> None:
    clocks = Clocks(1, epoch_s=0.0, now=1_000.0)
    clocks.hear(2, clock_us=1_001_000_000, sent_us=1, echo_us=900_000_000, now=1_001.0)
    assert clocks.difference(2) is None


def test_under_two_configurations_both_majorities_must_have_reached_the_time() -> None:
    membership = Membership.founding([1, 2, 3], 10)
    clocks = Clocks(1, epoch_s=50.0, now=0.0)
    clocks.hear(2, clock_us=40_000_000, sent_us=1, echo_us=0, now=0.0)
    clocks.settle(membership.configurations, 0.0)
    assert clocks.reached_s(1.0) == 41.0
    membership.execute(1, (2).to_bytes(2, "big") + (4).to_bytes(2, "big") + (9).to_bytes(8, "big"))
    clocks.settle(membership.configurations, 0.0)
    assert clocks.reached_s(1.0) is None
    clocks.hear(4, clock_us=30_000_000, sent_us=1, echo_us=0, now=0.0)
    clocks.settle(membership.configurations, 0.0)
    assert clocks.reached_s(1.0) == 31.0
