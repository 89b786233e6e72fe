"""One generation at a node: the plain packets it knows, and the coded ones that told it something.

The encoding vectors of the coded packets are kept as a triangular matrix, beside it which packets each row is made of.
Payloads are kept as they came. A row is worked out for its payload only when its packet is wanted: one product over
all of them at once, which costs far less than carrying the payloads through every step of the elimination.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from surecast.protocol.coding.field_kernels import insert, learn, recode, solve
from surecast.protocol.coding.fields import Bytes, Words, field_of

__all__ = ["Generation"]

_FIRST_ROWS = 8


def _words(count: int) -> int:
    """Returns the number of words that `count` bytes take."""
    return (count + 7) // 8


class Generation:
    """The packets of one generation at one node. Without payloads (`payload_bytes` 0) it counts ranks only.

    >>> generation = Generation(2, 4, field_bits=8)
    >>> generation.add_coded(np.array([3, 5], dtype=np.uint8), bytes(4)), generation.add_plain(1, b"\\0\\0\\0\\0")
    (True, True)
    >>> generation.complete, generation.plain(0)
    (True, b'\\x00\\x00\\x00\\x00')
    """

    def __init__(self, packets: int, payload_bytes: int, field_bits: int):
        self.packets = packets
        self.payload_bytes = payload_bytes
        self.rank = 0
        self._field = field_of(field_bits)
        self._known: NDArray[np.bool_] = np.zeros(packets, dtype=np.bool_)
        self._pivots: NDArray[np.int64] = np.full(packets, -1, dtype=np.int64)
        self._plain: Words = np.zeros((packets, _words(payload_bytes)), dtype=np.uint64)
        self._plain_view = self._plain.reshape(-1).view(np.uint8).data
        self._payload_room = 8 * _words(payload_bytes)
        self._columns = 8 * _words(packets)
        self._width = _words(packets)
        self._used = 0
        self._settled = True
        self._reserve(min(_FIRST_ROWS, packets))

    @property
    def complete(self) -> bool:
        """True if all plain packets are known or can be computed."""
        return self.rank == self.packets

    def add_plain(self, index: int, payload: bytes) -> bool:
        """Takes a plain packet. Returns whether it was innovative."""
        if self.rank == self.packets or self._known[index]:
            return False
        start = index * self._payload_room
        self._plain_view[start : start + self.payload_bytes] = payload
        self._settled = False
        if self._used == 0:
            self._known[index] = True
            self.rank += 1
            return True
        field = self._field
        innovative = bool(
            learn(self._matrix, self._rows, self._pivots, self._known, index, self._width, field.bits, field.inverses)
        )
        self.rank += innovative
        return innovative

    def add_coded(self, vector: Bytes, payload: bytes) -> bool:
        """Takes a coded packet. Returns whether it raised the rank; only then is it kept."""
        if self.rank == self.packets:
            return False
        row = self._used
        if row == len(self._matrix):
            self._reserve(min(2 * row, self.packets))
        own = self._matrix[row]
        own.fill(0)
        own[: self.packets] = vector
        own[self._columns + row] = 1
        self._width = (self._columns + row) // 8 + 1
        field = self._field
        if (
            insert(self._matrix, self._rows, self._pivots, self._known, row, self._width, field.bits, field.inverses)
            < 0
        ):
            return False
        self._used += 1
        self._vectors[row, : self.packets] = vector
        start = row * self._payload_room
        self._payload_view[start : start + self.payload_bytes] = payload
        self.rank += 1
        self._settled = False
        return True

    def known(self, index: int) -> bool:
        """Returns whether a plain packet has come or can be computed from the packets that have."""
        self._settle()
        return bool(self._known[index])

    def plain(self, index: int) -> bytes:
        """The payload of a known plain packet."""
        self._settle()
        payload: Bytes = self._plain[index].view(np.uint8)[: self.payload_bytes]
        return payload.tobytes()

    def all_plain(self) -> bytes:
        """The payloads of all plain packets, in order; the generation must be complete."""
        self._settle()
        return self._plain.view(np.uint8)[:, : self.payload_bytes].tobytes()

    def recode(self, seed: int) -> tuple[Bytes, bytes]:
        """A fresh combination of all that is here, as vector and payload. There must be something.

        The vector is uniform on the space of those that can be had, but for 0: then the first packet is sent on.
        """
        vector: Bytes = np.empty(self._columns, dtype=np.uint8)
        payload: Words = np.empty(self._payload_room // 8, dtype=np.uint64)
        used = self._used
        recode(
            self._known,
            self._plain,
            self._vectors[:used].view(np.uint64),
            self._payloads[:used],
            np.uint64(seed % (1 << 64)),
            self._field.bits,
            vector,
            payload,
        )
        return vector[: self.packets], payload.tobytes()[: self.payload_bytes]

    def _reserve(self, rows: int) -> None:
        """Makes room for so many coded packets. The packets a row is made of stand behind its vector."""
        matrix = np.zeros((rows, self._columns + 8 * _words(rows)), dtype=np.uint8)
        vectors = np.zeros((rows, self._columns), dtype=np.uint8)
        payloads = np.zeros((rows, _words(self.payload_bytes)), dtype=np.uint64)
        if self._used:
            matrix[: self._used, : self._matrix.shape[1]] = self._matrix
            vectors[: self._used] = self._vectors
            payloads[: self._used] = self._payloads
        self._matrix: Bytes = matrix
        self._rows: Words = matrix.view(np.uint64)
        self._vectors: Bytes = vectors
        self._payloads: Words = payloads
        self._payload_view = payloads.reshape(-1).view(np.uint8).data

    def _settle(self) -> None:
        """Computes every plain packet that can be."""
        if not self._settled and self._used:
            solve(
                self._matrix,
                self._rows,
                self._pivots,
                self._known,
                self._width,
                self._field.bits,
                self._plain,
                self._payloads[: self._used],
            )
        self._settled = True
