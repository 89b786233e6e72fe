"""Messages of a shared subscription whose member's session ends go to another member (MQTT 5.0, section 4.8.2).

At QoS 1 all that was not acknowledged; at QoS 2 what was never sent: one that was must not go to anybody else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from surecast.protocol.broker import BrokerCore
from surecast.protocol.broker.snapshot import decode_state, encode_state
from surecast.protocol.mqtt import Puback, Publish, Pubrec

FILTER = "$share/g/t"


def two(world: Any, qos: int, expiry_s: int = 100, **options: Any) -> tuple[Any, Any, Any]:
    """A member that takes one message at a time, its heir, who is away at first, and a publisher."""
    ends = world.client("ends").online(False, session_expiry_s=expiry_s, receive_maximum=1, **options)
    ends.subscribe(FILTER, qos)
    heir = world.client("heir").lasting()
    heir.subscribe(FILTER, qos)
    heir.drop()
    return ends, heir, world.client("pub").online()


def end_by_expiry(world: Any, ends: Any) -> None:
    ends.drop()
    world.wait(100)


def end_by_clean_start(world: Any, ends: Any) -> None:
    ends.online(True)


def end_by_an_administrator(world: Any, ends: Any) -> None:
    world.broker.end_session("ends", world.now)
    world.turn()


def end_by_a_goodbye(world: Any, ends: Any) -> None:
    ends.disconnect(session_expiry_s=0)


ENDINGS: list[Callable[[Any, Any], None]] = [
    end_by_expiry, end_by_clean_start, end_by_an_administrator, end_by_a_goodbye,
]  # fmt: skip


@pytest.mark.parametrize("end", ENDINGS, ids=lambda end: end.__name__)
def test_what_was_not_acknowledged_goes_to_another_member(world: Any, end: Callable[[Any, Any], None]) -> None:
    """In its order, as a first delivery, behind what the other member has."""
    ends, heir, pub = two(world, 1)
    for n in range(3):
        pub.publish("t", b"%d" % n, 1)
    [first] = ends.take()
    assert first.payload == b"0"
    heir.connect(False, session_expiry_s=100)
    heir.take()
    pub.publish("t", b"own", 1)
    end(world, ends)
    heard = heir.messages()
    assert [(m.payload, m.dup) for m in heard] == [(b"own", False), (b"0", False), (b"1", False), (b"2", False)]
    assert world.broker.accounts().dropped == {"handed-on": 3}
    assert world.broker.accounts().queued == 0
    assert "q" not in world.disk_counts()
    assert "m" not in world.disk_counts()


def test_a_session_that_ends_with_its_connection(world: Any, version: int) -> None:
    ends, heir = world.client("ends", version).online(), world.client("heir", version).lasting()
    ends.subscribe(FILTER, 1)
    world.client("pub").online().publish("t", b"1", 1)
    heir.subscribe(FILTER, 1)
    assert ends.one(Publish).payload == b"1"
    ends.drop()
    assert heir.payloads() == [b"1"]


def test_a_qos_2_message_that_was_sent_goes_to_nobody_else(world: Any) -> None:
    """[MQTT-4.8.2-5]. What waited behind it was never sent, and goes on."""
    ends, heir, pub = two(world, 2)
    for n in range(3):
        pub.publish("t", b"%d" % n, 2)
    assert ends.one(Publish).payload == b"0"
    end_by_a_goodbye(world, ends)
    heir.connect(False, session_expiry_s=100)
    heir.inbox.pop(0)
    assert [(m.payload, m.qos) for m in heir.messages()] == [(b"1", 2), (b"2", 2)]
    assert world.broker.accounts().dropped == {"session-ended": 1, "handed-on": 2}


def test_a_qos_2_message_that_was_released_goes_to_nobody_else(world: Any) -> None:
    ends, heir, pub = two(world, 2)
    pub.publish("t", b"0", 2)
    ends.send(Pubrec(ends.one(Publish).packet_id))
    end_by_a_goodbye(world, ends)
    assert heir.session.queued == 0


def test_an_acknowledged_message_is_done(world: Any) -> None:
    ends, heir, pub = two(world, 1)
    pub.publish("t", b"0", 1)
    ends.send(Puback(ends.one(Publish).packet_id))
    end_by_a_goodbye(world, ends)
    assert heir.session.queued == 0
    assert world.broker.accounts().dropped == {}


def test_where_no_member_is_left_messages_are_dropped(world: Any) -> None:
    ends = world.client("ends").online()
    ends.subscribe(FILTER, 1)
    world.client("pub").online().publish("t", b"0", 1)
    ends.drop()
    assert world.broker.accounts().dropped == {"session-ended": 1}


def test_messages_of_its_own_subscriptions_end_with_a_session(world: Any) -> None:
    ends, heir, pub = two(world, 1)
    ends.subscribe("t", 1)
    pub.publish("t", b"0", 1)
    end_by_a_goodbye(world, ends)
    assert heir.session.queued == 1
    assert world.broker.accounts().dropped == {"session-ended": 1, "handed-on": 1}


def test_each_goes_by_the_share_that_it_came_by(world: Any) -> None:
    """Of members with other filters of content none gets what it did not ask for."""
    ends = world.client("ends").online()
    ends.subscribe("$share/a/t", 1)
    ends.subscribe("$share/b/+", 1)
    heirs = {}
    for name, wanted, content in (("a", "$share/a/t", ""), ("b", "$share/b/+", "n > 5")):
        heirs[name] = world.client(name).lasting()
        heirs[name].subscribe(wanted, 1, **({"user": (("filter", content),)} if content else {}))
        heirs[name].drop()
    pub = world.client("pub").online()
    for payload in (b'{"n": 1}', b'{"n": 9}'):
        pub.publish("t", payload, 1, content_type="application/json")
    ends.drop()
    assert [d.message.payload for d in heirs["a"].session.waiting] == [b'{"n": 1}', b'{"n": 9}']
    assert [d.message.payload for d in heirs["b"].session.waiting] == [b'{"n": 9}']
    assert world.broker.accounts().dropped == {"handed-on": 3, "session-ended": 1}


def test_what_has_expired_is_not_handed_on(world: Any) -> None:
    ends, heir, pub = two(world, 1)
    for n in range(2):
        pub.publish("t", b"%d" % n, 1, message_expiry_s=10)
    world.now += 20
    end_by_a_goodbye(world, ends)
    assert heir.session.queued == 0
    accounts = world.broker.accounts()
    assert (accounts.expired, accounts.dropped) == (1, {"session-ended": 1})


def test_a_member_at_qos_0_gets_it_at_qos_0(world: Any) -> None:
    ends, pub = world.client("ends").online(), world.client("pub").online()
    ends.subscribe(FILTER, 1)
    pub.publish("t", b"0", 1)
    heir = world.client("heir").online()
    heir.subscribe(FILTER, 0)
    ends.drop()
    assert [(m.payload, m.qos) for m in heir.messages()] == [(b"0", 0)]


def test_the_queue_of_the_other_member_has_its_limit(make_world: Any) -> None:
    world = make_world(queue_messages_max=4)
    ends, heir, pub = two(world, 1)
    for n in range(4):
        pub.publish("t", b"%d" % n, 1)
    world.client("more").online()
    ends.drop()
    for n in range(2):
        pub.publish("t", b"more %d" % n, 1)
    world.wait(100)
    assert heir.session.queued == 4
    accounts = world.broker.accounts()
    assert accounts.matched == accounts.delivered + accounts.expired + accounts.dropped_total + accounts.queued
    assert accounts.dropped["handed-on"] == accounts.matched - 6


def test_it_holds_after_a_restart_and_in_a_copy(world: Any) -> None:
    """By which share a message came is on disk, and in snapshots."""
    ends, heir, pub = two(world, 1)
    for n in range(2):
        pub.publish("t", b"%d" % n, 1)
    ends.drop()
    copy = BrokerCore()
    decode_state(copy, encode_state(world.broker))
    assert encode_state(copy) == encode_state(world.broker)
    copy.end_session("ends", world.now)
    assert [d.message.payload for d in copy.sessions.by_key["heir"].waiting] == [b"0", b"1"]
    world.restart()
    world.wait(100)
    assert [d.message.payload for d in heir.session.waiting] == [b"0", b"1"]
    world.restart()
    assert [d.message.payload for d in heir.session.waiting] == [b"0", b"1"]
