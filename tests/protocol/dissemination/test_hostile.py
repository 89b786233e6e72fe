"""Replayed, forged, oversized and nonsensical datagrams do no harm: they are counted, and every table stays bounded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from packet_world import SERVICE, World

from surecast.protocol.coding import CodingSettings, EventEncoder, Packet, VectorKind
from surecast.protocol.dissemination import (
    NO_NUMBER,
    Data,
    DisseminationSettings,
    EventComplete,
    Install,
    Message,
    Relay,
    SendTo,
    SubscriberNode,
    View,
    encode,
    scheme_settings,
)
from surecast.protocol.gossip import Announced, Announcement, GossipSettings, PacketRequest, Push, Wanted
from surecast.scenario.paths import Branch, CapacityGraph, Forwarding

CODING = CodingSettings(packets=8, redundancy=0.25, packet_bytes=16)
SETTINGS = scheme_settings("coding-gossip", CODING, GossipSettings(fan_out=2, rounds=2))
DATA = bytes(range(128))
KNOWN = range(1000)


def packets(event_id: int = 1, data: bytes = DATA) -> list[Packet]:
    return list(EventEncoder(event_id, data, CODING, seed=3).packets())


def subscriber(settings: DisseminationSettings = SETTINGS) -> SubscriberNode:
    made = SubscriberNode(100, 1, settings, KNOWN, SERVICE)
    made.known = frozenset([*KNOWN, SERVICE])
    made.join(0, 0, (101, 102))
    return made


def relay(settings: DisseminationSettings = SETTINGS, count: int = 10) -> Relay:
    made = Relay(1, settings, frozenset([*KNOWN, SERVICE]), SERVICE)
    blocks = ((0, 10),)
    made.install(0, 0, Forwarding(1, 10, 10, (Branch(2, count, blocks), Branch(100, 10, blocks))))
    return made


def test_a_relay_does_not_multiply_replayed_packets() -> None:
    node = relay()
    sent = []
    for _ in range(5):
        for number, packet in enumerate(packets()):
            sent += node.handle(Data(0, number, 5.0, packet), 0, 1.0)
    assert len(sent) == 20
    assert node.counters.refused["duplicate"] == 40
    assert node.handle_timer(node.next_timer()) == []


def test_a_relay_sends_no_more_than_twice_its_share_whatever_comes() -> None:
    """Recoded packets have no numbers; the credit that replays earn ends where the shares end."""
    node = relay(count=5)
    recoded = [packet._replace(kind=VectorKind.RECODED, full_vector=packet.vector(8)) for packet in packets()]
    sent = [e for _ in range(50) for packet in recoded for e in node.handle(Data(0, NO_NUMBER, 5.0, packet), 0, 1.0)]
    per_branch = [sum(isinstance(e, SendTo) and e.to == to for e in sent) for to in (2, 100)]
    assert per_branch[0] <= 10
    assert per_branch[1] <= 20


def test_strangers_impostors_and_nonsense_are_counted_and_ignored() -> None:
    node = subscriber()
    good = Data(0, 0, 5.0, packets()[0])
    assert node.receive(encode(good, 5000, CODING), 5000, 1.0) == []
    assert node.receive(encode(good, 1, CODING), 7, 1.0) == []
    assert node.receive(bytes(5000), 1, 1.0) == []
    assert node.receive(b"", 1, 1.0) == []
    assert node.receive(encode(good, 1, replace(CODING, packets=9)), 1, 1.0) == []
    assert node.handle(good, 7, 1.0) == []  # a peer is not its home broker
    assert node.handle(View(0, 9, ()), 7, 1.0) == []  # nor the service
    assert node.handle(Install(0, 9, 10, 10, ()), SERVICE, 1.0) == []
    assert node.counters.refused == {
        "unknown sender": 1,
        "another sender": 1,
        "too long": 1,
        "too short": 1,
        "bad packet": 1,
        "not for this subscriber": 3,
    }
    assert not node.incomplete


def test_a_relay_takes_paths_from_the_service_alone_and_only_newer_ones() -> None:
    node = relay()
    empty = Install(0, 7, 10, 10, ())
    assert node.handle(empty, 5, 1.0) == []
    assert len(node.handle(Data(0, 0, 5.0, packets()[0]), 0, 1.0)) == 2
    node.handle(empty, SERVICE, 1.0)
    assert node.handle(Data(0, 1, 5.0, packets()[1]), 0, 1.0) == []
    node.handle(Install(0, 6, 10, 10, (Branch(2, 10, ((0, 10),)),)), SERVICE, 1.0)
    assert node.handle(Data(0, 2, 5.0, packets()[2]), 0, 1.0) == []


def test_an_event_is_notified_once_however_often_its_packets_come() -> None:
    node = subscriber()
    notes = []
    for _ in range(3):
        for number, packet in enumerate(packets()):
            notes += [e for e in node.handle(Data(0, number, 5.0, packet), 1, 1.0) if isinstance(e, EventComplete)]
        for packet in packets():
            notes += [e for e in node.handle(Push(0, 5.0, packet), 101, 1.0) if isinstance(e, EventComplete)]
    assert len(notes) == 1
    assert node.counters.refused["done with"] == 60 - 8


def test_packets_after_the_deadline_or_with_one_too_far_are_refused() -> None:
    for node in (subscriber(), relay()):
        sender = 1 if node.node == 100 else 0
        assert node.handle(Data(0, 0, 1.0, packets()[0]), sender, 1.0) == []
        assert node.handle(Data(0, 0, 1e5, packets()[0]), sender, 1.0) == []
        assert node.counters.refused == {"expired": 1, "deadline too far": 1}


def test_packets_that_contradict_each_other_are_refused() -> None:
    node = subscriber()
    node.handle(Data(0, 0, 5.0, packets()[0]), 1, 1.0)
    node.handle(Data(0, 0, 5.0, packets(data=bytes(64))[0]), 1, 1.0)
    assert node.counters.refused["contradicts"] == 1
    broker = relay()
    broker.handle(Data(0, 0, 5.0, packets()[0]), 0, 1.0)
    assert broker.handle(Data(0, 1, 5.0, packets(data=bytes(64))[1]), 0, 1.0) == []
    assert broker.handle(Data(0, 60, 5.0, packets()[1]), 0, 1.0) == []
    broker.install(5, 0, Forwarding(1, 10, 10, ()))
    assert broker.handle(Data(5, 2, 5.0, packets()[2]), 0, 1.0) == []
    assert broker.counters.refused == {"bad packet": 1, "no such packet": 1, "contradicts": 1}


def test_a_flood_of_announcements_fills_no_memory_and_displaces_no_packets() -> None:
    node = subscriber(replace(SETTINGS, events_max=20))
    for packet in packets()[:5]:
        node.handle(Data(0, 0, 5.0, packet), 1, 1.0)
    for i in range(10, 1010):
        node.handle(Announcement((Announced(i, 0, 128, 5.0),)), 101, 1.0)
    assert len(node.incomplete) == 20
    assert node.incomplete[1] == 3
    huge = Announcement((Announced(5000, 0, 2**32 - 1, 5.0), Announced(5001, 77, 10, 5.0)))
    assert node.handle(huge, 101, 1.0) == []
    assert node.counters.refused["event too large"] == 1
    assert node.counters.refused["unknown group"] == 1


def test_a_flood_of_events_and_groups_fills_no_memory() -> None:
    node = relay(replace(SETTINGS, events_max=10, groups_max=10))
    for i in range(100):
        node.handle(Data(0, 0, 5.0, packets(i, b"x")[0]), 0, 1.0)
        node.handle(Data(1000 + i, 0, 5.0, packets(i, b"x")[0]), 0, 1.0)
        node.handle(Install(2000 + i, 0, 10, 10, (), part=0, parts=2), SERVICE, 1.0)
    assert node.counters.refused["event evicted"] == 90
    assert len(node._passing) == 10
    assert len(node._parts) == 10
    for i in range(2000):
        node.handle(Data(3000 + i, 0, 5.0, packets(1, b"x")[0]), 0, 1.0)
    assert len(node._early) == 1000


def test_repeated_requests_are_answered_only_so_often() -> None:
    node = subscriber()
    for number, packet in enumerate(packets()):
        node.handle(Data(0, number, 5.0, packet), 1, 1.0)
    replies = [node.handle(PacketRequest(1, (Wanted(0, 8),)), 101, 1.0) for _ in range(10)]
    assert sum(len(reply) for reply in replies) == 16


def test_random_messages_in_any_order_break_nothing() -> None:
    """Whatever known nodes say, no node raises, and what comes out can be sent."""
    rng = np.random.default_rng(8)
    world = World(CapacityGraph.both_ways([(0, 1, 5.0), (1, 2, 5.0)]), 3, {100: 2, 101: 1, 102: 2}, SETTINGS, wire=True)
    world.subscribe_all()
    world.publish(DATA, 50.0)
    world.run(1.0)
    seen: list[Message] = [message for *_, message in world.sent]
    strange: list[Message] = [
        PacketRequest(0, (Wanted(5, 9, (1, 2, 9000)), Wanted(9, 0))),
        Announcement((Announced(7, 0, 0, 40.0), Announced(8, 0, 500, 41.0))),
        Data(0, 9, 45.0, packets(99)[9]),
        Install(0, 3, 7, 0, (Branch(2, 7, ((0, 3), (5, 7))),)),
        View(0, 3, (100, 101, 102), (Announced(55, 0, 33, 30.0),)),
        View(0, 4, (), member=False),
    ]
    senders = [0, 1, 2, 100, 101, 102, SERVICE]
    for i in range(1500):
        message = (seen + strange * 3)[int(rng.integers(0, len(seen) + 18))]
        sender, to = (senders[int(k)] for k in rng.integers(0, len(senders), 2))
        now = 1.0 + i * 0.01
        node = world.nodes[to]
        effects = node.receive(encode(message, sender, CODING), sender, now)
        if node.next_timer() <= now:
            effects += node.handle_timer(now)
        for effect in effects:
            if isinstance(effect, SendTo):
                assert len(node.datagram(effect.message)) <= 1400
