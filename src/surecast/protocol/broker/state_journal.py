"""The broker's durable state as keys and values, and the journal of its changes.

    m NUMBER             a message
    s SESSION            a session, by its key (user and client identifier)
    f SESSION FILTER     a subscription of it
    q SESSION SEQUENCE   a message queued for it
    p SESSION IDENTIFIER a QoS 2 message that it sent and did not release
    w SESSION            the will of its client, connected or gone; of a session that ends with its connection too
    r TOPIC              a retained message
    i USER TOKEN         the outcomes of the last requests with a token

Numbers have eight bytes, texts two bytes of length in front. Times are seconds since the epoch.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final

from surecast.protocol.broker.message import Delivery, Message, text_field
from surecast.protocol.broker.session import Session, Subscription, Will, split_key
from surecast.protocol.filters import parse

__all__ = [
    "Journal",
    "NoJournal",
    "Record",
    "StoredDelivery",
    "read_message",
    "read_queued",
    "read_received",
    "read_request",
    "read_retained",
    "read_session",
    "read_subscription",
    "read_will",
]

Record = tuple[bytes, bytes | None]

_MESSAGE: Final = struct.Struct(">BBddd")
_SESSION: Final = struct.Struct(">ddH")
_QUEUED: Final = struct.Struct(">QBBBH")
_RETAIN, _SHARED = 1, 2
_FLAGS: Final = struct.Struct(">BBBI")
_WILL: Final = struct.Struct(">dIdd")
_REQUEST: Final = struct.Struct(">dQ")


def _take_text(data: bytes, at: int) -> tuple[str, int]:
    end = at + 2 + int.from_bytes(data[at : at + 2], "big")
    return data[at + 2 : end].decode(), end


class StoredDelivery:
    """A queue entry as it was read; its message may be read later."""

    __slots__ = ("delivery_flags", "identifier", "identifiers", "number", "sequence", "session", "share")

    def __init__(self, session: str, sequence: int, value: bytes):
        self.session = session
        self.sequence = sequence
        self.number, qos, flags, released, self.identifier = _QUEUED.unpack_from(value)
        self.delivery_flags = (qos, bool(flags & _RETAIN), bool(released))
        self.share, at = _take_text(value, _QUEUED.size) if flags & _SHARED else ("", _QUEUED.size)
        rest = value[at:]
        self.identifiers = tuple(int.from_bytes(rest[at : at + 4], "big") for at in range(0, len(rest), 4))


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
            value = _MESSAGE.pack(
                message.qos, message.retain, message.expires_at, message.published_at, message.interval_end
            )
            value += message.topic_field + text_field(message.publisher)
            value += len(message.properties).to_bytes(4, "big") + message.properties + message.payload
            self.records.append((b"m" + message.number.to_bytes(8, "big"), value))
        message.references += 1

    def release(self, message: Message) -> None:
        """One durable reference less; the last deletes the message."""
        message.references -= 1
        if message.references == 0:
            self.records.append((b"m" + message.number.to_bytes(8, "big"), None))

    def session(self, session: Session) -> None:
        """Writes a session as it is."""
        value = _SESSION.pack(session.lifetime_s, session.ends_at, session.next_identifier)
        value += text_field(session.user) + text_field(session.listener) + text_field(session.address)
        self.records.append((b"s" + session.key_field, value))

    def forget_session(self, session: Session) -> None:
        """Deletes a session; its queue and its subscriptions are deleted one by one."""
        self.records.append((b"s" + session.key_field, None))

    def subscription(self, session: Session, subscription: Subscription) -> None:
        """Writes a subscription."""
        flags = subscription.no_local | subscription.retain_as_published << 1
        value = _FLAGS.pack(subscription.qos, flags, 0, subscription.identifier)
        value += text_field(subscription.share) + text_field(subscription.filter) + subscription.content_text.encode()
        self.records.append((self._subscription_key(session, subscription), value))

    def forget_subscription(self, session: Session, subscription: Subscription) -> None:
        """Deletes a subscription."""
        self.records.append((self._subscription_key(session, subscription), None))

    def queued(self, session: Session, delivery: Delivery) -> None:
        """Writes a queue entry as it is."""
        flags = delivery.retain | _SHARED if delivery.share else delivery.retain
        value = _QUEUED.pack(delivery.message.number, delivery.qos, flags, delivery.released, delivery.identifier)
        if delivery.share:
            value += text_field(delivery.share)
        for identifier in delivery.identifiers:
            value += identifier.to_bytes(4, "big")
        self.records.append((b"q" + session.key_field + delivery.sequence.to_bytes(8, "big"), value))

    def forget_queued(self, session: Session, delivery: Delivery) -> None:
        """Deletes a queue entry and its reference to the message."""
        self.records.append((b"q" + session.key_field + delivery.sequence.to_bytes(8, "big"), None))
        self.release(delivery.message)

    def received(self, session: Session, identifier: int) -> None:
        """Remembers the identifier of a QoS 2 message."""
        self.records.append((b"p" + session.key_field + identifier.to_bytes(2, "big"), b""))

    def forget_received(self, session: Session, identifier: int) -> None:
        """Frees such an identifier."""
        self.records.append((b"p" + session.key_field + identifier.to_bytes(2, "big"), None))

    def will(self, session: Session, will: Will) -> None:
        """Writes a will as it is; whoever has it has a reference to its message."""
        value = will.message.number.to_bytes(8, "big") + _WILL.pack(
            will.due_at, will.delay_s, will.lifetime_s, will.interval_s
        )
        self.records.append((b"w" + session.key_field, value))

    def forget_will(self, session: Session, will: Will) -> None:
        """Deletes a written will."""
        self.records.append((b"w" + session.key_field, None))
        self.release(will.message)

    def retained(self, message: Message) -> None:
        """Writes that a message is the retained one of its topic."""
        self.keep(message)
        self.records.append((b"r" + message.topic_field[2:], message.number.to_bytes(8, "big")))

    def forget_retained(self, message: Message) -> None:
        """Deletes the retained message of a topic."""
        self.records.append((b"r" + message.topic_field[2:], None))
        self.release(message)

    def request(self, user_and_token: bytes, used_at: float, highest: int, outcomes: bytes) -> None:
        """Writes the outcomes of the last requests with a token."""
        self.records.append((b"i" + user_and_token, _REQUEST.pack(used_at, highest) + outcomes))

    def forget_request(self, user_and_token: bytes) -> None:
        """Deletes them."""
        self.records.append((b"i" + user_and_token, None))

    @staticmethod
    def _subscription_key(session: Session, subscription: Subscription) -> bytes:
        return b"f" + session.key_field + subscription.key.encode()


class NoJournal(Journal):
    """For a broker whose state is kept by other means: nothing is written down."""

    def _ignore(self, *arguments: Any, **named: Any) -> None:
        pass

    keep = release = session = forget_session = received = forget_received = retained = forget_retained = _ignore
    request = forget_request = subscription = forget_subscription = queued = forget_queued = will = forget_will = (
        _ignore
    )


def read_message(key: bytes, value: bytes) -> Message:
    """A message as it was written."""
    qos, retain, expires_at, published_at, interval_end = _MESSAGE.unpack_from(value)
    at = _MESSAGE.size
    topic, end = _take_text(value, at)
    topic_field = value[at:end]
    publisher, end = _take_text(value, end)
    size = int.from_bytes(value[end : end + 4], "big")
    properties, payload = value[end + 4 : end + 4 + size], value[end + 4 + size :]
    number = int.from_bytes(key[1:], "big")
    return Message(
        number,
        topic,
        topic_field,
        payload,
        qos,
        bool(retain),
        properties,
        expires_at,
        published_at,
        publisher,
        interval_end,
    )


def read_session(key: bytes, value: bytes, serial: int) -> Session:
    """A session as it was written, without its queue and its subscriptions."""
    name, _ = _take_text(key, 1)
    lifetime_s, ends_at, next_identifier = _SESSION.unpack_from(value)
    user, at = _take_text(value, _SESSION.size)
    # Earlier versions filed sessions of users by client identifier alone.
    session = Session(split_key(name)[1], serial, lifetime_s, user)
    session.ends_at, session.next_identifier = ends_at, next_identifier
    # Earlier versions did not write the listener, and later ones not the address.
    session.listener, at = _take_text(value, at)
    session.address, _ = _take_text(value, at)
    return session


def read_subscription(key: bytes, value: bytes) -> tuple[str, Subscription]:
    """The key of a session and one of its subscriptions."""
    name, _ = _take_text(key, 1)
    qos, flags, _, identifier = _FLAGS.unpack_from(value)
    share, at = _take_text(value, _FLAGS.size)
    topic_filter, at = _take_text(value, at)
    text = value[at:].decode()
    content = parse(text) if text else None
    return name, Subscription(topic_filter, qos, bool(flags & 1), bool(flags & 2), identifier, share, content, text)


def read_queued(key: bytes, value: bytes) -> StoredDelivery:
    """A queue entry as it was written."""
    name, at = _take_text(key, 1)
    return StoredDelivery(name, int.from_bytes(key[at:], "big"), value)


def read_received(key: bytes) -> tuple[str, int]:
    """The key of a session and the identifier of a QoS 2 message."""
    name, at = _take_text(key, 1)
    return name, int.from_bytes(key[at:], "big")


def read_will(key: bytes, value: bytes, messages: Mapping[int, Message]) -> tuple[str, Will]:
    """The key of a session and its will, whose message is one of those read before."""
    name, _ = _take_text(key, 1)
    due_at, delay_s, lifetime_s, interval_s = _WILL.unpack_from(value, 8)
    return name, Will(messages[int.from_bytes(value[:8], "big")], delay_s, lifetime_s, due_at, interval_s)


def read_request(key: bytes, value: bytes) -> tuple[str, str, float, int, bytes]:
    """A user, a token, when it was last used, its highest number, and the outcomes of the last requests."""
    user, at = _take_text(key, 1)
    token, _ = _take_text(key, at)
    used_at, highest = _REQUEST.unpack_from(value)
    return user, token, used_at, highest, value[_REQUEST.size :]


def read_retained(key: bytes, value: bytes) -> tuple[str, int]:
    """A topic and the number of its retained message."""
    return key[1:].decode(), int.from_bytes(value, "big")
