"""From the durable keys and values back to sessions, queues and retained messages."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from surecast.protocol.broker.incoming import Incoming
from surecast.protocol.broker.message import Delivery, Message, text_field
from surecast.protocol.broker.outgoing import Outgoing
from surecast.protocol.broker.requests import Requests, TokenOutcomes
from surecast.protocol.broker.retained import Retained
from surecast.protocol.broker.routes import Routes
from surecast.protocol.broker.session import Session, Subscription, split_key
from surecast.protocol.broker.sessions import Sessions
from surecast.protocol.broker.state_journal import (
    Journal,
    StoredDelivery,
    read_message,
    read_queued,
    read_received,
    read_request,
    read_retained,
    read_session,
    read_subscription,
    read_will,
)
from surecast.protocol.broker.timers import Timers
from surecast.protocol.broker.wills import Wills

__all__ = ["Restorer"]


class Restorer:
    """Reads all records, in whatever order they come, and then puts the parts together."""

    def __init__(
        self,
        journal: Journal,
        sessions: Sessions,
        wills: Wills,
        routes: Routes,
        retained: Retained,
        incoming: Incoming,
        outgoing: Outgoing,
        timers: Timers,
        requests: Requests,
    ):
        self._journal = journal
        self._sessions = sessions
        self._wills = wills
        self._routes = routes
        self._retained = retained
        self._incoming = incoming
        self._outgoing = outgoing
        self._timers = timers
        self._requests = requests
        self._entries: list[tuple[str, str, TokenOutcomes]] = []
        self._messages: dict[int, Message] = {}
        self._subscriptions: list[tuple[str, Subscription]] = []
        self._queued: list[StoredDelivery] = []
        self._received: list[tuple[str, int]] = []
        self._retained_numbers: list[int] = []
        self._stored_wills: list[tuple[bytes, bytes]] = []
        self._earlier: dict[str, Session] = {}

    def run(self, records: Iterable[tuple[bytes, bytes]], now: float) -> None:
        """Restores everything; what expired meanwhile is taken out at once."""
        for key, value in records:
            self._read(key, value)
        sessions = {**self._sessions.by_key, **self._earlier}
        for name, subscription in self._subscriptions:
            self._routes.add(sessions[name], subscription)
        for name, identifier in self._received:
            sessions[name].received.add(identifier)
        for stored in sorted(self._queued, key=lambda q: q.sequence):
            self._enqueue(stored, sessions[stored.session])
        for number in self._retained_numbers:
            self._retained.restore(self._messages[number])
        gone = self._restore_wills(sessions)
        for name, session in self._earlier.items():
            self._file_anew(name, session)
        self._requests.adopt(sorted(self._entries, key=lambda item: item[2].used_at))
        self._incoming.next_number = max(self._messages, default=0) + 1
        for session in list(self._sessions.by_key.values()):
            self._start(session, now)
        self._retained.expire(now)
        for session in gone:
            self._wills.publish(session, now)

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

    def _read(self, key: bytes, value: bytes) -> None:
        kind = key[:1]
        if kind == b"m":
            message = read_message(key, value)
            self._messages[message.number] = message
        elif kind == b"s":
            session = read_session(key, value, 0)
            self._sessions.adopt(session)
            if key[1:] != session.key_field:
                self._earlier[session.client] = session
        elif kind == b"f":
            self._subscriptions.append(read_subscription(key, value))
        elif kind == b"q":
            self._queued.append(read_queued(key, value))
        elif kind == b"p":
            self._received.append(read_received(key))
        elif kind == b"w":
            self._stored_wills.append((key, value))
        elif kind == b"r":
            self._retained_numbers.append(read_retained(key, value)[1])
        elif kind == b"i":
            user, token, used_at, highest, outcomes = read_request(key, value)
            self._entries.append((user, token, TokenOutcomes(highest, outcomes, used_at, True)))
        else:
            raise ValueError(f"the store has a record of the unknown kind {kind!r}")

    def _enqueue(self, stored: StoredDelivery, session: Session) -> None:
        message = self._messages[stored.number]
        message.references += 1
        qos, retain, released = stored.delivery_flags
        delivery = Delivery(message, qos, retain, stored.identifiers, stored.sequence)
        delivery.identifier, delivery.released, delivery.share = stored.identifier, released, stored.share
        session.bytes_queued += message.size
        session.quota.bytes_queued += message.size
        session.next_sequence = max(session.next_sequence, stored.sequence + 1)
        session.accounts.matched += 1
        if delivery.identifier:
            session.inflight[delivery.identifier] = delivery
        else:
            self._outgoing.wait(session, delivery)

    def _file_anew(self, name: str, session: Session) -> None:
        """Moves what an earlier version filed under a client identifier to the key of user and client identifier."""
        journal = self._journal
        count = len(journal.records)
        journal.session(session)
        for subscription in session.subscriptions.values():
            journal.subscription(session, subscription)
        for identifier in sorted(session.received):
            journal.received(session, identifier)
        for delivery in (*session.inflight.values(), *session.waiting):
            journal.queued(session, delivery)
        if session.will is not None:
            journal.will(session, session.will)
        field, size = text_field(name), 1 + len(session.key_field)
        journal.records += [(key[:1] + field + key[size:], None) for key, _ in journal.records[count:]]

    def _start(self, session: Session, now: float) -> None:
        """The time without the broker counts for expiry; a client that was connected is gone since now, with its will.

        A will is due at no time as long as its client is connected.
        """
        if session.ends_at == math.inf and session.lifetime_s != math.inf:
            session.ends_at = now + session.lifetime_s
            self._journal.session(session)
        if session.inflight:
            session.next_identifier = max(session.next_identifier, max(session.inflight))
        self._outgoing.expire(session, now)
        if session.ends_at != math.inf:
            self._timers.add(session.ends_at, "session", session.key)
        will = session.will
        if will is not None and will.due_at == math.inf:
            self._wills.begin_delay(session, will, now)
        elif will is not None:
            self._timers.add(will.due_at, "will", session.key)
