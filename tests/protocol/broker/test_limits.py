"""Queues, overflow, expiry, packet sizes, topic aliases: what happens at each limit (docs/semantics.md)."""

from __future__ import annotations

from typing import Any

import pytest

from surecast.errors import ConfigurationError
from surecast.protocol.broker import BrokerSettings
from surecast.protocol.mqtt import (
    V5,
    V311,
    Connack,
    Disconnect,
    Properties,
    Puback,
    Publish,
    Pubrec,
    ReasonCode,
    Suback,
    Subscribe,
    SubscriptionRequest,
)


def away(world: Any, *, name: str = "away", qos: int = 2, version: int = V5) -> Any:
    """A client with a lasting session that has gone."""
    client = world.client(name, version).lasting()
    client.subscribe("a/#", qos)
    client.drop()
    return client


def back(client: Any, **others: Any) -> list[Publish]:
    if client.version == V5:
        others.setdefault("session_expiry_s", 1_000)
    client.connect(False, **others)
    assert client.inbox.pop(0).session_present
    messages: list[Publish] = client.messages()
    return messages


def test_drop_new(make_world: Any, version: int) -> None:
    world = make_world(queue_messages_max=3)
    client, pub = away(world, version=version), world.client("pub").online()
    for count in range(5):
        assert pub.publish("a", b"%d" % count, 1).one(Puback).reason == ReasonCode.SUCCESS
    assert client.session.accounts.dropped == {"queue-full": 2}
    assert [m.payload for m in back(client)] == [b"0", b"1", b"2"]
    assert world.disk_counts() == {"s": 1, "f": 1}


def test_drop_old(make_world: Any) -> None:
    """The oldest of those that wait goes; what is in flight stays."""
    world = make_world(queue_messages_max=3, overflow="drop-old")
    client, pub = world.client("away").lasting(receive_maximum=1), world.client("pub").online()
    client.subscribe("a", 1)
    for count in range(6):
        pub.publish("a", b"%d" % count, 1)
    assert client.session.accounts.dropped == {"queue-full": 3}
    assert client.payloads() == [b"0", b"4", b"5"]
    client.drop()
    for count in range(6):
        pub.publish("a", b"%d" % count, 1)
    world.restart()
    assert [m.payload for m in back(client)] == [b"3", b"4", b"5"]


def test_drop_old_when_everything_is_in_flight(make_world: Any) -> None:
    world = make_world(queue_messages_max=3, overflow="drop-old")
    client, pub = world.client("c").online(), world.client("pub").online()
    client.subscribe("a", 1)
    for count in range(5):
        pub.publish("a", b"%d" % count, 1)
    assert client.session.accounts.dropped == {"queue-full": 2}
    assert client.payloads() == [b"0", b"1", b"2"]


@pytest.mark.parametrize(("qos", "kind"), [(1, Puback), (2, Pubrec)])
def test_reject(make_world: Any, qos: int, kind: type) -> None:
    """0x97 if no session could take the message; success if one could, if nobody had to queue it, or if it is kept."""
    world = make_world(queue_messages_max=2, overflow="reject")
    away(world)
    pub = world.client("pub").online()
    for packet_id in (1, 2):
        pub.publish("a/b", b"", qos, packet_id=packet_id)
    pub.take()
    assert pub.publish("a/b", b"", qos, packet_id=3).one(kind) == kind(3, ReasonCode.QUOTA_EXCEEDED)
    pub.send(*(Publish("a/b", b"", qos, packet_id=n) for n in (3, 4, 5)))
    assert {p.reason for p in pub.take()} == {ReasonCode.QUOTA_EXCEEDED}
    assert pub.publish("a/b", b"x", qos, packet_id=6, retain=True).one(kind).reason == ReasonCode.SUCCESS
    live = world.client("live").online()
    live.subscribe("a/b", 1)
    live.take()
    assert pub.publish("a/b", b"", qos, packet_id=7).one(kind).reason == ReasonCode.SUCCESS
    assert len(live.messages()) == 1
    old = world.client("old", V311).online()
    assert old.publish("a/c", b"", qos, packet_id=7).one(kind) == kind(7)


