"""Keep-alive: closes connections whose clients are silent for too long (MQTT 5.0, section 3.1.2.10)."""

from __future__ import annotations

from typing import Final

from surecast.protocol.broker.broker_settings import BrokerSettings
from surecast.protocol.broker.connection import Connection, Phase
from surecast.protocol.broker.disconnecting import Disconnecting
from surecast.protocol.broker.timers import Timers
from surecast.protocol.mqtt import Connect, ReasonCode

__all__ = ["KeepAlive", "server_keep_alive_s", "silence_max_s"]

_GRACE: Final = 1.5  # [MQTT-3.1.2-22]


def server_keep_alive_s(settings: BrokerSettings, connect: Connect) -> int | None:
    """The keep-alive that the broker imposes, None if the client's own stands."""
    limit = settings.keep_alive_max_s
    return limit if limit and (connect.keep_alive_s == 0 or connect.keep_alive_s > limit) else None


def silence_max_s(settings: BrokerSettings, connect: Connect) -> float:
    """Returns how long a client may be silent: one and a half times its keep-alive; 0 for as long as it likes."""
    return _GRACE * (server_keep_alive_s(settings, connect) or connect.keep_alive_s)


class KeepAlive:
    """Watches connections: that a CONNECT comes in time, and then that the client is not silent for too long.

    Where it does not watch, somebody else sees to silent connections.
    """

    def __init__(self, timers: Timers, disconnecting: Disconnecting, watches: bool):
        self._timers = timers
        self._disconnecting = disconnecting
        self._watches = watches

    def await_connect(self, connection: Connection, timeout_s: float, now: float) -> None:
        """Begins to wait for the CONNECT of a new connection."""
        if self._watches:
            self._timers.add(now + timeout_s, "connect", connection.number)

    def watch(self, connection: Connection, now: float) -> None:
        """Begins to watch an accepted connection."""
        if connection.silence_max_s and self._watches:
            self._timers.add(now + connection.silence_max_s, "silence", connection.number)

    def forget(self, connection: Connection) -> None:
        """Watches a connection no longer."""
        self._timers.cancel("connect", connection.number)
        self._timers.cancel("silence", connection.number)

    def check(self, connection: Connection, kind: str, now: float) -> None:
        """Closes a connection whose time is up, and looks again later at one that was not silent."""
        if kind == "connect":
            if connection.phase is Phase.NEW:
                self._disconnecting.close(connection, now, "no CONNECT in time", with_will=False)
            return
        if connection.phase is not Phase.OPEN:
            return
        due_at = connection.heard_at + connection.silence_max_s
        if due_at <= now:
            self._disconnecting.disconnect(connection, ReasonCode.KEEP_ALIVE_TIMEOUT, now)
        else:
            self._timers.add(due_at, "silence", connection.number)
