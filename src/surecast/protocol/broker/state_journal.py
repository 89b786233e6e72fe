"""The journal of changes of a broker's durable state, as records (`state_records.py`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from surecast.protocol.broker.message import Delivery, Message
from surecast.protocol.broker.session import Session, SessionWill, Subscription
from surecast.protocol.broker.state_records import (
    Record,
    message_key,
    message_record,
    message_records,
    queued_record,
    queued_records,
    received_key,
    request_value,
    retained_key,
    session_record,
    subscription_key,
    subscription_record,
    will_key,
    will_record,
)

__all__ = ["Journal", "NoJournal", "Record"]


class Journal:
    """Collects changes of the durable state, in order; the shell commits `records` before anything is sent."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def take(self) -> list[Record]:
        """The changes since the last call."""
        records, self.records = self.records, []
        return records

    def keep(self, message: Message) -> None:
        """One more durable reference to a message; the first writes it."""
        if message.references == 0:
            self.records.append(message_record(message))
        message.references += 1

    def keep_all(self, messages: Sequence[Message]) -> None:
        """One more durable reference to each of these messages."""
        self.records += message_records([message for message in messages if not message.references])
        for message in messages:
            message.references += 1

    def release(self, message: Message) -> None:
        """One durable reference less; the last deletes the message."""
        message.references -= 1
        if message.references == 0:
            self.records.append((message_key(message.number), None))

    def session(self, session: Session) -> None:
        """Writes a session as it is."""
        self.records.append(session_record(session))

    def forget_session(self, session: Session) -> None:
        """Deletes a session; its queue and its subscriptions are deleted one by one."""
        self.records.append((b"s" + session.key_field, None))

    def subscription(self, session: Session, subscription: Subscription) -> None:
        """Writes a subscription."""
        self.records.append(subscription_record(session, subscription))

    def forget_subscription(self, session: Session, subscription: Subscription) -> None:
        """Deletes a subscription."""
        self.records.append((subscription_key(session, subscription), None))

    def queued(self, session: Session, delivery: Delivery) -> None:
        """Writes a queue entry as it is."""
        self.records.append(queued_record(session, delivery))

    def queued_all(self, session: Session, deliveries: Iterable[Delivery]) -> None:
        """Writes queue entries as they are."""
        self.records += queued_records(session, deliveries)

    def forget_queued(self, session: Session, delivery: Delivery) -> None:
        """Deletes a queue entry and its reference to the message."""
        self.forget_queued_all(session, (delivery,))

    def forget_queued_all(self, session: Session, deliveries: Iterable[Delivery]) -> None:
        """Deletes queue entries and their references to messages."""
        prefix, add = b"q" + session.key_field, self.records.append
        for delivery in deliveries:
            add((prefix + delivery.sequence.to_bytes(8, "big"), None))
            message = delivery.message
            message.references -= 1
            if not message.references:
                add((b"m" + message.number.to_bytes(8, "big"), None))

    def received(self, session: Session, identifier: int) -> None:
        """Remembers the identifier of a QoS 2 message."""
        self.records.append((received_key(session, identifier), b""))

    def forget_received(self, session: Session, identifier: int) -> None:
        """Frees such an identifier."""
        self.records.append((received_key(session, identifier), None))

    def will(self, session: Session, will: SessionWill) -> None:
        """Writes a will as it is; whoever has it has a reference to its message."""
        self.records.append(will_record(session, will))

    def forget_will(self, session: Session, will: SessionWill) -> None:
        """Deletes a written will."""
        self.records.append((will_key(session), None))
        self.release(will.message)

    def retained(self, message: Message) -> None:
        """Writes that a message is the retained one of its topic."""
        self.keep(message)
        self.records.append((retained_key(message), message.number.to_bytes(8, "big")))

    def forget_retained(self, message: Message) -> None:
        """Deletes the retained message of a topic."""
        self.records.append((retained_key(message), None))
        self.release(message)

    def request(self, user_and_token: bytes, used_at: float, highest: int, outcomes: bytes) -> None:
        """Writes the outcomes of the last requests with a token."""
        self.records.append((b"i" + user_and_token, request_value(used_at, highest, outcomes)))

    def forget_request(self, user_and_token: bytes) -> None:
        """Deletes them."""
        self.records.append((b"i" + user_and_token, None))

    def others(self, records: Iterable[Record]) -> None:
        """Takes records of a part that is none of the core's."""
        self.records += records


class NoJournal(Journal):
    """For a broker whose state is kept by other means: nothing is written down."""

    def _ignore(self, *arguments: Any, **named: Any) -> None:
        pass

    keep = release = session = forget_session = received = forget_received = retained = forget_retained = _ignore
    request = forget_request = subscription = forget_subscription = queued = forget_queued = will = forget_will = (
        _ignore
    )
    others = _ignore
