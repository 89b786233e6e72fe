"""MQTT in WebSocket frames (MQTT 5.0, section 6): the frames are only a wrapper, packets may be cut anywhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import cast

from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Origin as PageOrigin
from websockets.typing import Subprotocol

from surecast.broker.shell import PIECE_BYTES, Shell
from surecast.broker.tcp import peer_name
from surecast.protocol.broker import Connection, Origin, Phase
from surecast.protocol.mqtt.unfinished import COUNTED_BYTES_MIN

__all__ = ["WebSocketChannel"]

_FRAME_BYTES = 64 * 1024  # clients limit the messages they take, often to 1 MiB
_PIECE_BYTES = 8 * 1024
_CLOSE_S = 2.0
_WRONG_DATA = 1003
_GOING_AWAY = 1001


class WebSocketChannel(asyncio.Protocol):
    """One WebSocket connection. The core hears of it when the handshake is done."""

    connection: Connection
    piece_bytes = PIECE_BYTES

    def __init__(
        self,
        server: Shell,
        listener: str,
        path: str,
        origins: Sequence[str] | None = None,
        identify: Callable[[asyncio.BaseTransport], str] | None = None,
        on_lost: Callable[[], None] | None = None,
    ):
        self._server = server
        self._listener = listener
        self._path = path
        self._identify = identify
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._is_open = False
        self._is_lost = False
        self._has_failed = False
        self._is_paused = False
        self._is_counted = False
        self._is_given_up = False
        self._unparsed = bytearray()
        self._timer: asyncio.TimerHandle | None = None
        self._protocol = ServerProtocol(
            origins=None if origins is None else [PageOrigin(origin) for origin in origins],
            subprotocols=[Subprotocol("mqtt")],
        )
        # A frame is held back until it is whole, so before CONNECT it must be as small as a packet there.
        self._is_narrow = True
        self._limit(server.broker.settings.first_packet_bytes_max)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is up; the client has a limited time for its handshake."""
        self._transport = cast(asyncio.Transport, transport)
        if self._is_lost or self._server.stopped:
            self._transport.abort()
            return
        settings = self._server.broker.settings
        self._transport.set_write_buffer_limits(high=settings.unsent_bytes_max)
        self._timer = self._server.loop.call_later(settings.connect_timeout_s, self.abort)

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived. Frames may be tiny, so many bytes are taken in pieces: others have their turn between."""
        if self._unparsed:
            self._unparsed += data  # a transport may have read more before it was paused
        elif len(data) > _PIECE_BYTES:
            self._unparsed += data
            if self._transport is not None:
                self._transport.pause_reading()
            self._next_piece()
        else:
            self._parse(data)

    def _next_piece(self) -> None:
        if self._is_paused or not self._unparsed:
            return
        piece = bytes(self._unparsed[:_PIECE_BYTES])
        del self._unparsed[:_PIECE_BYTES]
        if self._unparsed:
            self._server.loop.call_soon(self._next_piece)
        else:
            self.resume_reading()
        self._parse(piece)

    def drop_held(self) -> None:
        """Forgets what is not parsed yet, and parses no more."""
        self._is_given_up = True
        self._unparsed.clear()
        self._protocol.reader.buffer.clear()

    def _parse(self, data: bytes) -> None:
        if self._is_given_up:
            return
        self._protocol.receive_data(data)
        # Before frames are handed on, so that nothing of them counts twice.
        held = len(self._protocol.reader.buffer) + len(self._unparsed)
        if held >= COUNTED_BYTES_MIN and not self._is_lost:
            self._is_counted = True
            self._server.unfinished.hold(self, held)
        elif self._is_counted:
            self._release()
        self._handle_events()

    def _release(self) -> None:
        self._is_counted = False
        self._server.unfinished.release(self)

    def _parse_rest(self) -> None:
        rest, self._unparsed = bytes(self._unparsed), bytearray()
        if rest:
            self._parse(rest)

    def eof_received(self) -> None:
        """The client will send no more."""
        self._parse_rest()
        self._protocol.receive_eof()
        self._handle_events()

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is over; it may have been before it was up."""
        self._is_lost = True
        if self._is_open:
            self._parse_rest()
        self._release()
        if self._timer is not None:
            self._timer.cancel()
        if self._on_lost is not None:
            self._on_lost()
        if self._is_open:
            self._is_open = False
            self._server.lost(self.connection, str(error) if error is not None else "connection lost")

    def pause_writing(self) -> None:
        """The client is too slow."""
        if self._is_open:
            self._server.set_congested(self.connection, True)

    def resume_writing(self) -> None:
        """The client has caught up."""
        if self._is_open:
            self._server.set_congested(self.connection, False)

    def send(self, data: bytes) -> None:
        """Hands bytes to the transport, in frames."""
        if self._protocol.state is not State.OPEN:
            return
        if self._is_narrow and self.connection.phase is Phase.OPEN:
            self._is_narrow = False
            self._limit(self.connection.limits.packet_bytes_max)
        for at in range(0, len(data), _FRAME_BYTES):
            self._protocol.send_binary(data[at : at + _FRAME_BYTES])
        self._flush()

    def close(self) -> None:
        """Closes after what was handed over is sent and the client has said goodbye too, or has had time for it."""
        self.resume_reading()  # one that was held back must be heard to its end
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(_GOING_AWAY if self._server.stopped else 1000)
            self._flush()
            self._plan_end()
        elif self._protocol.state is not State.CLOSING:
            self._end()

    def pause_reading(self) -> None:
        """Leaves what the client sends in the network for a while."""
        self._is_paused = True
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Reads again, after what was read already."""
        self._is_paused = False
        if self._unparsed:
            self._server.loop.call_soon(self._next_piece)
        elif self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def abort(self) -> None:
        """Closes at once."""
        self._unparsed.clear()
        if self._transport is not None:
            self._transport.abort()

    def _limit(self, size_bytes: int) -> None:
        """Sets the largest message that is taken; newer versions of the library have two names for it."""
        for name in ("max_size", "max_message_size", "max_fragment_size"):
            if hasattr(self._protocol, name):
                setattr(self._protocol, name, size_bytes)

    def _handle_events(self) -> None:
        for event in self._protocol.events_received():
            if isinstance(event, Request):
                self._greet(event)
            elif isinstance(event, Frame) and self._is_open:
                self._take(event)
        self._flush()
        if self._protocol.close_expected():
            self._plan_end()

    def _greet(self, request: Request) -> None:
        protocol = self._protocol
        if self._server.stopped:
            self.abort()
            return
        if request.path.partition("?")[0] != self._path:
            protocol.send_response(protocol.reject(HTTPStatus.NOT_FOUND, f"MQTT is at {self._path}\n"))
            return
        protocol.send_response(protocol.accept(request))
        if protocol.state is not State.OPEN:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._is_open = True
        assert self._transport is not None
        identity = self._identify(self._transport) if self._identify is not None else ""
        peer = peer_name(self._transport.get_extra_info("peername"))
        self._server.connected(self, Origin(self._listener, peer, identity))

    def _take(self, frame: Frame) -> None:
        if frame.opcode is Opcode.TEXT:
            self._has_failed = True
            self._protocol.fail(_WRONG_DATA, "MQTT travels in binary frames")
        elif frame.opcode in (Opcode.BINARY, Opcode.CONT) and frame.data and not self._has_failed:
            # The state may be further already: a client's last packet and its goodbye often come together.
            self._server.received(self.connection, bytes(frame.data))

    def _flush(self) -> None:
        if self._transport is None:
            return
        for data in self._protocol.data_to_send():
            if data:
                self._transport.write(data)
            else:
                self._end()

    def _plan_end(self) -> None:
        """The peer closes the connection; if it does not, it is closed for it."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._server.loop.call_later(_CLOSE_S, self.abort)

    def _end(self) -> None:
        if self._transport is not None:
            self._transport.close()
