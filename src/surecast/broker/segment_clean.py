"""Takes what is live out of the oldest file of a store, in steps."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

from zlib_ng.zlib_ng import crc32

from surecast.broker.segment_file import ENTRY_BYTES, HEAD_BYTES, Segment, entry_at, entry_size, read_all
from surecast.broker.segment_load import AT_MASK, CHECKSUM_SHIFT, SEGMENT_SHIFT, SIZE_BITS, SIZE_MASK
from surecast.broker.store_base import DamagedError, StoreError

__all__ = ["Cleaning", "check_value"]

_INDEX_MAX: Final = 50_000  # so many keys are looked through at once, in about 3 ms


class Cleaning:
    """The progress of cleaning a file: locations that may be live, and where the entries after them begin."""

    __slots__ = ("_at", "_locations", "_next_at")

    def __init__(self, locations: list[tuple[bytes, int]] | None = None, at: int = 0, next_at: int = HEAD_BYTES):
        self._locations = locations or []
        self._at = at
        self._next_at = next_at

    def is_done(self, segment: Segment) -> bool:
        """Returns whether nothing is left in the file that could be live."""
        return self._at == len(self._locations) and self._next_at >= segment.bytes

    def step(
        self,
        segment: Segment,
        number: int,
        index: Mapping[bytes, int],
        pairs: dict[bytes, bytes],
        changes: Mapping[bytes, bytes | None],
        budget: int,
    ) -> Cleaning:
        """Adds live pairs of a file to `pairs`, going through so many bytes of it; returns where it stands then."""
        rest, at, next_at = self._locations, self._at, self._next_at
        while budget > 0:
            if at == len(rest):
                if next_at >= segment.bytes:
                    break
                rest, size = _live_places(segment, number, index, next_at)
                next_at, at = next_at + size, 0
                budget -= 0 if next_at >= segment.bytes else size - sum(location & SIZE_MASK for _, location in rest)
                continue
            key, location = rest[at]
            at += 1
            if key not in changes and index.get(key) == location:
                pairs[key] = value = _read(segment, location)
                budget -= len(key) + len(value)
        return Cleaning(rest, at, next_at)


def _live_places(
    segment: Segment, number: int, index: Mapping[bytes, int], at: int
) -> tuple[list[tuple[bytes, int]], int]:
    """Returns what is live in a file from a place on, and the bytes that it went through.

    With few keys the index tells at once. With many that would take long: one entry is read.
    """
    base = number << SEGMENT_SHIFT
    if at == HEAD_BYTES and len(index) <= _INDEX_MAX:
        above = base + (1 << SEGMENT_SHIFT)
        return [(key, location) for key, location in index.items() if base <= location < above], segment.bytes - at
    try:
        size = entry_size(read_all(segment.file, ENTRY_BYTES, at))
        entry = entry_at(read_all(segment.file, size, at), 0, segment.salt)
    except (OSError, struct.error) as error:
        raise DamagedError(segment.path, at, f"it cannot be read: {error}") from error
    if entry is None:
        raise DamagedError(segment.path, at, "a commit that was whole is so no more")
    begin = at + entry.values_at
    locations = []
    for (key, value), checksum in zip(entry.pairs, entry.checksums, strict=True):
        location = base | checksum << CHECKSUM_SHIFT | begin << SIZE_BITS | len(value)
        begin += len(value)
        if index.get(key) == location:
            locations.append((key, location))
    return locations, size


def _read(segment: Segment, location: int) -> bytes:
    """Reads a value, and checks that it is what was written."""
    try:
        value = read_all(segment.file, location & SIZE_MASK, location >> SIZE_BITS & AT_MASK)
    except OSError as error:
        raise StoreError(f"{segment.path}: {error.strerror}") from error
    check_value(segment, value, location)
    return value


def check_value(segment: Segment, value: bytes, location: int) -> None:
    """Raises DamagedError where a value is not the one that was written at a place."""
    if len(value) != location & SIZE_MASK or crc32(value) != location >> CHECKSUM_SHIFT & 0xFFFFFFFF:
        at = location >> SIZE_BITS & AT_MASK
        raise DamagedError(segment.path, at, "a value is not what was written there")
