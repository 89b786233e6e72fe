"""CONNECT: the session of a client, session take-over, and the CONNACK (MQTT 5.0, sections 3.1 and 3.2)."""

from __future__ import annotations

import math
from dataclasses import replace

from surecast.protocol.broker.connection import Connection, Phase
from surecast.protocol.broker.disconnecting import Disconnecting
from surecast.protocol.broker.keep_alive import KeepAlive, server_keep_alive_s, silence_max_s
from surecast.protocol.broker.observer import ConnectionHooks, Observer
from surecast.protocol.broker.outgoing import Outgoing
from surecast.protocol.broker.routes import Routes
from surecast.protocol.broker.sessions import FOR_EVER, ConnectRefusedError, Sessions
from surecast.protocol.mqtt import V5, V31, V311, Connack, Connect, Properties, ReasonCode, encode

__all__ = ["Connecting"]


class Connecting:
    """Accepts the CONNECT of a client whose credentials are right."""

    def __init__(
        self,
        sessions: Sessions,
        routes: Routes,
        outgoing: Outgoing,
        disconnecting: Disconnecting,
        keep_alive: KeepAlive,
        dirty: set[Connection],
        observer: Observer | None,
        hooks: ConnectionHooks,
    ):
        self._sessions = sessions
        self._routes = routes
        self._outgoing = outgoing
        self._disconnecting = disconnecting
        self._keep_alive = keep_alive
        self._dirty = dirty
        self._observer = observer
        self._hooks = hooks

    def accept(self, connection: Connection, connect: Connect, now: float) -> None:
        """Gives a connection its session, which another connection may lose, and answers with a CONNACK."""
        traffic = self._routes.traffic
        if traffic is not None and traffic.elsewhere is not None:
            server = traffic.elsewhere(connection.user, connect, now)
            if server:
                text = f"the session is at {server}"
                self._disconnecting.refuse(connection, ReasonCode.USE_ANOTHER_SERVER, text, server)
                return
        if traffic is not None and traffic.waits is not None and traffic.waits(connection, connect, now):
            connection.phase = Phase.CHECKING
            return
        self._take_over(connection, connect, now)
        try:
            session, was_there, assigned = self._sessions.open(connection, connect, now)
        except ConnectRefusedError as refusal:
            self._disconnecting.refuse(connection, refusal.reason, str(refusal))
            return
        self._allow(connection, connect, now)
        # Groups of routes were made before the connection's limits were known.
        self._routes.changed(session)
        connack = self._connack(connection, connect, was_there, assigned)
        self._dirty.add(connection)
        if len(connack) > connection.packet_bytes_max:
            # Without it the client would not know what holds for it.
            why = "the client takes no packet as large as the CONNACK"
            self._disconnecting.close(connection, now, why, with_will=False)
            return
        connection.out.append(connack)
        self._keep_alive.watch(connection, now)
        if self._observer is not None:
            self._observer.connected(session, now)
        self._hooks.accepted(connection)
        self._outgoing.resume(session, now)

    def _take_over(self, connection: Connection, connect: Connect, now: float) -> None:
        """Session take-over: disconnects the connection that has the session of this client [MQTT-3.1.4-3]."""
        present = self._sessions.of(connection, connect)
        if present is not None and present.connection is not None:
            self._disconnecting.disconnect(present.connection, ReasonCode.SESSION_TAKEN_OVER, now)

    def _allow(self, connection: Connection, connect: Connect, now: float) -> None:
        """Sets what a connection may do from now on."""
        settings, asked = self._sessions.settings, connect.properties
        session = connection.session
        assert session is not None
        connection.phase = Phase.OPEN
        connection.limits = session.limits
        connection.known_aliases_max = settings.topic_alias_max
        connection.decoder.limit(session.limits.packet_bytes_max)
        self._sessions.set_pace(connection, session.limits, now)
        connection.connected_at = now
        connection.explains = asked.request_problem_information is not False
        connection.packet_bytes_max = asked.maximum_packet_size or connection.packet_bytes_max
        connection.aliases_max = min(asked.topic_alias_maximum or 0, settings.topic_alias_max)
        connection.silence_max_s = silence_max_s(settings, connect)
        connection.connect = replace(connect, password=None)

    def _connack(self, connection: Connection, connect: Connect, present: bool, assigned: str) -> bytes:
        """The CONNACK of an accepted connection, with the limits that differ from what the client may assume."""
        session = connection.session
        assert session is not None
        settings, limits = self._sessions.settings, session.limits
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