def test_expire_first(make_world: Any) -> None:
    """The message nearest its expiry makes room for one that lasts longer; otherwise the new one goes."""
    world = make_world(queue_messages_max=3, overflow="expire-first")
    client, pub = away(world), world.client("pub").online()
    for name, expiry in (("never", None), ("50", 50), ("90", 90), ("70", 70), ("60", 60), ("never2", None)):
        pub.publish("a", name.encode(), 1, **({"message_expiry_s": expiry} if expiry else {}))
    assert client.session.accounts.dropped == {"queue-full": 3}
    assert [m.payload for m in back(client)] == [b"never", b"90", b"never2"]


def test_expired_messages_make_room(make_world: Any) -> None:
    world = make_world(queue_messages_max=2)
    client, pub = away(world), world.client("pub").online()
    pub.publish("a", b"1", 1, message_expiry_s=5).publish("a", b"2", 1)
    world.now += 6
    pub.publish("a", b"3", 1)
    assert client.session.accounts.expired == 1
    assert [m.payload for m in back(client)] == [b"2", b"3"]


def test_bytes(make_world: Any) -> None:
    """The bytes that wait are limited; one message alone is always taken."""
    world = make_world(queue_bytes_max=1_000)
    client, pub = away(world), world.client("pub").online()
    pub.publish("a", bytes(5_000), 1).publish("a", b"no", 1)
    assert [len(m.payload) for m in back(client)] == [5_000]
    client.drop()
    for size in (500, 400, 400, 50):
        pub.publish("a", bytes(size), 1)
    assert [len(m.payload) for m in back(client)] == [500, 400, 50]


def test_nothing_is_dropped_for_a_message_that_does_not_fit_anyway(make_world: Any) -> None:
    world = make_world(queue_bytes_max=1_000, overflow="drop-old")
    client, pub = world.client("away").lasting(receive_maximum=1), world.client("pub").online()
    client.subscribe("a", 1)
    for size in (300, 100, 200):
        pub.publish("a", bytes(size), 1)
    pub.publish("a", bytes(2_000), 1).publish("a", bytes(800), 1)
    assert client.session.queued == 3
    pub.publish("a", bytes(600), 1)
    assert [len(m.payload) for m in client.messages()] == [300, 600]
    assert client.session.accounts.dropped == {"queue-full": 4}


@pytest.mark.parametrize("window", [2, 100])
def test_warnings_of_full_queues(make_world: Any, window: int) -> None:
    """docs/semantics.md: once at four fifths, and again only after it has fallen to half."""
    world = make_world(queue_messages_max=10)
    client, pub = world.client("slow").online(receive_maximum=window), world.client("pub").online()
    client.subscribe("a", 1)
    notices = world.broker.counters.notices
    for _ in range(7):
        pub.publish("a", b"", 1)
    assert notices == []
    for _ in range(5):
        pub.publish("a", b"", 1)
    assert len(notices) == 1
    assert "slow" in notices[0]
    client.messages()
    for _ in range(9):
        pub.publish("a", b"", 1)
    assert len(notices) == 2


def test_qos_0_for_nobody_and_for_the_slow(world: Any) -> None:
    """Reasons offline-qos0 and slow-qos0; QoS 1 still goes to a slow connection."""
    client, pub = away(world), world.client("pub").online()
    pub.publish("a", b"1")
    assert client.session.accounts.dropped == {"offline-qos0": 1}
    back(client)
    pub.publish("a", b"2")
    world.broker.set_congested(client.connection, True)
    pub.publish("a", b"3").publish("a", b"4", 1)
    pub.send(*(Publish("a", b"5") for _ in range(5)))
    world.broker.set_congested(client.connection, False)
    pub.publish("a", b"6")
    assert client.payloads() == [b"2", b"4", b"6"]
    world.broker.accounts()
    assert client.session.accounts.dropped == {"offline-qos0": 1, "slow-qos0": 6}
    assert client.session.accounts.matched == 10


