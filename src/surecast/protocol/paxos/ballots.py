"""Ballots: who may propose when. A later ballot overrules an earlier one.

A ballot is one integer: a round, the replica that owns it, and one bit. The bit tells the two steps of a ballot
apart: the *fast* step (0), in which any replica may propose to the acceptors, and the *classic* step (1), in which
only the owner proposes. A promise is given to both at once, and names the fast step.

>>> ballot = first_ballot(3, 7)
>>> round_of(ballot), owner_of(ballot), classic(ballot) > ballot, base(classic(ballot)) == ballot
(3, 7, True, True)
"""

from __future__ import annotations

from typing import Final

__all__ = ["CHOSEN", "MAX_REPLICA", "base", "classic", "first_ballot", "is_fast", "owner_of", "round_of"]

MAX_REPLICA: Final = 65_535
CHOSEN: Final = (1 << 63) - 1
"""The ballot under which a value is stored that is known to be chosen: above all others, and classic."""


def first_ballot(round_number: int, replica: int) -> int:
    """The ballot of a round and its owner, in its fast step."""
    return round_number << 17 | replica << 1


def classic(ballot: int) -> int:
    """The classic step of a ballot."""
    return ballot | 1


def base(ballot: int) -> int:
    """The fast step of a ballot, by which promises are named."""
    return ballot & ~1


def is_fast(ballot: int) -> bool:
    """Returns whether this is the fast step, in which acceptors may have voted for different values."""
    return not ballot & 1


def round_of(ballot: int) -> int:
    """The round of a ballot."""
    return ballot >> 17


def owner_of(ballot: int) -> int:
    """The replica that owns a ballot."""
    return ballot >> 1 & 0xFFFF
