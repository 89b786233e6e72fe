"""A group as one broker of an overlay: core and node are replicated state, and each link is at one of the replicas.

The commands say what the replica that leads saw at its links: a connection is there, a hello, frames, an end. Every
replica gives them to its own `OverlayBroker`, with the time of the log; so sessions of links, custody, demand and the
numbers of events are equal everywhere. What follows for a neighbour is made by all, and written by the replica that has
the connection. An acknowledgement leaves when its cause was applied, so a majority has what it promises.

The overlay begins with the first command: its time is the group's incarnation for ever. A link belongs to the group:
another replica goes on with its session where the one before stopped, as after any broken connection.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, Protocol

from surecast.errors import PeerError
from surecast.protocol.broker import BrokerCore
from surecast.protocol.codec import TEXT, U16, U32, U64, Layout, many, sized
from surecast.protocol.overlay.link_codec import FrameReader
from surecast.protocol.overlay.link_frames import OverlayHello, Received, check_hello
from surecast.protocol.overlay_broker.broker_state import restore_state, state_of
from surecast.protocol.overlay_broker.overlay_broker import OverlayBroker

__all__ = ["AHEAD", "GroupOverlay", "LinkEnd", "LinkHome", "MakeOverlay"]

MakeOverlay = Callable[[BrokerCore, float], OverlayBroker]
"""Makes the broker of the overlay around a core, at a time of the log; every replica must make it alike."""

AHEAD: Final = struct.Struct(">d")
"""In front of frames: by how much the clock of the neighbour is ahead of the group's."""

_EFFECTS: Final = struct.Struct(">9Q")
_PIECE_BYTES: Final = 256 << 10
_HEAD_KEY: Final = b"oO"
_PIECE_KEY: Final = b"oP"


class LinkHome(NamedTuple):
    """A connection to a neighbour: the replica that has it, its incarnation, and the number there."""

    replica: int
    incarnation: int
    number: int


class LinkEnd(Protocol):
    """A connection of this replica to a neighbour, as the replicated state sees it."""

    def say(self, written: Iterable[Received]) -> None:
        """Takes what is to be written."""

    def opened(self) -> None:
        """Both ends have said hello."""

    def fail(self, reason: str) -> None:
        """The connection is of no use any more."""


class _Row(NamedTuple):
    neighbour: str
    home: LinkHome


class _Head(NamedTuple):
    """The head of a snapshot: the plan by which it was made, and the connections of links."""

    epoch: int
    plan: str
    homes: tuple[_Row, ...]


_HOME: Final = Layout("connection of a link", LinkHome, replica=U16, incarnation=U64, number=U32)
_HEAD: Final = Layout(
    "overlay of a group",
    _Head,
    epoch=U64,
    plan=sized(1, is_text=True),
    homes=many(Layout("link", _Row, neighbour=TEXT, home=_HOME)),
)


