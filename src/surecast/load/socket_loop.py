"""Connections of one process of a generator: who is ready to be read, and what could not be written yet."""

from __future__ import annotations

import select
import ssl
from abc import ABC, abstractmethod
from typing import Final

from surecast.load.broker_access import BrokerConnection, would_block

__all__ = ["LoopConnection", "SocketLoop"]

_PINGREQ: Final = b"\xc0\x00"


class LoopConnection(ABC):
    """A connection in a loop. `unsent` are bytes for which the socket had no room."""

    def __init__(self, loop: SocketLoop, connection: BrokerConnection):
        self.connection = connection
        self.unsent = bytearray()
        self.rest = b""
        self._loop = loop
        self._socket = connection.socket
        self.is_encrypted = isinstance(connection.socket, ssl.SSLSocket)
        loop.add(self)

    def send(self, data: bytes | bytearray) -> None:
        """Sends, in order; what finds no room goes out when there is some."""
        if self.unsent:
            self.unsent += data
            return
        try:
            sent = self._socket.send(data)
        except OSError as error:
            if not would_block(error):
                raise self.connection.ended() from None
            sent = 0
        if sent < len(data):
            self.unsent += memoryview(data)[sent:]
            self._loop.watch_room(self, True)

    def send_rest(self) -> None:
        """Sends what had found no room."""
        try:
            sent = self._socket.send(self.unsent)
        except OSError as error:
            if not would_block(error):
                raise self.connection.ended() from None
            return
        del self.unsent[:sent]
        if not self.unsent:
            self._loop.watch_room(self, False)

    def read(self, buffer: bytearray, view: memoryview) -> int:
        """Reads behind the rest of the last packet; returns how many bytes there are, 0 where nothing has come."""
        held = len(self.rest)
        buffer[:held] = self.rest
        try:
            more = self._socket.recv_into(view[held:])
        except OSError as error:
            if would_block(error):
                return 0
            raise self.connection.ended() from None
        if not more:
            raise self.connection.ended(self.rest)
        return held + more

    @property
    def has_more(self) -> bool:
        """Returns whether TLS holds bytes that the socket does not show any more."""
        return self.is_encrypted and self._socket.pending() > 0  # type: ignore[attr-defined]

    @abstractmethod
    def handle(self, buffer: bytearray, view: memoryview) -> None:
        """Takes what has come."""


class SocketLoop:
    """All connections of a process, by epoll."""

    def __init__(self, buffer_bytes: int) -> None:
        self._epoll = select.epoll()
        self._by_file: dict[int, LoopConnection] = {}
        self._buffer = bytearray(buffer_bytes)
        self._view = memoryview(self._buffer)

    def add(self, client: LoopConnection) -> None:
        """Takes a connection in."""
        client.connection.run_free()
        file = client.connection.socket.fileno()
        self._by_file[file] = client
        self._epoll.register(file, select.EPOLLIN)

    def watch_room(self, client: LoopConnection, wanted: bool) -> None:
        """Says whether a connection waits for room in its socket."""
        self._epoll.modify(client.connection.socket.fileno(), select.EPOLLIN | (select.EPOLLOUT if wanted else 0))

    def wait(self, timeout_s: float) -> bool:
        """Waits until something has come, or there is room, and handles it; returns whether there was something."""
        ready = self._epoll.poll(0)
        if not ready:
            if timeout_s <= 0:
                return False
            # The timers of epoll are as coarse as a millisecond, those of select are not; and it is quick for one file.
            if not select.select((self._epoll,), (), (), timeout_s)[0]:
                return False
            ready = self._epoll.poll(0)
        for file, events in ready:
            client = self._by_file[file]
            if events & select.EPOLLOUT:
                client.send_rest()
            if events & ~select.EPOLLOUT:
                client.handle(self._buffer, self._view)
                while client.has_more:
                    client.handle(self._buffer, self._view)
        return True

    def ping(self) -> None:
        """Says on every connection that its client is there."""
        for client in self._by_file.values():
            client.send(_PINGREQ)

    def close(self) -> None:
        """Says goodbye on every connection."""
        for client in self._by_file.values():
            client.connection.close()
        self._by_file.clear()
        self._epoll.close()
