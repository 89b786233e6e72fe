"""The session between two neighbouring brokers: frames in order, each once, over connections that break.

Each direction is a session of its own, named by its sender's incarnation and a generation. Its frames have dense
numbers; the receiver acknowledges the highest one that it has, and the sender keeps what is not acknowledged. At the
start of a connection both ends say in a hello what they sent as and what they received last:

    the receiver knows the session            the sender goes on behind the last number received: nothing is lost
    the receiver does not (it was restarted)  the sender begins the next generation, and what it kept is lost
    the sender gave up (`expire`)             as above; the hello tells which of the lost frames had come after all

Frames wait in lanes, one for each tree and one for control. A number is given when a frame is sent, so that a lane
without credit holds up no other. Credit is what the receiver is ready to take on a lane, in bytes since the session
began; the control lane needs none.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

from surecast.errors import PeerError

__all__ = ["CONTROL", "LinkAck", "LinkHello", "LinkSession", "NumberedFrame", "Resumption", "SessionName"]

T = TypeVar("T")

CONTROL: Final = -1
"""The lane of frames that need no credit."""

LANES_MAX: Final = 64


class SessionName(NamedTuple):
    """One direction of a link: the incarnation of its sender, and a generation that rises with each new session."""

    incarnation: int = 0
    generation: int = 0


@dataclass(frozen=True, slots=True)
class LinkHello:
    """The first thing that each end of a connection says.

    `sending` is the session in which the speaker last sent, `received` the one that it last received, up to `number`.
    `credit` has the bytes that it takes on each lane, since that session began; in a new one, `window` bytes.
    """

    sending: SessionName
    received: SessionName
    number: int
    window: int
    credit: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class LinkAck:
    """All frames up to `number` came; `credit` has the bytes that may have been sent on each lane."""

    number: int
    credit: tuple[tuple[int, int], ...] = ()


class NumberedFrame(NamedTuple, Generic[T]):
    """A frame of a session, on its lane; its size counts against the credit of the lane."""

    number: int
    lane: int
    size: int
    content: T


@dataclass(frozen=True, slots=True)
class Resumption(Generic[T]):
    """The fate of frames that were sent before a new connection.

    `acknowledged` have come, `lost` have not; `came_after_all` counts those that had been given up before and have
    come. Where the session was not resumed, `unsent` has the frames that waited. They are not lost: the owner of the
    session puts them again, behind those of the lost that it repeats.

    `is_received_resumed` is about the other direction: no frame of the neighbour's is missing between those that came
    before and those that will come.
    """

    is_resumed: bool
    is_received_resumed: bool
    acknowledged: tuple[NumberedFrame[T], ...] = ()
    lost: tuple[NumberedFrame[T], ...] = ()
    unsent: tuple[NumberedFrame[T], ...] = ()
    came_after_all: int = 0


class LinkSession(Generic[T]):
    """One end of a link, both directions. Its owner calls `ready` and `ack` when it writes to the connection.

    >>> a: LinkSession[bytes] = LinkSession(incarnation=1)
    >>> b: LinkSession[bytes] = LinkSession(incarnation=1)
    >>> hello_a, hello_b = a.hello(), b.hello()
    >>> a.connect(hello_b).lost, b.connect(hello_a).lost
    ((), ())
    >>> a.put(0, 3, b"one")
    >>> a.put(0, 3, b"two")
    >>> frames = a.ready()
    >>> b.receive(frames[0])
    >>> a.disconnect(), b.disconnect()  # the second frame and the acknowledgement of the first are lost with it
    (None, None)
    >>> hello_a, hello_b = a.hello(), b.hello()
    >>> a.connect(hello_b).is_resumed, b.connect(hello_a).is_resumed
    (True, True)
    >>> [frame.content for frame in a.ready()]
    [b'two']
    """

    def __init__(self, incarnation: int, window: int = 4 << 20):
        self.sending = SessionName(incarnation, 0)
        self.received = SessionName()
        self.is_connected = False
        self.window = window
        self._number_sent = 0
        self.number_acked = 0
        """The number of the last frame that the neighbour is known to have."""
        self._number_received = 0
        self._number_told = 0
        self._lanes: dict[int, deque[tuple[int, T]]] = {}
        self._waiting_bytes: dict[int, int] = {}
        self._unacked: deque[NumberedFrame[T]] = deque()
        self._again: list[NumberedFrame[T]] = []
        self._sent_bytes: dict[int, int] = {}
        self._acked_bytes: dict[int, int] = {}
        self._credit: dict[int, int] = {}
        self._credit_at_first = 0
        self._taken_bytes: dict[int, int] = {}
        self._released_bytes: dict[int, int] = {}
        self._told_credit: dict[int, int] = {}
        self._is_hello_void = False
        self._given_up: tuple[SessionName, int, int] | None = None

    # What is sent

    def put(self, lane: int, size: int, content: T) -> None:
        """Takes a frame for a lane; it is sent when there is a connection and credit."""
        queue = self._lanes.get(lane)
        if queue is None:
            queue = self._lanes[lane] = deque()
        queue.append((size, content))
        self._waiting_bytes[lane] = self._waiting_bytes.get(lane, 0) + size

    def credit(self, lane: int) -> int:
        """Returns the bytes that a lane may send now, besides what waits on it; zero or less where there are none."""
        return self._sendable(lane) - self._sent_bytes.get(lane, 0) - self._waiting_bytes.get(lane, 0)

    def ready(self) -> list[NumberedFrame[T]]:
        """Returns the frames to write now: those to repeat on a new connection, and of each lane what it has credit
        for. A lane with any credit left sends one more frame, however large."""
        if not self.is_connected:
            return []
        frames, self._again = self._again, []
        for lane, queue in self._lanes.items():
            if not queue:
                continue
            sent = self._sent_bytes.get(lane, 0)
            limit = self._sendable(lane)
            while queue and sent < limit:
                size, content = queue.popleft()
                sent += size
                self._number_sent += 1
                frame = NumberedFrame(self._number_sent, lane, size, content)
                self._unacked.append(frame)
                frames.append(frame)
            self._waiting_bytes[lane] -= sent - self._sent_bytes.get(lane, 0)
            self._sent_bytes[lane] = sent
        return frames

    def take_ack(self, ack: LinkAck) -> list[NumberedFrame[T]]:
        """Takes in an acknowledgement; returns the frames that need not be kept any more."""
        if not self.number_acked <= ack.number <= self._number_sent:
            raise PeerError(
                f"link: frame {ack.number} is acknowledged, of {self._number_sent} sent and {self.number_acked} "
                "acknowledged before"
            )
        self._take_credit(ack.credit)
        return self._forget_up_to(ack.number)

    def waiting(self, lane: int) -> int:
        """The bytes on a lane that were not sent yet."""
        return self._waiting_bytes.get(lane, 0)

    @property
    def kept(self) -> tuple[NumberedFrame[T], ...]:
        """The frames that were sent and not acknowledged yet."""
        return tuple(self._unacked)

    # What is received

    def receive(self, frame: NumberedFrame[T]) -> None:
        """Takes in the next frame of the neighbour; PeerError where it is not the next one, or beyond its credit."""
        if not CONTROL <= frame.lane < LANES_MAX or frame.size < 1:
            raise PeerError(f"link: a frame of {frame.size} bytes on lane {frame.lane}, which there cannot be")
        if frame.number != self._number_received + 1:
            raise PeerError(f"link: frame {frame.number} came behind frame {self._number_received}")
        lane, size = frame.lane, frame.size
        taken = self._taken_bytes.get(lane, 0)
        if lane != CONTROL:
            if taken >= self._limit(lane):
                raise PeerError(f"link: a frame came on lane {lane}, which has no credit left")
            self._taken_bytes[lane] = taken + size
        self._number_received += 1

    def release(self, lane: int, size: int) -> None:
        """Gives back credit: so many bytes of a lane have gone on or are dealt with."""
        if lane != CONTROL:
            self._released_bytes[lane] = self._released_bytes.get(lane, 0) + size

    def ack(self) -> LinkAck | None:
        """Returns the acknowledgement to write now; None where the neighbour knows all of it."""
        credit = tuple(
            (lane, limit) for lane in self._released_bytes if (limit := self._limit(lane)) != self._told(lane)
        )
        if not self.is_connected or (self._number_received == self._number_told and not credit):
            return None
        self._number_told = self._number_received
        self._told_credit.update(credit)
        return LinkAck(self._number_received, credit)

    # Connections

    def hello(self) -> LinkHello:
        """Returns what to say first on a new connection; the one before must have been ended by `disconnect`. Credit
        that is released before `connect` is told in the first acknowledgement; `expire` makes a hello void."""
        if self.is_connected:
            raise RuntimeError("a link session says hello only while it is not connected")
        self._is_hello_void = False
        self._number_told = self._number_received
        self._told_credit = {lane: self._limit(lane) for lane in self._released_bytes}
        lanes = sorted(self._taken_bytes.keys() | self._released_bytes.keys())
        credit = tuple((lane, self._limit(lane)) for lane in lanes)
        return LinkHello(self.sending, self.received, self._number_received, self.window, credit)

    def connect(self, hello: LinkHello) -> Resumption[T]:
        """Begins a connection with what the neighbour said first, after it was sent this end's own hello."""
        if self._is_hello_void:
            raise PeerError("link: what was sent was given up after the hello; a new hello is needed")
        is_resumed, is_received_resumed = hello.received == self.sending, hello.sending == self.received
        if is_resumed:
            if not self.number_acked <= hello.number <= self._number_sent:
                raise PeerError(f"link: the neighbour has frame {hello.number}, of {self._number_sent} that were sent")
            self._take_credit(hello.credit)
        came_after_all = self._settle(hello)
        self.is_connected = True
        self._credit_at_first = hello.window
        if not is_received_resumed:
            self._expect(SessionName(hello.sending.incarnation, hello.sending.generation + 1))
        if is_resumed:
            acknowledged = tuple(self._forget_up_to(hello.number))
            self._again = list(self._unacked)
            return Resumption(True, is_received_resumed, acknowledged, came_after_all=came_after_all)
        lost, unsent = tuple(self._unacked), self._take_waiting()
        self._begin()
        return Resumption(False, is_received_resumed, lost=lost, unsent=unsent, came_after_all=came_after_all)

    def disconnect(self) -> None:
        """Ends a connection. Frames that were written to it may not have come."""
        self.is_connected = False
        self._again.clear()

    def expire(self) -> list[NumberedFrame[T]]:
        """Gives up what was sent and not acknowledged, and all that waits; returns it, what waits with number 0."""
        given_up = [*self._unacked, *self._take_waiting()]
        if self._unacked:
            self._given_up = (self.sending, self.number_acked, self._number_sent)
        self._begin()
        self._is_hello_void = True
        return given_up

    def _take_waiting(self) -> tuple[NumberedFrame[T], ...]:
        """Takes out what waits on all lanes."""
        waiting = [NumberedFrame(0, lane, *entry) for lane, queue in self._lanes.items() for entry in queue]
        self._lanes.clear()
        self._waiting_bytes.clear()
        return tuple(waiting)

    def _begin(self) -> None:
        """Begins the next session of this end's own direction."""
        self.sending = SessionName(self.sending.incarnation, self.sending.generation + 1)
        self._number_sent = self.number_acked = 0
        self._unacked.clear()
        self._again.clear()
        self._sent_bytes.clear()
        self._acked_bytes.clear()
        self._credit.clear()

    def _expect(self, name: SessionName) -> None:
        """Expects a new session of the neighbour's direction."""
        self.received = name
        self._number_received = self._number_told = 0
        self._taken_bytes.clear()
        self._released_bytes.clear()
        self._told_credit.clear()

    def _settle(self, hello: LinkHello) -> int:
        """Returns how many of the frames that were given up the neighbour says it has."""
        if self._given_up is None:
            return 0
        name, acked, sent = self._given_up
        self._given_up = None
        return min(max(hello.number - acked, 0), sent - acked) if hello.received == name else 0

    def _forget_up_to(self, number: int) -> list[NumberedFrame[T]]:
        forgotten: list[NumberedFrame[T]] = []
        unacked = self._unacked
        while unacked and unacked[0].number <= number:
            frame = unacked.popleft()
            self._acked_bytes[frame.lane] = self._acked_bytes.get(frame.lane, 0) + frame.size
            forgotten.append(frame)
        self.number_acked = number
        return forgotten

    def _take_credit(self, credit: tuple[tuple[int, int], ...]) -> None:
        for lane, limit in credit:
            if not 0 <= lane < LANES_MAX:
                raise PeerError(f"link: credit for lane {lane}, which there cannot be")
            if limit < self._credit.get(lane, 0):
                raise PeerError(f"link: the credit of lane {lane} falls from {self._credit[lane]} to {limit} bytes")
            self._credit[lane] = limit

    def _sendable(self, lane: int) -> int:
        """Returns the bytes that may have been sent on a lane since the session began. More than a window is never kept
        unacknowledged, whatever the neighbour would take."""
        kept = self._acked_bytes.get(lane, 0) + self.window
        return kept if lane == CONTROL else min(kept, self._credit.get(lane, self._credit_at_first))

    def _limit(self, lane: int) -> int:
        """The bytes that the neighbour may have sent on a lane since its session began."""
        return self._released_bytes.get(lane, 0) + self.window

    def _told(self, lane: int) -> int:
        return self._told_credit.get(lane, self.window)
