"""Predict, simulate and compare on a replicated broker."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from surecast.report import load

Run = Callable[..., subprocess.CompletedProcess[str]]
RunHere = Callable[[Sequence[str]], subprocess.CompletedProcess[str]]
EXAMPLE = Path(__file__).parents[3] / "examples" / "p2s.yaml"


@pytest.fixture
def surecast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_here: RunHere) -> Run:
    """Runs `surecast ...` in an empty folder, in this process."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: run_here([*map(str, arguments)])


def test_both_answers_and_their_comparison(surecast: Run, tmp_path: Path) -> None:
    assert surecast("predict", EXAMPLE, "--scheme", "bypass", "--out", "p.json").returncode == 0
    done = surecast("simulate", EXAMPLE, "--scheme", "bypass", "--runs", "2", "--duration", "2s", "--out", "s.json")
    assert done.returncode == 0, done.stderr
    predicted, simulated = load(tmp_path / "p.json"), load(tmp_path / "s.json")
    assert predicted.variants == simulated.variants == ("bypass", "multi, 3 replicas")
    for report in (predicted, simulated):
        assert not any("left out" in warning for warning in report.info.warnings)
    done = surecast("compare", "p.json", "s.json", "--json")
    assert done.returncode == 0
    metrics = {row["metric"] for row in json.loads(done.stdout)["summary"]}
    assert {"acknowledgement_mean_s", "availability", "failover_mean_s", "cpu_per_event_s", "reliability"} <= metrics


def test_variants_of_a_group_side_by_side(surecast: Run) -> None:
    for replicas in ("1", "7"):
        done = surecast("predict", EXAMPLE, "--set", f"delivery.replication.replicas={replicas}", "--json")
        assert done.returncode == 0, done.stderr
        assert f"multi, {replicas} replica" in done.stdout


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("delivery.replication.replicas=4", "delivery.replication"),
        ("delivery.replication.delay=5", "delivery.replication.delay"),
        ("delivery.replication.entry=all", "delivery.replication.entry"),
        ("workload.publishers[0].rate=50/s", "broker broker, a group of 3, is overloaded: 1200 events/s come"),
    ],
)
def test_what_is_wrong_is_named(surecast: Run, change: str, message: str) -> None:
    done = surecast("predict", EXAMPLE, "--set", change)
    assert done.returncode != 0
    assert message in " ".join(done.stderr.split())
