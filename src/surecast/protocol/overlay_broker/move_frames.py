"""The frames of brokers about sessions that move, and the records of them on disk, as bytes."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, TypeAlias

from surecast.errors import PeerError
from surecast.protocol.broker.session_transfer import SESSION_HEAD, SESSION_PIECE, SessionHead, SessionPiece
from surecast.protocol.codec import BOOL, F64, TEXT, U8, U32, U64, Layout, choice, many, optional, pair
from surecast.protocol.overlay.event_id import EventId

__all__ = [
    "ArrivingRow",
    "PartRow",
    "SessionOffer",
    "SessionStatus",
    "read_frame",
    "read_part",
    "write_frame",
    "write_part",
]

Runs: TypeAlias = tuple[tuple[EventId, int], ...]


class SessionOffer(NamedTuple):
    """A part of a session on its way to the broker at which its client is at home: its head or a piece of its queue.
    `epoch` names what the client takes for one session; `had` is what came to this part or
    an older one, and `done` what the client has.

    `step` is `ready` once the receiver has all that came to the sender alone, `close` when the sender has nothing more,
    and `back` when it keeps what is left: the client has come back."""

    transfer: int
    key: str
    epoch: str
    is_renewed: bool
    connected: int
    sent_s: float
    step: Literal["piece", "ready", "close", "back"]
    head: SessionHead | None
    had: Runs
    done: Runs
    piece: SessionPiece


class SessionStatus(NamedTuple):
    """The progress of the receiver of a session: it has everything up to an entry on disk. It is sent on every tree,
    behind the demand for what the session has subscribed to."""

    transfer: int
    key: str
    tree: int
    has_head: bool
    applied: int
    is_ready: bool
    is_closed: bool


class ArrivingRow(NamedTuple):
    """The progress of a part that another broker sends here."""

    sender: str
    transfer: int
    applied: int
    is_ready: bool
    is_closed: bool


class PartRow(NamedTuple):
    """The record on disk of a part of a session: what it has had as long as another part may come, the parts that come
    here, and where it goes."""

    epoch: str
    is_renewed: bool
    since_s: float
    is_watched: bool
    had: Runs
    elsewhere: Runs
    done: Runs
    arriving: tuple[ArrivingRow, ...]
    target: str
    transfer: int


_EVENT: Final = Layout("event", EventId, origin=TEXT, incarnation=U64, number=U64)
_RUNS: Final = many(pair(_EVENT, U64))
_OFFER: Final = Layout(
    "offer of a session", SessionOffer, transfer=U64, key=TEXT, epoch=TEXT, is_renewed=BOOL, connected=U64, sent_s=F64,
    step=choice(("piece", "ready", "close", "back")), head=optional(SESSION_HEAD), had=_RUNS, done=_RUNS,
    piece=SESSION_PIECE,
)  # fmt: skip
_STATUS: Final = Layout(
    "status of a session", SessionStatus, transfer=U64, key=TEXT, tree=U8, has_head=BOOL, applied=U64, is_ready=BOOL,
    is_closed=BOOL,
)  # fmt: skip
_PART: Final = Layout(
    "part of a session", PartRow, epoch=TEXT, is_renewed=BOOL, since_s=F64, is_watched=BOOL, had=_RUNS,
    elsewhere=_RUNS, done=_RUNS, arriving=many(
        Layout("arriving part", ArrivingRow, sender=TEXT, transfer=U64, applied=U64, is_ready=BOOL, is_closed=BOOL), U32
    ),
    target=TEXT, transfer=U64,
)  # fmt: skip


def write_frame(frame: SessionOffer | SessionStatus) -> bytes:
    """Returns a frame as bytes."""
    return b"o" + _OFFER.encode(frame) if isinstance(frame, SessionOffer) else b"s" + _STATUS.encode(frame)


def read_frame(data: bytes) -> SessionOffer | SessionStatus:
    """Returns the frame that some bytes are; PeerError where they are none."""
    if data[:1] == b"o":
        return _OFFER.decode(data[1:])
    if data[:1] == b"s":
        return _STATUS.decode(data[1:])
    raise PeerError(f"session: a frame of kind {data[:1]!r}")


def write_part(row: PartRow) -> bytes:
    """Returns a part as it is on disk."""
    return _PART.encode(row)


def read_part(data: bytes) -> PartRow:
    """Returns a part as it was on disk."""
    return _PART.decode(data)
