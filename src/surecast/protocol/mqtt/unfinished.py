"""The memory that packets take before they are whole: one bound for all connections together.

A client may say that its packet has megabytes, send all but the last byte, and wait. Each decoder tells a shared
`Unfinished` how much it holds. Where that is too much for all of them, the packet that was begun first has to go: an
honest one would have been whole by then.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, Generic, Protocol, TypeVar

__all__ = ["COUNTED_BYTES_MIN", "PartialPacketHolder", "Unfinished"]

K = TypeVar("K", bound=Hashable)


class PartialPacketHolder(Hashable, Protocol):
    """A holder of the beginning of a packet."""

    def drop_held(self) -> None:
        """Forgets it; nothing can be read after that."""


COUNTED_BYTES_MIN: Final = 4096
"""The beginning of a packet is not counted below this size: most are the end of a read, and whole with the next one."""


class Unfinished(Generic[K]):
    """Counts the bytes of unfinished packets by their owner. `give_up` is told whose packet has to go.

    >>> gone = []
    >>> unfinished = Unfinished(10_000, gone.append)
    >>> unfinished.hold("ann", 6_000)
    >>> unfinished.hold("bob", 5_000)
    >>> gone, unfinished.bytes
    (['ann'], 5000)
    """

    def __init__(self, bytes_max: int, give_up: Callable[[K], None]):
        self.bytes_max = bytes_max
        self.bytes = 0
        self._give_up = give_up
        self._sizes: dict[K, int] = {}  # in the order in which the packets began

    def hold(self, owner: K, size: int) -> None:
        """So much of the owner's packet is there."""
        self.bytes += size - self._sizes.get(owner, 0)
        self._sizes[owner] = size
        while self.bytes > self.bytes_max and self._sizes:
            oldest = next(iter(self._sizes))
            self.release(oldest)
            self._give_up(oldest)

    def release(self, owner: K) -> None:
        """The owner's packet is whole, or the owner is gone."""
        self.bytes -= self._sizes.pop(owner, 0)
