"""Sessions: clean and lasting, expiry, take-over, keep-alive, identifiers (MQTT 5.0, sections 3.1, 3.2, 4.1)."""

from __future__ import annotations

from typing import Any

import pytest

from surecast.protocol.mqtt import V5, V311, Connack, Disconnect, Properties, Publish, Pubrec, ReasonCode, Will

FOR_EVER = 0xFFFF_FFFF


def test_a_lasting_session_of_version_311(world: Any) -> None:
    """3.1.1, 3.1.2.4 [MQTT-3.1.2-4, -5], 3.2.2.2 [MQTT-3.2.2-1, -2, -3]: it is there again, and a clean one ends it."""
    ann = world.client("ann", V311).connect(False)
    assert ann.one(Connack) == Connack(False)
    ann.subscribe("a", 1)
    ann.disconnect()
    world.wait(1e9)
    assert ann.connect(False).one(Connack) == Connack(True)
    assert list(ann.session.subscriptions) == ["a"]
    assert ann.connect(True).one(Connack) == Connack(False)
    assert not ann.session.subscriptions
    assert world.disk == {}
    ann.disconnect()
    assert ann.connect(False).one(Connack) == Connack(False)


@pytest.mark.parametrize("expiry", [None, 0])
def test_a_session_without_expiry_ends_with_its_connection(world: Any, expiry: int | None) -> None:
    """3.1.2.11.2: without the property, or with 0, the session ends when the connection is closed."""
    ann = world.client("ann").online(session_expiry_s=expiry)
    ann.subscribe("a")
    ann.drop()
    assert world.broker.sessions.by_key == {}
    assert not ann.connect(False, session_expiry_s=expiry).one(Connack).session_present
    assert world.disk == {}


def test_a_session_expires(world: Any) -> None:
    """[MQTT-3.1.2-23]: the state is kept for the expiry interval, and discarded after it."""
    ann = world.client("ann").online(session_expiry_s=60)
    ann.subscribe("a", 1)
    ann.drop()
    world.wait(59.9)
    assert ann.connect(False, session_expiry_s=60).one(Connack).session_present
    world.wait(1_000)
    ann.drop()
    world.client("pub").online().publish("a", b"", 1)
    world.wait(60)
    assert "ann" not in world.broker.sessions.by_key
    assert world.disk == {}
    assert world.broker.accounts().dropped == {"session-ended": 1}
    assert not ann.connect(False).one(Connack).session_present


def test_a_late_timer_makes_no_difference(world: Any) -> None:
    ann = world.client("ann").online(session_expiry_s=60)
    ann.drop()
    world.now += 61
    assert not ann.connect(False).one(Connack).session_present


def test_a_session_for_ever(world: Any) -> None:
    """3.1.2.11.2: 0xFFFFFFFF means that it does not expire."""
    ann = world.client("ann").online(session_expiry_s=FOR_EVER)
    ann.drop()
    world.wait(2.0**33)
    assert ann.connect(False).one(Connack).session_present


def test_the_expiry_counts_through_restarts(world: Any) -> None:
    """docs/semantics.md: time spent down counts; a client that was connected counts as gone since the first restart."""
    gone, there = world.client("gone").online(session_expiry_s=100), world.client("there").online(session_expiry_s=100)
    gone.drop()
    world.wait(40)
    world.restart(after_s=40)
    assert set(world.broker.sessions.by_key) == {"gone", "there"}
    world.restart(after_s=30)
    assert set(world.broker.sessions.by_key) == {"there"}
    world.restart(after_s=69)
    assert set(world.broker.sessions.by_key) == {"there"}
    world.restart(after_s=2)
    assert world.broker.sessions.by_key == {}
    assert world.disk == {}
    assert not there.connect(False).one(Connack).session_present


def test_disconnect_changes_the_expiry(world: Any) -> None:
    """3.14.2.2.2: longer, shorter, and none at all."""
    ann = world.client("ann").online(session_expiry_s=10)
    ann.disconnect(session_expiry_s=100)
    world.wait(99)
    assert ann.connect(False, session_expiry_s=100).one(Connack).session_present
    ann.disconnect(session_expiry_s=5)
    world.wait(6)
    assert not ann.connect(False, session_expiry_s=100).one(Connack).session_present
    ann.subscribe("a", 1)
    world.client("pub").online().publish("a", b"", 1)
    ann.disconnect(session_expiry_s=0)
    assert world.disk == {}
    assert not ann.connect(False).one(Connack).session_present


def test_disconnect_cannot_give_a_life_to_a_session_that_had_none(world: Any) -> None:
    """3.14.2.2.2: a non-zero expiry after a zero one is a protocol error."""
    ann = world.client("ann").online()
    ann.disconnect(session_expiry_s=10)
    assert ann.one(Disconnect).reason == ReasonCode.PROTOCOL_ERROR
    assert ann.closed
    assert world.broker.sessions.by_key == {}


