"""Constraints on one attribute, and their exact algebra.

A constraint stands for a non-empty set of values: an interval of the real numbers, one text, all texts with a prefix,
or every value there is. Two constraints are equal exactly if their sets are. Numbers count as real numbers: an open
interval between two neighbouring floats is not empty.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isinf
from typing import TypeAlias

from surecast.protocol.filters.event import Value, finite, number

__all__ = [
    "Constraint",
    "Equals",
    "Exists",
    "Interval",
    "StartsWith",
    "above",
    "at_least",
    "at_most",
    "below",
    "between",
    "constraint_covers",
    "constraint_hull",
    "constraint_intersection",
    "constraint_union",
    "equals",
]


@dataclass(frozen=True, slots=True)
class Exists:
    """The attribute is there, whatever it holds."""

    def holds(self, value: Value) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Interval:
    """A number between two ends; an infinite end is open. `Interval()` is any number.

    >>> Interval(1, 2, high_open=True).holds(1), Interval(1, 2, high_open=True).holds(2), Interval().holds("Foo")
    (True, False, False)
    """

    low: float = -inf
    high: float = inf
    low_open: bool = False
    high_open: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "low", number(self.low))
        object.__setattr__(self, "high", number(self.high))
        object.__setattr__(self, "low_open", bool(self.low_open) or isinf(self.low))
        object.__setattr__(self, "high_open", bool(self.high_open) or isinf(self.high))

    @property
    def is_empty(self) -> bool:
        """True if no number lies in it."""
        return self.low > self.high or (self.low == self.high and (self.low_open or self.high_open))

    @property
    def is_point(self) -> bool:
        """True if exactly one number lies in it."""
        return self.low == self.high and not self.low_open and not self.high_open

    @property
    def low_key(self) -> tuple[float, bool]:
        """Orders low ends: the smaller, the more values."""
        return (self.low, self.low_open)

    @property
    def high_key(self) -> tuple[float, bool]:
        """Orders high ends: the larger, the more values."""
        return (self.high, not self.high_open)

    def holds(self, value: Value) -> bool:
        if isinstance(value, str):
            return False
        above_low = self.low < value or (self.low == value and not self.low_open)
        return above_low and (value < self.high or (value == self.high and not self.high_open))


@dataclass(frozen=True, slots=True)
class Equals:
    """Exactly this text. Equality with a number is an `Interval` of one point."""

    text: str

    def holds(self, value: Value) -> bool:
        return value == self.text


@dataclass(frozen=True, slots=True)
class StartsWith:
    """Any text with this prefix. `StartsWith("")` is any text."""

    prefix: str

    def holds(self, value: Value) -> bool:
        return isinstance(value, str) and value.startswith(self.prefix)


Constraint: TypeAlias = Exists | Interval | Equals | StartsWith


def equals(value: Value) -> Constraint:
    """Exactly this value.

    >>> equals(3), equals("Foo")
    (Interval(low=3, high=3, low_open=False, high_open=False), Equals(text='Foo'))
    """
    return Equals(value) if isinstance(value, str) else between(value, value)


def above(value: float) -> Interval:
    """A number greater than this one.

    >>> above(3).holds(3)
    False
    """
    return Interval(low=finite(value), low_open=True)


def at_least(value: float) -> Interval:
    """A number no smaller than this one.

    >>> at_least(3).holds(3)
    True
    """
    return Interval(low=finite(value))


def below(value: float) -> Interval:
    """A number smaller than this one.

    >>> below(3).holds(3)
    False
    """
    return Interval(high=finite(value), high_open=True)


def at_most(value: float) -> Interval:
    """A number no greater than this one.

    >>> at_most(3).holds(3)
    True
    """
    return Interval(high=finite(value))


def between(low: float, high: float) -> Interval:
    """A number from `low` to `high`, both included.

    >>> between(1, 2).holds(2)
    True
    """
    return Interval(finite(low), finite(high))


def constraint_covers(wide: Constraint, narrow: Constraint) -> bool:
    """Returns whether every value of `narrow` is one of `wide`.

    >>> constraint_covers(StartsWith("F"), Equals("Foo")), constraint_covers(at_least(3), above(2))
    (True, False)
    """
    if isinstance(wide, Exists):
        return True
    if isinstance(wide, Interval):
        return (
            isinstance(narrow, Interval)
            and (wide.low < narrow.low or (wide.low == narrow.low and wide.low_open <= narrow.low_open))
            and (narrow.high < wide.high or (narrow.high == wide.high and wide.high_open <= narrow.high_open))
        )
    if isinstance(wide, Equals):
        return wide == narrow
    text = _stem(narrow)
    return text is not None and text.startswith(wide.prefix)


def constraint_intersection(a: Constraint, b: Constraint) -> Constraint | None:
    """The values of both; None if there are none.

    >>> constraint_intersection(at_least(3), below(3)) is None
    True
    """
    if isinstance(a, Interval) and isinstance(b, Interval):
        low, low_open = max(a.low_key, b.low_key)
        high, high_closed = min(a.high_key, b.high_key)
        both = Interval(low, high, low_open, not high_closed)
        return None if both.is_empty else both
    if constraint_covers(a, b):
        return b
    return a if constraint_covers(b, a) else None  # the sets of texts are nested or disjoint


def constraint_union(a: Constraint, b: Constraint) -> Constraint | None:
    """The values of either, where that is a constraint again; else None.

    >>> constraint_union(below(3), at_least(3)) == Interval()
    True
    >>> constraint_union(below(3), above(3)) is None
    True
    >>> constraint_union(Interval(), StartsWith(""))
    Exists()
    """
    if constraint_covers(a, b):
        return a
    if constraint_covers(b, a):
        return b
    if isinstance(a, Interval) and isinstance(b, Interval):
        left, right = (a, b) if a.low_key <= b.low_key else (b, a)
        gap = right.low > left.high or (right.low == left.high and right.low_open and left.high_open)
        return None if gap else constraint_hull(a, b)
    if {a, b} == {Interval(), StartsWith("")}:
        return Exists()  # every value is a number or text
    return None


def constraint_hull(a: Constraint, b: Constraint) -> Constraint:
    """The smallest constraint that covers both.

    >>> constraint_hull(Equals("Foo"), Equals("Fob")), constraint_hull(Equals("Foo"), above(3))
    (StartsWith(prefix='Fo'), Exists())
    """
    if isinstance(a, Interval) and isinstance(b, Interval):
        low, low_open = min(a.low_key, b.low_key)
        high, high_closed = max(a.high_key, b.high_key)
        return Interval(low, high, low_open, not high_closed)
    if a == b:
        return a
    stem_a, stem_b = _stem(a), _stem(b)
    if stem_a is None or stem_b is None:
        return Exists()
    same = 0
    while same < min(len(stem_a), len(stem_b)) and stem_a[same] == stem_b[same]:
        same += 1
    return StartsWith(stem_a[:same])


def _stem(constraint: Constraint) -> str | None:
    """Returns the prefix of all texts that meet a constraint; None if it is not one on text."""
    if isinstance(constraint, Equals):
        return constraint.text
    return constraint.prefix if isinstance(constraint, StartsWith) else None
