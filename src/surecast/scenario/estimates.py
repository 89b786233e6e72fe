"""Values of a scenario that are estimates: written as a mapping of the estimate and the ends of its 95 % interval.

A value such as `mtbf: 30d` may be `mtbf: {estimate: 30d, low: 21d, high: 44d}`. The system has the estimate; the
interval says how far off it may be, and `predict` carries it into the interval of each figure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from surecast.documents.source import FieldPath, Source, field_name, has_part
from surecast.documents.units import parse_duration, parse_rate
from surecast.errors import Problem

__all__ = ["Estimate", "put_estimates", "take_estimates", "with_values"]

_KEYS = {"estimate", "low", "high"}
_HINT = "write the estimate and the ends of its 95 % interval, such as {estimate: 30d, low: 21d, high: 44d}"
_AT_97_5 = 1.959963984540054
"""The standard normal deviation that 97.5 % are below."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """An estimated value: its field, how it is written, and in its base unit the value and its 95 % interval."""

    path: FieldPath
    written: Mapping[str, Any]
    value: float
    low: float
    high: float
    unit: str

    @property
    def field(self) -> str:
        return field_name(self.path)

    def at(self, deviation: float) -> str | float:
        """Returns the value so many standard deviations from the estimate, as a file has it.

        Its logarithm is normal on each side of the estimate; that of the odds for a share.

        >>> estimate = Estimate(("rate",), {}, 4.0, 2.0, 8.0, "/s")
        >>> estimate.at(0.0), estimate.at(1.959963984540054)
        ('4.0/s', '8.0/s')
        """
        end = self.high if deviation > 0.0 else self.low
        if not self.unit and self.low > 0.0 and self.high <= 1.0 and self.value < 1.0:
            middle = _log_odds(self.value)
            # an end of 1 says nothing of the width above: it is taken as wide as below
            width = abs(_log_odds(end) - middle) if end < 1.0 else middle - _log_odds(self.low)
            return 1.0 / (1.0 + math.exp(-(middle + deviation / _AT_97_5 * width)))
        number = self.value * math.exp(abs(deviation) / _AT_97_5 * math.log(end / self.value))
        return f"{number!r}{self.unit}" if self.unit else number


def _log_odds(share: float) -> float:
    return math.log(share / (1.0 - share))


def take_estimates(source: Source) -> tuple[tuple[Estimate, ...], list[Problem]]:
    """Puts each estimate alone in place of its mapping; returns the estimates, and the problems of those that are
    wrong."""
    estimates, problems = [], []
    for path, written in list(_written(source.data, ())):
        found = _estimate(source, path, written)
        if isinstance(found, Problem):
            problems.append(found)
        else:
            estimates.append(found)
        _put(source.data, path, written.get("estimate"))
    return tuple(estimates), problems


def put_estimates(data: Any, estimates: Sequence[Estimate]) -> None:
    """Puts the mappings of estimates into data, as they were written."""
    for estimate in estimates:
        _put(data, estimate.path, dict(estimate.written))


def with_values(data: Any, estimates: Sequence[Estimate], deviations: Sequence[float]) -> Any:
    """Returns a copy of data with each estimated value so many standard deviations from its estimate."""
    copy = _copied(data)
    for estimate, deviation in zip(estimates, deviations, strict=True):
        _put(copy, estimate.path, estimate.at(float(deviation)))
    return copy


def _copied(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _copied(value) for key, value in data.items()}
    return [_copied(value) for value in data] if isinstance(data, list) else data


def _written(data: Any, path: FieldPath) -> Iterator[tuple[FieldPath, dict[str, Any]]]:
    if isinstance(data, dict):
        if path and "estimate" in data:
            yield path, data
            return
        for key, value in data.items():
            yield from _written(value, (*path, key))
    elif isinstance(data, list):
        for i, value in enumerate(data):
            yield from _written(value, (*path, i))


def _put(data: Any, path: FieldPath, value: Any) -> None:
    part: Any = data
    for step in path[:-1]:
        if not has_part(part, step) and isinstance(part, dict):
            part[step] = {}
        if not has_part(part, step):
            return
        part = part[step]
    if isinstance(part, dict) or has_part(part, path[-1]):
        part[path[-1]] = value


def _estimate(source: Source, path: FieldPath, written: dict[str, Any]) -> Estimate | Problem:
    if written.keys() != _KEYS:
        wrong = sorted(written.keys() ^ _KEYS)
        return source.problem((*path, wrong[0]), "is missing" if wrong[0] in _KEYS else "is no part of it", _HINT)
    numbers: dict[str, tuple[float, str]] = {}
    for key in ("estimate", "low", "high"):
        number = _number(written[key])
        if number is None or not 0.0 < number[0] < math.inf:
            return source.problem((*path, key), f"{written[key]!r} is no number above 0", _HINT)
        numbers[key] = number
    if len({unit for _, unit in numbers.values()}) > 1:
        return source.problem(path, "the estimate and the ends of its interval have different units", _HINT)
    (value, unit), (low, _), (high, _) = (numbers[key] for key in ("estimate", "low", "high"))
    if not low <= value <= high:
        return source.problem(path, "the estimate is outside its interval", "write low <= estimate <= high")
    return Estimate(path, dict(written), value, low, high, unit)


def _number(written: object) -> tuple[float, str] | None:
    """Returns a number and its base unit: of a duration, a rate, a share or a plain number."""
    if isinstance(written, bool):
        return None
    if isinstance(written, int | float):
        return float(written), ""
    if not isinstance(written, str):
        return None
    try:
        if written.strip().endswith("%"):
            return float(written.strip()[:-1]) / 100.0, ""
        if "/" in written or " per " in written:
            return parse_rate(written), "/s"
        return parse_duration(written), "s"
    except ValueError:
        return None
