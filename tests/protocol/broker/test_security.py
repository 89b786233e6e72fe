"""Hostile clients: packets at the wrong time, malformed ones, floods; and who may do what.

The named patterns are those of published weaknesses of MQTT brokers: each must cost the sender its connection, or
nothing at all, and never another client anything.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from surecast.protocol.mqtt import (
    V5,
    V311,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Properties,
    Puback,
    Publish,
    Pubrec,
    ReasonCode,
    Suback,
    Subscribe,
    SubscriptionRequest,
    Will,
    encode,
)


def test_packets_before_connect(world: Any) -> None:
    """[MQTT-3.1.0-1]: the first packet must be a CONNECT; anything else closes the connection without an answer."""
    for packet in (Pingreq(), Publish("a", b"1"), Subscribe(1, (SubscriptionRequest("#"),)), Disconnect()):
        ann = world.client("ann").open()
        ann.send(packet)
        assert ann.closed
        assert ann.raw == b""
    assert world.broker.sessions.by_key == {}


def test_a_second_connect(world: Any, version: int) -> None:
    """[MQTT-3.1.0-2]: a protocol error."""
    ann = world.client("ann", version).online()
    ann.send(Connect("ann", version=version))
    assert ann.closed
    assert [p.reason for p in ann.take()] == ([ReasonCode.PROTOCOL_ERROR] if version == V5 else [])


def test_no_connect_in_time(world: Any) -> None:
    """docs/semantics.md: ten seconds; 3.1.4 asks for a reasonable time."""
    ann, bob = world.client("ann").open(), world.client("bob").online()
    world.wait(9.9)
    assert not ann.closed
    world.wait(0.2)
    assert ann.closed
    assert bob.ping()


@pytest.mark.parametrize(
    ("level", "answer"), [(3, "20020001"), (6, "2003008400"), (0, "20020001"), (131, "2003008400")]
)
def test_unknown_versions(world: Any, level: int, answer: str) -> None:
    """[MQTT-3.1.2-2]: 0x84 in 5.0, return code 1 in 3.1.1."""
    ann = world.client("ann").open()
    ann.hear = lambda data: setattr(ann, "raw", ann.raw + data)
    ann.send(b"\x10\x0d\x00\x04MQTT" + bytes((level,)) + b"\x02\x00\x3c\x00\x01a")
    assert ann.raw.hex() == answer
    assert ann.closed


def test_a_foreign_protocol(world: Any) -> None:
    """[MQTT-3.1.2-1]: a wrong protocol name: closed, and nothing said in a language that nobody asked for."""
    ann = world.client("ann").open()
    ann.send(b"\x10\x0d\x00\x04HTTP\x05\x02\x00\x3c\x00\x01a")
    assert (ann.closed, ann.raw) == (True, b"")
    bob = world.client("bob").open()
    bob.send(b"GET / HTTP/1.1\r\n\r\n")
    assert (bob.closed, bob.raw) == (True, b"")


def test_auth_is_refused(world: Any) -> None:
    """4.12: no method is supported, 0x8C; AUTH without one is a protocol error [MQTT-4.12.0-6]."""
    ann = world.client("ann").connect(authentication_method="SCRAM", authentication_data=b"1")
    assert ann.one(Connack).reason == ReasonCode.BAD_AUTHENTICATION_METHOD
    assert ann.closed
    bob = world.client("bob").online()
    bob.send(Auth(ReasonCode.REAUTHENTICATE, Properties(authentication_method="SCRAM")))
    assert bob.one(Disconnect).reason == ReasonCode.PROTOCOL_ERROR


def test_malformed_packets_hurt_their_sender_only(world: Any, version: int) -> None:
    """4.13 [MQTT-4.13.1-1], [MQTT-4.8.0-1]: the connection is closed; packets before the bad one count."""
    watch = world.client("watch").online()
    watch.subscribe("#", 1)
    ann = world.client("ann", version).online()
    good = encode(Publish("a", b"good", 1, packet_id=1), version)
    ann.send(good, b"\x30\x05\x00\xff", Publish("a", b"after"))
    ann.send(Publish("a", b"after"))
    assert ann.closed or ann.decoder.held_bytes == 0
    ann.open()
    ann.send(Connect("ann", version=version), good, b"\x36\x00", good)
    assert ann.closed
    kinds = [type(p).__name__ for p in ann.take()]
    assert kinds == ["Connack", "Puback", *(["Disconnect"] if version == V5 else [])]
    assert set(watch.payloads()) == {b"good"}


def test_random_bytes_have_no_effect_on_others(world: Any) -> None:
    """One line: any bytes, from any client, at any time, leave the broker standing and the others served."""
    rng = random.Random(7)
    sub, pub = world.client("sub").lasting(), world.client("pub", V311).online()
    sub.subscribe("safe", 1)
    seeds = [
        encode(Publish("a/b", b"123", 1, packet_id=1, properties=Properties(user=(("a", "b"),), topic_alias=1)), V5),
        encode(Subscribe(5, (SubscriptionRequest("$share/g/a", 1),), Properties(subscription_ids=(3,))), V5),
        encode(Publish("a", b"1" * 200, 2, packet_id=9), V5),
        encode(Disconnect(ReasonCode.DISCONNECT_WITH_WILL_MESSAGE, Properties(session_expiry_s=3)), V5),
        encode(Pubrec(3), V5) + encode(Puback(4), V5) + encode(Pingreq(), V5),
    ]
    connect = encode(
        Connect("bad", False, 5, "u", b"p", Will("w/x", b"1", 1, True, Properties(will_delay_s=3, user=(("a", "b"),)))),
        V5,
    )
    for count in range(400):
        bad = world.client("bad").open()
        bad.hear = lambda data: None
        parts = [connect, *rng.sample(seeds, 3)]
        if rng.random() < 0.3:
            parts[0] = encode(Connect("bad", False, version=V311), V311)
        data = bytearray(b"".join(parts))
        for _ in range(rng.choice((0, 1, 1, 2, 5))):
            data[rng.randrange(len(data))] = rng.choice((0, 1, 2, 4, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        cut = rng.randrange(len(data))
        bad.send(bytes(data[:cut]))
        bad.send(bytes(data[cut:]))
        pub.publish("safe", b"%d" % count, 1)
        if count % 50 == 49:
            world.wait(10)
            assert sub.payloads()[-1] == b"%d" % count
            pub.take()
    world.restart()
    sub.connect(False, session_expiry_s=1)
    assert sub.ping()


# Permissions.


def test_the_hook_is_asked_once_per_topic(make_world: Any) -> None:
    """Who may publish is remembered for the connection, and asked again for the next one."""
    asked: list[tuple[str, str, str, str]] = []

    def authorise(user: str, client: str, action: str, topic: str) -> bool:
        asked.append((user, client, action, topic))
        return topic != "no"

    world = make_world({"authorise": authorise})
    ann = world.client("ann").online(identity="CN=ann")
    for _ in range(3):
        ann.publish("a", b"", 0).publish("no", b"", 0).publish("a", b"", 2).publish("no", b"", 1, retain=True)
        ann.send(*(Publish("no", b"1") for _ in range(4)))
    assert asked == [("CN=ann", "ann", "publish", "a"), ("CN=ann", "ann", "publish", "no")]
    assert len(world.broker.retained) == 0
    ann.online().publish("a")
    assert len(asked) == 3
    world.broker.permissions_changed()
    ann.publish("a").publish("a")
    assert len(asked) == 4
    ann.subscribe("$share/g/a/#", check=False)
    assert asked[-1] == ("", "ann", "subscribe", "a/#")


def test_what_is_not_allowed_reaches_nobody(make_world: Any, version: int) -> None:
    world = make_world({"authorise": lambda user, client, action, topic: client == "boss" or action == "subscribe"})
    boss, ann = world.client("boss").online(), world.client("ann", version).online()
    boss.subscribe("#", 2)
    for qos in (0, 1, 2):
        ann.publish("a", b"1", qos, retain=True)
        ann.send(*(Publish("a", b"1", qos, packet_id=n if qos else 0) for n in (50, 51, 52)))
    assert boss.messages() == []
    assert ann.ping()
    assert world.broker.counters.unauthorised == 12


def test_packets_wait_for_the_credentials(make_world: Any, version: int) -> None:
    """[MQTT-3.1.4-5] (5.0): a client need not wait for the CONNACK; what it sends is handled after it, or never."""
    world = make_world({"authenticates": True})
    ann = world.client("ann", version).open()
    ann.send(
        Connect("ann", username="ann", password=b"secret", version=version), Subscribe(1, (SubscriptionRequest("a"),))
    )
    ann.send(Publish("a", b"1"), Publish("a", b"2"), Publish("a", b"3", 1, packet_id=2))
    assert ann.take() == []
    assert world.broker.sessions.by_key == {}
    assert [c.connect.password for c in world.broker.checking] == [b"secret"]
    world.broker.admit(ann.connection, "ann", world.now)
    world.turn()
    kinds = [type(p).__name__ for p in ann.take()]
    assert kinds == ["Connack", "Suback", "Publish", "Publish", "Publish", "Puback"]
    assert ann.connection.connect.password is None
    bob = world.client("bob", version).open()
    bob.send(Connect("bob", username="bob", version=version), Publish("a", b"evil"))
    world.broker.refuse(bob.connection, world.now)
    world.turn()
    assert bob.one(Connack).reason == ReasonCode.BAD_USER_NAME_OR_PASSWORD
    assert ann.take() == []
    world.broker.admit(bob.connection, "bob", world.now)
    assert [session.user for session in world.broker.sessions.by_key.values()] == ["ann"]


def test_an_answer_for_a_connection_that_is_gone(make_world: Any) -> None:
    world = make_world({"authenticates": True})
    ann = world.client("ann").connect(username="a")
    ann.drop()
    world.broker.admit(ann.connection, "a", world.now)
    world.broker.refuse(ann.connection, world.now)
    assert world.broker.sessions.by_key == {}


@pytest.mark.parametrize("bad", ["82 07 0001 00 0001 23 00", "36 00", "10 00", "82 09 0001 00 0003 612f23 03"])
def test_malformed_while_the_credentials_are_checked(make_world: Any, bad: str) -> None:
    """Whatever the reason, it is one that a CONNACK may carry."""
    world = make_world({"authenticates": True}, topic_levels_max=2)
    ann = world.client("ann").connect(username="a")
    ann.send(bytes.fromhex(bad))
    deep = world.client("deep").connect(username="a")
    deep.send(Subscribe(1, (SubscriptionRequest("a/b/c/d"),)))
    assert deep.closed
    assert deep.one(Connack).reason >= 0x80
    world.broker.admit(deep.connection, "a", world.now)
    assert "deep" not in world.broker.sessions.by_key


# Named weaknesses.


def test_memory_before_connect(world: Any) -> None:
    """A large CONNECT, or a large packet of another kind, from somebody who is not accepted: nothing is kept of it."""
    for first, size in ((0x10, 10_000_000), (0x30, 10_000_000), (0x10, 268_435_455)):
        ann = world.client("ann").open()
        length = bytes((size & 127 | 128, size >> 7 & 127 | 128, size >> 14 & 127 | 128, size >> 21))
        ann.send(bytes((first,)) + length + bytes(1_000))
        assert ann.closed
        assert ann.connection.decoder.held_bytes <= 1_000
    slow = world.client("slow").open()
    for _ in range(100):
        slow.send(b"\x10\xff\xff\x03" + bytes(996) if slow.connection.decoder.held_bytes == 0 else bytes(1_000))
        assert slow.connection.decoder.held_bytes <= 70_000
    assert slow.closed


def test_memory_before_the_credentials_are_checked(make_world: Any) -> None:
    world = make_world({"authenticates": True})
    ann = world.client("ann").connect(username="a")
    for _ in range(200):
        ann.send(Publish("a", bytes(10_000)))
    assert ann.closed
    assert ann.one(Connack).reason == ReasonCode.QUOTA_EXCEEDED
    assert ann.connection.held == []
    world.broker.admit(ann.connection, "a", world.now)
    assert world.broker.sessions.by_key == {}


def test_a_flood_of_duplicate_qos_2_identifiers(world: Any, version: int) -> None:
    """CVE-2021-34434 and its relatives: equal identifiers again and again keep nothing, and pass nothing on."""
    sub, pub = world.client("sub").online(), world.client("pub", version).lasting()
    sub.subscribe("a", 2)
    packet = encode(Publish("a", b"1", 2, packet_id=1), version)
    again = encode(Publish("a", b"1", 2, packet_id=1, dup=True), version)
    pub.send(packet * 500, again * 500)
    assert pub.take() == [Pubrec(1)] * 1_000
    assert sub.payloads() == [b"1"]
    assert pub.session.received == {1}
    assert world.disk_counts() == {"s": 1, "p": 1}


def test_qos_2_without_release(world: Any) -> None:
    """CVE-2023-28366: messages that are never released keep an identifier each, not the message, and are limited."""
    pub = world.client("pub").online()
    for number in range(1, 1_001):
        pub.publish("a", bytes(1_000), 2, packet_id=number)
    assert len(pub.take()) == 1_000
    assert world.disk == {}
    pub.publish("a", b"", 2, packet_id=1_001)
    assert pub.one(Disconnect).reason == ReasonCode.RECEIVE_MAXIMUM_EXCEEDED
    old = world.client("old", V311).online()
    for _ in range(2):
        old.send(*(Publish("a", b"", 2, packet_id=n) for n in range(1, 65_536, 4)))
    assert len(old.session.received) == 16_384


@pytest.mark.parametrize(
    "properties",
    ["02 0b01", "03 23 0001", "02 18 00", "05 18 00000001 18", "06 1100000001 01", "03 01 02", "05 02 000000", "ff ff"],
)
def test_bad_will_properties(world: Any, properties: str) -> None:
    """CVE-2019-11779's neighbours: properties that a will cannot have, or that are cut off, are an error."""
    data = bytes.fromhex(properties)
    body = b"\0\4MQTT\5\x06\0\x3c" + b"\0" + b"\0\1a" + data + b"\0\1w" + b"\0\1x"
    ann = world.client("ann").open()
    ann.send(b"\x10" + bytes((len(body),)) + body)
    assert ann.closed
    assert ann.one(Connack).reason in (ReasonCode.MALFORMED_PACKET, ReasonCode.PROTOCOL_ERROR)
    assert world.broker.sessions.by_key == {}


