"""Clients that send and take numbered events one by one, in MQTT, NATS and Zenoh.

The first four bytes of a payload are the number of its event, so that each loss and each repetition is seen.
"""

from __future__ import annotations

import socket
from typing import Any, Protocol

from benchmarks.broker.dialects import Mqtt, Nats
from benchmarks.overlay.zenoh_wire import Zenoh

__all__ = ["Feed", "Sink", "clients"]

_READ = 1 << 16


class Feed(Protocol):
    """A publisher."""

    client: Any
    acknowledged: set[int] | None
    """The numbers that the broker has taken over; None where it does not say."""

    def publish(self, number: int, payload: bytes) -> None:
        """Publishes an event."""

    def hear(self) -> None:
        """Takes what the broker says."""


class Sink(Protocol):
    """A subscriber."""

    client: Any

    def hear(self) -> list[int]:
        """Takes what has come; the numbers of events."""


class _Stream:
    """Reads of a connection, and what is left of the last one."""

    def __init__(self, client: Any):
        self.client = client
        self._rest = b""

    def read(self) -> bytes:
        data = self.client.recv(_READ)
        if not data:
            raise ConnectionError("a broker has closed the connection of a client")
        return self._rest + data if self._rest else bytes(data)

    def keep(self, rest: bytes) -> None:
        self._rest = rest


def _packets(data: bytes) -> tuple[list[tuple[int, int, int]], int]:
    """Where MQTT packets begin, where their bodies begin and end; and how many bytes are whole packets."""
    found, at, have = [], 0, len(data)
    while at + 2 <= have:
        size = shift = 0
        body = at + 1
        while body < have:
            byte = data[body]
            body += 1
            size |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        else:
            break
        if body + size > have:
            break
        found.append((at, body, body + size))
        at = body + size
    return found, at


class _MqttFeed(_Stream):
    def __init__(self, client: socket.socket, qos: int, topic: str):
        super().__init__(client)
        self.acknowledged: set[int] | None = set() if qos else None
        self._dialect = Mqtt(qos, len(topic), 0)
        self._topic = topic
        self._qos = qos
        self._number_of: dict[int, int] = {}

    def publish(self, number: int, payload: bytes) -> None:
        identifier = number % 65_535 + 1
        self._number_of[identifier] = number
        self.client.sendall(self._dialect.publication(self._topic, payload, identifier))

    def hear(self) -> None:
        data = self.read()
        packets, end = _packets(data)
        answers = b""
        for begin, body, _ in packets:
            kind, identifier = data[begin] >> 4, data[body : body + 2]
            if kind in (4, 5) and self.acknowledged is not None:
                self.acknowledged.add(self._number_of[int.from_bytes(identifier, "big")])
            if kind == 5:
                answers += b"\x62\x02" + identifier
        if answers:
            self.client.sendall(answers)
        self.keep(data[end:])


class _MqttSink(_Stream):
    def __init__(self, client: socket.socket):
        super().__init__(client)
        self._unreleased: set[bytes] = set()

    def hear(self) -> list[int]:
        data = self.read()
        packets, end = _packets(data)
        numbers: list[int] = []
        answers = b""
        for begin, body, _ in packets:
            kind, qos = data[begin] >> 4, data[begin] >> 1 & 3
            if kind == 6:
                identifier = data[body : body + 2]
                self._unreleased.discard(identifier)
                answers += b"\x70\x02" + identifier
            elif kind == 3:
                at = body + 2 + int.from_bytes(data[body : body + 2], "big")
                identifier = data[at : at + 2]
                if qos:
                    at += 2
                    answers += (b"\x40\x02" if qos == 1 else b"\x50\x02") + identifier
                if qos == 2:
                    if identifier in self._unreleased:
                        continue  # sent again before it was released: the same delivery
                    self._unreleased.add(identifier)
                numbers.append(int.from_bytes(data[at : at + 4], "big"))
        if answers:
            self.client.sendall(answers)
        self.keep(data[end:])
        return numbers


class _NatsFeed(_Stream):
    acknowledged: set[int] | None = None

    def __init__(self, client: socket.socket, topic: str):
        super().__init__(client)
        self._dialect = Nats(len(topic), 0)
        self._topic = topic

    def publish(self, number: int, payload: bytes) -> None:
        self.client.sendall(self._dialect.publication(self._topic, payload, 0))

    def hear(self) -> None:
        if b"PING" in self.read():
            self.client.sendall(b"PONG\r\n")


class _NatsSink(_Stream):
    def hear(self) -> list[int]:
        data = self.read()
        numbers, at = [], 0
        while (line := data.find(b"\r\n", at)) >= 0:
            if data[at : at + 3] == b"MSG":
                size = int(data[data.rindex(b" ", at, line) : line])
                end = line + 4 + size
                if end > len(data):
                    break
                numbers.append(int.from_bytes(data[line + 2 : line + 6], "big"))
                at = end
            else:
                if data[at : at + 4] == b"PING":
                    self.client.sendall(b"PONG\r\n")
                at = line + 2
        self.keep(data[at:])
        return numbers


class _ZenohFeed(_Stream):
    acknowledged: set[int] | None = None

    def __init__(self, client: Any, dialect: Zenoh, topic: str):
        super().__init__(client)
        self._dialect = dialect
        self._topic = topic

    def publish(self, number: int, payload: bytes) -> None:
        self.client.sendall(self._dialect.publication(self._topic, payload, 0))

    def hear(self) -> None:
        self.read()


class _ZenohSink(_Stream):
    def __init__(self, client: Any, dialect: Zenoh):
        super().__init__(client)
        self._dialect = dialect

    def hear(self) -> list[int]:
        data = self.read()
        begins, _, end = self._dialect.deliveries(data, len(data))
        self.keep(data[end:])
        return [int.from_bytes(data[at : at + 4], "big") for at in begins]


def clients(
    dialect: Any, qos: int, entry: tuple[str, int], leave: tuple[str, int], topic: str, *, mark: str = ""
) -> tuple[Feed, Sink]:
    """A publisher at one broker and a subscriber at another, both connected."""
    if isinstance(dialect, Zenoh):
        dialect = Zenoh(topic)
    taker = dialect.connect(leave, f"steady-sub{mark}")
    try:
        dialect.subscribe(taker, topic)
        giver = dialect.connect(entry, f"steady-pub{mark}")
    except BaseException:
        taker.close()
        raise
    feed: Feed
    sink: Sink
    if isinstance(dialect, Zenoh):
        feed, sink = _ZenohFeed(giver, dialect, topic), _ZenohSink(taker, dialect)
    elif isinstance(dialect, Nats):
        feed, sink = _NatsFeed(giver, topic), _NatsSink(taker)
    else:
        feed, sink = _MqttFeed(giver, qos, topic), _MqttSink(taker)
    return feed, sink
