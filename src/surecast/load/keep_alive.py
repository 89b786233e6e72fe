"""Keep-alive of the connections of a process: a PINGREQ on each, twice in the interval."""

from __future__ import annotations

import time

from surecast.load.socket_loop import SocketLoop

__all__ = ["KeepAlive"]


class KeepAlive:
    """Sends PINGREQ on all connections of a loop when it is time; never where the interval is 0."""

    def __init__(self, loop: SocketLoop, interval_s: float):
        self._loop = loop
        self._interval_s = interval_s / 2
        self._next_s = time.monotonic() + self._interval_s

    def look(self) -> None:
        """Sends them if it is time."""
        if self._interval_s and time.monotonic() >= self._next_s:
            self._next_s += self._interval_s
            self._loop.ping()
