"""The messages that wait for a session: single ones, and runs of messages that came together."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from surecast.protocol.broker.message import Delivery, Message
from surecast.protocol.broker.message_batch import MessageBatch

__all__ = ["WaitingQueue", "WaitingRun"]


class WaitingRun:
    """Messages of a batch, from `begin` on and before `stop`, that wait; `sequence` is the place of the first."""

    __slots__ = ("begin", "sequence", "source", "stop")

    def __init__(self, source: MessageBatch, begin: int, stop: int, sequence: int):
        self.source = source
        self.begin = begin
        self.stop = stop
        self.sequence = sequence

    def deliveries(self) -> Iterator[Delivery]:
        """Yields the messages as entries of their own."""
        messages = self.source.messages
        for sequence, at in enumerate(range(self.begin, self.stop), self.sequence):
            yield Delivery(messages[at], 1, False, (), sequence)


class WaitingQueue:
    """The messages that wait for one session, in order. Those that came together stay together where that is possible.

    Messages in runs have QoS 1 and never expire. Iterating gives one entry for each message, made for the purpose where
    it is in a run; `unpacked` gives them each an entry that stays.

    >>> queue = WaitingQueue()
    >>> queue.append(Delivery(None, 1, False, (), 7))
    >>> len(queue), [delivery.sequence for delivery in queue], queue.popleft().sequence, bool(queue.entries)
    (1, [7], 7, False)
    """

    __slots__ = ("_count", "_runs", "entries")

    def __init__(self) -> None:
        self.entries: deque[Delivery | WaitingRun] = deque()
        """The queue as it is kept; it is to be changed by the methods alone, but may be looked at."""
        self._count = 0
        self._runs = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Delivery]:
        for entry in self.entries:
            if isinstance(entry, WaitingRun):
                yield from entry.deliveries()
            else:
                yield entry

    def append(self, delivery: Delivery) -> None:
        """Adds a message at the end."""
        self.entries.append(delivery)
        self._count += 1

    def extend(self, deliveries: Iterable[Delivery]) -> None:
        """Adds messages at the end."""
        before = len(self.entries)
        self.entries.extend(deliveries)
        self._count += len(self.entries) - before

    def append_run(self, run: WaitingRun) -> None:
        """Adds messages that came together at the end."""
        self.entries.append(run)
        self._runs += 1
        self._count += run.stop - run.begin

    def popleft(self) -> Delivery:
        """Takes out the message that has waited longest."""
        entry = self.entries[0]
        if isinstance(entry, WaitingRun):
            delivery = next(entry.deliveries())
            self.skip(entry, 1)
            return delivery
        self._count -= 1
        del self.entries[0]
        return entry

    def skip(self, run: WaitingRun, count: int) -> None:
        """Takes so many messages out of the first run, which is the first entry."""
        run.begin += count
        run.sequence += count
        self._count -= count
        if run.begin == run.stop:
            del self.entries[0]
            self._runs -= 1

    def unpacked(self) -> deque[Delivery]:
        """Returns the messages, each as an entry of its own, of which each may be looked at for long."""
        if self._runs:
            self.entries = deque(self)
            self._runs = 0
        return self.entries  # type: ignore[return-value]

    def remove(self, delivery: Delivery) -> None:
        """Takes out one of the entries that `unpacked` gave."""
        self.entries.remove(delivery)
        self._count -= 1

    def remove_last(self) -> None:
        """Takes out the last of the entries that `unpacked` gave."""
        del self.entries[-1]
        self._count -= 1

    def clear(self) -> None:
        """Takes all out."""
        self.entries.clear()
        self._count = self._runs = 0

    def take_expired(self, now: float, expires_at: Callable[[Message], float]) -> tuple[list[Delivery], float]:
        """Takes out the messages that have expired; with when the next will."""
        expired: list[Delivery] = []
        kept: deque[Delivery | WaitingRun] = deque()
        next_at = math.inf
        for entry in self.entries:
            if not isinstance(entry, WaitingRun):
                at = expires_at(entry.message)
                if at <= now:
                    expired.append(entry)
                    continue
                next_at = min(next_at, at)
            kept.append(entry)
        self.entries = kept
        self._count -= len(expired)
        return expired, next_at
