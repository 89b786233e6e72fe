"""What an instance decides on: nothing, or a batch of requests in one piece of bytes.

    value    = empty (no operation) | stamp_us:8 segment*
    segment  = origin:2 number:8 size:4 requests
    requests = count:4 (client:8 sequence:8 size:4)*count payload*count

A segment is what one replica took from its clients in one go. It is built once, and from then on copied as a whole:
forwarding, proposing, voting and storing cost the same for one request as for a thousand.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from surecast.errors import PeerError

__all__ = [
    "NOOP",
    "SEGMENT_BYTES",
    "check_requests",
    "check_segments",
    "check_value",
    "join_segments",
    "make_segment",
    "names_of",
    "pack_requests",
    "segment_key",
    "segments_of",
    "stamp_of",
    "walk",
]

NOOP: Final = b""
_STAMP: Final = struct.Struct(">Q")
_SEGMENT: Final = struct.Struct(">HQI")
SEGMENT_BYTES: Final = _SEGMENT.size
"""Where the requests of a segment begin."""
_COUNT: Final = struct.Struct(">I")
_REQUEST: Final = struct.Struct(">QQI")


def pack_requests(requests: Sequence[tuple[int, int, bytes]]) -> bytes:
    """Requests, each of a client, its sequence number and a command, as one piece.

    >>> list(walk(pack_requests([(7, 1, b"ab"), (8, 1, b"")])))
    [(7, 1, b'ab'), (8, 1, b'')]
    """
    pack = _REQUEST.pack
    table = [pack(client, sequence, len(command)) for client, sequence, command in requests]
    return b"".join([_COUNT.pack(len(requests)), *table, *[command for _, _, command in requests]])


def walk(data: bytes, at: int = 0) -> Iterator[tuple[int, int, bytes]]:
    """The requests of a piece that begins at `at`, in order."""
    (count,) = _COUNT.unpack_from(data, at)
    first, unpack, size = at + _COUNT.size, _REQUEST.unpack_from, _REQUEST.size
    at = first + count * size
    for row in range(first, at, size):
        client, sequence, length = unpack(data, row)
        yield client, sequence, data[at : at + length]
        at += length


def names_of(requests: bytes, at: int = 0) -> Iterator[tuple[int, int, int]]:
    """Client, sequence number and size of each request of a piece that begins at `at`."""
    (count,) = _COUNT.unpack_from(requests, at)
    at += _COUNT.size
    return _REQUEST.iter_unpack(memoryview(requests)[at : at + count * _REQUEST.size])


def make_segment(origin: int, number: int, requests: bytes) -> bytes:
    """Requests with the replica that took them and its count of them."""
    return _SEGMENT.pack(origin, number, len(requests)) + requests


def segment_key(segment: bytes) -> tuple[int, int]:
    """The origin of a segment, and its number there."""
    origin, number, _ = _SEGMENT.unpack_from(segment)
    return origin, number


def join_segments(stamp_us: int, segments: Iterable[bytes]) -> bytes:
    """A value of several segments."""
    return b"".join((_STAMP.pack(stamp_us), *segments))


def stamp_of(value: bytes) -> int:
    """When a value was proposed, by its proposer's clock; 0 for no operation."""
    stamp: int = _STAMP.unpack_from(value)[0] if value else 0
    return stamp


def segments_of(value: bytes) -> Iterator[tuple[int, int, int]]:
    """Origin and number of each segment, and where its requests begin; none where there is no operation.

    >>> list(segments_of(join_segments(5, [make_segment(1, 9, b"")])))
    [(1, 9, 22)]
    """
    at, end, head = _STAMP.size, len(value), _SEGMENT.size
    while at < end:
        origin, number, size = _SEGMENT.unpack_from(value, at)
        at += head
        yield origin, number, at
        at += size


def check_requests(data: bytes, at: int = 0, size: int | None = None) -> None:
    """Raises PeerError where a piece of `size` bytes at `at` does not hold what it says; what passes can be walked."""
    size = len(data) - at if size is None else size
    if size < 4 or at + size > len(data):
        raise PeerError(f"paxos requests: {size} bytes are announced, and {len(data) - at} are there; the count has 4")
    (count,) = _COUNT.unpack_from(data, at)
    table = 4 + count * _REQUEST.size
    if table > size:
        raise PeerError(f"paxos requests: {count} announced, but {size} bytes hold fewer")
    if table + sum([length for _, _, length in names_of(data, at)]) != size:
        raise PeerError("paxos requests: the sizes of the commands do not add up to the piece")


def check_segments(data: bytes, at: int) -> None:
    """Raises PeerError where what follows from `at` on is not a row of segments."""
    end = len(data)
    while at < end:
        if at + _SEGMENT.size > end:
            raise PeerError("paxos value: its last segment is cut off")
        _, _, size = _SEGMENT.unpack_from(data, at)
        at += _SEGMENT.size
        check_requests(data, at, size)
        at += size


def check_value(value: bytes) -> None:
    """Raises PeerError where a value cannot be applied."""
    if value != NOOP:
        if len(value) < _STAMP.size:
            raise PeerError("paxos value: shorter than its time stamp")
        check_segments(value, _STAMP.size)
