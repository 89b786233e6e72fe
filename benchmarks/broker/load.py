"""The load generator: one thread, non-blocking sockets, everything encoded beforehand.

Messages go out while fewer than the window are on their way, and every delivery is looked at: its publisher, its place
in the publisher's order, and in the end the count. What the generator does for one message is a share of a write, of
a read and of a few slices.
"""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate, cycle

from benchmarks.broker.dialects import RING, Dialect
from benchmarks.broker.shapes import PAYLOAD_BYTES, SPREAD_BYTES, Cell

__all__ = ["TOPIC_BYTES", "Outcome", "Publisher", "Subscriber", "run_cell"]

TOPIC_BYTES = len("bench/00")
_BUFFER = 1 << 18
_COUNT = bytes(range(256)) * (_BUFFER // 256)
_DRAIN_S = 3.0
_WAY_S = 20.0
_QUIET_S = 0.3
_ACKED = {n: (b"\x40" * n, b"\x02" * n) for n in range(1_025)}


@dataclass
class Outcome:
    """The results of one run of a cell. Times are in seconds; `latencies_s` only at a fixed rate."""

    sent: int = 0
    delivered: int = 0
    elapsed_s: float = 0.0
    processor_s: float = 0.0
    lost: int = 0
    disordered: int = 0
    unacknowledged: int = 0
    own_processor_s: float = 0.0
    latencies_s: list[float] = field(default_factory=list)

    @property
    def processor_us(self) -> float:
        """The broker's processor time for one delivery."""
        return self.processor_s / self.delivered * 1e6 if self.delivered else float("nan")

    @property
    def rate_per_s(self) -> float:
        """Deliveries in a second."""
        return self.delivered / self.elapsed_s

    @property
    def is_sound(self) -> bool:
        """Returns whether everything came, once and in order."""
        return not (self.lost or self.disordered or self.unacknowledged)

    def latency_us(self, share: float) -> float:
        """A quantile of the latencies."""
        ordered = sorted(self.latencies_s)
        return ordered[int(share * (len(ordered) - 1))] * 1e6 if ordered else float("nan")


class Publisher:
    """A connection that sends its ring of messages again and again."""

    def __init__(self, client: socket.socket, dialect: Dialect, number: int, topics: list[str], cell: Cell):
        self.client = client
        self.sent = 0
        self.acknowledged_bytes = 0
        self._at = 0
        # The ring is a whole number of rounds through the topics and of rounds of the counter.
        in_row = 1 if cell.takes_all else len(topics)
        each = [
            dialect.publication(
                topics[i % len(topics)],
                bytes((number, i // in_row % 256)).ljust(PAYLOAD_BYTES + cell.varying * (i * 73 % SPREAD_BYTES), b"x"),
                i % RING + 1,
            )
            for i in range(RING * len(topics))
        ]
        self._count = len(each)
        each += each[:RING]
        self._ends = [0, *accumulate(map(len, each))]
        self._ring = memoryview(b"".join(each))

    def send(self, count: int) -> None:
        data = self._ring[self._ends[self._at] : self._ends[self._at + count]]
        self._at = (self._at + count) % self._count
        self.sent += count
        send_all(self.client, data)


class Subscriber:
    """A connection that counts, checks and acknowledges what it gets."""

    def __init__(self, client: socket.socket, dialect: Dialect, publishers: int, varying: bool = False):
        self.client = client
        self._places = dialect.places if varying else None
        self.count = 0
        self.disordered = 0
        self._rest = b""
        self._size = dialect.delivery_bytes
        self._payload_at = dialect.payload_at
        self._id_at = dialect.id_at
        self._acknowledges = dialect.acknowledges
        self._first_byte = dialect.first_byte
        self._next = [0] * publishers
        self._alone = publishers == 1

    def forget(self) -> None:
        """Begins to count and to check anew."""
        self.count = self.disordered = 0
        self._next = [0] * len(self._next)

    def receive(self, buffer: bytearray, view: memoryview) -> int:
        """Takes what is there; how many messages it was."""
        held = len(self._rest)
        if held:
            buffer[:held] = self._rest
        try:
            have = held + self.client.recv_into(view[held:])
        except BlockingIOError:
            return 0
        if have == held:
            raise ConnectionError("the broker has closed the connection of a subscriber")
        if self._places is not None:
            return self._receive_any(buffer, view, have)
        size = self._size
        if self._first_byte and buffer[0:have:size] != self._first_byte * -(-have // size):
            have = self._answer_ping(buffer, have)
        count = have // size
        end = count * size
        self._rest = bytes(view[end:have])
        if count:
            self._check(buffer, end, count)
            if self._acknowledges:
                self._acknowledge(buffer, end, count)
            self.count += count
        return count

    def _receive_any(self, buffer: bytearray, view: memoryview, have: int) -> int:
        """Takes deliveries of any length."""
        assert self._places is not None
        payloads, identifiers, end, asked = self._places(buffer, have)
        self._rest = bytes(view[end:have])
        if asked:
            send_all(self.client, b"PONG\r\n" * asked)
        following = self._next
        for at in payloads:
            publisher = buffer[at]
            if buffer[at + 1] != following[publisher]:
                self.disordered += 1
            following[publisher] = (buffer[at + 1] + 1) & 255
        if self._acknowledges and identifiers:
            send_all(self.client, b"".join([b"\x40\x02" + view[at : at + 2] for at in identifiers]))
        self.count += len(payloads)
        return len(payloads)

    def _answer_ping(self, buffer: bytearray, have: int) -> int:
        """NATS asks now and then whether its clients are there; how many bytes are left without the question."""
        data = bytes(buffer[:have])
        if b"PING\r\n" in data:
            send_all(self.client, b"PONG\r\n")
            data = data.replace(b"PING\r\n", b"")
            buffer[: len(data)] = data
        return len(data)

    def _check(self, buffer: bytearray, end: int, count: int) -> None:
        at = self._payload_at
        numbers = buffer[at + 1 : end : self._size]
        following = self._next
        if self._alone:
            first = following[0]
            if numbers != _COUNT[first : first + count]:
                self.disordered += 1
            following[0] = (numbers[-1] + 1) & 255
            return
        for publisher, number in zip(buffer[at : end : self._size], numbers, strict=True):
            if number != following[publisher]:
                self.disordered += 1
            following[publisher] = (number + 1) & 255

    def _acknowledge(self, buffer: bytearray, end: int, count: int) -> None:
        answers = bytearray(4 * count)
        answers[0::4], answers[1::4] = _ACKED.get(count) or (b"\x40" * count, b"\x02" * count)
        answers[2::4] = buffer[self._id_at : end : self._size]
        answers[3::4] = buffer[self._id_at + 1 : end : self._size]
        send_all(self.client, answers)


def send_all(client: socket.socket, data: bytes | bytearray | memoryview) -> None:
    """Sends; windows are far smaller than socket buffers, so that waiting is the exception."""
    try:
        done = client.send(data)
    except BlockingIOError:
        done = 0
    if done < len(data):
        client.settimeout(10.0)
        client.sendall(data[done:])
        client.setblocking(False)


class _Run:
    """All connections of one cell, and the loop over them."""

    def __init__(
        self, cell: Cell, dialect: Dialect, address: tuple[str, int], subscribers_at: tuple[str, int] | None = None
    ):
        self.cell = cell
        self.delivered = 0
        self._dialect = dialect
        self._buffer = bytearray(_BUFFER)
        self._view = memoryview(self._buffer)
        self._epoll = select.epoll()
        self._waiting: Callable[[float], list[tuple[int, int]]] = self._epoll.poll
        self._subscribers: dict[int, Subscriber] = {}
        self._publishers: dict[int, Publisher] = {}
        self._turn = 0
        topics = [f"bench/{i:02}" for i in range(cell.topics)]
        senders = 1 if cell.topics > 1 else cell.publishers
        try:
            for i in range(cell.subscribers):
                client = dialect.connect(subscribers_at or address, f"sub-{i}")
                self._subscribers[client.fileno()] = Subscriber(client, dialect, senders, cell.varying)
                dialect.subscribe(client, "bench/#" if cell.takes_all else topics[i % len(topics)])
            for i in range(cell.publishers):
                client = dialect.connect(address, f"pub-{i}")
                own = topics if cell.publishers == 1 else [topics[i % len(topics)]]
                number = i if senders > 1 else 0
                self._publishers[client.fileno()] = Publisher(client, dialect, number, own, cell)
        except BaseException:
            self.close()
            raise
        self._order = list(self._publishers.values())
        for client in self._clients():
            client.setblocking(False)
            self._epoll.register(client.fileno(), select.EPOLLIN)
        if subscribers_at is not None:
            try:
                self._await_way(address, topics[0])
            except BaseException:
                self.close()
                raise

    def _await_way(self, address: tuple[str, int], topic: str) -> None:
        """Publishes until messages come out at another broker than they go in; these do not count."""
        client = self._dialect.connect(address, "way")
        try:
            message = self._dialect.publication(topic, bytes(PAYLOAD_BYTES), 1)
            until = time.perf_counter() + _WAY_S
            while not self.delivered:
                if time.perf_counter() > until:
                    raise ConnectionError(f"nothing came from {address[1]} to the subscribers in {_WAY_S:g} s")
                client.sendall(message)
                if self._dialect.acknowledges:
                    client.recv(64)
                self.take(0.05)
            before = 0
            while self.delivered > before:
                before = self.delivered
                self.take(_QUIET_S)
        finally:
            client.close()
        self.delivered = 0
        for subscriber in self._subscribers.values():
            subscriber.forget()

    def _clients(self) -> list[socket.socket]:
        subscribers = [subscriber.client for subscriber in self._subscribers.values()]
        return [publisher.client for publisher in self._publishers.values()] + subscribers

    @property
    def sent(self) -> int:
        return sum(publisher.sent for publisher in self._order)

    @property
    def disordered(self) -> int:
        return sum(subscriber.disordered for subscriber in self._subscribers.values())

    @property
    def unacknowledged(self) -> int:
        if not self._dialect.acknowledges:
            return 0
        return self.sent - sum(publisher.acknowledged_bytes for publisher in self._order) // 4

    def close(self) -> None:
        for client in self._clients():
            client.close()
        self._epoll.close()

    def at_full_speed(self, until: float) -> None:
        """Keeps the window full."""
        cell, order, now = self.cell, self._order, time.perf_counter
        copies, burst, room = cell.copies, cell.burst, cell.window - cell.burst + 1
        others, acknowledges = len(order), self._dialect.acknowledges
        sent = self.sent
        while now() < until:
            while sent - self.delivered // copies < room:
                publisher = order[self._turn]
                if acknowledges and publisher.sent + burst - publisher.acknowledged_bytes // 4 > RING:
                    break
                self._turn = (self._turn + 1) % others
                publisher.send(burst)
                sent += burst
            self.take(0.01)

    def at_fixed_rate(self, until: float, latencies_s: list[float]) -> None:
        """Sends at fixed times; a delivery's latency counts from when its message was handed to the socket."""
        order, now, period = cycle(self._order), time.perf_counter, 1.0 / self.cell.rate_per_s
        sent_at: list[float] = []
        known = self.delivered
        due = now()
        while (moment := now()) < until:
            if moment >= due:
                # A pause of this machine must not become a burst.
                due = max(due, moment - period) + period
                sent_at.append(now())
                next(order).send(1)
            self.take(0.0)
            if self.delivered > known + len(latencies_s):
                moment = now()
                latencies_s += [moment - sent_at[i] for i in range(len(latencies_s), self.delivered - known)]

    def take(self, timeout_s: float) -> None:
        subscribers, buffer, view = self._subscribers, self._buffer, self._view
        for fileno, _ in self._waiting(timeout_s):
            subscriber = subscribers.get(fileno)
            if subscriber is not None:
                self.delivered += subscriber.receive(buffer, view)
            else:
                self._hear(self._publishers[fileno])

    def _hear(self, publisher: Publisher) -> None:
        with contextlib.suppress(BlockingIOError):
            data = publisher.client.recv(1 << 14)
            if not data:
                raise ConnectionError("the broker has closed the connection of a publisher")
            if self._dialect.acknowledges:
                publisher.acknowledged_bytes += len(data)
            elif b"PING" in data:
                send_all(publisher.client, b"PONG\r\n")

    def drain(self) -> None:
        """Waits for what is on its way, as long as something comes."""
        expected = self.sent * self.cell.copies
        quiet_since = time.perf_counter()
        while self.delivered < expected or self.unacknowledged:
            before = self.delivered, self.unacknowledged
            self.take(0.05)
            if (self.delivered, self.unacknowledged) != before:
                quiet_since = time.perf_counter()
            elif time.perf_counter() - quiet_since > _DRAIN_S:
                return


def run_cell(
    cell: Cell,
    dialect: Dialect,
    address: tuple[str, int],
    seconds: float,
    processor_s: Callable[[], float],
    warm_up_s: float = 0.2,
    subscribers_at: tuple[str, int] | None = None,
) -> Outcome:
    """Runs one cell against one broker, or from one to another; `processor_s` reads the processor time of all."""
    run = _Run(cell, dialect, address, subscribers_at)
    outcome = Outcome()
    try:
        run.at_full_speed(time.perf_counter() + warm_up_s)
        if cell.rate_per_s:
            run.drain()
        delivered, busy, own = run.delivered, processor_s(), time.process_time()
        begin = time.perf_counter()
        if cell.rate_per_s:
            run.at_fixed_rate(begin + seconds, outcome.latencies_s)
        else:
            run.at_full_speed(begin + seconds)
        outcome.elapsed_s = time.perf_counter() - begin
        outcome.processor_s = processor_s() - busy
        outcome.own_processor_s = time.process_time() - own
        outcome.delivered = run.delivered - delivered
        run.drain()
        outcome.sent = run.sent
        outcome.lost = run.sent * cell.copies - run.delivered
        outcome.disordered = run.disordered
        outcome.unacknowledged = run.unacknowledged
    finally:
        run.close()
    return outcome
