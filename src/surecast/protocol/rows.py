"""The rows of the store's log, and of snapshots: many pairs and deletions in one blob.

A row is: the number of pairs P and of deletions D, the P + D lengths of the keys, the P lengths of the values
(all of them unsigned 32-bit, little-endian), the keys one after the other (first those of the pairs, then the deleted
ones), the values one after the other. Lengths and bytes stand apart because both are then packed by one call each,
whatever their number.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping
from itertools import accumulate, pairwise

__all__ = ["DELETION_BYTES", "PAIR_BYTES", "pack", "unpack"]

PAIR_BYTES = 8  # the two lengths of a pair
DELETION_BYTES = 4  # the length of a deleted key
_HEAD = struct.Struct("<II")


def pack(pairs: Mapping[bytes, bytes], deleted: Collection[bytes] = ()) -> bytes:
    """One row.

    >>> unpack(pack({b"key": b"value"}, [b"gone"]))
    ([(b'key', b'value')], [b'gone'])
    """
    keys = [*pairs, *deleted]
    values = pairs.values()
    lengths = struct.pack(f"<{len(keys) + len(values)}I", *map(len, keys), *map(len, values))
    return b"".join((_HEAD.pack(len(values), len(deleted)), lengths, *keys, *values))


def unpack(row: bytes) -> tuple[list[tuple[bytes, bytes]], list[bytes]]:
    """The pairs and the deleted keys of a row whose checksum is right; ValueError where it is no row all the same."""
    if len(row) < _HEAD.size:
        raise ValueError("a row without its head")
    pair_count, deleted_count = _HEAD.unpack_from(row)
    count = 2 * pair_count + deleted_count
    start = _HEAD.size + 4 * count
    if start > len(row):
        raise ValueError("a row shorter than its lengths")
    lengths = struct.unpack_from(f"<{count}I", row, _HEAD.size)
    if start + sum(lengths) != len(row):
        raise ValueError("a row whose lengths do not add up")
    parts = [row[begin:end] for begin, end in pairwise(accumulate(lengths, initial=start))]
    key_count = pair_count + deleted_count
    return list(zip(parts[:pair_count], parts[key_count:], strict=True)), parts[pair_count:key_count]
