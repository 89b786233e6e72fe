"""Budgets of one client, one user and one address, and what they are told when they want more."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from surecast.protocol.broker import BrokerCore, BrokerSettings
from surecast.protocol.broker.limits import Limits, LimitTable
from surecast.protocol.broker.quotas import shape_of
from surecast.protocol.broker.snapshot import decode_state, encode_state
from surecast.protocol.mqtt import V5, V311, Connack, Puback, Publish, ReasonCode, match

QUOTA = ReasonCode.QUOTA_EXCEEDED


def filters_of(length: int) -> list[str]:
    """Every filter of so many levels that matches the topic a/a/..."""
    return ["/".join(levels) for levels in itertools.product("+a", repeat=length)]


def test_a_session_has_few_filters_that_match_the_same_topic(make_world: Any) -> None:
    """2^13 filters of + cost 10 ms for each message to a new topic."""
    world = make_world()
    ann = world.client("ann").online()
    for wanted in filters_of(10):
        ann.subscribe(wanted, check=False)
    assert len(ann.session.subscriptions) == 128 + 1  # the one without wildcards is free
    assert world.broker.counters.limited["filter_shapes"] == 1024 - 129
    assert ann.subscribe("+/b/c", check=False).reasons == (QUOTA,)
    assert ann.subscribe("x/y").reasons == (0,)
    world.client("bob").online().publish("/".join("a" * 10))
    assert len(ann.session.subscriptions) == 130


def test_many_filters_of_one_shape_are_ordinary(world: Any) -> None:
    ann = world.client("ann").online()
    for number in range(2_000):
        ann.subscribe(f"device/{number}/+/state")
    assert len(ann.session.shapes) == 1


def test_shares_of_one_filter_are_different_shapes(make_world: Any) -> None:
    """Each of them would get every message."""
    world = make_world(filter_shapes_max=3)
    ann = world.client("ann").online()
    reasons = [ann.subscribe(f"$share/{n}/t", check=False).reasons[0] for n in range(5)]
    assert reasons == [0, 0, 0, QUOTA, QUOTA]
    ann.unsubscribe("$share/0/t")
    assert ann.subscribe("$share/4/t").reasons == (0,)


@pytest.mark.parametrize("topic", ["a", "a/b", "a/a/a", "/", "a//a"])
def test_of_one_shape_at_most_one_filter_matches(topic: str) -> None:
    names = ["+", "a", "b", ""]
    every = ["/".join(levels) for count in range(1, 4) for levels in itertools.product(names, repeat=count)]
    every += [f"{one}/#" for one in every] + ["#"]
    matching = [shape_of(one, "") for one in every if one and match(one, topic)]
    assert len(matching) == len(set(matching))


def connect(world: Any, name: str, user: str = "", peer: str = "", version: int = V5) -> Any:
    client = world.client(name, version)
    client.peer = peer or f"peer-{name}"
    client.connect(False, identity=user, **({"session_expiry_s": 600} if version == V5 else {}))
    return client


@pytest.mark.parametrize(
    ("limit", "whose"), [("user_sessions", {"user": "u"}), ("address_sessions", {"peer": "10.0.0.1:5"})]
)
def test_sessions_are_limited_by_user_and_by_address(make_world: Any, limit: str, whose: dict[str, str]) -> None:
    world = make_world({}, **{f"{limit}_max": 2})
    connect(world, "c1", **whose)
    connect(world, "c2", **whose)
    assert connect(world, "c3", **whose).one(Connack).reason == QUOTA
    assert connect(world, "c4", version=V311, **whose).one(Connack).reason == ReasonCode.SERVER_UNAVAILABLE
    assert world.broker.counters.limited == {limit: 2}
    assert connect(world, "c5", user="other", peer="10.0.0.2:5").one(Connack).reason == 0
    assert connect(world, "c1", **whose).one(Connack).reason == 0  # it has a session
    world.restart()
    assert connect(world, "c3", **whose).one(Connack).reason == QUOTA  # they are remembered

    copy = BrokerCore(world.settings)
    decode_state(copy, encode_state(world.broker))
    assert vars(copy.routes.quotas) == vars(world.broker.routes.quotas)
    world.broker.end_session(next(key for key in world.broker.sessions.by_key if "c2" in key), world.now)
    assert connect(world, "c3", **whose).one(Connack).reason == 0


def test_a_session_that_moves_is_counted_where_it_is(make_world: Any) -> None:
    world = make_world({}, address_sessions_max=1)
    connect(world, "c1", peer="10.0.0.1:5").drop()
    assert connect(world, "c2", peer="10.0.0.1:6").one(Connack).reason == QUOTA
    connect(world, "c1", peer="[2001:db8::1]:5")
    assert connect(world, "c2", peer="10.0.0.1:6").one(Connack).reason == 0
    assert connect(world, "c3", peer="[2001:db8::2]:6").one(Connack).reason == QUOTA  # the same network


@pytest.mark.parametrize("limit", ["user_subscriptions", "address_subscriptions"])
def test_subscriptions_are_limited_by_user_and_by_address(make_world: Any, limit: str) -> None:
    world = make_world({}, **{f"{limit}_max": 3})
    one = connect(world, "c1", "u", "10.0.0.1:5")
    two = connect(world, "c2", "u", "10.0.0.1:6")
    for name in ("a", "b"):
        one.subscribe(name)
    two.subscribe("a")
    assert two.subscribe("b", check=False).reasons == (QUOTA,)
    assert two.subscribe("a").reasons == (0,)  # it has it
    assert world.broker.counters.limited == {limit: 1}
    one.unsubscribe("a")
    two.subscribe("b")


def test_retained_messages_are_limited_by_count_and_size_of_all_and_of_a_client(make_world: Any) -> None:
    world = make_world(
        {}, retained_max=5, retained_bytes_max=1_000, client_retained_max=3, client_retained_bytes_max=600
    )
    ann, bob = world.client("ann").online(), world.client("bob").online()

    def keep(client: Any, topic: str, size: int = 1) -> ReasonCode:
        packet = Publish(topic, b"x" * size, 1, True, packet_id=client.next_id())
        return client.ask(packet, Puback).reason  # type: ignore[no-any-return]

    kept = ReasonCode.NO_MATCHING_SUBSCRIBERS
    assert [keep(ann, f"a/{n}") for n in range(4)] == [kept] * 3 + [QUOTA]
    assert keep(ann, "a/1", 700) == QUOTA
    assert keep(ann, "a/1", 500) == kept
    assert keep(bob, "b/1", 550) == QUOTA  # all together would be too much
    assert keep(bob, "b/1") == kept
    assert keep(bob, "b/2") == kept
    assert keep(bob, "b/3") == QUOTA
    assert world.broker.counters.limited == {
        "client_retained": 1,
        "client_retained_size": 1,
        "retained_size": 1,
        "retained": 1,
    }
    ann.publish("a/1", b"", retain=True)
    assert keep(bob, "b/3") == kept
    assert keep(bob, "a/2") == QUOTA  # it would take over a fourth one
    copy = BrokerCore(world.settings)
    decode_state(copy, encode_state(world.broker))
    assert (copy.retained.bytes, copy.retained._counts) == (world.broker.retained.bytes, world.broker.retained._counts)


def test_limits_are_far_from_ordinary_use() -> None:
    """Ten thousand devices may be behind one address, and be one user."""
    settings = BrokerSettings()
    assert min(settings.user_sessions_max, settings.address_sessions_max) >= 10 * 10_000
    assert min(settings.user_subscriptions_max, settings.address_subscriptions_max) >= 10 * 10_000


SIZE = 4_000 + 2 + 1
"""The size of a message of 4,000 bytes to the topic t."""


def session_of(world: Any, name: str) -> Any:
    """Returns the session with a client identifier, whoever its user is."""
    [session] = world.broker.sessions.named(name)
    return session


@pytest.mark.parametrize(("limit", "whose"), [("user_queue", {"user": "u"}), ("address_queue", {"peer": "10.0.0.1:5"})])
def test_queued_bytes_are_limited_by_user_or_by_address(make_world: Any, limit: str, whose: dict[str, str]) -> None:
    """Slow readers and sessions that are away held 64 MiB each, and identifiers are free."""
    world = make_world({}, **{f"{limit}_bytes_max": 20 * SIZE})
    clients = [connect(world, name, **whose) for name in ("c1", "c2", "c3")]
    for client in clients:
        client.subscribe("t", qos=1)
    clients[0].drop()  # the others are connected, and acknowledge nothing
    other = connect(world, "other", user="v", peer="10.0.0.2:5")
    other.subscribe("t", qos=1)
    publisher = world.client("publisher").online()
    for _ in range(10):
        publisher.publish("t", b"x" * 4_000, 1)
    held = {name: session_of(world, name) for name in ("c1", "c2", "c3", "other")}
    assert sum(held[name].bytes_queued for name in ("c1", "c2", "c3")) == 20 * SIZE
    assert [held[name].accounts.dropped.get("quota-full", 0) for name in held] == [3, 3, 4, 0]
    assert world.broker.counters.limited == {f"{limit}_size": 10}
    assert held["other"].queued == 10  # nobody else is concerned

    copy = BrokerCore(world.settings)
    decode_state(copy, encode_state(world.broker))
    assert vars(copy.routes.quotas) == vars(world.broker.routes.quotas)
    world.restart()  # what was in flight is recomputed, and still there
    assert session_of(world, "c1").quota.bytes_queued == 20 * SIZE
    publisher.online().publish("t", b"x" * 4_000, 1)
    assert world.broker.counters.limited == {f"{limit}_size": 3}
    world.broker.end_session(session_of(world, "c2").key, world.now)
    publisher.publish("t", b"x" * 4_000, 1)
    assert world.broker.counters.limited == {f"{limit}_size": 3}  # there is room again


def test_a_session_with_a_short_queue_has_room_in_a_full_quota(make_world: Any) -> None:
    world = make_world({}, user_queue_bytes_max=10 * SIZE)
    connect(world, "slow", user="u").subscribe("t", qos=1)
    fast = connect(world, "fast", user="u")
    fast.one(Connack)
    fast.subscribe("t/fast", qos=1)
    publisher = world.client("publisher").online()
    for _ in range(11):
        publisher.publish("t", b"x" * 4_000, 1)
    assert world.broker.counters.limited == {"user_queue_size": 1}
    for _ in range(100):
        publisher.publish("t/fast", b"x" * 4_000, 1)
        assert len(fast.messages()) == 1
    assert (session_of(world, "fast").accounts.delivered, session_of(world, "fast").accounts.dropped_total) == (100, 0)
    publisher.publish("t/fast", b"x" * 40_000, 1)  # more than its share
    assert session_of(world, "fast").accounts.dropped == {"quota-full": 1}


@pytest.mark.parametrize("overflow", ["drop-old", "expire-first", "reject", "drop-new"])
def test_beyond_the_budget_the_overflow_rule_of_the_session_applies(make_world: Any, overflow: str) -> None:
    world = make_world({}, user_queue_bytes_max=6 * SIZE, overflow=overflow)
    away = connect(world, "away", user="u")
    away.subscribe("t", qos=1)
    away.drop()
    publisher = world.client("publisher").online()
    reasons = []
    for number in range(8):
        packet = Publish("t", bytes((number,)) * 4_000, 1, False, packet_id=publisher.next_id())
        reasons.append(publisher.ask(packet, Puback).reason)
    kept = [delivery.message.payload[0] for delivery in session_of(world, "away").waiting]
    assert kept == ([2, 3, 4, 5, 6, 7] if overflow == "drop-old" else [0, 1, 2, 3, 4, 5])
    assert session_of(world, "away").accounts.dropped == {"quota-full": 2}
    assert reasons[-1] == (QUOTA if overflow == "reject" else 0)


def test_the_budget_of_queued_bytes_changes_while_the_broker_runs(make_world: Any) -> None:
    world = make_world({}, user_queue_bytes_max=10 * SIZE)
    connect(world, "slow", user="u").subscribe("t", qos=1)
    publisher = world.client("publisher").online()
    for _ in range(12):
        publisher.publish("t", b"x" * 4_000, 1)
    settings = replace(world.settings, user_queue_bytes_max=11 * SIZE)
    world.broker.configure(settings, LimitTable(Limits.of(settings)), world.now)
    for _ in range(2):
        publisher.publish("t", b"x" * 4_000, 1)
    assert session_of(world, "slow").queued == 11
    assert [line for line in world.broker.counters.notices if "queues of all sessions of u hold" in line]