def test_a_topic_of_slashes(world: Any, version: int) -> None:
    """CVE-2019-11779: very many levels overflow no stack: too deep topics and filters are refused."""
    watch = world.client("watch").online()
    watch.subscribe("#", 1)
    for packet in (
        Publish("/" * 65_535, b"1"),
        Subscribe(1, (SubscriptionRequest("/" * 65_535, 0),)),
        Subscribe(1, (SubscriptionRequest("+/" * 30_000 + "#", 0),)),
    ):
        ann = world.client("ann", version).online()
        ann.send(packet)
        assert ann.closed
        if version == V5:
            assert ann.one(Disconnect).reason in (ReasonCode.TOPIC_NAME_INVALID, ReasonCode.TOPIC_FILTER_INVALID)
    ann = world.client("ann", version).online()
    ann.publish("/" * 199, b"deep", 1)
    assert watch.payloads() == [b"deep"]
    will = world.client("w", version).connect(will=Will("/" * 60_000, b""))
    assert will.closed


def test_shared_subscriptions_come_and_go(world: Any) -> None:
    """Patterns that crashed others: members that leave twice, the last one leaving, ends in the middle of a turn."""
    rng = random.Random(3)
    clients = [world.client(f"c{i}", V5 if i % 2 else V311) for i in range(6)]
    pub = world.client("pub").online()
    filters = ("$share/g/a", "$share/g/#", "$share/h/a", "a")
    for _ in range(600):
        client = rng.choice(clients)
        what = rng.random()
        if client.closed:
            client.connect(rng.random() < 0.5)
        elif what < 0.4:
            client.send(Subscribe(client.next_id(), tuple(SubscriptionRequest(f, 1) for f in rng.sample(filters, 2))))
        elif what < 0.7:
            client.unsubscribe(*rng.choices(filters, k=3))
        elif what < 0.8:
            client.drop()
        elif what < 0.83:
            world.restart()
            pub.online()
        if rng.random() < 0.3:
            pub.publish("a", b"1", rng.randrange(3))
    for client in clients:
        client.connect(True)
        client.disconnect()
    assert world.broker.routes.count == 0
    assert not world.broker.routes._shares
    assert world.disk == {}


