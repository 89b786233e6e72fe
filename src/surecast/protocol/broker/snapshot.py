"""The complete state of a broker as records, so that another can go on where it stands.

A replica that was away gets the state of the others in this form. It is the records that the journal would write for
the present state, and those of a broker that runs (`state_records.py`), in a fixed order: equal states give equal
bytes. What a broker can find again by itself is left out: the routes of topics, and other caches. What it has done and
somebody else has to see to is no state either: bytes to send, records for the disk, lines for a log.

The bytes are a head and then rows of records, as in the store, each with its length and check sum; an empty one, with
the check sum of all of these, ends them. They are made in pieces: whoever takes them one by one must see that the
broker does not change meanwhile.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from zlib_ng.zlib_ng import crc32

from surecast.errors import PeerError, SurecastError
from surecast.protocol.broker.connection_record import write_connection
from surecast.protocol.broker.limits import Limits
from surecast.protocol.broker.message import Delivery, Message, text_field
from surecast.protocol.broker.restore import COUNTED, Restorer
from surecast.protocol.broker.routes import Share
from surecast.protocol.broker.session import Session
from surecast.protocol.broker.state_records import (
    APPOINTMENT,
    BROKER,
    FILED,
    LIMITS,
    RUNNING_SESSION,
    Appointment,
    BrokerRow,
    Filed,
    RunningSession,
    message_record,
    queued_record,
    received_key,
    request_value,
    retained_key,
    session_record,
    subscription_record,
    will_record,
)
from surecast.protocol.rows import pack, unpack

if TYPE_CHECKING:
    from surecast.protocol.broker.core import BrokerCore

__all__ = ["SNAPSHOT_VERSION", "decode_state", "encode_state", "pieces_of", "records_of"]

SNAPSHOT_VERSION: Final = 5
"""Changes with every change of the format: an older broker must not take what it would misread."""

_MAGIC: Final = b"surecast broker\0"
_HEAD: Final = struct.Struct(">16sH")
_ROW: Final = struct.Struct(">II")
_OF_OTHERS: Final = b"o"
_ROW_RECORDS: Final = 256
_ROW_BYTES: Final = 256 << 10

Pair = tuple[bytes, bytes]


def encode_state(broker: BrokerCore) -> bytes:
    """The whole state of a broker. It must have been given whole packets only: a half one raises ValueError.

    >>> from surecast.protocol.broker import BrokerCore, Origin
    >>> from surecast.protocol.mqtt import V5, Connect, encode
    >>> one, other = BrokerCore(), BrokerCore()
    >>> one.receive(one.open(Origin(), 0.0), encode(Connect("ann"), V5), 0.0)
    >>> decode_state(other, encode_state(one))
    []
    >>> list(other.sessions.by_key), encode_state(other) == encode_state(one)
    (['ann'], True)
    """
    return b"".join(pieces_of(records_of(broker)))


def decode_state(broker: BrokerCore, data: bytes) -> list[Pair]:
    """Gives a new broker the state that `encode_state` wrote; both must have the same settings.

    Returns the records that are none of the broker's. Bytes that are no such state raise PeerError; the broker is then
    of no use any more.

    >>> from surecast.protocol.broker import BrokerCore
    >>> decode_state(BrokerCore(), b"something else entirely")
    Traceback (most recent call last):
        ...
    surecast.errors.PeerError: broker snapshot: it does not begin like one
    """
    if broker.next_connection or broker.sessions.serial or len(broker.retained):
        raise ValueError("a snapshot can be given to a new broker only, and this one has a state already")
    others: list[Pair] = []
    try:
        Restorer(broker).run_on(_own(_pairs(data), others))
    except (SurecastError, struct.error, LookupError, ValueError, OverflowError) as error:
        raise PeerError(f"broker snapshot: {error}") from error
    return others


def _own(records: Iterable[Pair], others: list[Pair]) -> Iterator[Pair]:
    """Yields the records of a core, and puts those of others aside."""
    for record in records:
        if record[0].startswith(_OF_OTHERS):
            others.append(record)
        else:
            yield record


def pieces_of(records: Iterable[Pair]) -> Iterator[bytes]:
    """Yields the bytes of a snapshot: its head, rows of some hundred records, and the end."""
    yield _HEAD.pack(_MAGIC, SNAPSHOT_VERSION)
    whole = 0
    for row in _rows(records):
        data = pack(row)
        head = _ROW.pack(len(data), crc32(data))
        whole = crc32(head, whole)
        yield head + data
    yield _ROW.pack(0, whole)


def _rows(records: Iterable[Pair]) -> Iterator[dict[bytes, bytes]]:
    row: dict[bytes, bytes] = {}
    size = 0
    for key, value in records:
        row[key] = value
        size += len(value)
        if len(row) >= _ROW_RECORDS or size >= _ROW_BYTES:
            yield row
            row, size = {}, 0
    if row:
        yield row


def _pairs(data: bytes) -> Iterator[Pair]:
    """Yields the records of a snapshot; PeerError where something is wrong with its frame."""
    if len(data) < _HEAD.size or not data.startswith(_MAGIC):
        raise PeerError("it does not begin like one")
    _, version = _HEAD.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise PeerError(
            f"its format is version {version}, and this version of surecast reads {SNAPSHOT_VERSION}: "
            "run the version that wrote it until its queues are empty, and then begin a new group"
        )
    at, whole = _HEAD.size, 0
    while True:
        if at + _ROW.size > len(data):
            raise PeerError(f"it is damaged: it ends at byte {len(data)}, before its last row")
        size, check = _ROW.unpack_from(data, at)
        at += _ROW.size
        if not size:
            break
        whole = crc32(data[at - _ROW.size : at], whole)
        row = data[at : at + size]
        if len(row) != size or crc32(row) != check:
            raise PeerError(f"it is damaged: the row at byte {at} does not have the check sum {check:08x}")
        at += size
        yield from unpack(row)[0]
    if check != whole:
        raise PeerError("it is damaged: some of its rows are missing, or not in their order")
    if at != len(data):
        raise PeerError(f"it is damaged: it goes on for {len(data) - at} bytes after its end")


def records_of(broker: BrokerCore) -> Iterator[Pair]:
    """Yields the records of the whole state, in an order that depends on nothing but the state."""
    return _Stream(broker).records()


class _Stream:
    """Writes each message and each kind of limits once, before the first that needs it."""

    def __init__(self, broker: BrokerCore):
        self._broker = broker
        self._messages: set[int] = set()
        self._limits: dict[Limits, int] = {}

    def records(self) -> Iterator[Pair]:
        broker = self._broker
        broker.routes.settle()
        yield b"B", BROKER.encode(self._row())
        for session in broker.sessions.by_key.values():
            yield from self._session(session)
        yield from self._retained()
        yield from self._filed()
        for connection in broker.connections.values():
            yield from self._limits_before(connection.limits)
            yield _key(b"C", connection.number), write_connection(connection, self._limits[connection.limits])
        for at, number, kind, key, is_planned in broker.timers.entries():
            appointment = Appointment(at, kind, str(key), isinstance(key, int), is_planned)
            yield _key(b"T", number), APPOINTMENT.encode(appointment)
        for user, token, entry in broker.requests.items():
            owner = text_field(user) + text_field(token)
            yield (
                (b"i" if entry.is_durable else b"U") + owner,
                request_value(entry.used_at, entry.highest, bytes(entry.outcomes)),
            )

    def _row(self) -> BrokerRow:
        broker = self._broker
        return BrokerRow(
            broker.next_connection,
            broker.identifiers_given,
            broker.incoming.next_number,
            broker.sessions.serial,
            broker.timers.count,
            broker.started_at,
            broker.retained.expiry_check_at,
            tuple(getattr(broker.counters, name) for name in COUNTED),
            broker.sessions.past,
            tuple(each.number for each in broker.checking if each.number in broker.connections),
        )

    def _limits_before(self, limits: Limits) -> Iterator[Pair]:
        if limits not in self._limits:
            number = self._limits[limits] = len(self._limits)
            yield _key(b"L", number), LIMITS.encode(limits)

    def _message_before(self, message: Message) -> Iterator[Pair]:
        if message.number not in self._messages:
            self._messages.add(message.number)
            yield message_record(message)

    def _session(self, session: Session) -> Iterator[Pair]:
        yield from self._limits_before(session.limits)
        yield session_record(session)
        connection = 0 if session.connection is None else session.connection.number
        sent_once = [(number, each.message.size) for number, each in session.inflight.items() if not each.identifier]
        yield (
            b"A" + session.key_field,
            RUNNING_SESSION.encode(
                RunningSession(
                    session,
                    self._limits[session.limits],
                    connection,
                    tuple(number for number, _ in sent_once),
                    tuple(size for _, size in sent_once),
                    tuple(delivery.identifier for delivery in session.resend),
                )
            ),
        )
        for subscription in session.subscriptions.values():
            yield subscription_record(session, subscription)
        for identifier in sorted(session.received):
            yield received_key(session, identifier), b""
        yield from self._queue(session, [each for each in session.inflight.values() if each.identifier])
        yield from self._queue(session, session.waiting)
        if session.will is not None:
            yield from self._message_before(session.will.message)
            yield will_record(session, session.will)

    def _queue(self, session: Session, deliveries: Iterable[Delivery]) -> Iterator[Pair]:
        messages = self._messages
        for delivery in deliveries:
            message = delivery.message
            if message.number not in messages:
                messages.add(message.number)
                yield message_record(message)
            yield queued_record(session, delivery)

    def _retained(self) -> Iterator[Pair]:
        """Yields retained messages in the order of their tree, and then the order of their topics."""
        messages, topics = self._broker.retained.state()
        for message in messages:
            if message.topic.startswith("$"):
                yield b"V" + message.topic_field[2:], message_record(message)[1]
                continue
            yield from self._message_before(message)
            yield retained_key(message), message.number.to_bytes(8, "big")
        places = {message.topic: place for place, message in enumerate(messages)}
        for number, topic in enumerate(topics):
            yield _key(b"K", number), places[topic].to_bytes(4, "big")

    def _filed(self) -> Iterator[Pair]:
        """Yields who is filed under each filter, in order: it decides in which order sessions are given a message.

        Where there is one session there is no order.
        """
        entries = list(self._broker.routes.filed())
        number = 0
        for at, (topic_filter, value, name) in enumerate(entries):
            if isinstance(value, Share):
                filed = Filed(topic_filter, name, value.turn, tuple(member.serial for member in value.members))
            elif any(0 <= other < len(entries) and entries[other][0] == topic_filter for other in (at - 1, at + 1)):
                filed = Filed(topic_filter, "", 0, (value.serial,))
            else:
                continue
            yield _key(b"O", number), FILED.encode(filed)
            number += 1


def _key(kind: bytes, number: int) -> bytes:
    return kind + number.to_bytes(8, "big")
