"""Everything random in a scenario, from one seed, split by name.

A component draws from a stream keyed by the seed, the purpose of the draw and the component's own name, never by
its position in a list. So the same file always means the same system, and adding a broker redraws nothing else.

>>> streams = Streams(7)
>>> before = streams.uniforms("availability", ["b0", "b1"])
>>> after = streams.uniforms("availability", ["new", "b0", "b1"])
>>> bool((before == after[1:]).all())
True
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["Streams"]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


class Streams:
    """Independent random streams of one seed."""

    def __init__(self, seed: int):
        self.seed = seed

    def generator(self, purpose: str, name: str = "") -> np.random.Generator:
        """Returns a generator of its own for one component: a spawned child of the seed, its spawn key made of the
        names."""
        digest = self._digest(purpose, name)
        words = [int.from_bytes(digest[i : i + 4], "big") for i in range(0, 16, 4)]
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=tuple(words)))

    def uniforms(self, purpose: str, names: Sequence[str]) -> NDArray[np.float64]:
        """Returns one uniform number in [0, 1) for each name."""
        return _unit_interval(self._keys(purpose, names))

    def uniform_pairs(self, purpose: str, rows: Sequence[str], columns: Sequence[str]) -> NDArray[np.float64]:
        """Returns one uniform number in [0, 1) for each (row, column): the draw of a pair never depends on other
        pairs."""
        left = self._keys(purpose + "/row", rows)
        right = self._keys(purpose + "/column", columns)
        return _unit_interval(_mix(left)[:, None] ^ right[None, :])

    def choose(self, purpose: str, names: Sequence[str], options: Sequence[str]) -> NDArray[np.intp]:
        """Returns the index of one option for each name, uniformly, by highest random weight: a further option takes
        over only the names that choose it, and leaves all others where they were."""
        return np.asarray(np.argmax(self.uniform_pairs(purpose, names, options), axis=1), dtype=np.intp)

    def between(self, purpose: str, name: str, low: float, high: float) -> float:
        """Returns a number between low and high for one name; no draw where they are equal."""
        if low == high:
            return low
        return low + (high - low) * float(self.uniforms(purpose, [name])[0])

    def _digest(self, purpose: str, name: str) -> bytes:
        return hashlib.blake2b(f"{self.seed}\0{purpose}\0{name}".encode(), digest_size=16).digest()

    def _keys(self, purpose: str, names: Sequence[str]) -> NDArray[np.uint64]:
        return np.array([int.from_bytes(self._digest(purpose, name)[:8], "big") for name in names], dtype=np.uint64)


def _mix(keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Applies the finaliser of SplitMix64: spreads every bit of the key over the whole word."""
    with np.errstate(over="ignore"):
        z = keys + _GOLDEN
        z = (z ^ (z >> np.uint64(30))) * _MIX_1
        z = (z ^ (z >> np.uint64(27))) * _MIX_2
        return np.asarray(z ^ (z >> np.uint64(31)), dtype=np.uint64)


def _unit_interval(keys: NDArray[np.uint64]) -> NDArray[np.float64]:
    return np.asarray((_mix(keys) >> np.uint64(11)) * 2.0**-53, dtype=np.float64)