class GroupOverlay:
    """The overlay's part of the state. `end_of` finds a connection that this replica has; None where another has it."""

    def __init__(self, broker: OverlayBroker, end_of: Callable[[LinkHome], LinkEnd | None]):
        self.broker = broker
        self.homes: dict[str, LinkHome] = {}
        """The connection of each link that is up, or about to be."""
        self.due_s = broker.next_timer()
        """When something is due by the time of the log. It is found at the end of each command, by all replicas:
        whoever asks the node may have it forget what is void."""
        self._end_of = end_of

    # What replicas saw at their links

    def called(self, home: LinkHome, neighbour: str, now: float) -> None:
        """A connection to a neighbour is there, and wants the hello of the group. It replaces one before."""
        node = self.broker.node
        if neighbour not in node.plan.neighbours(node.name):
            return
        self._end(neighbour, "the neighbour has connected anew", now)
        self.homes[neighbour] = home
        plan = node.plan
        self._say(neighbour, [OverlayHello(node.name, neighbour, plan.epoch, plan.hash, node.hello(neighbour))])

    def greeted(self, home: LinkHome, hello: bytes, now: float) -> None:
        """A neighbour has said hello."""
        neighbour = self._neighbour(home)
        if neighbour is None:
            return
        node = self.broker.node
        try:
            for received in FrameReader().feed(hello):
                if isinstance(received, OverlayHello):
                    check_hello(node.plan, node.name, neighbour, received)
                    node.link_up(neighbour, received.link, now)
        except PeerError as error:
            self._end(neighbour, str(error), now)
            return
        if (end := self._end_of(home)) is not None:
            end.opened()

    def came(self, home: LinkHome, data: bytes, now: float) -> None:
        """Frames of a neighbour have come."""
        neighbour = self._neighbour(home)
        if neighbour is None or not self.broker.node.is_connected(neighbour):
            return
        reader = FrameReader(has_begun=True)
        (reader.ahead_s,) = AHEAD.unpack_from(data)
        node = self.broker.node
        try:
            for received in reader.feed(data[AHEAD.size :]):
                node.receive(neighbour, received, now)  # type: ignore[arg-type]
        except PeerError as error:
            self._end(neighbour, str(error), now)

    def ended(self, home: LinkHome, now: float) -> None:
        """A connection is over, or was given up by its detector."""
        if (neighbour := self._neighbour(home)) is not None:
            self._end(neighbour, "it is over", now)

    def taken_over(self, replica: int, incarnation: int, now: float) -> None:
        """A replica leads from now on: links that others have are down until it has them."""
        for neighbour, home in [*self.homes.items()]:
            if home[:2] != (replica, incarnation):
                self._end(neighbour, "another replica leads", now)

    def gone(self, replica: int, now: float) -> None:
        """A replica is gone, and its connections with it."""
        for neighbour, home in [*self.homes.items()]:
            if home.replica == replica:
                self._end(neighbour, "the replica is gone", now)

    # Commands

    def begin_command(self, now: float) -> None:
        """Does what is due by the time of a command."""
        if self.due_s <= now:
            self.broker.tick(now)

    def end_command(self, now: float) -> None:
        """Carries between core and node what a command has brought, and has what follows for neighbours written."""
        broker = self.broker
        broker.settle(now)
        node = broker.node
        for neighbour in [*self.homes]:
            if not node.is_connected(neighbour):
                continue
            try:
                written = node.output(neighbour)
            except PeerError as error:
                self._end(neighbour, str(error), now)
                continue
            if written:
                self._say(neighbour, written)
        self.due_s = broker.next_timer()

    def effects(self) -> bytes:
        """Returns what the log led to in the overlay, in a few bytes that are equal on all replicas."""
        accounts, hops = self.broker.node.accounts, self.broker.node.accounts.hops.values()
        return _EFFECTS.pack(
            accounts.published,
            accounts.received,
            accounts.delivered,
            accounts.duplicates,
            sum(hop.offered for hop in hops),
            sum(hop.acknowledged for hop in hops),
            sum(hop.on_link for hop in hops),
            sum(hop.lost + hop.dropped.total() for hop in hops),
            len(self.broker.node.retained),
        )

    # Snapshots

    def records(self) -> Iterator[tuple[bytes, bytes]]:
        """Yields the state as records, beside those of the core."""
        plan = self.broker.node.plan
        yield _HEAD_KEY, _HEAD.encode(_Head(plan.epoch, plan.hash, tuple(map(_Row, self.homes, self.homes.values()))))
        state = state_of(self.broker)
        for number, at in enumerate(range(0, len(state), _PIECE_BYTES)):
            yield _PIECE_KEY + number.to_bytes(4, "big"), state[at : at + _PIECE_BYTES]

    def restore(self, records: Iterable[tuple[bytes, bytes]]) -> None:
        """Takes over such records; PeerError where they were made by another plan, or are none."""
        (_, written), *pieces = records
        head, plan = _HEAD.decode(written), self.broker.node.plan
        if (head.epoch, head.plan) != (plan.epoch, plan.hash):
            raise PeerError(
                f"overlay of a group: its state is by epoch {head.epoch} of a plan with the hash {head.plan}; the plan "
                f"here is epoch {plan.epoch} with {plan.hash}; give all replicas the same file"
            )
        restore_state(self.broker, b"".join(piece for _, piece in pieces))
        self.homes = {row.neighbour: row.home for row in head.homes}
        self.due_s = self.broker.next_timer()

    # Inside

    def _neighbour(self, home: LinkHome) -> str | None:
        """Returns the neighbour to which a connection leads; None where it leads nowhere any more."""
        return next((neighbour for neighbour, own in self.homes.items() if own == home), None)

    def _say(self, neighbour: str, written: Iterable[Received]) -> None:
        if (end := self._end_of(self.homes[neighbour])) is not None:
            end.say(written)

    def _end(self, neighbour: str, reason: str, now: float) -> None:
        """Ends the connection that a link has, if it has one."""
        home = self.homes.pop(neighbour, None)
        if home is None:
            return
        if self.broker.node.is_connected(neighbour):
            self.broker.node.link_down(neighbour, now)
        if (end := self._end_of(home)) is not None:
            end.fail(reason)
