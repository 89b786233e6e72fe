"""A running hash over everything that happens: two runs with equal hashes were the same run."""

from __future__ import annotations

import hashlib
import struct

__all__ = ["Journal"]

_RECORD = struct.Struct("<dBiiq")
_FLUSH_BYTES = 1 << 16


class Journal:
    """Takes down what happened, when, between whom.

    >>> one, other = Journal(), Journal()
    >>> one.note(1.5, 3, 0, 1, 7)
    >>> one.digest() == other.digest()
    False
    >>> other.note(1.5, 3, 0, 1, 7)
    >>> one.digest() == other.digest()
    True
    """

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._pending = bytearray()

    def note(self, time_s: float, kind: int, a: int, b: int, number: int) -> None:
        """One thing that happened: its kind, two components by index, and a number that tells it from others."""
        self._pending += _RECORD.pack(time_s, kind, a, b, number)
        if len(self._pending) >= _FLUSH_BYTES:
            self._hash.update(self._pending)
            self._pending = bytearray()

    def digest(self) -> str:
        """The hash of all that was noted so far."""
        now = self._hash.copy()
        now.update(self._pending)
        return now.hexdigest()
