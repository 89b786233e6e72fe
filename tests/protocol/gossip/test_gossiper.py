"""Gossip in worlds small enough to follow by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from surecast.errors import ConfigurationError
from surecast.protocol.coding import CodingSettings, EventEncoder, VectorKind
from surecast.protocol.gossip import (
    Announced,
    Announcement,
    Draws,
    Gossiper,
    GossipSettings,
    Holding,
    PacketRequest,
    Push,
    Reply,
    Wanted,
)

CODING = CodingSettings(packets=4, redundancy=0.0, packet_bytes=2)
SETTINGS = GossipSettings(fan_out=2, rounds=3, interval_s=0.1)
DATA = b"an event that has three generations"[:24]


def holding(event_id: int = 1, have: int = 99, group: int = 0, deadline_s: float = 9.0, data: bytes = DATA) -> Holding:
    """An event with the first so many of its plain packets."""
    held = Holding(Announced(event_id, group, len(data), deadline_s), CODING)
    for packet in EventEncoder(event_id, data, CODING, seed=1).plain()[:have]:
        held.add(packet)
    return held


def gossiper(settings: GossipSettings = SETTINGS, node: int = 0) -> Gossiper:
    made = Gossiper(node, settings, seed=4)
    made.meet(0, range(1, 6))  # type: ignore[arg-type]
    return made


def test_push_pull_announces_at_once_and_then_every_interval_until_its_rounds_are_over() -> None:
    node = gossiper()
    out = node.offer(holding(), 1.0)
    times = [1.0]
    while node.next_timer() < math.inf:
        times.append(node.next_timer())
        out += node.handle_timer(times[-1])
    assert times == pytest.approx([1.0, 1.1, 1.2])
    assert len(out) == 6
    assert all(message == Announcement((Announced(1, 0, 24, 9.0),)) for _, message in out)
    assert all(out[i][0] != out[i + 1][0] for i in (0, 2, 4))  # a round goes to different peers


def test_push_sends_the_whole_event_or_as_much_of_it_as_is_set() -> None:
    for push_packets, expected in ((None, 12), (5, 5), (1, 1)):
        node = gossiper(replace(SETTINGS, mode="push", push_packets=push_packets))
        out = node.offer(holding(), 1.0)
        assert len(out) == 2 * expected
        peer = out[0][0]
        receiver = holding(have=0)
        for to, message in out:
            assert isinstance(message, Push)
            if to == peer:
                receiver.add(message.packet)
        assert receiver.rank >= expected - 1  # one of few random combinations may say nothing new


def test_pull_announces_the_latest_events_together_and_periodically() -> None:
    node = gossiper(replace(SETTINGS, mode="pull", rounds=2, digest_events=2))
    assert [node.offer(holding(i), 1.0) for i in (1, 2, 3)] == [[], [], []]
    first = node.next_timer()
    assert 1.0 <= first < 1.1
    out = node.handle_timer(first)
    assert [
        [event.event_id for event in message.events] for _, message in out if isinstance(message, Announcement)
    ] == [
        [2, 3],
        [2, 3],
    ]
    assert node.next_timer() == pytest.approx(first + 0.1)
    node.handle_timer(node.next_timer())
    assert node.next_timer() == math.inf


def test_who_misses_packets_asks_for_as_many_as_it_misses_and_any_complete_it() -> None:
    giver, taker = gossiper(), gossiper(node=1)
    giver.offer(holding(), 1.0)
    mine = holding(have=7)
    ((to, request),) = taker.announced(mine.announced, mine, 0, 1.0)
    assert to == 0
    assert request == PacketRequest(1, (Wanted(1, 1), Wanted(2, 4)))
    replies = giver.asked(request, 1, 1.1)
    assert len(replies) == 5
    for to, reply in replies:
        assert to == 1
        assert isinstance(reply, Reply)
        assert reply.packet.kind is VectorKind.RECODED
        mine.add(reply.packet)
    assert mine.rank >= 11
    assert not mine.complete or mine.decoder.data() == DATA


def test_plain_packets_are_asked_for_by_number_where_nothing_is_coded() -> None:
    plain = replace(SETTINGS, coded=False)
    giver, taker = gossiper(plain), gossiper(plain, node=1)
    giver.offer(holding(), 1.0)
    mine = holding(have=7)
    ((_, request),) = taker.announced(mine.announced, mine, 0, 1.0)
    assert request == PacketRequest(1, (Wanted(1, 1, (3,)), Wanted(2, 4, (0, 1, 2, 3))))
    for _, reply in giver.asked(request, 1, 1.1):
        assert isinstance(reply, Reply)
        assert mine.add(reply.packet)
    assert mine.decoder.data() == DATA


def test_it_asks_one_peer_at_a_time_and_again_where_no_answer_comes() -> None:
    node = gossiper(node=1)
    mine = holding(have=0)
    assert len(node.announced(mine.announced, mine, 2, 1.0)) == 1
    assert node.announced(mine.announced, mine, 3, 1.01) == []
    asked = []
    while node.next_timer() < math.inf:
        asked += node.handle_timer(node.next_timer())
    assert len(asked) == 2  # three tries with the first
    assert {to for to, _ in asked} <= {2, 3}
    assert len(node.announced(mine.announced, mine, 4, 2.0)) == 1  # a new announcement starts it again


def test_with_patience_it_asks_only_for_what_has_not_come_meanwhile() -> None:
    node = gossiper(replace(SETTINGS, patience_s=0.05), node=1)
    mine = holding(have=3)
    assert node.announced(mine.announced, mine, 2, 1.0) == []
    for packet in EventEncoder(1, DATA, CODING, seed=1).plain()[:10]:
        mine.add(packet)
    assert node.next_timer() == 1.05
    assert node.handle_timer(1.05) == [(2, PacketRequest(1, (Wanted(2, 2),)))]


def test_it_stops_asking_when_the_event_is_complete() -> None:
    node = gossiper(replace(SETTINGS, rounds=0), node=1)
    mine = holding(have=0)
    node.announced(mine.announced, mine, 2, 1.0)
    assert node.offer(holding(), 1.05) == []
    assert node.next_timer() == math.inf


def test_nothing_is_said_after_the_deadline() -> None:
    node = gossiper()
    node.offer(holding(deadline_s=1.05), 1.0)
    assert node.handle_timer(1.1) == []
    assert node.next_timer() == math.inf
    assert node.kept_packets == 0
    late = holding(2, deadline_s=1.0)
    assert node.offer(late, 1.0) == []
    missing = holding(3, have=0, deadline_s=1.0)
    assert node.announced(missing.announced, missing, 1, 1.0) == []
    assert node.counts["expired"] == 2
    node.offer(holding(4, deadline_s=1.2), 1.1)
    assert node.asked(PacketRequest(4, (Wanted(0, 4),)), 1, 1.2) == []


def test_repeated_requests_gain_no_more_than_twice_the_event() -> None:
    node = gossiper()
    node.offer(holding(), 1.0)
    request = PacketRequest(1, (Wanted(0, 65535), Wanted(1, 4), Wanted(2, 4), Wanted(7, 4)))
    assert [len(node.asked(request, 1, 1.0)) for _ in range(4)] == [12, 12, 0, 0]
    assert node.counts["answered enough"] == 2
    assert len(node.asked(request, 2, 1.0)) == 12


def test_peers_beyond_the_limit_are_not_answered() -> None:
    node = gossiper(replace(SETTINGS, peers_max=2))
    node.offer(holding(), 1.0)
    assert [len(node.asked(PacketRequest(1, (Wanted(0, 1),)), peer, 1.0)) for peer in (1, 2, 3, 1)] == [1, 1, 0, 1]


def test_the_buffer_holds_so_many_packets_and_the_oldest_events_make_room() -> None:
    node = gossiper(replace(SETTINGS, buffer_packets=30))
    for event_id in (1, 2, 3):
        node.offer(holding(event_id), 1.0)
    assert node.kept_packets == 24
    assert node.counts["evicted"] == 1
    assert node.asked(PacketRequest(1, (Wanted(0, 1),)), 1, 1.0) == []
    assert node.counts["not held"] == 1
    assert len(node.asked(PacketRequest(3, (Wanted(0, 1),)), 1, 1.0)) == 1
    assert node.offer(holding(4, data=bytes(100)), 1.0) == []
    assert node.counts["too large"] == 1


def test_what_is_chased_is_bounded() -> None:
    node = gossiper(replace(SETTINGS, events_max=5), node=1)
    for event_id in range(20):
        mine = holding(event_id, have=0)
        node.announced(mine.announced, mine, 2, 1.0)
    assert node.counts["evicted"] == 15
    assert len(node.handle_timer(1.2)) == 5


def test_parts_of_an_event_are_shared_where_that_is_set() -> None:
    node = gossiper(replace(SETTINGS, partial=True))
    part = holding(have=6)
    assert len(node.offer(part, 1.0)) == 2
    replies = node.asked(PacketRequest(1, (Wanted(0, 4), Wanted(1, 4), Wanted(2, 4))), 1, 1.0)
    assert [reply.packet.generation for _, reply in replies if isinstance(reply, Reply)] == [0] * 4 + [1] * 2


def test_a_group_that_is_left_is_forgotten() -> None:
    node = gossiper()
    node.offer(holding(), 1.0)
    mine = holding(2, have=0)
    node.announced(mine.announced, mine, 3, 1.0)
    node.leave(0)
    assert node.next_timer() == math.inf
    assert node.kept_packets == 0


def test_a_request_fits_into_a_datagram_however_much_is_missing() -> None:
    many = CodingSettings(packets=64, packet_bytes=1)
    mine = Holding(Announced(1, 0, 64 * 200, 9.0), many)
    assert len(mine.missing(coded=True)) == 60
    assert sum(len(wanted.numbers) for wanted in mine.missing(coded=False)) == 400


def test_draws_follow_the_reference_generator() -> None:
    """The first words of SplitMix64 from 1234567, as published with it."""
    draws = Draws(1234567)
    assert [draws.word() for _ in range(3)] == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_samples_are_uniform_and_without_repetition() -> None:
    draws = Draws(3, node=8)
    counts = [0] * 7
    for _ in range(7000):
        sample = draws.sample(range(7), 3)
        assert len(set(sample)) == 3
        for i in sample:
            counts[i] += 1
    # Chi-square with 6 degrees of freedom, a little smaller for draws without repetition: 22.5 is its 0.999 quantile.
    assert sum((c - 3000) ** 2 / 3000 for c in counts) < 22.5


@pytest.mark.parametrize(
    "change",
    [
        {"mode": "shout"},
        {"fan_out": 0},
        {"rounds": -1},
        {"interval_s": 0.0},
        {"patience_s": -1.0},
        {"push_packets": 0},
        {"partial": True, "coded": False},
        {"buffer_packets": 0},
    ],
)
def test_settings_that_make_no_sense_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(change))):
        GossipSettings(**change)  # type: ignore[arg-type]
