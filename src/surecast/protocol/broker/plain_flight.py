"""Messages in flight of which only the size is kept: those of QoS 1 to sessions that end with their connection.

They are never sent again, so nothing else is needed of them. Where a client acknowledges them in order, as most do,
many cost one comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from surecast.protocol.broker.message import Delivery, Message

__all__ = ["PlainFlight", "hollow_delivery"]

_TRIM_AT: Final = 1_024


class PlainFlight:
    """The sizes of messages whose packet identifiers follow each other, in the order in which they were sent.

    >>> flight = PlainFlight()
    >>> flight.extend(7, [10, 20, 30])
    >>> flight.acknowledge(range(7, 9)), len(flight), flight.first
    (30, 1, 9)
    """

    __slots__ = ("_done", "_sizes", "after", "first")

    def __init__(self) -> None:
        self.first = self.after = 1
        """The identifier of the first, and that after the last."""
        self._sizes: list[int] = []
        self._done = 0

    def __len__(self) -> int:
        return self.after - self.first

    def extend(self, identifier: int, sizes: Sequence[int]) -> None:
        """Takes messages in; where there are others, `identifier` must be the one after theirs."""
        if self.first == self.after:
            self._sizes.clear()
            self._done = 0
            self.first = identifier
        self._sizes += sizes
        self.after = identifier + len(sizes)

    def acknowledge(self, identifiers: Sequence[int]) -> int:
        """Takes the first out, where these are their identifiers, one or a range; returns their size, else 0.

        No message has the size 0, since that of its topic is counted.
        """
        count, first, done = len(identifiers), self.first, self._done
        if identifiers[0] != first or count > self.after - first:
            return 0
        if count == 1:
            return self.take_first()
        if not isinstance(identifiers, range):
            return 0
        size = sum(self._sizes[done : done + count])
        self.first = first + count
        self._done = done + count
        if self._done > _TRIM_AT:
            self._trim()
        return size

    def take_first(self) -> int:
        """Takes the first out, which there must be; returns its size."""
        done = self._done
        self.first += 1
        self._done = done + 1
        size = self._sizes[done]
        if done > _TRIM_AT:
            self._trim()
        return size

    def _trim(self) -> None:
        """Forgets the sizes of those that are out once most are."""
        if 2 * self._done > len(self._sizes):
            del self._sizes[: self._done]
            self._done = 0

    def take(self) -> dict[int, Delivery]:
        """Takes all out, as entries of a queue."""
        entries = {
            identifier: hollow_delivery(size) for identifier, size in enumerate(self._sizes[self._done :], self.first)
        }
        self._sizes.clear()
        self._done = 0
        self.first = self.after
        return entries


@lru_cache(maxsize=1_000)
def hollow_delivery(size: int) -> Delivery:
    """Returns a queue entry that says no more than the size of a message; equal ones are one object."""
    entry = Delivery(Message(0, "", b"", b""), 1, False, (), 0)
    entry.message.size = size
    return entry
