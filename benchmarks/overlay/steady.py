"""Events at fixed times, each with its number: how long each takes, and which are lost or come twice.

The time of an event counts from when it was to be sent, not from when it was sent: a generator or a broker that falls
behind makes times longer, never the sample smaller.
"""

from __future__ import annotations

import select
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.broker.shapes import PAYLOAD_BYTES, SPREAD_BYTES
from benchmarks.overlay.clients import Feed, Sink

__all__ = ["Steady", "quantile"]

_WAY_S = 20.0
_QUIET_S = 1.0
_DRAIN_S = 15.0


@dataclass
class Steady:
    """A publisher and a subscriber between which events flow at a rate."""

    feed: Feed
    sink: Sink
    rate_per_s: float
    first: int = 0
    begin: float = 0.0
    count: int = 0
    arrivals: list[tuple[float, int]] = field(default_factory=list)
    longest_pause_s: float = 0.0
    """The longest time for which this process itself did not look."""

    def await_way(self, settle_s: float = 0.3) -> None:
        """Sends until events come out, and waits until none is under way; they do not count."""
        until = time.perf_counter() + _WAY_S
        while not self.arrivals:
            if time.perf_counter() > until:
                raise ConnectionError(f"no event came through in {_WAY_S:g} s")
            self._publish(self.first)
            self.first += 1
            self._listen(0.05)
        self._until_quiet(settle_s, _WAY_S)
        self.arrivals.clear()

    def run(self, seconds: float, actions: list[tuple[float, Callable[[], None]]] | None = None) -> None:
        """Sends at fixed times; each action happens at its time after the beginning."""
        pending = sorted(actions or [], key=lambda action: action[0])
        period, clock = 1.0 / self.rate_per_s, time.perf_counter
        if not self.count:
            self.begin = clock() + period
        end = self.begin + self.count * period + seconds
        start = self.begin + self.count * period
        looked = clock()
        while (now := clock()) < end:
            self.longest_pause_s = max(self.longest_pause_s, now - looked)
            looked = now
            due = self.begin + self.count * period
            while due <= now and due < end:
                self._publish(self.first + self.count)
                self.count += 1
                due = self.begin + self.count * period
            while pending and start + pending[0][0] <= now:
                pending.pop(0)[1]()
            wake = min(due, start + pending[0][0]) if pending else due
            self._listen(max(0.0, min(wake, end) - clock()))
        for _, action in pending:
            action()

    def drain(self, quiet_s: float = _QUIET_S) -> None:
        """Waits until everything has come, or nothing comes any more."""
        self._until_quiet(quiet_s, _DRAIN_S, lambda: self.missing() == 0)

    def _until_quiet(self, quiet_s: float, most_s: float, enough: Callable[[], bool] = lambda: False) -> None:
        begin = since = time.perf_counter()
        while not enough():
            before = len(self.arrivals)
            self._listen(0.05)
            now = time.perf_counter()
            if len(self.arrivals) > before:
                since = now
            if now - since > quiet_s or now - begin > most_s:
                return

    def _publish(self, number: int) -> None:
        size = PAYLOAD_BYTES + number * 73 % SPREAD_BYTES
        self.feed.publish(number, number.to_bytes(4, "big").ljust(size, b"x"))

    def _listen(self, timeout_s: float) -> None:
        feed, sink = self.feed.client, self.sink.client
        for client in select.select((feed, sink), (), (), timeout_s)[0]:
            if client is feed:
                self.feed.hear()
            else:
                now = time.perf_counter()
                for number in self.sink.hear():
                    self.arrivals.append((now, number))

    def due(self, number: int) -> float:
        """The time at which an event was to be sent."""
        return self.begin + (number - self.first) / self.rate_per_s

    def missing(self) -> int:
        """Events that were sent and have not come."""
        return self.count - len(self._numbers())

    def _numbers(self) -> set[int]:
        return {number for _, number in self.arrivals if number >= self.first}

    def lost(self) -> tuple[int, int]:
        """Events that never came: of all, and of those that the broker had acknowledged."""
        absent = set(range(self.first, self.first + self.count)) - self._numbers()
        acknowledged = self.feed.acknowledged
        return len(absent), len(absent if acknowledged is None else absent & acknowledged)

    def doubled(self) -> int:
        """Arrivals of events that had come before."""
        numbers = [number for _, number in self.arrivals if number >= self.first]
        return len(numbers) - len(set(numbers))

    def disordered(self) -> int:
        """Arrivals behind an event with a higher number."""
        highest, late = -1, 0
        for _, number in self.arrivals:
            late += number < highest
            highest = max(highest, number)
        return late

    def unacknowledged(self) -> int:
        """Events that the broker has not acknowledged, where it acknowledges."""
        acknowledged = self.feed.acknowledged
        if acknowledged is None:
            return 0
        return self.count - sum(number >= self.first for number in acknowledged)

    def delays_s(self) -> array[float]:
        """The time from when it was to be sent to when it came, of every event that came."""
        return array("d", sorted(when - self.due(number) for when, number in self.arrivals if number >= self.first))

    def longest_gap(self, begin: float, end: float) -> tuple[float, float]:
        """The longest time without an arrival that ends after `begin` and begins before `end`: from when to when."""
        times = sorted(when for when, _ in self.arrivals)
        last = max((when for when in times if when <= begin), default=begin)
        later = [when for when in times if when > begin]
        if not later or later[-1] < end:
            later.append(end)
        longest = (last, last)
        for when in later:
            longest = max(longest, (last, when), key=lambda gap: gap[1] - gap[0])
            if when > end:
                break
            last = when
        return longest

    def close(self) -> None:
        """Ends both connections."""
        self.feed.client.close()
        self.sink.client.close()


def quantile(ordered: array[float], share: float) -> float:
    """A quantile of sorted values; nan if there is none."""
    return ordered[int(share * (len(ordered) - 1))] if ordered else float("nan")
