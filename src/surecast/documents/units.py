"""Durations, rates and sizes, written as people write them.

>>> parse_duration("1h30m"), parse_duration("250ms"), parse_rate("1/min") * 60, parse_size("1.5kB")
(5400.0, 0.25, 1.0, 1500.0)
>>> format_duration(1209600), format_rate(1400), format_rate(1 / 60), format_size(2048)
('14d', '1400/s', '1/min', '2048B')
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, overload

from pydantic import BeforeValidator, GetJsonSchemaHandler, PlainSerializer, WithJsonSchema
from pydantic_core import CoreSchema, PydanticCustomError

from surecast.errors import ConfigurationError

SECONDS = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "sec": 1.0,
    "second": 1.0,
    "m": 60.0,
    "min": 60.0,
    "minute": 60.0,
    "h": 3600.0,
    "hour": 3600.0,
    "d": 86400.0,
    "day": 86400.0,
    "w": 604800.0,
    "week": 604800.0,
    "y": 31557600.0,
    "year": 31557600.0,
}
BYTES = {
    "B": 1.0,
    "kB": 1e3,
    "MB": 1e6,
    "GB": 1e9,
    "TB": 1e12,
    "KiB": 2.0**10,
    "MiB": 2.0**20,
    "GiB": 2.0**30,
    "TiB": 2.0**40,
}
NUMBER = r"[+-]?(?:\d+(?:_\d+)*(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
_PART = re.compile(rf"\s*({NUMBER})\s*([a-zA-Zµ]+)")
_RATE = re.compile(rf"\s*({NUMBER})\s*(?:/|per\b)\s*({NUMBER})?\s*([a-zA-Zµ]+)\s*$")

DURATION_HINT = "write a duration with its unit, such as 250ms, 60s, 2h or 14d"
RATE_HINT = "write a rate with its unit, such as 1400/s, 1/min or 5/day"
SIZE_HINT = "write a size with its unit, such as 64B, 1kB or 16MiB"


def parse_duration(text: str) -> float:
    """Seconds of a duration such as ``60s``, ``2h``, ``14d`` or ``1h30m``; ValueError says what is wrong."""
    position, seconds, previous = 0, 0.0, math.inf
    stripped = text.strip()
    if stripped in ("inf", "never"):
        return math.inf
    while position < len(stripped):
        part = _PART.match(stripped, position)
        if part is None:
            raise ValueError(f"{text!r} is not a duration; {DURATION_HINT}")
        unit = _unit(part[2], SECONDS, "duration")
        if unit >= previous:
            raise ValueError(f"{text!r} is not a duration: its units must fall from left to right")
        seconds += float(part[1]) * unit
        previous = unit
        position = part.end()
    if not stripped:
        raise ValueError(f"an empty duration; {DURATION_HINT}")
    if seconds < 0:
        raise ValueError(f"{text!r} is negative; {DURATION_HINT}")
    return seconds


def parse_rate(text: str) -> float:
    """Events per second of a rate such as ``1400/s``, ``1/min`` or ``1/10s``."""
    match = _RATE.match(text)
    if match is None:
        raise ValueError(f"{text!r} is not a rate; {RATE_HINT}")
    per = float(match[2] or 1) * _unit(match[3], SECONDS, "rate")
    if float(match[1]) < 0 or per <= 0:
        raise ValueError(f"{text!r} is negative; {RATE_HINT}")
    return float(match[1]) / per


def parse_size(text: str) -> float:
    """Bytes of a size such as ``64B``, ``1kB`` or ``16MiB``."""
    match = _PART.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a size; {SIZE_HINT}")
    if float(match[1]) < 0:
        raise ValueError(f"{text!r} is negative; {SIZE_HINT}")
    return float(match[1]) * _unit(match[2], BYTES, "size")


def _unit(name: str, table: dict[str, float], kind: str) -> float:
    for candidate in (name, name.removesuffix("s")):
        if candidate in table and (candidate == name or len(candidate) > 2):
            return table[candidate]
    raise ValueError(f"{name!r} is not a unit of a {kind}; use one of {', '.join(table)}")


def _shortest(value: float, counts: dict[str, float], parse: Callable[[str], float]) -> str:
    """The text with the fewest digits that reads back as exactly this value.

    `counts` has the number to write for each unit; the first unit wins unless another saves two digits.
    """
    first = next(iter(counts))
    texts: dict[str, int] = {}
    for unit, count in counts.items():
        numbers = (f"{count:.{digits}g}" for digits in range(1, 18))
        for number in [n for n in numbers if "e" not in n and parse(n + unit) == value][:1]:
            texts[number + unit] = len(number) + (unit != first)
    return min(texts, key=lambda text: texts[text], default=f"{value!r}{first}")


@overload
def seconds_of(argument: str, duration: str | float, is_positive: bool = False) -> float: ...


@overload
def seconds_of(argument: str, duration: str | float | None, is_positive: bool = False) -> float | None: ...


def seconds_of(argument: str, duration: str | float | None, is_positive: bool = False) -> float | None:
    """Returns the seconds of a duration, text or a number of seconds; a wrong one is refused under its argument's name.

    >>> seconds_of("--timeout", "2min"), seconds_of("--timeout", 7), seconds_of("--timeout", None)
    (120.0, 7.0, None)
    """
    if duration is None:
        return None
    try:
        seconds = parse_duration(duration) if isinstance(duration, str) else float(duration)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"{argument}: {error}") from None
    if math.isnan(seconds) or (is_positive and not 0.0 < seconds < math.inf):
        raise ConfigurationError(f"{argument} {duration}: give a time above 0, such as 200ms, or leave it out")
    return seconds


def format_duration(seconds: float) -> str:
    """A duration that reads back as exactly the same."""
    if math.isinf(seconds):
        return "never"
    return _shortest(seconds, {u: seconds / SECONDS[u] for u in ("s", "d", "h", "min", "ms", "us")}, parse_duration)


def format_rate(per_second: float) -> str:
    """A rate that reads back as exactly the same."""
    return _shortest(per_second, {f"/{u}": per_second * SECONDS[u] for u in ("s", "min", "h", "day")}, parse_rate)


def format_size(size_bytes: float) -> str:
    """A size that reads back as exactly the same."""
    return _shortest(size_bytes, {u: size_bytes / BYTES[u] for u in ("B", "kB", "MB", "GB")}, parse_size)


def quantity(
    parse: Callable[[str], float], hint: str, *, above_zero: bool = False, endless: bool = False
) -> Callable[[Any], float]:
    """A pydantic before-validator for one kind of quantity; a bare number is refused because its unit is unknown.

    `above_zero` refuses 0; `endless` accepts `never`.
    """

    def validate(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise PydanticCustomError(
                "quantity", "{value} is not a quantity; {hint}", {"value": repr(value), "hint": hint}
            )
        if not isinstance(value, str):
            if value == 0 and not above_zero:
                return 0.0
            raise PydanticCustomError("quantity", "{value} has no unit; {hint}", {"value": f"{value:g}", "hint": hint})
        try:
            amount = parse(value)
        except ValueError as error:
            raise PydanticCustomError("quantity", "{reason}", {"reason": str(error)}) from None
        if amount == 0 and above_zero:
            raise PydanticCustomError(
                "quantity", "{value} is not above 0; {hint}", {"value": repr(value), "hint": hint}
            )
        if math.isinf(amount) and not (endless and parse is parse_duration):
            raise PydanticCustomError("quantity", "{value} is not finite; {hint}", {"value": repr(value), "hint": hint})
        return amount

    return validate


def _schema(pattern_hint: str, example: str) -> WithJsonSchema:
    return WithJsonSchema({"type": ["string", "number"], "description": pattern_hint, "examples": [example]})


@dataclass(frozen=True, eq=False)
class AlsoAs:
    """Says in the JSON schema that a short form is accepted too."""

    schema: dict[str, Any]

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"anyOf": [self.schema, handler(core)]}


Duration = Annotated[
    float,
    BeforeValidator(quantity(parse_duration, DURATION_HINT)),
    PlainSerializer(format_duration, return_type=str),
    _schema(DURATION_HINT, "60s"),
]
PositiveDuration = Annotated[
    float,
    BeforeValidator(quantity(parse_duration, DURATION_HINT, above_zero=True)),
    PlainSerializer(format_duration, return_type=str),
    _schema(DURATION_HINT, "60s"),
]
Lifetime = Annotated[
    float,
    BeforeValidator(quantity(parse_duration, DURATION_HINT, above_zero=True, endless=True)),
    PlainSerializer(format_duration, return_type=str),
    _schema(DURATION_HINT + ", or never", "1h"),
]
Rate = Annotated[
    float,
    BeforeValidator(quantity(parse_rate, RATE_HINT)),
    PlainSerializer(format_rate, return_type=str),
    _schema(RATE_HINT, "1400/s"),
]
Size = Annotated[
    float,
    BeforeValidator(quantity(parse_size, SIZE_HINT, above_zero=True)),
    PlainSerializer(format_size, return_type=str),
    _schema(SIZE_HINT, "1kB"),
]
