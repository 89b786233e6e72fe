"""The records of the durable state: the bytes that stores have, and every kind read back."""

from __future__ import annotations

import json
import math
from pathlib import Path

from surecast.protocol.broker.message import Delivery, Message, text_field
from surecast.protocol.broker.period_monitor import PeriodMonitor, Prior
from surecast.protocol.broker.response_target import Decision, ResponseTarget
from surecast.protocol.broker.session import Session, SessionWill, Subscription
from surecast.protocol.broker.state_journal import Journal
from surecast.protocol.broker.state_records import read_session, session_record
from surecast.protocol.broker.target_state import TargetState
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
    session.monitor = PeriodMonitor()
    session.monitor.connected(1700000000.0, 3)
    session.target = TargetState(
        ResponseTarget(7.0, 0.9, 0.5, "expiry", True), decision=Decision("expiry", success=0.5)
    )
    session.target.basis = session.monitor.estimates(1700000010.0, Prior())
    session.target.results.delivered(2.5, 7.0, 0.9)
    session.target.connection, session.target.packet = 5, b"packet"
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


def test_what_was_seen_of_a_client_and_its_target_are_read_back() -> None:
    key, value = next(record for record in journal_of_everything().records if record[0][:1] == b"s")
    assert value is not None
    session = read_session(key, value)
    assert session.monitor == PeriodMonitor(is_connected=True, changed_at=1700000000.0, matched_before=3)
    assert session.target is not None
    assert session.target.target == ResponseTarget(7.0, 0.9, 0.5, "expiry", True)
    assert session.target.basis == session.monitor.estimates(1700000010.0, Prior())
    assert session.target.results.delivered_count == 1
    assert session_record(session) == (key, value)