def test_the_broker_may_shorten_the_expiry(make_world: Any) -> None:
    """3.2.2.3.2: the CONNACK says so if it does; MQTT 3.1.1 has no word for it and is held to it too."""
    world = make_world(session_expiry_max_s=50)
    ann, old = world.client("ann").connect(session_expiry_s=FOR_EVER), world.client("old", V311).online(False)
    assert ann.one(Connack).properties.session_expiry_s == 50
    assert ann.connect(session_expiry_s=40).one(Connack).properties.session_expiry_s is None
    ann.disconnect(session_expiry_s=1_000)
    old.disconnect()
    world.wait(49)
    assert len(world.broker.sessions.by_key) == 2
    world.wait(2)
    assert world.broker.sessions.by_key == {}


def test_a_lasting_session_may_become_a_passing_one(world: Any) -> None:
    """A reconnection without expiry continues the session once more; its queue arrives, and nothing stays on disk."""
    ann, pub = world.client("ann").lasting(), world.client("pub").online()
    ann.subscribe("a", 2)
    pub.publish("a", b"1", 1)
    ann.take()
    ann.drop()
    pub.publish("a", b"2", 2)
    assert world.disk_counts() == {"s": 1, "f": 1, "q": 2, "m": 2}
    ann.connect(False)
    assert ann.inbox.pop(0).session_present
    assert world.disk == {}
    pub.publish("a", b"3", 1)
    assert ann.payloads() == [b"1", b"2", b"3"]
    ann.drop()
    assert world.broker.sessions.by_key.keys() == {"pub"}


@pytest.mark.parametrize("clean", [True, False])
def test_take_over(world: Any, version: int, clean: bool) -> None:
    """[MQTT-3.1.4-3]: the older connection is closed, in 5.0 with 0x8E; its session goes on, or not."""
    first, second = world.client("ann", version), world.client("ann", version)
    first.lasting()
    first.subscribe("a", 1)
    lasting = {"session_expiry_s": FOR_EVER} if version == V5 else {}
    connack = second.connect(clean, **lasting).one(Connack)
    assert connack.session_present is not clean
    assert first.closed
    assert first.take() == ([Disconnect(ReasonCode.SESSION_TAKEN_OVER)] if version == V5 else [])
    world.client("pub").online().publish("a", b"1", 1)
    assert second.payloads() == ([] if clean else [b"1"])


def test_take_over_across_versions(world: Any) -> None:
    old, new = world.client("ann", V311).lasting(), world.client("ann", V5)
    old.subscribe("a", 1)
    assert new.connect(False, session_expiry_s=9).one(Connack).session_present
    assert old.closed
    world.client("pub").online().publish("a", b"1", 1, user=(("k", "v"),))
    assert new.one(Publish).properties == Properties(user=(("k", "v"),))
    assert old.connect(False).take()[0].session_present
    assert new.one(Disconnect).reason == ReasonCode.SESSION_TAKEN_OVER
    assert old.connect(False).take()[1].dup


def test_keep_alive(world: Any, version: int) -> None:
    """[MQTT-3.1.2-22] (5.0), [MQTT-3.1.2-24] (3.1.1): closed after one and a half times the keep-alive, 0x8D in 5.0."""
    ann = world.client("ann", version).online(keep_alive_s=10, will=Will("will", b"gone"))
    watch = world.client("watch").online()
    watch.subscribe("will")
    for _ in range(3):
        world.wait(14.9)
        assert ann.ping()
    world.wait(14.9)
    assert not ann.closed
    world.wait(0.2)
    assert ann.closed
    assert ann.take() == ([Disconnect(ReasonCode.KEEP_ALIVE_TIMEOUT)] if version == V5 else [])
    assert watch.payloads() == [b"gone"]


def test_no_keep_alive(world: Any, version: int) -> None:
    """3.1.2.10: 0 switches it off."""
    ann = world.client("ann", version).online(keep_alive_s=0)
    world.wait(1e6)
    assert ann.ping()


@pytest.mark.parametrize(("asked", "told"), [(0, 20), (60, 20), (10, None)])
def test_server_keep_alive(make_world: Any, asked: int, told: int | None) -> None:
    """3.2.2.3.14 [MQTT-3.2.2-21]: the server's keep-alive replaces the client's; 3.1.1 clients are held to it."""
    world = make_world(keep_alive_max_s=20)
    ann, old = world.client("ann").connect(keep_alive_s=asked), world.client("old", V311).online(keep_alive_s=asked)
    assert ann.one(Connack).properties.server_keep_alive_s == told
    world.wait(1.5 * (told or asked) - 0.1)
    assert not ann.closed
    assert not old.closed
    world.wait(0.2)
    assert ann.closed
    assert old.closed


def test_an_assigned_identifier(world: Any) -> None:
    """[MQTT-3.1.3-6], [MQTT-3.1.3-7], [MQTT-3.2.2-16]: unique, and told in the CONNACK of 5.0."""
    taken = world.client("auto-00000001").online()
    names = [world.client("").connect().one(Connack).properties.assigned_client_id for _ in range(3)]
    assert len({*names, "auto-00000001"}) == 4
    assert not taken.closed
    assert set(names) < set(world.broker.sessions.by_key)
    lasting = world.client("").connect(False, session_expiry_s=100).one(Connack)
    assert not lasting.session_present
    world.restart()
    others = [world.client("").connect().one(Connack).properties.assigned_client_id for _ in range(9)]
    assert lasting.properties.assigned_client_id not in others


