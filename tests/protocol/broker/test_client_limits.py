"""Limits of a listener and of clients: who gets which, what follows from them, and what a restart leaves of them."""

from __future__ import annotations

import itertools
from dataclasses import fields
from typing import Any

import pytest
from tests.protocol.broker.conftest import Client, MakeWorld, World

from surecast.errors import ConfigurationError
from surecast.protocol.broker import BrokerSettings, ClientRule, Limits, LimitTable, Overrides
from surecast.protocol.broker.limits import Pace
from surecast.protocol.mqtt import V5, Connack, Connect, Disconnect, Puback, Publish, ReasonCode, encode

NAMES = [each.name for each in fields(Overrides)]


def table(listeners: dict[str, Overrides], *rules: ClientRule, **settings: Any) -> LimitTable:
    return LimitTable(Limits.of(BrokerSettings(**settings)), listeners, rules)


def world_of(make_world: MakeWorld, limits: LimitTable) -> World:
    return make_world({"limits": limits})


def at(world: World, name: str, listener: str, version: int = V5) -> Client:
    client = world.client(name, version)
    client.listener = listener
    return client


def test_every_combination_of_layers_is_as_a_slow_search_says() -> None:
    values: dict[str, list[Any]] = {name: [11, 12, 13, 14] for name in NAMES}
    values["overflow"] = ["drop-new", "drop-old", "reject", "expire-first"]
    values["join_probability"] = [0.1, 0.2, 0.3, 0.4]
    rules = [
        ({"client": "s*"}, {name: values[name][2] for name in NAMES[::2]}),
        ({"user": "a*n"}, {name: values[name][3] for name in NAMES[::3]}),
        ({"client": "s*", "user": "bob"}, {name: values[name][0] for name in NAMES}),
    ]
    listener = {name: values[name][1] for name in NAMES[1:]}
    limits = table({"web": Overrides(**listener)}, *(ClientRule(Overrides(**given), **who) for who, given in rules))
    for place, user, client in itertools.product(("web", "other"), ("", "ann", "bob", "an"), ("s1", "t", "xs")):
        matching = [
            given
            for who, given in rules
            if ("client" not in who or client.startswith("s"))
            and ("user" not in who or user == who["user"] or (who["user"] == "a*n" and user in ("ann", "an")))
        ]
        found = limits.resolve(place, user, client)
        for name in NAMES:
            layers = [*matching, listener if place == "web" else {}]
            wanted = next((layer[name] for layer in layers if name in layer), getattr(BrokerSettings(), name))
            assert getattr(found, name) == wanted, (place, user, client, name)
        assert found is limits.resolve(place, user, client)
    assert limits.rejects
    assert not table({}).rejects


def test_a_pattern_has_no_special_characters_but_the_star() -> None:
    rule = ClientRule(Overrides(), client="a.[b]*?")
    assert rule.is_for("", "a.[b]xyz?")
    assert not rule.is_for("", "axb?")
    assert not ClientRule(Overrides(), user="*").is_for("", "anybody")


@pytest.mark.parametrize(
    "wrong",
    [
        {"queue_messages_max": 0},
        {"queue_bytes_max": -1},
        {"overflow": "explode"},
        {"inflight_max": 65_536},
        {"receive_maximum": True},
        {"publish_rate_per_s": -1.0},
        {"publish_rate_per_s": float("nan")},
        {"join_probability": 1.5},
        {"join_probability": float("nan")},
        {"join_threshold": -0.5},
        {"queue_lifetime_s": 0.0},
        {"queue_lifetime_s": float("nan")},
    ],
)
def test_limits_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    for kind in (Overrides, Limits, BrokerSettings):
        with pytest.raises(ConfigurationError, match=next(iter(wrong))):
            kind(**wrong)
    with pytest.raises(ConfigurationError, match="client identifier or of a user"):
        ClientRule(Overrides())


