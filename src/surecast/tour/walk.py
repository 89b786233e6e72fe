"""The tour from its first stage to its page: what fails is shown as failed, and what was begun is cleaned up."""

from __future__ import annotations

import os
import platform
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final, Protocol

from surecast.errors import ConfigurationError, SurecastError
from surecast.report.report_files import locked_folder, write_whole
from surecast.tour.stage_content import Result, StageOutcome, TourContext, Wanted

__all__ = [
    "STAGES",
    "Silent",
    "Tour",
    "TourInterrupted",
    "TourObserver",
    "TourStage",
    "interruptible",
    "take_tour",
    "why_no_spark",
]

REPORT: Final = "tour.html"
_WHAT_MAX: Final = 400


class TourInterrupted(BaseException):
    """The tour was ended by a signal, and everything is cleaned up. No stage takes it for an error of its own."""

    def __init__(self, number: int):
        super().__init__(
            f"interrupted by {signal.Signals(number).name}; nothing is left running, and no report was written"
        )
        self.number = number


@dataclass(frozen=True, slots=True)
class TourStage:
    """One part of the tour. `skip` says why it cannot be done now, or is empty."""

    name: str
    title: str
    question: str
    run: Callable[[TourContext], StageOutcome]
    skip: Callable[[TourContext], str] = field(default=lambda context: "")


class TourObserver(Protocol):
    """An observer of the tour's progress."""

    def begin(self, stage: TourStage, number: int, count: int) -> None:
        """Called when a stage begins."""

    def show(self, step: str, done: int, total: int) -> None:
        """Called with the progress of a step; 0 of 0 if it is unknown."""

    def end(self, result: Result) -> None:
        """Called when a stage is over."""


class Silent:
    """Watches and says nothing."""

    def begin(self, stage: TourStage, number: int, count: int) -> None:
        """Ignores the beginning of a stage."""

    def show(self, step: str, done: int, total: int) -> None:
        """Ignores progress."""

    def end(self, result: Result) -> None:
        """Ignores the end of a stage."""


@dataclass(frozen=True)
class Tour:
    """A tour that was taken: its stages, where its report is, and what to try next, each command with what it does."""

    results: tuple[Result, ...]
    report: Path
    seconds: float
    following: tuple[tuple[str, str], ...]

    @property
    def ok(self) -> bool:
        """True if no stage failed; a skipped one did not."""
        return not any(result.state == "failed" for result in self.results)

    def as_dict(self) -> dict[str, Any]:
        """Returns the tour for JSON."""
        stages = [
            {
                "name": result.name,
                "state": result.state,
                "seconds": round(result.seconds, 2),
                "why": result.why,
                "figures": {} if result.outcome is None else dict(result.outcome.key),
            }
            for result in self.results
        ]
        return {"ok": self.ok, "seconds": round(self.seconds, 2), "report": str(self.report), "stages": stages}


def _plan(context: TourContext) -> StageOutcome:
    from surecast.tour.plan import plan_stage

    return plan_stage(context)


def _predict(context: TourContext) -> StageOutcome:
    from surecast.tour.predict import predict_stage

    return predict_stage(context)


def _live(context: TourContext) -> StageOutcome:
    from surecast.tour.live import live_stage

    return live_stage(context)


def _overlay(context: TourContext) -> StageOutcome:
    from surecast.tour.overlay import overlay_stage

    return overlay_stage(context)


def _learn(context: TourContext) -> StageOutcome:
    from surecast.tour.learn import learn_stage

    return learn_stage(context)


def _check(context: TourContext) -> StageOutcome:
    from surecast.tour.check import check_stage

    return check_stage(context)


def why_no_spark() -> str:
    """Returns the reason why Spark cannot be started here; empty if it can."""
    from surecast.pipeline import find_java

    try:
        find_java()
    except ConfigurationError as error:
        return str(error)
    return ""


def _why_not_learn(context: TourContext) -> str:
    if context.logs is None:
        return "There are no logs to learn from, because the run before it failed."
    return why_no_spark()


