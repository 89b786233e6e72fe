"""A connection of this replica to a neighbour of the group in an overlay: what comes over it goes into the log.

Pings and their answers stay here, so that an idle link costs no log entries. All else goes into commands as the bytes
that it is, and what the replicated state has to say to the neighbour comes back when these are applied.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from surecast.errors import PeerError
from surecast.protocol.group.commands import Item
from surecast.protocol.group.group_overlay import AHEAD
from surecast.protocol.overlay.link_codec import FrameSplitter, write
from surecast.protocol.overlay.link_frames import Ping, Pong, Received
from surecast.protocol.overlay_broker.link_clock import LinkClock

if TYPE_CHECKING:
    from surecast.protocol.group.front_end import FrontEnd

__all__ = ["GroupLink"]


class GroupLink:
    """One connection to a neighbour, for the shell as `LinkConnection` is. Times are those of the group.

    The hello of this end is asked for at once where it called; else when the other end has said its own.
    """

    def __init__(self, front_end: FrontEnd, number: int, neighbour: str, *, calls: bool):
        self.neighbour = neighbour
        self.is_up = False
        """True once both ends have said hello, by the log."""
        self.is_closed = False
        self.clock = LinkClock()
        self._front_end = front_end
        self._number = number
        self._splitter = FrameSplitter()
        self._waiting: list[Received] = []
        self._reason = ""
        self._has_called = False
        self._has_hello = False
        if calls:
            self._call()

    # What the shell calls

    def receive(self, data: bytes, now: float) -> None:
        """Takes bytes of the neighbour; PeerError where they break the rules."""
        self._check()
        frames: list[bytes] = []
        try:
            for received in self._splitter.feed(data):
                if isinstance(received, Ping | Pong):
                    self.clock.take(received, now)
                elif self._has_hello:
                    frames.append(received)
                else:
                    self._has_hello = True
                    self._call()
                    self._front_end.add_link_item(Item.LINK_HELLO, self._number, received)
        finally:
            if frames:
                self._front_end.add_link_item(
                    Item.LINK_FRAMES, self._number, b"".join((AHEAD.pack(self.clock.ahead_s), *frames))
                )

    def ping(self, now: float) -> None:
        """Asks the neighbour whether it is there."""
        self._waiting.append(self.clock.ping(now))

    def output(self, acknowledges: bool = True) -> bytes:
        """Returns what to write now; PeerError where the connection must end."""
        self._check()
        waiting, self._waiting = [*self._waiting, *self.clock.answers()], []
        return write(waiting) if waiting else b""

    @property
    def owes_ack(self) -> bool:
        """Returns False: what is applied is acknowledged at once, and nothing else before."""
        return False

    def close(self, now: float) -> None:
        """The connection is over, or is given up."""
        if not self.is_closed:
            self.is_closed = True
            self._front_end.forget_link(self._number)

    # What the replicated state calls

    def say(self, written: Iterable[Received]) -> None:
        """Takes what is to be written."""
        self._waiting += written

    def opened(self) -> None:
        """Both ends have said hello."""
        self.is_up = True

    def fail(self, reason: str) -> None:
        """The connection is of no use any more: whoever uses it next is told so."""
        self._reason = self._reason or reason

    # Inside

    def _check(self) -> None:
        if self._reason or self.is_closed:
            raise PeerError(f"{self.neighbour}: {self._reason or 'the connection is over'}")

    def _call(self) -> None:
        if not self._has_called:
            self._has_called = True
            self._front_end.add_link_item(Item.LINK_CALLED, self._number, self.neighbour.encode())
