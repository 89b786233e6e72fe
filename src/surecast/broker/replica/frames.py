"""Frames on a stream of bytes: length, how much of it is summed, checksum, content."""

from __future__ import annotations

import struct
from typing import Final

from zlib_ng.zlib_ng import crc32

from surecast.errors import PeerError

__all__ = ["HEAD_BYTES", "FrameReader", "begin_frame", "frame"]

_HEAD: Final = struct.Struct(">III")
_SIZES: Final = struct.Struct(">II")
_CHECKSUM: Final = struct.Struct(">I")
HEAD_BYTES: Final = _HEAD.size


def frame(content: bytes) -> bytes:
    """Some content as one frame.

    >>> FrameReader(100).feed(frame(b"one") + frame(b"two"))
    [b'one', b'two']
    """
    return begin_frame(content, 0)


def begin_frame(content: bytes, following: int) -> bytes:
    """A frame of some content and of so many bytes that are to follow it; those have a checksum of their own.

    >>> FrameReader(100).feed(begin_frame(b"this and ", 4) + b"that")
    [b'this and that']
    """
    summed = len(content)
    sizes = _SIZES.pack(summed + following, summed)
    # The checksum begins with the sizes, so that damage to them is noticed.
    return sizes + _CHECKSUM.pack(crc32(content, crc32(sizes))) + content


class FrameReader:
    """Cuts a stream into the contents of its frames. Pieces are joined once, when a frame is whole.

    With `in_place` what comes in two parts is given out without a copy, as a view.

    >>> reader = FrameReader(100)
    >>> [reader.feed(frame(b"one")[at : at + 1]) for at in range(15)][-1]
    [b'one']
    """

    def __init__(self, bytes_max: int):
        self.bytes_max = bytes_max
        self.in_place = False
        self._pieces: list[bytes] = []
        self._have = 0
        self._need = HEAD_BYTES

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that are whole now; PeerError where one is damaged or too large."""
        self._have += len(data)
        if self._pieces or self._have < self._need:
            self._pieces.append(data)
            if self._have < self._need:
                return []
            data = b"".join(self._pieces)
            self._pieces = []
        found: list[bytes] = []
        at, end, need = 0, len(data), HEAD_BYTES
        while end - at >= HEAD_BYTES:
            size, summed, checksum = _HEAD.unpack_from(data, at)
            if size > self.bytes_max:
                raise PeerError(f"frame: {size} bytes are announced, and at most {self.bytes_max} are taken")
            need = HEAD_BYTES + size
            if end - at < need:
                break
            begin = at + HEAD_BYTES
            sizes = data[at : at + _SIZES.size]
            if summed > size or crc32(data[begin : begin + summed], crc32(sizes)) != checksum:
                raise PeerError(f"frame: {size} bytes do not have the checksum that was sent with them")
            if self.in_place and summed < size:
                found.append(memoryview(data)[begin : at + need])  # type: ignore[arg-type]  # read like bytes
            else:
                found.append(data[begin : at + need])
            at += need
            need = HEAD_BYTES
        self._have, self._need = end - at, need
        if at < end:
            self._pieces.append(data[at:])
        return found
