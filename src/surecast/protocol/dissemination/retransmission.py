"""Packets that are sent again, over one hop, until they are acknowledged, tried often enough or useless.

How long an acknowledgement is waited for follows the round trips of the neighbour, measured on packets that were sent
once only: their smoothed mean and four times their smoothed deviation, and never less than the time set.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple, TypeAlias

from surecast.protocol.dissemination.alarms import Alarms
from surecast.protocol.dissemination.messages import Ack, Data, Send

__all__ = ["Retransmission"]

_Key: TypeAlias = tuple[int, int, int, int]
_MEAN: Final = 1 / 8
_DEVIATION: Final = 1 / 4


class _Waiting(NamedTuple):
    data: Data
    tries: int
    sent_s: float


class Retransmission:
    """What waits for an acknowledgement. `counts` says how often it sent `again`, `gave up`, or had no room (`full`).

    >>> from surecast.protocol.coding import Kind, Packet
    >>> waiting = Retransmission(first_s=0.1, tries_max=3, size_max=10)
    >>> waiting.sent(5, Data(0, 2, 9.0, Packet(1, 1, 0, 1, Kind.PLAIN, b"x"), reliable=True), now=0.0)
    >>> len(waiting.handle_timer(0.1)), round(waiting.next_timer(), 3)
    (1, 0.3)
    >>> waiting.acknowledged(5, Ack(1, 0, 2), now=0.2), waiting.next_timer()
    (True, inf)
    """

    def __init__(self, first_s: float, tries_max: int, size_max: int):
        self.first_s = first_s
        self.tries_max = tries_max
        self.size_max = size_max
        self.counts: Counter[str] = Counter()
        self._waiting: dict[_Key, _Waiting] = {}
        self._trips: dict[int, tuple[float, float]] = {}
        self._alarms: Alarms[_Key] = Alarms()

    def __len__(self) -> int:
        return len(self._waiting)

    def sent(self, to: int, data: Data, now: float) -> None:
        """A packet was sent for the first time."""
        if len(self._waiting) >= self.size_max:
            self.counts["full"] += 1
            return
        key = (to, data.packet.event_id, data.packet.generation, data.number)
        self._waiting[key] = _Waiting(data, 1, now)
        self._alarms.set(key, now + self.wait_s(to))

    def acknowledged(self, sender: int, ack: Ack, now: float) -> bool:
        """Takes an acknowledgement; whether something waited for it."""
        key = (sender, ack.event_id, ack.generation, ack.number)
        self._alarms.clear(key)
        waiting = self._waiting.pop(key, None)
        if waiting is None:
            return False
        if waiting.tries == 1:
            trip_s = now - waiting.sent_s
            mean_s, deviation_s = self._trips.get(sender, (trip_s, trip_s / 2))
            deviation_s += _DEVIATION * (abs(trip_s - mean_s) - deviation_s)
            self._trips[sender] = (mean_s + _MEAN * (trip_s - mean_s), deviation_s)
        return True

    def wait_s(self, to: int) -> float:
        """How long an acknowledgement of a neighbour is waited for at first."""
        mean_s, deviation_s = self._trips.get(to, (0.0, 0.0))
        return max(self.first_s, mean_s + 4 * deviation_s)

    def next_timer(self) -> float:
        return self._alarms.next()

    def handle_timer(self, now: float) -> list[Send]:
        """Sends again what is due, each time after twice the time."""
        out: list[Send] = []
        for key in self._alarms.due(now):
            data, tries, sent_s = self._waiting[key]
            if tries >= self.tries_max or now >= data.deadline_s:
                del self._waiting[key]
                self.counts["gave up"] += 1
                continue
            self._waiting[key] = _Waiting(data, tries + 1, sent_s)
            self._alarms.set(key, now + self.wait_s(key[0]) * 2.0**tries)
            self.counts["again"] += 1
            out.append(Send(key[0], data))
        return out
