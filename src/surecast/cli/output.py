"""Output that all commands share: tables and notes on standard output, errors and progress on standard error."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from surecast.errors import ConfigurationError, Problem, ScenarioError, SurecastError
from surecast.tables import FittedTable

if TYPE_CHECKING:
    from surecast.report import QoSReport

__all__ = [
    "check_out",
    "check_pictures",
    "check_writable",
    "console",
    "draw_pictures",
    "errors",
    "name_options",
    "print_drawn",
    "print_error",
    "print_json",
    "print_more",
    "print_problems",
    "print_report",
    "print_saved",
    "print_table",
    "problem_text",
    "progress_bar",
    "save_report",
    "working",
]

console = Console(highlight=False)
errors = Console(stderr=True, highlight=False)

PICTURE_WIDTH_PX: Final = 1280
_OPTIONS: Final = {
    "schemes": "--scheme",
    "algorithms": "--algorithm",
    "policies": "--policy",
    "settings": "--set",
    "max_notification_delay_s": "--max-delay",
    "max_subscription_delay_s": "--max-subscription-delay",
}
"""The options that are not called like the arguments of the functions behind the commands."""


def name_options(text: str) -> str:
    """Returns a message in which arguments of a function, in backticks, are called as options.

    >>> name_options("`policies`: give a `time_scale`, not `2`")
    '--policy: give a --time-scale, not `2`'
    """
    return re.sub(r"`([a-z_]+)`", lambda word: _OPTIONS.get(word[1], f"--{word[1].replace('_', '-')}"), text)


def print_json(data: Any) -> None:
    """Prints one JSON document on standard output, and nothing else; null stands for what is not finite."""
    print(json.dumps(_finite(data), indent=2, ensure_ascii=False, allow_nan=False))  # noqa: T201


def _finite(data: Any) -> Any:
    """Returns the data with None for each number that is not finite, which JSON cannot hold."""
    if isinstance(data, dict):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data


def print_problems(problems: list[Problem]) -> None:
    """Prints each problem on lines of its own: where, what is wrong, what would be right."""
    for problem in problems:
        errors.print(problem_text(problem), soft_wrap=True)


def problem_text(problem: Problem) -> Text:
    """Returns a problem in colours: where, which field, what is wrong, what would be right."""
    where = name_options(problem.file) + (f":{problem.line}" if problem.line else "")
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
        errors.print(f"[red]error:[/red] {escape(name_options(str(error)))}", soft_wrap=True)


@contextmanager
def working(activity: str) -> Iterator[None]:
    """Shows an activity on a terminal while it runs; the line is removed at the end."""
    with errors.status(Text(f"{activity} ...")) if errors.is_terminal else nullcontext():
        yield


@contextmanager
def progress_bar(activity: str) -> Iterator[Callable[[int, int], None]]:
    """Shows a progress bar on standard error, on a terminal; yields the function of (done, total) that moves it."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task(activity, total=None)

        def move(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield move


def print_table(
    names: Sequence[str],
    headers: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    title: str = "",
    caption: str = "",
    styles: list[str] | None = None,
) -> None:
    """Prints a table that fits the terminal: columns of text under `names`, then columns of figures under `headers`."""
    console.print(FittedTable(title, list(names), list(headers), [list(row) for row in rows], caption, styles))


def check_out(out: Path | None) -> None:
    """Refuses a report file that cannot be written before any work is done."""
    if out is not None:
        from surecast.report.report_files import suffix_of

        suffix_of(out)
        check_writable(out, str(out))


def check_writable(path: Path, where: str) -> None:
    """Refuses a file that is a folder, or in whose folder no file can be made; tries it, and leaves no trace."""
    import os
    import tempfile

    folder = Path(os.path.realpath(path)).parent
    if path.is_dir():
        raise ConfigurationError(f"{where}: this is a folder; name a file")
    if not folder.is_dir():
        raise ConfigurationError(f"{where}: the folder {path.parent} does not exist; create it first")
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise ConfigurationError(
            f"{where}: no file can be made in the folder {path.parent} ({error.strerror or error}); name another"
        ) from None


def check_pictures(paths: Sequence[Path] | None) -> None:
    """Refuses a picture that cannot be drawn, before any work is done."""
    if paths:
        from surecast.studio.files import checked_path

        for path in paths:
            checked_path(path, PICTURE_WIDTH_PX)


def draw_pictures(paths: Sequence[Path] | None, draw: Callable[[Path], Any]) -> None:
    """Draws an answer to each file."""
    for path in paths or ():
        with working(f"drawing {path}"):
            draw(path)


def print_drawn(paths: Sequence[Path] | None) -> None:
    """Says which pictures were drawn."""
    for path in paths or ():
        console.print(f"drew {path}", markup=False, soft_wrap=True)


def print_more(total: int, limit: int) -> None:
    """Says how many rows were left out of a list."""
    if total > limit:
        console.print(f"... and {total - limit} more; --limit shows more, --json shows all")


def save_report(report: QoSReport, out: Path | None) -> None:
    """Saves a report where a file was named."""
    if out is not None:
        from surecast.report import save

        save(report, out)


def print_report(report: QoSReport, limit: int, json: bool, heading: str = "") -> None:
    """Prints a report as tables under a heading, or as JSON."""
    from surecast.report import as_dict, render

    if json:
        print_json(as_dict(report))
        return
    if heading:
        console.print(heading)
    console.print(render(report, limit=limit))


def print_saved(*files: Path | None) -> None:
    """Says which files were written."""
    for file in files:
        if file is not None:
            console.print(f"saved {file}", markup=False, soft_wrap=True)
