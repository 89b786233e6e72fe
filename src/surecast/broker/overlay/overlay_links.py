"""The links of a broker: a listener for the neighbours that dial, a task for each neighbour that is dialled, detectors.

The first broker of a link dials the other one, and dials again whenever the link is down, ever less often up to once a
second, and at once when another broker reaches it again. A neighbour that dials anew knows that its former connection
is over, so a new connection replaces the old one.
"""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

from surecast.broker.event_observer import EventObserver
from surecast.broker.overlay.link_gate import GateSettings, LinkGate
from surecast.broker.overlay.link_handshake import LinkIdentity
from surecast.broker.overlay.link_security import LinkSecurity
from surecast.broker.overlay.link_sockets import connect_link, listen_for_links
from surecast.broker.overlay.link_transport import HANDSHAKE_S, EndKind, LinkTransport
from surecast.broker.overlay.overlay_file import OverlayFile
from surecast.broker.replica.addresses import Address
from surecast.errors import ConfigurationError, PeerError
from surecast.protocol.link import DetectorTimes, LinkDetector
from surecast.protocol.overlay.overlay_node import OverlayNode
from surecast.protocol.overlay_broker import LinkConnection

if TYPE_CHECKING:
    from surecast.protocol.group.group_link import GroupLink

__all__ = ["LinkOwner", "NeighbourLink", "OverlayLinks"]

BACKOFF_MIN_S: Final = 0.02
BACKOFF_MAX_S: Final = 1.0
WAITING_MAX: Final = 256
CLOCK_ALARM_S: Final = 1.0
TIMER_S: Final = 0.001
ACK_DELAY_S: Final = 0.005
"""Far below the time in which a link is suspected. What is unacknowledged only takes memory of the sender."""


class NeighbourLink:
    """One link, as its broker sees it."""

    def __init__(self, neighbour: str, dials: bool, times: DetectorTimes):
        self.neighbour = neighbour
        self.dials = dials
        self.detector = LinkDetector(times)
        self.gate = LinkGate()
        self.transport: LinkTransport | None = None
        """The transport of the link that is up."""
        self.reason = "not connected yet"
        """Why the link is down."""
        self.changed_s = time.time()
        self.ups = 0
        self.ends: Counter[str] = Counter()
        """How often the link went down, by the kind of the end."""
        self.lost_before = 0
        """The events that had been lost when the link last came up."""
        self.bytes_in = 0
        self.bytes_out = 0
        self.timer: asyncio.TimerHandle | None = None
        self.dialled = 0
        """The number of times that another address of the neighbour was tried."""
        self.wake = asyncio.Event()
        self.is_reached = False
        """Whether there was a way to the neighbour when the link was last looked at while it was down."""
        self.appeared = asyncio.Event()
        """Set when somebody else has a link to the neighbour again: it is worth dialling."""

    @property
    def is_up(self) -> bool:
        """Returns whether both ends have said hello on a connection."""
        return self.transport is not None

    @property
    def clock_ahead_s(self) -> float | None:
        """By how much the clock of the neighbour is ahead; None while that is not known."""
        connection = self.transport.connection if self.transport is not None else None
        return connection.clock.ahead_s if connection is not None and connection.clock.round_trip_s else None

    def figures(self) -> dict[str, Any]:
        """Returns what administrators see of the link."""
        transport, settings = self.transport, self.gate.settings
        connection = transport.connection if transport is not None else None
        return {
            "neighbour": self.neighbour,
            "is_up": self.is_up,
            "reason": None if self.is_up else self.reason,
            "since_s": round(time.time() - self.changed_s, 3),
            "dials": self.dials,
            "address": transport.address if transport is not None else None,
            "round_trip_s": connection.clock.round_trip_s or None if connection is not None else None,
            "clock_ahead_s": self.clock_ahead_s,
            "unsent_bytes": transport.unsent_bytes if transport is not None else 0,
            "bytes_in": self.bytes_in + (transport.bytes_in if transport is not None else 0),
            "bytes_out": self.bytes_out + (transport.bytes_out if transport is not None else 0),
            "ups": self.ups,
            "ends": dict(self.ends),
            "hold_down_s": self.detector.hold_s,
            "gate": {"cut": settings.is_cut, "delay_s": settings.delay_s, "loss": settings.loss},
        }


class LinkOwner(Protocol):
    """The questions of links to their broker."""

    @property
    def overlay_node(self) -> OverlayNode | None:
        """The node of the overlay; None while a replica has not begun yet."""

    def connect(self, neighbour: str, *, calls: bool) -> LinkConnection | GroupLink:
        """Returns the connection to a neighbour that has proven who it is; `calls` says who dialled."""

    def time_s(self) -> float:
        """The time by which events expire."""

    def turn(self) -> None:
        """Asks for the end of a turn: what was made in it is made durable, and then `flush` writes to each link."""


