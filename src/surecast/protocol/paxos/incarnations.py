"""Incarnations: what a replica says of itself at a start, what others remember of it, and whether the two agree."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from surecast.errors import ConfigurationError

__all__ = ["STARTS_KEPT", "HistoryError", "Incarnation", "Objection", "Reason", "Seen", "objection_to"]

STARTS_KEPT: Final = 32
"""The number of its last start numbers that a replica remembers and tells."""


class HistoryError(ConfigurationError):
    """This replica must not go on: its data are not what the others know it to have stored."""


@dataclass(frozen=True, slots=True)
class Incarnation:
    """A start of a replica, and what its store holds then.

    `number` counts its starts, and `starts` are the numbers drawn at the last of them, the newest first.
    `promised` is the highest ballot in its store, `voted` the last instance that it voted on or applied.
    """

    number: int
    starts: tuple[int, ...]
    promised: int
    voted: int

    @property
    def start(self) -> int:
        """The number drawn at this start."""
        return self.starts[0]


@dataclass(slots=True)
class Seen:
    """The memory of another replica: its last start, and the highest that it said it has stored."""

    incarnation: int = 0
    start: int = 0
    promised: int = 0
    voted: int = 0


class Reason(IntEnum):
    """The reason for which a replica is refused."""

    EARLIER_START = 1
    OTHER_START = 2
    OTHER_PAST = 3
    LOST_PROMISE = 4
    LOST_VOTE = 5
    OTHER_LOG = 6


_WORDS: Final = {
    Reason.EARLIER_START: "this is its start {told}, and its start {seen} was seen before",
    Reason.OTHER_START: "its start {told} was seen before, and was another one",
    Reason.OTHER_PAST: "its start {seen} was another one than the start {seen} that was seen",
    Reason.LOST_PROMISE: "it has promised ballot {told}, and its promise of {seen} was seen",
    Reason.LOST_VOTE: "its votes end at instance {told}, and its vote on {seen} was seen",
    Reason.OTHER_LOG: "its log up to instance {told} is another one",
}


class Objection(NamedTuple):
    """The reason for a refusal, with the number that was remembered and the one that was told."""

    reason: Reason
    seen: int
    told: int

    def __str__(self) -> str:
        return _WORDS[self.reason].format(seen=self.seen, told=self.told)


def objection_to(told: Incarnation, seen: Seen) -> Objection | None:
    r"""Returns why a replica that tells this must not take part, or None where nothing speaks against it.

    >>> seen = Seen(incarnation=4, start=77, promised=6, voted=50)
    >>> print(objection_to(Incarnation(5, (78, 77), 6, 50), seen))  # an ordinary restart
    None
    >>> print(objection_to(Incarnation(3, (79,), 6, 50), seen))
    this is its start 3, and its start 4 was seen before
    >>> print(objection_to(Incarnation(4, (79, 70), 6, 50), seen))
    its start 4 was seen before, and was another one
    >>> print(objection_to(Incarnation(5, (79, 71), 6, 50), seen))
    its start 4 was another one than the start 4 that was seen
    >>> print(objection_to(Incarnation(5, (79, 77), 6, 40), seen))
    its votes end at instance 40, and its vote on 50 was seen
    """
    if told.number < seen.incarnation:
        return Objection(Reason.EARLIER_START, seen.incarnation, told.number)
    behind = told.number - seen.incarnation
    if behind == 0:
        same = told.start == seen.start
        return None if same else Objection(Reason.OTHER_START, seen.incarnation, told.number)
    if behind < len(told.starts) and told.starts[behind] != seen.start:
        return Objection(Reason.OTHER_PAST, seen.incarnation, told.number)
    if told.promised < seen.promised:
        return Objection(Reason.LOST_PROMISE, seen.promised, told.promised)
    if told.voted < seen.voted:
        return Objection(Reason.LOST_VOTE, seen.voted, told.voted)
    return None