# Message expiry.


def test_the_expiry_interval_counts_down(world: Any) -> None:
    """[MQTT-3.3.2-5], [MQTT-3.3.2-6]: what is left, in whole seconds, rounded up; nothing after it."""
    client, pub = away(world), world.client("pub").online()
    for expiry in (10, 4, 20):
        pub.publish("a", b"%d" % expiry, 1, message_expiry_s=expiry)
    world.now += 4.4
    assert [(m.payload, m.properties.message_expiry_s) for m in back(client)] == [(b"10", 6), (b"20", 16)]
    assert client.session.accounts.expired == 1
    assert world.disk_counts() == {"s": 1, "f": 1}


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("expiry", [0, 1, 10, 0xFFFF_FFFF])
def test_the_interval_of_a_message_that_does_not_wait(world: Any, qos: int, expiry: int) -> None:
    """[MQTT-3.3.2-6]: the received value minus the time waited, which is none."""
    sub = world.client("sub").online()
    sub.subscribe("a", 2)
    world.client("pub").online().publish("a", b"1", qos, message_expiry_s=expiry)
    assert [m.properties.message_expiry_s for m in sub.messages()] == [expiry]


def test_expiry_while_the_window_is_full(world: Any) -> None:
    sub, pub = world.client("sub").online(receive_maximum=1), world.client("pub").online()
    sub.subscribe("a", 1)
    for payload in (b"1", b"2", b"3"):
        pub.publish("a", payload, 1, message_expiry_s=3 if payload == b"2" else 90)
    world.now += 5
    assert [(m.payload, m.properties.message_expiry_s) for m in sub.messages()] == [(b"1", 90), (b"3", 85)]
    assert sub.session.accounts.expired == 1


def test_what_is_in_flight_does_not_expire(world: Any) -> None:
    """3.3.2.3.3: delivery had been started."""
    client, pub = world.client("away").lasting(), world.client("pub").online()
    client.subscribe("a", 1)
    pub.publish("a", b"1", 1, message_expiry_s=5)
    client.take()
    client.drop()
    world.wait(100)
    world.restart()
    assert [(m.payload, m.dup, m.properties.message_expiry_s) for m in back(client)] == [(b"1", True, 0)]


def test_the_sweep_takes_out_what_expired(world: Any) -> None:
    client, pub = away(world), world.client("pub").online()
    for count in range(400):
        pub.publish("a", b"", 1, **({"message_expiry_s": 5} if count % 2 else {}))
    world.wait(6)
    assert (client.session.queued, client.session.accounts.expired) == (200, 200)
    assert world.disk_counts()["m"] == 200


def test_expiry_through_a_restart(world: Any) -> None:
    client, pub = away(world, version=V311), world.client("pub").online()
    pub.publish("a", b"1", 1, message_expiry_s=50).publish("a", b"2", 1, message_expiry_s=5)
    world.restart(after_s=10)
    assert client.session.accounts.expired == 1
    assert [m.payload for m in back(client)] == [b"1"]


def test_deadlines_in_milliseconds(world: Any) -> None:
    """docs/semantics.md: `deadline-ms` is passed on and used for expiry; it makes no interval of its own."""
    client, pub = away(world), world.client("pub").online()
    deadline = (("deadline-ms", "1500"),)
    pub.publish("a", b"late", 1, user=deadline)
    world.now += 1.4
    pub.publish("a", b"both", 1, user=deadline, message_expiry_s=60)
    pub.publish("a", b"nonsense", 1, user=(("deadline-ms", "soon"),))
    world.now += 0.2
    got = back(client)
    assert [(m.payload, m.properties) for m in got] == [
        (b"both", Properties(user=deadline, message_expiry_s=60)),
        (b"nonsense", Properties(user=(("deadline-ms", "soon"),))),
    ]
    assert client.session.accounts.expired == 1
    pub.publish("a", b"now", 1, user=deadline)
    assert client.messages()[0].properties == Properties(user=deadline)


