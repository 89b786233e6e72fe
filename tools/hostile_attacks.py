"""The hostile clients of `fault_hostile_costs.py`: each sends what costs a broker most, until its time is over.

Every attack is a function of a `Target` that returns how many bytes it sent. It never waits for the broker for longer
than its time.
"""

from __future__ import annotations

import base64
import itertools
import os
import select
import socket
import struct
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from surecast.protocol.mqtt import (
    V5,
    Connect,
    Properties,
    Puback,
    Publish,
    Pubrec,
    Subscribe,
    SubscriptionRequest,
    Unsubscribe,
    encode,
)
from surecast.protocol.mqtt.wire import variable_bytes

__all__ = ["ATTACKS", "Target"]

PAIR = bytes.fromhex("26 0001 61 0001 62")
CHUNK = 65_536
PINGREQ = b"\xc0\0"


@dataclass
class Target:
    """The target of an attack, and its end."""

    port: int
    websocket_port: int
    http_port: int
    until: float
    sent: int = 0
    _open: list[socket.socket] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        """Returns whether the time is over."""
        return time.monotonic() >= self.until

    def open(self, port: int = 0) -> socket.socket:
        """Another connection, which is kept until the end."""
        made = socket.create_connection(("127.0.0.1", port or self.port), timeout=5)
        made.setblocking(False)
        self._open.append(made)
        return made

    def client(self, name: str, **properties: int) -> socket.socket:
        """A client that has been accepted."""
        made = self.open()
        self.send(made, encode(Connect(name, False, properties=Properties(**properties)), V5))  # type: ignore[arg-type]
        self.listen(made)
        return made

    def listen(self, to: socket.socket) -> None:
        """Waits until the broker says something."""
        select.select([to], [], [], max(0.0, min(5.0, self.until - time.monotonic())))

    def send(self, to: socket.socket, data: bytes, reads: bool = True) -> bool:
        """Sends all of it, and reads away what the broker says; False if the connection or the time is over."""
        view = memoryview(data)
        try:
            while view and not self.is_over:
                readable, writable, _ = select.select([to] if reads else [], [to], [], 0.1)
                if readable and not to.recv(1 << 20):
                    return False
                if writable:
                    count = to.send(view[:CHUNK])
                    self.sent += count
                    view = view[count:]
        except OSError:
            return False
        return not view

    def wait(self) -> None:
        """Stays until the end."""
        time.sleep(max(0.0, self.until - time.monotonic()))

    def close(self) -> None:
        """Closes all connections."""
        for each in self._open:
            with suppress(OSError):
                each.close()
        self._open.clear()

    def repeat(self, name: str, parts: Iterable[bytes], opening: bytes = b"") -> None:
        """A client sends the parts over and over, and comes back whenever it is thrown out."""
        turns = itertools.count()
        while not self.is_over:
            with suppress(OSError):
                client = self.client(f"{name}-{next(turns)}")
                self.send(client, opening)
                while not self.is_over and all(self.send(client, part) for part in parts):
                    pass
                client.close()
                self._open.remove(client)


def with_properties(first: int, head: bytes, count: int, tail: bytes = b"") -> bytes:
    """A packet with many user properties."""
    pairs = PAIR * count
    body = head + variable_bytes(len(pairs)) + pairs + tail
    return bytes((first,)) + variable_bytes(len(body)) + body


def properties(target: Target) -> None:
    """PUBLISH with 65,535 user properties."""
    target.repeat("properties", [with_properties(0x30, b"\0\1t", 65_535)])


def first_packet(target: Target) -> None:
    """CONNECT with as many user properties as its limit takes, before anybody is authenticated."""
    packet = with_properties(0x10, b"\0\4MQTT\5\2\0\0", 9_000, b"\0\1c")
    while not target.is_over:
        with suppress(OSError):
            stranger = target.open()
            target.send(stranger, packet)
            stranger.close()


def unfinished(target: Target) -> None:
    """Forty packets of 16 MiB, all but their last bytes."""
    begin = b"\x30" + variable_bytes((16 << 20) - 10) + b"\0\1t\0"
    filling = b"x" * ((16 << 20) - 100)
    for number in range(40):
        if target.is_over:
            break
        with suppress(OSError):
            target.send(target.client(f"unfinished-{number}"), begin + filling)
    target.wait()


def plus_filters(target: Target) -> None:
    """2^13 filters of + and names for the same topics, and messages to new topics of that kind."""
    filters = ["/".join(levels) for levels in itertools.product("+a", repeat=13)]
    parts = [
        encode(Subscribe(1, tuple(SubscriptionRequest(wanted) for wanted in filters[at : at + 512])), V5)
        for at in range(0, len(filters), 512)
    ]
    topics = "/".join("a" * 12)
    messages = [
        b"".join(encode(Publish(f"{topics}/{n}", b"x"), V5) for n in range(a, a + 100)) for a in range(0, 9_000, 100)
    ]
    target.repeat("plus", messages, b"".join(parts))


