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
from surecast.protocol.paxos.log_values import check_segment, check_value

__all__ = ["VERSION", "decode", "encode", "encode_parts"]

VERSION: Final = 6
_Tail: TypeAlias = Literal["", "bytes", "checked", "optional", "numbers", "pieces", "votes"]
_VOTE: Final = struct.Struct(">QQI")


class _Form(NamedTuple):
    """How a message is laid out: its class, its fixed fields, what gets all fields, and the kind of the last one."""

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
    form = _FORMS[number]
    if form.tail == "checked":
        fields = form.fields(message)
        value = fields[-1]
        return form.layout.pack(VERSION, number, *fields[:-1], crc32(value)), value
    return _encode(form, number, form.fields(message)), b""


def _encode(form: _Form, number: int, fields: tuple[Any, ...]) -> bytes:
    if not form.tail:
        return form.layout.pack(VERSION, number, *fields)
    tail = fields[-1]
    head = form.layout.pack(VERSION, number, *fields[:-1])
    if form.tail == "bytes":
        return head + bytes(tail)
    if form.tail == "optional":
        return head + (b"\0" if tail is None else b"\1" + bytes(tail))
    if form.tail == "numbers":
        return head + struct.pack(f">{len(tail)}Q", *tail)
    if form.tail == "pieces":
        return head + b"".join([part for piece in tail for part in (len(piece).to_bytes(4, "big"), piece)])
    return head + b"".join(
        [part for slot, ballot, value in tail for part in (_VOTE.pack(slot, ballot, len(value)), value)]
    )


def decode(data: bytes | memoryview) -> m.Message:
    """The message of some bytes, of which nothing is needed any more then.

    >>> decode(encode(m.Accepted(6, 4, (5, 7))))
    Accepted(ballot=6, applied=4, slots=(5, 7))
    """
    if len(data) < 2 or data[0] != VERSION or data[1] >= len(_FORMS):
        raise PeerError(f"paxos message: {bytes(data[:2])!r} is no version {VERSION} and known kind")
    form = _FORMS[data[1]]
    size = form.layout.size
    if len(data) < size or (not form.tail and len(data) != size):
        raise PeerError(f"paxos message: a {form.kind.__name__} has {size} bytes or more, not {len(data)}")
    if form.tail == "checked":
        numbers = form.layout.unpack_from(data)
        value = bytes(data[size:])
        if crc32(value) != numbers[-1]:
            raise PeerError("paxos message: a value does not have the checksum that was sent with it")
        check_value(value)  # a damaged one must not reach a vote
        return form.kind(*numbers[2:-1], value)  # type: ignore[call-arg]
    data = bytes(data)
    fields = form.layout.unpack_from(data)[2:]
    try:
        message = form.kind(*fields, *_tail(form.tail, data, size))
        if form.kind in _CHECKED:
            _check(message)
    except struct.error as error:
        raise PeerError(f"paxos message: a {form.kind.__name__} is cut off: {error}") from error
    return message


def _tail(kind: _Tail, data: bytes, at: int) -> list[object]:
    if not kind:
        return []
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
            if check_segment(segment, 0) != len(segment):
                raise PeerError("paxos message: a segment is followed by something else")