# Packet sizes.


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_too_large_for_a_client(world: Any, qos: int) -> None:
    """[MQTT-3.1.2-24], [MQTT-3.1.2-25]: it is not sent, and treated as if it were; others get it."""
    small, large = world.client("small").online(maximum_packet_size=100), world.client("large").online()
    for sub in (small, large):
        sub.subscribe("a", qos)
    pub = world.client("pub").online()
    for size in (200, 10):
        pub.send(*(Publish("a", bytes(size), qos, packet_id=size + n if qos else 0) for n in (1, 2, 3)))
    assert [len(m.payload) for m in large.messages()] == [200] * 3 + [10] * 3
    assert [len(m.payload) for m in small.messages()] == [10] * 3
    world.broker.accounts()
    assert small.session.accounts.dropped == {"too-large": 3}
    assert small.session.accounts.delivered == 3


@pytest.mark.parametrize("qos", [0, 1])
def test_the_largest_packet_that_fits(world: Any, qos: int) -> None:
    for size in range(20, 40):
        sub = world.client("sub").online(maximum_packet_size=size, topic_alias_maximum=size % 3)
        sub.subscribe("a", qos)
        sub.raw = b""
        pub = world.client("pub").online()
        for length in range(size):
            pub.publish("a", bytes(length), qos)
        got = sub.messages()
        # Two bytes in front, three for the topic, one for no properties; two more with an identifier.
        assert len(got[0].payload) == 0
        assert {len(m.payload) for m in got} >= set(range(size - 6 - 2 * bool(qos) - 3 * bool(size % 3) + 1))
        assert max(len(m.payload) for m in got) <= size - 5
        world.check()


def test_a_connack_that_does_not_fit(world: Any) -> None:
    """[MQTT-3.1.2-24]: a client that takes nothing cannot be served."""
    ann = world.client("ann").connect(maximum_packet_size=6, session_expiry_s=5)
    assert ann.take() == []
    assert ann.closed
    refused = world.client("bob").connect(maximum_packet_size=20, authentication_method="x")
    assert refused.one(Connack) == Connack(False, ReasonCode.BAD_AUTHENTICATION_METHOD)
    refused = world.client("bob").connect(authentication_method="x")
    assert refused.one(Connack).properties.reason_string


def test_answers_that_do_not_fit(world: Any) -> None:
    """[MQTT-3.1.2-24]: an answer above the client's limit cannot be sent, and the client cannot go on without it."""
    ann = world.client("ann").online(maximum_packet_size=30)
    wanted = tuple(SubscriptionRequest(f"f{i}") for i in range(40))
    ann.send(Subscribe(1, wanted))
    assert ann.one(Disconnect).reason == ReasonCode.PACKET_TOO_LARGE
    bob = world.client("bob").online(maximum_packet_size=30)
    assert bob.ask(Subscribe(1, wanted[:20]), Suback).reasons == (0,) * 20


def test_explanations(world: Any) -> None:
    """[MQTT-3.14.2-3]: a DISCONNECT says why if it fits; 3.1.2.11.7: and not if the client wants no explanations."""
    for options, said in (
        ({}, True),
        ({"maximum_packet_size": 20}, False),
        ({"request_problem_information": False}, False),
    ):
        ann = world.client("ann").online(**options)
        ann.send(Publish("", b"", properties=Properties(topic_alias=3)))
        answer = ann.one(Disconnect)
        assert answer.reason == ReasonCode.PROTOCOL_ERROR
        assert bool(answer.properties.reason_string) == said


def test_too_large_for_the_broker(make_world: Any) -> None:
    """3.2.2.3.6: 0x95; and before the CONNECT the limit is lower."""
    world = make_world(packet_bytes_max=1_000, first_packet_bytes_max=200)
    ann = world.client("ann").online()
    ann.publish("a", bytes(900))
    assert ann.ping()
    ann.publish("a", bytes(1_000))
    assert ann.one(Disconnect).reason == ReasonCode.PACKET_TOO_LARGE
    long = world.client("n" * 300).connect()
    assert long.closed
    assert world.client("n" * 300, V311).connect().closed


