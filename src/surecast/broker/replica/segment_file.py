"""One file of the store of a replica: a head, then entries, each a whole commit, then perhaps what was there before.

    head   = magic:4 format:4 segment:8 first:8 old:8 salt:4 checksum:4
    entry  = mark:4 size:4 number:8 checksum:4 row

A row is that of `store_rows`; the checksum is that of its table and of the checksums of its values. Numbers of entries
have no gaps, over all files; `first` is that of the first entry here. A file that was used before keeps its old content
up to `old` bytes, until new entries stand over it. Marks follow from the salt, drawn for each use of a file, and
checksums begin with it: so neither old content nor anything a client sends can look like an entry.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, NamedTuple

from zlib_ng.zlib_ng import crc32

from surecast.broker.store_rows import unpack

__all__ = [
    "ENTRY_BYTES",
    "HEAD_BYTES",
    "Entry",
    "Head",
    "Scan",
    "entry_head",
    "make_head",
    "other_format",
    "scan",
    "write_all",
]

_MAGIC: Final = b"SCPX"
_FORMAT: Final = 3
_MARK: Final = 0xA553455A
_HEAD: Final = struct.Struct(">4sIQQQII")
_ENTRY: Final = struct.Struct(">4sIQI")
HEAD_BYTES: Final = _HEAD.size
ENTRY_BYTES: Final = _ENTRY.size
_PARTS_MAX: Final = 512


class Head(NamedTuple):
    """The head of a file: its number, that of its first entry, how far old content may reach, and the salt."""

    segment: int
    first: int
    old: int
    salt: int


@dataclass(frozen=True, slots=True)
class Entry:
    """A whole entry that was found: its number, where its values begin, what it holds, and where it ends."""

    number: int
    values_at: int
    pairs: list[tuple[bytes, bytes]]
    deleted: list[bytes]
    end: int


@dataclass(frozen=True, slots=True)
class Scan:
    """What a file holds: its entries up to `end`; `follows` where something whole stands after a damaged part.

    `torn` is what there is of a commit that was begun at the end, in bytes.
    """

    head: Head
    entries: list[Entry]
    end: int
    size: int
    torn: int
    follows: bool


def make_head(head: Head) -> bytes:
    """The head of a file."""
    content = _HEAD.pack(_MAGIC, _FORMAT, *head, 0)[:-4]
    return content + crc32(content).to_bytes(4, "big")


def entry_head(number: int, salt: int, table: bytes, values: Collection[bytes]) -> bytes:
    """What stands before a row, given as its table and its values."""
    size = len(table) + sum(map(len, values))
    checksum = crc32(struct.pack(f">IQ{len(values)}I", size, number, *map(crc32, values)), crc32(table, salt))
    return _ENTRY.pack(_mark(salt), size, number, checksum)


def _mark(salt: int) -> bytes:
    return (salt ^ _MARK).to_bytes(4, "big")


def other_format(data: bytes) -> int | None:
    """The format of a file of another version; None where it is this one's, or no such file at all."""
    magic, number = _HEAD.unpack_from(data)[:2] if len(data) >= HEAD_BYTES else (b"", 0)
    return number if magic == _MAGIC and number != _FORMAT else None


def scan(data: bytes) -> Scan | None:
    """Reads a file; None where not even its head is whole.

    >>> from surecast.broker.store_rows import pack
    >>> row = pack({b"key": b"value"})
    >>> whole = make_head(Head(3, 9, 0, 77)) + entry_head(9, 77, row[:-5], [b"value"]) + row
    >>> found = scan(whole + b"torn")
    >>> [(entry.number, entry.pairs) for entry in found.entries], found.size - found.end, found.torn, found.follows
    ([(9, [(b'key', b'value')])], 4, 4, False)
    """
    if len(data) < HEAD_BYTES:
        return None
    head = Head(*_HEAD.unpack_from(data)[2:6])
    if data[:HEAD_BYTES] != make_head(head):
        return None
    entries: list[Entry] = []
    at, number = HEAD_BYTES, head.first
    while (found := _entry_at(data, at, head.salt)) is not None and found.number == number:
        entries.append(found)
        at = found.end
        number += 1
    mark = _mark(head.salt)
    following = data.find(mark, at)
    while following >= 0 and _entry_at(data, following, head.salt) is None:
        following = data.find(mark, following + 1)
    return Scan(head, entries, at, len(data), _torn(data, at, head, number), following >= 0)


def _torn(data: bytes, at: int, head: Head, number: int) -> int:
    """How much there is of an entry that was cut off; old content is none."""
    rest = len(data) - at
    if rest >= ENTRY_BYTES:
        mark, size, found, _ = _ENTRY.unpack_from(data, at)
        if mark == _mark(head.salt) and found == number:
            return min(rest, int(ENTRY_BYTES + size))
    return len(data) - max(at, head.old) if len(data) > head.old else 0


def _entry_at(data: bytes, at: int, salt: int) -> Entry | None:
    if at + ENTRY_BYTES > len(data):
        return None
    mark, size, number, _ = _ENTRY.unpack_from(data, at)
    begin = at + ENTRY_BYTES
    if mark != _mark(salt) or begin + size > len(data):
        return None
    row = data[begin : begin + size]
    try:
        pairs, deleted = unpack(row)
    except ValueError:
        return None
    values = [value for _, value in pairs]
    table = size - sum(map(len, values))
    if data[at:begin] != entry_head(number, salt, row[:table], values):
        return None
    return Entry(number, begin + table, pairs, deleted, begin + size)


def write_all(file: int, parts: list[bytes], at: int) -> None:
    """Writes all parts from a place on."""
    rest: list[bytes | memoryview] = list(parts)
    rest.reverse()
    while rest:
        written = os.pwritev(file, rest[: -_PARTS_MAX - 1 : -1], at)
        at += written
        while rest and written >= len(rest[-1]):
            written -= len(rest.pop())
        if written:
            rest[-1] = memoryview(rest[-1])[written:]
