"""The load generator: every publisher keeps a window of unacknowledged publications, or all keep a rate.

One thread, non-blocking sockets, everything encoded beforehand. Every acknowledgement is counted, and every delivery is
looked at: its publisher, its place in the publisher's order, and in the end the count.
"""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Protocol

import numpy as np
from benchmarks.broker.dialects import RING
from benchmarks.broker.load import send_all
from benchmarks.broker.shapes import PAYLOAD_BYTES, SPREAD_BYTES

__all__ = ["TOPIC", "Load", "Outcome", "Tongue", "run_load"]

TOPIC = "bench/00"
_BUFFER = 1 << 18
_ACKNOWLEDGEMENTS = 256  # bytes at least; a large buffer is dear to allocate, and what is left comes later
_DRAIN_S = 5.0
_NUMBERS = bytes(range(256)) * 1024  # more in a row than a buffer holds


@dataclass(frozen=True)
class Load:
    """The load: who publishes how much.

    `window` publications of each publisher are unacknowledged, at QoS 0 undelivered. With a `rate_per_s` the publishers
    take turns at fixed times instead. `subscribe_qos` is what the one subscriber asks for; with `persistent` its
    session outlives its connection. Payloads have equal lengths, or `varying` ones, the same for all systems.
    """

    name: str
    publishers: int
    window: int
    rate_per_s: float = 0.0
    publish_qos: int = 1
    subscribe_qos: int = 0
    persistent: bool = False
    varying: bool = False


class Tongue(Protocol):
    """A protocol as the generator needs it; the offsets count from the first byte of a delivery."""

    delivery_bytes: int
    payload_at: int
    first_byte: bytes
    acknowledgement_bytes: int

    def publisher(self, address: tuple[str, int], number: int) -> socket.socket:
        """A connection that may publish and hears its acknowledgements."""

    def subscriber(self, address: tuple[str, int]) -> socket.socket:
        """A connection that gets everything."""

    def publication(self, number: int, payload: bytes, identifier: int) -> bytes:
        """The bytes with which a publisher publishes a message."""

    def acknowledged(self, client: socket.socket, rest: bytes, data: bytes) -> tuple[int, bytes]:
        """Returns the number of acknowledgements in these bytes, and the rest; ConnectionError for a refusal."""

    def confirm(self, client: socket.socket, deliveries: np.ndarray[tuple[int, int], np.dtype[np.uint8]]) -> None:
        """Acknowledges deliveries, where the protocol wants that."""

    def places(self, buffer: bytearray, have: int) -> tuple[list[int], list[int], int, int]:
        """Finds deliveries of any length among the first bytes of a buffer.

        Returns where the payload of each begins, where its packet identifier is, how many bytes are whole, and how
        often the system asked whether the client is there.
        """

    def confirm_at(self, client: socket.socket, view: memoryview, identifiers: Sequence[int]) -> None:
        """Acknowledges the deliveries whose packet identifiers are at these places."""


@dataclass
class Times:
    """Times, each of so many messages."""

    values_s: list[float] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)

    def quantile_us(self, share: float) -> float:
        """A quantile over the messages, in microseconds."""
        if not self.values_s:
            return float("nan")
        order = np.argsort(self.values_s)
        sums = np.cumsum(np.asarray(self.counts)[order])
        at = int(np.searchsorted(sums, share * sums[-1]))
        return float(np.asarray(self.values_s)[order][at]) * 1e6

    def mean_us(self) -> float:
        """The mean over the messages, in microseconds."""
        return float(np.average(self.values_s, weights=self.counts)) * 1e6 if self.values_s else float("nan")


