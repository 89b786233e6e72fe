"""The complete state of a broker as bytes, so that another can go on where it stands.

A replica that was away gets the state of the others in this form. The format has a version; equal states give equal
bytes. What a broker can find again by itself is left out: the routes of topics, and other caches. What it has done and
somebody else has to see to is no state either: bytes to send, records for the disk, lines for a log.

    magic, version, check sum of the rest
    counters, counters, accounts of past sessions, limits
    messages, retained topics, sessions, filters with who is filed under them
    connections, appointments, outcomes of requests
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import fields
from typing import TYPE_CHECKING, Final

from surecast.errors import PeerError, SurecastError
from surecast.protocol.broker.limits import Limits
from surecast.protocol.broker.message import Message
from surecast.protocol.broker.observer import Counters
from surecast.protocol.broker.requests import WINDOW, TokenOutcomes
from surecast.protocol.broker.routes import Share
from surecast.protocol.broker.session import Session, Subscription
from surecast.protocol.broker.snapshot_connections import read_connection, write_connection
from surecast.protocol.broker.snapshot_sessions import (
    Numbers,
    SessionReader,
    read_messages,
    write_messages,
    write_session,
)
from surecast.protocol.broker.snapshot_wire import (
    Reader,
    Writer,
    read_accounts,
    read_limits,
    write_accounts,
    write_limits,
)

if TYPE_CHECKING:
    from surecast.protocol.broker.core import BrokerCore

__all__ = ["SNAPSHOT_VERSION", "decode_state", "encode_state"]

SNAPSHOT_VERSION: Final = 3
"""Changes with every change of the format: an older broker must not take what it would misread.

