"""The checksums of coded packets: CRC-32C against accidents, keyed BLAKE2b against forgers."""
# The kernel is typed by Numba.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from hashlib import blake2b
from hmac import compare_digest

import numpy as np

from surecast.kernels import njit

__all__ = ["CRC_BYTES", "KEYED_BYTES", "checksum", "checksum_fits", "crc32c"]

CRC_BYTES = 4
KEYED_BYTES = 16
_POLYNOMIAL = 0x82F63B78
"""Castagnoli's, its bits reversed."""


def _tables() -> np.ndarray[tuple[int, int], np.dtype[np.uint32]]:
    """Table k has the remainder of each byte followed by k zero bytes, so that eight bytes go in one step."""
    tables = np.zeros((8, 256), dtype=np.uint32)
    for byte in range(256):
        remainder = byte
        for _ in range(8):
            remainder = (remainder >> 1) ^ (_POLYNOMIAL if remainder & 1 else 0)
        tables[0, byte] = remainder
    for k in range(1, 8):
        tables[k] = (tables[k - 1] >> np.uint32(8)) ^ tables[0][tables[k - 1] & np.uint32(0xFF)]
    return tables


_TABLES = _tables()


@njit(cache=True)
def _crc(data, tables):
    crc = np.uint32(0xFFFFFFFF)
    low = np.uint32(0xFF)
    i = 0
    while i + 8 <= data.shape[0]:
        crc = (
            tables[7, (crc ^ data[i]) & low]
            ^ tables[6, ((crc >> np.uint32(8)) ^ data[i + 1]) & low]
            ^ tables[5, ((crc >> np.uint32(16)) ^ data[i + 2]) & low]
            ^ tables[4, (crc >> np.uint32(24)) ^ data[i + 3]]
            ^ tables[3, data[i + 4]]
            ^ tables[2, data[i + 5]]
            ^ tables[1, data[i + 6]]
            ^ tables[0, data[i + 7]]
        )
        i += 8
    while i < data.shape[0]:
        crc = tables[0, (crc ^ data[i]) & low] ^ (crc >> np.uint32(8))
        i += 1
    return crc ^ np.uint32(0xFFFFFFFF)


def crc32c(data: bytes) -> int:
    """The CRC-32C (Castagnoli) of some bytes.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    return int(_crc(np.frombuffer(data, dtype=np.uint8), _TABLES))


def checksum(data: bytes, key: bytes | None) -> bytes:
    """Returns the checksum at the end of a packet: CRC-32C, or keyed BLAKE2b where there is a key.

    >>> len(checksum(b"packet", None)), len(checksum(b"packet", b"a key of 16 byte"))
    (4, 16)
    """
    if key is None:
        return crc32c(data).to_bytes(CRC_BYTES, "big")
    return blake2b(data, digest_size=KEYED_BYTES, key=key, person=b"surecast coding").digest()


def checksum_fits(data: bytes, given: bytes, key: bytes | None) -> bool:
    """Returns whether a checksum belongs to these bytes, in a time that does not depend on where it differs.

    >>> checksum_fits(b"packet", checksum(b"packet", None), None)
    True
    """
    return compare_digest(checksum(data, key), given)
