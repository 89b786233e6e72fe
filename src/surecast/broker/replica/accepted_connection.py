"""The accepting end of connections: nobody gets past the handshake without a proof, a limit and a deadline."""

from __future__ import annotations

import asyncio
import hmac
import secrets
import socket
from typing import Final, Protocol, cast

from surecast.broker.replica.addresses import Address
from surecast.broker.replica.frames import FrameReader, frame
from surecast.broker.replica.handshake import HELLO_BYTES_MAX, Hello, Role, Welcome, proof, refusal, welcome
from surecast.errors import PeerError

__all__ = ["HANDSHAKE_S", "AcceptedConnection", "ConnectionHandler"]

HANDSHAKE_S: Final = 5.0
WAITING_MAX: Final = 256


class ConnectionHandler(Protocol):
    """The handler of accepted connections."""

    waiting: int
    """Connections that have not proven themselves yet."""

    def secret_of(self, role: Role) -> bytes:
        """Returns the secret that a peer in this role must have."""

    def refusal_reason(self, hello: Hello) -> str | None:
        """Returns why to refuse a connection with this hello, None to accept it."""

    def welcome(self, hello: Hello) -> Welcome:
        """Returns the answer to an accepted hello."""

    def entered(self, connection: AcceptedConnection) -> None:
        """The handshake of a connection is complete."""

    def received(self, connection: AcceptedConnection, frames: list[bytes]) -> None:
        """Frames have arrived; raising PeerError closes the connection."""

    def left(self, connection: AcceptedConnection) -> None:
        """A connection is lost after its handshake."""

    def refused(self, connection: AcceptedConnection, reason: str) -> None:
        """A connection was refused, or closed because of a PeerError."""


class AcceptedConnection(asyncio.Protocol):
    """One accepted connection."""

    hello: Hello

    def __init__(
        self, handler: ConnectionHandler, frame_bytes_max: int, write_bytes_max: int = 1 << 20, in_place: bool = False
    ):
        self.handler = handler
        self.is_open = False
        self.is_slow = False
        self.address = ""
        self._frame_bytes_max = frame_bytes_max
        self._in_place = in_place
        self._write_bytes_max = write_bytes_max
        self._reader = FrameReader(HELLO_BYTES_MAX)
        self._said: tuple[bytes, ...] = ()
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is up."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop has transports of its own kind
        self._transport.set_write_buffer_limits(high=self._write_bytes_max)
        sock = transport.get_extra_info("socket")
        if sock.family == socket.AF_UNIX:
            self.address = "this machine"
        else:
            self.address = str(Address(*transport.get_extra_info("peername", ("?", 0))[:2]))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.handler.waiting += 1
        self._deadline = asyncio.get_running_loop().call_later(HANDSHAKE_S, self._too_late)
        if self.handler.waiting > WAITING_MAX:
            self.close()

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived."""
        try:
            frames = self._reader.feed(data)
            if not self.is_open:
                frames = self._shake_hands(frames)
            if frames and self.is_open:
                self.handler.received(self, frames)
        except PeerError as error:
            self.handler.refused(self, str(error))
            self.close()

    def _shake_hands(self, frames: list[bytes]) -> list[bytes]:
        """Goes on with the handshake; returns the frames that came after it."""
        for at, content in enumerate(frames):
            if not self._said:
                self.hello = Hello.decode(content)
                challenge = b"C" + secrets.token_bytes(16)
                self._said = (content, challenge)
                self.write(frame(challenge))
                continue
            expected = b"P" + proof(self.handler.secret_of(self.hello.role), "dial", *self._said)
            refusal_reason = self.handler.refusal_reason(self.hello)
            if not hmac.compare_digest(content, expected):
                refusal_reason = "the secret is not that of this group"
            if refusal_reason is not None:
                self.write(frame(refusal(refusal_reason)))
                raise PeerError(refusal_reason)
            self._enter()
            return frames[at + 1 :]
        return []

    def _enter(self) -> None:
        self.write(
            frame(welcome(self.handler.secret_of(self.hello.role), self.handler.welcome(self.hello), *self._said))
        )
        self._reader.bytes_max, self._reader.in_place = self._frame_bytes_max, self._in_place
        self._wait_no_more()
        self.is_open = True
        self.handler.entered(self)

    def _wait_no_more(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
            self.handler.waiting -= 1

    def _too_late(self) -> None:
        self.handler.refused(self, f"no proof within {HANDSHAKE_S:g} s")
        self.close()

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is over."""
        self._wait_no_more()
        self._transport = None
        if self.is_open:
            self.is_open = False
            self.handler.left(self)

    def pause_writing(self) -> None:
        """The other end is slow to read: it is not read from either until it has caught up."""
        self.is_slow = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """The other end has caught up."""
        self.is_slow = False
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def write(self, data: bytes) -> None:
        """Hands frames to the transport."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    @property
    def unsent_bytes(self) -> int:
        """Returns how many bytes the transport still holds."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def close(self) -> None:
        """Closes after what was handed over is sent."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Closes at once."""
        if self._transport is not None:
            self._transport.abort()
