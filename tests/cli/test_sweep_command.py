"""Sweeps on the command line: tables, JSON, files, pages, pictures, and clear refusals."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_load_with_all_its_files(surecast: Run, repository: Path, tmp_path: Path) -> None:
    done = surecast(
        "sweep", "load", repository / "examples" / "company.yaml", "--steps", "6", "--to", "150000",
        "--out", "load.parquet", "--page", "load.html", "--picture", "load.svg",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "It saturates at 93,991 subscriptions (broker office-5)" in done.stdout
    assert "One broker per domain: 32 placements" in done.stdout
    table = pq.read_table(tmp_path / "load.parquet")
    assert table.num_rows % 34 == 0
    page = (tmp_path / "load.html").read_text()
    assert "most robust with one broker per domain" in page
    assert (tmp_path / "load.svg").read_text().startswith("<?xml")


def test_algorithms(surecast: Run, repository: Path, tmp_path: Path) -> None:
    done = surecast(
        "sweep", "algorithms", repository / "examples" / "company.yaml", "--steps", "3", "--locality", "0.2",
        "--locality", "0.8", "--algorithm", "peer-to-peer merging", "--algorithm", "hierarchical merging",
        "--page", "a.html", "--picture", "a.png", "--out", "a.parquet", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert data["localities"] == [0.2, 0.8]
    assert data["outcomes"] == ["peer-to-peer merging", "hierarchical merging", "several alike", "all overloaded"]
    assert [sum(counts) for place in data["counts"] for counts in place] == [1023] * 8
    assert data["share_by_load"][-1][-1] == 1.0
    assert pq.read_table(tmp_path / "a.parquet").num_rows == 2 * 4 * 4
    assert "Between the localities computed" in (tmp_path / "a.html").read_text()
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["load", "--out", "a.csv"], "end its name in .parquet"),
        (["load", "--picture", "a.gif"], "end its name in .svg or .png"),
        (["algorithms", "--page", "nowhere/a.html"], "the folder nowhere does not exist"),
        (["algorithms", "--from", "100", "--to", "50"], "--to 50 must be above --from 100"),
        (["algorithms", "--algorithm", "best"], "there is no algorithm 'best'"),
    ],
)
def test_refusals(surecast: Run, repository: Path, arguments: list[str], said: str) -> None:
    command, *options = arguments
    done = surecast("sweep", command, repository / "examples" / "company.yaml", *options)
    assert done.returncode != 0
    assert said in done.stderr.replace("\n", " ")
