"""Sessions belong to a user and a client identifier: two users with the same identifier are two clients."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.protocol.broker.conftest import Client, MakeWorld, World

from surecast.protocol.broker import BrokerCore
from surecast.protocol.broker.session import session_key, split_key
from surecast.protocol.broker.snapshot import decode_state, encode_state
from surecast.protocol.broker.state_journal import NoJournal
from surecast.protocol.group import GroupMachine
from surecast.protocol.group.commands import ENTRY, Entry, Item, pack
from surecast.protocol.mqtt import V5, V311, Connack, Connect, Properties, ReasonCode, Will, encode
from surecast.protocol.paxos import Context


def test_an_identifier_cannot_be_held_against_its_owner(world: World) -> None:
    world.client("till").lasting(identity="mallory").disconnect()
    till = world.client("till").lasting(identity="ann")
    till.subscribe("orders", 1)
    till.drop()
    mallory = world.client("till").connect(False, identity="mallory", session_expiry_s=9)
    assert mallory.one(Connack).session_present
    world.client("shop").online(identity="ann").publish("orders", b"42", 1)
    assert mallory.payloads() == []
    assert till.connect(False, identity="ann").payloads_after_connack() == [b"42"]


def test_a_session_of_nobody_is_not_taken_over_by_a_user_nor_the_other_way_round(world: World) -> None:
    open_one = world.client("till").lasting(will=Will("wills", b"open"))
    named = world.client("till").lasting(identity="ann")
    again = world.client("till").connect(False)
    assert not named.closed
    assert open_one.closed
    assert again.one(Connack).session_present


def test_wills_of_two_users_with_one_identifier_are_two(world: World, version: int) -> None:
    watcher = world.client("watcher").online()
    watcher.subscribe("wills/#")
    ann = world.client("x", version).online(identity="ann", will=Will("wills/ann", b"ann"))
    bob = world.client("x", version).online(identity="bob", will=Will("wills/bob", b"bob"))
    assert watcher.messages() == []
    ann.drop()
    assert watcher.payloads() == [b"ann"]
    bob.disconnect()
    assert watcher.messages() == []


def test_no_local_leaves_out_the_own_messages_and_not_those_of_a_namesake(world: World) -> None:
    ann = world.client("x").online(identity="ann")
    bob = world.client("x").online(identity="bob")
    ann.subscribe("t", no_local=True)
    bob.publish("t", b"of bob")
    ann.publish("t", b"of ann")
    assert ann.payloads() == [b"of bob"]


def test_an_administrator_ends_the_session_of_one_user(world: World) -> None:
    ann = world.client("x").lasting(identity="ann")
    bob = world.client("x").lasting(identity="bob")
    assert [(each.user, each.client) for each in world.broker.sessions.named("x")] == [("ann", "x"), ("bob", "x")]
    assert world.broker.end_session(bob_key := world.broker.sessions.named("x")[1].key, world.now)
    world.turn()
    assert split_key(bob_key) == ("bob", "x")
    assert bob.closed
    assert not ann.closed


def test_a_user_and_an_identifier_too_long_for_a_key_are_refused(world: World, version: int) -> None:
    client = world.client("c" * 65_000, version)
    assert client.connect(identity="u" * 534).one(Connack).reason == ReasonCode.SUCCESS
    assert client.connect(identity="u" * 535).one(Connack).reason == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID


NAMES = ("a", "b")
USERS = ("", "ann", "bob")
ACTIONS = ("connect", "connect", "last", "will", "drop", "leave", "subscribe", "publish", "publish", "restart", "later")


def act(world: World, clients: dict[tuple[str, str], Client], user: str, draw: random.Random) -> None:
    """One step of one user with one of the identifiers; each draws the same whatever the world is."""
    action, name, version, qos = draw.choice(ACTIONS), draw.choice(NAMES), draw.choice((V311, V5)), draw.randint(0, 2)
    payload, expiry_s = str(draw.randint(0, 99)).encode(), draw.choice((5, 0xFFFF_FFFF))
    client = clients.get((user, name))
    if action in ("connect", "last", "will"):
        client = clients[user, name] = Client(world, name, version)
        if action == "will":
            client.connect(False, identity=user, will=Will(f"{user}/t", b"will of " + payload, 1))
        elif action == "connect" or version == V311:
            client.connect(action == "connect", identity=user)
        else:
            client.connect(False, identity=user, session_expiry_s=expiry_s)
    elif client is not None and not client.closed:
        if action == "drop":
            client.drop()
        elif action == "leave":
            client.disconnect()
        elif action == "subscribe":
            client.subscribe(f"{user}/#", qos, check=False)
        elif action == "publish":
            client.publish(f"{user}/t", payload, qos)


def heard(world: World, users: tuple[str, ...], seed: int, steps: int) -> dict[str, list[bytes]]:
    """All that each user's clients were sent in turn, in a world that only some of the users share."""
    draws = {user: random.Random(f"{seed}/{user}") for user in USERS}
    time = random.Random(seed)
    clients: dict[tuple[str, str], Client] = {}
    everything: dict[str, list[bytes]] = {user: [] for user in users}
    for _ in range(steps):
        user, passed_s, restarts = time.choice(USERS), time.choice((0, 0, 0, 3)), time.random() < 0.05
        if passed_s:
            world.wait(passed_s)
        if restarts:
            world.restart()
        if user in users:
            act(world, clients, user, draws[user])
        for (owner, _), client in sorted(clients.items()):
            everything[owner].append(client.raw)
            client.raw = b""
    return everything


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_users_with_the_same_identifiers_are_as_at_brokers_of_their_own(seed: int) -> None:
    together = heard(World(), USERS, seed, 80)
    for user in USERS:
        assert heard(World(), (user,), seed, 80)[user] == together[user], user


