"""Wills: when they are sent, when not, and what they carry (MQTT 5.0, sections 3.1.2.5, 3.1.3.2, 3.1.3.3)."""

from __future__ import annotations

from typing import Any

import pytest

from surecast.protocol.mqtt import V5, V311, Properties, Publish, ReasonCode, Will

WILL = Will("will", b"gone", 1)


def delayed(seconds: int, **others: Any) -> Will:
    return Will("will", b"gone", 1, properties=Properties(will_delay_s=seconds, **others))


def watcher(world: Any, **options: Any) -> Any:
    watch = world.client("watch").online()
    watch.subscribe("will/#", 2, **options)
    return watch


def test_a_lost_connection_sends_the_will(world: Any, version: int) -> None:
    """[MQTT-3.1.2-8]: the will is published when the connection is closed without a DISCONNECT."""
    watch, ann = watcher(world), world.client("ann", version).online(will=WILL)
    ann.drop()
    assert [(m.topic, m.payload, m.qos, m.retain) for m in watch.messages()] == [("will", b"gone", 1, False)]


def test_a_normal_goodbye_cancels_the_will(world: Any, version: int) -> None:
    """[MQTT-3.14.4-3] (5.0), [MQTT-3.1.2-10]: DISCONNECT with 0x00 discards it."""
    watch, ann = watcher(world), world.client("ann", version).lasting(will=WILL)
    ann.disconnect()
    ann.lasting().disconnect()
    world.wait(1e6)
    assert watch.payloads() == []
    assert world.disk_counts() == {"s": 1}


@pytest.mark.parametrize("reason", [ReasonCode.DISCONNECT_WITH_WILL_MESSAGE, ReasonCode.UNSPECIFIED_ERROR])
def test_a_goodbye_with_the_will(world: Any, reason: ReasonCode) -> None:
    """3.14.2.1: 0x04 asks for it; [MQTT-3.14.4-3] only 0x00 discards it."""
    watch = watcher(world)
    world.client("ann").online(will=WILL).disconnect(reason)
    assert watch.payloads() == [b"gone"]


def test_a_protocol_error_sends_the_will(world: Any, version: int) -> None:
    """3.1.2.5: a connection that the server closes because of an error."""
    watch, ann = watcher(world), world.client("ann", version).online(will=WILL)
    ann.send(b"\x00\x00")
    assert ann.closed
    assert watch.payloads() == [b"gone"]


def test_the_delay(world: Any) -> None:
    """3.1.3.2.2: the will is sent after the delay, not before."""
    watch, ann = watcher(world), world.client("ann").online(session_expiry_s=100, will=delayed(30))
    ann.drop()
    assert world.disk_counts() == {"s": 1, "w": 1, "m": 1}
    world.wait(29)
    assert watch.payloads() == []
    world.wait(1)
    assert watch.payloads() == [b"gone"]
    assert world.disk_counts() == {"s": 1}
    world.wait(1e5)
    assert watch.payloads() == []


def test_the_end_of_the_session_comes_before_the_delay(world: Any) -> None:
    """[MQTT-3.1.3-9] reads: sent when the delay has passed or the session ends, whichever happens first."""
    watch = watcher(world)
    world.client("ann").online(session_expiry_s=10, will=delayed(30)).drop()
    world.client("bob").online(will=delayed(30)).drop()
    assert watch.payloads() == [b"gone"]
    world.wait(10)
    assert watch.payloads() == [b"gone"]
    assert world.disk == {}


def test_coming_back_cancels_a_delayed_will(world: Any) -> None:
    """[MQTT-3.1.3-9]: a new connection to the session before the delay has passed: the will must not be sent."""
    watch, ann = watcher(world), world.client("ann").online(session_expiry_s=100, will=delayed(30))
    ann.drop()
    world.wait(20)
    ann.online(False, session_expiry_s=100)
    world.wait(1_000)
    ann.drop()
    world.wait(50)
    assert watch.payloads() == []
    assert world.disk_counts() == {"s": 1}


def test_coming_back_with_a_clean_start_sends_it(world: Any) -> None:
    """3.1.2.5: a clean start ends the session, and with it the delay."""
    watch, ann = watcher(world), world.client("ann").online(session_expiry_s=100, will=delayed(30))
    ann.drop()
    ann.online(True)
    assert watch.payloads() == [b"gone"]


