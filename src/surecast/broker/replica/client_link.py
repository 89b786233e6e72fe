"""A connection of a client or an administrator to one replica."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from typing import Any, Final, cast

from surecast.broker.replica.addresses import Address
from surecast.broker.replica.frames import FrameReader, frame
from surecast.broker.replica.handshake import Hello, Welcome, shake_hands
from surecast.errors import PeerError

__all__ = ["ReplicaLink"]

_FRAME_BYTES_MAX: Final = 1 << 30
_CONNECT_S: Final = 2.0


class ReplicaLink(asyncio.Protocol):
    """A connection to one replica. Frames wait in `heard` until somebody sets `on_frames`."""

    def __init__(self) -> None:
        self.heard: deque[bytes] = deque()
        self.is_lost = False
        self.reason = "it hung up"
        self.on_frames: Any = None
        self.changed = asyncio.Event()
        self._reader = FrameReader(_FRAME_BYTES_MAX)
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def open(cls, address: Address, hello: Hello, secret: bytes) -> tuple[ReplicaLink, Welcome]:
        """Connects and says hello. OSError, TimeoutError, RefusalError or PeerError where that does not work."""
        async with asyncio.timeout(_CONNECT_S):
            _, link = await asyncio.get_running_loop().create_connection(cls, *address)
            try:
                return link, await shake_hands(link._send, link.receive, hello, secret)
            except BaseException:
                link.close()
                raise

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is up."""
        self._transport = cast(asyncio.Transport, transport)
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived."""
        try:
            frames = self._reader.feed(data)
            if self.on_frames is not None:
                self.on_frames(frames)
                return
        except PeerError as error:
            self.reason = str(error)
            self.close()
            return
        self.heard.extend(frames)
        self.changed.set()

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is over."""
        self.is_lost = True
        if error is not None:
            self.reason = str(error)
        self.changed.set()

    async def _send(self, content: bytes) -> None:
        self.write(frame(content))

    async def receive(self) -> bytes:
        """The next frame; PeerError where the connection is over."""
        while not self.heard:
            if self.is_lost:
                raise PeerError(self.reason)
            self.changed.clear()
            await self.changed.wait()
        return self.heard.popleft()

    def write(self, data: bytes) -> None:
        """Sends frames."""
        if self._transport is not None and not self.is_lost:
            self._transport.write(data)

    def close(self) -> None:
        """Closes."""
        if self._transport is not None:
            self._transport.abort()