class OverlayLinks:
    """All links of one broker, or of one replica of a group. What comes is given to `owner` in turns of the loop.

    `address` is where neighbours reach it. Between `start` and `rest` it accepts and dials.
    """

    def __init__(
        self,
        overlay: OverlayFile,
        name: str,
        address: Address,
        owner: LinkOwner,
        warn: Callable[[str], None],
        note: Callable[[str], None],
        observer: EventObserver | None = None,
    ):
        self._observer = observer
        self.identity = LinkIdentity(overlay.name, name, overlay.plan, overlay.read_link_secret())
        self.turned_away: Counter[str] = Counter()
        self._overlay = overlay
        self._address = address
        self._owner = owner
        self._turn = owner.turn
        self._is_serving = False
        self._warn = warn
        self._note = note
        self._security = LinkSecurity(overlay.certificates, name) if overlay.certificates is not None else None
        times = DetectorTimes(overlay.ping, overlay.suspect, overlay.hold_down, overlay.hold_down_max)
        dialled = {b for a, b in overlay.plan.links if a == name}
        self.links = {
            neighbour: NeighbourLink(neighbour, neighbour in dialled, times)
            for neighbour in overlay.plan.neighbours(name)
        }
        self._dialled = [link for link in self.links.values() if link.dials]
        self._sockets: list[socket.socket] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._accepting: set[asyncio.Task[None]] = set()
        self._waiting: set[LinkTransport] = set()
        """The transports whose ends have not both said hello yet."""
        self._told: dict[str, str] = {}
        self._ack_timer: asyncio.TimerHandle | None = None
        self._is_ack_due = False
        self._is_stopped = False

    # What the broker calls.

    def open(self) -> None:
        """Takes the address for neighbours; ConfigurationError says what is in the way."""
        self._sockets = listen_for_links(self._address, is_tls=self._security is not None)
        for sock in self._sockets:
            asyncio.get_running_loop().add_reader(sock, self._accept, sock)

    @property
    def is_serving(self) -> bool:
        """Returns whether it accepts and dials."""
        return self._is_serving

    def start(self) -> None:
        """Begins to accept and to dial."""
        loop = asyncio.get_running_loop()
        self._is_serving = True
        if (node := self._owner.overlay_node) is not None:  # a group has lost what it lost under other leaders
            for link in self.links.values():
                link.lost_before = node.accounts.hops[link.neighbour].lost
        self._tasks = [loop.create_task(self._keep_dialling(link)) for link in self._dialled]

    def rest(self, reason: str) -> None:
        """Ends all links, and makes none until `start`: another replica has them now."""
        self._is_serving = False
        for task in [*self._tasks, *self._accepting]:
            task.cancel()
        self._tasks = []
        for transport in [*self._waiting, *(link.transport for link in self.links.values() if link.transport)]:
            transport.end("stopped", reason)

    async def stop(self) -> None:
        """Ends all links; what was handed to them was sent before."""
        self._is_stopped = True
        for sock in self._sockets:
            asyncio.get_running_loop().remove_reader(sock)
            sock.close()
        for task in [*self._tasks, *self._accepting]:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._accepting, return_exceptions=True)
        for transport in [*self._waiting, *(link.transport for link in self.links.values() if link.transport)]:
            transport.end("stopped", "this broker stops")
        for link in self.links.values():
            if link.timer is not None:
                link.timer.cancel()
        if self._ack_timer is not None:
            self._ack_timer.cancel()

    def reload(self) -> None:
        """Reads the certificates again, for connections from now on; those that are up stay."""
        if self._security is not None:
            self._security.reload()

    def flush(self) -> None:
        """Writes to each neighbour what there is for it; to be called when what it promises was committed.

        An acknowledgement alone wakes a neighbour that does not wait for it, so it is put off a little: it then goes
        with something else, or is one for many frames.
        """
        acknowledges = self._is_stopped or self._is_ack_due
        self._is_ack_due = False
        for link in self.links.values():
            if link.transport is not None:
                self._flush(link.transport, acknowledges)
        for transport in list(self._waiting):
            self._flush(transport, acknowledges)
            connection = transport.connection
            if connection is not None and connection.is_up and not transport.is_over:  # by what was carried out
                self._opened(self.links[transport.neighbour], transport)

    def _acknowledge(self) -> None:
        """Ends a turn in which acknowledgements go that were put off."""
        self._ack_timer = None
        self._is_ack_due = True
        self._turn()

    def _flush(self, transport: LinkTransport, acknowledges: bool) -> None:
        connection = transport.connection
        if connection is None or transport.is_slow:
            return
        try:
            data = connection.output(acknowledges)
        except PeerError as error:
            transport.end("broke the rules", str(error))
            return
        if data:
            transport.write(data)
        if self._ack_timer is None and connection.owes_ack:
            self._ack_timer = asyncio.get_running_loop().call_later(ACK_DELAY_S, self._acknowledge)

    def change_gate(self, neighbour: str, settings: GateSettings) -> None:
        """Takes other settings of a gate; ConfigurationError where there is no such link."""
        if neighbour not in self.links:
            raise ConfigurationError(f"{neighbour!r} is no neighbour; there are {', '.join(self.links)}")
        self.links[neighbour].gate.change(settings)
        self.links[neighbour].wake.set()

    # What transports call.

    def gate_of(self, neighbour: str) -> LinkGate:
        """Returns the gate in front of what is sent to a neighbour."""
        return self.links[neighbour].gate

    def admitted(self, transport: LinkTransport) -> LinkConnection | GroupLink:
        """A neighbour has proven who it is: returns the connection that goes on from here."""
        link = self.links[transport.neighbour]
        if link.gate.settings.is_cut:
            raise PeerError("the link is cut by its gate")
        if link.transport is not None:
            link.transport.end("replaced", "the neighbour has connected anew")
        self._turn()
        return self._owner.connect(link.neighbour, calls=link.dials)

    def received(self, transport: LinkTransport, data: bytes) -> None:
        """Bytes of a neighbour have come: it is there."""
        link, connection = self.links[transport.neighbour], transport.connection
        assert connection is not None
        link.detector.heard(asyncio.get_running_loop().time())
        try:
            connection.receive(data, self._owner.time_s())
        finally:
            if connection.is_up and link.transport is not transport:
                self._opened(link, transport)
            self._look_for_dialled()
            self._turn()

    def _look_for_dialled(self) -> None:
        """Has neighbours dialled at once that somebody else reaches again."""
        node = self._owner.overlay_node
        for link in self._dialled:
            if link.transport is None and node is not None:
                was_reached, link.is_reached = link.is_reached, node.reaches(link.neighbour)
                if link.is_reached and not was_reached:
                    link.appeared.set()

    def caught_up(self, transport: LinkTransport) -> None:
        """A neighbour takes bytes again."""
        self._turn()

    def ended(self, transport: LinkTransport, kind: EndKind, reason: str) -> None:
        """A transport is over."""
        self._waiting.discard(transport)
        link = self.links.get(transport.neighbour)
        if transport.connection is not None:
            transport.connection.close(self._owner.time_s())
            self._turn()
        if link is None or link.transport is not transport:
            if not self._is_stopped:
                self._failed(transport, reason)
            return
        link.transport = None
        link.bytes_in += transport.bytes_in
        link.bytes_out += transport.bytes_out
        link.reason = reason
        link.changed_s = time.time()
        link.ends[kind] += 1
        if link.timer is not None:
            link.timer.cancel()
            link.timer = None
        link.detector.disconnected(asyncio.get_running_loop().time())
        if self._observer is not None:
            self._observer.link_down(link.neighbour, kind, link.changed_s)
        if not self._is_stopped:
            self._warn(f"link to {link.neighbour} is down: {reason}")
        link.wake.set()

    def _opened(self, link: NeighbourLink, transport: LinkTransport) -> None:
        """Notes that both ends have said hello."""
        transport.greeted()
        self._waiting.discard(transport)
        link.transport = transport
        link.ups += 1
        link.changed_s = time.time()
        link.detector.connected(asyncio.get_running_loop().time())
        self._plan_tick(link)
        for place in [place for place in self._told if place.startswith(f"{link.neighbour} ")]:
            del self._told[place]
        link.wake.set()
        self._note(f"link to {link.neighbour} is up, {transport.address}")
        node = self._owner.overlay_node
        if self._observer is not None and node is not None:
            lost = node.accounts.hops[link.neighbour].lost
            fresh, link.lost_before = max(0, lost - link.lost_before), lost
            self._observer.link_up(link.neighbour, node.is_resumed(link.neighbour), fresh, link.changed_s)

    # Accepting.

    def _accept(self, sock: socket.socket) -> None:
        while True:
            try:
                accepted, _ = sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._warn(f"no link can be accepted: {error.strerror}")
                return
            if not self._is_serving:  # another replica leads: the neighbour dials that one next
                accepted.close()
                continue
            if len(self._waiting) + len(self._accepting) >= WAITING_MAX:
                self._turn_away("too many connections that have not proven who they are")
                accepted.close()
                continue
            accepted.setblocking(False)
            task = asyncio.get_running_loop().create_task(self._admit(accepted))
            self._accepting.add(task)
            task.add_done_callback(self._accepting.discard)

    async def _admit(self, accepted: socket.socket) -> None:
        transport = LinkTransport(self, is_tls=self._security is not None)
        self._waiting.add(transport)
        context = self._security.accepting if self._security is not None else None
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: transport, accepted, ssl=context, ssl_handshake_timeout=HANDSHAKE_S if context else None
            )
        except (OSError, asyncio.CancelledError) as error:  # SSLError is an OSError
            self._waiting.discard(transport)
            accepted.close()
            if isinstance(error, asyncio.CancelledError):
                raise
            self._turn_away(f"TLS: {_reason(error)}")

    def _turn_away(self, reason: str) -> None:
        """Counts a connection that is not taken. The log is told of the first, the tenth, the hundredth."""
        count = self.turned_away[reason] = self.turned_away[reason] + 1
        if str(count).strip("0") == "1":
            self._warn(f"links: {count} connection(s) turned away: {reason}")

    def _failed(self, transport: LinkTransport, reason: str) -> None:
        """Notes that a transport ended before both ends had said hello."""
        link = self.links.get(transport.neighbour)
        if link is None or not link.dials:
            self._turn_away(reason)
            return
        link.reason = reason
        link.wake.set()
        place = f"{link.neighbour} {link.dialled % len(self._overlay.addresses(link.neighbour))}"
        if self._told.get(place) != reason:  # dialling goes on, and the reason is often the same
            self._told[place] = reason
            self._warn(f"link to {link.neighbour} cannot be made: {reason}")

    # Dialling.

    async def _keep_dialling(self, link: NeighbourLink) -> None:
        loop, wait_s = asyncio.get_running_loop(), BACKOFF_MIN_S
        while True:
            link.wake.clear()
            if not link.is_up and not link.gate.settings.is_cut:
                await asyncio.sleep(max(0.0, link.detector.may_connect_s - loop.time()))
                ups = link.ups
                await self._dial(link)
                if link.ups > ups:
                    wait_s = BACKOFF_MIN_S
            if link.is_up or link.gate.settings.is_cut:
                await link.wake.wait()
                continue
            link.dialled += 1
            if link.dialled % len(self._overlay.addresses(link.neighbour)):
                continue  # the next replica of the group may be the one that leads
            # A random part keeps brokers that were cut off together from dialling in step.
            pause_s, wait_s = wait_s * random.uniform(0.5, 1.0), min(2 * wait_s, BACKOFF_MAX_S)
            with suppress(TimeoutError):
                await asyncio.wait_for(link.appeared.wait(), pause_s)
                wait_s = BACKOFF_MIN_S
            link.appeared.clear()

    async def _dial(self, link: NeighbourLink) -> None:
        """Dials a neighbour once; returns when the link is up or has failed."""
        transport = LinkTransport(self, link.neighbour, is_tls=self._security is not None)
        addresses = self._overlay.addresses(link.neighbour)
        address = addresses[link.dialled % len(addresses)]
        context: ssl.SSLContext | None = self._security.dialling if self._security is not None else None
        link.wake.clear()
        self._waiting.add(transport)
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                await connect_link(transport, address, context)
        except (OSError, UnicodeError) as error:  # the last for names that cannot be looked up
            self._waiting.discard(transport)
            self._failed(transport, f"{address}: {_reason(error)}")
            return
        while transport in self._waiting:  # until its end or its deadline
            await link.wake.wait()
            link.wake.clear()

    # The detector.

    def _plan_tick(self, link: NeighbourLink) -> None:
        # Timers of the loop are as coarse as a millisecond: one that comes too early would be set again and again.
        link.timer = asyncio.get_running_loop().call_at(link.detector.next_timer() + TIMER_S, self._tick, link)

    def _tick(self, link: NeighbourLink) -> None:
        link.timer = None
        transport = link.transport
        if transport is None or transport.connection is None:
            return
        verdict = link.detector.tick(asyncio.get_running_loop().time())
        if verdict == "suspect":
            transport.end("suspected", f"nothing heard for {self._overlay.suspect:g} s")
            return
        if verdict == "ask":
            transport.connection.ping(self._owner.time_s())
            self._turn()
        ahead_s = link.clock_ahead_s or 0.0
        if abs(ahead_s) > CLOCK_ALARM_S and f"{link.neighbour} clock" not in self._told:
            self._told[f"{link.neighbour} clock"] = "told"
            self._warn(f"the clock of {link.neighbour} is {ahead_s:+.3g} s from this one; set them right")
        self._plan_tick(link)


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError) and not str(error):
        return f"no answer within {HANDSHAKE_S:g} s"
    if isinstance(error, ssl.SSLError):
        return str(error.reason or error).lower().replace("_", " ")
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