def test_version_311_without_an_identifier(world: Any) -> None:
    """[MQTT-3.1.3-7] and -8 (3.1.1): fine with a clean session, return code 2 with a lasting one."""
    first, second = world.client("", V311).online(), world.client("", V311).online()
    assert not first.closed
    assert not second.closed
    refused = world.client("", V311).connect(False)
    assert refused.one(Connack).reason == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
    assert refused.raw == bytes.fromhex("20020002")
    assert refused.closed


def test_the_connack_names_the_limits(make_world: Any) -> None:
    """3.2.2.3: receive maximum, packet size, topic aliases; what is not said is as the standard assumes."""
    world = make_world(receive_maximum=7, packet_bytes_max=9_000, topic_alias_max=3)
    assert world.client("ann").connect().one(Connack) == Connack(
        False,
        ReasonCode.SUCCESS,
        Properties(receive_maximum=7, maximum_packet_size=9_000, topic_alias_maximum=3),
    )
    assert world.client("bob", V311).connect().one(Connack) == Connack(False)
    without = make_world(topic_alias_max=0).client("ann").connect().one(Connack)
    assert without.properties.topic_alias_maximum is None


def test_a_limit_of_sessions(make_world: Any) -> None:
    world = make_world(sessions_max=2)
    ann, bob = world.client("ann").online(), world.client("bob").online()
    third = world.client("third").connect()
    assert third.one(Connack).reason == ReasonCode.QUOTA_EXCEEDED
    assert world.client("old", V311).connect().one(Connack).reason == ReasonCode.SERVER_UNAVAILABLE
    assert bob.connect().one(Connack).reason == ReasonCode.SUCCESS
    ann.disconnect()
    assert third.connect().one(Connack).reason == ReasonCode.SUCCESS
    assert world.broker.counters.refused == 2


def test_half_received_messages_survive(world: Any, version: int) -> None:
    """4.1: QoS 2 messages that were received and not released belong to the session; so do restarts."""
    sub, pub = world.client("sub", version).lasting(), world.client("pub", version).lasting()
    sub.subscribe("a", 2)
    pub.publish("a", b"1", 2, packet_id=3)
    assert pub.one(Pubrec) == Pubrec(3)
    world.restart()
    pub.lasting()
    pub.publish("a", b"1", 2, packet_id=3, dup=True)
    assert pub.one(Pubrec) == Pubrec(3)
    sub.connect(False, **({"session_expiry_s": 9} if version == V5 else {})).inbox.pop(0)
    assert sub.payloads() == [b"1"]
    pub.connect(True)
    assert all(not key.startswith(b"p") for key in world.disk)


def test_a_clean_start_ends_the_exchange_of_qos_2(world: Any, version: int) -> None:
    sub, pub = world.client("sub", version).online(), world.client("pub", version).lasting()
    sub.subscribe("a", 2)
    pub.publish("a", b"1", 2, packet_id=3)
    pub.lasting(True)
    pub.publish("a", b"2", 2, packet_id=3)
    assert sub.payloads() == [b"1", b"2"]


def test_an_administrator_ends_a_session(world: Any) -> None:
    ann = world.client("ann").lasting()
    ann.subscribe("a", 1)
    assert world.broker.end_session("ann", world.now)
    world.turn()
    assert ann.one(Disconnect).reason == ReasonCode.ADMINISTRATIVE_ACTION
    assert not world.broker.end_session("ann", world.now)
    assert world.disk == {}


def test_put_off_timers_do_not_pile_up(world: Any) -> None:
    """A client that comes and goes all day leaves no more than its own appointments behind."""
    ann = world.client("ann")
    for _ in range(3_000):
        ann.online(
            False,
            session_expiry_s=100_000,
            keep_alive_s=60_000,
            will=Will("w", properties=Properties(will_delay_s=99_999)),
        )
        ann.drop()
    assert len(world.broker.timers) <= 3
    assert len(world.broker.timers._heap) < 2_000
    world.wait(100_000)
    assert world.broker.sessions.by_key == {}


def test_shutting_down(world: Any, version: int) -> None:
    """docs/semantics.md, stopping: DISCONNECT with 0x8B; sessions stay, wills without a delay are sent."""
    ann = world.client("ann", version).lasting(will=Will("w", b"ann", retain=True))
    world.broker.disconnect(ann.connection, ReasonCode.SERVER_SHUTTING_DOWN, world.now)
    world.turn()
    assert ann.take() == ([Disconnect(ReasonCode.SERVER_SHUTTING_DOWN)] if version == V5 else [])
    world.restart()
    assert ann.connect(False, **({"session_expiry_s": 1} if version == V5 else {})).one(Connack).session_present
    assert world.broker.retained.get("w").payload == b"ann"
