"""From records back to sessions, queues and retained messages: those of a store, or those of a broker that ran."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Final

from surecast.errors import PeerError
from surecast.protocol.broker.connection import Connection
from surecast.protocol.broker.connection_record import read_connection
from surecast.protocol.broker.limits import Limits
from surecast.protocol.broker.message import Message
from surecast.protocol.broker.observer import Counters
from surecast.protocol.broker.plain_flight import hollow_delivery
from surecast.protocol.broker.requests import WINDOW, TokenOutcomes
from surecast.protocol.broker.session import Session, Subscription, split_key
from surecast.protocol.broker.state_records import (
    APPOINTMENT,
    BROKER,
    FILED,
    LIMITS,
    RUNNING_SESSION,
    BrokerRow,
    Filed,
    RunningSession,
    read_message,
    read_queued,
    read_received,
    read_request,
    read_retained,
    read_session,
    read_subscription,
    read_will,
)
from surecast.protocol.filters import Filter

if TYPE_CHECKING:
    from surecast.protocol.broker.core import BrokerCore

__all__ = ["COUNTED", "Restorer"]

COUNTED: Final = tuple(each.name for each in fields(Counters) if each.type == "int")
"""The counters that a snapshot has."""


class Restorer:
    """Reads all records, in whatever order their kinds come, and then puts the parts together.

    Records of a store are the state of a broker that stopped, and its clients are gone. Those of a snapshot say more,
    so that the broker goes on exactly where the other stood.
    """

    def __init__(self, broker: BrokerCore):
        self._broker = broker
        self._entries: list[tuple[str, str, TokenOutcomes]] = []
        self._messages: dict[int, Message] = {}
        self._texts: dict[str, tuple[str, bytes]] = {}
        self._contents: dict[str, Filter] = {}
        self._sessions: dict[str, Session] = {}
        self._subscriptions: list[tuple[str, Subscription]] = []
        self._queued: dict[bytes, list[tuple[bytes, bytes]]] = {}
        self._received: list[tuple[str, int]] = []
        self._retained: list[int | Message] = []
        self._stored_wills: list[tuple[bytes, bytes]] = []
        self._row: BrokerRow | None = None
        self._limits: dict[int, Limits] = {}
        self._running: dict[str, RunningSession] = {}
        self._places: list[int] = []
        self._filed: list[Filed] = []
        self._connections: list[bytes] = []
        self._appointments: list[tuple[float, int, str, str | int, bool]] = []
        self._readers: dict[int, Callable[[bytes, bytes], None]] = {
            kind[0]: reader
            for kind, reader in (
                (b"m", self._read_message),
                (b"s", self._read_session),
                (b"f", lambda key, value: self._subscriptions.append(read_subscription(key, value, self._contents))),
                (b"q", lambda key, value: self._queued.setdefault(key[3:-8], []).append((key[-8:], value))),
                (b"p", lambda key, value: self._received.append(read_received(key))),
                (b"w", lambda key, value: self._stored_wills.append((key, value))),
                (b"r", lambda key, value: self._retained.append(read_retained(key, value)[1])),
                (b"i", self._read_request),
            )
        }

    def run(self, records: Iterable[tuple[bytes, bytes]], now: float) -> None:
        """Restores the state of a store; what expired meanwhile is taken out at once."""
        self._read(records)
        broker = self._broker
        self._find_undecided(self._sessions)
        for session in self._sessions.values():
            broker.sessions.adopt(session)
        sessions = broker.sessions.by_key
        for name, subscription in self._subscriptions:
            broker.routes.add(sessions[name], subscription)
        self._fill_queues(sessions)
        for message in self._retained_messages():
            broker.retained.restore(message)
        gone = self._restore_wills(sessions)
        broker.requests.adopt(sorted(self._entries, key=lambda item: item[2].used_at))
        broker.incoming.next_number = max(self._messages, default=0) + 1
        for session in list(broker.sessions.by_key.values()):
            self._start(session, now)
        broker.retained.expire(now)
        for session in gone:
            broker.wills.publish(session, now)

    def run_on(self, records: Iterable[tuple[bytes, bytes]]) -> None:
        """Goes on where the broker of a snapshot stood."""
        self._readers |= {
            kind[0]: reader
            for kind, reader in (
                (b"B", self._read_broker),
                (b"L", lambda key, value: self._limits.update({_number(key): LIMITS.decode(value)})),
                (b"A", self._read_running),
                (b"U", self._read_request),
                (b"V", lambda key, value: self._retained.append(read_message(key, value))),
                (b"K", lambda key, value: self._places.append(int.from_bytes(value, "big"))),
                (b"O", lambda key, value: self._filed.append(FILED.decode(value))),
                (b"C", lambda key, value: self._connections.append(value)),
                (b"T", self._read_appointment),
            )
        }
        self._read(records)
        if self._row is None:
            raise PeerError("there is no record of the broker as a whole")
        self._adopt_broker(self._row)
        broker = self._broker
        self._find_undecided(self._sessions)
        for name, session in self._sessions.items():
            self._adopt_session(session, self._running[name])
        sessions = broker.sessions.by_key
        self._file_subscriptions(sessions)
        self._fill_queues(sessions)
        for name, row in self._running.items():
            self._adopt_queue(sessions[name], row)
        retained = list(self._retained_messages())
        topics = [retained[place].topic for place in self._places]
        broker.retained.adopt(retained, topics, self._row.retained_expiry_check_at)
        if self._restore_wills(sessions):
            raise PeerError("there is a will of no session")
        connections = [read_connection(value, broker, self._limits) for value in self._connections]
        broker.connections |= {connection.number: connection for connection in connections}
        for name, row in self._running.items():
            if row.connection:
                self._attach(sessions[name], broker.connections[row.connection])
        broker.checking += [broker.connections[number] for number in self._row.checking]
        broker.timers.adopt(self._appointments)
        broker.requests.adopt(self._entries)

    # Records are read.

    def _read(self, records: Iterable[tuple[bytes, bytes]]) -> None:
        readers = self._readers
        for key, value in records:
            reader = readers.get(key[0]) if key else None
            if reader is None:
                raise ValueError(f"the store has a record of the unknown kind {key[:1]!r}")
            reader(key, value)

    def _read_message(self, key: bytes, value: bytes) -> None:
        message = read_message(key, value)
        # Messages to one topic, and of one publisher, share the text.
        message.topic, message.topic_field = self._texts.setdefault(message.topic, (message.topic, message.topic_field))
        message.publisher = self._texts.setdefault(message.publisher, (message.publisher, b""))[0]
        self._messages[message.number] = message

    def _read_session(self, key: bytes, value: bytes) -> None:
        session = read_session(key, value)
        self._sessions[session.key] = session

    def _read_request(self, key: bytes, value: bytes) -> None:
        user, token, used_at, highest, outcomes = read_request(key, value)
        if len(outcomes) != WINDOW:
            raise ValueError(f"{len(outcomes)} outcomes of requests, and not {WINDOW}")
        self._entries.append((user, token, TokenOutcomes(highest, outcomes, used_at, key[:1] == b"i")))

    def _read_broker(self, key: bytes, value: bytes) -> None:
        self._row = BROKER.decode(value)

    def _read_running(self, key: bytes, value: bytes) -> None:
        self._running[key[3:].decode()] = RUNNING_SESSION.decode(value)

    def _read_appointment(self, key: bytes, value: bytes) -> None:
        row = APPOINTMENT.decode(value)
        name = int(row.key) if row.by_number else row.key
        self._appointments.append((row.at, _number(key), row.kind, name, row.is_planned))

    # The parts are put together.

    def _find_undecided(self, sessions: Mapping[str, Session]) -> None:
        """Finds the sessions for whose targets a decision is due."""
        for name, session in sessions.items():
            state = session.target
            if state is not None and state.decided != state.revision:
                self._broker.targets.undecided[name] = session

    def _fill_queues(self, sessions: Mapping[str, Session]) -> None:
        for name, identifier in self._received:
            sessions[name].received.add(identifier)
        for field, entries in self._queued.items():
            self._fill_queue(sessions[field.decode()], sorted(entries))

    def _fill_queue(self, session: Session, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """Puts entries into a queue, in the order of their sequence numbers."""
        messages, inflight, wait, size, sequence = self._messages, session.inflight, self._broker.outgoing.wait, 0, -1
        is_durable = session.persistent
        for field, value in entries:
            sequence = int.from_bytes(field, "big")
            delivery = read_queued(sequence, value, messages)
            delivery.message.references += is_durable
            size += delivery.message.size
            session.accounts.matched += 1
            if delivery.identifier:
                inflight[delivery.identifier] = delivery
            else:
                wait(session, delivery)
        session.bytes_queued += size
        session.quota.bytes_queued += size
        session.next_sequence = max(session.next_sequence, sequence + 1)

    def _retained_messages(self) -> Iterable[Message]:
        for kept in self._retained:
            yield kept if isinstance(kept, Message) else self._messages[kept]

    def _restore_wills(self, sessions: Mapping[str, Session]) -> list[Session]:
        """Gives sessions their wills; those that ended with the connection, as the broker died, are returned."""
        gone = []
        for key, value in self._stored_wills:
            name, will = read_will(key, value, self._messages)
            will.message.references += 1
            session = sessions.get(name)
            if session is None:
                user, client = split_key(name)
                session = Session(client, 0, user=user)
                gone.append(session)
            session.will = will
        return gone

    # Of a store.

    def _start(self, session: Session, now: float) -> None:
        """The time without the broker counts for expiry; a client that was connected is gone since now, with its will.

        A will is due at no time as long as its client is connected.
        """
        broker = self._broker
        if session.ends_at == math.inf and session.lifetime_s != math.inf:
            session.ends_at = now + session.lifetime_s
            broker.journal.session(session)
        if session.inflight:
            session.next_identifier = max(session.next_identifier, max(session.inflight))
        broker.outgoing.expire(session, now)
        if session.ends_at != math.inf:
            broker.timers.add(session.ends_at, "session", session.key)
        if session.monitor is not None:
            session.monitor.interrupted(now, session.accounts.matched)
        if session.target is not None:
            session.target.connection, session.target.packet = 0, b""
        will = session.will
        if will is not None and will.due_at == math.inf:
            broker.wills.begin_delay(session, will, now)
        elif will is not None:
            broker.timers.add(will.due_at, "will", session.key)

    # Of a broker that ran.

    def _adopt_broker(self, row: BrokerRow) -> None:
        broker = self._broker
        broker.next_connection, broker.identifiers_given = row.next_connection, row.identifiers_given
        broker.incoming.next_number, broker.sessions.serial = row.next_message, row.serial
        broker.timers.count, broker.started_at = row.appointments, row.started_at
        broker.sessions.past = row.past
        for name, count in zip(COUNTED, row.counts, strict=True):
            setattr(broker.counters, name, count)

    def _adopt_session(self, session: Session, row: RunningSession) -> None:
        session.serial = row.own["serial"]
        session.limit(self._limits[row.limits], row.own["window"])
        self._broker.sessions.by_key[session.key] = session
        self._broker.routes.quotas.open(session)

    def _file_subscriptions(self, sessions: Mapping[str, Session]) -> None:
        """Files subscriptions, first those that have an order; each session then gets them back in its own order."""
        routes = self._broker.routes
        own: dict[str, dict[str, Subscription]] = {}
        for name, subscription in self._subscriptions:
            own.setdefault(name, {})[subscription.key] = subscription
        by_serial = {session.serial: session for session in sessions.values()}
        for filed in self._filed:
            key = f"$share/{filed.share}/{filed.filter}" if filed.share else filed.filter
            for serial in filed.members:
                routes.add(by_serial[serial], own[by_serial[serial].key][key])
            if filed.share:
                routes.share(filed.share, filed.filter).turn = filed.turn
        for name, subscriptions in own.items():
            session = sessions[name]
            for key, subscription in subscriptions.items():
                if key not in session.subscriptions:
                    routes.add(session, subscription)
            session.subscriptions = subscriptions

    def _adopt_queue(self, session: Session, row: RunningSession) -> None:
        """Takes over what is known of a queue besides its entries, and then all counts."""
        for identifier, size in zip(row.identifiers, row.sizes, strict=True):
            session.inflight[identifier] = hollow_delivery(size)
            session.bytes_queued += size
            session.quota.bytes_queued += size
        session.resend.extend(session.inflight[identifier] for identifier in row.resend)
        for name, value in row.own.items():
            setattr(session, name, value)

    @staticmethod
    def _attach(session: Session, connection: Connection) -> None:
        session.connection, connection.session = connection, session


def _number(key: bytes) -> int:
    """Returns the number in a key behind its kind."""
    return int.from_bytes(key[1:], "big")
