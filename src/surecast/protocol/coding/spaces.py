"""One generation at many nodes, by encoding vectors alone: coded delivery at the size of a simulation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from surecast.errors import ConfigurationError
from surecast.protocol.coding.coding_settings import PACKETS_MAX
from surecast.protocol.coding.field_kernels import draw, insert_many, recode_many
from surecast.protocol.coding.fields import Bytes, Words, field_of

__all__ = ["VectorSpaces"]

Nodes = NDArray[np.int64]
Seeds = NDArray[np.uint64]


class VectorSpaces:
    """The spaces spanned by the vectors that each of `count` nodes received: the arithmetic of `Decoder` and `Recoder`
    without packets and payloads, for many nodes in one call. Memory is count * packets * packets bytes.

    >>> spaces = VectorSpaces(3, packets=4, field_bits=8)
    >>> spaces.add(np.array([0, 0, 1]), spaces.plain([0, 0, 3])).tolist()
    [True, False, True]
    >>> sent = spaces.recode(np.array([0, 1]), np.array([5, 6], dtype=np.uint64))
    >>> spaces.add(np.array([2, 2]), sent).tolist(), spaces.ranks.tolist()
    ([True, True], [1, 1, 2])
    """

    def __init__(self, count: int, packets: int, field_bits: int = 8):
        if count < 1 or not 1 <= packets <= PACKETS_MAX:
            raise ConfigurationError(
                f"{count} nodes with {packets} packets; there must be a node, and from 1 to {PACKETS_MAX} packets"
            )
        self.packets = packets
        self._field = field_of(field_bits)
        self._columns = (packets + 7) // 8 * 8
        self._matrix: Bytes = np.zeros((count, packets, self._columns), dtype=np.uint8)
        self._words: Words = self._matrix.view(np.uint64)
        self._pivots: Nodes = np.full((count, packets), -1, dtype=np.int64)
        self._known: NDArray[np.bool_] = np.zeros((count, packets), dtype=np.bool_)
        self._used: Nodes = np.zeros(count, dtype=np.int64)
        self.ranks: Nodes = np.zeros(count, dtype=np.int64)
        """Independent vectors of each node; `packets` where it can decode."""

    def clear(self) -> None:
        """Forgets everything, for the next event; the memory is used again."""
        self._pivots.fill(-1)
        self._known.fill(False)
        self._used.fill(0)
        self.ranks.fill(0)

    def plain(self, indices: list[int] | Nodes) -> Bytes:
        """The vectors of plain packets."""
        vectors = np.zeros((len(indices), self.packets), dtype=np.uint8)
        vectors[np.arange(len(indices)), indices] = 1
        return vectors

    def coded(self, seeds: Seeds) -> Bytes:
        """The vectors a source draws from seeds, as in `draw_vector`."""
        vectors = np.empty((len(seeds), self.packets), dtype=np.uint8)
        for seed, vector in zip(seeds, vectors, strict=True):
            draw(seed, self._field.bits, vector)
        vectors[~vectors.any(axis=1), 0] = 1
        return vectors

    def add(self, nodes: Nodes, vectors: Bytes) -> NDArray[np.bool_]:
        """Gives vector i to node `nodes[i]`, in order; which of them were innovative there."""
        innovative = np.zeros(len(nodes), dtype=np.bool_)
        insert_many(
            self._matrix,
            self._words,
            self._pivots,
            self._known,
            self._used,
            self.ranks,
            self._checked(nodes, len(vectors)),
            self._possible(vectors),
            self._field.bits,
            self._field.inverses,
            innovative,
        )
        return innovative

    def recode(self, nodes: Nodes, seeds: Seeds) -> Bytes:
        """For each node a random vector of its space, drawn with its seed; 0 only where a node has nothing."""
        out = np.zeros((len(nodes), self._columns), dtype=np.uint8)
        recode_many(
            self._matrix,
            self._words,
            self._pivots,
            self._known,
            self._checked(nodes, len(seeds)),
            np.ascontiguousarray(seeds, dtype=np.uint64),
            self._field.bits,
            out,
            out.view(np.uint64),
        )
        return np.ascontiguousarray(out[:, : self.packets])

    def _checked(self, nodes: Nodes, count: int) -> Nodes:
        if len(nodes) != count:
            raise ConfigurationError(f"{len(nodes)} nodes for {count} vectors or seeds; there must be as many")
        if len(nodes) and not (nodes.min() >= 0 and nodes.max() < len(self.ranks)):
            raise ConfigurationError(f"nodes are numbered from 0 to {len(self.ranks) - 1}; not all of these are")
        return np.ascontiguousarray(nodes, dtype=np.int64)

    def _possible(self, vectors: Bytes) -> Bytes:
        if vectors.ndim != 2 or vectors.shape[1] != self.packets or vectors.dtype != np.uint8:
            raise ConfigurationError(
                f"vectors have the shape {vectors.shape} and type {vectors.dtype}; "
                f"each must have {self.packets} coefficients, as uint8"
            )
        if self._field.bits < 8 and vectors.size and int(vectors.max()) >= self._field.order:
            raise ConfigurationError(
                f"a coefficient is {vectors.max()}; elements of this field are below {self._field.order}"
            )
        return np.ascontiguousarray(vectors)