Version 2 did not know by which shared subscription a message came, and is read as it is.
"""

_BEFORE_USERS: Final = 1
"""The version in which appointments of sessions are named by client identifier alone, and sessions have no address; a \
backup may have it."""

_MAGIC: Final = b"surecast broker\0"
_HEAD: Final = struct.Struct(">16sHI")
_COUNTERS: Final = struct.Struct(">QQQQQdB")
_TALLIED: Final = tuple(each.name for each in fields(Counters) if each.type == "int")
_TIME: Final = struct.Struct(">d")
_TURN: Final = struct.Struct(">IB")
_TIMER: Final = struct.Struct(">dQB")
_REQUESTS: Final = struct.Struct(">QdB")
_PLANNED, _BY_NUMBER = 1, 2


def encode_state(broker: BrokerCore) -> bytes:
    """The whole state of a broker. It must have been given whole packets only: a half one raises ValueError.

    >>> from surecast.protocol.broker import BrokerCore, Origin
    >>> from surecast.protocol.mqtt import V5, Connect, encode
    >>> one, other = BrokerCore(), BrokerCore()
    >>> one.receive(one.open(Origin(), 0.0), encode(Connect("ann"), V5), 0.0)
    >>> decode_state(other, encode_state(one))
    >>> list(other.sessions.by_key), encode_state(other) == encode_state(one)
    (['ann'], True)
    """
    broker.routes.settle()
    messages: Numbers[Message] = Numbers()
    limits: Numbers[Limits] = Numbers()
    rest = Writer()
    _write_retained(rest, broker, messages)
    sessions = list(broker.sessions.by_key.values())
    rest.count(len(sessions))
    for session in sessions:
        write_session(rest, session, messages, limits)
    _write_filters(rest, broker, {session: place for place, session in enumerate(sessions)})
    rest.count(len(broker.connections))
    for connection in broker.connections.values():
        write_connection(rest, connection, limits)
    checking = [connection.number for connection in broker.checking if connection.number in broker.connections]
    rest.count(len(checking))
    rest.column("Q", checking)
    _write_timers(rest, broker)
    _write_requests(rest, broker)

    first = Writer()
    _write_counters(first, broker)
    write_limits(first, limits)
    write_messages(first, messages)
    body = b"".join(first.parts + rest.parts)
    return _HEAD.pack(_MAGIC, SNAPSHOT_VERSION, zlib.crc32(body)) + body


def decode_state(broker: BrokerCore, data: bytes) -> None:
    """Gives a new broker the state that `encode_state` wrote; both must have the same settings.

    Bytes that are no such state raise PeerError; the broker is then of no use any more.

    >>> from surecast.protocol.broker import BrokerCore
    >>> decode_state(BrokerCore(), b"something else entirely")
    Traceback (most recent call last):
        ...
    surecast.errors.PeerError: broker snapshot: it does not begin like one
    """
    if broker.next_connection or broker.sessions.serial or len(broker.retained):
        raise ValueError("a snapshot can be given to a new broker only, and this one has a state already")
    if len(data) < _HEAD.size or not data.startswith(_MAGIC):
        raise PeerError("broker snapshot: it does not begin like one")
    _, version, check = _HEAD.unpack_from(data)
    if not _BEFORE_USERS <= version <= SNAPSHOT_VERSION:
        raise PeerError(
            f"broker snapshot: its format is version {version}, and this version of surecast reads {SNAPSHOT_VERSION}: "
            "run the version that wrote it until its queues are empty, and then begin a new group"
        )
    body = data[_HEAD.size :]
    if zlib.crc32(body) != check:
        raise PeerError(f"broker snapshot: its {len(body)} bytes do not have the check sum {check:08x}: it is damaged")
    of = Reader(body)
    try:
        _read(of, broker, version)
    except (SurecastError, struct.error, LookupError, ValueError, OverflowError, StopIteration) as error:
        raise PeerError(f"broker snapshot: what stands before byte {of.at} cannot be: {error}") from error
    if of.at != len(body):
        raise PeerError(f"broker snapshot: it goes on for {len(body) - of.at} bytes after its end")


def _read(of: Reader, broker: BrokerCore, version: int) -> None:
    _read_counters(of, broker)
    limits = read_limits(of)
    messages = read_messages(of)
    _read_retained(of, broker, messages)
    reader = SessionReader(of, messages, limits, has_address=version != _BEFORE_USERS)
    read = [reader.read() for _ in range(of.count())]
    sessions = [session for session, _, _ in read]
    broker.sessions.by_key.update({session.key: session for session in sessions})
    for session in sessions:
        broker.routes.quotas.open(session)
    _read_filters(of, broker, sessions, [subscriptions for _, _, subscriptions in read])
    for _ in range(of.count()):
        connection = read_connection(of, broker, limits)
        broker.connections[connection.number] = connection
    for session, number, _ in read:
        if number:
            session.connection = broker.connections[number]
            session.connection.session = session
    broker.checking += [broker.connections[number] for number in of.column("Q", of.count())]
    _read_timers(of, broker, {session.client: session.key for session in sessions} if version == _BEFORE_USERS else {})
    _read_requests(of, broker)


def _write_counters(to: Writer, broker: BrokerCore) -> None:
    started_at = broker.started_at
    to.pack(
        _COUNTERS,
        broker.next_connection,
        broker.identifiers_given,
        broker.incoming.next_number,
        broker.sessions.serial,
        broker.timers.count,
        0.0 if started_at is None else started_at,
        started_at is not None,
    )
    to.column("Q", [getattr(broker.counters, name) for name in _TALLIED])
    write_accounts(to, broker.sessions.past)


def _read_counters(of: Reader, broker: BrokerCore) -> None:
    connection, identifiers, number, serial, timers, started_at, is_started = of.unpack(_COUNTERS)
    broker.next_connection, broker.identifiers_given = connection, identifiers
    broker.incoming.next_number = number
    broker.sessions.serial = serial
    broker.timers.count = timers
    broker.started_at = started_at if is_started else None
    for name, value in zip(_TALLIED, of.column("Q", len(_TALLIED)), strict=True):
        setattr(broker.counters, name, value)
    broker.sessions.past = read_accounts(of)


def _write_retained(to: Writer, broker: BrokerCore, numbers: Numbers[Message]) -> None:
    """Retained messages in the order of their tree, and then the order of their topics as places among them."""
    messages, topics, expiry_check_at = broker.retained.state()
    places = {message.topic: place for place, message in enumerate(messages)}
    to.count(len(messages))
    to.column("I", [numbers[message] for message in messages])
    to.column("I", [places[topic] for topic in topics])
    to.pack(_TIME, expiry_check_at)


def _read_retained(of: Reader, broker: BrokerCore, messages: list[Message]) -> None:
    count = of.count()
    found = [messages[number] for number in of.column("I", count)]
    topics = [found[place].topic for place in of.column("I", count)]
    broker.retained.adopt(found, topics, of.unpack(_TIME)[0])


def _write_filters(to: Writer, broker: BrokerCore, places: dict[Session, int]) -> None:
    """Who is filed under each filter, in order: it decides in which order sessions are given a message."""
    filed = broker.routes.filed()
    to.count(len(filed))
    for topic_filter, value, name in filed:
        if isinstance(value, Share):
            to.pack(_TURN, value.turn, True)
            to.texts(topic_filter, name)
            to.count(len(value.members))
            to.column("I", [places[member] for member in value.members])
        else:
            to.pack(_TURN, places[value], False)
            to.texts(topic_filter)


def _read_filters(
    of: Reader, broker: BrokerCore, sessions: list[Session], subscriptions: list[dict[str, Subscription]]
) -> None:
    """Files the subscriptions anew; each session then gets them back in its own order."""
    routes = broker.routes
    for _ in range(of.count()):
        number, is_shared = of.unpack(_TURN)
        topic_filter = of.text()
        if is_shared:
            name = of.text()
            for place in of.column("I", of.count()):
                routes.add(sessions[place], subscriptions[place][f"$share/{name}/{topic_filter}"])
            routes.share(name, topic_filter).turn = number
        else:
            routes.add(sessions[number], subscriptions[number][topic_filter])
    for session, own in zip(sessions, subscriptions, strict=True):
        if session.subscriptions != own:
            raise PeerError(f"subscriptions of {session.client} are not filed under their filters")
        session.subscriptions = own


def _write_timers(to: Writer, broker: BrokerCore) -> None:
    entries = broker.timers.entries()
    to.count(len(entries))
    for at, number, kind, key, is_planned in entries:
        to.pack(_TIMER, at, number, _PLANNED * is_planned | _BY_NUMBER * isinstance(key, int))
        to.texts(kind, str(key))


def _read_timers(of: Reader, broker: BrokerCore, keys: dict[str, str]) -> None:
    """Reads appointments; `keys` are those of sessions where they are named by client identifier alone."""
    entries = []
    for _ in range(of.count()):
        at, number, flags = of.unpack(_TIMER)
        kind, name = of.text(), of.text()
        key = int(name) if flags & _BY_NUMBER else keys.get(name, name)
        entries.append((at, number, kind, key, bool(flags & _PLANNED)))
    broker.timers.adopt(entries)


def _write_requests(to: Writer, broker: BrokerCore) -> None:
    to.count(len(broker.requests))
    for user, token, entry in broker.requests.items():
        to.texts(user, token)
        to.pack(_REQUESTS, entry.highest, entry.used_at, entry.is_durable)
        to.add(bytes(entry.outcomes))


def _read_requests(of: Reader, broker: BrokerCore) -> None:
    found = []
    for _ in range(of.count()):
        user, token = of.text(), of.text()
        highest, used_at, is_durable = of.unpack(_REQUESTS)
        found.append((user, token, TokenOutcomes(highest, of.take(WINDOW), used_at, bool(is_durable))))
    broker.requests.adopt(found)
