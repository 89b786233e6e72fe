"""QoS 0, 1 and 2 in both directions, packet identifiers, flow control, order (MQTT 5.0, sections 4.3 to 4.6, 4.9)."""

from __future__ import annotations

from typing import Any

import pytest

from surecast.protocol.mqtt import (
    V5,
    V311,
    Disconnect,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    ReasonCode,
)


@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_a_message_arrives_with_the_lower_of_both_qos(world: Any, version: int, published: int, granted: int) -> None:
    """3.8.4: the QoS of a message to a subscriber is the minimum of that published and that granted [MQTT-3.8.4-8]."""
    sub, pub = world.client("sub", version).online(), world.client("pub", version).online()
    sub.subscribe("a/b", granted)
    pub.publish("a/b", b"1", published)
    (message,) = sub.messages()
    assert (message.topic, message.payload, message.qos) == ("a/b", b"1", min(published, granted))
    assert not message.dup
    assert (message.packet_id > 0) == (message.qos > 0)


@pytest.mark.parametrize(("from_version", "to_version"), [(V311, V5), (V5, V311)])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_versions_talk_to_each_other(world: Any, from_version: int, to_version: int, qos: int) -> None:
    sub, pub = world.client("sub", to_version).online(), world.client("pub", from_version).online()
    sub.subscribe("#", 2)
    for count in range(3):
        pub.publish("a", b"%d" % count, qos)
    assert sub.payloads() == [b"0", b"1", b"2"]


def test_qos_1_is_acknowledged_with_its_identifier(world: Any, version: int) -> None:
    """[MQTT-4.3.2-4]: the receiver answers with a PUBACK that has the identifier of the PUBLISH."""
    world.client("sub", version).online().subscribe("a")
    pub = world.client("pub", version).online()
    assert pub.publish("a", qos=1, packet_id=77).one(Puback) == Puback(77)
    assert pub.publish("a", qos=1, packet_id=65_535).one(Puback) == Puback(65_535)
    assert pub.publish("a", qos=1, packet_id=77).one(Puback) == Puback(77)


def test_qos_1_with_dup_is_a_new_message_for_subscribers(world: Any, version: int) -> None:
    """[MQTT-3.3.1-3]: DUP is not passed on; [MQTT-4.3.2-5] a PUBLISH after the PUBACK is a new message, DUP or not."""
    sub, pub = world.client("sub", version).online(), world.client("pub", version).online()
    sub.subscribe("a", 1)
    pub.publish("a", b"1", 1, packet_id=5)
    pub.publish("a", b"1", 1, packet_id=5, dup=True)
    assert [(m.payload, m.dup) for m in sub.messages()] == [(b"1", False), (b"1", False)]


def test_qos_2_from_a_client_is_taken_once(world: Any, version: int) -> None:
    """[MQTT-4.3.3-10]: until the PUBREL, a PUBLISH with the same identifier is answered and not passed on again."""
    sub, pub = world.client("sub", version).online(), world.client("pub", version).online()
    sub.subscribe("a", 2)
    assert pub.publish("a", b"1", 2, packet_id=9).one(Pubrec) == Pubrec(9)
    assert pub.publish("a", b"1", 2, packet_id=9, dup=True).one(Pubrec) == Pubrec(9)
    assert sub.payloads() == [b"1"]
    assert pub.ask(Pubrel(9), Pubcomp) == Pubcomp(9)
    # After the PUBREL it is a new message (the last paragraph of 4.3.3).
    pub.publish("a", b"2", 2, packet_id=9)
    assert sub.payloads() == [b"2"]


@pytest.mark.parametrize("qos", [1, 2])
def test_what_goes_out_is_sent_once_per_connection(world: Any, version: int, qos: int) -> None:
    """[MQTT-4.4.0-1] (5.0): nothing is resent except after a reconnection; the identifier is kept until the end."""
    sub, pub = world.client("sub", version).lasting(), world.client("pub", version).online()
    sub.subscribe("a", qos)
    pub.publish("a", b"1", qos)
    first = sub.one(Publish)
    world.wait(3_600)
    assert sub.take() == []
    sub.drop()
    sub.connect(False, **({"session_expiry_s": 100} if version == V5 else {}))
    connack, second = sub.take()
    assert connack.session_present
    assert (second.dup, second.packet_id, second.payload) == (True, first.packet_id, b"1")


