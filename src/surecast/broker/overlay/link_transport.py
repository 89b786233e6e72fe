"""One transport to a neighbour, dialled or accepted: the handshake, then the bytes of a link both ways.

Nothing that a neighbour sends is read before it has proven that it belongs to the overlay, and whatever breaks the
rules ends the transport: the link is then as if it had been cut, and resumes.
"""

from __future__ import annotations

import asyncio
import socket
import time
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias, cast

from surecast.broker.listeners import certificate_name
from surecast.broker.overlay.link_gate import LinkGate
from surecast.broker.overlay.link_handshake import (
    HANDSHAKE_BYTES_MAX,
    AcceptingHandshake,
    DiallingHandshake,
    LinkIdentity,
)
from surecast.broker.replica.frames import FrameReader, frame
from surecast.broker.replica.handshake import RefusalError
from surecast.broker.tcp import peer_name
from surecast.errors import PeerError
from surecast.protocol.overlay_broker import LinkConnection

if TYPE_CHECKING:
    from surecast.protocol.group.group_link import GroupLink

__all__ = ["HANDSHAKE_S", "EndKind", "LinkTransport", "TransportHandler"]

HANDSHAKE_S: Final = 3.0
_WRITE_BYTES_MAX: Final = 1 << 20
_PIECE_BYTES: Final = 16 << 10
_TURN_S: Final = 0.004
"""A turn that takes many events of a neighbour ends after so long, and they are sent on."""

EndKind: TypeAlias = Literal["hung up", "suspected", "replaced", "broke the rules", "refused", "stopped"]
"""Why a transport ended, for counting."""


class TransportHandler(Protocol):
    """The questions of a transport to its broker."""

    identity: LinkIdentity

    def gate_of(self, neighbour: str) -> LinkGate:
        """Returns the gate in front of what is sent to a neighbour."""

    def admitted(self, transport: LinkTransport) -> LinkConnection | GroupLink:
        """The handshake is complete: returns the connection that goes on from here; PeerError refuses it."""

    def received(self, transport: LinkTransport, data: bytes) -> None:
        """Bytes have come for the connection of a transport; PeerError ends it."""

    def caught_up(self, transport: LinkTransport) -> None:
        """A neighbour that was slow to read takes bytes again."""

    def ended(self, transport: LinkTransport, kind: EndKind, reason: str) -> None:
        """A transport is over; its handshake may not have been complete."""