def test_a_subscribe_with_very_many_filters(make_world: Any, version: int) -> None:
    """The limit of subscriptions holds within one packet; equal filters cost nothing twice."""
    world = make_world({}, packet_filters_max=20_000)
    pub = world.client("pub").online()
    for count in range(500):
        pub.publish(f"t/{count}")
    ann = world.client("ann", version).lasting()
    answer = ann.ask(Subscribe(1, tuple(SubscriptionRequest(f"+/{i}/#") for i in range(12_000))), Suback)
    assert sum(reason == 0 for reason in answer.reasons) == 10_000
    assert len(ann.session.subscriptions) == 10_000
    same = ann.ask(Subscribe(2, (SubscriptionRequest("+/1/#"),) * 20_000), Suback)
    assert same.reasons == (0,) * 20_000
    pub.publish("t/1", b"1")
    assert ann.payloads() == [b"1"]
    ann.connect(True)
    ann.disconnect()
    assert world.broker.routes.count == 0
    assert world.disk == {}


def test_long_topics_are_not_remembered(world: Any) -> None:
    """Caches hold short topics only, so that their size is bounded in bytes."""
    sub, pub = world.client("sub").online(), world.client("pub").online()
    sub.subscribe("#", 1)
    for count in range(20):
        topic = f"{count}-" + "x" * 60_000
        for qos in (0, 1, 2):
            pub.publish(topic, b"%d" % qos, qos)
            assert sub.payloads() == [b"%d" % qos]
    assert len(pub.connection.allowed) == 0
    assert len(list(world.broker.routes)) == 0
    assert len(sub.session.routes) == 0
    world.broker.accounts()
    assert sub.session.accounts.delivered == 60


