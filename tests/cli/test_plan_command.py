"""Placement on the command line: tables, JSON, files, pages, and clear refusals."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from surecast.planning.placement import exhaustive

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_a_plan_with_all_its_files(surecast: Run, repository: Path, tmp_path: Path) -> None:
    company = repository / "examples" / "company.yaml"
    done = surecast(
        "plan", company, "--max-utilisation", "0.8", "--max-brokers", "4", "--algorithm", "hierarchical merging",
        "--algorithm", "flooding", "--out", "plan.parquet", "--page", "plan.html", "--save-scenario", "best.yaml",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Every placement was evaluated: 385 placements, 770 cases" in done.stdout
    assert "Best: hierarchical merging with brokers at office-" in done.stdout
    table = pq.read_table(tmp_path / "plan.parquet")
    assert table.num_rows == 770
    assert not (tmp_path / "plan.parquet.work").exists()
    page = (tmp_path / "plan.html").read_text()
    assert "Pareto front" in page
    assert "office-5" in page
    check = surecast("scenario", "check", "best.yaml")
    assert check.returncode == 0, check.stderr


def test_json_has_the_front(surecast: Run, repository: Path) -> None:
    company = repository / "examples" / "company.yaml"
    done = surecast("plan", company, "--objective", "headroom", "--max-brokers", "3", "--search", "--json")
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert data["exact"] is False
    assert data["search"]["ended_by"] == "convergence"
    assert data["search"]["restarts"] == 8
    assert data["search"]["gap_to_optimum"] >= 0.0
    assert data["misses"] == []
    assert data["constraints"] == {"max_brokers": 3}
    assert data["best"]["headroom_factor"] == max(case["headroom_factor"] for case in data["front"])
    assert set(data["best_by_algorithm"]) >= {"flooding", "hierarchical merging"}


def test_refusals(surecast: Run, repository: Path, tmp_path: Path) -> None:
    examples = repository / "examples"
    (tmp_path / "folder.html").mkdir()
    for arguments, said in (
        ([examples / "company.yaml", "--out", "plan.csv"], "end its name in .parquet"),
        ([examples / "company.yaml", "--max-delay", "soon"], "--max-delay"),
        ([examples / "company.yaml", "--max-delay", "0ms"], "--max-delay 0ms: give a time above 0"),
        ([examples / "company.yaml", "--max-utilisation", "nan"], "--max-utilisation"),
        ([examples / "company.yaml", "--min-headroom", "nan"], "--min-headroom"),
        ([examples / "company.yaml", "--broker-cost", "inf"], "--broker-cost"),
        ([examples / "company.yaml", "--max-cost", "0.5"], "--max-cost 0.5: the cheapest broker costs 1"),
        ([examples / "company.yaml", "--page", "/proc/x.html"], "no file can be made in the folder /proc"),
        ([examples / "company.yaml", "--page", "folder.html"], "this is a folder"),
        ([examples / "company.yaml", "--set", "overlay.root=office-1"], "use central or first"),
        ([examples / "company.yaml", "--set", "workload.clients[0].home=random"], "write home: nearest"),
    ):
        done = surecast("plan", *arguments)
        assert done.returncode != 0
        assert said in done.stderr.replace("\n", " ")


def test_nothing_fits(surecast: Run, repository: Path) -> None:
    company = repository / "examples" / "company.yaml"
    done = surecast("plan", company, "--max-brokers", "2", "--max-delay", "1ms")
    assert done.returncode == 3
    assert "No placement keeps --max-delay 1ms; the closest has 30.45ms: peer-to-peer identity with" in done.stdout
    assert "Pareto" not in done.stdout
    data = json.loads(surecast("plan", company, "--max-brokers", "2", "--max-delay", "1ms", "--json").stdout)
    assert data["best"] is None
    assert [miss["limit"] for miss in data["misses"]] == ["max_notification_delay_s"]


def test_words_without_limits(surecast: Run, repository: Path) -> None:
    company = repository / "examples" / "company.yaml"
    done = surecast("plan", company, "--limit", "0")
    assert done.returncode == 0, done.stderr
    assert "are not overloaded" in done.stdout
    assert "limits" not in done.stdout
    assert "Pareto" not in done.stdout
    done = surecast("plan", company, "--search", "--evaluations", "50", "--limit", "0")
    assert "the limit of 50 placements (--evaluations) ended it after" in done.stdout.replace("\n", " ")
    assert "Checked against all 1023 placements" in done.stdout


def test_an_interrupted_plan_says_what_is_kept(
    surecast: Run, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    company = repository / "examples" / "company.yaml"

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(exhaustive, "judged", interrupted)
        done = surecast("plan", company, "--max-brokers", "2", "--out", "plan.parquet")
        assert done.returncode == 130
        said = "interrupted; 55 of 55 placements are kept in plan.parquet.work; the same command goes on from there"
        assert said in done.stderr
        assert surecast("plan", company, "--max-brokers", "2").returncode == 130
    assert (tmp_path / "plan.parquet.work").is_dir()
    done = surecast("plan", company, "--max-brokers", "2", "--out", "plan.parquet")
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "plan.parquet.work").exists()


def test_settings_for_a_spark_that_runs_already_are_refused(surecast: Run, repository: Path, tmp_path: Path) -> None:
    company = repository / "examples" / "company.yaml"
    done = surecast("plan", company, "--spark", "sc://127.0.0.1:9", "--conf", "spark.x=1", "--out", "results")
    assert done.returncode == 1
    assert "--conf spark.x=1: the server at sc://127.0.0.1:9 runs already" in done.stderr
    assert not (tmp_path / "results").exists()
