"""Random choices from a seed and a count of choices made: the same seed always chooses the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

__all__ = ["Draws", "mixed"]

T = TypeVar("T")

_MASK: Final = (1 << 64) - 1
_GOLDEN: Final = 0x9E3779B97F4A7C15


def mixed(word: int) -> int:
    """The finaliser of SplitMix64: spreads every bit of a word over the whole of it.

    >>> hex(mixed(1))
    '0x5692161d100b05e5'
    """
    word &= _MASK
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _MASK
    return word ^ (word >> 31)


class Draws:
    """A stream of random words (SplitMix64). Streams of different nodes under one seed are unrelated.

    >>> draws = Draws(7)
    >>> sorted(draws.sample(range(5), 5)), draws.below(1)
    ([0, 1, 2, 3, 4], 0)
    """

    __slots__ = ("_state",)

    def __init__(self, seed: int, node: int = 0):
        self._state = mixed(mixed(seed) ^ (node * _GOLDEN)) if node else seed & _MASK

    def word(self) -> int:
        """A number below 2^64."""
        self._state = (self._state + _GOLDEN) & _MASK
        return mixed(self._state)

    def unit(self) -> float:
        """A number from 0 up to, and without, 1."""
        return (self.word() >> 11) * 2.0**-53

    def below(self, limit: int) -> int:
        """A whole number from 0 up to, and without, a limit; the bias is below limit / 2^64."""
        return self.word() % limit

    def sample(self, things: Sequence[T], count: int) -> list[T]:
        """Some of the things, none twice; all of them if there are no more.

        >>> Draws(1).sample("abc", 2) == Draws(1).sample("abc", 2)
        True
        """
        size = len(things)
        count = min(count, size)
        moved: dict[int, int] = {}  # a shuffle of which only the changed places are written down
        chosen: list[T] = []
        for i in range(count):
            j = i + self.below(size - i)
            chosen.append(things[moved.get(j, j)])
            moved[j] = moved.get(i, i)
        return chosen
