"""What a broker tells an observer adds up to its books; and the timers keep one appointment for each thing."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from surecast.protocol.broker.timers import Timers


class Witness:
    """Counts what it is told."""

    def __init__(self) -> None:
        self.seen: Counter[tuple[str, ...]] = Counter()

    def published(self, message: Any, now: float) -> None:
        self.seen["published", message.topic] += 1

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

    def unsubscribed(self, session: Any, subscription: Any, now: float) -> None:
        self.seen["unsubscribed", session.client, subscription.key] += 1


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
        ("unsubscribed", "sub", "a"): 1,
    }
    books = world.broker.books()
    assert (books.matched, books.delivered, books.expired, books.dropped_total) == (7, 4, 1, 2)
    assert books.as_dict()["queued"] == 0


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