def test_a_snapshot_keeps_namesakes_apart(make_world: MakeWorld) -> None:
    world = make_world()
    for user in USERS:
        client = world.client("x").lasting(identity=user, will=Will("wills", b"1"))
        client.subscribe(f"{user}/#", 1)
        client.disconnect(ReasonCode.DISCONNECT_WITH_WILL_MESSAGE, session_expiry_s=60)
    copy = BrokerCore()
    decode_state(copy, encode_state(world.broker))
    assert encode_state(copy) == encode_state(world.broker)
    assert [(s.user, s.client) for s in copy.sessions.by_key.values()] == [(user, "x") for user in USERS]
    copy.tick(world.now + 61)
    assert copy.sessions.by_key == {}


def test_a_group_kicks_and_restores_the_client_of_one_user() -> None:
    """Commands name a session by its key, so that namesakes at any replica are told apart."""
    machine = GroupMachine(9, lambda authorise: BrokerCore(authorise=authorise, journal=NoJournal(), watches=False))
    connect = encode(Connect("x", properties=Properties(session_expiry_s=60), version=V5), V5)
    items: list[tuple[int, int, bytes, None]] = [
        (Item.ENTER, number, ENTRY.encode(Entry("mqtt", "peer", user, connect)), None)
        for number, user in enumerate(USERS, 1)
    ]
    items.append((Item.KICK, 0, session_key("ann", "x").encode(), None))
    items.append((Item.KICK, 1, session_key("bob", "x").encode(), None))
    command = b"".join(pack(1, 1, 1, items)[0])
    machine.execute(command, Context(1, 1_000_000))
    copy = GroupMachine(8, lambda authorise: BrokerCore(authorise=authorise, journal=NoJournal(), watches=False))
    copy.restore(machine.snapshot())
    for each in (machine, copy):
        sessions = each.broker.sessions.by_key.values()
        assert [(s.user, s.connection is not None) for s in sessions] == [("", True), ("ann", False)]