def test_qos_2_to_a_client_step_by_step(world: Any, version: int) -> None:
    """4.3.3: PUBLISH, PUBREC, PUBREL, PUBCOMP; a repeated PUBREC gets the PUBREL again."""
    sub, pub = world.client("sub", version).lasting(), world.client("pub", version).online()
    sub.subscribe("a", 2)
    pub.publish("a", b"1", 2)
    number = sub.one(Publish).packet_id
    assert sub.ask(Pubrec(number), Pubrel) == Pubrel(number)
    assert sub.ask(Pubrec(number), Pubrel) == Pubrel(number)
    assert sub.session.queued == 1
    sub.drop()
    sub.connect(False, **({"session_expiry_s": 100} if version == V5 else {}))
    # [MQTT-4.4.0-1]: after the PUBREC it is the PUBREL that is sent again, never the PUBLISH [MQTT-4.3.3-6].
    assert sub.take()[1:] == [Pubrel(number)]
    sub.send(Pubcomp(number))
    assert sub.take() == []
    assert sub.session.queued == 0
    assert sub.session.accounts.delivered == 1


def test_acknowledgements_of_unknown_identifiers(world: Any, version: int) -> None:
    """4.3.3, 3.6.2.1: unknown identifiers are answered, with 0x92 in 5.0, so that the client's exchange can end."""
    ann = world.client("ann", version).online()
    ann.send(Puback(7), Pubcomp(8))
    assert ann.take() == []
    lost = ReasonCode.PACKET_IDENTIFIER_NOT_FOUND if version == V5 else ReasonCode.SUCCESS
    assert ann.ask(Pubrec(7), Pubrel) == Pubrel(7, lost)
    assert ann.ask(Pubrel(7), Pubcomp) == Pubcomp(7, lost)
    assert ann.ping()


@pytest.mark.parametrize(("qos", "answer"), [(1, Puback), (2, Pubrec)])
def test_a_client_may_refuse_a_message(world: Any, qos: int, answer: type) -> None:
    """4.3.2, 4.3.3 [MQTT-4.3.3-4]: an error code ends the exchange; the message is counted as rejected."""
    sub, pub = world.client("sub").lasting(receive_maximum=1), world.client("pub").online()
    sub.subscribe("a", qos)
    pub.publish("a", b"1", qos).publish("a", b"2", qos)
    number = sub.one(Publish).packet_id
    sub.send(answer(number, ReasonCode.QUOTA_EXCEEDED))
    # 4.9: an error code gives the quota back: the next message comes.
    assert sub.payloads() == [b"2"]
    assert sub.session.accounts.dropped == {"rejected": 1}
    assert sub.session.accounts.delivered == 1
    sub.drop()
    sub.connect(False, session_expiry_s=9)
    assert len(sub.take()) == 1
    # An error for an identifier that is not in use changes nothing.
    sub.send(answer(number, ReasonCode.QUOTA_EXCEEDED))
    assert sub.take() == []


def test_the_clients_receive_maximum_is_kept(world: Any) -> None:
    """[MQTT-3.3.4-9], 4.9: never more than the receive maximum is unacknowledged; QoS 0 goes past it."""
    sub, pub = world.client("sub").online(receive_maximum=3), world.client("pub").online()
    sub.subscribe("a", 2)
    for count in range(6):
        pub.publish("a", b"%d" % count, 1 + count % 2)
    pub.publish("a", b"now", 0)
    got = sub.take()
    assert [m.payload for m in got] == [b"0", b"1", b"2", b"now"]
    sub.send(Pubrec(got[1].packet_id))
    # A PUBREC alone does not give a place back.
    assert [type(p) for p in sub.take()] == [Pubrel]
    sub.send(Pubcomp(got[1].packet_id))
    assert sub.one(Publish).payload == b"3"
    sub.send(Puback(got[0].packet_id), Puback(got[2].packet_id))
    assert [p.payload for p in sub.take()] == [b"4", b"5"]