def test_the_queue_of_each_session_has_its_own_bound_and_rule(make_world: MakeWorld) -> None:
    limits = table(
        {"web": Overrides(queue_messages_max=3, overflow="drop-old")},
        ClientRule(Overrides(queue_messages_max=2), client="small*"),
    )
    world = world_of(make_world, limits)
    clients = [at(world, "plain", "tcp"), at(world, "page", "web"), at(world, "small-1", "web")]
    for client in clients:
        client.lasting()
        client.subscribe("t", 1)
        client.disconnect()
    ann = world.client("ann").online()
    for number in range(5):
        ann.publish("t", str(number).encode(), qos=1)
    for client, wanted in zip(clients, [b"01234", b"234", b"34"], strict=True):
        client.connect(False, session_expiry_s=0xFFFF_FFFF)
        client.inbox.pop(0)  # the CONNACK
        assert b"".join(client.payloads()) == wanted
    assert [client.session.accounts.dropped.get("queue-full", 0) for client in clients] == [0, 2, 3]


def test_a_message_is_refused_if_all_are_full_and_one_of_them_says_so(make_world: MakeWorld) -> None:
    limits = table(
        {}, ClientRule(Overrides(queue_messages_max=1, overflow="reject"), client="strict"), queue_messages_max=2
    )
    world = world_of(make_world, limits)
    for name in ("strict", "loose"):
        client = world.client(name).lasting()
        client.subscribe("both", 1)
        client.subscribe(name, 1)
        client.disconnect()
    ann = world.client("ann").online()

    def reason(topic: str) -> ReasonCode:
        ann.take()
        ann.publish(topic, qos=1)
        return ann.one(Puback).reason

    assert [reason("both") for _ in range(3)] == [0, 0, ReasonCode.QUOTA_EXCEEDED]
    assert reason("loose") == ReasonCode.SUCCESS  # dropped, and acknowledged
    assert reason("strict") == ReasonCode.QUOTA_EXCEEDED


def test_the_connack_says_what_holds_and_it_is_held_to(make_world: MakeWorld) -> None:
    limits = table(
        {"web": Overrides(receive_maximum=3, packet_bytes_max=200)},
        ClientRule(Overrides(packet_bytes_max=400), client="big"),
        packet_bytes_max=300,
    )
    world = world_of(make_world, limits)
    for name, listener, size, window in (("a", "tcp", 300, 1_000), ("b", "web", 200, 3), ("big", "web", 400, 3)):
        client = at(world, name, listener)
        client.connect()
        properties = client.one(Connack).properties
        assert (properties.maximum_packet_size, properties.receive_maximum) == (size, window)
        empty = len(encode(Publish("t", b"", packet_id=0), V5)) + 1  # the length needs a second byte
        client.publish("t", b"x" * (size - empty))
        assert client.ping()
        client.publish("t", b"x" * (size - empty + 1))
        assert client.one(Disconnect).reason == ReasonCode.PACKET_TOO_LARGE
        client.connect()
        client.take()
        for _ in range(window if window == 3 else 0):
            client.publish("t", qos=2)
        if window == 3:
            client.take()
            client.publish("t", qos=2)
            assert client.one(Disconnect).reason == ReasonCode.RECEIVE_MAXIMUM_EXCEEDED


def test_a_large_packet_behind_the_connect_waits_for_the_limit_of_its_client(make_world: MakeWorld) -> None:
    limits = table({}, ClientRule(Overrides(packet_bytes_max=50_000), client="big"), packet_bytes_max=300)
    world = world_of(make_world, limits)
    bob = world.client("bob").online()
    bob.subscribe("t")
    packet = encode(Publish("t", b"y" * 40_000), V5)
    big = world.client("big").open()
    big.send(encode(Connect("big", version=V5), V5) + packet[:10_000])
    big.send(packet[10_000:])
    assert [len(payload) for payload in bob.payloads()] == [40_000]
    small = world.client("small").open()
    small.send(encode(Connect("small", version=V5), V5) + packet[:10_000])
    small.take()
    small.send(packet[10_000:])
    assert small.one(Disconnect).reason == ReasonCode.PACKET_TOO_LARGE


