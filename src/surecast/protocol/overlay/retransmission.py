"""When events in custody are sent again: at every link-up, or blindly at an interval (*reliability* section 2.4.2)."""

from __future__ import annotations

from heapq import heappop, heappush
from math import floor, inf

from surecast.protocol.overlay.custody import Custody, HeldBatch
from surecast.protocol.overlay.event_id import EventId

__all__ = ["Retransmission"]


class Retransmission:
    """The times at which events in custody are sent again, counted from when this broker took them.

    With an interval of 0 nothing is due by time: what waits for a neighbour is sent as soon as its link is up.

    >>> from surecast.protocol.overlay.overlay_frames import EventBatch
    >>> custody, again = Custody([]), Retransmission(10.0)
    >>> held = custody.take(0, EventBatch(EventId("b1", 1, 0), 1, "stock", published_s=5.0, qos=1), {"b2": 1})
    >>> again.began(held, now=5.0)
    >>> again.next_timer(custody), len(again.due(custody, now=15.0)), again.next_timer(custody)
    (15.0, 1, 25.0)
    """

    def __init__(self, interval_s: float):
        self.interval_s = interval_s
        self._due: list[tuple[float, EventId]] = []
        self._since_start: dict[str, list[EventId]] = {}

    def began(self, held: HeldBatch, now: float) -> None:
        """Notes that the broker took events, and tried to send them."""
        if self.interval_s:
            heappush(self._due, (now + self.interval_s, held.batch.first))

    def restored(self, custody: Custody, hops: list[str], now: float) -> None:
        """Notes what a broker that was just started has in custody: it is due when each link comes up first."""
        if not self.interval_s:
            return
        for hop in hops:
            self._since_start[hop] = [held.batch.first for held in custody.waiting_for(hop)]
        for first in dict.fromkeys(first for firsts in self._since_start.values() for first in firsts):
            heappush(self._due, (now + self.interval_s, first))

    def due_at_link_up(self, custody: Custody, hop: str) -> list[HeldBatch]:
        """Returns what a restarted broker has not tried to send to a neighbour whose link has come up."""
        waiting = {held.batch.first: held for held in custody.waiting_for(hop)} if hop in self._since_start else {}
        return [waiting[first] for first in self._since_start.pop(hop, ()) if first in waiting]

    def due(self, custody: Custody, now: float) -> list[HeldBatch]:
        """Returns the events to be sent again now."""
        due: dict[EventId, HeldBatch] = {}
        while self.next_timer(custody) <= now:
            due_s, first = heappop(self._due)
            held = custody.get(first)
            if held is not None:
                due[first] = held
                missed = floor((now - due_s) / self.interval_s)
                heappush(self._due, (due_s + (missed + 1) * self.interval_s, first))
        return list(due.values())

    def next_timer(self, custody: Custody) -> float:
        """Returns when the next events are due."""
        while self._due and custody.get(self._due[0][1]) is None:
            heappop(self._due)
        return self._due[0][0] if self._due else inf
