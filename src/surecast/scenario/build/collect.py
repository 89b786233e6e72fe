"""Collects what is wrong while a scenario is resolved, so that everything can be said together."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path

from surecast.documents.source import FieldPath, Source
from surecast.errors import Problem

__all__ = ["Collector", "expand", "unique_names"]

MAX_PROBLEMS = 100


class Collector:
    """Problems and notes of one resolution. Parts that validation had to leave out are not complained about again."""

    def __init__(self, source: Source | None, name: str):
        self.source = source or Source(name, Path(), {})
        self.problems: list[Problem] = []
        self.notes: list[str] = []

    def add(self, path: FieldPath, message: str, hint: str = "") -> None:
        """Notes a problem, once; nothing is said about parts that validation had to leave out."""
        problem = self.source.problem(self.source.original(path), message, hint)
        if len(self.problems) < MAX_PROBLEMS and problem not in self.problems and not self.source.is_gone(path):
            self.problems.append(problem)

    def unknown(self, path: FieldPath, kind: str, name: str, existing: Iterable[str], *extra: str) -> None:
        """Complains about an unknown name and suggests the closest, or lists what there is."""
        if len(self.problems) < MAX_PROBLEMS:
            self.add(path, f"there is no {kind} named {name!r}", _instead(kind, name, list(existing), extra))

    def intact(self, *paths: FieldPath) -> bool:
        """Returns whether validation left all of these parts whole, so that conclusions about them are safe."""
        return not any(self.source.is_damaged(path) for path in paths)


def _instead(kind: str, name: str, existing: list[str], extra: tuple[str, ...]) -> str:
    """Returns a suggestion in place of an unknown name."""
    members = [other for other in existing if other.rpartition("-")[0] == name]
    if members:
        return f"{name} is a group: name one of {members[0]} to {members[-1]}"
    near = difflib.get_close_matches(name, [*existing, *extra], n=1)
    if near:
        return f"did you mean {near[0]}?"
    listed = ", ".join([*extra, *existing[:8]]) + (f" and {len(existing) - 8} more" if len(existing) > 8 else "")
    return f"there are: {listed}" if listed else f"there is no {kind} at all"


def expand(name: str, count: int | None) -> list[str]:
    """Returns the names of a group: the name itself, or name-1 to name-count.

    >>> expand("b", 3), expand("hub", None)
    (['b-1', 'b-2', 'b-3'], ['hub'])
    """
    return [name] if count is None else [f"{name}-{i}" for i in range(1, count + 1)]


def unique_names(names: list[tuple[FieldPath, str]], kind: str, collect: Collector) -> None:
    """Complains about names that are given twice."""
    names_so_far: set[str] = set()
    complained: set[FieldPath] = set()
    for path, name in names:
        if name in names_so_far and path not in complained:
            collect.add((*path, "name"), f"there is already a {kind} named {name!r}", "names must differ")
            complained.add(path)
        names_so_far.add(name)
