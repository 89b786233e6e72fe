"""The check that one subscriber gets each message of each stream once and in order."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["OrderCheck"]

_MISSING_MAX = 100_000


class OrderCheck:
    """Counts of the numbers of each stream: distinct ones, ones that came late, and ones that came again.

    >>> check = OrderCheck()
    >>> check.take([0, 0, 0, 0, 0], [0, 1, 3, 2, 3])
    >>> check.distinct, check.disordered, check.duplicates
    (4, 1, 1)
    """

    __slots__ = ("_following", "_missing", "disordered", "distinct", "duplicates", "unclear")

    def __init__(self) -> None:
        self.distinct = self.disordered = self.duplicates = self.unclear = 0
        self._following: dict[int, int] = {}
        self._missing: set[tuple[int, int]] = set()

    def take(self, streams: Sequence[int], numbers: Sequence[int]) -> None:
        """Takes messages in the order in which they came."""
        following, count = self._following, len(numbers)
        stream = streams[0]
        first = following.get(stream, 0)
        if (
            numbers[0] == first
            and streams.count(stream) == count
            and (count == 1 or all(map(int.__eq__, numbers, range(first, first + count))))
        ):
            following[stream] = first + count
            self.distinct += count
            return
        for stream, number in zip(streams, numbers, strict=True):
            due = following.get(stream, 0)
            if number == due:
                following[stream] = number + 1
                self.distinct += 1
            else:
                self._take_odd(stream, number, due)

    def _take_odd(self, stream: int, number: int, due: int) -> None:
        """Takes a message that is not the next one of its stream."""
        if number > due:
            self._following[stream] = number + 1
            self.distinct += 1
            self._missing.update((stream, each) for each in range(due, min(number, due + _MISSING_MAX)))
            if len(self._missing) > _MISSING_MAX:
                # Beyond this, what comes late and what comes again can no longer be told apart.
                self.unclear += len(self._missing)
                self._missing.clear()
        elif (stream, number) in self._missing:
            self._missing.remove((stream, number))
            self.distinct += 1
            self.disordered += 1
        else:
            self.duplicates += 1
