"""MQTT 3.1 (protocol name MQIsdp, level 3): as 3.1.1, but for what is here."""

from __future__ import annotations

from typing import Any

import pytest

from surecast.protocol.broker import BrokerCore
from surecast.protocol.broker.snapshot import decode_state, encode_state
from surecast.protocol.mqtt import (
    V5,
    V31,
    V311,
    Connack,
    Publish,
    ReasonCode,
    Suback,
    Subscribe,
    SubscriptionRequest,
    Will,
)


def test_a_client_of_the_first_hour(world: Any) -> None:
    """It subscribes, publishes at every QoS, has a will, and says goodbye."""
    old, new = world.client("old", V31).online(will=Will("wills", b"gone")), world.client("new", V5).online()
    new.subscribe("#", 2)
    old.subscribe("answers", 2)
    for qos in (0, 1, 2):
        old.publish("questions", b"%d" % qos, qos)
        new.publish("answers", b"%d" % qos, qos)
    heard = [(m.topic, m.payload, m.qos) for m in new.take() if isinstance(m, Publish)]
    assert [each for each in heard if each[0] == "questions"] == [("questions", b"%d" % qos, qos) for qos in (0, 1, 2)]
    assert [(m.payload, m.qos) for m in old.take() if isinstance(m, Publish)] == [(b"0", 0), (b"1", 1), (b"2", 2)]
    old.drop()
    assert new.one(Publish).payload == b"gone"


@pytest.mark.parametrize("clean", [True, False])
def test_it_has_a_client_identifier(world: Any, clean: bool) -> None:
    """Section 3.1: an empty one is refused with return code 2; in 3.1.1 a clean session may have it."""
    assert world.client("", V31).connect(clean).one(Connack).reason is ReasonCode.CLIENT_IDENTIFIER_NOT_VALID


@pytest.mark.parametrize("name", ["a", "x" * 23, "x" * 24, "x" * 1_000, "ä/ #+"])
def test_an_identifier_may_be_longer_than_the_standard_says(world: Any, name: str) -> None:
    """Section 3.1: 23 characters; Mosquitto takes more too."""
    assert world.client(name, V31).online().ping()


def test_a_lasting_session_is_there_again_and_nothing_says_so(world: Any) -> None:
    """Section 3.2: the byte of the session present flag is reserved."""
    old = world.client("old", V31).lasting()
    old.subscribe("a", 1)
    old.drop()
    world.client("new").online().publish("a", b"1", 1)
    world.restart()
    old.connect(False)
    welcome, message = old.take()
    assert welcome == Connack(False)
    assert isinstance(message, Publish)
    assert (message.payload, message.dup) == (b"1", False)
    assert old.raw.startswith(b"\x20\x02\x00\x00")


def test_a_subscription_that_is_refused(make_world: Any) -> None:
    """Section 3.9 has no code for it: the client is told the QoS it asked for, and gets no messages."""
    world = make_world({"authorise": lambda user, client, action, topic: action == "publish" or topic != "secret"})
    old = world.client("old", V31).online()
    asked = Subscribe(
        1, (SubscriptionRequest("secret", 2), SubscriptionRequest("open", 1), SubscriptionRequest("$share//x", 0))
    )
    assert old.ask(asked, Suback).reasons == (2, 1, 0)
    new = world.client("new").online()
    new.publish("secret", b"1").publish("open", b"2")
    assert old.payloads() == [b"2"]
    assert list(old.session.subscriptions) == ["open"]


def test_packets_that_are_sent_again_are_marked(world: Any) -> None:
    """Section 2.1: SUBSCRIBE, UNSUBSCRIBE and PUBREL have QoS 1, and the DUP flag when they are sent again."""
    old = world.client("old", V31).online()
    old.send(bytes.fromhex("8a 06 0001 0001 61 01"))
    assert old.one(Suback).reasons == (1,)
    old.publish("b", b"", 2, packet_id=5)
    old.take()
    old.send(bytes.fromhex("6a 02 0005"))
    assert old.raw.endswith(bytes.fromhex("70 02 0005"))
    old.take()
    old.send(bytes.fromhex("aa 05 0002 0001 61"))
    assert old.raw.endswith(bytes.fromhex("b0 02 0002"))
    assert old.ping()
    newer = world.client("newer", V311).online()
    newer.send(bytes.fromhex("8a 06 0001 0001 61 01"))
    assert newer.closed


@pytest.mark.parametrize("flags", ["c2", "82"])
def test_a_user_name_that_is_announced_and_missing(world: Any, flags: str) -> None:
    """Section 3.1: the remaining length takes precedence over the flags."""
    old = world.client("a", V31).open()
    old.send(bytes.fromhex(f"10 0f 0006 4d5149736470 03 {flags} 0000 0001 61"))
    assert old.one(Connack).reason is ReasonCode.SUCCESS
    assert old.ping()


def test_a_snapshot_knows_the_version(world: Any) -> None:
    old = world.client("old", V31).lasting()
    old.subscribe("a", 1)
    copy = BrokerCore()
    decode_state(copy, encode_state(world.broker))
    [connection] = copy.connections.values()
    assert connection.connect is not None
    assert connection.connect.version == V31
    copy.receive(connection, bytes.fromhex("8a 06 0001 0001 62 01"), world.now)
    assert not connection.is_closed()
    assert set(copy.sessions.by_key["old"].subscriptions) == {"a", "b"}
