"""Values that instances decide on: nothing, or a batch of requests in one piece of bytes.

    value    = empty (no operation) | stamp_us:8 segment*
    segment  = origin:2 number:8 size:4 requests
    requests = count:4 (client:8 sequence:8 size:4)*count payload*count

A segment is what one replica took from its clients in one go. Its pieces are joined once, when it becomes part of a
value, and from then on it is handed on as a whole: forwarding, proposing, voting and storing cost the same for one
request as for a thousand.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from surecast.errors import PeerError

__all__ = [
    "COUNT",
    "NOOP",
    "REQUEST",
    "SEGMENT",
    "STAMP_BYTES",
    "Request",
    "Segment",
    "check_requests",
    "check_segments",
    "check_value",
    "join_segments",
    "make_segment",
    "names_of",
    "pack_requests",
    "segments_of",
    "stamp_of",
    "walk",
]

NOOP: Final = b""
_STAMP: Final = struct.Struct(">Q")
STAMP_BYTES: Final = _STAMP.size
SEGMENT: Final = struct.Struct(">HQI")
"""The head of a segment: its origin, its number there, and the size of its requests."""
COUNT: Final = struct.Struct(">I")
REQUEST: Final = struct.Struct(">QQI")
"""A row of the table of requests: the client, its sequence number, and the size of the command."""

Request = tuple[int, int, bytes | list[bytes]]
"""A client, its sequence number, and a command, whole or in pieces."""


class Segment(NamedTuple):
    """A segment in pieces, the first of which goes beyond its table of requests; its size; and its key: the replica
    that took it, and its number there."""

    pieces: Sequence[bytes]
    size: int
    key: tuple[int, int]

    @classmethod
    def of(cls, data: bytes) -> Segment:
        """A segment in one piece."""
        return cls((data,), len(data), SEGMENT.unpack_from(data)[:2])

    def whole(self) -> bytes:
        """In one piece."""
        return b"".join(self.pieces)


def pack_requests(requests: Sequence[Request]) -> bytes:
    """Requests in one piece.

    >>> data = pack_requests([(7, 1, b"ab"), (8, 1, [b"c", b"d"])])
    >>> [(client, sequence, data[at:end]) for client, sequence, at, end in walk(data)]
    [(7, 1, b'ab'), (8, 1, b'cd')]
    """
    return b"".join(_pieces(requests))


def _pieces(requests: Sequence[Request]) -> list[bytes]:
    """Requests in pieces: the table, then the commands."""
    table, commands, pack = [COUNT.pack(len(requests))], [], REQUEST.pack
    for client, sequence, command in requests:
        if isinstance(command, list):
            commands += command
            size = sum(map(len, command))
        else:
            commands.append(command)
            size = len(command)
        table.append(pack(client, sequence, size))
    return [b"".join(table), *commands]


def walk(data: bytes, at: int = 0) -> Iterator[tuple[int, int, int, int]]:
    """The requests of a piece that begins at `at`, in order: client, sequence number, and where the command stands."""
    (count,) = COUNT.unpack_from(data, at)
    first, unpack, size = at + COUNT.size, REQUEST.unpack_from, REQUEST.size
    at = first + count * size
    for row in range(first, at, size):
        client, sequence, length = unpack(data, row)
        end = at + length
        yield client, sequence, at, end
        at = end


def names_of(requests: bytes, at: int = 0) -> Iterator[tuple[int, int, int]]:
    """Client, sequence number and size of each request of a piece that begins at `at`."""
    (count,) = COUNT.unpack_from(requests, at)
    at += COUNT.size
    return REQUEST.iter_unpack(memoryview(requests)[at : at + count * REQUEST.size])


def make_segment(origin: int, number: int, requests: Sequence[Request] | bytes) -> Segment:
    """Requests, or a piece of them, with the replica that took them and its count of them."""
    if isinstance(requests, bytes):
        size = len(requests)
        return Segment((SEGMENT.pack(origin, number, size) + requests,), SEGMENT.size + size, (origin, number))
    pieces = _pieces(requests)
    size = sum(map(len, pieces))
    pieces[0] = SEGMENT.pack(origin, number, size) + pieces[0]
    return Segment(pieces, SEGMENT.size + size, (origin, number))


def join_segments(stamp_us: int, segments: Iterable[Segment]) -> bytes:
    """A value of several segments."""
    return b"".join([_STAMP.pack(stamp_us), *[piece for segment in segments for piece in segment.pieces]])


def stamp_of(value: bytes) -> int:
    """When a value was proposed, by its proposer's clock; 0 for no operation."""
    stamp: int = _STAMP.unpack_from(value)[0] if value else 0
    return stamp


def segments_of(value: bytes) -> Iterator[tuple[int, int, int]]:
    """Origin and number of each segment, and where its requests begin; none where there is no operation.

    >>> list(segments_of(join_segments(5, [make_segment(1, 9, [])])))
    [(1, 9, 22)]
    """
    at, end, head = _STAMP.size, len(value), SEGMENT.size
    while at < end:
        origin, number, size = SEGMENT.unpack_from(value, at)
        at += head
        yield origin, number, at
        at += size


def check_requests(data: bytes, at: int = 0, size: int | None = None) -> None:
    """Raises PeerError where a piece of `size` bytes at `at` does not hold what it says; what passes can be walked."""
    size = len(data) - at if size is None else size
    if size < 4 or at + size > len(data):
        raise PeerError(f"paxos requests: {size} bytes are announced, and {len(data) - at} are there; the count has 4")
    (count,) = COUNT.unpack_from(data, at)
    table = 4 + count * REQUEST.size
    if table > size:
        raise PeerError(f"paxos requests: {count} announced, but {size} bytes hold fewer")
    for _, _, length in REQUEST.iter_unpack(memoryview(data)[at + 4 : at + table]):
        table += length
    if table != size:
        raise PeerError("paxos requests: the sizes of the commands do not add up to the piece")


def check_segments(data: bytes, at: int = 0) -> int:
    """Returns how many segments stand from `at` on, to the end; PeerError where one is not whole."""
    count, end, head = 0, len(data), SEGMENT.size
    while at < end:
        begin = at + head
        if begin > end:
            raise PeerError("paxos value: its last segment is cut off")
        _, _, size = SEGMENT.unpack_from(data, at)
        check_requests(data, begin, size)
        at = begin + size
        count += 1
    return count


def check_value(value: bytes) -> None:
    """Raises PeerError where a value cannot be applied."""
    if value != NOOP:
        if len(value) < _STAMP.size:
            raise PeerError("paxos value: shorter than its time stamp")
        check_segments(value, _STAMP.size)