def test_the_receive_maximum_holds_when_messages_are_sent_again(world: Any) -> None:
    """4.4, 4.9: a client that comes back with a smaller receive maximum gets the old messages in portions, in order."""
    sub, pub = world.client("sub").lasting(), world.client("pub").online()
    sub.subscribe("a", 2)
    for count in range(5):
        pub.publish("a", b"%d" % count, 1 + count % 2)
    sub.take()
    sub.drop()
    pub.publish("a", b"5", 1)
    sub.connect(False, session_expiry_s=100, receive_maximum=2)
    got = sub.take()[1:]
    assert [(m.payload, m.dup) for m in got] == [(b"0", True), (b"1", True)]
    pub.publish("a", b"6", 1)
    assert sub.take() == []
    sub.inbox = got
    assert [(m.payload, m.dup) for m in sub.messages()] == [
        *((b"%d" % count, True) for count in range(5)),
        (b"5", False),
        (b"6", False),
    ]


def test_the_brokers_receive_maximum(make_world: Any) -> None:
    """[MQTT-3.3.4-7], 0x93: too many open QoS 2 messages close the connection; those taken before stay taken."""
    world = make_world(receive_maximum=3)
    sub, pub = world.client("sub").online(), world.client("pub")
    sub.subscribe("a", 2)
    pub.connect(session_expiry_s=100)
    assert pub.take()[0].properties.receive_maximum == 3
    for number in (1, 2, 3):
        pub.publish("a", b"%d" % number, 2, packet_id=number)
    pub.publish("a", b"1", 2, packet_id=1, dup=True)
    assert pub.take() == [Pubrec(1), Pubrec(2), Pubrec(3), Pubrec(1)]
    pub.publish("a", b"4", 2, packet_id=4)
    assert pub.one(Disconnect).reason == ReasonCode.RECEIVE_MAXIMUM_EXCEEDED
    assert pub.closed
    assert sub.payloads() == [b"1", b"2", b"3"]


def test_version_311_has_no_receive_maximum(make_world: Any) -> None:
    world = make_world(receive_maximum=3)
    pub = world.client("pub", V311).online()
    for number in range(1, 11):
        pub.publish("a", b"", 2, packet_id=number)
    assert pub.take() == [Pubrec(number) for number in range(1, 11)]


def test_packet_identifiers_go_round(world: Any, version: int) -> None:
    """[MQTT-2.2.1-4]: an identifier is new and not 0, whatever is still in flight, beyond the 65,535th as well."""
    sub, pub = world.client("sub", version).lasting(), world.client("pub", version).online()
    sub.subscribe("a", 1)
    pub.publish("a", b"kept", 1)
    kept = sub.one(Publish).packet_id
    sub.session.next_identifier = 65_533
    seen = []
    for _ in range(6):
        pub.publish("a", b"", 1)
        seen.append(sub.one(Publish).packet_id)
        sub.send(Puback(seen[-1]))
    assert kept == 1
    assert seen == [65_534, 65_535, 2, 3, 4, 5]


def test_order_is_kept_across_reconnections(world: Any, version: int) -> None:
    """[MQTT-4.6.0-1], [MQTT-4.6.0-6]: what was in flight first, with DUP; then what waited; then what is new."""
    sub, pub = world.client("sub", version).lasting(), world.client("pub", version).online()
    sub.subscribe("a", 1)
    for count in range(3):
        pub.publish("a", b"%d" % count, 1)
    sub.send(Puback(sub.take()[1].packet_id))
    sub.drop()
    for count in range(3, 6):
        pub.publish("a", b"%d" % count, 1)
    for _ in range(2):
        world.restart()
        sub.connect(False, **({"session_expiry_s": 100} if version == V5 else {}))
        got = sub.take()[1:]
        assert [(m.payload, m.dup) for m in got[:2]] == [(b"0", True), (b"2", True)]
        assert [m.payload for m in got[2:]] == [b"3", b"4", b"5"]
    pub.online().publish("a", b"6", 1)
    sub.inbox = [*got, *sub.take()]
    assert sub.payloads() == [b"0", b"2", b"3", b"4", b"5", b"6"]
    assert world.disk_counts() == {"s": 1, "f": 1}