def test_json_bombs(world: Any) -> None:
    """A payload that is deep or strange JSON has no attributes, or some, and does no harm."""
    sub, pub = world.client("sub").online(), world.client("pub").online()
    sub.subscribe("a", user=(("filter", "x > 1"),))
    for payload in (
        b"[" * 200_000,
        b'{"a":' * 100_000,
        b'{"x": 1e999}',
        b'{"x": NaN}',
        b'{"x": %s}' % (b"9" * 5_000),
        b"\xff",
    ):
        pub.publish("a", payload, content_type="application/json")
    assert pub.ping()
    assert sub.ping()
    pub.publish("a", b'{"x": 2}', content_type="application/json")
    assert sub.payloads()[-1] == b'{"x": 2}'


def test_a_deep_content_filter(world: Any) -> None:
    ann = world.client("ann").online()
    for text in ("(" * 20_000, "x > 1 and " * 5_000 + "x > 1", "not " * 20_000 + "x > 1"):
        answer = ann.subscribe("a", 0, check=False, user=(("filter", text[:65_000]),))
        assert answer.reasons == (ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,)
        assert "at most" in answer.properties.reason_string
        ann.subscribe("a", 0, check=False, user=(("filter", text[:9_000]),))
        assert ann.ping()


def test_pings_are_answered(world: Any, version: int) -> None:
    """[MQTT-3.12.4-1]."""
    ann = world.client("ann", version).online()
    ann.send(Pingreq(), Pingreq())
    assert ann.take() == [Pingresp(), Pingresp()]
