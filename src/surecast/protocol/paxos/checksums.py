"""Checksums of values: what goes through a replica is summed once, for its peers, its store and its hash."""

from __future__ import annotations

from typing import Final
from zlib import crc32

__all__ = ["crc_of", "remember"]

_WORTH_BYTES: Final = 512
"""Fewer bytes are summed anew in less time than they are looked up."""
_LARGE_BYTES: Final = 1 << 20
"""More bytes are not kept here for the sake of a checksum."""
_KNOWN_MAX: Final = 16
_known: dict[int, tuple[bytes, int]] = {}
"""The last that were summed, by identity; as long as one is here, nothing else can have its identity.

A replica works in one thread.
"""


def crc_of(data: bytes) -> int:
    """The CRC-32 of some bytes; it is remembered for a while where there are many.

    >>> hex(crc_of(b"123456789"))
    '0xcbf43926'
    """
    if len(data) < _WORTH_BYTES:
        return crc32(data)
    known = _known.get(id(data))
    if known is not None and known[0] is data:
        return known[1]
    return remember(data, crc32(data))


def remember(data: bytes, crc: int) -> int:
    """Notes a checksum that was found in another way, and returns it.

    >>> data, more = bytes(1000), bytes(1000) + b"more"
    >>> remember(more, crc32(b"more", crc_of(data))) == crc_of(more) == crc32(more)
    True
    """
    if _WORTH_BYTES <= len(data) <= _LARGE_BYTES:
        if len(_known) >= _KNOWN_MAX:
            del _known[next(iter(_known))]
        _known[id(data)] = (data, crc)
    return crc