def test_a_message_in_flight_that_has_become_too_large(world: Any) -> None:
    """[MQTT-3.1.2-24] and -25: a client that comes back with a smaller limit does not get it, and is not stuck."""
    sub, pub = world.client("sub").lasting(receive_maximum=1), world.client("pub").online()
    sub.subscribe("a", 1)
    pub.publish("a", bytes(100), 1).publish("a", b"small", 1)
    sub.take()
    sub.drop()
    sub.connect(False, session_expiry_s=9, receive_maximum=1, maximum_packet_size=50)
    sub.inbox.pop(0)
    assert sub.payloads() == [b"small"]
    assert sub.session.accounts.dropped == {"too-large": 1}
    assert world.disk_counts() == {"s": 1, "f": 1}


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_one_publish_with_many_receivers(world: Any, qos: int) -> None:
    clients = [world.client(f"c{i}", V5 if i % 2 else V311).online(i % 3 > 0) for i in range(12)]
    for i, client in enumerate(clients):
        client.subscribe("a", i % 3)
    world.client("pub").online().publish("a", b"1", qos)
    for i, client in enumerate(clients):
        assert [(m.payload, m.qos) for m in client.messages()] == [(b"1", min(qos, i % 3))]


def test_the_reason_codes_of_acknowledgements(make_world: Any) -> None:
    """3.4.2.1: 0x10 if nobody subscribes, 0x87 without permission, and no such thing in MQTT 3.1.1."""
    world = make_world({"authorise": lambda user, client, action, topic: topic != "secret"})
    old, new = world.client("old", V311).online(), world.client("new").online()
    for qos, kind in ((1, Puback), (2, Pubrec)):
        assert new.publish("a", b"", qos, packet_id=1).one(kind) == kind(1, ReasonCode.NO_MATCHING_SUBSCRIBERS)
        assert new.publish("secret", b"", qos, packet_id=2).one(kind) == kind(2, ReasonCode.NOT_AUTHORIZED)
        assert old.publish("a", b"", qos, packet_id=1).one(kind) == kind(1)
        assert old.publish("secret", b"", qos, packet_id=2).one(kind) == kind(2)
    # A refused QoS 2 message is over with its PUBREC.
    assert new.ask(Pubrel(2), Pubcomp).reason == ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
    assert new.ask(Pubrel(1), Pubcomp).reason == ReasonCode.SUCCESS
    assert world.broker.counters.unauthorised == 4


def test_properties_of_messages_are_passed_on_as_they_came(world: Any) -> None:
    """3.3.2.3 [MQTT-3.3.2-4, -15, -16, -17, -18, -20]: unaltered, user properties in their order, byte by byte."""
    sub, pub = world.client("sub").online(), world.client("pub").online()
    sub.subscribe("a", 2)
    properties = Properties(
        payload_format=1,
        content_type="text/plain",
        response_topic="answers/here",
        correlation_data=b"\0\xff",
        user=(("b", "2"), ("a", "1"), ("b", "1"), ("", "")),
    )
    for qos in (0, 1, 2):
        pub.send(Publish("a", "grün".encode(), qos, packet_id=qos, properties=properties))
        (message,) = sub.messages()
        assert message.properties == properties
    # In an order that no encoder would choose: content type after user properties.
    raw = bytes.fromhex("26 0001 61 0001 31  03 0001 74  26 0001 61 0001 30")
    sub.take()
    sub.raw = b""
    pub.send(b"\x30" + bytes((5 + len(raw),)) + b"\0\1a" + bytes((len(raw),)) + raw + b"x")
    assert raw in sub.raw


def test_a_message_with_properties_reaches_a_311_client_without_them(world: Any) -> None:
    sub, pub = world.client("sub", V311).online(), world.client("pub").online()
    sub.subscribe("a", 1)
    pub.publish("a", b"1", 1, content_type="t", message_expiry_s=5, user=(("a", "b"),))
    assert sub.one(Publish) == Publish("a", b"1", 1, packet_id=1)
