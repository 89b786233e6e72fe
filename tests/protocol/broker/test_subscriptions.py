"""SUBSCRIBE, UNSUBSCRIBE, shared subscriptions, topics that begin with $, content filters (3.8 to 3.11, 4.7, 4.8)."""

from __future__ import annotations

from typing import Any

import pytest

from surecast.protocol.broker import publish_system_topics
from surecast.protocol.mqtt import (
    V5,
    V311,
    Disconnect,
    Properties,
    Puback,
    Publish,
    Pubrec,
    ReasonCode,
    Suback,
    Subscribe,
    SubscriptionRequest,
    Unsuback,
)


def test_one_answer_for_each_filter(make_world: Any, version: int) -> None:
    """[MQTT-3.8.4-6], [MQTT-3.9.3-1]; failures are 0x80 in 3.1.1 and have their reason in 5.0."""
    world = make_world(
        {"authorise": lambda user, client, action, topic: not topic.startswith("no")}, subscriptions_max=3
    )
    sub = world.client("sub", version).online()
    wanted = (("a", 2), ("no/b", 1), ("c", 0), ("a", 1), ("d", 1), ("e", 1))
    packet = Subscribe(77, tuple(SubscriptionRequest(name, qos) for name, qos in wanted))
    answer = sub.ask(packet, Suback)
    if version == V5:
        assert answer.reasons == (2, ReasonCode.NOT_AUTHORIZED, 0, 1, 1, ReasonCode.QUOTA_EXCEEDED)
    else:
        assert answer.reasons == (2, 0x80, 0, 1, 1, 0x80)
    assert answer.packet_id == 77
    assert {key: s.qos for key, s in sub.session.subscriptions.items()} == {"a": 1, "c": 0, "d": 1}


def test_a_subscription_is_replaced(world: Any, version: int) -> None:
    """[MQTT-3.8.4-3]: an equal filter replaces the subscription, with its QoS, options and identifier."""
    sub, pub = world.client("sub", version).online(), world.client("pub").online()
    sub.subscribe("a", 2)
    sub.subscribe("a", 0, **({"subscription_ids": (3,)} if version == V5 else {}))
    pub.publish("a", b"1", 2)
    (message,) = sub.messages()
    assert message.qos == 0
    assert message.properties.subscription_ids == ((3,) if version == V5 else ())
    assert world.broker.routes.count == 1


def test_unsubscribe(world: Any, version: int) -> None:
    """[MQTT-3.10.4-1] to -6, 3.11.3: 0x11 where nothing was; filters are compared letter by letter."""
    sub, pub = world.client("sub", version).lasting(), world.client("pub").online()
    sub.subscribe("a/+", 1)
    sub.subscribe("a/b", 1)
    nothing = ReasonCode.NO_SUBSCRIPTION_EXISTED
    assert sub.unsubscribe("a/#", "a/+").reasons == ((nothing, ReasonCode.SUCCESS) if version == V5 else ())
    pub.publish("a/c").publish("a/b")
    assert [m.topic for m in sub.messages()] == ["a/b"]
    assert sub.unsubscribe("a/b").reasons == ((ReasonCode.SUCCESS,) if version == V5 else ())
    assert isinstance(sub.unsubscribe("a/b"), Unsuback)
    pub.publish("a/b")
    assert sub.messages() == []
    assert world.disk_counts() == {"s": 1}


def test_what_was_sent_before_the_unsubscribe_is_completed(world: Any, version: int) -> None:
    """[MQTT-3.10.4-3]: deliveries of QoS 1 and 2 that were started go on."""
    sub, pub = world.client("sub", version).online(), world.client("pub").online()
    sub.subscribe("a", 2)
    pub.publish("a", b"1", 2)
    sub.inbox.clear()
    sub.unsubscribe("a")
    assert sub.ask(Pubrec(1), type(sub.decoder.feed(bytes.fromhex("62020001"))[0])).packet_id == 1


def test_overlapping_subscriptions_give_one_copy(world: Any, version: int) -> None:
    """[MQTT-3.3.4-2], -3, -4: one copy with the highest QoS and all the identifiers."""
    sub, pub = world.client("sub", version).online(), world.client("pub").online()
    for count, (name, qos) in enumerate((("a/#", 0), ("a/+", 2), ("+/b", 1), ("x", 2)), 1):
        sub.subscribe(name, qos, **({"subscription_ids": (count,)} if version == V5 else {}))
    for qos in (0, 1, 2):
        pub.publish("a/b", b"1", qos)
        (message,) = sub.messages()
        assert message.qos == qos
        assert sorted(message.properties.subscription_ids) == ([1, 2, 3] if version == V5 else [])


