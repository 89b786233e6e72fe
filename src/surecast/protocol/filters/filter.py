"""Filters: a notification class and a conjunction of constraints on attributes, with their exact algebra.

A filter stands for the set of events it matches. It is kept in a normal form, so that two filters are equal exactly if
they match the same events; `covers`, `intersects` and `merge` decide on these sets, not on how they were written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final

from surecast.protocol.filters.constraints import (
    Constraint,
    Equals,
    Exists,
    Interval,
    constraint_covers,
    constraint_hull,
    constraint_intersection,
    constraint_union,
)
from surecast.protocol.filters.event import Event

__all__ = ["KEYWORDS", "NAME", "NOTHING", "Filter", "hull", "merge"]

KEYWORDS: Final = frozenset({"and", "in", "startswith", "prefix", "exists", "true", "false", "inf"})
"""Names that must stand in backquotes where they are meant as names."""

NAME: Final = r"[A-Za-z_\u0080-\U0010ffff][A-Za-z0-9_.\-\u0080-\U0010ffff]*"
"""A name that needs no backquotes, as a regular expression. What Unicode calls a letter differs between versions of
Python, so every character beyond ASCII is one here."""


@dataclass(frozen=True, slots=True, init=False)
class Filter:
    """Matches the events of a class (of any class, if it is None) that meet a constraint on each attribute named.

    Several constraints on one attribute are intersected. A filter that no event can match is the one `NOTHING`.

    >>> from surecast.protocol.filters import above, at_most, equals
    >>> cheap = Filter("Stock", [("price", above(35)), ("price", at_most(40)), ("name", equals("Foo"))])
    >>> print(cheap)
    Stock: name = "Foo" and price in (35, 40]
    >>> cheap.matches(Event("Stock", {"name": "Foo", "price": 37}))
    True
    >>> Filter("Stock", [("price", above(35)), ("price", at_most(35))]) == NOTHING
    True
    """

    class_name: str | None
    constraints: tuple[tuple[str, Constraint], ...]
    satisfiable: bool
    _hash: int | None = field(compare=False, repr=False)

    def __init__(
        self,
        class_name: str | None = None,
        constraints: Mapping[str, Constraint] | Iterable[tuple[str, Constraint]] = (),
    ):
        pairs = constraints.items() if isinstance(constraints, Mapping) else constraints
        kept: dict[str, Constraint] = {}
        satisfiable = True
        for name, constraint in pairs:
            if isinstance(constraint, Interval) and constraint.is_empty:
                satisfiable = False
                break
            both = constraint_intersection(kept[name], constraint) if name in kept else constraint
            if both is None:
                satisfiable = False
                break
            kept[name] = both
        self._set(class_name if satisfiable else None, kept if satisfiable else {}, satisfiable)

    def __str__(self) -> str:
        """Text that `parse` reads as an equal filter."""
        if not self.satisfiable:
            return "false"
        head = "" if self.class_name is None else f"{_name(self.class_name)}: "
        return head + (" and ".join(_written(name, constraint) for name, constraint in self.constraints) or "true")

    def matches(self, event: Event) -> bool:
        """Returns whether an event is in the set.

        >>> Filter("Stock", {"price": Interval(high=3)}).matches(Event("Stock", {"volume": 2}))
        False
        """
        if not self.satisfiable or (self.class_name is not None and self.class_name != event.class_name):
            return False
        get = event.get
        for name, constraint in self.constraints:
            value = get(name)
            if value is None or not constraint.holds(value):
                return False
        return True

    def of_any_class(self) -> Filter:
        """Returns the filter with the same constraints for events of any class.

        >>> print(Filter("Stock", {"price": Interval(1, 2)}).of_any_class())
        price in [1, 2]
        """
        other = object.__new__(Filter)
        object.__setattr__(other, "class_name", None)
        object.__setattr__(other, "constraints", self.constraints)
        object.__setattr__(other, "satisfiable", self.satisfiable)
        object.__setattr__(other, "_hash", None)
        return other

    def covers(self, other: Filter) -> bool:
        """Returns whether this filter matches every event that the other matches.

        >>> Filter("Stock").covers(Filter("Stock", {"price": Interval(1, 2)})), Filter("Stock").covers(Filter())
        (True, False)
        """
        if not other.satisfiable or not self.satisfiable:
            return not other.satisfiable
        if self.class_name is not None and self.class_name != other.class_name:
            return False
        if len(self.constraints) > len(other.constraints):
            return False
        if len(other.constraints) == 1 == len(self.constraints):
            (name, mine), (their_name, their) = self.constraints[0], other.constraints[0]
            return name == their_name and constraint_covers(mine, their)
        theirs = dict(other.constraints)
        return all(name in theirs and constraint_covers(mine, theirs[name]) for name, mine in self.constraints)

    def intersects(self, other: Filter) -> bool:
        """Returns whether some event is matched by both filters.

        >>> Filter("Stock", {"price": Interval(1, 2)}).intersects(Filter("Stock", {"price": Interval(2, 3)}))
        True
        """
        if not self.satisfiable or not other.satisfiable:
            return False
        if None not in (self.class_name, other.class_name) and self.class_name != other.class_name:
            return False
        theirs = dict(other.constraints)
        return all(
            name not in theirs or constraint_intersection(mine, theirs[name]) is not None
            for name, mine in self.constraints
        )

    def _set(self, class_name: str | None, constraints: Mapping[str, Constraint], satisfiable: bool) -> None:
        object.__setattr__(self, "class_name", class_name)
        object.__setattr__(self, "constraints", tuple(sorted(constraints.items(), key=lambda pair: pair[0])))
        object.__setattr__(self, "satisfiable", satisfiable)
        object.__setattr__(self, "_hash", None)

    def __hash__(self) -> int:
        value = self._hash  # filters are looked up far more often than made
        if value is None:
            value = hash((self.class_name, self.constraints, self.satisfiable))
            object.__setattr__(self, "_hash", value)
        return value

    def __reduce__(self) -> tuple[object, ...]:
        # Hashes of text differ between processes.
        return (Filter, (self.class_name, self.constraints if self.satisfiable else _UNSATISFIABLE))


_UNSATISFIABLE: Final = (("", Interval(1, 0)),)
NOTHING: Final = Filter(None, _UNSATISFIABLE)
"""The filter that no event matches."""


def merge(a: Filter, b: Filter) -> Filter | None:
    """The filter that matches exactly the events of either; None if there is no such filter.

    Two products of non-empty sets have a product as their union only if one holds the other, or if they differ in one
    factor alone: with x in A_i but not in B_i and y in B_j but not in A_j, (x, y) is in neither.

    >>> print(merge(Filter("S", {"p": Interval(1, 2)}), Filter("S", {"p": Interval(2, 3)})))
    S: p in [1, 3]
    >>> merge(Filter("S", {"p": Interval(1, 2)}), Filter("S", {"p": Interval(3, 4)})) is None
    True
    """
    if a.covers(b):
        return a
    if b.covers(a):
        return b
    if a.class_name != b.class_name or len(a.constraints) != len(b.constraints):
        return None
    merged = dict(a.constraints)
    differing = 0
    for name, theirs in b.constraints:
        mine = merged.get(name)
        if mine == theirs:
            continue
        differing += 1
        union = None if mine is None or differing > 1 else constraint_union(mine, theirs)
        if union is None:
            return None
        merged[name] = union
    return Filter(a.class_name, merged)


def hull(a: Filter, b: Filter) -> Filter:
    """The smallest filter that covers both: the merging of *capacity* section 3.1.1 where both are of one class.

    >>> print(hull(Filter("S", {"p": Interval(1, 2), "q": Exists()}), Filter("S", {"p": Interval(3, 4)})))
    S: p in [1, 4]
    """
    if not a.satisfiable:
        return b
    if not b.satisfiable:
        return a
    theirs = dict(b.constraints)
    shared = {name: constraint_hull(mine, theirs[name]) for name, mine in a.constraints if name in theirs}
    return Filter(a.class_name if a.class_name == b.class_name else None, shared)


def _name(name: str) -> str:
    if re.fullmatch(NAME, name) and name not in KEYWORDS:
        return name
    return _quoted(name, "`")


def _quoted(text: str, mark: str) -> str:
    return mark + text.replace("\\", "\\\\").replace(mark, "\\" + mark) + mark


def _written(name: str, constraint: Constraint) -> str:
    """One constraint as `parse` reads it."""
    name = _name(name)
    if isinstance(constraint, Exists):
        return f"{name} exists"
    if isinstance(constraint, Equals):
        return f"{name} = " + _quoted(constraint.text, '"')
    if not isinstance(constraint, Interval):
        return f"{name} startswith " + _quoted(constraint.prefix, '"')
    if constraint.is_point:
        return f"{name} = {_digits(constraint.low)}"
    if constraint.low == -inf and constraint.high < inf:
        return f"{name} {'<' if constraint.high_open else '<='} {_digits(constraint.high)}"
    if constraint.high == inf and constraint.low > -inf:
        return f"{name} {'>' if constraint.low_open else '>='} {_digits(constraint.low)}"
    opening, closing = "(" if constraint.low_open else "[", ")" if constraint.high_open else "]"
    return f"{name} in {opening}{_digits(constraint.low)}, {_digits(constraint.high)}{closing}"


def _digits(value: float) -> str:
    """Equal numbers as equal text, whether they are whole numbers or floats."""
    if abs(value) < 1e15 and value == int(value):
        return str(int(value))
    return repr(float(value)) if float(value) == value else repr(value)
