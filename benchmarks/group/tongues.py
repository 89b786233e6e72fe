"""Dialects of the generator: MQTT to Surecast, and JetStream's protocol to NATS."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from typing import Any

import numpy as np
from benchmarks.broker.dialects import Mqtt, Nats, read_until
from benchmarks.broker.load import send_all
from benchmarks.broker.shapes import PAYLOAD_BYTES
from benchmarks.group.load import TOPIC, Load

__all__ = ["JetStream", "Spoken"]

_SUBJECT = TOPIC.replace("/", ".")
_INBOX = "_INBOX.bench."


class Spoken:
    """MQTT 3.1.1. What is published at QoS 1 comes at QoS 1 to those who asked for more."""

    first_byte = b""
    acknowledgement_bytes = 4

    def __init__(self, load: Load):
        self._publish = Mqtt(load.publish_qos, len(TOPIC), PAYLOAD_BYTES)
        self._qos = min(load.publish_qos, load.subscribe_qos)
        lasting = "sub" if load.persistent else "-"
        self._subscribe = Mqtt(load.subscribe_qos, len(TOPIC), PAYLOAD_BYTES, persistent=lasting)
        received = Mqtt(self._qos, len(TOPIC), PAYLOAD_BYTES)
        self.delivery_bytes, self.payload_at, self._id_at = received.delivery_bytes, received.payload_at, received.id_at
        self.places = received.places

    def publisher(self, address: tuple[str, int], number: int) -> socket.socket:
        """A connection that may publish."""
        return self._publish.connect(address, f"pub-{number}")

    def subscriber(self, address: tuple[str, int]) -> socket.socket:
        """A connection that gets everything."""
        client = self._subscribe.connect(address, "sub-0")
        self._subscribe.subscribe(client, TOPIC)
        return client

    def publication(self, number: int, payload: bytes, identifier: int) -> bytes:
        """The bytes that publish a message."""
        return self._publish.publication(TOPIC, payload, identifier)

    def acknowledged(self, client: socket.socket, rest: bytes, data: bytes) -> tuple[int, bytes]:
        """PUBACK packets, all of four bytes."""
        if rest:
            data = rest + data
        count, left = divmod(len(data), 4)
        if left:
            data, rest = data[:-left], data[-left:]
        else:
            rest = b""
        # Far quicker than to look at each: all first bytes, and all second ones.
        if data[::4].strip(b"\x40") or data[1::4].strip(b"\x02"):
            raise ConnectionError(f"something else than a PUBACK came: {data[:40].hex()}")
        return count, rest

    def confirm(self, client: socket.socket, deliveries: np.ndarray[Any, np.dtype[np.uint8]]) -> None:
        """Sends a PUBACK for each delivery of QoS 1."""
        if self._qos:
            answers = np.empty((len(deliveries), 4), np.uint8)
            answers[:, 0], answers[:, 1] = 0x40, 2
            answers[:, 2:] = deliveries[:, self._id_at : self._id_at + 2]
            send_all(client, answers.tobytes())

    def confirm_at(self, client: socket.socket, view: memoryview, identifiers: Sequence[int]) -> None:
        """Sends a PUBACK for each delivery of QoS 1."""
        if self._qos:
            send_all(client, b"".join([b"\x40\x02" + view[at : at + 2] for at in identifiers]))


class JetStream:
    """Publications with a reply subject, which JetStream answers once it has stored them."""

    first_byte = b"M"
    acknowledgement_bytes = 100

    def __init__(self, load: Load):
        self._nats = Nats(len(TOPIC), PAYLOAD_BYTES)
        self.payload_at = len(f"MSG {_SUBJECT} 1 {_INBOX}00 {PAYLOAD_BYTES}\r\n")
        self.delivery_bytes = self.payload_at + PAYLOAD_BYTES + 2

    def publisher(self, address: tuple[str, int], number: int) -> socket.socket:
        """A connection that may publish and hears its acknowledgements."""
        client = self._nats.connect(address, f"pub-{number}")
        client.sendall(f"SUB {_INBOX}{number:02} 1\r\nPING\r\n".encode())
        read_until(client, b"PONG\r\n")
        return client

    def subscriber(self, address: tuple[str, int]) -> socket.socket:
        """A plain subscription, at most once, like QoS 0."""
        client = self._nats.connect(address, "sub-0")
        self._nats.subscribe(client, TOPIC)
        return client

    def publication(self, number: int, payload: bytes, identifier: int) -> bytes:
        """The bytes that publish a message."""
        return f"PUB {_SUBJECT} {_INBOX}{number:02} {len(payload)}\r\n".encode() + payload + b"\r\n"

    def acknowledged(self, client: socket.socket, rest: bytes, data: bytes) -> tuple[int, bytes]:
        """Each acknowledgement is a message of two lines."""
        data = rest + data if rest else data
        if b"PING\r\n" in data:
            send_all(client, b"PONG\r\n")
            data = data.replace(b"PING\r\n", b"")
        if b'"error"' in data:
            raise ConnectionError(f"JetStream refused a publication: {data[:300]!r}")
        lines = data.count(b"\n")
        if lines % 2:
            lines -= 1
            end = data.rfind(b"MSG ")
        else:
            end = data.rfind(b"\n") + 1
        return lines // 2, data[end:]

    def confirm(self, client: socket.socket, deliveries: np.ndarray[Any, np.dtype[np.uint8]]) -> None:
        """Nothing is acknowledged by a plain subscriber."""

    def confirm_at(self, client: socket.socket, view: memoryview, identifiers: Sequence[int]) -> None:
        """Nothing is acknowledged by a plain subscriber."""

    def places(self, buffer: bytearray, have: int) -> tuple[list[int], list[int], int, int]:
        """Finds deliveries of any length; they name the reply subject of their publisher.

        >>> data = b"MSG bench.00 1 _INBOX.bench.07 2\\r\\nab\\r\\nPING\\r\\nMSG"
        >>> JetStream(Load("", 1, 1)).places(bytearray(data), len(data))
        ([34], [], 44, 1)
        """
        to_size = len(f"MSG {_SUBJECT} 1 {_INBOX}00 ")
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

    def ask(self, address: tuple[str, int], subject: str, body: dict[str, object]) -> dict[str, Any]:
        """A request to JetStream's own interface, and its answer."""
        client = self._nats.connect(address, "admin")
        try:
            data = json.dumps(body).encode()
            client.settimeout(10.0)
            client.sendall(f"SUB {_INBOX}admin 1\r\nPUB {subject} {_INBOX}admin {len(data)}\r\n".encode())
            client.sendall(data + b"\r\n")
            answer = read_until(client, b"}\r\n")
            found: dict[str, Any] = json.loads(answer[answer.index(b"\r\n{") :])
            return found
        finally:
            client.close()
