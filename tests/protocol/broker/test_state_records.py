"""The records of the durable state: the bytes that stores have, and every kind read back."""

from __future__ import annotations

import json
import math
from pathlib import Path

from surecast.protocol.broker.message import Delivery, Message, text_field
from surecast.protocol.broker.session import Session, SessionWill, Subscription
from surecast.protocol.broker.state_journal import Journal
from surecast.protocol.filters import parse

GOLDEN = Path(__file__).parent / "golden" / "state-records.json"


def journal_of_everything() -> Journal:
    """A journal with each kind of record, and what deletes them."""
    journal = Journal()
    session = Session("till-7", 3, 60.0, "ann")
    session.ends_at, session.next_identifier, session.listener, session.address = 1700000060.5, 77, "web", "10.0.0.7"
    plain = Session("bob", 4, math.inf)
    message = Message(
        12,
        "a/ü",
        text_field("a/ü"),
        b"\0payload",
        2,
        True,
        b"\x26\0\1k\0\1v",
        1700000100.0,
        1700000000.25,
        "ann\0till-7",
    )
    other = Message(13, "b", text_field("b"), b"", 1, False, b"", math.inf, 1.5, "", 99.0)
    subscriptions = (
        Subscription("a/#", 2, True, False, 268_435_455, "", parse("price > 3"), "price > 3"),
        Subscription("b", 1, False, True, 0, "group"),
    )
    for each in (session, plain):
        journal.session(each)
        for subscription in subscriptions:
            journal.subscription(each, subscription)
    sent = Delivery(message, 2, True, (3, 4), 5)
    sent.identifier, sent.released, sent.share = 77, True, "$share/group/b"
    for delivery in (sent, Delivery(other, 1, False, (), 1 << 40)):
        journal.keep(delivery.message)
        journal.queued(session, delivery)
    journal.received(session, 65_535)
    will = SessionWill(message, 30, 15.0, 1700000200.0, 16.0)
    journal.keep(message)
    journal.will(session, will)
    journal.retained(message)
    journal.request(text_field("ann") + text_field("t"), 1700000001.0, 70, bytes(range(64)))
    journal.forget_request(text_field("ann") + text_field("t"))
    journal.forget_retained(message)
    journal.forget_will(session, will)
    journal.forget_received(session, 65_535)
    journal.forget_queued(session, sent)
    journal.forget_subscription(session, subscriptions[1])
    journal.forget_session(session)
    return journal


def test_the_bytes_of_every_record_are_those_that_stores_have() -> None:
    written = [[key.hex(), None if value is None else value.hex()] for key, value in journal_of_everything().records]
    assert {bytes.fromhex(key)[:1] for key, _ in written} == {bytes((kind,)) for kind in b"msfqpwri"}
    assert written == json.loads(GOLDEN.read_text(encoding="utf-8"))
