"""Bytes that know their checksum: what goes through a replica is summed once, for its peers, its store and its hash."""

from __future__ import annotations

from zlib import crc32

__all__ = ["Checked", "crc_of"]


class Checked(bytes):
    """Bytes with their CRC-32, which whoever makes them computes or checks.

    >>> value = Checked.of(b"123456789")
    >>> hex(value.crc), value == b"123456789"
    ('0xcbf43926', True)
    """

    crc: int

    @classmethod
    def of(cls, data: bytes | memoryview, crc: int | None = None) -> Checked:
        """Some bytes with their CRC-32, which is computed where it is not known."""
        checked = cls(data)
        checked.crc = crc32(checked) if crc is None else crc
        return checked

    def followed_by(self, tail: bytes) -> Checked:
        """These bytes and some more; only those are summed.

        >>> Checked.of(b"12345").followed_by(b"6789").crc == Checked.of(b"123456789").crc
        True
        """
        return Checked.of(self + tail, crc32(tail, self.crc))


def crc_of(data: bytes) -> int:
    """The CRC-32 of some bytes, computed where they do not know it."""
    return data.crc if isinstance(data, Checked) else crc32(data)
