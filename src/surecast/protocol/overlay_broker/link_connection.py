"""One connection between two brokers, from its first byte: hello, frames, pings and the difference of the clocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surecast.errors import PeerError
from surecast.protocol.overlay.link_codec import FrameReader, write
from surecast.protocol.overlay.link_frames import OverlayHello, Ping, Pong, Received, check_hello
from surecast.protocol.overlay.overlay_frames import Written
from surecast.protocol.overlay_broker.link_clock import LinkClock

if TYPE_CHECKING:
    from surecast.protocol.overlay_broker.overlay_broker import OverlayBroker

__all__ = ["LinkConnection"]


class LinkConnection:
    """One connection to a neighbour. The end that called gives the name of the neighbour; the other learns it. If the
    other end knows it already, by a certificate or a secret, it gives it too, and `calls` is False.

    `receive` takes bytes and `output` gives those to write; both may raise PeerError, and then the shell closes the
    connection. However it ends, the shell calls `close`. An end that is replaced by a newer connection of the same
    neighbour has `is_closed` set.
    """

    def __init__(self, broker: OverlayBroker, neighbour: str = "", *, calls: bool = True):
        self.neighbour = neighbour
        self.is_up = False
        """True once both ends have said hello."""
        self.is_closed = False
        self.clock = LinkClock()
        self._broker = broker
        self._reader = FrameReader()
        self._waiting: list[Received] = []
        self._calls = calls and bool(neighbour)
        if self._calls:
            self._say_hello()

    def receive(self, data: bytes, now: float) -> None:
        """Takes bytes of the neighbour; PeerError where they break the rules."""
        if self.is_closed:
            raise PeerError(f"{self.neighbour}: a newer connection has taken the place of this one")
        for received in self._reader.feed(data):
            if isinstance(received, OverlayHello):
                self._greet(received, now)
            elif isinstance(received, Ping | Pong):
                self.clock.take(received, now)
                self._reader.ahead_s = self.clock.ahead_s
            else:
                self._take(received, now)

    def ping(self, now: float) -> None:
        """Asks the neighbour whether it is there."""
        self._waiting.append(self.clock.ping(now))

    def output(self, acknowledges: bool = True) -> bytes:
        """Returns what to write now; to be called after the journal was committed, while the transport has room.

        Without `acknowledges` an acknowledgement alone is put off; `owes_ack` says if there is one."""
        waiting, self._waiting = [*self._waiting, *self.clock.answers()], []
        if self.is_up and not self.is_closed:
            waiting += self._broker.node.output(self.neighbour, acknowledges)
        return write(waiting) if waiting else b""

    @property
    def owes_ack(self) -> bool:
        """Returns whether something of the neighbour was not acknowledged yet."""
        return self.is_up and not self.is_closed and self._broker.node.owes_ack(self.neighbour)

    def close(self, now: float) -> None:
        """The connection is over, or is given up."""
        if self.is_closed:
            return
        self.is_closed = True
        self._broker.disconnected(self, now)

    def _say_hello(self) -> None:
        broker = self._broker
        link = broker.node.hello(self.neighbour)
        plan = broker.node.plan
        self._waiting.insert(0, OverlayHello(broker.name, self.neighbour, plan.epoch, plan.hash, link))

    def _greet(self, hello: OverlayHello, now: float) -> None:
        broker = self._broker
        check_hello(broker.node.plan, broker.name, self.neighbour, hello)
        self.neighbour = hello.broker
        broker.connected(self, now)
        if not self._calls:
            self._say_hello()
        broker.node.link_up(self.neighbour, hello.link, now)
        self.is_up = True

    def _take(self, written: Written, now: float) -> None:
        self._broker.node.receive(self.neighbour, written, now)
