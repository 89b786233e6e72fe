"""The frames of clients and replicas, after the hello. Each begins with a letter.

client    Q  requests as `pack_requests` packs them, all of the client's own number
replica   A  answers: count:4 (sequence:8 size:4)*count reply*count; the size of a refused one is all ones
replica   O  requests it has no room for: sequence:8*; they are to be sent again later
client    S  asks for the status;  replica  S  JSON; an admin's `Sstate` also asks for a digest of the state
admin     R  JSON: old, new, address, timeout_s;  replica  R  JSON: what it waits for, as often as that changes, and at
             last since, or error
admin     V  asks that all replicas hash their whole state;  replica  V  JSON: instance, or error
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final

from surecast.errors import PeerError

__all__ = [
    "ANSWERS",
    "OVERLOAD",
    "REPLACE",
    "REQUESTS",
    "STATUS",
    "STATUS_AND_STATE",
    "VERIFY",
    "pack_answers",
    "pack_overload",
    "read_answers",
]

REQUESTS: Final = b"Q"
ANSWERS: Final = b"A"
OVERLOAD: Final = b"O"
STATUS: Final = b"S"
STATUS_AND_STATE: Final = STATUS + b"state"
REPLACE: Final = b"R"
VERIFY: Final = b"V"
_COUNT: Final = struct.Struct(">I")
_ANSWER: Final = struct.Struct(">QI")
_REFUSED: Final = 0xFFFFFFFF


def pack_answers(answers: Sequence[tuple[int, int, bytes | None]]) -> bytes:
    """Answers, each of client, sequence number and reply, as content of a frame.

    >>> list(read_answers(pack_answers([(7, 1, b"yes"), (7, 2, None), (7, 3, b"")])))
    [(1, b'yes'), (2, None), (3, b'')]
    """
    pack = _ANSWER.pack
    table = [pack(sequence, _REFUSED if reply is None else len(reply)) for _, sequence, reply in answers]
    return b"".join([ANSWERS, _COUNT.pack(len(table)), *table, *[reply for _, _, reply in answers if reply]])


def read_answers(content: bytes) -> Iterator[tuple[int, bytes | None]]:
    """Sequence numbers and replies; None is for a request that is too old to be told new from old."""
    try:
        (count,) = _COUNT.unpack_from(content, 1)
        at = 5 + count * _ANSWER.size
        for sequence, size in _ANSWER.iter_unpack(memoryview(content)[5:at]):
            if size == _REFUSED:
                yield sequence, None
                continue
            if at + size > len(content):
                raise PeerError("answers: the last one is cut off")
            yield sequence, content[at : at + size]
            at += size
    except struct.error as error:
        raise PeerError(f"answers: {error}") from error


def pack_overload(sequences: Sequence[int]) -> bytes:
    """Requests that there is no room for, as content of a frame.

    >>> pack_overload([258])
    b'O\\x00\\x00\\x00\\x00\\x00\\x00\\x01\\x02'
    """
    return OVERLOAD + struct.pack(f">{len(sequences)}Q", *sequences)
