"""Placement on the command line: tables, JSON, files, pages, and clear refusals."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq

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
    assert data["constraints"] == {"max_brokers": 3}
    assert data["best"]["headroom_factor"] == max(case["headroom_factor"] for case in data["front"])
    assert set(data["best_by_algorithm"]) >= {"flooding", "hierarchical merging"}


def test_refusals(surecast: Run, repository: Path) -> None:
    examples = repository / "examples"
    for arguments, said in (
        ([examples / "company.yaml", "--out", "plan.csv"], "end its name in .parquet"),
        ([examples / "company.yaml", "--max-delay", "soon"], "--max-delay"),
        ([examples / "company.yaml", "--set", "overlay.root=office-1"], "use central or first"),
        ([examples / "company.yaml", "--set", "workload.clients[0].home=random"], "write home: nearest"),
    ):
        done = surecast("plan", *arguments)
        assert done.returncode != 0
        assert said in done.stderr.replace("\n", " ")