@pytest.mark.parametrize(("delay", "clean", "sent"), [(0, False, True), (9, True, True), (9, False, False)])
def test_take_over_and_the_will(world: Any, delay: int, clean: bool, sent: bool) -> None:
    """3.1.4, non-normative: sent unless the new connection continues the session and the will has a delay."""
    watch, first = watcher(world), world.client("ann").online(session_expiry_s=100, will=delayed(delay))
    world.client("ann").online(clean, session_expiry_s=100)
    assert first.closed
    world.wait(100)
    assert watch.payloads() == ([b"gone"] if sent else [])


def test_a_delayed_will_survives_a_restart(world: Any) -> None:
    for name in ("ann", "bob"):
        will = Will(
            f"will/{name}", name.encode(), 2, True, Properties(will_delay_s=30, message_expiry_s=50, user=(("k", "v"),))
        )
        world.client(name).online(session_expiry_s=100, will=will).drop()
    world.restart(after_s=10)
    watch = watcher(world)
    world.client("bob").online(False, session_expiry_s=100)
    world.wait(20)
    (message,) = watch.messages()
    assert message.payload == b"ann"
    assert message.properties == Properties(message_expiry_s=50, user=(("k", "v"),))
    # The delay ran out while the broker was down.
    world.client("cid").online(session_expiry_s=100, will=delayed(30)).drop()
    world.restart(after_s=40)
    assert world.broker.retained.get("will/ann") is not None
    assert world.disk_counts() == {"s": 3, "m": 1, "r": 1}


def test_the_death_of_the_broker_sends_the_wills_of_connected_clients(world: Any, version: int) -> None:
    """They had no chance to say goodbye. A session that ended with the connection had its delay with it."""
    watch = world.client("watch", version).lasting()
    watch.subscribe("will/#", 2)
    world.client("clean", version).online(will=Will("will/clean", b"1", 1, True))
    world.client("lasting", version).lasting(will=Will("will/lasting", b"2", 2))
    said = world.client("said", version).online(will=Will("will/said", b"3", 1))
    said.disconnect()
    world.client("none", version).online()
    assert world.disk_counts() == {"s": 2, "f": 1, "w": 2, "m": 2}
    world.restart(after_s=10)
    assert world.disk_counts() == {"s": 2, "f": 1, "m": 2, "q": 2, "r": 1}
    watch.connect(False, **({"session_expiry_s": 100} if version == V5 else {}))
    watch.inbox.pop(0)
    assert sorted((m.topic, m.payload, m.qos) for m in watch.messages()) == [
        ("will/clean", b"1", 1),
        ("will/lasting", b"2", 2),
    ]
    world.restart()
    assert watch.session.queued == 0, "once is enough"


def test_the_death_of_the_broker_begins_the_delay(world: Any) -> None:
    """As the loss of the connection would: the client may be back before; a session that ends sends its will."""
    world.client("watch").lasting().subscribe("will", 1)
    for name, expiry_s in (("back", 100), ("late", 100), ("ends", 20)):
        will = Will("will", name.encode(), 1, properties=Properties(will_delay_s=30, message_expiry_s=500))
        world.client(name).online(session_expiry_s=expiry_s, will=will)
    world.client("clean").online(will=delayed(30))
    world.restart(after_s=1_000)
    waiting = world.broker.sessions.by_key["watch"].waiting
    assert [d.message.payload for d in waiting] == [b"gone"]
    world.restart(after_s=5)
    world.client("back").online(False, session_expiry_s=100)
    world.wait(14)
    waiting = world.broker.sessions.by_key["watch"].waiting
    assert len(waiting) == 1
    world.wait(1)
    assert [d.message.payload for d in waiting] == [b"gone", b"ends"]
    world.wait(10)
    assert [d.message.payload for d in waiting] == [b"gone", b"ends", b"late"]
    world.wait(100)
    assert len(waiting) == 3