STAGES: Final = (
    TourStage("plan", "Plan", "Where should the brokers be, and how should they route?", _plan),
    TourStage("predict", "Predict", "What will each subscriber get, before anything is deployed?", _predict),
    TourStage("run", "Run", "What happens when the leader of a replicated broker dies?", _live),
    TourStage("learn", "Learn", "What do the logs of that run tell?", _learn, _why_not_learn),
    TourStage("overlay", "Detour", "What happens to an overlay when a broker dies and a link is cut?", _overlay),
    TourStage("check", "Check", "Do prediction, simulation and measurement agree?", _check),
)


def take_tour(
    out: Path,
    *,
    wanted: Wanted = "full",
    listener: TourObserver | None = None,
    stages: Sequence[TourStage] = STAGES,
    seed: int = 1,
) -> Tour:
    """Takes the tour and writes its report to the folder `out`, whole or not at all.

    All else that it writes is in a folder of its own, which is deleted. TourInterrupted after Ctrl-C or SIGTERM.
    """
    listener = listener or Silent()
    began = time.monotonic()
    busy = ConfigurationError(f"another demo is writing to {out}: wait for it, or name another folder with --out")
    with (
        locked_folder(out, "--out", busy),
        interruptible(),
        tempfile.TemporaryDirectory(prefix="surecast-demo-", ignore_cleanup_errors=True) as folder,
    ):
        context = TourContext(wanted, Path(folder), out, listener.show, seed)
        results: list[Result] = []
        for number, stage in enumerate(stages, start=1):
            listener.begin(stage, number, len(stages))
            results.append(_take(stage, context))
            listener.end(results[-1])
        seconds = time.monotonic() - began
        following = _following(context)
        report = _write(results, out, seconds, wanted, following)
    return Tour(tuple(results), report, seconds, following)


def _take(stage: TourStage, context: TourContext) -> Result:
    """Runs one stage; returns its result or its failure."""
    began = time.monotonic()

    def result(state: Any, outcome: StageOutcome | None = None, why: str = "") -> Result:
        return Result(stage.name, stage.title, stage.question, state, time.monotonic() - began, outcome, why)

    try:
        why = stage.skip(context)
        if why:
            return result("skipped", why=why)
        outcome = stage.run(context)
    except SurecastError as error:
        return result("failed", why=str(error))
    except Exception as error:  # whatever it is, the other stages are still worth seeing
        return result("failed", why=f"{type(error).__name__}: {error}"[:_WHAT_MAX])
    if outcome.broken:
        return result("failed", outcome, "Not so: " + " ".join(outcome.broken))
    return result("done", outcome)


def _write(
    results: Sequence[Result], out: Path, seconds: float, wanted: Wanted, following: Sequence[tuple[str, str]]
) -> Path:
    from surecast.tour.tour_page import render_tour

    cores = os.cpu_count() or 1
    failed = sum(result.state == "failed" for result in results)
    subtitle = (
        "A publish/subscribe system that knows its quality of service before it is deployed. Everything below was "
        f"computed, run and measured for this page in {seconds:.0f} seconds."
    )
    if failed:
        subtitle += f" {failed} of the {len(results)} stages failed."
    about = (
        f"Made by surecast demo{' --quick' if wanted == 'quick' else ''} on {time.strftime('%Y-%m-%d at %H:%M')}, "
        f"{cores} core{'s' if cores != 1 else ''}, Python {platform.python_version()}."
    )
    text = render_tour(results, subtitle, about, following)
    path = out / REPORT
    write_whole(path, lambda file: file.write(text.encode("utf-8", "replace")))
    return path


def _following(context: TourContext) -> tuple[tuple[str, str], ...]:
    out = context.out
    commands = [("surecast plan examples/company.yaml --page plan.html", "Plan with limits of your own: see --help.")]
    if context.learned is not None:
        commands.append((f"surecast predict {context.learned}", "Predict what was learned from the logs of this run."))
    if (out / "check-measured.json").exists():
        compared = f"surecast compare {out / 'check-predicted.json'} {out / 'check-measured.json'}"
        commands.append((compared, "See all differences between prediction and measurement."))
    commands.append(
        ("surecast scenario new first.yaml --template overlay", "Describe a system of your own; then docs/tutorial.md.")
    )
    return tuple(commands)


@contextmanager
def interruptible() -> Iterator[None]:
    """Ends the work at the first SIGINT or SIGTERM; further signals do not disturb the cleaning up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        if not heard:
            heard.append(number)
            raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except KeyboardInterrupt:
        raise TourInterrupted(heard[0] if heard else signal.SIGINT) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