def test_in_flight_and_subscriptions_are_bounded_by_client(make_world: MakeWorld) -> None:
    limits = table({"web": Overrides(inflight_max=2, subscriptions_max=1)})
    world = world_of(make_world, limits)
    bob = at(world, "bob", "web").online()
    bob.subscribe("t", 1)
    assert bob.subscribe("u", check=False).reasons == (ReasonCode.QUOTA_EXCEEDED,)
    ann = world.client("ann").online()
    for _ in range(5):
        ann.publish("t", qos=1)
    assert len(bob.messages(acknowledge=False)) == 2
    assert (len(bob.session.inflight), len(bob.session.waiting)) == (2, 3)


def test_a_restart_finds_the_limits_of_listener_user_and_client_again(make_world: MakeWorld) -> None:
    limits = table(
        {"web": Overrides(queue_messages_max=4, overflow="drop-old")},
        ClientRule(Overrides(queue_messages_max=2), user="bob"),
    )
    world = world_of(make_world, limits)
    for name, user in (("one", ""), ("two", "bob")):
        client = at(world, name, "web").lasting(identity=user)
        client.subscribe("t", 1)
        client.disconnect()
    world.restart()
    sessions = {session.client: session for session in world.broker.sessions.by_key.values()}
    assert [sessions[name].limits.queue_messages_max for name in ("one", "two")] == [4, 2]
    ann = world.client("ann").online()
    for number in range(6):
        ann.publish("t", str(number).encode(), qos=1)
    assert [sessions[name].queued for name in ("one", "two")] == [4, 2]
    # The listener is gone from the configuration: the broker's own limits hold.
    world.options["limits"] = table({}, queue_messages_max=9)
    world.restart()
    assert world.broker.sessions.by_key["one"].limits.queue_messages_max == 9


def test_new_limits_hold_for_sessions_that_are_there(make_world: MakeWorld) -> None:
    world = make_world(inflight_max=1)
    bob = world.client("bob").lasting()
    bob.subscribe("t", 1)
    carl = world.client("carl").lasting()
    carl.subscribe("t", 1)
    carl.disconnect()
    ann = world.client("ann").online()
    for _ in range(3):
        ann.publish("t", qos=1)
    assert len(bob.messages(acknowledge=False)) == 1
    settings = BrokerSettings(inflight_max=5, queue_messages_max=4, receive_maximum=7, topic_levels_max=3)
    world.broker.configure(settings, LimitTable(Limits.of(settings)), world.now)
    world.turn()
    assert len(bob.messages(acknowledge=False)) == 2
    assert world.broker.settings.topic_levels_max == BrokerSettings().topic_levels_max
    assert bob.connection is not None
    assert bob.connection.limits.receive_maximum == 1_000  # as it was told
    for _ in range(3):
        ann.publish("t", qos=1)
    assert carl.session.queued == 4
    assert world.client("dora").online().connection.limits.receive_maximum == 7  # type: ignore[union-attr]


def test_a_client_that_is_too_fast_is_held_back(make_world: MakeWorld) -> None:
    limits = table({"web": Overrides(publish_rate_per_s=10.0)})
    world = world_of(make_world, limits)
    bob = world.client("bob").online()
    bob.subscribe("t")
    ann = at(world, "ann", "web").online(keep_alive_s=1)
    assert ann.connection is not None
    assert ann.connection.pace is not None
    ann.send(*[Publish("t", b"x")] * 10)
    assert ann.connection.pace.hold_until == world.now
    ann.send(*[Publish("t", b"x")] * 40)
    assert ann.connection.pace.hold_until == world.now + 4.0
    assert len(bob.payloads()) == 50  # nothing is lost
    world.wait(5.0)
    assert not ann.closed  # its silence was not its own
    world.wait(1.0)
    assert ann.connection.is_closed()
    assert bob.connection is not None
    assert bob.connection.pace is None


