"""`surecast demo`: the tour, from a plan to a checked prediction, on one page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from surecast.cli.options import AsJson

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from surecast.tour import Result, TourStage

__all__ = ["demo"]

FAILED = 1
SIGNALLED = 128


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the report.")] = Path("out/demo"),
    quick: Annotated[bool, typer.Option("--quick", help="Shorter runs; one or two minutes in all.")] = False,
    json: AsJson = False,
) -> None:
    """Take a tour: plan, predict, run a replicated broker and kill its leader, learn from its logs, check.

    Everything is computed, run and measured while you watch, and ends in one page. Exits with 1 if a stage fails.
    """
    from surecast.cli.output import console, errors, print_json
    from surecast.tour import TourInterrupted, take_tour, why_no_spark

    missing = why_no_spark()
    if missing:
        errors.print(f"The stage Learn will be skipped: {missing}", markup=False, soft_wrap=True)
    watcher = _Watcher(quiet=json)
    try:
        with watcher:
            tour = take_tour(out, wanted="quick" if quick else "full", listener=watcher)
    except TourInterrupted as interruption:
        errors.print(str(interruption), markup=False, soft_wrap=True)
        raise typer.Exit(SIGNALLED + interruption.number) from None
    if json:
        print_json(tour.as_dict())
    else:
        console.print(f"\nThe report, after {tour.seconds:.0f} s: {tour.report}", markup=False, soft_wrap=True)
        console.print("Try next:", style="bold")
        for command, purpose in tour.following:
            console.print(f"  {command}\n      {purpose}", markup=False, soft_wrap=True)
    if not tour.ok:
        raise typer.Exit(FAILED)


class _Watcher:
    """Shows the stages: a bar on a terminal's standard error, and a line on standard output when one is over."""

    def __init__(self, quiet: bool):
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        from surecast.cli.output import errors

        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=28), TimeElapsedColumn())
        self._bar: Progress = Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal)
        self._quiet = quiet
        self._task: TaskID | None = None
        self._head = ""

    def __enter__(self) -> _Watcher:
        self._bar.start()
        return self

    def __exit__(self, *about: object) -> None:
        self._bar.stop()

    def begin(self, stage: TourStage, number: int, count: int) -> None:
        """Shows a new bar for a stage."""
        self._head = f"{number}/{count} {stage.title}"
        self._task = self._bar.add_task(self._head, total=None)

    def show(self, step: str, done: int, total: int) -> None:
        """Shows the present step and its progress."""
        if self._task is not None:
            self._bar.update(self._task, description=f"{self._head}: {step}", completed=done, total=total or None)

    def end(self, result: Result) -> None:
        """Removes the bar and prints the result."""
        from surecast.cli.output import console

        if self._task is not None:
            self._bar.remove_task(self._task)
            self._task = None
        if self._quiet:
            return
        colour = {"done": "green", "failed": "red", "skipped": "yellow"}[result.state]
        console.print(f"[bold]{self._head}[/bold] [{colour}]{result.state}[/{colour}], {result.seconds:.1f} s")
        text = result.why or (result.outcome.lead if result.outcome is not None else "")
        console.print(f"  {text}", markup=False, soft_wrap=True)