def test_subscription_identifiers(world: Any) -> None:
    """[MQTT-3.3.4-3]: as large as they come, over several copies, over a restart, and none where none was given."""
    sub, pub = world.client("sub").lasting(), world.client("pub").online()
    sub.subscribe("a", 1, subscription_ids=(268_435_455,))
    sub.subscribe("b", 1)
    sub.drop()
    pub.publish("a", b"", 1, user=(("k", "v"),)).publish("b", b"", 1)
    world.restart()
    sub.connect(False, session_expiry_s=9)
    got = sub.take()[1:]
    assert [m.properties for m in got] == [
        Properties(subscription_ids=(268_435_455,), user=(("k", "v"),)),
        Properties(),
    ]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_no_local(world: Any, qos: int) -> None:
    """[MQTT-3.8.3-3]: not to the connection whose client identifier is that of the publisher; others get it."""
    ann, bob = world.client("ann").online(), world.client("bob").online()
    ann.subscribe("a", 2, no_local=True)
    bob.subscribe("a", 2, no_local=True)
    ann.publish("a", b"1", qos)
    ann.inbox.clear()
    assert bob.payloads() == [b"1"]
    # With a second subscription that wants its own messages, it is that one alone that counts.
    ann.subscribe("+", 0, subscription_ids=(4,))
    ann.publish("a", b"2", 0)
    assert [(m.payload, m.properties.subscription_ids) for m in ann.messages()] == [(b"2", (4,))]
    assert ann.session.accounts.matched == 1


def test_no_local_answers_without_receivers(world: Any) -> None:
    """3.4.2.1: 0x10 if a message reaches nobody, also if it is the publisher alone who excludes it."""
    ann = world.client("ann").online()
    ann.subscribe("a", 1, no_local=True)
    for _ in range(3):
        ann.send(*(Publish("a", b"1", 1, packet_id=n) for n in (1, 2, 3)))
        assert ann.take() == [Puback(n, ReasonCode.NO_MATCHING_SUBSCRIBERS) for n in (1, 2, 3)]


def test_topics_that_begin_with_a_dollar(world: Any, version: int) -> None:
    """[MQTT-4.7.2-1]: filters that begin with a wildcard do not match them; and clients do not publish to them."""
    sub, pub = world.client("sub", version).online(), world.client("pub").online()
    for name in ("#", "+/broker/version", "$SYS/#"):
        sub.subscribe(name, 1)
    assert pub.publish("$SYS/broker/version", b"fake", 1, packet_id=1).one(Puback).reason == ReasonCode.NOT_AUTHORIZED
    assert pub.publish("$share/g/a", b"fake", 2, packet_id=1).one(Pubrec).reason == ReasonCode.NOT_AUTHORIZED
    pub.publish("$other", b"fake", 0, retain=True)
    assert sub.messages() == []
    publish_system_topics(world.broker, "1.0", world.now)
    world.turn()
    got = {m.topic: m.payload for m in sub.messages()}
    assert got["$SYS/broker/version"] == b"1.0"
    assert got["$SYS/broker/clients/connected"] == b"2"
    assert all(topic.startswith("$SYS/") for topic in got)
    publish_system_topics(world.broker, "1.0", world.now)
    world.turn()
    again = [m.topic for m in sub.messages()]
    assert "$SYS/broker/version" not in again
    late = world.client("late").online()
    late.subscribe("$SYS/broker/version", 1)
    assert late.payloads() == [b"1.0"]
    late.subscribe("#", 1)
    assert late.payloads() == []
    assert world.disk == {}


def shared(world: Any, count: int, qos: int = 1, version: int = V5, lasting: bool = False) -> list[Any]:
    members = [world.client(f"m{i}", version) for i in range(count)]
    for member in members:
        (member.lasting if lasting else member.online)().subscribe("$share/g/a/#", qos)
    return members


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_shared_subscriptions_take_turns(world: Any, version: int, qos: int) -> None:
    """4.8.2: each message goes to one member; ordinary subscriptions and other groups get their own copies."""
    members, pub = shared(world, 3, qos, version), world.client("pub").online()
    other, plain = world.client("other").online(), world.client("plain").online()
    other.subscribe("$share/h/a/#", 2)
    plain.subscribe("a/b", 2)
    for count in range(9):
        pub.publish("a/b", b"%d" % count, qos)
    everything = [b"%d" % count for count in range(9)]
    assert [m.payloads() for m in members] == [everything[i::3] for i in range(3)]
    assert other.payloads() == plain.payloads() == everything


def test_a_member_and_a_plain_subscription(world: Any) -> None:
    """4.8.2: a session may have both; it gets the message for each."""
    (member,) = shared(world, 1)
    member.subscribe("a/b", 0)
    world.client("pub").online().publish("a/b", b"1", 1)
    assert sorted(m.qos for m in member.messages()) == [0, 1]


