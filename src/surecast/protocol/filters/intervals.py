"""Intervals by the values in them: an interval tree whose shape is fixed beforehand, so that it is never rebalanced.

The tree is the binary trie over the 64 bits of a float, in the order of the numbers (the idea of the relational
interval tree). An interval is kept at the highest node that lies between its ends: where the bits of its two ends part.
A value meets only the nodes along its own bits, at most 65. At each of them it is on one side of the node, so all
intervals there reach beyond it on the other side, and the ends on its own side, kept sorted, say which hold it.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from math import inf
from typing import Final, Generic, TypeAlias, TypeVar

from surecast.protocol.filters.constraints import Interval

__all__ = ["IntervalTable"]

T = TypeVar("T")
_End: TypeAlias = tuple[float, int, float]
"""A number, how an open end orders among equals, and the number of the item, which makes it unique."""

_SIGN: Final = 1 << 63
_ALL: Final = (1 << 64) - 1


class _Ends(Generic[T]):
    """One end of each interval of a node, sorted, with the items in the same order."""

    __slots__ = ("ends", "items")

    def __init__(self) -> None:
        self.ends: list[_End] = []
        self.items: list[T] = []

    def add(self, end: _End, item: T) -> None:
        at = bisect_left(self.ends, end)
        self.ends.insert(at, end)
        self.items.insert(at, item)

    def remove(self, end: _End) -> None:
        at = bisect_left(self.ends, end)
        del self.ends[at], self.items[at]


class IntervalTable(Generic[T]):
    """Items under intervals, found by a number: each interval is added with a serial number of its own.

    >>> table: IntervalTable[str] = IntervalTable()
    >>> table.add(Interval(1, 5), 0, "wide")
    >>> table.add(Interval(2, 3), 1, "narrow")
    >>> sorted(table.holding(2.5)), table.holding(4)
    (['narrow', 'wide'], ['wide'])
    >>> table.remove(Interval(1, 5), 0)
    >>> table.holding(4), len(table)
    ([], 1)
    """

    def __init__(self) -> None:
        self._levels: dict[int, dict[int, tuple[_Ends[T], _Ends[T]]]] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, interval: Interval, serial: int, item: T) -> None:
        """Takes in an item; logarithmic, but for the shift of a list."""
        level, cell = _node(interval)
        nodes = self._levels.setdefault(level, {})
        node = nodes.get(cell)
        if node is None:
            node = nodes[cell] = (_Ends(), _Ends())
        node[0].add(_low_end(interval, serial), item)
        node[1].add(_high_end(interval, serial), item)
        self._size += 1

    def remove(self, interval: Interval, serial: int) -> None:
        """Takes out what was added with this interval and serial number."""
        level, cell = _node(interval)
        nodes = self._levels[level]
        lows, highs = nodes[cell]
        lows.remove(_low_end(interval, serial))
        highs.remove(_high_end(interval, serial))
        self._size -= 1
        if not lows.ends:
            del nodes[cell]
            if not nodes:
                del self._levels[level]

    def holding(self, value: float) -> list[T]:
        """The items whose interval holds a number."""
        found: list[T] = []
        self.find(value, found)
        return found

    def find(self, value: float, found: list[T]) -> None:
        """Adds the items whose interval holds a number to a list."""
        key = _key(value)
        for level, nodes in self._levels.items():
            node = nodes.get(key >> level)
            if node is None:
                continue
            lows, highs = node
            if level == 0:
                # Both ends round to the value's own float: whole numbers beyond 2**53 may still differ from it.
                beyond = {end[2] for end in lows.ends[bisect_right(lows.ends, (value, 0, inf)) :]}
                start = bisect_left(highs.ends, (value, 0, -inf))
                reaching = zip(highs.ends[start:], highs.items[start:], strict=True)
                found += [item for end, item in reaching if end[2] not in beyond]
            elif key >> (level - 1) & 1:
                found += highs.items[bisect_left(highs.ends, (value, 0, -inf)) :]
            else:
                found += lows.items[: bisect_right(lows.ends, (value, 0, inf))]


def _low_end(interval: Interval, serial: int) -> _End:
    return (interval.low, 1 if interval.low_open else 0, serial)


def _high_end(interval: Interval, serial: int) -> _End:
    return (interval.high, -1 if interval.high_open else 0, serial)


def _key(value: float) -> int:
    """The bits of a number, so that keys are ordered as the numbers are. Rounding to a float keeps the order."""
    bits: int = struct.unpack("<Q", struct.pack("<d", float(value) + 0.0))[0]  # + 0.0 makes one zero of the two
    return bits ^ _ALL if bits & _SIGN else bits | _SIGN


def _node(interval: Interval) -> tuple[int, int]:
    """Returns the bits that the keys of the two ends have in common, after the number of bits below these."""
    low, high = _key(interval.low), _key(interval.high)
    level = (low ^ high).bit_length()
    return level, low >> level