@dataclass
class Outcome:
    """The results of one run. `processor_s` is of each process of the system, the one that leads first."""

    acknowledged: int = 0
    delivered: int = 0
    elapsed_s: float = 0.0
    processor_s: tuple[float, ...] = ()
    own_processor_s: float = 0.0
    lost: int = 0
    disordered: int = 0
    unacknowledged: int = 0
    acknowledgement: Times = field(default_factory=Times)
    delivery: Times = field(default_factory=Times)

    @property
    def rate_per_s(self) -> float:
        """Acknowledged publications in a second."""
        return self.acknowledged / self.elapsed_s

    @property
    def cpu_us(self) -> float:
        """Processor time of all processes of the system for one publication."""
        return sum(self.processor_s) / max(1, self.acknowledged) * 1e6

    @property
    def leader_us(self) -> float:
        """Processor time of the first process for one publication."""
        return self.processor_s[0] / max(1, self.acknowledged) * 1e6

    @property
    def own_us(self) -> float:
        """Processor time of the generator for one publication."""
        return self.own_processor_s / max(1, self.acknowledged) * 1e6

    @property
    def is_sound(self) -> bool:
        """Returns whether everything was acknowledged and came, once and in order."""
        return not (self.lost or self.disordered or self.unacknowledged)


class _Publisher:
    """A connection that sends its ring of messages again and again."""

    def __init__(self, client: socket.socket, tongue: Tongue, number: int, varying: bool):
        self.client = client
        self.receive = client.recv
        self._send = client.send
        self.sent = 0
        self.acknowledged = 0
        self.rest = b""
        self.unacknowledged: deque[tuple[float, int]] = deque()
        self.on_way: deque[tuple[float, int]] = deque()
        each = [
            tongue.publication(
                number,
                bytes((number, i % 256)).ljust(PAYLOAD_BYTES + varying * ((i + 7 * number) * 73 % SPREAD_BYTES), b"x"),
                i + 1,
            )
            for i in range(RING)
        ]
        self._at = 0
        self._ends = [0, *accumulate(map(len, each * 2))]
        self._ring = memoryview(b"".join(each) * 2)

    def send(self, count: int, now: float, acknowledges: bool) -> None:
        at, ends = self._at, self._ends
        data = self._ring[ends[at] : ends[at + count]]
        self._at = (at + count) % RING
        self.sent += count
        one = (now, count)
        if acknowledges:
            self.unacknowledged.append(one)
        self.on_way.append(one)
        try:
            sent = self._send(data)
        except BlockingIOError:
            sent = 0
        if sent < len(data):
            send_all(self.client, data[sent:])


def _settle(waiting: deque[tuple[float, int]], count: int, now: float, times: Times) -> None:
    """The oldest that wait are done; their times are noted."""
    while count and waiting:
        sent, size = waiting.popleft()
        if size == count:  # the usual case
            times.values_s.append(now - sent)
            times.counts.append(count)
            return
        if size > count:
            waiting.appendleft((sent, size - count))
            size = count
        times.values_s.append(now - sent)
        times.counts.append(size)
        count -= size


