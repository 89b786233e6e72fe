"""The life of sessions: CONNECT, take-over, wills, the end (MQTT 5.0, sections 3.1 and 4.1)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from surecast.protocol.broker.accounts import network_of
from surecast.protocol.broker.books import Books
from surecast.protocol.broker.connection import Connection, Phase
from surecast.protocol.broker.incoming import Authorise, Incoming, interval_of, lifetime_of
from surecast.protocol.broker.limits import Limits, LimitTable, Pace
from surecast.protocol.broker.message import text_field
from surecast.protocol.broker.observer import Observer, Tally
from surecast.protocol.broker.outgoing import Outgoing
from surecast.protocol.broker.routes import Routes
from surecast.protocol.broker.session import Session, Will, session_key
from surecast.protocol.broker.settings import BrokerSettings
from surecast.protocol.broker.state_journal import Journal
from surecast.protocol.broker.timers import Timers
from surecast.protocol.mqtt import (
    V5,
    V31,
    V311,
    Connack,
    Connect,
    PacketType,
    Properties,
    Publish,
    ReasonCode,
    encode,
    encode_properties,
)
from surecast.protocol.mqtt import Will as RequestedWill

__all__ = ["RefusalError", "Sessions"]

FOR_EVER = 0xFFFF_FFFF
_KEY_MAX: Final = 0xFFFF  # its length is kept in two bytes


class RefusalError(Exception):
    """Why a CONNECT is not accepted."""

    def __init__(self, reason: ReasonCode, message: str):
        super().__init__(message)
        self.reason = reason


class Sessions:
    """All sessions of a broker, by their key: client identifiers of two users have nothing to do with each other."""

    def __init__(
        self,
        settings: BrokerSettings,
        limits: LimitTable,
        journal: Journal,
        routes: Routes,
        outgoing: Outgoing,
        incoming: Incoming,
        timers: Timers,
        tally: Tally,
        observer: Observer | None,
        authorise: Authorise,
        new_identifier: Callable[[], str],
    ):
        self.settings = settings
        self.limits = limits
        self._journal = journal
        self._routes = routes
        self._outgoing = outgoing
        self._incoming = incoming
        self._timers = timers
        self._tally = tally
        self._observer = observer
        self._authorise = authorise
        self._new_identifier = new_identifier
        self.serial = 0
        self.by_client: dict[str, Session] = {}
        self.past = Books()

    def open(self, connection: Connection, connect: Connect, now: float) -> tuple[Session, bool, str]:
        """The session of an accepted CONNECT, whether it was there before, and the identifier if it was assigned."""
        assigned = ""
        client = connect.client_id
        if not client:
            if connect.version == V31:
                raise RefusalError(ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, "MQTT 3.1 asks for a client identifier")
            if connect.version == V311 and not connect.clean_start:
                raise RefusalError(ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, "a lasting session needs an identifier")
            client = assigned = self._unused_identifier(connection.user)
        key = session_key(connection.user, client)
        if len(key) > _KEY_MAX // 4 and len(key.encode()) > _KEY_MAX:
            raise RefusalError(
                ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, f"user and client identifier are longer than {_KEY_MAX} bytes"
            )
        session = self.by_client.get(key)
        if session is not None and session.ends_at <= now:
            # Its time is up, and only the timer is late.
            self.end(session, now)
            session = None
        address = network_of(connection.origin.peer)
        if session is None:
            self._check_room(connection.user, address)
        if session is not None and connect.clean_start:
            self.end(session, now)
            session = None
        present = session is not None
        if session is None:
            session = self.make(connection.user, client, address)
        elif session.will is not None and session.will.due_at <= now:
            self.send_will(session, now)
        else:
            self.cancel_will(session)
        self._attach(session, connection, connect, present, now)
        return session, present, assigned

    def _check_room(self, user: str, address: str) -> None:
        """Refuses another session where there are too many, of all, of a user or of an address."""
        full = "sessions" if len(self.by_client) >= self.settings.sessions_max else ""
        full = full or self._routes.accounts.full_for_session(user, address)
        if full:
            self._tally.limited[full] += 1
            count = getattr(self.settings, f"{full}_max")
            whose = {"sessions": "", "user_sessions": f" of {user}", "address_sessions": f" from {address}"}[full]
            raise RefusalError(ReasonCode.QUOTA_EXCEEDED, f"there are {count} sessions{whose} already")

    def _unused_identifier(self, user: str) -> str:
        """An identifier for a client without one; a client that chose it itself, or a stored one, is no obstacle."""
        client = self._new_identifier()
        while session_key(user, client) in self.by_client:
            client = self._new_identifier()
        return client

    def of(self, connection: Connection, connect: Connect) -> Session | None:
        """Returns the session that a CONNECT asks for, None if there is none."""
        return self.by_client.get(session_key(connection.user, connect.client_id)) if connect.client_id else None

    def named(self, client: str) -> list[Session]:
        """Returns the sessions with a client identifier, one for each user who has one, by user."""
        return sorted((each for each in self.by_client.values() if each.client == client), key=lambda each: each.user)

    def make(self, user: str, client: str, address: str) -> Session:
        """A session without any state yet."""
        self.serial += 1
        session = Session(client, self.serial, user=user)
        session.address = address
        self.by_client[session.key] = session
        self._routes.accounts.open(session)
        return session

    def adopt(self, session: Session) -> None:
        """Takes in a session that was read from disk."""
        self.serial += 1
        session.serial = self.serial
        session.limit(self._limits_of(session))
        self.by_client[session.key] = session
        self._routes.accounts.open(session)

    def _attach(self, session: Session, connection: Connection, connect: Connect, present: bool, now: float) -> None:
        lifetime_s = self._lifetime_s(connect)
        if present and session.persistent and not lifetime_s:
            self._forget(session)
        session.lifetime_s = lifetime_s
        session.ends_at = math.inf
        session.connection = connection
        session.listener = connection.origin.listener
        if (address := network_of(connection.origin.peer)) != session.address:
            self._routes.accounts.close(session)
            session.address = address
            self._routes.accounts.open(session)
        session.limit(self._limits_of(session), connect.properties.receive_maximum)
        session.will = None
        if connect.will is not None:
            # It is on disk before the CONNACK is sent: should the broker die, it is all that speaks for this client.
            session.will = self._will(connect.will, session, now)
            self._journal.keep(session.will.message)
            self._journal.will(session, session.will)
        connection.session = session
        if session.persistent:
            self._journal.session(session)

    def _limits_of(self, session: Session) -> Limits:
        return self.limits.resolve(session.listener, session.user, session.client)

    def limit_anew(self, limits: LimitTable, now: float) -> None:
        """The limits of clients have changed. What a client was told in its CONNACK holds until it connects again."""
        self.limits = limits
        for session in self.by_client.values():
            connection = session.connection
            asked = connection.connect if connection is not None else None
            session.limit(self._limits_of(session), asked.properties.receive_maximum if asked is not None else None)
            if connection is not None:
                self._pace(connection, session.limits, now)
                self._outgoing.fill(session, now)

    @staticmethod
    def _pace(connection: Connection, limits: Limits, now: float) -> None:
        rate_per_s = limits.publish_rate_per_s
        if not rate_per_s:
            connection.pace = None
        elif connection.pace is None or connection.pace.rate_per_s != rate_per_s:
            connection.pace = Pace(rate_per_s, now)

    def _lifetime_s(self, connect: Connect) -> float:
        """How long the session outlives its connection."""
        if connect.version != V5:
            asked = 0.0 if connect.clean_start else math.inf
        else:
            expiry = connect.properties.session_expiry_s or 0
            asked = math.inf if expiry == FOR_EVER else float(expiry)
        return min(asked, float(self.settings.session_expiry_max_s or math.inf))

    def _will(self, will: RequestedWill, session: Session, now: float) -> Will:
        asked = will.properties
        packet = Publish(will.topic, will.payload, will.qos, will.retain)
        message = self._incoming.message(packet, will.topic, text_field(will.topic), session.key, now)
        passed_on = replace(asked, will_delay_s=None, message_expiry_s=None)
        message.properties = encode_properties(passed_on, PacketType.PUBLISH)
        message.size += len(message.properties)
        return Will(message, asked.will_delay_s or 0, lifetime_of(asked), interval_s=interval_of(asked))

    def close(self, connection: Connection, now: float, reason: str, with_will: bool) -> None:
        """The connection is over: the session waits for its client, or ends."""
        session = connection.session
        if session is None:
            return
        session.connection = None
        connection.session = None
        self._routes.changed(session)
        if self._observer is not None:
            self._observer.disconnected(session, reason, now)
        if not with_will:
            self.cancel_will(session)
        if not session.persistent:
            self.end(session, now)
            return
        session.ends_at = now + session.lifetime_s
        self._journal.session(session)
        if session.ends_at != math.inf:
            self._timers.add(session.ends_at, "session", session.key)
        if session.will is not None:
            self.begin_delay(session, session.will, now)

    def begin_delay(self, session: Session, will: Will, now: float) -> None:
        """The client of a session that goes on is gone: its will is sent now, or after the delay that it asked for."""
        if will.delay_s == 0:
            self.send_will(session, now)
            return
        will.due_at = min(now + will.delay_s, session.ends_at)
        self._journal.will(session, will)
        self._timers.add(will.due_at, "will", session.key)

    def end(self, session: Session, now: float) -> None:
        """A session is over, with all it had."""
        if session.will is not None and session.connection is None:
            self.send_will(session, now)
        subscriptions = list(session.subscriptions.values())
        self._routes.remove_all(session)
        self._outgoing.clear(session, now, self._routes.next_member)
        if self._observer is not None:
            for subscription in subscriptions:
                self._observer.unsubscribed(session, subscription, "session", now)
        if session.persistent:
            for subscription in subscriptions:
                self._journal.forget_subscription(session, subscription)
            for identifier in sorted(session.received):
                self._journal.forget_received(session, identifier)
            self._journal.forget_session(session)
        session.received.clear()
        self.past.add(session.books)
        if self.by_client.get(session.key) is session:
            del self.by_client[session.key]
            self._routes.accounts.close(session)

    def send_will(self, session: Session, now: float) -> None:
        """Publishes a will, if its client may publish to that topic."""
        will = session.will
        if will is None:
            return
        self._put_away(session, will)
        message = will.message
        message.published_at = now
        message.expires_at = now + will.lifetime_s
        message.interval_end = now + will.interval_s
        if not message.topic.startswith("$") and self._authorise(
            session.user, session.client, "publish", message.topic
        ):
            self._incoming.take(message, now)
        else:
            self._tally.unauthorised += 1

    def cancel_will(self, session: Session) -> None:
        """The client has said goodbye, or is back before the delay is over."""
        if session.will is not None:
            self._put_away(session, session.will)

    def expire(self, key: str, now: float) -> None:
        """Ends a session whose time is up; nothing happens if its client came back."""
        session = self.by_client.get(key)
        if session is None or session.connection is not None:
            return
        if session.ends_at <= now:
            self.end(session, now)
        elif session.ends_at != math.inf:
            self._timers.add(session.ends_at, "session", key)

    def will_due(self, key: str, now: float) -> None:
        """Sends a will whose delay is over; nothing happens if it was cancelled."""
        session = self.by_client.get(key)
        if session is None or session.will is None:
            return
        if session.will.due_at <= now:
            self.send_will(session, now)
        elif session.will.due_at != math.inf:
            self._timers.add(session.will.due_at, "will", key)

    def set_lifetime(self, session: Session, expiry_s: int) -> None:
        """A DISCONNECT changes how long the session lasts (MQTT 5.0, section 3.14.2.2.2)."""
        asked = math.inf if expiry_s == FOR_EVER else float(expiry_s)
        lifetime_s = min(asked, float(self.settings.session_expiry_max_s or math.inf))
        if session.persistent and not lifetime_s:
            self._forget(session)
        session.lifetime_s = lifetime_s

    def _put_away(self, session: Session, will: Will) -> None:
        session.will = None
        self._journal.forget_will(session, will)

    def _forget(self, session: Session) -> None:
        """The session is not to outlive its connection any more: it leaves the disk."""
        self._outgoing.forget(session)
        for subscription in session.subscriptions.values():
            self._journal.forget_subscription(session, subscription)
        for identifier in sorted(session.received):
            self._journal.forget_received(session, identifier)
        self._journal.forget_session(session)

    def welcome(self, connection: Connection, connect: Connect, present: bool, assigned: str) -> bytes:
        """The CONNACK of an accepted connection, with the limits that differ from what the client may assume."""
        session = connection.session
        assert session is not None
        settings, limits = self.settings, session.limits
        if not connection.version_5:
            return encode(Connack(present and connect.version != V31), V311)  # 3.1 has no word for it
        asked = connect.properties.session_expiry_s or 0
        granted = FOR_EVER if session.lifetime_s == math.inf else int(session.lifetime_s)
        properties = Properties(
            session_expiry_s=granted if granted != asked else None,
            receive_maximum=limits.receive_maximum,
            maximum_packet_size=limits.packet_bytes_max,
            assigned_client_id=assigned or None,
            topic_alias_maximum=settings.topic_alias_max or None,
            server_keep_alive_s=server_keep_alive_s(settings, connect),
        )
        return encode(Connack(present, ReasonCode.SUCCESS, properties), V5)

    def accept(self, connection: Connection, connect: Connect, now: float) -> None:
        """What a connection may do from now on."""
        settings, asked = self.settings, connect.properties
        session = connection.session
        assert session is not None
        connection.phase = Phase.OPEN
        connection.limits = session.limits
        connection.known_aliases_max = settings.topic_alias_max
        connection.decoder.limit(session.limits.packet_bytes_max)
        self._pace(connection, session.limits, now)
        connection.connected_at = now
        connection.explains = asked.request_problem_information is not False
        connection.packet_bytes_max = asked.maximum_packet_size or connection.packet_bytes_max
        connection.aliases_max = min(asked.topic_alias_maximum or 0, settings.topic_alias_max)
        keep_alive_s = server_keep_alive_s(settings, connect) or connect.keep_alive_s
        connection.silence_max_s = 1.5 * keep_alive_s
        connection.connect = replace(connect, password=None)


def server_keep_alive_s(settings: BrokerSettings, connect: Connect) -> int | None:
    """The keep-alive that the broker imposes, None if the client's own stands."""
    limit = settings.keep_alive_max_s
    return limit if limit and (connect.keep_alive_s == 0 or connect.keep_alive_s > limit) else None
