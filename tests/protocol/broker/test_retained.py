"""Retained messages (MQTT 5.0, sections 3.3.1.3 and 3.8.3.1)."""

from __future__ import annotations

from typing import Any

import pytest

from surecast.protocol.mqtt import V5, V311, Properties, Puback, ReasonCode, Suback, Subscribe, SubscriptionRequest


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_last_one_is_kept_for_later(world: Any, version: int, qos: int) -> None:
    """[MQTT-3.3.1-5], [MQTT-3.3.1-6], [MQTT-3.3.1-8]: the last message of each topic goes to new subscriptions."""
    pub, sub = world.client("pub", version).online(), world.client("sub", version).online()
    for payload in (b"1", b"2"):
        pub.publish("a/b", payload, qos, retain=True)
    pub.publish("a/c", b"3", qos, retain=True)
    pub.publish("a/d", b"not kept", qos)
    sub.subscribe("a/+", 1)
    got = sub.messages()
    assert sorted((m.topic, m.payload, m.qos, m.retain) for m in got) == [
        ("a/b", b"2", min(qos, 1), True),
        ("a/c", b"3", min(qos, 1), True),
    ]
    world.restart()
    sub.online().subscribe("#", 2)
    assert sorted((m.topic, m.qos) for m in sub.messages()) == [("a/b", qos), ("a/c", qos)]
    assert world.disk_counts() == {"r": 2, "m": 2}


def test_the_answer_comes_before_the_retained_messages(world: Any, version: int) -> None:
    """3.8.4 allows both orders; clients know their subscription first."""
    world.client("pub").online().publish("a", b"1", retain=True)
    sub = world.client("sub", version).online()
    sub.send(Subscribe(1, (SubscriptionRequest("a", 0),)))
    assert [type(p).__name__ for p in sub.take()] == ["Suback", "Publish"]


def test_an_empty_payload_clears(world: Any, version: int) -> None:
    """[MQTT-3.3.1-6], [MQTT-3.3.1-7]: it is passed on as any message, and nothing is retained."""
    pub, sub = world.client("pub", version).online(), world.client("sub", version).online()
    pub.publish("a", b"1", 1, retain=True)
    sub.subscribe("a", 1)
    sub.messages()
    pub.publish("a", b"", 1, retain=True)
    assert [(m.payload, m.retain) for m in sub.messages()] == [(b"", False)]
    world.client("late", version).online().subscribe("a", 1)
    assert len(world.broker.retained) == 0
    assert world.disk == {}
    pub.publish("never", b"", 1, retain=True)
    assert world.disk == {}


def test_a_message_that_is_not_retained_changes_nothing(world: Any) -> None:
    """[MQTT-3.3.1-8]: RETAIN 0 neither stores nor removes."""
    pub = world.client("pub").online()
    pub.publish("a", b"1", retain=True).publish("a", b"2").publish("a", b"")
    assert world.broker.retained.get("a").payload == b"1"


def test_established_subscriptions_see_no_retain_flag(world: Any, version: int) -> None:
    """[MQTT-3.3.1-9] (3.1.1), [MQTT-3.3.1-12] (5.0): 0 towards an established subscription."""
    pub, sub = world.client("pub").online(), world.client("sub", version).online()
    sub.subscribe("a", 1)
    for qos in (0, 1):
        pub.publish("a", b"1", qos, retain=True)
        assert [m.retain for m in sub.messages()] == [False]


def test_retain_as_published(world: Any) -> None:
    """[MQTT-3.3.1-13]: with the option the flag is that of the publisher."""
    pub, sub = world.client("pub").online(), world.client("sub").online()
    sub.subscribe("a", 1, retain_as_published=True)
    for qos in (0, 1, 2):
        for retain in (True, False):
            pub.publish("a", b"1", qos, retain=retain)
            assert [m.retain for m in sub.messages()] == [retain]
    world.restart()


@pytest.mark.parametrize(("handling", "first", "again"), [(0, 1, 1), (1, 1, 0), (2, 0, 0)])
def test_retain_handling(world: Any, handling: int, first: int, again: int) -> None:
    """[MQTT-3.3.1-9], -10, -11: at every SUBSCRIBE, at the first one, never; the live messages come in any case."""
    pub, sub = world.client("pub").online(), world.client("sub").lasting()
    pub.publish("a", b"old", retain=True)
    sub.subscribe("a", retain_handling=handling)
    assert len(sub.messages()) == first
    sub.subscribe("a", retain_handling=handling)
    assert len(sub.messages()) == again
    sub.connect(False, session_expiry_s=9)
    sub.take()
    sub.subscribe("a", retain_handling=handling)
    assert len(sub.messages()) == again
    sub.unsubscribe("a")
    sub.subscribe("a", retain_handling=handling)
    assert len(sub.messages()) == first
    pub.publish("a", b"new")
    assert sub.payloads() == [b"new"]


