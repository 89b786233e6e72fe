"""The stage Check says how far the answers are apart: shown answers that were shifted by known amounts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from surecast.prediction import predict_dropping, predict_reliability
from surecast.prediction.replication import predict_replication
from surecast.report import QoSReport, ReportBuilder, compare, load
from surecast.tour import check
from surecast.tour.check import Answers, check_stage
from surecast.tour.predict import SCHEMES_SHOWN
from surecast.tour.scenarios import load_scenario
from surecast.tour.stage_content import CheckedClaims, Picture, StageOutcome, Tile, TourContext


def shifted(report: QoSReport, by: float, source: str, lost: int = 0, width: float = 0.1) -> QoSReport:
    """The same figures, delivered shares by so much larger, with an interval around each; and events that were lost."""
    builder = ReportBuilder("check", source, seed=1, parameters={"interrupted": False})
    for one in report:
        value = one.value + (by if one.metric == "success_share" else 0.0)
        builder.add(
            one.scope, one.name, one.metric, value, how="measured", detail=one.detail, variant=one.variant,
            low=max(0.0, value - width), high=value + width,
        )  # fmt: skip
    builder.add(
        "subscriber", "ledger", "count_dropped", lost, how="measured", detail="lost although acknowledged",
        variant="buffering",
    )  # fmt: skip
    return builder.build()


@pytest.fixture(scope="module")
def predicted() -> QoSReport:
    system = load_scenario("check").system
    coming = replace(system, subscribers=tuple(s for s in system.subscribers if s.connectivity is not None))
    builder = ReportBuilder("check", "predicted", seed=1)
    builder.add_report(predict_dropping(coming))
    builder.add_report(predict_replication(system))
    return builder.build()


def outcome(
    predicted: QoSReport, folder: Path, patch: pytest.MonkeyPatch, by: float, lost: int = 0, width: float = 0.1
) -> StageOutcome:
    measured = shifted(predicted, by, "measured", lost, width)
    answers = Answers(
        predicted, shifted(predicted, 0.0, "simulated"), shifted(predicted, by / 2, "simulated"), measured
    )
    large = load_scenario("reliability-graph").system
    reliability = predict_reliability(large, SCHEMES_SHOWN)
    patch.setattr(check, "answer_all", lambda system, context: answers)
    patch.setattr(check, "_reliability", lambda context: (compare(reliability, reliability), 1e9))
    return check_stage(TourContext("quick", folder, folder))


def test_the_distance_is_said(predicted: QoSReport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = outcome(predicted, tmp_path, monkeypatch, by=0.03)
    assert found.key["delivered_mean_difference"] == pytest.approx(0.03)
    assert found.key["delivered_mean_difference_same_draws"] == pytest.approx(0.015)
    assert found.key["reliability_mean_difference"] == 0.0
    assert found.tiles[0] == Tile("predicted against measured", "3.0 points", "mean difference of the delivered share")
    assert "3.0 percentage points apart" in found.lead
    assert found.broken == []
    verdicts = next(block for block in found.blocks if isinstance(block, CheckedClaims))
    assert [one.holds for one in verdicts.all] == [True] * 4
    assert load(tmp_path / "check-measured.json").info.source == "measured"
    assert [len(block.numbers.table.rows) for block in found.blocks if isinstance(block, Picture)] == [6, 6, 2000]


def test_what_chance_does_not_explain_is_left_open(
    predicted: QoSReport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = outcome(predicted, tmp_path, monkeypatch, by=0.03, width=0.01)
    verdicts = next(block for block in found.blocks if isinstance(block, CheckedClaims))
    assert verdicts.all[1].holds is None
    assert "6 of 12 do." in verdicts.all[1].evidence  # all delays, and no share
    assert found.broken == []


def test_an_event_that_was_lost_fails_the_stage(
    predicted: QoSReport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = outcome(predicted, tmp_path, monkeypatch, by=0.0, lost=2)
    assert found.broken == ["Nothing that was acknowledged was lost in the measured run."]
