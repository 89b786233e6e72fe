"""Fields that several parts of a scenario file share: ranges, shares, entries in a short form."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, ConfigDict, PlainSerializer, WithJsonSchema
from pydantic_core import PydanticCustomError

from surecast.documents.units import (
    DURATION_HINT,
    RATE_HINT,
    AlsoAs,
    format_duration,
    format_rate,
    parse_duration,
    parse_rate,
    quantity,
)
from surecast.documents.validation import Spec

__all__ = [
    "MAX_COUNT",
    "DurationRange",
    "EndsAlone",
    "LifetimeRange",
    "NameAlone",
    "PositiveDurationRange",
    "Probability",
    "RateRange",
    "ScenarioPart",
    "Share",
    "ShareRange",
]

MAX_COUNT = 1_000_000
Range = tuple[float, float]


class ScenarioPart(Spec):
    """A part of a scenario file; the sentences under its fields are in the schema for editors."""

    model_config = ConfigDict(use_attribute_docstrings=True)


def _ranged(parse: Callable[[Any], float]) -> Callable[[Any], Range]:
    """Returns a before-validator that takes one value, or [low, high] for a value drawn per component."""

    def validate(value: Any) -> Range:
        if isinstance(value, (list, tuple)):
            if len(value) != 2:
                raise PydanticCustomError("range", "a range has two ends: [low, high]")
            low, high = parse(value[0]), parse(value[1])
            if low > high:
                raise PydanticCustomError("range", "the range is upside down: write [low, high]")
            return (low, high)
        single = parse(value)
        return (single, single)

    return validate


def _share(value: Any, zero: bool = False) -> float:
    if isinstance(value, str) and value.strip().endswith("%"):
        try:
            value = float(value.strip()[:-1]) / 100
        except ValueError:
            pass
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise PydanticCustomError(
            "share", "{value} is not a share; write a number such as 0.99", {"value": repr(value)}
        )
    if not 0 <= value <= 1 or (value == 0 and not zero):
        raise PydanticCustomError(
            "share",
            "{value} is outside {range}; write a share such as 0.99 or 99%",
            {"value": f"{value:g}", "range": "[0, 1]" if zero else "(0, 1]"},
        )
    return float(value)


def _probability(value: Any) -> float:
    return _share(value, zero=True)


def _plain(value: float) -> float:
    return value


def _serialise(form: Callable[[float], Any]) -> PlainSerializer:
    return PlainSerializer(lambda r: form(r[0]) if r[0] == r[1] else [form(r[0]), form(r[1])])


def _schema(kinds: list[str], example: Any) -> WithJsonSchema:
    items = {"type": kinds}
    both = {
        "type": "array",
        "items": items,
        "minItems": 2,
        "maxItems": 2,
        "description": "[low, high], drawn per component",
    }
    return WithJsonSchema({"anyOf": [items, both], "examples": [example]})


DurationRange = Annotated[
    Range,
    BeforeValidator(_ranged(quantity(parse_duration, DURATION_HINT))),
    _serialise(format_duration),
    _schema(["string", "number"], "60s"),
]
PositiveDurationRange = Annotated[
    Range,
    BeforeValidator(_ranged(quantity(parse_duration, DURATION_HINT, above_zero=True))),
    _serialise(format_duration),
    _schema(["string", "number"], "60s"),
]
LifetimeRange = Annotated[
    Range,
    BeforeValidator(_ranged(quantity(parse_duration, DURATION_HINT, above_zero=True, endless=True))),
    _serialise(format_duration),
    _schema(["string", "number"], "1h"),
]
RateRange = Annotated[
    Range,
    BeforeValidator(_ranged(quantity(parse_rate, RATE_HINT, above_zero=True))),
    _serialise(format_rate),
    _schema(["string", "number"], "1400/s"),
]
ShareRange = Annotated[
    Range,
    BeforeValidator(_ranged(_share)),
    _serialise(_plain),
    _schema(["number", "string"], 0.99),
]
Probability = Annotated[
    float,
    BeforeValidator(_probability),
    WithJsonSchema({"type": ["number", "string"], "examples": [0.1, "10%"]}),
]
Share = Annotated[
    float,
    BeforeValidator(_share),
    WithJsonSchema({"type": ["number", "string"], "examples": [0.99, "99%"]}),
]


def _named(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


def _joined(value: Any) -> Any:
    return {"between": list(value)} if isinstance(value, (list, tuple)) else value


Entry = TypeVar("Entry")
NameAlone = Annotated[Entry, BeforeValidator(_named), AlsoAs({"type": "string"})]
"""An entry that may be written as its name alone."""
EndsAlone = Annotated[
    Entry,
    BeforeValidator(_joined),
    AlsoAs({"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 2}),
]
"""A link that may be written as its two ends alone."""
