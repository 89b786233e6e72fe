"""One file of the store of a replica: a head, then entries, each a whole commit.

    head   = magic:4 format:4 segment:8 salt:4 checksum:4
    entry  = mark:4 size:4 number:8 checksum:4 row

A row is that of `store_rows`. Numbers of entries have no gaps, over all files. The checksum of an entry begins with the
salt, drawn for each file, so that nothing a client sends can look like an entry.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from zlib import crc32

__all__ = ["ENTRY_BYTES", "HEAD_BYTES", "Entry", "Scan", "entry_head", "make_head", "scan", "write_all"]

_MAGIC: Final = b"SCPX"
_FORMAT: Final = 1
_MARK: Final = b"\xa5SE\x5a"
_HEAD: Final = struct.Struct(">4sIQII")
_ENTRY: Final = struct.Struct(">4sIQI")
_NUMBERS: Final = struct.Struct(">IQ")
HEAD_BYTES: Final = _HEAD.size
ENTRY_BYTES: Final = _ENTRY.size
_JOIN_BYTES: Final = 1 << 18
_PARTS_MAX: Final = 512


@dataclass(frozen=True, slots=True)
class Entry:
    """A whole entry that was found: its number, where its row begins, and the row."""

    number: int
    row_at: int
    row: bytes


@dataclass(frozen=True, slots=True)
class Scan:
    """What a file holds: its entries up to `end`; `follows` where something whole stands after a damaged part."""

    salt: int
    entries: list[Entry]
    end: int
    size: int
    follows: bool


def make_head(segment: int, salt: int) -> bytes:
    """The head of a file."""
    fields = (_MAGIC, _FORMAT, segment, salt)
    return _HEAD.pack(*fields, crc32(_HEAD.pack(*fields, 0)[:-4]))


def entry_head(number: int, salt: int, row: Sequence[bytes]) -> bytes:
    """What stands before a row, given in parts."""
    size = sum(map(len, row))
    checksum = crc32(_NUMBERS.pack(size, number), salt)
    for part in row:
        checksum = crc32(part, checksum)
    return _ENTRY.pack(_MARK, size, number, checksum)


def scan(data: bytes, segment: int) -> Scan | None:
    """Reads a file; None where not even its head is whole.

    >>> row = [b"some ", b"row"]
    >>> found = scan(make_head(3, 77) + entry_head(9, 77, row) + b"".join(row) + b"torn", segment=3)
    >>> [(entry.number, entry.row) for entry in found.entries], found.size - found.end, found.follows
    ([(9, b'some row')], 4, False)
    """
    if len(data) < HEAD_BYTES or data[: HEAD_BYTES - 4] != make_head(segment, salt := _salt(data))[:-4]:
        return None
    if data[HEAD_BYTES - 4 : HEAD_BYTES] != make_head(segment, salt)[-4:]:
        return None
    entries: list[Entry] = []
    at = HEAD_BYTES
    while (found := _entry_at(data, at, salt)) is not None:
        entries.append(found)
        at = found.row_at + len(found.row)
    following = data.find(_MARK, at)
    while following >= 0 and _entry_at(data, following, salt) is None:
        following = data.find(_MARK, following + 1)
    return Scan(salt, entries, at, len(data), following >= 0)


def _salt(data: bytes) -> int:
    salt: int = _HEAD.unpack_from(data)[3]
    return salt


def _entry_at(data: bytes, at: int, salt: int) -> Entry | None:
    if at + ENTRY_BYTES > len(data):
        return None
    mark, size, number, _ = _ENTRY.unpack_from(data, at)
    begin = at + ENTRY_BYTES
    if mark != _MARK or begin + size > len(data):
        return None
    row = data[begin : begin + size]
    return Entry(number, begin, row) if data[at:begin] == entry_head(number, salt, [row]) else None


def write_all(file: int, parts: list[bytes]) -> None:
    """Writes all parts, small ones as one piece."""
    if sum(map(len, parts)) <= _JOIN_BYTES:
        parts = [b"".join(parts)]
    rest: list[bytes | memoryview] = list(parts)
    rest.reverse()
    while rest:
        written = os.writev(file, rest[: -_PARTS_MAX - 1 : -1])
        while rest and written >= len(rest[-1]):
            written -= len(rest.pop())
        if written:
            rest[-1] = memoryview(rest[-1])[written:]
