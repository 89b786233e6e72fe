"""How long acknowledgements are waited for, and how often packets are sent again."""

from __future__ import annotations

import math

import pytest

from surecast.protocol.coding import Kind, Packet
from surecast.protocol.dissemination import Ack, Data
from surecast.protocol.dissemination.retransmission import Retransmission


def data(number: int, deadline_s: float = 99.0) -> Data:
    return Data(0, number, deadline_s, Packet(1, 1, 0, 1, Kind.PLAIN, b"x"), reliable=True)


def test_the_wait_follows_the_round_trips_of_each_neighbour() -> None:
    """By hand: a trip of 0.4 s gives mean 0.4 and deviation 0.2 * 3/4, then one of 0.8 s gives 0.45 and 0.2125."""
    waiting = Retransmission(0.1, 5, 100)
    assert waiting.wait_s(7) == 0.1
    for number, trip_s, expected in ((0, 0.4, 0.4 + 4 * 0.15), (1, 0.8, 0.45 + 4 * 0.2125)):
        waiting.sent(7, data(number), 1.0)
        assert waiting.acknowledged(7, Ack(1, 0, number), 1.0 + trip_s)
        assert waiting.wait_s(7) == pytest.approx(expected)
    assert waiting.wait_s(8) == 0.1


def test_packets_sent_again_say_nothing_about_round_trips() -> None:
    waiting = Retransmission(0.1, 5, 100)
    waiting.sent(7, data(0), 1.0)
    waiting.handle_timer(1.1)
    waiting.acknowledged(7, Ack(1, 0, 0), 9.0)
    assert waiting.wait_s(7) == 0.1


def test_the_wait_doubles_until_the_tries_are_over() -> None:
    waiting = Retransmission(0.1, 4, 100)
    waiting.sent(7, data(0), 0.0)
    times = []
    while (now := waiting.next_timer()) < math.inf:
        times.append(now)
        waiting.handle_timer(now)
    assert times == pytest.approx([0.1, 0.3, 0.7, 1.5])
    assert waiting.counts == {"again": 3, "gave up": 1}
    assert len(waiting) == 0


def test_what_waits_is_bounded_and_strangers_acknowledge_nothing() -> None:
    waiting = Retransmission(0.1, 4, 2)
    for number in range(5):
        waiting.sent(7, data(number), 0.0)
    assert len(waiting) == 2
    assert waiting.counts["full"] == 3
    assert not waiting.acknowledged(8, Ack(1, 0, 0), 0.1)
    assert not waiting.acknowledged(7, Ack(2, 0, 0), 0.1)
    assert len(waiting) == 2
