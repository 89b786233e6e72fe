"""A broker of MQTT 3.1.1 in a thread that does wrong what it is told to: the check of a generator must notice."""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Callable, Iterable

from surecast.protocol.mqtt import (
    V311,
    Connack,
    Connect,
    Disconnect,
    PacketDecoder,
    Puback,
    Publish,
    ReasonCode,
    Suback,
    Subscribe,
    encode,
    match,
)

Fault = Callable[[int, bytes], Iterable[bytes]]
"""Gets the number of a delivery and its bytes; returns what is sent in its place."""


def faithful(number: int, data: bytes) -> Iterable[bytes]:
    return [data]


def losing(number: int, data: bytes) -> Iterable[bytes]:
    return [] if number == 10 else [data]


def repeating(number: int, data: bytes) -> Iterable[bytes]:
    return [data, data] if number == 10 else [data]


class Swapping:
    """Sends delivery 10 behind delivery 11."""

    def __init__(self) -> None:
        self.held = b""

    def __call__(self, number: int, data: bytes) -> Iterable[bytes]:
        if number == 10:
            self.held = data
            return []
        return [data, self.held] if number == 11 else [data]


class FaultyBroker:
    """Listens on `port` until the block ends. It ends all connections after `publications_max` publications."""

    def __init__(
        self,
        fault: Fault = faithful,
        reason: ReasonCode = ReasonCode.SUCCESS,
        publications_max: int = 1 << 60,
        reads: bool = True,
    ):
        self.fault, self.reason, self.publications_max, self.reads = fault, reason, publications_max, reads
        self.connects: list[Connect] = []
        self.goodbyes = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._filters: dict[socket.socket, list[str]] = {}
        self._publications = self._deliveries = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> FaultyBroker:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()

    def _serve(self) -> None:
        while not self._over.is_set():
            for key, _ in self._selector.select(0.05):
                if key.data is None:
                    client, _ = self._listener.accept()
                    decoder = PacketDecoder(version=None, side="server")
                    self._selector.register(client, selectors.EVENT_READ, decoder)
                elif key.fileobj.fileno() >= 0:  # type: ignore[union-attr]  # not one that was left in this round
                    self._receive(key.fileobj, key.data)  # type: ignore[arg-type]

    def _receive(self, client: socket.socket, decoder: PacketDecoder) -> None:
        try:
            data = client.recv(1 << 16)
        except OSError:
            data = b""
        packets = decoder.feed(data) if data else [Disconnect()]
        for packet in packets:
            if client.fileno() < 0:
                return  # it was left while it spoke
            if isinstance(packet, Connect):
                self.connects.append(packet)
                client.sendall(encode(Connack(False, self.reason), V311))
            elif isinstance(packet, Subscribe):
                self._filters[client] = [each.filter for each in packet.subscriptions]
                granted = tuple(ReasonCode(each.qos) for each in packet.subscriptions)
                client.sendall(encode(Suback(packet.packet_id, granted), V311))
            elif isinstance(packet, Publish):
                self._publish(client, packet)
            elif isinstance(packet, Disconnect):
                self.goodbyes += bool(data)
                self._leave(client)
                return

    def _publish(self, client: socket.socket, packet: Publish) -> None:
        self._publications += 1
        if self._publications >= self.publications_max:
            for each in [key.fileobj for key in self._selector.get_map().values() if key.data is not None]:
                self._leave(each)  # type: ignore[arg-type]
            return
        if packet.qos:
            client.sendall(encode(Puback(packet.packet_id), V311))
        for subscriber, filters in self._filters.items():
            if any(match(each, packet.topic) for each in filters):
                self._deliveries += 1
                data = encode(packet, V311)
                for each in self.fault(self._deliveries, data):
                    subscriber.sendall(each)

    def _leave(self, client: socket.socket) -> None:
        self._filters.pop(client, None)
        if client in self._selector.get_map():
            self._selector.unregister(client)
            client.close()
