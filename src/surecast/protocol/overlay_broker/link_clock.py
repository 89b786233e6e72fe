"""The clock of the broker at the other end of a connection, as far as pings and their answers tell."""

from __future__ import annotations

from collections import deque
from typing import Final

from surecast.protocol.overlay.link_frames import Ping, Pong

__all__ = ["LinkClock"]

_SAMPLES: Final = 16


class LinkClock:
    """The pings of one connection, and what their answers say.

    >>> clock = LinkClock()
    >>> ping = clock.ping(now=5.0)
    >>> clock.take(Pong(ping.number, ping.sent_s, answered_s=9.0), now=5.5)
    >>> clock.round_trip_s, clock.ahead_s
    (0.5, 3.75)
    """

    def __init__(self) -> None:
        self.ahead_s = 0.0
        """By how much the clock of the other end is ahead; 0 where it may be none."""
        self.round_trip_s = 0.0
        """The shortest time of the last pings until they were answered."""
        self._pings = 0
        self._pong: Pong | None = None
        self._samples: deque[tuple[float, float]] = deque(maxlen=_SAMPLES)

    def ping(self, now: float) -> Ping:
        """Returns a question whether the other end is there."""
        self._pings += 1
        return Ping(self._pings & 0xFFFF_FFFF, now)

    def take(self, received: Ping | Pong, now: float) -> None:
        """Takes in a ping, whose answer is due, or an answer.

        The clock is that of the answer that took the shortest time; a difference that this time can explain is none.
        """
        if isinstance(received, Ping):
            self._pong = Pong(received.number, received.sent_s, now)  # only the last, however many there are
        elif now >= received.sent_s:
            round_trip_s = now - received.sent_s
            self._samples.append((round_trip_s, received.answered_s - (received.sent_s + now) / 2))
            self.round_trip_s, ahead_s = min(self._samples)
            self.ahead_s = ahead_s if abs(ahead_s) > self.round_trip_s else 0.0

    def answers(self) -> list[Pong]:
        """Returns the answer that is due, if there is one."""
        pong, self._pong = self._pong, None
        return [] if pong is None else [pong]
