"""Ends connections: refusal with a CONNACK, DISCONNECT with a reason code, or a close without a word."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from surecast.protocol.broker.connection import Connection, Phase
from surecast.protocol.broker.observer import ConnectionHooks, Counters
from surecast.protocol.broker.sessions import Sessions
from surecast.protocol.mqtt import (
    ALLOWED_REASONS,
    V5,
    V311,
    Connack,
    Disconnect,
    PacketError,
    Properties,
    ReasonCode,
    encode,
)

__all__ = ["Disconnecting"]

_TEXT_MAX: Final = 1_000


class Disconnecting:
    """Ends connections: by refusal, by a DISCONNECT, or without one."""

    def __init__(self, sessions: Sessions, dirty: set[Connection], counters: Counters, hooks: ConnectionHooks):
        self._sessions = sessions
        self._dirty = dirty
        self._counters = counters
        self._hooks = hooks

    def disconnect(self, connection: Connection, reason: ReasonCode, now: float, text: str = "") -> None:
        """The broker ends a connection and says why, where the protocol has a word for it."""
        if connection.is_closed():
            return
        if connection.phase is Phase.OPEN and connection.version_5:
            packet = encode(Disconnect(reason), V5)
            if text and connection.explains:
                longer = encode(Disconnect(reason, Properties(reason_string=text[:_TEXT_MAX])), V5)
                packet = longer if len(longer) <= connection.packet_bytes_max else packet
            connection.out.append(packet)
        self.close(connection, now, text or reason.name.lower().replace("_", " "), with_will=True)

    def malformed(self, connection: Connection, error: PacketError, now: float) -> None:
        """A client broke the protocol."""
        if error.limit:
            self._counters.limited[error.limit] += 1
        else:
            self._counters.protocol_errors += 1
        self._counters.notice(f"{connection.name}: {error}")
        if connection.phase is Phase.OPEN:
            self.disconnect(connection, error.reason_code, now, str(error))
            return
        version = error.version
        reason = error.reason_code
        if version is not None and (version == V5 or reason == ReasonCode.UNSUPPORTED_PROTOCOL_VERSION):
            if reason not in ALLOWED_REASONS["CONNACK"]:
                # A packet behind the CONNECT broke the protocol before the CONNECT was answered.
                reason = ReasonCode.PROTOCOL_ERROR
            connection.out.append(encode(Connack(False, reason), V5 if version >= V5 else V311))
        self.close(connection, now, str(error), with_will=False)

    def refuse(self, connection: Connection, reason: ReasonCode, text: str, server: str | None = None) -> None:
        """A CONNECT is not accepted, and maybe is by another server."""
        self._counters.refused += 1
        version = V5 if connection.version_5 else V311
        told = Properties(server_reference=server) if version == V5 else Properties()
        packet = encode(Connack(False, reason, told), version)
        limit = connection.packet_bytes_max
        if connection.connect is not None:
            limit = connection.connect.properties.maximum_packet_size or limit
        if text and version == V5:
            longer = encode(Connack(False, reason, replace(told, reason_string=text[:_TEXT_MAX])), V5)
            packet = longer if len(longer) <= limit else packet
        if len(packet) <= limit:
            connection.out.append(packet)
        name = connection.connect.client_id if connection.connect is not None else ""
        why = text or reason.name.lower().replace("_", " ")
        self._counters.notice(f"{name or connection.origin.peer} refused: {why}")
        self._shut(connection)
        self._hooks.refused(connection, why)

    def close(self, connection: Connection, now: float, reason: str, with_will: bool) -> None:
        """A connection is over, whoever ended it."""
        client = connection.session.client if connection.session is not None else ""
        self._shut(connection)
        self._sessions.close(connection, now, reason, with_will)
        self._hooks.closed(connection, client, reason)

    def _shut(self, connection: Connection) -> None:
        connection.phase = Phase.CLOSED
        connection.clearance = None
        connection.held = []
        self._dirty.add(connection)
