"""A learned scenario: values with their intervals and verdicts, and the values that the logs do not contain."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from typing import Any

from surecast.documents.reading import yaml_text
from surecast.documents.source import FieldPath, field_name, has_part
from surecast.documents.units import format_duration, format_rate

__all__ = ["Learned", "LearnedValue", "Missing", "commented_yaml", "with_intervals"]

_BLOCK_DEPTH = 3
"""Mappings down to here are written over several lines."""


@dataclass(frozen=True, slots=True)
class LearnedValue:
    """One value: the field of the scenario it stands in, its interval, from how many observations, and how it fits."""

    field: str
    what: str
    value: float
    low: float
    high: float
    unit: str
    n: int
    verdict: str

    def comment(self) -> str:
        """Returns the estimate as a comment of the scenario file."""
        unit = f" {self.unit}" if self.unit else ""
        high = "no upper limit" if math.isinf(self.high) else f"{self.high:.4g}"
        return f"{self.what}: {self.value:.4g}{unit}, 95 % [{self.low:.4g}, {high}], n = {self.n}; {self.verdict}"

    def as_dict(self) -> dict[str, Any]:
        """Returns the estimate for JSON; an infinite upper limit is None."""
        return {**asdict(self), "high": None if math.isinf(self.high) else self.high}


@dataclass(frozen=True, slots=True)
class Missing:
    """Something the models can use and the tables do not tell; `to_log` says what would."""

    what: str
    why: str
    to_log: str

    def __str__(self) -> str:
        return f"{self.what}: {self.why}; {self.to_log}"


@dataclass(frozen=True)
class Learned:
    """A scenario as plain data, with where each of its values comes from."""

    data: dict[str, Any]
    paths: tuple[tuple[FieldPath, LearnedValue], ...]
    missing: tuple[Missing, ...]
    notes: tuple[str, ...] = ()

    @property
    def estimates(self) -> tuple[LearnedValue, ...]:
        return tuple(estimate for _, estimate in self.paths)

    def to_yaml(self) -> str:
        """Returns the scenario file: each value under a comment that says where it comes from."""
        comments: dict[FieldPath, list[str]] = {}
        for path, estimate in self.paths:
            comments.setdefault(path, []).append(estimate.comment())
        head = [f"# {_line(note)}" for note in self.notes]
        workload = self.data.get("workload", {})
        beside = [each for path, each in self.paths if path[0] == "workload" and path[1] not in workload]
        if beside:
            head += ["# Estimated too, and not in this scenario:", *[f"# - {_line(each.comment())}" for each in beside]]
        if self.missing:
            head += ["# Not estimated:", *[f"# - {_line(str(each))}" for each in self.missing]]
        return "\n".join([*head, commented_yaml(with_intervals(self.data, self.paths), comments)])

    def as_dict(self) -> dict[str, Any]:
        return {
            "scenario": with_intervals(self.data, self.paths),
            "estimates": [estimate.as_dict() for estimate in self.estimates],
            "missing": [asdict(each) for each in self.missing],
            "notes": list(self.notes),
        }


def with_intervals(data: dict[str, Any], paths: Sequence[tuple[FieldPath, LearnedValue]]) -> dict[str, Any]:
    """Returns data in which each value that has an interval is written with it, as `predict` takes it.

    A value keeps its place if it is a number above 0 with finite ends; others have their interval in a comment only.

    >>> value = LearnedValue("a.mtbf", "a mtbf", 60.0, 30.0, 90.0, "s", 9, "exponential taken")
    >>> with_intervals({"a": {"mtbf": "60s"}}, [(("a", "mtbf"), value)])
    {'a': {'mtbf': {'estimate': '60s', 'low': '30s', 'high': '90s'}}}
    """
    copy: dict[str, Any] = deepcopy(data)
    for path, value in paths:
        part: Any = copy
        for step in path[:-1]:
            part = part[step] if has_part(part, step) else None
        if not has_part(part, path[-1]) or not 0.0 < value.low < value.high < math.inf:
            continue
        written = part[path[-1]]
        if isinstance(written, dict) and "mean" in written:
            part, written, path = written, written["mean"], (*path, "mean")
        if isinstance(written, (str, int, float)) and not isinstance(written, bool):
            ends = [_like(written, float(f"{end:.6g}")) for end in (value.low, value.high)]
            part[path[-1]] = {"estimate": written, "low": ends[0], "high": ends[1]}
    return copy


def _like(written: object, number: float) -> object:
    """Returns a number in the form of another value: a rate, a duration or a plain number."""
    if not isinstance(written, str):
        return number
    return format_rate(number) if "/" in written else format_duration(number)


def commented_yaml(data: dict[str, Any], comments: dict[FieldPath, list[str]]) -> str:
    """Returns YAML with comments above the fields they belong to; a field without a line of its own has its comment
    above its entry.

    >>> print(commented_yaml({"a": {"b": 1}}, {("a", "b"): ["one"]}), end="")
    a:
      # one
      b: 1
    """
    lines: list[str] = []
    _write(data, (), comments, lines)
    return "\n".join(lines) + "\n"


def _write(data: dict[str, Any], path: FieldPath, comments: dict[FieldPath, list[str]], lines: list[str]) -> None:
    indent = "  " * len(path)
    for name, value in data.items():
        here = (*path, name)
        key = f"{indent}{_flow(name)}:"
        if isinstance(value, dict) and value and len(here) <= _BLOCK_DEPTH - 1:
            lines += _remarks(comments, here, indent, inside=False)
            lines.append(key)
            _write(value, here, comments, lines)
        elif isinstance(value, list) and any(isinstance(each, dict) for each in value):
            lines += [f"{indent}# {_line(text)}" for text in _of_list(comments, here)]
            lines.append(key)
            for i, each in enumerate(value):
                lines += _remarks(comments, (*here, i), indent + "  ", inside=True)
                lines.append(f"{indent}  - {_flow(each)}")
        else:
            lines += _remarks(comments, here, indent, inside=True)
            lines.append(f"{key} {_flow(value)}")


def _remarks(comments: dict[FieldPath, list[str]], path: FieldPath, indent: str, inside: bool) -> list[str]:
    """Comments of a field, and with `inside` of all that stands in it."""
    remarks = [
        text
        for place, texts in comments.items()
        if place == path or (inside and place[: len(path)] == path)
        for text in texts
    ]
    return [f"{indent}# {_line(text)}" for text in remarks]


def _of_list(comments: dict[FieldPath, list[str]], path: FieldPath) -> list[str]:
    """Comments of a list as a whole, and not of one of its entries."""
    size = len(path)
    return [
        text
        for place, texts in comments.items()
        if place[:size] == path and not isinstance(place[size : size + 1] and place[size], int)
        for text in texts
    ]


def _line(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)


def _flow(value: Any) -> str:
    """Returns a value on one line."""
    text = yaml_text([value], default_flow_style=True, allow_unicode=True, width=math.inf)
    return text.strip()[1:-1]


def estimate_at(
    path: FieldPath, subject: str, numbers: tuple[float, float, float], unit: str, n: int, verdict: str
) -> tuple[FieldPath, LearnedValue]:
    """Returns an estimate with the place of its field; `numbers` are value, low and high."""
    return path, LearnedValue(field_name(path), subject, *numbers, unit, n, verdict)
