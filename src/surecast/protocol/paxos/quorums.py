"""Quorums: how many acceptors decide, and which value a leader must propose after it asked one.

Two conditions carry everything (Fast Paxos, section 3.3.1): any two classic quorums meet, and any two fast quorums
and a classic quorum have an acceptor in common. With sizes: 2 classic > n and 2 fast + classic > 2 n.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256

from surecast.protocol.paxos.ballots import is_fast

__all__ = ["Vote", "can_still_win", "classic_quorum", "digest_of", "fast_quorum", "pick_value"]

Vote = tuple[int, bytes]
"""The ballot of a vote, and the value it was cast for."""


def classic_quorum(replicas: int) -> int:
    """A majority.

    >>> [classic_quorum(n) for n in (1, 3, 5, 7)]
    [1, 2, 3, 4]
    """
    return replicas // 2 + 1


def fast_quorum(replicas: int) -> int:
    """The smallest fast quorum beside majorities: three quarters, rounded up.

    >>> [fast_quorum(n) for n in (1, 3, 5, 7)]
    [1, 3, 4, 6]
    """
    return -(-3 * replicas // 4)


def digest_of(value: bytes) -> bytes:
    """Returns the 16 bytes that name a value in a vote."""
    return sha256(value).digest()[:16]


def can_still_win(votes: Iterable[bytes], replicas: int) -> bool:
    """Returns whether some value may yet get a fast quorum, given the digests voted for so far.

    >>> can_still_win([b"x", b"x"], 3), can_still_win([b"x", b"y"], 3), can_still_win([b"x", b"x", b"y"], 5)
    (True, False, True)
    """
    counts: dict[bytes, int] = {}
    total = 0
    for vote in votes:
        counts[vote] = counts.get(vote, 0) + 1
        total += 1
    return max(counts.values(), default=0) + replicas - total >= fast_quorum(replicas)


def pick_value(votes: Mapping[int, Vote | None], replicas: int) -> bytes | None:
    """The value to propose after a quorum told its last votes; None where every value is safe.

    `votes` has an entry for every acceptor that answered. The rule is that of Fast Paxos, Figure 2: let k be the
    highest ballot voted in. Of one value voted for in k, that one. Of several (k was fast), the one for which O4
    holds: all acceptors that answered and belong to some fast quorum voted for it. Where O4 holds for none, no value
    was or will be chosen in k, and any may be proposed; the one with most votes is, so that it need not come again.

    >>> pick_value({1: None, 2: (4, b"a"), 3: (2, b"b")}, 5)
    b'a'
    >>> pick_value({1: (4, b"a"), 2: (4, b"b"), 3: (4, b"b"), 4: (4, b"b")}, 5)
    b'b'
    """
    cast = [vote for vote in votes.values() if vote is not None]
    if not cast:
        return None
    highest = max(ballot for ballot, _ in cast)
    counts: dict[bytes, int] = {}
    for ballot, value in cast:
        if ballot == highest:
            counts[value] = counts.get(value, 0) + 1
    if len(counts) == 1 or not is_fast(highest):
        return next(iter(counts))
    silent = replicas - len(votes)
    for value, count in counts.items():
        if count + silent >= fast_quorum(replicas):  # O4(value): a fast quorum of its voters and the silent exists
            return value
    return max(counts, key=lambda value: (counts[value], digest_of(value)))
