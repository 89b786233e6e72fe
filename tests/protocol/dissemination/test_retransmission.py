"""Which packets are taken for lost, how long a silent neighbour is waited for, and how often packets are sent again."""

from __future__ import annotations

import math

import pytest

from surecast.protocol.coding import Packet, VectorKind
from surecast.protocol.dissemination import Data, HopAck
from surecast.protocol.dissemination.dissemination_messages import SendTo
from surecast.protocol.dissemination.retransmission import GRACE_S, PendingAcks


def data(number: int, deadline_s: float = 99.0) -> Data:
    return Data(0, number, deadline_s, Packet(1, 1, 0, 1, VectorKind.PLAIN, b"x"), attempt=1)


def again(sends: list[SendTo] | None) -> list[tuple[int, int]]:
    """Number and attempt of what is sent again."""
    found = [send.message for send in sends or ()]
    return [(message.number, message.attempt) for message in found if isinstance(message, Data)]


def filled(count: int, tries_max: int = 5) -> PendingAcks:
    waiting = PendingAcks(0.1, tries_max, 100)
    for number in range(count):
        waiting.sent(7, data(number), 0.0)
    return waiting


def test_what_was_sent_before_an_acknowledged_packet_and_has_not_come_is_sent_again_at_once() -> None:
    waiting = filled(5)
    assert again(waiting.acknowledged(7, HopAck(1, 0, 0, 1, 0b00001), 0.05)) == []
    assert again(waiting.acknowledged(7, HopAck(1, 0, 3, 1, 0b01001), 0.06)) == [(1, 2), (2, 2)]
    # That 4 has come says nothing of 1 and 2: they were sent again after it.
    assert again(waiting.acknowledged(7, HopAck(1, 0, 4, 1, 0b11001), 0.07)) == []
    # The second transmission of 2 has come and that of 1 before it has not.
    assert again(waiting.acknowledged(7, HopAck(1, 0, 2, 2, 0b11101), 0.12)) == [(1, 3)]
    assert again(waiting.acknowledged(7, HopAck(1, 0, 1, 3, 0b11111), 0.2)) == []
    assert len(waiting) == 0
    assert waiting.next_timer() == math.inf


def test_an_acknowledgement_makes_up_for_lost_ones() -> None:
    waiting = filled(4)
    assert again(waiting.acknowledged(7, HopAck(1, 0, 3, 1, 0b1111), 0.05)) == []
    assert len(waiting) == 0
    assert waiting.counts == {}


def test_a_late_answer_to_an_earlier_transmission_says_nothing_of_what_was_sent_between() -> None:
    waiting = filled(2)
    assert again(waiting.handle_timer(0.1)) == [(0, 2)]
    assert again(waiting.acknowledged(7, HopAck(1, 0, 0, 1, 0b01), 0.11)) == []
    assert len(waiting) == 1


def test_the_wait_follows_the_round_trips_of_packets_that_were_alone() -> None:
    """By hand: a trip of 0.4 s gives mean 0.4 and deviation 0.2 * 3/4, then one of 0.8 s gives 0.45 and 0.2125."""
    waiting = PendingAcks(0.1, 5, 100)
    assert waiting.wait_s(7) == 0.1
    for number, trip_s, expected in ((0, 0.4, 0.4 + 4 * 0.15), (1, 0.8, 0.45 + 4 * 0.2125)):
        waiting.sent(7, data(number), 1.0)
        waiting.sent(7, data(10 + number), 1.0)
        waiting.acknowledged(7, HopAck(1, 0, number, 1, 1 << number), 1.0 + trip_s)
        waiting.acknowledged(7, HopAck(1, 0, 10 + number, 1, 1 << (10 + number)), 9.0)
        assert waiting.wait_s(7) == pytest.approx(expected)
    assert waiting.wait_s(8) == 0.1


def test_steady_round_trips_leave_a_grace() -> None:
    waiting = PendingAcks(0.1, 5, 100)
    for number in range(80):
        waiting.sent(7, data(number), float(number))
        waiting.acknowledged(7, HopAck(1, 0, number, 1, 1 << number), number + 0.03)
    assert waiting.wait_s(7) == pytest.approx(0.03 + GRACE_S)


def test_a_packet_sent_again_has_a_round_trip_of_its_own() -> None:
    waiting = filled(1)
    waiting.handle_timer(0.1)
    waiting.acknowledged(7, HopAck(1, 0, 0, 2, 1), 0.1 + 0.4)
    assert waiting.wait_s(7) == pytest.approx(0.4 + 4 * 0.15)


def test_in_silence_the_oldest_is_sent_again_until_the_tries_are_over() -> None:
    waiting = filled(1, tries_max=4)
    times = []
    while (now := waiting.next_timer()) < math.inf:
        times.append(now)
        waiting.handle_timer(now)
    assert times == pytest.approx([0.1, 0.3, 0.5, 0.7])
    assert waiting.counts == {"again": 3, "gave up": 1}
    assert len(waiting) == 0


def test_behind_the_deadline_all_is_given_up() -> None:
    waiting = PendingAcks(0.1, 8, 100)
    for number in range(3):
        waiting.sent(7, data(number, deadline_s=0.2), 0.0)
    assert again(waiting.handle_timer(0.1)) == [(0, 2)]
    assert again(waiting.handle_timer(0.31)) == []
    assert waiting.counts == {"again": 1, "gave up": 3}
    assert len(waiting) == 0


def test_an_acknowledgement_behind_the_deadline_sends_nothing_again() -> None:
    waiting = PendingAcks(0.1, 8, 100)
    for number in range(4):
        waiting.sent(7, data(number, deadline_s=0.05), 0.0)
    assert again(waiting.acknowledged(7, HopAck(1, 0, 2, 1, 0b0100), 0.06)) == []
    assert waiting.counts == {"gave up": 2}
    assert len(waiting) == 1


def test_what_waits_is_bounded_and_strangers_acknowledge_nothing() -> None:
    waiting = PendingAcks(0.1, 4, 2)
    for number in range(5):
        waiting.sent(7, data(number), 0.0)
    assert len(waiting) == 2
    assert waiting.counts["full"] == 3
    assert waiting.acknowledged(8, HopAck(1, 0, 0, 1, 1), 0.1) is None
    assert waiting.acknowledged(7, HopAck(2, 0, 0, 1, 1), 0.1) is None
    assert len(waiting) == 2
