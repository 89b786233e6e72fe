"""Validation errors in words that a reader of the file understands."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from surecast.documents.source import FieldPath, has_part

__all__ = ["WORDS", "field_hint", "path_in_data"]

WORDS = {
    "bool_parsing": "should be true or false",
    "bool_type": "should be true or false",
    "dict_type": "should be a mapping of fields",
    "finite_number": "should be a finite number",
    "float_parsing": "should be a number",
    "float_type": "should be a number",
    "greater_than": "should be above {gt}",
    "greater_than_equal": "should be at least {ge}",
    "int_from_float": "should be a whole number",
    "int_parsing": "should be a whole number",
    "int_type": "should be a whole number",
    "less_than": "should be below {lt}",
    "less_than_equal": "should be at most {le}",
    "list_type": "should be a list",
    "model_attributes_type": "should be a mapping of fields",
    "model_type": "should be a mapping of fields",
    "string_pattern_mismatch": "should have no control characters",
    "string_too_long": "should have at most {max_length} characters",
    "string_too_short": "should not be empty",
    "string_type": "should be text",
    "too_long": "should have {max_length} entries",
    "too_short": "should have at least {min_length} entry",
    "tuple_type": "should be a list",
}
"""What each kind of pydantic's errors says, with its context filled in."""


def path_in_data(data: Any, location: tuple[str | int, ...]) -> FieldPath:
    """Returns the part of an error's location that exists in the data: union tags and normalised forms drop out."""
    path: list[str | int] = []
    for step in location:
        if has_part(data, step):
            data = data[step]
            path.append(step)
    return tuple(path)


def field_hint(name: str | int, allowed: Iterable[str]) -> str:
    """Returns what to write in place of an unknown field.

    >>> field_hint("listener", ["listeners", "state"])
    'did you mean listeners?'
    >>> field_hint("colour", ["listeners", "state"])
    'allowed here: listeners, state'
    """
    names = sorted(allowed)
    near = difflib.get_close_matches(str(name), names, n=1)
    return f"did you mean {near[0]}?" if near else f"allowed here: {', '.join(names)}"