def test_the_rate_of_a_patient_client_is_the_limit() -> None:
    pace, now, sent = Pace(50.0, 0.0), 0.0, 0
    while now < 100.0:
        pace.spend(7, now)
        sent += 7
        now = max(pace.hold_until, now)
    assert 50.0 * 100 <= sent <= 50.0 * 100 + 50 + 7


def test_a_session_that_is_away_gets_a_share_of_its_messages(make_world: MakeWorld) -> None:
    """Dropping, section 3: an event joins the queue with a probability; here the same events at every replica."""
    kept = []
    for _ in range(2):
        world = make_world(join_probability=0.3)
        sam = world.client("sam").lasting()
        sam.subscribe("t", 1)
        pat = world.client("pat").online()
        pat.publish("t", b"here", 1)
        assert sam.payloads() == [b"here"]
        sam.drop()
        for n in range(2_000):
            pat.publish("t", str(n).encode(), 1)
        session = world.broker.sessions.by_key["sam"]
        kept.append([delivery.message.payload for delivery in session.waiting])
        accounts = session.accounts
        assert accounts.dropped == {"not-joined": 2_000 - session.queued}
        assert accounts.matched == accounts.delivered + accounts.dropped_total + accounts.expired + accounts.queued
    assert kept[0] == kept[1]
    assert abs(len(kept[0]) / 2_000 - 0.3) < 4 * (0.3 * 0.7 / 2_000) ** 0.5


def test_nothing_joins_beyond_the_threshold_while_a_session_is_away(make_world: MakeWorld) -> None:
    """The optimal policy of the dropping model: a threshold, with chance at one level (docs/background/dropping.md)."""
    kept = []
    for _ in range(2):
        lengths = []
        for name in (f"sam-{number}" for number in range(400)):
            world = make_world(join_threshold=3.25)
            sam = world.client(name).lasting()
            sam.subscribe("t", 1)
            sam.drop()
            pat = world.client("pat").online()
            for n in range(5):
                pat.publish("t", str(n).encode(), 1)
            session = world.broker.sessions.by_key[name]
            lengths.append(session.queued)
            assert session.accounts.dropped == {"not-joined": 5 - session.queued}
        kept.append(lengths)
    assert kept[0] == kept[1]
    assert set(kept[0]) == {3, 4}
    # Each of the last two messages joins with probability 0.25, while there are three.
    assert abs(sum(length == 4 for length in kept[0]) / 400 - 0.4375) < 4 * (0.4375 * 0.5625 / 400) ** 0.5


def test_who_is_connected_gets_what_a_threshold_would_keep_out(make_world: MakeWorld) -> None:
    world = make_world(join_threshold=1.0, inflight_max=1)
    sam = world.client("sam").lasting()
    sam.subscribe("t", 1)
    pat = world.client("pat").online()
    for n in range(4):
        pat.publish("t", str(n).encode(), 1)
    assert world.broker.sessions.by_key["sam"].queued == 4
    assert sam.payloads() == [b"0", b"1", b"2", b"3"]


def test_messages_wait_for_a_session_as_long_as_its_lifetime(make_world: MakeWorld) -> None:
    limits = table({"web": Overrides(queue_lifetime_s=10.0)})
    world = world_of(make_world, limits)
    clients = [at(world, "page", "web").lasting(), at(world, "plain", "tcp").lasting()]
    for client in clients:
        client.subscribe("t", 1)
        client.drop()
    pat = world.client("pat").online()
    for n in range(3):
        pat.publish("t", str(n).encode(), 1)
        world.wait(4.0)
    page, plain = (world.broker.sessions.by_key[name] for name in ("page", "plain"))
    assert [delivery.message.payload for delivery in page.waiting] == [b"1", b"2"]
    assert (page.accounts.expired, plain.accounts.expired, plain.queued) == (1, 0, 3)
    world.now += 3.0
    clients[0].connect(False, session_expiry_s=0xFFFF_FFFF)
    assert clients[0].payloads_after_connack() == [b"2"]
    assert page.accounts.expired == 2
