"""Measurements as flat rows in a file, so that a run can be bounded in time and go on later."""

from __future__ import annotations

import json
import math
import os
import statistics
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

__all__ = ["Book", "Row", "Task", "median", "pick", "ratio"]

Row = dict[str, Any]
Task = dict[str, Any]
"""What is to be measured: experiment, kind, topology, system, round."""

_KEYS = ("experiment", "kind", "topology", "system", "round")


class Book:
    """The rows of a file. What is in it is not measured again; a row that failed is, if it is asked for."""

    def __init__(self, path: Path | None, within_s: float, again: bool = False):
        self.path = path
        self.rows: list[Row] = []
        self._until = time.monotonic() + within_s
        if path is not None and path.exists():
            rows: list[Row] = json.loads(path.read_text(encoding="utf-8"))
            self.rows = [row for row in rows if not (again and "failed" in row)]

    def is_late(self, needs_s: float = 0.0) -> bool:
        """Returns whether there is no time left for something that takes so long."""
        return time.monotonic() + needs_s > self._until

    def open_tasks(self, tasks: Iterable[Task]) -> list[Task]:
        """Those for which there is no row yet."""
        done = {self._key(row) for row in self.rows}
        return [task for task in tasks if self._key(task) not in done]

    def keep(self, task: Task, figures: Row) -> None:
        """Adds a row, and writes the file."""
        row = {**task, "load_average": os.getloadavg()[0], **figures}
        self.rows = [other for other in self.rows if self._key(other) != self._key(task)]
        self.rows.append(row)
        if self.path is not None:
            fresh = self.path.with_suffix(".new")
            fresh.write_text(json.dumps(self.rows, indent=1), encoding="utf-8")
            fresh.replace(self.path)
        said = figures.get("failed") or figures.get("said", "")
        print("  " + ", ".join(str(task[key]) for key in _KEYS[1:]) + f": {said}", file=sys.stderr, flush=True)

    @staticmethod
    def _key(row: Row) -> tuple[Any, ...]:
        return tuple(row.get(key) for key in _KEYS)


def pick(rows: Iterable[Row], **wanted: object) -> list[Row]:
    """The rows with these values that did not fail."""
    return [
        row for row in rows if "failed" not in row and all(row.get(name) == value for name, value in wanted.items())
    ]


def median(rows: Iterable[Row], name: str) -> float:
    """The median over the rounds of one figure; nan where there is none."""
    values = [row[name] for row in rows if row.get(name) is not None and not math.isnan(row[name])]
    return statistics.median(values) if values else math.nan


def ratio(ours: Sequence[Row], theirs: Sequence[Row], name: str) -> float:
    """The median over the rounds of the ratio of two that were measured side by side."""
    others = {row["round"]: row[name] for row in theirs}
    values = [row[name] / others[row["round"]] for row in ours if others.get(row["round"])]
    return statistics.median(values) if values else math.nan
