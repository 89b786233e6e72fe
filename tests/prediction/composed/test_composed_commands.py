"""Predict, simulate and compare on a scenario that needs all models."""

from __future__ import annotations

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from surecast.cli import main
from surecast.report import check_accounts, load

EXAMPLE = Path(__file__).parents[3] / "examples" / "composed.yaml"
BRIEF = ("--runs", "3", "--duration", "3000s")


def surecast(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> str:
    """Runs a command in this process; returns what it prints."""
    monkeypatch.setattr(sys, "argv", ["surecast", *map(str, arguments)])
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as stop:
            assert not stop.code, err.getvalue()
    return out.getvalue()


def test_both_answers_and_their_comparison(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    surecast(monkeypatch, "predict", EXAMPLE, "--out", "p.json", "--json")
    surecast(monkeypatch, "simulate", EXAMPLE, *BRIEF, "--out", "s.json", "--json")
    predicted, simulated = load(tmp_path / "p.json"), load(tmp_path / "s.json")
    assert predicted.variants == ("composed", "multi, 3 replicas")
    assert simulated.variants == ("composed",)
    assert check_accounts(predicted) == check_accounts(simulated) == []
    assert sum("independent" in warning for warning in predicted.info.warnings) >= 6
    found = json.loads(surecast(monkeypatch, "compare", "p.json", "s.json", "--json"))
    metrics = {row["metric"] for row in found["summary"] if row["variant"] == "composed"}
    assert {"reliability", "success_share", "delay_mean_s", "delay_quantile_s", "share_dropped"} <= metrics


def test_a_scenario_is_compared_with_its_own_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    found = json.loads(surecast(monkeypatch, "compare", EXAMPLE, *BRIEF, "--json"))
    assert any(row["variant"] == "composed" and row["metric"] == "reliability" for row in found["summary"])


def test_who_names_a_scheme_gets_that_model_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for alone in (("--scheme", "bypass"), ("--alone",)):
        text = surecast(monkeypatch, "predict", EXAMPLE, *alone, "--json")
        assert '"composed"' not in text.split('"figures"')[1]
