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
    "check_requests",
    "join_segments",
    "make_segment",
    "pack_requests",
    "requests_of",
    "segment_key",
    "segments_of",
    "stamp_of",
    "walk",
]

NOOP: Final = b""
_STAMP: Final = struct.Struct(">Q")
_SEGMENT: Final = struct.Struct(">HQI")
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


def walk(requests: bytes) -> Iterator[tuple[int, int, bytes]]:
    """The requests of a piece, in order."""
    (count,) = _COUNT.unpack_from(requests)
    at = 4 + count * _REQUEST.size
    for client, sequence, size in _REQUEST.iter_unpack(memoryview(requests)[4:at]):
        yield client, sequence, requests[at : at + size]
        at += size


def make_segment(origin: int, number: int, requests: bytes) -> bytes:
    """Requests with the replica that took them and its count of them."""
    return _SEGMENT.pack(origin, number, len(requests)) + requests


def requests_of(segment: bytes) -> bytes:
    """The requests of a segment."""
    return segment[_SEGMENT.size :]


def segment_key(segment: bytes) -> tuple[int, int]:
    """The origin of a segment, and its number there."""
    origin, number, _ = _SEGMENT.unpack_from(segment)
    return origin, number


def join_segments(stamp_us: int, segments: Iterable[bytes]) -> bytes:
    """A value of several segments."""
    return _STAMP.pack(stamp_us) + b"".join(segments)


def stamp_of(value: bytes) -> int:
    """When a value was proposed, by its proposer's clock; 0 for no operation."""
    stamp: int = _STAMP.unpack_from(value)[0] if value else 0
    return stamp


def segments_of(value: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Origin, number and requests of each segment.

    >>> list(segments_of(join_segments(5, [make_segment(1, 9, b"")])))
    [(1, 9, b'')]
    """
    at, end = _STAMP.size, len(value)
    while at < end:
        origin, number, size = _SEGMENT.unpack_from(value, at)
        at += _SEGMENT.size
        yield origin, number, value[at : at + size]
        at += size


def check_requests(requests: bytes) -> None:
    """Raises PeerError where a piece does not hold what it says; what passes can be walked."""
    size = len(requests)
    if size < 4:
        raise PeerError(f"paxos requests: {size} bytes are too short; at least the count has 4")
    (count,) = _COUNT.unpack_from(requests)
    at = 4 + count * _REQUEST.size
    if at > size:
        raise PeerError(f"paxos requests: {count} announced, but {size} bytes hold fewer")
    if at + sum(entry[2] for entry in _REQUEST.iter_unpack(memoryview(requests)[4:at])) != size:
        raise PeerError("paxos requests: the sizes of the commands do not add up to the piece")
