"""Events through publishers, relays and subscribers, under all schemes."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from packet_world import SERVICE, World, lossy, with_gossip

from surecast.errors import ConfigurationError
from surecast.protocol.coding import CodingSettings, Packet, VectorKind
from surecast.protocol.dissemination import (
    NO_NUMBER,
    SCHEMES,
    Data,
    DisseminationSettings,
    HopAck,
    SendTo,
    encode,
    scheme_settings,
)
from surecast.protocol.gossip import Announcement, GossipSettings, PacketRequest, Reply
from surecast.scenario.paths import CapacityGraph

BUTTERFLY = [(0, 1), (0, 2), (1, 5), (2, 6), (1, 3), (2, 3), (3, 4), (4, 5), (4, 6)]
CODING = CodingSettings(packets=8, redundancy=0.25, packet_bytes=16)
GOSSIP = GossipSettings(fan_out=2, rounds=4, interval_s=0.1)


def mesh(brokers: int, seed: int) -> CapacityGraph:
    rng = np.random.default_rng(seed)
    links = [(i, int(rng.integers(0, i)), float(rng.integers(1, 9))) for i in range(1, brokers)]
    more = [(a, b) for a in range(brokers) for b in range(a) if rng.random() < 0.3]
    return CapacityGraph.both_ways(links + [(a, b, float(rng.integers(1, 9))) for a, b in more])


def homes(count: int, brokers: int) -> dict[int, int]:
    return {100 + i: i % brokers for i in range(count)}


def event(size: int, seed: int = 0) -> bytes:
    return np.random.default_rng(seed).bytes(size)


@pytest.mark.parametrize("wire", [False, True])
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("size", [1, 128, 1000])
def test_without_losses_everybody_gets_the_event(scheme: str, size: int, wire: bool) -> None:
    world = World(mesh(6, 2), 6, homes(9, 6), scheme_settings(scheme, CODING, replace(GOSSIP, rounds=8)), wire=wire)
    world.subscribe_all()
    publication = world.publish(event(size), 3.0)
    world.run()
    for n in world.subscribers:
        assert world.notified[n][publication.event_id][1].data == event(size)
    assert not world.expired
    assert not any(node.counters.refused["malformed"] for node in world.nodes.values())
    for kind in ("messages", "bytes"):  # what was sent was received, as nothing was lost
        sent, received = (
            sum((getattr(node.counters, f"{way}_{kind}") for node in world.nodes.values()), Counter[str]())
            for way in ("sent", "received")
        )
        assert sent == received


@pytest.mark.parametrize(("scheme", "sent"), [("coding", 10), ("tree", 8)])
def test_losses_on_the_last_hop_are_survived_as_often_as_enough_packets_come(scheme: str, sent: int) -> None:
    """At least 8 of those sent must come: the binomial law, up to the 1 in 256 that a combination says nothing new."""
    world = World(
        CapacityGraph.both_ways([(0, 1, 5.0)]), 2, {100 + i: 0 for i in range(40)}, scheme_settings(scheme, CODING)
    )
    world.lose = lossy(0.15, 7)
    world.subscribe_all()
    for i in range(20):
        world.publish(event(128, i), world.now + 0.1)
    world.run()
    expected = sum(math.comb(sent, k) * 0.85**k * 0.15 ** (sent - k) for k in range(8, sent + 1))
    share = sum(len(got) for got in world.notified.values()) / 800
    assert share == pytest.approx(expected, abs=4 * math.sqrt(expected * (1 - expected) / 800) + 0.008)


def test_coding_reaches_the_capacity_of_the_butterfly_and_forwarding_does_not() -> None:
    """Each link may carry half of the packets: with recoding both sinks decode, without they cannot."""
    graph = CapacityGraph(dict.fromkeys(BUTTERFLY, 1.0))
    settings = DisseminationSettings(CodingSettings(packets=20, redundancy=0.0, packet_bytes=4))
    carried: dict[tuple[int, int], int] = {}

    def limit(a: int, b: int, message: object) -> bool:
        if not isinstance(message, Data) or b >= 100:
            return False
        carried[a, b] = carried.get((a, b), 0) + 1
        return carried[a, b] > 10  # what is beyond the capacity is lost

    for recode, expected in ((True, {100, 101}), (False, set())):
        carried.clear()
        world = World(graph, 7, {100: 5, 101: 6}, replace(settings, recode=recode), lose=limit)
        world.subscribe_all()
        assert world.publish(event(80), 2.0).rate_per_s == 2.0
        world.run()
        assert {n for n in world.notified if world.notified[n]} == expected
        if recode:
            assert set(carried.values()) == {10}


def test_a_relay_sends_plain_packets_on_where_nobody_needs_combinations() -> None:
    world = World(mesh(6, 2), 6, {100: 5}, scheme_settings("coding", CODING))
    world.subscribe_all()
    world.publish(event(128), 2.0)
    world.run()
    assert all(m.number != NO_NUMBER for *_, m in world.sent if isinstance(m, Data))


@pytest.mark.parametrize("seed", range(3))
def test_gossip_brings_what_coding_leaves_missing(seed: int) -> None:
    """With a fifth of all packets lost, coding alone leaves events incomplete, and gossip completes them."""
    share = {}
    for scheme in ("tree", "coding", "coding-gossip"):
        settings = scheme_settings(scheme, CODING, GOSSIP)
        world = World(mesh(8, seed), 8, homes(16, 8), settings, seed, lossy(0.2, seed))
        world.subscribe_all()
        for i in range(5):
            world.publish(event(128, i), world.now + 2.0)
        world.run()
        share[scheme] = sum(len(got) for got in world.notified.values()) / 80
        assert sum(len(got) for got in world.notified.values()) + len(world.expired) <= 80
        for got in world.notified.values():
            for number, (_, note) in got.items():
                assert note.data == event(128, number)
    assert share["tree"] < share["coding"] < share["coding-gossip"]
    assert share["coding-gossip"] > 0.9


def test_retransmission_makes_up_for_all_losses_and_its_messages_are_counted() -> None:
    settings = scheme_settings("tree-retransmission", CODING)
    world = World(mesh(6, 1), 6, homes(6, 6), settings, lose=lossy(0.2, 3, (Data, HopAck)))
    world.subscribe_all()
    publication = world.publish(event(128), 5.0)
    world.run()
    assert all(world.notified[n][publication.event_id][1].data == event(128) for n in world.subscribers)
    again = sum(relay.retransmission.counts["again"] for relay in [world.publisher, *world.relays.values()])
    first = 8 * (5 + 6)  # eight packets over each link of the tree and to each subscriber
    assert again > 0
    assert world.count(Data) == first + again
    assert not any(len(relay.retransmission) for relay in world.relays.values())


def test_retransmission_stops_at_the_deadline() -> None:
    settings = scheme_settings("tree-retransmission", CODING)
    world = World(mesh(3, 1), 3, {100: 2}, settings, lose=lambda a, b, m: isinstance(m, Data) and b == 100)
    world.subscribe_all()
    world.publish(event(128), 1.0)
    world.run()
    last = max(t for t, a, b, m in world.sent if isinstance(m, Data))
    assert last < 1.0
    assert world.relays[2].retransmission.counts["gave up"] == 8


def test_losses_before_a_relay_are_made_up_for_behind_it() -> None:
    """Of ten packets two are lost on the first link; the relay still sends ten, two of them combinations."""
    graph = CapacityGraph.both_ways([(0, 1, 5.0), (1, 2, 5.0)])
    lost = iter([True, True])
    world = World(
        graph,
        3,
        {100: 2},
        scheme_settings("coding", CODING),
        lose=lambda a, b, m: isinstance(m, Data) and (a, b) == (0, 1) and next(lost, False),
    )
    world.subscribe_all()
    world.publish(event(128), 2.0)
    world.run()
    behind = [m for _, a, b, m in world.sent if (a, b) == (1, 2) and isinstance(m, Data)]
    assert len(behind) == 10
    assert sum(m.number == NO_NUMBER for m in behind) == 2
    assert world.notified[100]


def test_overhead_of_push_pull_on_three_subscribers_by_hand() -> None:
    """One of three subscribers misses two packets of eight; one round, fan-out 2.

    The two complete ones announce it to both others each: 4 digests of 24 bytes. The third asks the first that it
    hears, for 2 packets in one request, and gets 2 replies. Then it announces too: 2 more digests.
    """
    coding = replace(CODING, redundancy=0.0)
    settings = DisseminationSettings(coding, "tree", gossip=GossipSettings(fan_out=2, rounds=1))
    missed = iter([True, True])
    world = World(
        CapacityGraph.both_ways([(0, 1, 1.0)]),
        2,
        {100: 1, 101: 1, 102: 1},
        settings,
        lose=lambda a, b, m: isinstance(m, Data) and b == 102 and next(missed, False),
        wire=True,
    )
    world.subscribe_all()
    world.publish(event(128), 2.0)
    world.run()
    assert all(world.notified[n] for n in (100, 101, 102))
    assert [world.notified[n][0][1].recovered for n in (100, 101, 102)] == [False, False, True]
    assert (world.count(Announcement), world.count(PacketRequest), world.count(Reply)) == (6, 1, 2)
    totals: dict[str, tuple[int, int]] = {}
    for kind in ("Announcement", "PacketRequest", "Reply"):
        messages = sum(s.counters.sent_messages[kind] for s in world.subscribers.values())
        totals[kind] = (messages, sum(s.counters.sent_bytes[kind] for s in world.subscribers.values()))
    # 8 bytes of header, 4 of checksum; a reply: group and deadline (12), packet header and checksum (35),
    # a vector of 8 bytes and a payload of 16.
    assert totals == {
        "Announcement": (6, 6 * 36),
        "PacketRequest": (1, 12 + 8 + 8),
        "Reply": (2, 2 * (12 + 12 + 35 + 8 + 16)),
    }
    for kind, (messages, size) in totals.items():
        received = sum(s.counters.received_messages[kind] for s in world.subscribers.values())
        assert received == messages
        assert sum(s.counters.received_bytes[kind] for s in world.subscribers.values()) == size


def test_plain_packets_are_usable_before_the_event_is_complete() -> None:
    settings = replace(scheme_settings("coding", CODING), early=True)
    lost = iter([False] * 3 + [True])
    world = World(
        CapacityGraph.both_ways([(0, 1, 5.0)]),
        2,
        {100: 1},
        settings,
        lose=lambda a, b, m: isinstance(m, Data) and b == 100 and next(lost, False),
    )
    world.subscribe_all()
    world.publish(event(128), 2.0)
    world.run()
    assert b"".join(early.data for _, early in world.early) == event(128)[:48]
    assert [early.start for _, early in world.early] == [0, 16, 32]
    assert world.notified[100]


def test_after_the_deadline_nothing_is_sent_and_what_is_missing_is_said() -> None:
    settings = with_gossip(scheme_settings("coding-gossip", CODING, GOSSIP), rounds=100)
    world = World(
        mesh(4, 1), 4, homes(6, 4), settings, lose=lambda a, b, m: b == 105 and not isinstance(m, Announcement)
    )
    world.subscribe_all()
    world.publish(event(128), 1.0)
    world.run()
    assert max(t for t, *_ in world.sent) < 1.0
    ((subscriber, expire),) = world.expired
    assert (subscriber, expire.missing, expire.reason) == (105, 8, "deadline")
    assert all(node.next_timer() == float("inf") for n, node in world.nodes.items() if n != SERVICE)


def test_a_publisher_that_paces_sends_by_the_flow_of_each_branch() -> None:
    graph = CapacityGraph({(0, 1): 30.0, (0, 2): 10.0, (1, 3): 30.0, (2, 3): 10.0})
    settings = replace(scheme_settings("coding", replace(CODING, redundancy=0.0)), pace=True)
    world = World(graph, 4, {100: 3}, settings)
    world.subscribe_all()
    publication, effects = world.service.publish(0, "t", 128, 2.0, 0.0)
    world.carry_out(SERVICE, effects)
    world.run(0.1)
    assert publication.rate_per_s == 40.0
    sends = world.publisher.publish(publication.event_id, publication.group, event(128), 2.0, 0.1, 40.0)
    times = {to: [s.after_s for s in sends if isinstance(s, SendTo) and s.to == to] for to in (1, 2)}
    assert times[1] == pytest.approx([i / 30 for i in range(6)])
    assert times[2] == pytest.approx([i / 10 for i in range(2)])


def test_the_same_seed_gives_the_same_run() -> None:
    runs = []
    for seed in (5, 5, 6):
        settings = scheme_settings("coding-gossip", CODING, GOSSIP)
        world = World(mesh(6, 2), 6, homes(12, 6), settings, seed, lossy(0.3, 1))
        world.subscribe_all()
        world.publish(event(128), 2.0)
        world.run()
        runs.append([(t, a, b, type(m).__name__) for t, a, b, m in world.sent])
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"paths": "ring"}, "paths"),
        ({"paths": "none"}, "gossip"),
        ({"flush_s": 0.0}, "flush_s"),
        ({"events_max": 0}, "events_max"),
        ({"mtu_bytes": 80}, "mtu_bytes"),
        ({"coding": CodingSettings(packets=600, packet_bytes=1000)}, "mtu_bytes"),
    ],
)
def test_settings_that_cannot_work_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        DisseminationSettings(**{"coding": CODING, **change})  # type: ignore[arg-type]


@pytest.mark.parametrize("key", [None, b"sixteen bytes or more"])
def test_the_longest_packet_fills_a_datagram_exactly(key: bytes | None) -> None:
    coding = CodingSettings(packets=64, packet_bytes=1000, key=key)
    tag = 4 if key is None else 16
    longest = 8 + 15 + 31 + 64 + 1000 + 2 * tag
    settings = DisseminationSettings(coding, mtu_bytes=longest, key=key)
    with pytest.raises(ConfigurationError, match="mtu_bytes"):
        replace(settings, mtu_bytes=longest - 1)
    packet = Packet(1, 64_000, 0, 64, VectorKind.RECODED, bytes(1000), full_vector=np.ones(64, dtype=np.uint8))
    assert len(encode(Data(0, NO_NUMBER, 1.0, packet), 1, coding, key, longest)) == longest
