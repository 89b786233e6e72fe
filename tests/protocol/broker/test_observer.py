"""What a broker tells an observer adds up to its accounts; and the timers keep one appointment for each thing."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from surecast.protocol.broker import BrokerCore, ConnectionHooks, Origin
from surecast.protocol.broker.timers import Timers
from surecast.protocol.mqtt import V5, V311, Connect, Disconnect, encode


class Witness:
    """Counts what it is told."""

    def __init__(self) -> None:
        self.seen: Counter[tuple[str, ...]] = Counter()
        self.receivers = 0

    def published(self, message: Any, receivers: int, now: float) -> None:
        self.seen["published", message.topic] += 1
        self.receivers += receivers

    def delivered(self, session: Any, message: Any, qos: int, now: float) -> None:
        self.seen["delivered", session.client, str(qos)] += 1

    def dropped(self, session: Any, message: Any, reason: str, now: float) -> None:
        self.seen["dropped", session.client, reason] += 1

    def connected(self, session: Any, now: float) -> None:
        self.seen["connected", session.client] += 1

    def disconnected(self, session: Any, reason: str, now: float) -> None:
        self.seen["disconnected", session.client, reason] += 1

    def subscribed(self, session: Any, subscription: Any, now: float) -> None:
        self.seen["subscribed", session.client, subscription.key] += 1

    def unsubscribed(self, session: Any, subscription: Any, reason: str, now: float) -> None:
        self.seen["unsubscribed", session.client, subscription.key, reason] += 1


def test_an_observer_sees_every_step(make_world: Any, version: int) -> None:
    witness = Witness()
    world = make_world({"observer": witness}, queue_messages_max=2)
    sub, pub = world.client("sub", version).lasting(), world.client("pub").online()
    sub.subscribe("a", 2)
    sub.subscribe("$share/g/b", 1)
    for qos in (0, 1, 2):
        pub.publish("a", b"1", qos)
        sub.messages()
    sub.drop()
    pub.publish("a", b"1", 0)
    for expiry in (5, 50, 50):
        pub.publish("a", b"1", 1, message_expiry_s=expiry)
    world.wait(6)
    sub.connect(False, **({} if version == 4 else {"session_expiry_s": 9}))
    sub.inbox.pop(0)
    sub.messages()
    sub.unsubscribe("a", "never")
    sub.disconnect()
    assert witness.seen == {
        ("connected", "sub"): 2,
        ("connected", "pub"): 1,
        ("subscribed", "sub", "a"): 1,
        ("subscribed", "sub", "$share/g/b"): 1,
        ("published", "a"): 7,
        ("delivered", "sub", "0"): 1,
        ("delivered", "sub", "1"): 2,
        ("delivered", "sub", "2"): 1,
        ("disconnected", "sub", "connection lost"): 1,
        ("disconnected", "sub", "disconnected"): 1,
        ("dropped", "sub", "offline-qos0"): 1,
        ("dropped", "sub", "queue-full"): 1,
        ("dropped", "sub", "expired"): 1,
        ("unsubscribed", "sub", "a", "client"): 1,
    }
    assert witness.receivers == 7
    accounts = world.broker.accounts()
    assert (accounts.matched, accounts.delivered, accounts.expired, accounts.dropped_total) == (7, 4, 1, 2)
    assert accounts.as_dict()["queued"] == 0


def test_an_observer_is_told_how_subscriptions_end(make_world: Any) -> None:
    witness = Witness()
    world = make_world({"observer": witness})
    sub = world.client("sub").lasting()
    sub.subscribe("a", 1)
    sub.subscribe("b", 1)
    sub.subscribe("$share/g/c", 1)
    session = world.broker.sessions.by_key["sub"]
    assert world.broker.remove_subscription(session, "$share/g/c", 1.0)
    assert not world.broker.remove_subscription(session, "$share/g/c", 1.0)
    sub.unsubscribe("a")
    world.broker.end_session("sub", 2.0)
    assert {what[2:]: count for what, count in witness.seen.items() if what[0] == "unsubscribed"} == {
        ("$share/g/c", "administrator"): 1,
        ("a", "client"): 1,
        ("b", "session"): 1,
    }


def test_receivers_are_counted_before_they_are_served(make_world: Any) -> None:
    """Two members of a share are one receiver, in turn; a content filter and no-local leave sessions out."""
    witness = Witness()
    world = make_world({"observer": witness})
    members = [world.client(name).online() for name in ("one", "two")]
    for member in members:
        member.subscribe("$share/g/t", 0)
    world.client("all").online().subscribe("#", 0)
    pub = world.client("pub").online()
    pub.subscribe("t", 0, no_local=True)
    for _ in range(4):
        pub.publish("t", b"x", 0)
    assert witness.receivers == 8
    assert [witness.seen["delivered", name, "0"] for name in ("one", "two", "all", "pub")] == [2, 2, 4, 0]


def test_hooks_are_told_of_connections_alone() -> None:
    told: list[tuple[str, ...]] = []
    hooks = ConnectionHooks(
        lambda connection: told.append(("accepted", connection.name)),
        lambda connection, reason: told.append(("refused", reason)),
        lambda connection, client, reason: told.append(("closed", client, reason)),
    )
    broker = BrokerCore(hooks=hooks)
    never, ann, again, nameless, wrong = (broker.open(Origin(), 0.0) for _ in range(5))
    broker.receive(ann, encode(Connect("ann"), V5), 0.0)
    broker.receive(again, encode(Connect("ann"), V5), 0.0)
    broker.receive(nameless, encode(Connect("", clean_start=False, version=V311), V311), 0.0)
    broker.receive(wrong, b"\0\0", 0.0)
    broker.receive(again, encode(Disconnect(), V5), 0.0)
    broker.lost(again, 1.0)
    broker.lost(never, 1.0)
    assert told == [
        ("accepted", "ann"),
        ("closed", "ann", "session taken over"),
        ("accepted", "ann"),
        ("refused", "a lasting session needs an identifier"),
        ("closed", "", "packet of type 0, byte 0: this type is forbidden"),
        ("closed", "ann", "disconnected"),
        ("closed", "", "connection lost"),
    ]


def test_timers_against_a_list() -> None:
    """A dictionary of the earliest appointment of each thing says the same."""
    rng = random.Random(1)
    timers, planned, now = Timers(), dict[tuple[str, str | int], float](), 0.0
    for _ in range(20_000):
        kind, key = rng.choice("ab"), rng.randrange(40)
        what = rng.random()
        if what < 0.6:
            at = now + rng.randrange(100)
            timers.add(at, kind, key)
            planned[kind, key] = min(at, planned.get((kind, key), at))
        elif what < 0.8:
            timers.cancel(kind, key)
            planned.pop((kind, key), None)
        else:
            now += rng.randrange(4)
            due = timers.due(now)
            assert [planned[one] for one in due] == sorted(planned[one] for one in due)
            assert set(due) == {one for one, at in planned.items() if at <= now}
            for one in due:
                del planned[one]
        assert len(timers) == len(planned)
        assert len(timers._heap) <= 1_001 + 2 * 80
