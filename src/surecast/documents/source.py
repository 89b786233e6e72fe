"""The data of a file plus the line of every part of it, so that an error can name file, line and field."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from surecast.errors import Problem, ScenarioError

__all__ = ["SCENARIO", "DocumentKind", "FieldPath", "Source", "field_name", "has_part", "parse_field"]

FieldPath = tuple[str | int, ...]
_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class DocumentKind:
    """A kind of file: its name in errors, some of its fields, where to get one to start from, and its error."""

    name: str
    fields: str
    start: str
    error: type[ScenarioError] = ScenarioError

    @property
    def one(self) -> str:
        """The name with its article."""
        return f"{'an' if self.name[0] in 'aeiou' else 'a'} {self.name}"

    def problem_of_fields(self) -> tuple[str, str]:
        """Returns what is wrong with a file that has no fields, and what would be right."""
        return f"{self.one} is a mapping of fields", f"write fields such as {self.fields}"


SCENARIO = DocumentKind("scenario", "name: and overlay:", "start one with: surecast scenario new")


@dataclass
class Source:
    """Parsed data and where each part of it stands.

    `damaged` names the parts that had to be left out because they were wrong; `kept` has, for a list that lost
    entries, the original indices of those that stayed; `overridden` the fields that were set from outside, with where.
    """

    file: str
    folder: Path
    data: Any
    lines: dict[FieldPath, int] = field(default_factory=dict)
    damaged: set[FieldPath] = field(default_factory=set)
    kept: dict[FieldPath, list[int]] = field(default_factory=dict)
    overridden: dict[FieldPath, str] = field(default_factory=dict)

    def line_of(self, path: FieldPath) -> int | None:
        """The line of a field, or of the nearest part around it."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.lines:
                return self.lines[path[:end]]
        return None

    def problem(self, path: FieldPath, message: str, hint: str = "") -> Problem:
        for end in range(len(path), 0, -1):
            if path[:end] in self.overridden:
                return Problem(self.overridden[path[:end]], None, field_name(path), message, hint)
        return Problem(self.file, self.line_of(path), field_name(path), message, hint)

    def original(self, path: FieldPath) -> FieldPath:
        """Returns the path in the file of a path in the data that was kept of it."""
        steps: list[str | int] = []
        for i, step in enumerate(path):
            indices = self.kept.get(tuple(path[:i]))
            steps.append(indices[step] if indices and isinstance(step, int) and step < len(indices) else step)
        return tuple(steps)

    def is_damaged(self, path: FieldPath) -> bool:
        """Returns whether a part at, above or below the path was left out because it was wrong."""
        return any(path[: len(d)] == d or d[: len(path)] == path for d in (*self.damaged, *self.kept))

    def is_gone(self, path: FieldPath) -> bool:
        """Returns whether the path itself, or a part that contains it, was left out."""
        return any(path[: len(d)] == d for d in self.damaged)


def has_part(part: Any, step: str | int) -> bool:
    """Returns whether data has a part at a step: a key of a mapping, an index of a list."""
    if isinstance(part, list):
        return isinstance(step, int) and step < len(part)
    return isinstance(part, dict) and step in part


def field_name(path: FieldPath) -> str:
    """A path as people write it.

    >>> field_name(("overlay", "brokers", 0, "capacity"))
    'overlay.brokers[0].capacity'
    """
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else str(step)
    return text


def parse_field(name: str) -> FieldPath:
    """The path of a field name; the reverse of `field_name`."""
    steps: list[str | int] = []
    position = 0
    while position < len(name):
        step = _STEP.match(name, position)
        if step is None:
            break
        steps.append(step[1] if step[1] is not None else int(step[2]))
        position = step.end()
    if position < len(name) or not steps:
        message = "is not a field name"
        raise ScenarioError(
            [Problem("`settings`", None, name, message, "write for example overlay.brokers[0].capacity")]
        )
    return tuple(steps)