def test_the_will_of_a_user_is_authorised_when_it_is_sent_after_the_death_of_the_broker(make_world: Any) -> None:
    seen = []

    def authorise(user: str, client: str, action: str, topic: str) -> bool:
        seen.append((user, client, action, topic))
        return topic != "will/secret"

    world = make_world({"authorise": authorise})
    world.client("ann").connect(identity="ann", will=Will("will/open", b"", 1, True))
    world.client("bob").connect(identity="bob", will=Will("will/secret", b"x", 1, True))
    seen.clear()
    world.restart()
    assert sorted(seen) == [("ann", "ann", "publish", "will/open"), ("bob", "bob", "publish", "will/secret")]
    assert world.broker.counters.unauthorised == 1
    assert world.disk == {}


def test_a_will_carries_its_properties(world: Any) -> None:
    """3.1.3.2: payload format, expiry, content type, response topic, correlation data and user properties, in order."""
    properties = Properties(
        payload_format=1,
        message_expiry_s=100,
        content_type="text/plain",
        response_topic="answer",
        correlation_data=b"\1\2",
        user=(("b", "1"), ("a", "2"), ("b", "0")),
    )
    watch = watcher(world)
    world.client("ann").online(will=Will("will", b"gone", 2, False, properties)).drop()
    (message,) = watch.messages()
    assert (message.qos, message.properties) == (2, properties)


def test_the_expiry_of_a_will_begins_when_it_is_sent(world: Any) -> None:
    """3.1.3.2.4: the interval is that of the message that the server publishes."""
    late = world.client("watch").lasting()
    late.subscribe("will", 1)
    late.drop()
    ann = world.client("ann").online(session_expiry_s=1_000, will=delayed(50, message_expiry_s=20))
    world.wait(500)
    ann.drop()
    world.wait(55)
    late.connect(False, session_expiry_s=1_000)
    assert late.take()[1].properties.message_expiry_s == 15


@pytest.mark.parametrize("retain", [True, False])
def test_a_retained_will(world: Any, retain: bool) -> None:
    """[MQTT-3.1.2-14], [MQTT-3.1.2-15]."""
    world.client("ann").online(will=Will("will", b"gone", 0, retain)).drop()
    watch = watcher(world)
    assert [(m.payload, m.retain) for m in watch.messages()] == ([(b"gone", True)] if retain else [])


def test_an_empty_retained_will_clears_the_topic(world: Any, version: int) -> None:
    ann = world.client("ann", version).online(will=Will("will", b"", 0, True))
    world.client("bob").online().publish("will", b"there", retain=True)
    ann.drop()
    assert world.broker.retained.get("will") is None
    assert world.disk == {}


def test_a_will_is_authorised_when_it_is_sent(make_world: Any) -> None:
    """docs/semantics.md: like any publication; and nobody's will speaks for the broker."""
    allowed = {"will"}
    world = make_world({"authorise": lambda user, client, action, topic: action == "subscribe" or topic in allowed})
    watch = watcher(world)
    watch.subscribe("$SYS/#", 1)
    world.client("ann").online(will=WILL).drop()
    assert watch.payloads() == [b"gone"]
    allowed.clear()
    world.client("ann").online(will=WILL).drop()
    allowed.add("$SYS/broker/version")
    world.client("ann").online(will=Will("$SYS/broker/version", b"fake", 1, True)).drop()
    assert watch.payloads() == []
    assert len(world.broker.retained) == 0
    assert world.broker.counters.unauthorised == 2


def test_a_will_to_oneself(world: Any) -> None:
    """A lasting session that subscribes to its own will gets it when it is back."""
    ann = world.client("ann").lasting(will=WILL)
    ann.subscribe("will", 1)
    ann.drop()
    ann.connect(False, session_expiry_s=1)
    assert ann.take()[1].payload == b"gone"
    # One that ends gets nothing, and the accounts of the past balance.
    bob = world.client("bob", V311).online(will=Will("b", b"gone", 1))
    bob.subscribe("b", 1)
    bob.drop()
    assert world.broker.accounts().dropped == {"session-ended": 1}


def test_a_will_for_a_311_watcher(world: Any) -> None:
    watch = world.client("watch", V311).online()
    watch.subscribe("will", 1)
    world.client("ann", V5).online(will=Will("will", b"1", 1, properties=Properties(user=(("a", "b"),)))).drop()
    assert watch.one(Publish) == Publish("will", b"1", 1, packet_id=1)
