"""Sessions, their queues and the messages in them, in a broker's snapshot.

A message is written once, however many queues it is in, and has a number here: its place in the list of messages,
counted from 1. A queue is written in columns: messages, flags, sequences, packet identifiers.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Collection
from typing import Final, TypeVar

from surecast.errors import PeerError
from surecast.protocol.broker.limits import Limits
from surecast.protocol.broker.message import Delivery, Message
from surecast.protocol.broker.session import Session, Subscription, Will
from surecast.protocol.broker.snapshot_wire import Reader, Writer, read_accounts, write_accounts
from surecast.protocol.filters import Filter, parse

__all__ = ["Numbers", "SessionReader", "read_messages", "write_messages", "write_session"]

T = TypeVar("T")

_MESSAGE: Final = struct.Struct(">QIBdddIIII")
_SESSION: Final = struct.Struct(">QdddQHHQIQB")
_SUBSCRIPTION: Final = struct.Struct(">BBI")
_WILL: Final = struct.Struct(">IIddd")
_WARNED, _HAS_WILL = 1, 2
_NO_LOCAL, _AS_PUBLISHED = 1, 2
_QOS, _RETAIN, _RELEASED, _IDENTIFIERS, _SHARED = 3, 4, 8, 16, 32
_HOLLOW: Final = Message(0, "", b"", b"")


class Numbers(dict[T, int]):
    """Gives each thing a number from 1, in the order in which they are first asked for."""

    def __missing__(self, thing: T) -> int:
        number = self[thing] = len(self) + 1
        return number


def write_messages(to: Writer, messages: Collection[Message]) -> None:
    """All messages, in the order of their numbers: first what is of fixed length, then the rest."""
    to.count(len(messages))
    pack = _MESSAGE.pack
    rest: list[bytes] = []
    for message in messages:
        publisher, properties, payload = message.publisher.encode(), message.properties, message.payload
        head = pack(
            message.number,
            message.references,
            message.qos | _RETAIN * message.retain,
            message.expires_at,
            message.published_at,
            message.interval_end,
            len(message.topic_field),
            len(publisher),
            len(properties),
            len(payload),
        )
        to.add(head)
        rest += (message.topic_field, publisher, properties, payload)
    to.column("Q", (sum(map(len, rest)),))
    to.parts += rest


def read_messages(of: Reader) -> list[Message]:
    """What `write_messages` wrote; the first one stands for no message. Messages to one topic share its text."""
    messages = [_HOLLOW]
    topics: dict[bytes, tuple[str, bytes]] = {}
    publishers: dict[bytes, str] = {}
    heads = of.take(of.count() * _MESSAGE.size)
    data, at = of.take(of.column("Q", 1)[0]), 0
    for number, references, flags, *times, size, publisher_size, properties_size, payload_size in _MESSAGE.iter_unpack(
        heads
    ):
        field, at = data[at : at + size], at + size
        publisher, at = data[at : at + publisher_size], at + publisher_size
        properties, at = data[at : at + properties_size], at + properties_size
        payload, at = data[at : at + payload_size], at + payload_size
        topic = topics.get(field)
        if topic is None:
            topic = topics[field] = (field[2:].decode(), field)
        client = publishers.get(publisher)
        if client is None:
            client = publishers[publisher] = publisher.decode()
        expires_at, published_at, interval_end = times
        qos, retain = flags & _QOS, flags & _RETAIN > 0
        message = Message(
            number, *topic, payload, qos, retain, properties, expires_at, published_at, client, interval_end
        )
        message.references = references
        messages.append(message)
    if at != len(data):
        raise PeerError(f"the messages have {len(data)} bytes, and should have {at}")
    return messages


def write_session(to: Writer, session: Session, messages: Numbers[Message], limits: Numbers[Limits]) -> None:
    """A session with all it has."""
    will = session.will
    to.texts(session.client, session.user, session.listener, session.address)
    to.pack(
        _SESSION,
        session.serial,
        session.lifetime_s,
        session.ends_at,
        session.expiry_check_at,
        session.bytes_queued,
        session.window,
        session.next_identifier,
        session.next_sequence,
        limits[session.limits],
        session.connection.number if session.connection is not None else 0,
        _WARNED * session.warned | _HAS_WILL * (will is not None),
    )
    write_accounts(to, session.accounts)
    if will is not None:
        to.pack(_WILL, messages[will.message], will.delay_s, will.lifetime_s, will.due_at, will.interval_s)
    to.count(len(session.subscriptions))
    for subscription in session.subscriptions.values():
        flags = _NO_LOCAL * subscription.no_local | _AS_PUBLISHED * subscription.retain_as_published
        to.pack(_SUBSCRIPTION, subscription.qos, flags, subscription.identifier)
        to.texts(subscription.share, subscription.filter, subscription.content_text)
    to.count(len(session.received))
    to.column("H", sorted(session.received))
    _write_inflight(to, session.inflight, messages)
    waiting = session.waiting
    _write_queue(to, [messages[delivery.message] for delivery in waiting], waiting)
    to.count(len(session.resend))
    to.column("H", [delivery.identifier for delivery in session.resend])


def _write_inflight(to: Writer, inflight: dict[int, Delivery], messages: Numbers[Message]) -> None:
    """What is in flight. An entry without an identifier of its own says no more than its size, and so has no message:
    entries of equal size are one object or several as it happens."""
    deliveries = inflight.values()
    _write_queue(to, [messages[d.message] if d.identifier else 0 for d in deliveries], deliveries)
    to.column("H", inflight.keys())
    sizes = [d.message.size for d in deliveries if not d.identifier]
    to.count(len(sizes))
    to.column("I", sizes)


def _write_queue(to: Writer, numbers: list[int], deliveries: Collection[Delivery]) -> None:
    to.count(len(numbers))
    if not numbers:
        return
    to.column("I", numbers)
    to.add(
        bytes(
            [
                d.qos
                | _RETAIN * d.retain
                | _RELEASED * d.released
                | (_IDENTIFIERS if d.identifiers else 0)
                | (_SHARED if d.share else 0)
                for d in deliveries
            ]
        )
    )
    to.column("Q", [d.sequence for d in deliveries])
    for delivery in deliveries:
        if delivery.identifiers:
            to.count(len(delivery.identifiers))
            to.column("I", delivery.identifiers)
        if delivery.share:
            to.texts(delivery.share)


class SessionReader:
    """Reads sessions; `messages` and `limits` are those that were read before, and have their numbers."""

    def __init__(self, of: Reader, messages: list[Message], limits: list[Limits], has_address: bool):
        self._of = of
        self._messages = messages
        self._limits = limits
        self._has_address = has_address
        self._filters: dict[str, Filter] = {}
        self._hollow: dict[int, Delivery] = {}

    def read(self) -> tuple[Session, int, dict[str, Subscription]]:
        """A session, the number of its connection, 0 if it has none, and its subscriptions, which are not filed yet."""
        of = self._of
        client, user, listener = of.text(), of.text(), of.text()
        address = of.text() if self._has_address else ""
        serial, lifetime_s, ends_at, check_at, size, window, identifier, sequence, limits, connection, flags = (
            of.unpack(_SESSION)
        )
        session = Session(client, serial, lifetime_s, user)
        session.listener, session.address = listener, address
        session.limit(self._limits[limits - 1], window)
        session.ends_at, session.expiry_check_at = ends_at, check_at
        session.bytes_queued = size
        session.next_identifier, session.next_sequence = identifier, sequence
        session.warned = bool(flags & _WARNED)
        session.accounts = read_accounts(of)
        if flags & _HAS_WILL:
            message, delay_s, will_lifetime_s, due_at, interval_s = of.unpack(_WILL)
            session.will = Will(self._messages[message], delay_s, will_lifetime_s, due_at, interval_s)
        made = [self._subscription() for _ in range(of.count())]
        session.received = set(of.column("H", of.count()))
        session.inflight = self._inflight()
        session.waiting = deque(self._queue()[1])
        session.resend = deque(session.inflight[identifier] for identifier in of.column("H", of.count()))
        return session, connection, {subscription.key: subscription for subscription in made}

    def _subscription(self) -> Subscription:
        of = self._of
        qos, flags, identifier = of.unpack(_SUBSCRIPTION)
        share, topic_filter, text = of.text(), of.text(), of.text()
        content = self._filters.get(text) if text else None
        if text and content is None:
            content = self._filters[text] = parse(text)
        no_local, as_published = bool(flags & _NO_LOCAL), bool(flags & _AS_PUBLISHED)
        return Subscription(topic_filter, qos, no_local, as_published, identifier, share, content, text)

    def _inflight(self) -> dict[int, Delivery]:
        of = self._of
        numbers, deliveries = self._queue()
        identifiers = of.column("H", len(deliveries))
        inflight = dict(zip(identifiers, deliveries, strict=True))
        sizes = iter(of.column("I", of.count()))
        for number, identifier, delivery in zip(numbers, identifiers, deliveries, strict=True):
            if number:
                delivery.identifier = identifier
            else:
                inflight[identifier] = self._hollow_entry(next(sizes))
        return inflight

    def _hollow_entry(self, size: int) -> Delivery:
        entry = self._hollow.get(size)
        if entry is None:
            entry = self._hollow[size] = Delivery(Message(0, "", b"", b""), 1, False, (), 0)
            entry.message.size = size
        return entry

    def _queue(self) -> tuple[tuple[int, ...], list[Delivery]]:
        """Entries of a queue, and the numbers of their messages."""
        of, messages = self._of, self._messages
        count = of.count()
        if not count:
            return (), []
        numbers = of.column("I", count)
        flags = of.take(count)
        sequences = of.column("Q", count)
        deliveries = [
            Delivery(messages[number], flag & _QOS, flag & _RETAIN > 0, (), sequence)
            for number, flag, sequence in zip(numbers, flags, sequences, strict=True)
        ]
        if flags and max(flags) > _RETAIN + _QOS:
            for flag, delivery in zip(flags, deliveries, strict=True):
                delivery.released = flag & _RELEASED > 0
                if flag & _IDENTIFIERS:
                    delivery.identifiers = of.column("I", of.count())
                if flag & _SHARED:
                    delivery.share = of.text()
        return numbers, deliveries