def test_overlapping_subscriptions_each_get_it(world: Any, version: int) -> None:
    """3.3.1.3: retained messages are sent for each subscription, with its own QoS and identifier."""
    world.client("pub").online().publish("a/b", b"1", 2, retain=True)
    sub = world.client("sub", version).online()
    wanted = (SubscriptionRequest("a/+", 0), SubscriptionRequest("a/#", 1), SubscriptionRequest("other", 2))
    properties = Properties(subscription_ids=(7,)) if version == V5 else Properties()
    assert sub.ask(Subscribe(1, wanted, properties), Suback).reasons == (0, 1, 2)
    assert sorted((m.qos, m.retain, m.properties) for m in sub.messages()) == [
        (0, True, properties),
        (1, True, properties),
    ]


def test_expiry_of_retained_messages(world: Any) -> None:
    """[MQTT-3.3.2-5], [MQTT-3.3.2-6]: what is left is told; after it the message is gone."""
    pub, sub = world.client("pub").online(), world.client("sub").online()
    pub.publish("a", b"1", retain=True, message_expiry_s=10)
    world.wait(3.5)
    sub.subscribe("a")
    assert sub.messages()[0].properties.message_expiry_s == 7
    world.now += 7
    sub.subscribe("a")
    assert sub.messages() == []
    assert world.disk == {}
    pub.publish("b", b"1", retain=True, message_expiry_s=10)
    world.wait(11)
    assert len(world.broker.retained) == 0
    pub.publish("c", b"1", retain=True, message_expiry_s=10)
    world.restart(after_s=11)
    assert world.disk == {}


def test_shared_subscriptions_get_no_retained_messages(world: Any) -> None:
    """4.8.2, 3.8.4: none are sent for a shared subscription."""
    world.client("pub").online().publish("a", b"1", retain=True)
    sub = world.client("sub").online()
    sub.subscribe("$share/g/a", 1)
    assert sub.messages() == []


def test_too_many_retained_messages(make_world: Any) -> None:
    world = make_world(retained_max=2)
    pub = world.client("pub").online()
    pub.publish("a", b"1", 1, retain=True).publish("b", b"1", 1, retain=True)
    pub.take()
    assert pub.publish("c", b"1", 1, packet_id=9, retain=True).one(Puback).reason == ReasonCode.QUOTA_EXCEEDED
    assert pub.publish("a", b"2", 1, packet_id=9, retain=True).one(Puback).reason < 0x80
    assert pub.publish("a", b"", 1, packet_id=9, retain=True).one(Puback).reason < 0x80
    assert pub.publish("c", b"1", 1, packet_id=9, retain=True).one(Puback).reason < 0x80
    assert len(world.broker.retained) == 2


def test_properties_of_retained_messages_survive(world: Any) -> None:
    properties: dict[str, Any] = {"content_type": "t", "user": (("b", "1"), ("a", "2")), "message_expiry_s": 1_000}
    world.client("pub").online().publish("a", b"1", 2, retain=True, **properties)
    world.restart(after_s=100)
    sub = world.client("sub").online()
    sub.subscribe("a", 2)
    assert sub.messages()[0].properties == Properties(**{**properties, "message_expiry_s": 900})


def test_one_message_is_kept_once(world: Any) -> None:
    """A message that is retained and waits for two sessions is on disk once, until the last needs it no more."""
    subs = [world.client(name, V311).lasting() for name in ("x", "y")]
    for sub in subs:
        sub.subscribe("a", 1)
    pub = world.client("pub").online()
    pub.publish("a", b"1", 1, retain=True)
    assert world.disk_counts() == {"s": 2, "f": 2, "q": 2, "m": 1, "r": 1}
    subs[0].messages()
    pub.publish("a", b"", 1, retain=True)
    subs[0].messages()
    assert world.disk_counts() == {"s": 2, "f": 2, "q": 2, "m": 2}
    subs[1].messages()
    assert world.disk_counts() == {"s": 2, "f": 2}


def test_retained_messages_do_not_fill_the_memory(make_world: Any) -> None:
    """Small SUBSCRIBE packets that each ask for everything: what a connection has unsent is limited, and counted."""
    world = make_world(unsent_bytes_max=10_000)
    pub, sub = world.client("pub").online(), world.client("sub").online()
    for count in range(50):
        pub.publish(f"t/{count}", bytes(1_000), retain=True)
    with world.one_turn():
        for number in range(1, 21):
            sub.send(Subscribe(number, (SubscriptionRequest("#"),)))
        assert sum(map(len, sub.connection.out)) < 12_000
    got = [p for p in sub.take() if not isinstance(p, Suback)]
    assert sub.session.accounts.dropped == {"slow-qos0": 1_000 - len(got)}
    assert sub.session.accounts.delivered == len(got) > 5
