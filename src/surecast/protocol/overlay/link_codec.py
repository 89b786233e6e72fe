"""Hellos, frames, acknowledgements and pings between brokers, as bytes.

Everything is a length (4 bytes), a kind (1 byte) and what belongs to it; frames of the link session have their number
(8 bytes) behind the kind. Kinds from 128 on are optional: who does not know one goes past it. Any bytes, in one piece
or one by one, are read or raise PeerError.

    ACK = 2, PING = 3, PONG = 4            without a number
    HELLO = 1                              the first of each end, and only then
    EVENTS, DETOUR, UPDATE, HASHES,        with a number
    BUCKET, STATES, SUBSCRIPTION = 65 ... 71
    MAP_SUMS, MAP_BUCKET, MAP_ENTRIES,     with a number
    MAP_FORGET = 72 ... 75
    MARKER = 200                           with a number, optional
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import isfinite
from struct import Struct
from typing import Any, Final, Generic, TypeVar

from surecast.errors import PeerError
from surecast.protocol.codec import (
    BOOL,
    REST,
    TEXT,
    U8,
    U16,
    U32,
    U64,
    Fixed,
    Form,
    Layout,
    choice,
    many,
    pair,
    sized,
)
from surecast.protocol.demand import (
    DemandBucket,
    DemandChange,
    DemandHashes,
    DemandUpdate,
    Subscription,
)
from surecast.protocol.link import LinkAck, LinkHello, NumberedFrame, SessionName
from surecast.protocol.overlay.event_codec import event_parts, read_events
from surecast.protocol.overlay.filter_form import FILTER
from surecast.protocol.overlay.frame_rules import lane_of
from surecast.protocol.overlay.link_frames import OverlayHello, Ping, Pong, Received
from surecast.protocol.overlay.overlay_frames import (
    Detoured,
    Events,
    Frame,
    LinkStates,
    MapBucket,
    MapEntries,
    MapForget,
    MapKey,
    MapSums,
    Marker,
    NodeState,
    UnknownFrame,
)

__all__ = ["FRAME_BYTES_MAX", "FrameReader", "FrameSplitter", "write"]

T = TypeVar("T")

FRAME_BYTES_MAX: Final = 64 << 20
"""No frame has more bytes."""

_HELLO_BYTES_MAX: Final = 1 << 16
_HEAD: Final = Struct(">IB")
_NUMBERED: Final = Struct(">IBQ")
_NUMBER: Final = Struct(">Q")
_SUM: Final = Struct(">BHQ")
_HELLO, _ACK, _PING, _PONG = 1, 2, 3, 4
_EVENTS, _DETOUR, _UPDATE, _HASHES, _BUCKET, _STATES, _SUBSCRIPTION = range(65, 72)
_MAP_SUMS, _MAP_BUCKET, _MAP_ENTRIES, _MAP_FORGET = range(72, 76)
_MARKER = 200
_HAS_NUMBER, _IS_OPTIONAL = 0x40, 0x80
_DETOURED: Final = (_EVENTS, _UPDATE, _HASHES, _BUCKET, _SUBSCRIPTION)


def _moment(value: float) -> float:
    if not isfinite(value):
        raise ValueError(f"{value} is no time")
    return value


class _SumForm(Form):
    size_min = _SUM.size

    def write(self, value: Any, parts: list[bytes]) -> None:
        parts.append(_SUM.pack(*value))

    def read(self, data: bytes, at: int) -> tuple[Any, int]:
        return _SUM.unpack_from(data, at), at + _SUM.size


class _EntryForm(Form):
    """A retained message: events on their tree, as bytes."""

    size_min = 4

    def write(self, value: Any, parts: list[bytes]) -> None:
        _ENTRY.write(b"".join(event_parts(Events(0, value))), parts)

    def read(self, data: bytes, at: int) -> tuple[Any, int]:
        written, at = _ENTRY.read(data, at)
        return read_events(written, 0).batch, at


_ENTRY: Final = sized(4)
_TIME: Final = Fixed("d", None, _moment)
_CREDIT: Final = many(pair(U8, U64), U8)
_SESSION: Final = Layout("session", SessionName, incarnation=U64, generation=U64)
_HELLO_LAYOUT: Final = Layout(
    "hello",
    OverlayHello,
    version_min=U16,
    version_max=U16,
    plan_epoch=U64,
    plan_hash=sized(1, is_text=True),
    broker=TEXT,
    to=TEXT,
    link=Layout(
        "link", LinkHello, sending=_SESSION, received=_SESSION, number=U64, window=U64, credit=_CREDIT,
        credit_anew=_CREDIT,
    ),
)  # fmt: skip
_PLAIN: Final[dict[type, tuple[int, Layout[Any]]]] = {
    OverlayHello: (_HELLO, _HELLO_LAYOUT),
    LinkAck: (_ACK, Layout("acknowledgement", LinkAck, number=U64, credit=_CREDIT)),
    Ping: (_PING, Layout("ping", Ping, number=U32, sent_s=_TIME)),
    Pong: (_PONG, Layout("pong", Pong, number=U32, sent_s=_TIME, answered_s=_TIME)),
}
_STATE: Final = Layout("state of links", NodeState, broker=TEXT, incarnation=U64, sequence=U64, down=many(TEXT, U16))
_KEY: Final = Layout("version of a message", MapKey, topic=TEXT, stamp=U64, origin=TEXT)
_CHANGE: Final = Layout("change", DemandChange, removed=many(FILTER), added=many(FILTER))
_NUMBERED_LAYOUTS: Final[dict[type, tuple[int, Layout[Any]]]] = {
    DemandUpdate: (_UPDATE, Layout("demand", DemandUpdate, tree=U8, change=_CHANGE)),
    DemandHashes: (
        _HASHES,
        Layout("sums", DemandHashes, tree=U8, side=choice(("announced", "held")), sums=many(_SumForm())),
    ),
    DemandBucket: (_BUCKET, Layout("bucket", DemandBucket, tree=U8, bucket=U16, filters=many(FILTER))),
    Subscription: (
        _SUBSCRIPTION,
        Layout("subscription", Subscription, tree=U8, home=TEXT, issued=pair(U64, U64), joint=FILTER, is_wanted=BOOL),
    ),
    Marker: (_MARKER, Layout("marker", Marker, initiator=TEXT, incarnation=U64, number=U64)),
    MapSums: (_MAP_SUMS, Layout("sums of a map", MapSums, tree=U8, sums=many(_SumForm()), asks=BOOL)),
    MapBucket: (_MAP_BUCKET, Layout("bucket of a map", MapBucket, tree=U8, bucket=U16, keys=many(_KEY), is_last=BOOL)),
    MapEntries: (
        _MAP_ENTRIES,
        Layout("retained", MapEntries, tree=U8, entries=many(_EntryForm()), wanted=many(TEXT), begins_again=BOOL),
    ),
    MapForget: (
        _MAP_FORGET,
        Layout("wave", MapForget, tree=U8, number=U64, step=choice(("ask", "have", "drop")), keys=many(_KEY)),
    ),
    LinkStates: (_STATES, Layout("states", LinkStates, states=many(_STATE, U16))),
}
_DETOUR_LAYOUT: Final[Layout[Any]] = Layout(
    "detour", dict, sender=TEXT, via=TEXT, path=many(TEXT, U16), kind=U8, frame=REST
)
_PLAIN_KINDS: Final = dict(_PLAIN.values())
_NUMBERED_KINDS: Final = dict(_NUMBERED_LAYOUTS.values())


def write(written: Iterable[Received]) -> bytes:
    """Returns the bytes of what goes over a connection, one behind the other.

    >>> write([LinkAck(7)]).hex(" ")
    '00 00 00 0a 02 00 00 00 00 00 00 00 07 00'
    """
    parts: list[bytes] = []
    for each in written:
        if isinstance(each, NumberedFrame):
            content = each.content
            if isinstance(content, Events):
                kind, (head, data) = _EVENTS, event_parts(content)
                parts += (_NUMBERED.pack(9 + len(head) + len(data), kind, each.number), head, data)
            else:
                kind, head = _content(content)
                parts += (_NUMBERED.pack(9 + len(head), kind, each.number), head)
        else:
            kind, layout = _PLAIN[type(each)]
            data = layout.encode(each)
            parts += (_HEAD.pack(1 + len(data), kind), data)
    return b"".join(parts)


class _Cutter(ABC, Generic[T]):
    """Cuts what comes over one connection into frames, however it comes."""

    def __init__(self, frame_bytes_max: int, has_begun: bool):
        self._frame_bytes_max = frame_bytes_max
        self._held = bytearray()
        self._needed = 4
        self._has_begun = has_begun

    @property
    def held_bytes(self) -> int:
        """The bytes that wait for the rest of their frame."""
        return len(self._held)

    def feed(self, data: bytes) -> Iterator[T]:
        """Yields what is complete now; PeerError where it is nothing that may come."""
        if self._held:
            self._held += data
            if len(self._held) < self._needed:
                return
            data, self._held = bytes(self._held), bytearray()
        at, size = 0, len(data)
        while size - at >= 4:
            length = int.from_bytes(data[at : at + 4], "big")
            if not 1 <= length <= (self._frame_bytes_max if self._has_begun else _HELLO_BYTES_MAX):
                raise PeerError(f"link: a frame of {length} bytes; at most {self._frame_bytes_max} are taken")
            end = at + 4 + length
            if end > size:
                break
            frame = self._read(data[at + 4 : end])
            at = end
            if frame is not None:
                yield frame
        self._held += data[at:]
        self._needed = 4 if size - at < 4 else 4 + length

    @abstractmethod
    def _read(self, data: bytes) -> T | None:
        """Returns a frame that is these bytes; None where it may be passed over."""

    def _check_place(self, kind: int) -> None:
        """Raises PeerError where a hello is not the first frame, or another one is."""
        if (kind == _HELLO) is self._has_begun:
            expected = "no" if self._has_begun else "a"
            raise PeerError(f"link: a frame of kind {kind} where {expected} hello is expected")
        self._has_begun = True


class FrameReader(_Cutter[Received]):
    """Reads what comes over one connection, however it is cut; where it `has_begun`, what comes behind the hello.

    `feed` must be called with all that comes, and all that it yields must be used: PeerError comes behind what was
    right. `ahead_s` says by how much the clock of the other end is ahead of the own one.

    >>> reader = FrameReader()
    >>> data = write([OverlayHello("b1", "b2", 1, "", LinkHello(SessionName(), SessionName(), 0, 100)), LinkAck(7)])
    >>> [type(each).__name__ for byte in data for each in reader.feed(bytes([byte]))]
    ['OverlayHello', 'LinkAck']
    """

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX, *, has_begun: bool = False):
        super().__init__(frame_bytes_max, has_begun)
        self.ahead_s = 0.0

    def _read(self, data: bytes) -> Received | None:
        kind = data[0]
        self._check_place(kind)
        if kind & _HAS_NUMBER:
            if len(data) < 9:
                raise PeerError(f"link: a frame of kind {kind} without a whole number")
            content = _read_content(kind, data, 9, self.ahead_s)
            return NumberedFrame(_NUMBER.unpack_from(data, 1)[0], lane_of(content), 4 + len(data), content)
        return _read_plain(kind, data)


class FrameSplitter(_Cutter[Ping | Pong | bytes]):
    """Reads the pings and their answers alone; all else are the bytes of whole frames, to be read elsewhere.

    >>> data = write([OverlayHello("b1", "b2", 1, "", LinkHello(SessionName(), SessionName(), 0, 100)), Ping(1, 2.0)])
    >>> hello, ping = FrameSplitter().feed(data)
    >>> data.startswith(hello), ping
    (True, Ping(number=1, sent_s=2.0))
    """

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX):
        super().__init__(frame_bytes_max, has_begun=False)

    def _read(self, data: bytes) -> Ping | Pong | bytes:
        kind = data[0]
        self._check_place(kind)
        read = _read_plain(kind, data) if kind in (_PING, _PONG) else None
        return read if isinstance(read, Ping | Pong) else len(data).to_bytes(4, "big") + data


def _read_plain(kind: int, data: bytes) -> Received | None:
    """Returns a frame without a number; None where its kind is optional and not known here."""
    layout = _PLAIN_KINDS.get(kind)
    if layout is None and not kind & _IS_OPTIONAL:
        raise PeerError(f"link: a frame of kind {kind}, which is not known here")
    return None if layout is None else layout.decode(data[1:])


def _content(frame: Frame) -> tuple[int, bytes]:
    """Returns the kind of a frame, and its bytes behind the number."""
    if isinstance(frame, Events):
        return _EVENTS, b"".join(event_parts(frame))
    if isinstance(frame, Detoured):
        kind, data = _content(frame.frame)
        return _DETOUR, _DETOUR_LAYOUT.encode(_DetourRow(frame, kind, data))
    if isinstance(frame, UnknownFrame):
        raise TypeError(f"a frame of kind {frame.kind} was read and is not known: it cannot be written")
    kind, layout = _NUMBERED_LAYOUTS[type(frame)]
    return kind, layout.encode(frame)


class _DetourRow:
    """Detours as their layout writes them."""

    __slots__ = ("frame", "kind", "path", "sender", "via")

    def __init__(self, detour: Detoured, kind: int, frame: bytes):
        self.sender, self.via, self.path = detour.sender, detour.via, detour.path
        self.kind, self.frame = kind, frame


def _read_content(kind: int, data: bytes, at: int, ahead_s: float) -> Frame:
    if kind == _EVENTS:
        return read_events(data, at, ahead_s)
    if kind == _DETOUR:
        row = _DETOUR_LAYOUT.decode(data[at:])
        if row["kind"] not in _DETOURED:
            raise PeerError(f"link: a detour of a frame of kind {row['kind']}")
        frame: Any = _read_content(row["kind"], row["frame"], 0, ahead_s)
        return Detoured(row["sender"], row["path"], row["via"], frame)
    layout = _NUMBERED_KINDS.get(kind)
    if layout is not None:
        numbered: Frame = layout.decode(data[at:])
        if ahead_s and isinstance(numbered, MapEntries):
            entries = tuple(
                replace(entry, published_s=entry.published_s - ahead_s, expires_s=entry.expires_s - ahead_s)
                for entry in numbered.entries
            )
            return replace(numbered, entries=entries)
        return numbered
    if kind & _IS_OPTIONAL:
        return UnknownFrame(kind)
    raise PeerError(f"link: a frame of kind {kind}, which is not known here")
