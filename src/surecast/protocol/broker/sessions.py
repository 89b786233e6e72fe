"""Sessions from the first CONNECT of a client until they end or expire (MQTT 5.0, section 4.1)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from surecast.protocol.broker.accounts import Accounts
from surecast.protocol.broker.broker_settings import BrokerSettings
from surecast.protocol.broker.connection import Connection
from surecast.protocol.broker.limits import Limits, LimitTable, Pace
from surecast.protocol.broker.message import Message
from surecast.protocol.broker.observer import Counters, Observer
from surecast.protocol.broker.outgoing import Outgoing
from surecast.protocol.broker.quotas import network_of
from surecast.protocol.broker.routes import Routes
from surecast.protocol.broker.session import Session, session_key
from surecast.protocol.broker.state_journal import Journal
from surecast.protocol.broker.targets import Targets
from surecast.protocol.broker.timers import Timers
from surecast.protocol.broker.wills import Wills
from surecast.protocol.mqtt import V5, V31, V311, Connect, ReasonCode

__all__ = ["FOR_EVER", "ConnectRefusedError", "Sessions"]

FOR_EVER = 0xFFFF_FFFF
_KEY_MAX: Final = 0xFFFF  # its length is kept in two bytes


class ConnectRefusedError(Exception):
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
        wills: Wills,
        targets: Targets,
        timers: Timers,
        counters: Counters,
        observer: Observer | None,
        new_identifier: Callable[[], str],
    ):
        self.settings = settings
        self.limits = limits
        self._journal = journal
        self._routes = routes
        self._outgoing = outgoing
        self._wills = wills
        self._targets = targets
        self._timers = timers
        self._counters = counters
        self._observer = observer
        self._new_identifier = new_identifier
        self.serial = 0
        self.by_key: dict[str, Session] = {}
        self.past = Accounts()

    def open(self, connection: Connection, connect: Connect, now: float) -> tuple[Session, bool, str]:
        """The session of an accepted CONNECT, whether it was there before, and the identifier if it was assigned."""
        assigned = ""
        client = connect.client_id
        if not client:
            if connect.version == V31:
                raise ConnectRefusedError(
                    ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, "MQTT 3.1 asks for a client identifier"
                )
            if connect.version == V311 and not connect.clean_start:
                raise ConnectRefusedError(
                    ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, "a lasting session needs an identifier"
                )
            client = assigned = self._unused_identifier(connection.user)
        key = session_key(connection.user, client)
        if len(key) > _KEY_MAX // 4 and len(key.encode()) > _KEY_MAX:
            raise ConnectRefusedError(
                ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, f"user and client identifier are longer than {_KEY_MAX} bytes"
            )
        session = self.by_key.get(key)
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
        present = session is not None and not session.renewed
        if session is None:
            session = self.make(connection.user, client, address)
        elif session.will is not None and session.will.due_at <= now:
            self._wills.publish(session, now)
        else:
            self._wills.cancel(session)
        session.renewed = False
        self._attach(session, connection, connect, present, now)
        if self._routes.traffic is not None:
            self._routes.traffic.note(session)
        return session, present, assigned

    def _check_room(self, user: str, address: str) -> None:
        """Refuses another session where there are too many, of all, of a user or of an address."""
        full = "sessions" if len(self.by_key) >= self.settings.sessions_max else ""
        full = full or self._routes.quotas.full_for_session(user, address)
        if full:
            self._counters.limited[full] += 1
            count = getattr(self.settings, f"{full}_max")
            whose = {"sessions": "", "user_sessions": f" of {user}", "address_sessions": f" from {address}"}[full]
            raise ConnectRefusedError(ReasonCode.QUOTA_EXCEEDED, f"there are {count} sessions{whose} already")

    def _unused_identifier(self, user: str) -> str:
        """An identifier for a client without one; a client that chose it itself, or a stored one, is no obstacle."""
        client = self._new_identifier()
        while session_key(user, client) in self.by_key:
            client = self._new_identifier()
        return client

    def of(self, connection: Connection, connect: Connect) -> Session | None:
        """Returns the session that a CONNECT asks for, None if there is none."""
        return self.by_key.get(session_key(connection.user, connect.client_id)) if connect.client_id else None

    def named(self, client: str) -> list[Session]:
        """Returns the sessions with a client identifier, one for each user who has one, by user."""
        return sorted((each for each in self.by_key.values() if each.client == client), key=lambda each: each.user)

    def make(self, user: str, client: str, address: str) -> Session:
        """A session without any state yet."""
        self.serial += 1
        session = Session(client, self.serial, user=user)
        session.address = address
        self.by_key[session.key] = session
        self._routes.quotas.open(session)
        return session

    def adopt(self, session: Session) -> None:
        """Takes in a session that was read from disk."""
        self.serial += 1
        session.serial = self.serial
        session.limit(self._limits_of(session))
        self._remember(session)
        self.by_key[session.key] = session
        self._routes.quotas.open(session)

    def _attach(self, session: Session, connection: Connection, connect: Connect, present: bool, now: float) -> None:
        lifetime_s = self._lifetime_s(connect)
        if present and session.persistent and not lifetime_s:
            self._forget(session)
        session.lifetime_s = lifetime_s
        session.ends_at = math.inf
        session.connection = connection
        session.listener = connection.origin.listener
        if (address := network_of(connection.origin.peer)) != session.address:
            self._routes.quotas.close(session)
            session.address = address
            self._routes.quotas.open(session)
        session.limit(self._limits_of(session), connect.properties.receive_maximum)
        session.will = None
        if connect.will is not None:
            self._wills.set(session, connect.will, now)
        connection.session = session
        if session.persistent:
            self._remember(session)
            self._targets.connected(session, now)
            self._journal.session(session)
            session.limit(self._limits_of(session), connect.properties.receive_maximum)

    def _remember(self, session: Session) -> None:
        """Has a session know what it has had, where sessions move."""
        traffic = self._routes.traffic
        if session.seen is None and traffic is not None and traffic.make_seen is not None:
            session.seen = traffic.make_seen()

    def _limits_of(self, session: Session) -> Limits:
        return self._targets.limits_of(session, self.limits.resolve(session.listener, session.user, session.client))

    def apply_decision(self, session: Session) -> None:
        """Puts the decision for the target of a session in force."""
        connection = session.connection
        asked = connection.connect if connection is not None else None
        session.limit(self._limits_of(session), asked.properties.receive_maximum if asked is not None else None)
        session.expiry_check_at = 0.0  # what waits may have to go sooner than before

    def limit_anew(self, limits: LimitTable, now: float) -> None:
        """The limits of clients have changed. What a client was told in its CONNACK holds until it connects again."""
        self.limits = limits
        for session in self.by_key.values():
            connection = session.connection
            asked = connection.connect if connection is not None else None
            session.limit(self._limits_of(session), asked.properties.receive_maximum if asked is not None else None)
            if connection is not None:
                self.set_pace(connection, session.limits, now)
                self._outgoing.fill(session, now)

    @staticmethod
    def set_pace(connection: Connection, limits: Limits, now: float) -> None:
        """Limits the rate at which the client of a connection publishes."""
        rate_per_s = limits.publish_rate_per_s
        if not rate_per_s:
            connection.pace = None
        elif connection.pace is None or connection.pace.rate_per_s != rate_per_s:
            connection.pace = Pace(rate_per_s, now)

    def _lifetime_s(self, connect: Connect) -> float:
        """Returns how long the session outlives its connection."""
        if connect.version != V5:
            asked = 0.0 if connect.clean_start else math.inf
        else:
            expiry = connect.properties.session_expiry_s or 0
            asked = math.inf if expiry == FOR_EVER else float(expiry)
        return min(asked, float(self.settings.session_expiry_max_s or math.inf))

    def close(self, connection: Connection, now: float, reason: str, with_will: bool) -> None:
        """The connection is over: the session waits for its client, or ends."""
        session = connection.session
        if session is None:
            return
        session.connection = None
        connection.session = None
        if connection.heard_at > connection.connected_at:  # its client knows that it has begun anew
            session.renewed = False
        self._routes.changed(session)
        if self._observer is not None:
            self._observer.disconnected(session, reason, now)
        if not with_will:
            self._wills.cancel(session)
        if not session.persistent:
            self.end(session, now)
            return
        session.ends_at = now + session.lifetime_s
        self._targets.disconnected(session, now)
        self._journal.session(session)
        if session.ends_at != math.inf:
            self._timers.add(session.ends_at, "session", session.key)
        if session.will is not None:
            self._wills.begin_delay(session, session.will, now)

    def end(self, session: Session, now: float) -> None:
        """A session is over, with all it had."""
        if self._routes.traffic is not None:
            self._routes.traffic.note(session)
        if session.will is not None and session.connection is None:
            self._wills.publish(session, now)
        subscriptions = list(session.subscriptions.values())
        self._routes.remove_all(session)
        self._outgoing.clear(session, now, self._hand_on)
        if self._observer is not None:
            for subscription in subscriptions:
                self._observer.unsubscribed(session, subscription, "session", now)
        if session.persistent:
            for subscription in subscriptions:
                self._journal.forget_subscription(session, subscription)
            for identifier in sorted(session.received):
                self._journal.forget_received(session, identifier)
            self._journal.forget_session(session)
            self._targets.forget(session)
        session.received.clear()
        self.past.add(session.accounts)
        if self.by_key.get(session.key) is session:
            del self.by_key[session.key]
            self._routes.quotas.close(session)

    def _hand_on(self, key: str, message: Message, now: float) -> bool:
        """Gives a message that a member of a shared subscription leaves behind to another one; returns whether there
        is any, or may be at other brokers."""
        traffic = self._routes.traffic
        if traffic is not None and not message.topic.startswith("$"):
            traffic.left.append((key, message))
            return True
        heir = self._routes.next_member(key, message)
        if heir is None:
            return False
        self._outgoing.deliver(heir, message, now)
        return True

    def expire(self, key: str, now: float) -> None:
        """Ends a session whose time is up; nothing happens if its client came back."""
        session = self.by_key.get(key)
        if session is None or session.connection is not None:
            return
        if session.ends_at <= now:
            self.end(session, now)
        elif session.ends_at != math.inf:
            self._timers.add(session.ends_at, "session", key)

    def set_lifetime(self, session: Session, expiry_s: int) -> None:
        """A DISCONNECT changes how long the session lasts (MQTT 5.0, section 3.14.2.2.2)."""
        asked = math.inf if expiry_s == FOR_EVER else float(expiry_s)
        lifetime_s = min(asked, float(self.settings.session_expiry_max_s or math.inf))
        if session.persistent and not lifetime_s:
            self._forget(session)
        session.lifetime_s = lifetime_s
        if self._routes.traffic is not None:
            self._routes.traffic.note(session)

    def _forget(self, session: Session) -> None:
        """The session is not to outlive its connection any more: it leaves the disk."""
        self._outgoing.forget(session)
        for subscription in session.subscriptions.values():
            self._journal.forget_subscription(session, subscription)
        for identifier in sorted(session.received):
            self._journal.forget_received(session, identifier)
        self._journal.forget_session(session)
        self._targets.forget(session)
        session.monitor = None