class _Run:
    """All connections of one load, and the loop over them."""

    def __init__(
        self, load: Load, tongue: Tongue, entries: Sequence[tuple[str, int]], subscriber_at: tuple[str, int] | None
    ):
        self.load = load
        self.outcome = Outcome()
        self.delivered = 0
        self._tongue = tongue
        self._acknowledges = load.publish_qos > 0
        self._acknowledgements = max(_ACKNOWLEDGEMENTS, load.window * tongue.acknowledgement_bytes)
        self._epoll = select.epoll()
        self._buffer = bytearray(_BUFFER)
        self._view = memoryview(self._buffer)
        self._rest = b""
        self._following = [0] * load.publishers
        self._subscriber = tongue.subscriber(subscriber_at or entries[0])
        self._publishers: list[_Publisher] = []
        try:
            for number in range(load.publishers):
                client = tongue.publisher(entries[number % len(entries)], number)
                self._publishers.append(_Publisher(client, tongue, number, load.varying))
        except BaseException:
            self.close()
            raise
        self._by_file = {publisher.client.fileno(): publisher for publisher in self._publishers}
        for client in self._clients():
            client.setblocking(False)
            self._epoll.register(client.fileno(), select.EPOLLIN)

    def _clients(self) -> list[socket.socket]:
        return [self._subscriber, *(publisher.client for publisher in self._publishers)]

    @property
    def sent(self) -> int:
        return sum(publisher.sent for publisher in self._publishers)

    @property
    def acknowledged(self) -> int:
        return sum(publisher.acknowledged for publisher in self._publishers)

    def close(self) -> None:
        for client in self._clients():
            client.close()
        self._epoll.close()

    def begin(self) -> None:
        """Fills the windows."""
        now = time.perf_counter()
        for publisher in self._publishers:
            publisher.send(self.load.window, now, self._acknowledges)

    def keep_full(self, until: float) -> None:
        """Follows acknowledgements with as many publications."""
        while (now := time.perf_counter()) < until:
            self._take(self._epoll.poll(0.05), now, again=True)

    def keep_rate(self, until: float) -> None:
        """Publishers take turns at fixed times. It sleeps in between: a busy loop would take a core from the group."""
        publishers, period = self._publishers, 1.0 / self.load.rate_per_s
        epoll = self._epoll
        due, turn = time.perf_counter(), 0
        while (now := time.perf_counter()) < until:
            if now >= due:
                due = max(due, now - period) + period  # a pause of this machine must not become a burst
                publishers[turn].send(1, now, self._acknowledges)
                turn = (turn + 1) % len(publishers)
            # The timers of epoll are as coarse as a millisecond, those of select are not; and it is quick for one file.
            if select.select((epoll,), (), (), max(0.0, due - time.perf_counter()))[0]:
                self._take(epoll.poll(0), time.perf_counter(), again=False)

    def drain(self) -> None:
        """Waits for what is under way, as long as something comes."""
        quiet_since = time.perf_counter()
        while self.delivered < self.sent or (self._acknowledges and self.acknowledged < self.sent):
            ready = self._epoll.poll(0.05)
            now = time.perf_counter()
            if ready:
                self._take(ready, now, again=False)
                quiet_since = now
            elif now - quiet_since > _DRAIN_S:
                return

    def _take(self, ready: list[tuple[int, int]], now: float, again: bool) -> None:
        by_file, acknowledges, counted = self._by_file, self._acknowledges, self._tongue.acknowledged
        times, clock, buffer = self.outcome.acknowledgement, time.perf_counter, self._acknowledgements
        for file, _ in ready:
            publisher = by_file.get(file)
            if publisher is None:
                self._deliveries(now, again and not acknowledges)
                continue
            try:
                data = publisher.receive(buffer)
            except BlockingIOError:
                continue
            if not data:
                raise ConnectionError("the connection of a publisher was closed")
            count, publisher.rest = counted(publisher.client, publisher.rest, data)
            if count and acknowledges:
                now = clock()
                _settle(publisher.unacknowledged, count, now, times)
                publisher.acknowledged += count
                if again:
                    publisher.send(count, now, acknowledges)

    def _deliveries(self, now: float, again: bool) -> None:
        held = len(self._rest)
        self._buffer[:held] = self._rest
        try:
            have = held + self._subscriber.recv_into(self._view[held:])
        except BlockingIOError:
            return
        if have == held:
            raise ConnectionError("the connection of the subscriber was closed")
        if self.load.varying:
            self._any_deliveries(have, again)
            return
        size, first = self._tongue.delivery_bytes, self._tongue.first_byte
        if first and self._buffer[0:have:size] != first * -(-have // size):
            have = self._without_pings(have)
        count = have // size
        self._rest = bytes(self._view[count * size : have])
        if not count:
            return
        deliveries = np.frombuffer(self._buffer, np.uint8, count * size).reshape(count, size)
        at = self._tongue.payload_at
        end = count * size
        self._count(bytes(self._buffer[at:end:size]), bytes(self._buffer[at + 1 : end : size]), again)
        self._tongue.confirm(self._subscriber, deliveries)

    def _any_deliveries(self, have: int, again: bool) -> None:
        """Takes deliveries of any length."""
        buffer = self._buffer
        payloads, identifiers, end, asked = self._tongue.places(buffer, have)
        self._rest = bytes(self._view[end:have])
        if asked:
            send_all(self._subscriber, b"PONG\r\n" * asked)
        if payloads:
            self._count(bytes([buffer[at] for at in payloads]), bytes([buffer[at + 1] for at in payloads]), again)
            self._tongue.confirm_at(self._subscriber, self._view, identifiers)

    def _count(self, senders: bytes, numbers: bytes, again: bool) -> None:
        """Counts deliveries: the publisher of each, and its number there."""
        self.delivered += len(senders)
        now = time.perf_counter()
        for number, length in self._runs(senders, numbers):
            publisher = self._publishers[number]
            _settle(publisher.on_way, length, now, self.outcome.delivery)
            if again:
                publisher.acknowledged += length
                publisher.send(length, now, acknowledges=False)

    def _runs(self, senders: bytes, numbers: bytes) -> list[tuple[int, int]]:
        """Publishers and how many of their messages came behind each other; counts what is out of order.

        Slices of bytes are quicker than arrays here: what the generator does not take is left to what it measures.
        """
        following, found, at = self._following, [], 0
        while senders:
            sender = senders[0]
            rest = senders.lstrip(_NUMBERS[sender : sender + 1])
            length = len(senders) - len(rest)
            first, these = following[sender], numbers[at : at + length]
            if these != _NUMBERS[first : first + length]:
                due = (first, *((number + 1) & 255 for number in these))
                self.outcome.disordered += sum(number != wanted for number, wanted in zip(these, due, strict=False))
            following[sender] = (these[-1] + 1) & 255
            found.append((sender, length))
            senders = rest
            at += length
        return found

    def _without_pings(self, have: int) -> int:
        """NATS asks now and then whether its clients are there; how many bytes are left without the question."""
        data = bytes(self._buffer[:have])
        if b"PING\r\n" in data:
            send_all(self._subscriber, b"PONG\r\n")
            data = data.replace(b"PING\r\n", b"")
            self._buffer[: len(data)] = data
        return len(data)


def run_load(
    load: Load,
    tongue: Tongue,
    entries: Sequence[tuple[str, int]],
    seconds: float,
    processor_s: Callable[[], Sequence[float]],
    *,
    subscriber_at: tuple[str, int] | None = None,
    warm_up_s: float = 0.3,
) -> Outcome:
    """Runs a load; publishers take the `entries` in turn. `processor_s` reads the processor time of each process."""
    run = _Run(load, tongue, entries, subscriber_at)
    try:
        if load.rate_per_s:
            run.keep_rate(time.perf_counter() + warm_up_s)
            run.drain()
        else:
            run.begin()
            run.keep_full(time.perf_counter() + warm_up_s)
        outcome = run.outcome
        outcome.acknowledgement, outcome.delivery = Times(), Times()
        acknowledged, delivered = run.acknowledged, run.delivered
        busy, own, begin = tuple(processor_s()), time.process_time(), time.perf_counter()
        if load.rate_per_s:
            run.keep_rate(begin + seconds)
        else:
            run.keep_full(begin + seconds)
        outcome.elapsed_s = time.perf_counter() - begin
        outcome.processor_s = tuple(after - before for before, after in zip(busy, processor_s(), strict=True))
        outcome.own_processor_s = time.process_time() - own
        outcome.delivered = run.delivered - delivered
        outcome.acknowledged = run.acknowledged - acknowledged if load.publish_qos else outcome.delivered
        run.drain()
        outcome.lost = run.sent - run.delivered
        outcome.unacknowledged = run.sent - run.acknowledged if load.publish_qos else 0
    finally:
        run.close()
    return outcome
