"""Events as content-based routing sees them: a notification class and attributes with numbers or text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isinf, isnan
from typing import TypeAlias

from surecast.errors import ConfigurationError

__all__ = ["Event", "Value", "finite", "number"]

Value: TypeAlias = float | str
"""The value of an attribute: a finite number (`int` or `float`) or text."""


@dataclass(frozen=True, slots=True, init=False)
class Event:
    """A notification: its class and its attributes, in the order of their names.

    >>> event = Event("Stock", {"name": "Foo", "price": 37})
    >>> event.get("price"), event.get("volume")
    (37, None)
    >>> event == Event("Stock", {"price": 37.0, "name": "Foo"})
    True
    """

    class_name: str
    attributes: tuple[tuple[str, Value], ...]
    values: Mapping[str, Value] = field(repr=False, compare=False)
    """The attributes by name; not to be changed."""

    def __init__(self, class_name: str, attributes: Mapping[str, Value] | None = None):
        values: dict[str, Value] = {}
        for name, value in sorted((attributes or {}).items()):
            values[name] = str(value) if isinstance(value, str) else finite(value)
        object.__setattr__(self, "class_name", class_name)
        object.__setattr__(self, "attributes", tuple(values.items()))
        object.__setattr__(self, "values", values)

    def get(self, attribute: str) -> Value | None:
        """The value of an attribute; None if the event does not have it."""
        return self.values.get(attribute)


def number(value: float) -> float:
    """A number as filters compare it: not a truth value, not NaN, and no larger than a float can be.

    >>> number(35), number(0.5)
    (35, 0.5)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigurationError(f"{value!r} is a {type(value).__name__}; an attribute holds a number or text")
    plain = int(value) if isinstance(value, int) else float(value)
    try:
        as_float = float(plain)
    except OverflowError:
        raise ConfigurationError("a whole number beyond 1.8e308 cannot be compared; scale it down") from None
    if isnan(as_float):
        raise ConfigurationError("NaN has no place in an order, so no filter can speak of it; leave the attribute out")
    return plain


def finite(value: float) -> float:
    """As `number`, and not infinite.

    >>> finite(float("inf"))
    Traceback (most recent call last):
        ...
    surecast.errors.ConfigurationError: inf is not finite; leave out the attribute or the bound
    """
    plain = number(value)
    if isinf(plain):
        raise ConfigurationError(f"{plain} is not finite; leave out the attribute or the bound")
    return plain
