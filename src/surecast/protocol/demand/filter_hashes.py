"""A multiset of joint filters with hashes of its parts, so that two brokers find where theirs differ.

The filters are dealt out to buckets by a hash of each. Buckets are the leaves of a tree of sums of hashes, in which
every node is the sum of those below it. Two multisets with equal sums at a node have the same filters below it, but
for an accident of one in 2^64. A comparison descends only where sums differ, so that it costs in proportion to the
difference.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final, TypeAlias

from surecast.protocol.demand.joint_filter import JointFilter

__all__ = ["DEPTH", "FANOUT", "FilterHashes", "Sum"]

FANOUT: Final = 16
DEPTH: Final = 3

Sum: TypeAlias = tuple[int, int, int]
"""Level, place in the level, and the sum there."""

_MASK: Final = (1 << 64) - 1


class FilterHashes:
    """The filters that one broker announces to another, at either end.

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
        self._sums = [[0] * FANOUT**level for level in range(DEPTH + 1)]
        self._buckets: dict[int, dict[JointFilter, int]] = {}
        self._size = 0

    @property
    def root(self) -> Sum:
        """The sum over all filters."""
        return (0, 0, self._sums[0][0])

    def change(self, removed: Iterable[JointFilter] = (), added: Iterable[JointFilter] = ()) -> None:
        """Takes filters in and out; one that goes must be there."""
        for joint in added:
            self.shift(joint, 1)
        for joint in removed:
            self.shift(joint, -1)

    def count(self, joint: JointFilter) -> int:
        """Returns how often a filter is there."""
        return self._buckets.get(_hash(joint)[0], {}).get(joint, 0)

    def differing(self, sums: Iterable[Sum]) -> list[tuple[int, int]]:
        """Returns the places, as level and number, whose sums here are others."""
        return [(level, place) for level, place, total in sums if self._sums[level][place] != total]

    def below(self, places: Iterable[tuple[int, int]]) -> list[Sum]:
        """Returns the sums of the level below some places; of a bucket, which has none below, its own."""
        sums: list[Sum] = []
        for level, place in places:
            if level == DEPTH:
                sums.append((level, place, self._sums[level][place]))
            else:
                first = place * FANOUT
                sums += [(level + 1, first + n, self._sums[level + 1][first + n]) for n in range(FANOUT)]
        return sums

    def filters(self, bucket: int | None = None) -> list[JointFilter]:
        """Returns all filters, or those of a bucket, sorted; repeated where they are there more than once."""
        if bucket is None:
            counts = {joint: number for own in self._buckets.values() for joint, number in own.items()}
        else:
            counts = self._buckets.get(bucket, {})
        return [joint for joint in sorted(counts, key=lambda one: one.order) for _ in range(counts[joint])]

    def __len__(self) -> int:
        return self._size

    def shift(self, joint: JointFilter, by: int) -> None:
        """Takes a filter in so many times, or out, with a negative number."""
        if not by:
            return
        bucket, value = _hash(joint)
        counts = self._buckets.setdefault(bucket, {})
        number = counts.get(joint, 0) + by
        if number < 0:
            raise KeyError(f"{joint} is not there")
        self._size += by
        if number:
            counts[joint] = number
        else:
            del counts[joint]
            if not counts:
                del self._buckets[bucket]
        place = bucket
        for level in range(DEPTH, -1, -1):
            sums = self._sums[level]
            sums[place] = (sums[place] + by * value) & _MASK
            place //= FANOUT


def _hash(joint: JointFilter) -> tuple[int, int]:
    """The bucket of a filter, and what it adds to the sums."""
    topic, qos, content = joint.order
    digest = blake2b(f"{topic}\0{qos}\0{content}".encode("utf-8", "surrogatepass"), digest_size=10).digest()
    return int.from_bytes(digest[:2], "big") % FANOUT**DEPTH, int.from_bytes(digest[2:], "big")
