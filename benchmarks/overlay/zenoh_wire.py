"""A Zenoh client as bytes, so that its routers have the same load generator as everybody.

Over TCP each batch is its length in two bytes, little-endian, and one message of the transport. A client begins with
INIT and OPEN; after that a FRAME has a number and any count of messages. Numbers are written seven bits at a time, the
lowest first.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence

from benchmarks.broker.dialects import dial, read_exactly

__all__ = ["Zenoh", "ZenohSocket", "number"]

_VERSION = 9
_INIT, _OPEN, _FRAME = 0x01, 0x02, 0x05
_ACK, _SIZES, _MORE = 0x20, 0x40, 0x80
_DECLARE, _PUSH, _PUT = 0x1E, 0x1D, 0x01
_NAMED, _OWN_MAPPING = 0x20, 0x40
_TIMED, _ENCODED = 0x20, 0x40
_HEAD = 0x1F
_LEASE_S = 3_600
"""The router waits so long for a word of a client; its own silence is no concern of a client that only measures."""
_BLOCK = b"\x21\x0d"
"""Priority as usual, and the message is not dropped where a queue is full: the sender waits."""
_KEY = 1
_BATCH_BYTES = 65_535


def number(value: int) -> bytes:
    """A number as Zenoh writes it.

    >>> number(300).hex(" ")
    'ac 02'
    """
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _text(text: str) -> bytes:
    data = text.encode()
    return number(len(data)) + data


class ZenohSocket:
    """A socket on which every write becomes one frame of the reliable channel."""

    def __init__(self, client: socket.socket):
        self._client = client
        self._sequence = 0
        self.fileno = client.fileno
        self.recv, self.recv_into = client.recv, client.recv_into
        self.setblocking, self.settimeout, self.close = client.setblocking, client.settimeout, client.close

    def send(self, data: bytes | bytearray | memoryview) -> int:
        """Sends whole messages as one frame; waits for room if there is none."""
        head = bytes((_FRAME | _ACK,)) + number(self._sequence)
        size = len(head) + len(data)
        if size > _BATCH_BYTES:
            raise ValueError(f"a frame of {size} bytes is too large: publish fewer messages in one write")
        self._sequence = (self._sequence + 1) & 0x0FFF_FFFF
        whole = size.to_bytes(2, "little") + head + data
        try:
            done = self._client.send(whole)
        except BlockingIOError:
            done = 0
        if done < len(whole):
            self._client.settimeout(10.0)
            self._client.sendall(whole[done:])
            self._client.setblocking(False)
        return len(data)

    def sendall(self, data: bytes) -> None:
        """Sends whole messages."""
        if data:
            self.send(data)


class Zenoh:
    """Publications of a declared key, reliable, not dropped where a queue is full."""

    acknowledges = False
    first_byte = b""
    delivery_bytes = payload_at = id_at = 0

    def __init__(self, topic: str):
        """Publications are of this topic."""
        self._topic = topic

    def connect(self, address: tuple[str, int], name: str) -> ZenohSocket:
        """A session that the router has opened."""
        client = dial(address)
        identity = os.urandom(16)
        client.sendall(_batch(bytes((_INIT, _VERSION, 15 << 4 | 0b10)) + identity))
        answer = _read_batch(client)
        if answer[0] & _HEAD != _INIT or not answer[0] & _ACK:
            raise ConnectionError(f"{name} was not accepted: {answer.hex()}")
        at = 3 + 1 + (answer[2] >> 4)
        if answer[0] & _SIZES:
            at += 3
        size, at = _number(answer, at)
        cookie = answer[at : at + size]
        client.sendall(_batch(bytes((_OPEN | _SIZES,)) + number(_LEASE_S) + number(0) + number(size) + cookie))
        answer = _read_batch(client)
        if answer[0] & _HEAD != _OPEN or not answer[0] & _ACK:
            raise ConnectionError(f"{name} was not let in: {answer.hex()}")
        session = ZenohSocket(client)
        # The key of publications is declared once, as Zenoh's own publishers do.
        session.sendall(bytes((_DECLARE, 0x00 | _NAMED)) + number(_KEY) + b"\0" + _text(self._topic))
        return session

    def subscribe(self, client: ZenohSocket, topic: str) -> None:
        """Declares a subscriber. A router does not answer: who needs it must wait until messages come."""
        self.subscribe_many(client, [topic])

    def subscribe_many(self, client: ZenohSocket, topics: Sequence[str], first: int = 1) -> None:
        """Declares many subscribers, numbered from `first`."""
        data = bytearray()
        for identifier, topic in enumerate(topics, first):
            data += bytes((_DECLARE, 0x02 | _NAMED)) + number(identifier) + b"\0" + _text(topic)
            if len(data) > 30_000:
                client.sendall(bytes(data))
                data.clear()
        client.sendall(bytes(data))

    def unsubscribe_many(self, client: ZenohSocket, identifiers: Sequence[int]) -> None:
        """Takes declared subscribers back."""
        client.sendall(b"".join(bytes((_DECLARE, 0x03)) + number(identifier) for identifier in identifiers))

    def publication(self, topic: str, payload: bytes, identifier: int) -> bytes:
        """The bytes that publish a message of the declared key."""
        push = bytes((_PUSH | _OWN_MAPPING | _MORE,)) + number(_KEY) + _BLOCK
        return push + bytes((_PUT,)) + number(len(payload)) + payload

    def publication_of(self, topic: str, payload: bytes) -> bytes:
        """The bytes that publish a message whose key was not declared."""
        push = bytes((_PUSH | _NAMED | _MORE,)) + b"\0" + _text(topic) + _BLOCK
        return push + bytes((_PUT,)) + number(len(payload)) + payload

    def places(self, buffer: bytearray, have: int) -> tuple[list[int], list[int], int, int]:
        """Finds deliveries in whole batches."""
        payloads, _, at = self.deliveries(buffer, have)
        return payloads, [], at, 0

    def deliveries(self, buffer: bytearray | bytes, have: int) -> tuple[list[int], list[int], int]:
        """Returns where payloads begin, where they end, and how many bytes are whole batches."""
        begins: list[int] = []
        ends: list[int] = []
        at = 0
        while at + 2 <= have:
            end = at + 2 + (buffer[at] | buffer[at + 1] << 8)
            if end > have:
                break
            if buffer[at + 2] & _HEAD == _FRAME:
                _pushes(buffer, at + 2, end, begins, ends)
            at = end
        return begins, ends, at


def _pushes(buffer: bytearray | bytes, at: int, end: int, begins: list[int], ends: list[int]) -> None:
    """Finds the payloads of one frame; declarations are told before publications, and have frames of their own."""
    more = buffer[at] & _MORE
    _, at = _number(buffer, at + 1)
    if more:
        at = _after_extensions(buffer, at)
    while at < end and buffer[at] & _HEAD == _PUSH:
        at = _payload_at(buffer, at)
        size = buffer[at]
        at += 1
        if size > 127:
            size = size & 127 | buffer[at] << 7
            at += 1
        begins.append(at)
        at += size
        ends.append(at)


def _payload_at(buffer: bytearray | bytes, at: int) -> int:
    """Where the length of the payload of a publication is. The two heads are followed by what their flags say."""
    head = buffer[at]
    at += 1
    while buffer[at] > 127:
        at += 1
    at += 1
    if head & _NAMED:
        size, at = _number(buffer, at)
        at += size
    if head & _MORE:
        at = _after_extensions(buffer, at)
    head = buffer[at]
    at += 1
    if head & _HEAD != _PUT:
        raise ConnectionError(f"something else than a PUT came: {head:#x}")
    if head & _TIMED:  # the time, and the identity of the router that set it
        while buffer[at] > 127:
            at += 1
        at += 2 + buffer[at + 1]
    if head & _ENCODED:  # a number, and a schema if its lowest bit is set
        encoding, at = _number(buffer, at)
        if encoding & 1:
            size, at = _number(buffer, at)
            at += size
    return _after_extensions(buffer, at) if head & _MORE else at


def _after_extensions(buffer: bytearray | bytes, at: int) -> int:
    more = True
    while more:
        head = buffer[at]
        at += 1
        kind, more = head & 0x60, bool(head & _MORE)
        if kind:
            value, at = _number(buffer, at)
            if kind == 0x40:
                at += value
    return at


def _number(data: bytes | bytearray, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def _batch(message: bytes) -> bytes:
    return len(message).to_bytes(2, "little") + message


def _read_batch(client: socket.socket) -> bytes:
    return read_exactly(client, int.from_bytes(read_exactly(client, 2), "little"))