class LinkTransport(asyncio.Protocol):
    """One transport. `neighbour` is whom it dials, empty where it was accepted and the other end has not proven yet who
    it is. `connection` is there once the handshake is complete."""

    def __init__(self, handler: TransportHandler, neighbour: str = "", *, is_tls: bool = False):
        self.neighbour = neighbour
        self.connection: LinkConnection | GroupLink | None = None
        self.is_slow = False
        self.is_over = False
        self.address = ""
        self.bytes_in = 0
        self.bytes_out = 0
        self._handler = handler
        self._is_tls = is_tls
        self._rest = b""
        self._dials = bool(neighbour)
        self._handshake: DiallingHandshake | AcceptingHandshake | None = None
        self._reader = FrameReader(HANDSHAKE_BYTES_MAX)
        self._gate: LinkGate | None = None
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The transport is up, and TLS with it: begins the handshake."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop has transports of its own kind
        self._transport.set_write_buffer_limits(high=_WRITE_BYTES_MAX)
        sock = transport.get_extra_info("socket")
        is_local = sock is not None and sock.family == socket.AF_UNIX
        self.address = "Unix socket" if is_local else peer_name(transport.get_extra_info("peername"))
        if sock is not None and not is_local:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._deadline = asyncio.get_running_loop().call_later(HANDSHAKE_S, self._too_late)
        name = certificate_name(transport) if self._is_tls else None
        identity = self._handler.identity
        if not self._dials:
            self._handshake = AcceptingHandshake(identity, name)
        elif name is not None and name != self.neighbour:
            self.end("refused", f"the certificate there is that of {name or 'nobody'}, not of {self.neighbour}")
        else:
            self._handshake = handshake = DiallingHandshake(identity, self.neighbour)
            self._use_gate()
            self.write(frame(handshake.greet()))

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        self.bytes_in += len(data)
        if self._rest:
            self._rest += data
        else:
            self._take(data)

    def _take(self, data: bytes) -> None:
        if self.is_over:
            return
        try:
            if self.connection is None:
                self._shake_hands(data)
            elif len(data) <= _PIECE_BYTES:
                self._handler.received(self, data)
            else:
                self._take_pieces(data)
        except RefusalError as error:
            self.end("refused", str(error))
        except PeerError as error:
            self.end("broke the rules", str(error))

    def _take_pieces(self, data: bytes) -> None:
        """Hands on as much as a turn has time for; the rest waits for the next one, so that the first events go on
        their way before the last ones were looked at. What is left when the transport ends was not acknowledged."""
        begun_s = time.perf_counter()
        for at in range(0, len(data), _PIECE_BYTES):
            if at and (self.is_over or time.perf_counter() - begun_s > _TURN_S):
                self._rest = data[at:]
                break
            self._handler.received(self, data[at : at + _PIECE_BYTES])
        if self._rest and self._transport is not None:
            self._transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._take_rest)

    def _take_rest(self) -> None:
        data, self._rest = self._rest, b""
        if self._transport is not None:
            self._transport.resume_reading()
            self._take(data)

    def connection_lost(self, error: Exception | None) -> None:
        """The transport is over."""
        self._transport = None
        text = "it hung up" if error is None else getattr(error, "strerror", None) or str(error)
        self.end("hung up", text if self.connection is not None else f"{text} during the handshake")

    def pause_writing(self) -> None:
        """The neighbour is slow to read: nothing more is taken from its link until it has caught up."""
        self.is_slow = True

    def resume_writing(self) -> None:
        """The neighbour has caught up."""
        self.is_slow = False
        if self.connection is not None and not self.is_over:
            self._handler.caught_up(self)

    # What its broker calls.

    def write(self, data: bytes) -> None:
        """Sends bytes to the neighbour, through the gate of its link."""
        if self._gate is not None:
            self._gate.send(data)
        else:
            self._pass(data)

    def greeted(self) -> None:
        """Both ends have said hello: the transport has all the time it wants."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def end(self, kind: EndKind, reason: str) -> None:
        """Ends the transport; what was handed to it arrives only if this end stops or refuses."""
        if self.is_over:
            return
        self.is_over = True
        self.greeted()
        if self._gate is not None:
            self._gate.clear()
        if self._transport is not None:
            (self._transport.close if kind in ("refused", "stopped") else self._transport.abort)()
        self._handler.ended(self, kind, reason)

    @property
    def unsent_bytes(self) -> int:
        """The bytes that the operating system has not taken yet."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    # Inside.

    def _too_late(self) -> None:
        self.end("hung up", f"it did not finish the handshake within {HANDSHAKE_S:g} s")

    def _use_gate(self) -> None:
        self._gate = self._handler.gate_of(self.neighbour)
        self._gate.clear()
        self._gate.write = self._pass

    def _pass(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self.bytes_out += len(data)
            self._transport.write(data)

    def _shake_hands(self, data: bytes) -> None:
        handshake = self._handshake
        assert handshake is not None
        for content in self._reader.feed(data):
            answer = handshake.receive(content)
            if answer:
                self.write(frame(answer))
            if isinstance(handshake, AcceptingHandshake) and handshake.reason:
                raise RefusalError(handshake.reason)
        if handshake.is_complete:
            # The dialler says hello first, so that nothing of it can come together with what ends the handshake.
            self.neighbour = handshake.neighbour
            self.connection = self._handler.admitted(self)
            if not self._dials:
                self._use_gate()