def test_members_that_are_away(world: Any) -> None:
    """docs/semantics.md: to a connected member where there is one; otherwise it waits for one of those away."""
    members, pub = shared(world, 3, lasting=True), world.client("pub").online()
    members[1].drop()
    for count in range(4):
        pub.publish("a/b", b"%d" % count, 1)
    assert [m.payloads() for m in (members[0], members[2])] == [[b"0", b"2"], [b"1", b"3"]]
    members[0].drop()
    members[2].drop()
    for count in range(6):
        pub.publish("a/b", b"%d" % count, 1)
    assert [m.session.queued for m in members] == [2, 2, 2]
    world.restart()
    for member in members:
        member.connect(False, session_expiry_s=0)
        assert len(member.take()) == 3


def test_a_refusal_is_not_passed_to_another_member(world: Any) -> None:
    """[MQTT-4.8.2-6]: after an error code the message is discarded."""
    members, pub = shared(world, 2), world.client("pub").online()
    pub.publish("a", b"1", 1)
    members[0].send(Puback(members[0].one(Publish).packet_id, ReasonCode.UNSPECIFIED_ERROR))
    members[0].drop()
    assert members[1].payloads() == []
    assert world.broker.accounts().dropped == {"rejected": 1}


def test_leaving_a_shared_subscription(world: Any, version: int) -> None:
    """3.10.4: the others go on, in turn; the last one ends it."""
    members, pub = shared(world, 3, 0, version, lasting=True), world.client("pub").online()
    pub.publish("a", b"0")
    members[0].unsubscribe("$share/g/a/#")
    members[0].inbox.clear()
    for count in range(4):
        pub.publish("a", b"%d" % count)
    assert [m.payloads() for m in members] == [[], [b"0", b"2"], [b"1", b"3"]]
    for member in members[1:]:
        member.unsubscribe("$share/g/a/#")
    assert pub.publish("a", b"", 1).take()[-1].reason == ReasonCode.NO_MATCHING_SUBSCRIBERS
    assert world.disk_counts() == {"s": 3}
    assert world.broker.routes.count == 0


def test_a_shared_subscription_without_local_messages_is_an_error(world: Any) -> None:
    """[MQTT-3.8.3-4]: no local with a shared subscription is a protocol error."""
    ann = world.client("ann").online()
    ann.send(Subscribe(1, (SubscriptionRequest("$share/g/a", 0, no_local=True),)))
    assert ann.one(Disconnect).reason == ReasonCode.PROTOCOL_ERROR


@pytest.mark.parametrize("filter", ["$share/g", "$share//a", "$share/g+/a", "$share/#/a", "$share/", "$share/g/"])
def test_bad_shared_subscriptions(world: Any, version: int, filter: str) -> None:
    """[MQTT-4.8.2-1], -2: an error in 5.0. In 3.1.1, where they do not exist, the subscription fails and no more."""
    ann = world.client("ann", version).online()
    ann.send(Subscribe(1, (SubscriptionRequest(filter, 1), SubscriptionRequest("b", 1))))
    if version == V5:
        assert ann.one(Disconnect).reason in (ReasonCode.PROTOCOL_ERROR, ReasonCode.MALFORMED_PACKET)
    elif not ann.closed:
        assert ann.one(Suback).reasons == (0x80, 1)
        assert ann.unsubscribe(filter) == Unsuback(ann._packet_id)


def test_the_share_of_a_congested_member(world: Any) -> None:
    members, pub = shared(world, 2, 0), world.client("pub").online()
    world.broker.set_congested(members[0].connection, True)
    pub.publish("a", b"1").publish("a", b"2")
    assert [m.payloads() for m in members] == [[], [b"1", b"2"]]


# Content filters: the user property `filter` of a SUBSCRIBE.


def test_a_content_filter(world: Any) -> None:
    sub, pub = world.client("sub").lasting(), world.client("pub").online()
    sub.subscribe("stocks", 1, user=(("filter", "price > 35"), ("filter", 'name = "Foo"')))
    for _ in range(2):
        pub.publish("stocks", b"1", 1, user=(("price", "36"), ("name", "Foo")))
        pub.publish("stocks", b"2", 1, user=(("price", "34"), ("name", "Foo")))
        pub.publish("stocks", b"3", 0, user=(("price", "36"), ("name", "Bar")))
        pub.publish("stocks", b'{"price": 40, "name": "Foo"}', 0, content_type="application/json")
        pub.publish("stocks", b'{"price": 40, "name": "Foo"}', 0)
        pub.publish("stocks", b'{"price": 40, "name"', 0, content_type="application/json")
        assert pub.publish("stocks", b"4", 1, packet_id=9).take()[-1] == Puback(9, ReasonCode.NO_MATCHING_SUBSCRIBERS)
        assert sub.payloads() == [b"1", b'{"price": 40, "name": "Foo"}']
        world.restart()
        sub.connect(False, session_expiry_s=100)
        sub.take()
        pub.online()


