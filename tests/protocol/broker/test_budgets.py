"""Budgets of one client, one user and one address, and what they are told when they want more."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from surecast.protocol.broker import Broker, BrokerSettings
from surecast.protocol.broker.accounts import shape_of
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
    assert world.broker.tally.limited["filter_shapes"] == 1024 - 129
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
    assert world.broker.tally.limited == {limit: 2}
    assert connect(world, "c5", user="other", peer="10.0.0.2:5").one(Connack).reason == 0
    assert connect(world, "c1", **whose).one(Connack).reason == 0  # it has a session
    world.restart()
    assert connect(world, "c3", **whose).one(Connack).reason == QUOTA  # they are remembered

    copy = Broker(world.settings)
    decode_state(copy, encode_state(world.broker))
    assert vars(copy.routes.accounts) == vars(world.broker.routes.accounts)
    world.broker.end_session(next(key for key in world.broker.sessions.by_client if "c2" in key), world.now)
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
    assert world.broker.tally.limited == {limit: 1}
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
    assert world.broker.tally.limited == {
        "client_retained": 1,
        "client_retained_size": 1,
        "retained_size": 1,
        "retained": 1,
    }
    ann.publish("a/1", b"", retain=True)
    assert keep(bob, "b/3") == kept
    assert keep(bob, "a/2") == QUOTA  # it would take over a fourth one
    copy = Broker(world.settings)
    decode_state(copy, encode_state(world.broker))
    assert (copy.retained.bytes, copy.retained._counts) == (world.broker.retained.bytes, world.broker.retained._counts)


def test_limits_are_far_from_ordinary_use() -> None:
    """Ten thousand devices may be behind one address, and be one user."""
    settings = BrokerSettings()
    assert min(settings.user_sessions_max, settings.address_sessions_max) >= 10 * 10_000
    assert min(settings.user_subscriptions_max, settings.address_subscriptions_max) >= 10 * 10_000