def deep_topics(target: Target) -> None:
    """Messages to new topics of two hundred levels, retained."""
    deep = "/".join("d" * 198)
    parts = [encode(Publish(f"{n}/{deep}/{n}", b"x", retain=True), V5) for n in range(3_000)]
    target.repeat("deep", parts)


def filters(target: Target) -> None:
    """SUBSCRIBE packets with one filter each, and the same back again."""
    parts = []
    for at in range(0, 5_000, 500):
        names = [f"f/{n}/+/#" for n in range(at, at + 500)]
        parts += [b"".join(encode(Subscribe(1, (SubscriptionRequest(name),)), V5) for name in names)]
        parts += [encode(Unsubscribe(1, tuple(names)), V5)]
    target.repeat("filters", parts)


def many_filters(target: Target) -> None:
    """SUBSCRIBE packets with a hundred thousand filters."""
    packet = encode(Subscribe(1, tuple(SubscriptionRequest(f"m/{n}") for n in range(100_000))), V5)
    target.repeat("many", [packet])


def acknowledgements(target: Target) -> None:
    """Acknowledgements of nothing, of two kinds in turn."""
    target.repeat("acks", [(encode(Puback(5), V5) + encode(Pubrec(5), V5)) * 5_000])


def alternating(target: Target) -> None:
    """A plain message and one with a property in turn, of the same length."""
    plain = encode(Publish("t", b"xxxx"), V5)
    special = encode(Publish("t", b"xx", properties=Properties(payload_format=0)), V5)
    target.repeat("alternating", [(plain + special) * 10_000])


def sessions(target: Target) -> None:
    """Sessions for ever, one after the other, with a subscription each."""
    for number in itertools.count():
        if target.is_over:
            return
        with suppress(OSError):
            connect = Connect(f"eternal-{number}", False, properties=Properties(session_expiry_s=0xFFFF_FFFF))
            subscribe = Subscribe(1, (SubscriptionRequest(f"eternal/{number}", 1),))
            client = target.open()
            target.send(client, encode(connect, V5) + encode(subscribe, V5) + b"\xe0\0")
            target.listen(client)
            client.close()
            target._open.remove(client)


def slow_reader(target: Target) -> None:
    """Clients that want all and read nothing, and one that sends large messages; each has a queue of 64 MiB."""
    for number in range(4):
        client = target.client(f"slow-{number}")
        target.send(client, encode(Subscribe(1, (SubscriptionRequest("slow", 1),)), V5), reads=False)
    target.repeat("slow-source", [encode(Publish("slow", b"x" * 60_000, 1, packet_id=n), V5) for n in range(1, 500)])


def pings(target: Target) -> None:
    """PINGREQ, as fast as it goes."""
    target.repeat("pings", [PINGREQ * 30_000])


def silent_http(target: Target) -> None:
    """Two hundred HTTP connections that say nothing."""
    for _ in range(200):
        with suppress(OSError):
            target.open(target.http_port)
    target.wait()


def websocket(target: Target) -> socket.socket:
    """A WebSocket connection after its handshake."""
    made = target.open(target.websocket_port)
    key = base64.b64encode(os.urandom(16)).decode()
    head = (
        f"GET /mqtt HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
    )
    target.send(made, head.encode())
    target.listen(made)
    target.send(made, frame(encode(Connect("web"), V5)))
    target.listen(made)  # before it is accepted, a frame has to be small
    return made


def frame(data: bytes, opcode: int = 2, last: bool = True) -> bytes:
    """A frame of a client; the mask is zero, so that it costs us nothing."""
    size = len(data)
    if size > 65_535:
        length = struct.pack(">BQ", 0xFF, size)
    else:
        length = bytes((0x80 | size,)) if size < 126 else struct.pack(">BH", 0xFE, size)
    return bytes((opcode | 0x80 * last,)) + length + b"\0\0\0\0" + data


def fragments(target: Target) -> None:
    """A WebSocket message in fragments of one byte, and pings between them."""
    publish = encode(Publish("t", b"x" * 100), V5)
    pieces = b"".join(frame(publish[n : n + 1], 2 if n == 0 else 0, False) + frame(b"", 9) for n in range(len(publish)))
    while not target.is_over:
        with suppress(OSError):
            client = websocket(target)
            while target.send(client, (pieces + frame(b"", 0)) * 20) and not target.is_over:
                pass


def large_frame(target: Target) -> None:
    """WebSocket frames of eight megabytes that are full of SUBSCRIBE packets."""
    data = frame(encode(Subscribe(1, (SubscriptionRequest("a/+"),)), V5) * 700_000)
    while not target.is_over:
        with suppress(OSError):
            client = websocket(target)
            while target.send(client, data) and not target.is_over:
                pass


ATTACKS: dict[str, Callable[[Target], None]] = {
    "properties": properties,
    "first-packet": first_packet,
    "unfinished": unfinished,
    "plus-filters": plus_filters,
    "deep-topics": deep_topics,
    "filters": filters,
    "many-filters": many_filters,
    "acknowledgements": acknowledgements,
    "alternating": alternating,
    "sessions": sessions,
    "slow-reader": slow_reader,
    "pings": pings,
    "silent-http": silent_http,
    "fragments": fragments,
    "large-frame": large_frame,
}
