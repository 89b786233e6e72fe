"""MQTT straight on TCP or TLS."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from surecast.broker.shell import PIECE_BYTES, Shell
from surecast.protocol.broker import Connection, Origin

__all__ = ["TcpChannel", "peer_name"]

_LINGER_S = 5.0


def _nothing(*arguments: object) -> None:
    """Does nothing: the default of a callback."""


class TcpChannel(asyncio.Protocol):
    """MQTT straight on a TCP or TLS connection."""

    connection: Connection
    piece_bytes = PIECE_BYTES

    def __init__(
        self,
        server: Shell,
        listener: str,
        identify: Callable[[asyncio.BaseTransport], str] | None = None,
        on_lost: Callable[[], None] = _nothing,
    ):
        self._server = server
        self._listener = listener
        self._identify = identify
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._linger: asyncio.TimerHandle | None = None
        self._is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is up."""
        # uvloop has transports of its own kind, so this is not checked.
        self._transport = cast(asyncio.Transport, transport)
        if self._is_lost or self._server.stopped:
            self._is_lost = True
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(high=self._server.broker.settings.unsent_bytes_max)
        identity = self._identify(transport) if self._identify is not None else ""
        # What is sent goes straight to the transport, and what arrives straight to the server: that saves two calls.
        self.send = self._transport.write  # type: ignore[method-assign]
        self._server.connected(self, Origin(self._listener, peer_name(transport.get_extra_info("peername")), identity))
        self.data_received = partial(self._server.received, self.connection)  # type: ignore[method-assign]
        self._transport.set_protocol(self)

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is over; it may have been before it was up."""
        is_known = self._transport is not None and not self._is_lost
        self._is_lost = True
        self._on_lost()
        if self._linger is not None:
            self._linger.cancel()
        if is_known:
            self._server.lost(self.connection, str(error) if error is not None else "connection lost")

    def pause_writing(self) -> None:
        """The client is too slow."""
        self._server.set_congested(self.connection, True)

    def resume_writing(self) -> None:
        """The client has caught up."""
        self._server.set_congested(self.connection, False)

    def send(self, data: bytes) -> None:
        """Hands bytes to the transport."""
        # Nothing is sent before the connection is up, or once it is being closed.

    def close(self) -> None:
        """Closes after what was handed over is sent.

        What the client still sends is read and forgotten until it closes too, or has had time for it: a connection that
        is closed with unread bytes is reset, and the client would never see why (RFC 1122, section 4.2.2.13).
        """
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self.resume_reading()  # one that was held back must be heard to its end
        if self._server.stopped or not transport.can_write_eof():
            transport.close()
        elif self._linger is None:
            del self.send  # nothing more is sent
            transport.write_eof()
            self._linger = self._server.loop.call_later(_LINGER_S, transport.abort)

    def abort(self) -> None:
        """Closes at once."""
        if self._transport is not None:
            self._transport.abort()

    def pause_reading(self) -> None:
        """Leaves what the client sends in the network for a while."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Reads again."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()


def peer_name(address: Any) -> str:
    """An address and a port as people write them."""
    if isinstance(address, tuple) and len(address) >= 2:
        host = f"[{address[0]}]" if ":" in str(address[0]) else address[0]
        return f"{host}:{address[1]}"
    return str(address or "")
