"""How the tour goes on when a stage fails, when it is interrupted, and when two are taken at once."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from pathlib import Path

import pytest

from surecast.errors import ConfigurationError
from surecast.tour import Result, StageOutcome, TourInterrupted, TourStage, take_tour, why_no_spark
from surecast.tour.scenarios import SCENARIOS, load_scenario
from surecast.tour.stage_content import CheckedClaim, CheckedClaims, TourContext
from surecast.tour.walk import STAGES

EXAMPLES = Path(__file__).parents[2] / "examples"


def good(context: TourContext) -> StageOutcome:
    return StageOutcome("it went well", (), (), {"answer": 42})


def bad(context: TourContext) -> StageOutcome:
    raise RuntimeError("the <disk> is full")


def refused(context: TourContext) -> StageOutcome:
    raise ConfigurationError("a message for the user")


def broken(context: TourContext) -> StageOutcome:
    return StageOutcome("hm", (), (CheckedClaims("Checked", (CheckedClaim(False, "Two and two are five.", "4"),)),), {})


def stage(name: str, run: object, skip: str = "") -> TourStage:
    return TourStage(name, name.title(), "why?", run, lambda context: skip)  # type: ignore[arg-type]


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which the tour makes its own."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_a_stage_that_fails_does_not_end_the_tour(tmp_path: Path, scratch: Path) -> None:
    stages = [stage("a", bad), stage("b", refused), stage("c", broken), stage("d", good), stage("e", good, "no Java")]
    tour = take_tour(tmp_path / "out", wanted="quick", stages=stages)
    assert [one.state for one in tour.results] == ["failed", "failed", "failed", "done", "skipped"]
    assert [one.why for one in tour.results] == [
        "RuntimeError: the <disk> is full",
        "a message for the user",
        "Not so: Two and two are five.",
        "",
        "no Java",
    ]
    assert not tour.ok
    text = tour.report.read_text()
    assert "the &lt;disk&gt; is full" in text
    assert "3 of the 5 stages failed" in text
    assert tour.as_dict()["stages"][3]["figures"] == {"answer": 42}
    assert list(scratch.iterdir()) == []


def test_a_stage_that_is_skipped_is_no_failure(tmp_path: Path) -> None:
    assert take_tour(tmp_path, stages=[stage("a", good, "not today")]).ok


def test_whoever_watches_is_told(tmp_path: Path) -> None:
    heard: list[object] = []

    class Watcher:
        def begin(self, stage: TourStage, number: int, count: int) -> None:
            heard.append((stage.name, number, count))

        def show(self, what: str, done: int, total: int) -> None:
            heard.append((what, done, total))

        def end(self, result: Result) -> None:
            heard.append(result.state)

    def working(context: TourContext) -> StageOutcome:
        context.show("working", 1, 2)
        return good(context)

    take_tour(tmp_path, stages=[stage("a", working)], listener=Watcher())
    assert heard == [("a", 1, 1), ("working", 1, 2), "done"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_nothing_behind(tmp_path: Path, scratch: Path, number: signal.Signals) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "tour.html").write_text("of an earlier tour")
    cleaned = threading.Event()
    before = signal.getsignal(number)

    def interrupted(context: TourContext) -> StageOutcome:
        (context.work / "half").write_text("written")
        try:
            os.kill(os.getpid(), number)
        finally:
            os.kill(os.getpid(), signal.SIGINT)  # a second one does not disturb the cleaning up
            cleaned.set()
        raise AssertionError("the signal was not heard")

    with pytest.raises(TourInterrupted, match=number.name) as found:
        take_tour(tmp_path / "out", stages=[stage("a", interrupted), stage("b", good)])
    assert found.value.number == number
    assert cleaned.is_set()
    assert list(scratch.iterdir()) == []
    assert (tmp_path / "out" / "tour.html").read_text() == "of an earlier tour"
    assert signal.getsignal(number) == before


def test_two_tours_do_not_write_to_one_folder(tmp_path: Path) -> None:
    def second(context: TourContext) -> StageOutcome:
        with pytest.raises(ConfigurationError, match="another demo is writing to"):
            take_tour(context.out, stages=[stage("b", good)])
        take_tour(context.out / "other", stages=[stage("b", good)])
        return good(context)

    assert take_tour(tmp_path, stages=[stage("a", second)]).ok
    assert take_tour(tmp_path, stages=[stage("c", good)]).ok  # the lock is gone


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="--out"):
        take_tour(tmp_path / "file" / "out", stages=[stage("a", good)])


def test_without_java_learning_is_skipped_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "Java" in why_no_spark()
    learn = next(one for one in STAGES if one.name == "learn")

    def run(context: TourContext) -> StageOutcome:
        context.logs = context.work
        return good(context)

    tour = take_tour(tmp_path / "out", stages=[stage("run", run), learn])
    assert tour.results[1].state == "skipped"
    assert "Java" in tour.results[1].why
    assert tour.ok


def test_without_a_run_there_is_nothing_to_learn_from(tmp_path: Path) -> None:
    learn = next(one for one in STAGES if one.name == "learn")
    tour = take_tour(tmp_path, stages=[stage("run", bad), learn])
    assert [one.state for one in tour.results] == ["failed", "skipped"]
    assert "no logs" in tour.results[1].why


@pytest.mark.parametrize("name", [name for name in SCENARIOS if name != "check"])
def test_scenarios_are_those_of_the_examples(name: str) -> None:
    from surecast.tour import scenarios

    copy = Path(scenarios.__file__).parent / f"{name}.yaml"
    assert copy.read_bytes() == (EXAMPLES / f"{name}.yaml").read_bytes()
    assert load_scenario(name).name == name
