"""A multiset of joint filters, or of versions of retained messages, with hashes of its parts, so that two brokers find
where theirs differ.

The filters are dealt out to buckets by a hash of each. Buckets are the leaves of a tree of sums of hashes, in which
every node is the sum of those below it. Two multisets with equal sums at a node have the same filters below it, but
for an accident of one in 2^64. A comparison descends only where sums differ, so that it costs in proportion to the
difference.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

__all__ = ["DEPTH", "FANOUT", "FilterHashes", "Hashed", "Sum"]

FANOUT: Final = 16
DEPTH: Final = 3

Sum: TypeAlias = tuple[int, int, int]
"""Level, place in the level, and the sum there."""

_MASK: Final = (1 << 64) - 1


class Hashed(Protocol):
    """An entry that is compared: by two numbers, of 16 and 64 bits, and in an order that is the same at all brokers."""

    @property
    def digest(self) -> tuple[int, int]:
        """The number that says the bucket, and the one that is summed."""

    @property
    def order(self) -> Any:
        """Sorts alike everywhere."""


H = TypeVar("H", bound=Hashed)


class FilterHashes(Generic[H]):
    """The filters that one broker announces to another, at either end.

    >>> from surecast.protocol.demand import JointFilter
    >>> ours, theirs = FilterHashes(), FilterHashes()
    >>> for hashes in (ours, theirs):
    ...     hashes.change(added=[JointFilter("a"), JointFilter("b")])
    >>> ours.root == theirs.root
    True
    >>> ours.change(added=[JointFilter("c")])
    >>> places = theirs.differing([ours.root])
    >>> for _ in range(DEPTH):
    ...     places = theirs.differing(ours.below(places))
    >>> [str(filter) for _, bucket in places for filter in ours.filters(bucket)]
    ['c at QoS 0']
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Takes all filters out."""
        self._sums = [[0] * FANOUT**level for level in range(DEPTH + 1)]
        self._counts: dict[H, int] = {}
        self._buckets: dict[int, dict[H, None]] = {}
        self.size = 0
        """The number of filters, each as often as it is there."""
        self._unsummed: dict[H, int] = {}
        """The changes since sums and buckets were last needed: a change that is taken back costs no hash."""

    @property
    def root(self) -> Sum:
        """The sum over all filters."""
        self._sum_up()
        return (0, 0, self._sums[0][0])

    def change(self, removed: Iterable[H] = (), added: Iterable[H] = ()) -> None:
        """Takes filters in and out; one that goes must be there."""
        for joint in added:
            self.shift(joint, 1)
        for joint in removed:
            self.shift(joint, -1)

    def count(self, joint: H) -> int:
        """Returns how often a filter is there."""
        return self._counts.get(joint, 0)

    def counts(self) -> tuple[tuple[H, int], ...]:
        """Returns all filters in the order in which they came, each with how often it is there."""
        return tuple(self._counts.items())

    def differing(self, sums: Iterable[Sum]) -> list[tuple[int, int]]:
        """Returns the places, as level and number, whose sums here are others."""
        self._sum_up()
        return [(level, place) for level, place, total in sums if self._sums[level][place] != total]

    def below(self, places: Iterable[tuple[int, int]]) -> list[Sum]:
        """Returns the sums of the level below some places; of a bucket, which has none below, its own."""
        self._sum_up()
        sums: list[Sum] = []
        for level, place in places:
            if level == DEPTH:
                sums.append((level, place, self._sums[level][place]))
            else:
                first = place * FANOUT
                sums += [(level + 1, first + n, self._sums[level + 1][first + n]) for n in range(FANOUT)]
        return sums

    def filters(self, bucket: int | None = None) -> list[H]:
        """Returns all filters, or those of a bucket, sorted; repeated where they are there more than once."""
        self._sum_up()
        some: Iterable[H] = self._counts if bucket is None else self._buckets.get(bucket, ())
        return [joint for joint in sorted(some, key=lambda one: one.order) for _ in range(self._counts[joint])]

    def shift(self, joint: H, by: int) -> int:
        """Takes a filter in so many times, or out, with a negative number; returns how often it is there now."""
        number = self._counts.get(joint, 0) + by
        if number > 0:
            self._counts[joint] = number
        elif number < 0:
            raise KeyError(f"{joint} is not there")
        elif by:
            del self._counts[joint]
        self.size += by
        unsummed = self._unsummed.get(joint, 0) + by
        if unsummed:
            self._unsummed[joint] = unsummed
        else:
            self._unsummed.pop(joint, None)
        return number

    def _sum_up(self) -> None:
        for joint, by in self._unsummed.items():
            bucket, value = joint.digest
            place = bucket % FANOUT**DEPTH
            if self._counts.get(joint):
                self._buckets.setdefault(place, {})[joint] = None
            else:
                members = self._buckets[place]
                del members[joint]
                if not members:
                    del self._buckets[place]
            for level in range(DEPTH, -1, -1):
                sums = self._sums[level]
                sums[place] = (sums[place] + by * value) & _MASK
                place //= FANOUT
        self._unsummed.clear()
