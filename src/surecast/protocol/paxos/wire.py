"""Messages as bytes: a version, a kind, fixed fields and at most one part of variable length.

The shell adds length and checksum; a value that is proposed has one of its own, and comes as a part of its own
(`encode_parts`). Any bytes either decode or raise PeerError.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from zlib_ng.zlib_ng import crc32

from surecast.errors import PeerError
from surecast.protocol.paxos import paxos_messages as m
from surecast.protocol.paxos.incarnations import STARTS_KEPT, Reason
from surecast.protocol.paxos.log_values import check_segments, check_value

__all__ = ["VERSION", "decode", "encode", "encode_parts"]

VERSION: Final = 6
_Tail: TypeAlias = Literal["", "bytes", "checked", "optional", "numbers", "pieces", "votes"]
_VOTE: Final = struct.Struct(">QQI")


class _Form(NamedTuple):
    """The layout of a message: its class, its fixed fields, what gets all fields, and the kind of the last one."""

    kind: type[m.Message]
    layout: struct.Struct
    fields: Callable[[Any], tuple[Any, ...]]
    tail: _Tail


def _form(kind: type[m.Message], layout: str, tail: _Tail = "") -> _Form:
    names = tuple(kind.__dataclass_fields__)
    get: Callable[[Any], Any] = attrgetter(*names)
    fields = get if len(names) > 1 else lambda message: (get(message),)
    return _Form(kind, struct.Struct(">BB" + layout + ("I" if tail == "checked" else "")), fields, tail)


_FORMS: Final = (
    _form(m.Heartbeat, "Q?QQQ?QQqqq"),
    _form(m.PreVote, "Q"),
    _form(m.Grant, "Q"),
    _form(m.Prepare, "Q"),
    _form(m.Promise, "QQ", "votes"),
    _form(m.Reject, "Q"),
    _form(m.Accept, "QQQ", "checked"),
    _form(m.Accepted, "QQ", "numbers"),
    _form(m.Chosen, "QQQQ"),
    _form(m.Propose, "QQ", "checked"),
    _form(m.Voted, "QQ16s", "optional"),
    _form(m.Close, "Q", "numbers"),
    _form(m.Closed, "QQQ", "optional"),
    _form(m.Forward, "", "pieces"),
    _form(m.Fetch, "QQQ"),
    _form(m.Entries, "QQ", "pieces"),
    _form(m.SnapshotPart, "QQQ16s", "bytes"),
    _form(m.Checkpoint, "Q16s"),
    _form(m.Rejoin, "QQQQ16s", "numbers"),
    _form(m.Admit, "QQ16s"),
    _form(m.Refuse, "QBQQ"),
)
_CHECKED: Final = frozenset((m.Rejoin, m.Refuse, m.Forward))
_NUMBER_OF: Final = {form.kind: number for number, form in enumerate(_FORMS)}


def encode(message: m.Message) -> bytes:
    """A message as bytes.

    >>> encode(m.Prepare(258))
    b'\\x06\\x03\\x00\\x00\\x00\\x00\\x00\\x00\\x01\\x02'
    """
    return b"".join(encode_parts(message))


def encode_parts(message: m.Message) -> tuple[bytes, bytes]:
    """A message as two parts: what the shell has to sum, and the value of a proposal, which is large and summed."""
    number = _NUMBER_OF[type(message)]
    _, layout, get, kind = _FORMS[number]
    fields = get(message)
    if not kind:
        return layout.pack(VERSION, number, *fields), b""
    tail = fields[-1]
    if kind == "checked":
        return layout.pack(VERSION, number, *fields[:-1], crc32(tail)), tail
    return layout.pack(VERSION, number, *fields[:-1]) + _encode_tail(kind, tail), b""


def _encode_tail(kind: _Tail, tail: Any) -> bytes:
    if kind == "numbers":
        return struct.pack(f">{len(tail)}Q", *tail)
    if kind == "bytes":
        return bytes(tail)
    if kind == "optional":
        return b"\0" if tail is None else b"\1" + bytes(tail)
    if kind == "pieces":
        return b"".join([part for piece in tail for part in (len(piece).to_bytes(4, "big"), piece)])
    return b"".join([part for slot, ballot, value in tail for part in (_VOTE.pack(slot, ballot, len(value)), value)])


def decode(data: bytes | memoryview) -> m.Message:
    """The message of some bytes, of which nothing is needed any more then.

    >>> decode(encode(m.Accepted(6, 4, (5, 7))))
    Accepted(ballot=6, applied=4, slots=(5, 7))
    """
    if len(data) < 2 or data[0] != VERSION or data[1] >= len(_FORMS):
        raise PeerError(f"paxos message: {bytes(data[:2])!r} is no version {VERSION} and known kind")
    kind, layout, _, tail = _FORMS[data[1]]
    size = layout.size
    if len(data) < size or (not tail and len(data) != size):
        raise PeerError(f"paxos message: a {kind.__name__} has {size} bytes or more, not {len(data)}")
    fields = layout.unpack_from(data)
    if tail == "checked":
        value = bytes(data[size:])
        if crc32(value) != fields[-1]:
            raise PeerError("paxos message: a value does not have the checksum that was sent with it")
        check_value(value)  # a damaged one must not reach a vote
        return kind(*fields[2:-1], value)  # type: ignore[call-arg]
    if not tail:
        return kind(*fields[2:])
    try:
        message = kind(*fields[2:], *_tail(tail, bytes(data), size))
        if kind in _CHECKED:
            _check(message)
    except struct.error as error:
        raise PeerError(f"paxos message: a {kind.__name__} is cut off: {error}") from error
    return message


def _tail(kind: _Tail, data: bytes, at: int) -> list[object]:
    if kind == "bytes":
        return [data[at:]]
    if kind == "optional":
        if data[at : at + 1] not in (b"\0", b"\1") or (data[at] == 0 and len(data) > at + 1):
            raise PeerError("paxos message: an optional value begins with neither 0 nor 1")
        return [data[at + 1 :] if data[at] else None]
    if kind == "numbers":
        return [struct.unpack_from(f">{-(-(len(data) - at) // 8)}Q", data, at)]
    parts: list[object] = []
    while at < len(data):
        if kind == "pieces":
            (size,) = struct.unpack_from(">I", data, at)
            at += 4
            parts.append(data[at : at + size])
        else:
            slot, ballot, size = _VOTE.unpack_from(data, at)
            at += _VOTE.size
            parts.append((slot, ballot, data[at : at + size]))
        at += size
    if at != len(data):
        raise PeerError("paxos message: the last part is cut off")
    return [tuple(parts)]


def _check(message: m.Message) -> None:
    """Requests are checked where they come in: whatever is proposed can be applied."""
    if isinstance(message, m.Rejoin) and not 0 < len(message.starts) <= min(message.incarnation, STARTS_KEPT):
        raise PeerError(f"paxos message: {len(message.starts)} start numbers at start {message.incarnation}")
    if isinstance(message, m.Refuse) and message.reason not in [*Reason]:
        raise PeerError(f"paxos message: reason {message.reason} for a refusal is not known")
    if isinstance(message, m.Forward):
        for segment in message.segments:
            if check_segments(segment) != 1:
                raise PeerError("paxos message: a request is forwarded in one segment, and none is empty")
