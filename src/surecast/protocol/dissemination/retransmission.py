"""Packets that are sent again, over one hop, until they are acknowledged, tried often enough or useless."""

from __future__ import annotations

from collections import Counter
from typing import TypeAlias

from surecast.protocol.dissemination.alarms import Alarms
from surecast.protocol.dissemination.messages import Ack, Data, Send

__all__ = ["Retransmission"]

_Key: TypeAlias = tuple[int, int, int, int]


class Retransmission:
    """What waits for an acknowledgement. `counts` says how often it sent `again`, `gave up`, or had no room (`full`).

    >>> from surecast.protocol.coding import Kind, Packet
    >>> waiting = Retransmission(first_s=0.1, tries_max=3, size_max=10)
    >>> waiting.sent(5, Data(0, 2, 9.0, Packet(1, 1, 0, 1, Kind.PLAIN, b"x"), reliable=True), now=0.0)
    >>> len(waiting.handle_timer(0.1)), round(waiting.next_timer(), 3)
    (1, 0.3)
    >>> waiting.acknowledged(5, Ack(1, 0, 2)), waiting.next_timer()
    (True, inf)
    """

    def __init__(self, first_s: float, tries_max: int, size_max: int):
        self.first_s = first_s
        self.tries_max = tries_max
        self.size_max = size_max
        self.counts: Counter[str] = Counter()
        self._waiting: dict[_Key, tuple[Data, int]] = {}
        self._alarms: Alarms[_Key] = Alarms()

    def __len__(self) -> int:
        return len(self._waiting)

    def sent(self, to: int, data: Data, now: float) -> None:
        """A packet was sent for the first time."""
        if len(self._waiting) >= self.size_max:
            self.counts["full"] += 1
            return
        key = (to, data.packet.event_id, data.packet.generation, data.number)
        self._waiting[key] = (data, 1)
        self._alarms.set(key, now + self.first_s)

    def acknowledged(self, sender: int, ack: Ack) -> bool:
        """Takes an acknowledgement; whether something waited for it."""
        key = (sender, ack.event_id, ack.generation, ack.number)
        self._alarms.clear(key)
        return self._waiting.pop(key, None) is not None

    def next_timer(self) -> float:
        return self._alarms.next()

    def handle_timer(self, now: float) -> list[Send]:
        """Sends again what is due, each time after twice the time."""
        out: list[Send] = []
        for key in self._alarms.due(now):
            data, tries = self._waiting[key]
            if tries >= self.tries_max or now >= data.deadline_s:
                del self._waiting[key]
                self.counts["gave up"] += 1
                continue
            self._waiting[key] = (data, tries + 1)
            self._alarms.set(key, now + self.first_s * 2.0**tries)
            self.counts["again"] += 1
            out.append(Send(key[0], data))
        return out
