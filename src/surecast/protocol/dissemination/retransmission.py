"""Packets that are sent again, over one hop, until they are acknowledged, tried often enough or useless.

Acknowledgements are selective: each says which packet it answers, which transmission of it, and all that has come.
Links keep the order of packets, so that one which was sent before an acknowledged one and has not come is lost, and is
sent again at once. Only where nothing is heard any more is there a timer, for the end of an event: it waits for a round
trip as the neighbour's are, and then sends the oldest packet again, the answer to which says what else is missing.

Round trips are taken from packets that were alone under way, so that waiting behind others is no part of them: their
smoothed mean, and four times their smoothed deviation.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, TypeAlias

from surecast.protocol.dissemination.dissemination_messages import Data, HopAck, SendTo
from surecast.protocol.dissemination.timer_queue import TimerQueue

__all__ = ["PendingAcks"]

_Key: TypeAlias = tuple[int, int, int]
"""Neighbour, event and generation."""
_MEAN: Final = 1 / 8
_DEVIATION: Final = 1 / 4
GRACE_S: Final = 0.01
"""The least that is waited beyond the mean round trip."""
DOUBLINGS_MAX: Final = 1
"""Consecutive doublings of the wait; few, as links have capacities of their own and deadlines are near."""


class _Waiting(NamedTuple):
    data: Data
    sent_s: float
    order: int
    is_alone: bool


@dataclass(slots=True)
class _Batch:
    """The packets of one generation that wait, by number, and how often in a row nothing was heard of them."""

    packets: dict[int, _Waiting] = field(default_factory=dict)
    silences: int = 0


class PendingAcks:
    """Packets that wait for an acknowledgement.

    `counts` has the packets sent `again`, those it `gave up`, and those not kept because it was `full`.

    >>> from surecast.protocol.coding import VectorKind, Packet
    >>> waiting = PendingAcks(first_s=0.1, tries_max=3, size_max=10)
    >>> for number in range(3):
    ...     sent = waiting.sent(5, Data(0, number, 9.0, Packet(1, 3, 0, 3, VectorKind.PLAIN, b"x"), attempt=1), now=0.0)
    >>> [send.message.number for send in waiting.acknowledged(5, HopAck(1, 0, 1, 1, 0b010), now=0.02)]
    [0]
    >>> waiting.acknowledged(5, HopAck(1, 0, 0, 2, 0b111), now=0.04), waiting.next_timer()
    ([], inf)
    """

    def __init__(self, first_s: float, tries_max: int, size_max: int):
        self.first_s = first_s
        self.tries_max = tries_max
        self.size_max = size_max
        self.counts: Counter[str] = Counter()
        self._batches: dict[_Key, _Batch] = {}
        self._size = 0
        self._order = 0
        self._trips: dict[int, tuple[float, float]] = {}
        self._alarms: TimerQueue[_Key] = TimerQueue()

    def __len__(self) -> int:
        return self._size

    def sent(self, to: int, data: Data, now: float) -> Data:
        """Takes note that a packet is sent for the first time. Returns it as it is to be sent."""
        data = replace(data, attempt=1)
        if self._size >= self.size_max:
            self.counts["full"] += 1
            return data
        key = (to, data.packet.event_id, data.packet.generation)
        batch = self._batches.setdefault(key, _Batch())
        self._size += data.number not in batch.packets
        self._order += 1
        batch.packets[data.number] = _Waiting(data, now, self._order, not batch.packets)
        self._wait(key, batch, now)
        return data

    def acknowledged(self, sender: int, ack: HopAck, now: float) -> list[SendTo] | None:
        """Takes an acknowledgement. Returns the packets that it shows to be lost, to be sent again.

        None if no packet waited for it.
        """
        key = (sender, ack.event_id, ack.generation)
        batch = self._batches.get(key)
        if batch is None:
            return None
        order = 0
        answered = batch.packets.get(ack.number)
        if answered is not None and answered.data.attempt == ack.attempt:
            order = answered.order
            if answered.is_alone:
                self._learn(sender, now - answered.sent_s)
        for number in [n for n in batch.packets if n == ack.number or ack.received >> n & 1]:
            self._forget(batch, number)
        batch.silences = 0
        lost = [number for number in sorted(batch.packets) if batch.packets[number].order < order]
        out = [send for number in lost for send in self._again(key, batch, number, now)]
        self._wait(key, batch, now)
        return out

    def wait_s(self, to: int) -> float:
        """Returns the time that a neighbour may be silent before a packet is sent again for the first time."""
        if to not in self._trips:
            return self.first_s
        mean_s, deviation_s = self._trips[to]
        return mean_s + max(4 * deviation_s, GRACE_S)

    def next_timer(self) -> float:
        return self._alarms.next()

    def handle_timer(self, now: float) -> list[SendTo]:
        """Sends the oldest packet again where a neighbour is silent; after that it waits twice as long."""
        out: list[SendTo] = []
        for key in self._alarms.due(now):
            batch = self._batches[key]
            batch.silences += 1
            useless = [number for number, packet in batch.packets.items() if now >= packet.data.deadline_s]
            oldest = [] if useless else [min(batch.packets, key=lambda number: batch.packets[number].order)]
            for number in useless + oldest:
                out += self._again(key, batch, number, now)
            self._wait(key, batch, now)
        return out

    def _again(self, key: _Key, batch: _Batch, number: int, now: float) -> list[SendTo]:
        data = batch.packets[number].data
        if data.attempt >= self.tries_max or now >= data.deadline_s:
            self._forget(batch, number)
            self.counts["gave up"] += 1
            return []
        self._order += 1
        data = replace(data, attempt=data.attempt + 1)
        batch.packets[number] = _Waiting(data, now, self._order, len(batch.packets) == 1)
        self.counts["again"] += 1
        return [SendTo(key[0], data)]

    def _wait(self, key: _Key, batch: _Batch, now: float) -> None:
        if batch.packets:
            self._alarms.set(key, now + self.wait_s(key[0]) * 2.0 ** min(batch.silences, DOUBLINGS_MAX))
        else:
            self._alarms.clear(key)
            del self._batches[key]

    def _forget(self, batch: _Batch, number: int) -> None:
        del batch.packets[number]
        self._size -= 1

    def _learn(self, neighbour: int, trip_s: float) -> None:
        mean_s, deviation_s = self._trips.get(neighbour, (trip_s, trip_s / 2))
        deviation_s += _DEVIATION * (abs(trip_s - mean_s) - deviation_s)
        self._trips[neighbour] = (mean_s + _MEAN * (trip_s - mean_s), deviation_s)