# Topic aliases.


def test_aliases_of_a_client(world: Any) -> None:
    """3.3.2.3.4 [MQTT-3.3.2-7] to -12: they stand for a topic, can be changed, and are never passed on."""
    sub, pub = world.client("sub").online(), world.client("pub").online()
    sub.subscribe("#", 2)
    pub.publish("a", b"1", topic_alias=1).publish("b", b"2", 1, topic_alias=100)
    pub.publish("", b"3", topic_alias=1).publish("", b"4", 2, topic_alias=100)
    pub.publish("c", b"5", topic_alias=1).publish("", b"6", topic_alias=1)
    got = sub.messages()
    assert [(m.topic, m.payload) for m in got] == [
        *(("a", b"1"), ("b", b"2"), ("a", b"3"), ("b", b"4")),
        *(("c", b"5"), ("c", b"6")),
    ]
    assert all(m.properties.topic_alias is None for m in got)
    # [MQTT-3.3.2-7]: they end with the connection.
    pub.online().publish("", b"7", topic_alias=1)
    assert pub.one(Disconnect).reason == ReasonCode.PROTOCOL_ERROR


@pytest.mark.parametrize(("limit", "alias"), [(3, 4), (3, 65_535), (0, 1)])
def test_aliases_beyond_the_limit(make_world: Any, limit: int, alias: int) -> None:
    """[MQTT-3.3.2-9]: 0x94; a maximum of 0 allows none."""
    pub = make_world(topic_alias_max=limit).client("pub").online()
    pub.publish("a", topic_alias=alias)
    assert pub.one(Disconnect).reason == ReasonCode.TOPIC_ALIAS_INVALID


def test_alias_0(world: Any) -> None:
    """[MQTT-3.3.2-8]: there is none."""
    pub = world.client("pub").online()
    pub.send(bytes.fromhex("30 07 0001 61 03 23 0000"))
    assert pub.one(Disconnect).reason in (ReasonCode.TOPIC_ALIAS_INVALID, ReasonCode.PROTOCOL_ERROR)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_aliases_of_the_broker(world: Any, qos: int) -> None:
    """[MQTT-3.3.2-10], [MQTT-3.3.2-11]: never above the client's maximum; the first use carries the topic."""
    sub, pub = world.client("sub").lasting(topic_alias_maximum=2), world.client("pub").online()
    sub.subscribe("#", 2)
    for topic in ("a", "b", "c", "a", "b", "c"):
        pub.publish(topic, topic.encode(), qos)
    seen = [(m.topic, m.properties.topic_alias) for m in sub.messages()]
    assert seen == [("a", 1), ("b", 2), ("c", None), ("", 1), ("", 2), ("c", None)]
    # [MQTT-3.1.2-26] to -27: a new connection starts anew, and without the property there are none.
    sub.drop()
    pub.publish("b", b"", 1)
    assert [(m.topic, m.properties.topic_alias) for m in back(sub, topic_alias_maximum=1)] == [("b", 1)]
    back(sub)
    pub.publish("b", b"", qos)
    assert [(m.topic, m.properties.topic_alias) for m in sub.messages()] == [("b", None)]


def test_a_message_that_is_sent_again_carries_its_topic(world: Any) -> None:
    """4.4: after a reconnection the aliases of the old connection mean nothing."""
    sub, pub = world.client("sub").lasting(topic_alias_maximum=5), world.client("pub").online()
    sub.subscribe("a", 1)
    pub.publish("a", b"1", 1).publish("a", b"2", 1)
    sub.take()
    sub.drop()
    got = back(sub, topic_alias_maximum=5)
    assert [(m.topic, m.dup, m.properties.topic_alias) for m in got] == [("a", True, 1), ("", True, 1)]


# Settings.


@pytest.mark.parametrize(
    "wrong",
    [
        {"overflow": "lose"},
        {"inflight_max": 70_000},
        {"receive_maximum": 0},
        {"queue_bytes_max": True},
        {"sessions_max": "1"},
    ],
)
def test_settings_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        BrokerSettings(**wrong)
