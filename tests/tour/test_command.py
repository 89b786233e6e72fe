"""`surecast demo` with stages that take no time: what it prints, and how it exits."""

from __future__ import annotations

import json
import signal
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from surecast import tour
from surecast.cli.app import app
from surecast.tour import StageOutcome, TourStage, take_tour
from surecast.tour.stage_content import TourContext


def good(context: TourContext) -> StageOutcome:
    context.show("working", 1, 2)
    return StageOutcome("It went well.", (), (), {"answer": 42})


def bad(context: TourContext) -> StageOutcome:
    raise RuntimeError("no such luck")


def interrupted(context: TourContext) -> StageOutcome:
    signal.raise_signal(signal.SIGTERM)
    return good(context)


def stage(run: object) -> TourStage:
    return TourStage("one", "One", "why?", run)  # type: ignore[arg-type]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CliRunner:
    monkeypatch.chdir(tmp_path)
    return CliRunner()


@pytest.mark.parametrize(
    ("run", "code", "said"),
    [
        (good, 0, "It went well."),
        (bad, 1, "no such luck"),
        (interrupted, 128 + signal.SIGTERM, "interrupted by SIGTERM"),
    ],
)
def test_it_says_what_came_of_it(
    command: CliRunner, monkeypatch: pytest.MonkeyPatch, run: object, code: int, said: str
) -> None:
    monkeypatch.setattr(tour, "take_tour", partial(take_tour, stages=[stage(run)]))
    done = command.invoke(app, ["demo", "--quick"])
    assert done.exit_code == code, done.output
    assert said in done.output
    assert Path("out/demo/tour.html").exists() == (run is not interrupted)
    assert ("Try next:" in done.output) == (run is not interrupted)


def test_json_is_one_document(command: CliRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tour, "take_tour", partial(take_tour, stages=[stage(good)]))
    done = command.invoke(app, ["demo", "--json", "--out", "here"])
    told = json.loads(done.stdout)
    assert told["ok"]
    assert told["report"] == "here/tour.html"
    assert told["stages"] == [
        {"name": "one", "state": "done", "seconds": pytest.approx(0, abs=30), "why": "", "figures": {"answer": 42}}
    ]


def test_a_folder_that_is_in_use_is_refused(command: CliRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    def again(context: TourContext) -> StageOutcome:
        second = command.invoke(app, ["demo", "--out", "here"])
        assert "another demo is writing to here" in str(second.exception)
        return good(context)

    monkeypatch.setattr(tour, "take_tour", partial(take_tour, stages=[stage(again)]))
    assert command.invoke(app, ["demo", "--out", "here"]).exit_code == 0
