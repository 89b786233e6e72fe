"""Counters that stay sorted while they go up and down by one.

Items stand in a list by falling count. Items of one count are neighbours, a *block*. One that goes up changes places
with the first of its block and is then the last of the block above; one that goes down likewise. Both cost a few steps.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["Ranking"]


class Ranking:
    """Counts of the items 0, 1, 2, ...; an item without a count has 0.

    >>> ranking = Ranking([2, 5, 1])
    >>> ranking.rise(2); ranking.rise(2); ranking.fall(1)
    >>> ranking.first(2), ranking.count(2)
    ([(1, 4), (2, 3)], 3)
    """

    def __init__(self, counts: Iterable[int] = ()):
        held = {item: count for item, count in enumerate(counts) if count}
        self._counts = held
        self._order = sorted(held, key=lambda item: -held[item])
        self._position = {item: position for position, item in enumerate(self._order)}
        self._starts: dict[int, int] = {}
        self._sizes: dict[int, int] = {}
        for position, item in enumerate(self._order):
            self._starts.setdefault(held[item], position)
            self._sizes[held[item]] = self._sizes.get(held[item], 0) + 1

    def count(self, item: int) -> int:
        """Returns the count of an item."""
        return self._counts.get(item, 0)

    def first(self, n: int) -> list[tuple[int, int]]:
        """Returns at least the `n` items with the largest counts above 0, with all that are equal to the last of
        them."""
        if n <= 0 or not self._order:
            return []
        last = self._counts[self._order[min(n, len(self._order)) - 1]]
        end = self._starts[last] + self._sizes[last]
        return [(item, self._counts[item]) for item in self._order[:end]]

    def rise(self, item: int) -> None:
        """Raises the count of an item by one."""
        count = self._counts.get(item, 0)
        if count == 0:
            # a block of items without a count, of this one alone, at the end
            self._position[item] = len(self._order)
            self._order.append(item)
            target = len(self._order) - 1
        else:
            target = self._starts[count]
            self._swap(item, target)
            self._starts[count] += 1
            self._shrink(count)
        self._counts[item] = count + 1
        self._starts.setdefault(count + 1, target)
        self._sizes[count + 1] = self._sizes.get(count + 1, 0) + 1

    def fall(self, item: int) -> None:
        """Lowers the count of an item by one; the count must be above 0."""
        count = self._counts[item]
        target = self._starts[count] + self._sizes[count] - 1
        self._swap(item, target)
        self._shrink(count)
        if count == 1:
            # the last of the last block
            self._order.pop()
            del self._counts[item], self._position[item]
            return
        self._counts[item] = count - 1
        self._starts[count - 1] = target
        self._sizes[count - 1] = self._sizes.get(count - 1, 0) + 1

    def _swap(self, item: int, target: int) -> None:
        place, other = self._position[item], self._order[target]
        self._order[place], self._order[target] = other, item
        self._position[other], self._position[item] = place, target

    def _shrink(self, count: int) -> None:
        self._sizes[count] -= 1
        if not self._sizes[count]:
            del self._sizes[count], self._starts[count]
