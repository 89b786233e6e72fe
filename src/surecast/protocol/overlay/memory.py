"""Which events a broker has seen, where there is no disk to ask."""

from __future__ import annotations

from collections.abc import Hashable

__all__ = ["Memory"]


class Memory:
    """The last `size_max` things seen; the oldest is forgotten first.

    >>> memory = Memory(2)
    >>> [memory.is_new(x) for x in "aabca"]
    [True, False, True, True, True]
    """

    def __init__(self, size_max: int):
        self.size_max = size_max
        self._seen: dict[Hashable, None] = {}

    def is_new(self, thing: Hashable) -> bool:
        """Whether a thing is seen for the first time; from now on it is known."""
        if thing in self._seen:
            return False
        self._seen[thing] = None
        if len(self._seen) > self.size_max:
            del self._seen[next(iter(self._seen))]
        return True