def test_content_filters_and_other_subscriptions(world: Any) -> None:
    """Of overlapping subscriptions those count that want the message."""
    sub, pub = world.client("sub").online(), world.client("pub").online()
    sub.subscribe("a", 2, user=(("filter", "x > 1"),), subscription_ids=(1,))
    sub.subscribe("+", 0, subscription_ids=(2,))
    pub.publish("a", b"1", 2, user=(("x", "0"),)).publish("a", b"2", 2, user=(("x", "2"),))
    assert [(m.payload, m.qos, sorted(m.properties.subscription_ids)) for m in sub.messages()] == [
        (b"1", 0, [2]),
        (b"2", 2, [1, 2]),
    ]


def test_content_filters_of_shared_and_retained(world: Any) -> None:
    one, two, pub = (world.client(name).online() for name in ("one", "two", "pub"))
    pub.publish("r", b"1", retain=True, user=(("x", "1"),))
    one.subscribe("r", user=(("filter", "x > 1"),))
    two.subscribe("r", user=(("filter", "x < 2"),))
    assert (one.payloads(), two.payloads()) == ([], [b"1"])
    one.subscribe("$share/g/a", user=(("filter", "x > 1"),))
    two.subscribe("$share/g/a", user=(("filter", "x < 3"),))
    for x in (2, 2, 0, 0, 9, 9):
        pub.publish("a", b"%d" % x, user=(("x", str(x)),))
    assert (one.payloads(), two.payloads()) == ([b"2", b"9", b"9"], [b"2", b"0", b"0"])


def test_a_bad_content_filter(world: Any) -> None:
    """SUBACK with 0x83 and an explanation; without it if the client does not want any [MQTT-3.1.2-29]."""
    ann = world.client("ann").online()
    answer = ann.subscribe("a", 1, check=False, user=(("filter", "price >"),))
    assert answer.reasons == (ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,)
    assert "expected" in answer.properties.reason_string
    assert not ann.session.subscriptions
    ann.online(request_problem_information=False)
    assert ann.subscribe("a", 1, check=False, user=(("filter", "price >"),)).properties == Properties()
    ann.online(maximum_packet_size=30)
    assert ann.subscribe("a", 1, check=False, user=(("filter", "price >"),)).properties == Properties()


def test_version_311_clients_next_to_content_filters(world: Any) -> None:
    """A message without properties has no attributes."""
    old, new = world.client("old", V311).online(), world.client("new").online()
    new.subscribe("a", 1, user=(("filter", "x > 1"),))
    old.subscribe("a", 1)
    world.client("pub", V311).online().publish("a", b"1", 1)
    assert (old.payloads(), new.payloads()) == ([b"1"], [])


def wide(count: int, name: str = "n") -> tuple[tuple[str, str], ...]:
    """A content filter with so many constraints."""
    return (("filter", " and ".join(f"{name}{at} > 0" for at in range(count))),)


def test_a_content_filter_has_a_bounded_number_of_constraints(world: Any) -> None:
    sub = world.client("sub").online()
    assert sub.subscribe("t", 1, user=wide(100)).reasons == (1,)
    for too_much in (wide(101), wide(1, "n" * 256), wide(1_500)):
        answer = sub.subscribe("u", 1, user=too_much, check=False)
        assert answer.reasons == (ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,)
        assert "at most" in (answer.properties.reason_string or "")
    assert "u" not in sub.session.subscriptions
    assert sub.subscribe("u", 1, user=(("filter", " and ".join(["n > 0"] * 500)),)).reasons == (1,)  # one constraint
    assert sub.session.filter_constraints == 101


def test_the_content_filters_of_a_session_cost_a_bounded_time(make_world: Any) -> None:
    world = make_world(filter_constraints_max=10)
    sub, other = world.client("sub").lasting(), world.client("other").online()
    assert [sub.subscribe(f"t/{n}", 1, user=wide(4), check=False).reasons[0] for n in range(3)] == [1, 1, 0x97]
    assert world.broker.counters.limited["filter_constraints"] == 1
    assert other.subscribe("t/0", 1, user=wide(10)).reasons == (1,)  # each session has its own
    sub.subscribe("t/0", 1, user=wide(6))  # in the place of the one before
    assert sub.subscribe("t/2", 1, user=wide(1), check=False).reasons == (ReasonCode.QUOTA_EXCEEDED,)
    sub.subscribe("t/2", 1)  # without a filter it costs nothing
    sub.unsubscribe("t/1")
    assert sub.session.filter_constraints == 6
    sub.subscribe("t/3", 1, user=wide(4))
    world.restart()
    sub.lasting()
    assert sub.session.filter_constraints == 10
    assert sub.subscribe("t/4", 1, user=wide(1), check=False).reasons == (ReasonCode.QUOTA_EXCEEDED,)
