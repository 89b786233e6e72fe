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

_CREDIT_PARTS: Final = 8
"""Credit goes back in parts of about an eighth of the window."""


class SessionName(NamedTuple):
    """One direction of a link: the incarnation of its sender, and a generation that rises with each new session."""

    incarnation: int = 0
    generation: int = 0


@dataclass(frozen=True, slots=True)
class LinkHello:
    """The first thing that each end of a connection says.

    `sending` is the session in which the speaker last sent, `received` the one that it last received, up to `number`.
    `credit` has the bytes that it takes on each lane, since that session began; in a new one, `window` bytes, and less
    on the lanes in `credit_anew`, of which something that came before has not gone on.
    """

    sending: SessionName
    received: SessionName
    number: int
    window: int
    credit: tuple[tuple[int, int], ...] = ()
    credit_anew: tuple[tuple[int, int], ...] = ()


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


class _Lane(Generic[T]):
    """The bytes sent and received on one lane since the session of each direction began.

    `credit` is what the neighbour takes, None where it has not said it yet. `taken` has come, `released` is dealt with,
    and `told` is the limit that the neighbour knows, None where that is the window. What is not dealt with when a
    session ends counts against the credit of the next: `released` is then below zero.
    """

    __slots__ = ("acked", "credit", "number", "queue", "released", "sent", "taken", "told", "waiting")

    def __init__(self, number: int) -> None:
        self.number = number
        self.queue: deque[tuple[int, T]] = deque()
        self.waiting = 0
        self.taken = self.released = 0
        self.told: int | None = None
        self.begin()

    def begin(self) -> None:
        """Begins a new session of what is sent."""
        self.sent = self.acked = 0
        self.credit: int | None = None

    def expect(self, told: int | None = None) -> None:
        """Begins a new session of what is received, in which the neighbour was told this limit."""
        self.taken, self.released, self.told = 0, self.released - self.taken, told


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
        self.is_resumed = False
        """True if what is sent went on where it stopped, on the last connection."""
        self.window = window
        self._number_sent = 0
        self.number_acked = 0
        """The number of the last frame that the neighbour is known to have."""
        self._number_received = 0
        self._number_told = 0
        self._lanes: dict[int, _Lane[T]] = {}
        self._unacked: deque[NumberedFrame[T]] = deque()
        self._again: list[NumberedFrame[T]] = []
        self._credit_at_first = 0
        self._unreleased_bytes = 0
        self._credit_part = -(-window // _CREDIT_PARTS)
        self._has_new_credit = False
        self._is_hello_void = False
        self._told_anew: dict[int, int] = {}
        self._given_up: tuple[SessionName, int, int] | None = None

    # What is sent

    def put(self, lane: int, size: int, content: T) -> None:
        """Takes a frame for a lane; it is sent when there is a connection and credit."""
        queued = self._lanes.get(lane) or self._lane(lane)
        queued.queue.append((size, content))
        queued.waiting += size

    def put_unless_full(self, lane: int, size: int, content: T, bytes_max: int) -> bool:
        """Takes a frame for a lane unless more than so many bytes wait on it; returns whether it did."""
        queued = self._lanes.get(lane) or self._lane(lane)
        if queued.waiting > bytes_max:
            return False
        queued.queue.append((size, content))
        queued.waiting += size
        return True

    def drop_oldest(self, lane: int) -> T | None:
        """Takes out the frame that has waited longest on a lane and was not sent; None where there is none."""
        queued = self._lanes.get(lane)
        if queued is None or not queued.queue:
            return None
        size, content = queued.queue.popleft()
        queued.waiting -= size
        return content

    def credit(self, lane: int) -> int:
        """Returns the bytes that a lane may send now, besides what waits on it; zero or less where there are none."""
        queued = self._lane(lane)
        return self._sendable(queued) - queued.sent - queued.waiting

    def ready(self) -> list[NumberedFrame[T]]:
        """Returns the frames to write now: those to repeat on a new connection, and of each lane what it has credit
        for. A lane with any credit left sends one more frame, however large."""
        if not self.is_connected:
            return []
        frames, self._again = self._again, []
        for lane in self._lanes.values():
            if not lane.queue:
                continue
            queue, limit, number, before = lane.queue, self._sendable(lane), self._number_sent, lane.sent
            sent = before
            while queue and sent < limit:
                size, content = queue.popleft()
                sent += size
                number += 1
                frame = NumberedFrame(number, lane.number, size, content)
                self._unacked.append(frame)
                frames.append(frame)
            lane.waiting -= sent - before
            lane.sent, self._number_sent = sent, number
        return frames

    def mark(self, size: int, content: T) -> int:
        """Takes a frame for the control lane that goes before all that waits; returns its number, which it has from now
        on. There must be a connection."""
        self._number_sent += 1
        frame = NumberedFrame(self._number_sent, CONTROL, size, content)
        self._lane(CONTROL).sent += size
        self._unacked.append(frame)
        self._again.append(frame)
        return frame.number

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
        queued = self._lanes.get(lane)
        return 0 if queued is None else queued.waiting

    @property
    def kept(self) -> tuple[NumberedFrame[T], ...]:
        """The frames that were sent and not acknowledged yet."""
        return tuple(self._unacked)

    # What is received

    def receive(self, frame: NumberedFrame[T]) -> None:
        """Takes in the next frame of the neighbour; PeerError where it is not the next one, or beyond its credit."""
        number, lane, size, _ = frame
        if not CONTROL <= lane < LANES_MAX or size < 1:
            raise PeerError(f"link: a frame of {size} bytes on lane {lane}, which there cannot be")
        if number != self._number_received + 1:
            raise PeerError(f"link: frame {number} came behind frame {self._number_received}")
        if lane != CONTROL:
            taking = self._lanes.get(lane) or self._lane(lane)
            if taking.taken >= taking.released + self.window:
                raise PeerError(f"link: a frame came on lane {lane}, which has no credit left")
            taking.taken += size
            self._unreleased_bytes += size
        self._number_received = number

    def release(self, lane: int, size: int) -> None:
        """Gives back credit: so many bytes of a lane have gone on or are dealt with."""
        if lane != CONTROL:
            self._lane(lane).released += size
            self._unreleased_bytes -= size
            self._has_new_credit = True

    @property
    def has_unreleased(self) -> bool:
        """True if a good part of the credit was used and not given back yet."""
        return self._unreleased_bytes >= self._credit_part

    def unreleased(self) -> list[tuple[int, int]]:
        """Returns the lanes whose credit was used and not given back yet, with its bytes."""
        return [(n, lane.taken - lane.released) for n, lane in self._lanes.items() if lane.taken > lane.released]

    @property
    def owes_ack(self) -> bool:
        """True if something came that was not acknowledged, or credit was given back."""
        return self._number_received > self._number_told or self._has_new_credit

    @property
    def owes_credit(self) -> bool:
        """True if credit was given back that the neighbour has not been told of."""
        return self._has_new_credit

    def ack(self) -> LinkAck | None:
        """Returns the acknowledgement to write now; None where there is nothing to acknowledge."""
        if not self.owes_ack or not self.is_connected:
            return None
        credit: list[tuple[int, int]] = []
        for lane in self._lanes.values():
            limit = self._limit(lane)
            if limit != (self.window if lane.told is None else lane.told):
                lane.told = limit
                credit.append((lane.number, limit))
        self._has_new_credit = False
        self._number_told = self._number_received
        return LinkAck(self._number_received, tuple(credit))

    # Connections

    def hello(self) -> LinkHello:
        """Returns what to say first on a new connection; the one before must have been ended by `disconnect`. Credit
        that is released before `connect` is told in the first acknowledgement; `expire` makes a hello void."""
        if self.is_connected:
            raise RuntimeError("a link session says hello only while it is not connected")
        self._is_hello_void = False
        self._number_told = self._number_received
        lanes = [lane for _, lane in sorted(self._lanes.items())]
        used = [lane for lane in lanes if lane.taken or lane.told is not None]
        for lane in used:
            lane.told = self._limit(lane)
        credit = tuple((lane.number, self._limit(lane)) for lane in used)
        owing = ((lane.number, lane.taken - lane.released) for lane in lanes if lane.taken > lane.released)
        self._told_anew = {number: max(0, self.window - owed) for number, owed in owing}
        anew = tuple(self._told_anew.items())
        return LinkHello(self.sending, self.received, self._number_received, self.window, credit, anew)

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
        self.is_connected, self.is_resumed = True, is_resumed
        self._credit_at_first = hello.window
        if not is_received_resumed:
            self._expect(SessionName(hello.sending.incarnation, hello.sending.generation + 1))
        if is_resumed:
            acknowledged = tuple(self._forget_up_to(hello.number))
            self._again = list(self._unacked)
            return Resumption(True, is_received_resumed, acknowledged, came_after_all=came_after_all)
        lost, unsent = tuple(self._unacked), self._take_waiting()
        self._begin()
        self._take_credit(hello.credit_anew)
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
        waiting = [NumberedFrame(0, lane.number, *entry) for lane in self._lanes.values() for entry in lane.queue]
        for lane in self._lanes.values():
            lane.queue.clear()
            lane.waiting = 0
        return tuple(waiting)

    def _begin(self) -> None:
        """Begins the next session of this end's own direction."""
        self.sending = SessionName(self.sending.incarnation, self.sending.generation + 1)
        self._number_sent = self.number_acked = 0
        self._unacked.clear()
        self._again.clear()
        for lane in self._lanes.values():
            lane.begin()

    def _expect(self, name: SessionName) -> None:
        """Expects a new session of the neighbour's direction."""
        self.received = name
        self._number_received = self._number_told = 0
        for lane in self._lanes.values():
            lane.expect(self._told_anew.get(lane.number))
            self._has_new_credit |= lane.told is not None and lane.told != self._limit(lane)

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
            self._lanes[frame.lane].acked += frame.size
            forgotten.append(frame)
        self.number_acked = number
        return forgotten

    def _take_credit(self, credit: tuple[tuple[int, int], ...]) -> None:
        for lane, limit in credit:
            if not 0 <= lane < LANES_MAX:
                raise PeerError(f"link: credit for lane {lane}, which there cannot be")
            queued = self._lane(lane)
            if queued.credit is not None and limit < queued.credit:
                raise PeerError(f"link: the credit of lane {lane} falls from {queued.credit} to {limit} bytes")
            queued.credit = limit

    def _lane(self, number: int) -> _Lane[T]:
        lane = self._lanes.get(number)
        if lane is None:
            lane = self._lanes[number] = _Lane(number)
        return lane

    def _limit(self, lane: _Lane[T]) -> int:
        """Returns the bytes that the neighbour may have sent on a lane since the session began."""
        return max(0, lane.released + self.window)

    def _sendable(self, lane: _Lane[T]) -> int:
        """Returns the bytes that may have been sent on a lane since the session began. More than a window is never kept
        unacknowledged, whatever the neighbour would take."""
        kept = lane.acked + self.window
        if lane.number == CONTROL:
            return kept
        return min(kept, self._credit_at_first if lane.credit is None else lane.credit)
