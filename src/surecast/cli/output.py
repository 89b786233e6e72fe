"""Output that all commands share: tables and notes on standard output, errors and progress on standard error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from surecast.errors import Problem, ScenarioError, SurecastError

__all__ = ["console", "errors", "print_error", "print_json", "print_problems", "problem_text", "working"]

console = Console(highlight=False)
errors = Console(stderr=True, highlight=False)


def print_json(data: Any) -> None:
    """Prints one JSON document on standard output, and nothing else."""
    print(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False))  # noqa: T201


def print_problems(problems: list[Problem]) -> None:
    """Prints each problem on lines of its own: where, what is wrong, what would be right."""
    for problem in problems:
        errors.print(problem_text(problem), soft_wrap=True)


def problem_text(problem: Problem) -> Text:
    """Returns a problem in colours: where, which field, what is wrong, what would be right."""
    where = problem.file + (f":{problem.line}" if problem.line else "")
    text = Text.assemble((where, "bold"), ": ")
    if problem.field:
        text.append(problem.field, "cyan").append(": ")
    text.append(problem.message, "red")
    if problem.hint:
        text.append("; ").append(problem.hint, "green")
    return text


def print_error(error: SurecastError) -> None:
    if isinstance(error, ScenarioError):
        print_problems(error.problems)
    else:
        errors.print(f"[red]error:[/red] {escape(str(error))}", soft_wrap=True)


@contextmanager
def working(activity: str) -> Iterator[None]:
    """Shows that something is under way, on a terminal; it leaves no trace."""
    with errors.status(Text(f"{activity} ...")) if errors.is_terminal else nullcontext():
        yield
