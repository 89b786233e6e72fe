"""A replicated key-value store: the example of a handler, and what the simulator replicates.

Replies begin with one byte: `+` done, `-` not found, `!` the comparison failed.

>>> from surecast.protocol.paxos.handler import Context
>>> store, at = ExampleStore(), Context()
>>> store.execute(put(b"k", b"1"), at), store.execute(get(b"k"), at), store.execute(incr(b"k", 41), at)
(b'+', b'+1', b'+42')
>>> store.execute(cas(b"k", b"1", b"x"), at), store.execute(get(b"none"), at)
(b'!42', b'-')
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from zlib_ng.zlib_ng import crc32

from surecast.protocol.codec import U32, Layout, many, pair, sized
from surecast.protocol.paxos.handler import Context

__all__ = ["ExampleStore", "cas", "get", "incr", "put"]


_HEAD: Final = struct.Struct(">II")  # the number of keys, and the check sum of all replies


class _State(NamedTuple):
    size: int
    replies: int
    pairs: Sequence[tuple[bytes, bytes]]


_STATE: Final = Layout("example store", _State, size=U32, replies=U32, pairs=many(pair(sized(), sized()), None))
_WHOLE: Final = re.compile(rb"-?[0-9]{1,300}")  # no version of Python limits so few digits


def _fields(*fields: bytes) -> bytes:
    return b"".join(len(field).to_bytes(4, "big") + field for field in fields)


def put(key: bytes, value: bytes) -> bytes:
    """Sets a key."""
    return b"p" + _fields(key, value)


def get(key: bytes) -> bytes:
    """Reads a key. A command like the others: it is answered at its place in the log, so reads are linearizable."""
    return b"g" + _fields(key)


def cas(key: bytes, expected: bytes, value: bytes) -> bytes:
    """Sets a key where it has the expected value."""
    return b"c" + _fields(key, expected, value)


def incr(key: bytes, by: int = 1) -> bytes:
    """Adds to a number of at most 300 digits; a missing key counts as 0."""
    return b"i" + _fields(key, str(by).encode())


def _split(data: bytes, at: int = 1) -> list[bytes]:
    fields = []
    while at + 4 <= len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        fields.append(data[at + 4 : end])
        at = end
    return fields


class ExampleStore:
    """Keys and values, both bytes."""

    def __init__(self) -> None:
        self.pairs: dict[bytes, bytes] = {}
        self._replies = 0

    def execute(self, command: bytes, context: Context) -> bytes:
        """Applies put, get, cas or incr; anything else is answered with `?`."""
        reply = self._execute(command)
        self._replies = crc32(reply, self._replies)
        return reply

    def effects(self, slot: int) -> bytes:
        """Returns a check sum of all replies, and the number of keys."""
        return _HEAD.pack(len(self.pairs), self._replies)

    def _execute(self, command: bytes) -> bytes:
        pairs = self.pairs
        match command[:1], _split(command):
            case b"p", [key, value]:
                pairs[key] = value
                return b"+"
            case b"g", [key]:
                found = pairs.get(key)
                return b"-" if found is None else b"+" + found
            case b"c", [key, expected, value]:
                found = pairs.get(key, b"")
                if found != expected:
                    return b"!" + found
                pairs[key] = value
                return b"+"
            case b"i", [key, by]:
                before = pairs.get(key, b"0")
                if not (_WHOLE.fullmatch(before) and _WHOLE.fullmatch(by)):
                    return b"?"
                pairs[key] = b"%d" % (int(before) + int(by))
                return b"+" + pairs[key]
            case _:
                return b"?"

    def snapshot(self) -> bytes:
        """Returns the check sum of the replies, and all pairs in order of their keys."""
        return _STATE.encode(_State(len(self.pairs), self._replies, sorted(self.pairs.items())))

    def restore(self, state: bytes) -> None:
        """Takes the check sum and all pairs of a snapshot; empty bytes are the initial state."""
        _, self._replies, pairs = _STATE.decode(state) if state else _State(0, 0, ())
        self.pairs = dict(pairs)
