"""Dialects of clients, encoded beforehand: MQTT 3.1.1, and the text protocol of NATS.

Where all messages of a cell have the same length, a stream of deliveries is taken apart by slices with a step; else
`places` finds each. The first byte of a payload is its publisher, the second counts its messages; the rest is filler.
"""

from __future__ import annotations

import json
import socket
from typing import Protocol

__all__ = ["RING", "Dialect", "Mqtt", "Nats"]

RING = 1_024
"""Messages that a publisher has ready; it sends them again and again. Packet identifiers are 1 to RING."""


class Dialect(Protocol):
    """A protocol as the load generator needs it; the offsets count from the first byte of a delivery."""

    acknowledges: bool
    delivery_bytes: int
    payload_at: int
    id_at: int
    first_byte: bytes

    def connect(self, address: tuple[str, int], name: str) -> socket.socket:
        """A connection that the broker has accepted."""

    def subscribe(self, client: socket.socket, topic: str) -> None:
        """Subscribes and waits until the broker has said yes."""

    def publication(self, topic: str, payload: bytes, identifier: int) -> bytes:
        """The bytes that publish a message."""

    def places(self, buffer: bytearray, have: int) -> tuple[list[int], list[int], int, int]:
        """Finds deliveries of any length among the first bytes of a buffer.

        Returns where the payload of each begins, where its packet identifier is, how many bytes are whole, and how
        often the broker asked whether the client is there.
        """


def dial(address: tuple[str, int]) -> socket.socket:
    client = socket.create_connection(address, timeout=10.0)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client


def read_until(client: socket.socket, end: bytes) -> bytes:
    data = b""
    while end not in data:
        more = client.recv(4_096)
        if not more:
            raise ConnectionError(f"the broker has closed the connection after {data!r}")
        data += more
    return data


def read_exactly(client: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = client.recv(size - len(data))
        if not more:
            raise ConnectionError(f"the broker has closed the connection after {data!r}")
        data += more
    return data


class Mqtt:
    """MQTT 3.1.1, with a user name and a password if there is one; sessions are clean unless it is asked for."""

    first_byte = b""

    def __init__(
        self,
        qos: int,
        topic_bytes: int,
        payload_bytes: int,
        user: str = "",
        password: str = "",
        persistent: str = "-",
    ):
        """Clients whose name begins with `persistent` have sessions that outlive their connections."""
        self.qos = qos
        self._persistent = persistent
        self.acknowledges = qos > 0
        self._user, self._password = user, password
        self.id_at = 4 + topic_bytes
        self.payload_at = self.id_at + 2 * (qos > 0)
        self.delivery_bytes = self.payload_at + payload_bytes

    def connect(self, address: tuple[str, int], name: str) -> socket.socket:
        """A connection that the broker has accepted."""
        client = dial(address)
        flags = (0 if name.startswith(self._persistent) else 0x02) | (0xC0 if self._user else 0)
        body = b"\0\4MQTT\4" + bytes((flags,)) + b"\0\0" + _text(name)
        if self._user:
            body += _text(self._user) + _text(self._password)
        client.sendall(_packet(0x10, body))
        answer = read_exactly(client, 4)
        if answer[0] != 0x20 or answer[3]:
            raise ConnectionError(f"{name} was not accepted: {answer.hex()}")
        return client

    def subscribe(self, client: socket.socket, topic: str) -> None:
        """Subscribes and waits until the broker has said yes."""
        client.sendall(_packet(0x82, b"\0\1" + _text(topic) + bytes((self.qos,))))
        answer = read_exactly(client, 5)
        if answer[0] != 0x90 or answer[4] != self.qos:
            raise ConnectionError(f"the subscription to {topic} was not granted: {answer.hex()}")

    def publication(self, topic: str, payload: bytes, identifier: int) -> bytes:
        """The bytes that publish a message.

        >>> Mqtt(1, 1, 1).publication("t", b"x", 7).hex(" ")
        '32 06 00 01 74 00 07 78'
        """
        middle = identifier.to_bytes(2, "big") if self.qos else b""
        return _packet(0x30 | self.qos << 1, _text(topic) + middle + payload)

    def places(self, buffer: bytearray, have: int) -> tuple[list[int], list[int], int, int]:
        """Finds deliveries of any length.

        >>> Mqtt(1, 1, 1).places(bytearray.fromhex("3206 0001 74 0007 78 3206 0001"), 12)
        ([7], [5], 8, 0)
        """
        to_id, to_payload = self.id_at, self.payload_at
        payloads, identifiers, at = [], [], 0
        while at + 3 <= have:
            length = buffer[at + 1]
            more = length > 127
            end = at + (3 + (length & 127 | buffer[at + 2] << 7) if more else 2 + length)
            if end > have:
                break
            identifiers.append(at + to_id + more)
            payloads.append(at + to_payload + more)
            at = end
        return payloads, identifiers, at, 0


class Nats:
    """Core NATS: at most once, nothing is acknowledged."""

    acknowledges = False
    first_byte = b"M"

    def __init__(self, topic_bytes: int, payload_bytes: int):
        self._topic_bytes = topic_bytes
        self.id_at = 0
        self.payload_at = len("MSG  1 \r\n") + topic_bytes + len(str(payload_bytes))
        self.delivery_bytes = self.payload_at + payload_bytes + 2

    def connect(self, address: tuple[str, int], name: str) -> socket.socket:
        """A connection that the broker has accepted."""
        client = dial(address)
        read_until(client, b"\r\n")
        options = {"verbose": False, "pedantic": False, "name": name, "lang": "none", "version": "1", "protocol": 1}
        client.sendall(b"CONNECT " + json.dumps(options).encode() + b"\r\nPING\r\n")
        read_until(client, b"PONG\r\n")
        return client

    def subscribe(self, client: socket.socket, topic: str) -> None:
        """Subscribes and waits until the broker has said yes."""
        client.sendall(f"SUB {_subject(topic)} 1\r\nPING\r\n".encode())
        read_until(client, b"PONG\r\n")

    def publication(self, topic: str, payload: bytes, identifier: int) -> bytes:
        """The bytes that publish a message.

        >>> Nats(1, 1).publication("t", b"x", 7)
        b'PUB t 1\\r\\nx\\r\\n'
        """
        return f"PUB {_subject(topic)} {len(payload)}\r\n".encode() + payload + b"\r\n"

    def places(self, buffer: bytearray, have: int) -> tuple[list[int], list[int], int, int]:
        """Finds deliveries of any length.

        >>> Nats(1, 1).places(bytearray(b"MSG t 1 2\\r\\nab\\r\\nPING\\r\\nMSG"), 25)
        ([11], [], 21, 1)
        """
        to_size = len("MSG ") + self._topic_bytes + len(" 1 ")
        payloads, at, asked = [], 0, 0
        while (line := buffer.find(b"\r\n", at, have)) >= 0:
            if buffer[at] != 77:  # M
                asked, at = asked + 1, line + 2
                continue
            end = line + 4 + int(buffer[at + to_size : line])
            if end > have:
                break
            payloads.append(line + 2)
            at = end
        return payloads, [], at, asked


def _subject(topic: str) -> str:
    return topic.replace("/", ".").replace("#", ">")


def _text(text: str) -> bytes:
    data = text.encode()
    return len(data).to_bytes(2, "big") + data


def _packet(first: int, body: bytes) -> bytes:
    if len(body) > 127:
        return bytes((first, len(body) & 127 | 128, len(body) >> 7)) + body
    return bytes((first, len(body))) + body
