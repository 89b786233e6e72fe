"""Reports and comparisons on the command line."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from surecast.report import QoSReport, ReportBuilder, load, save

Run = Callable[..., subprocess.CompletedProcess[str]]


def report(source: str, shift: float = 0.0) -> QoSReport:
    builder = ReportBuilder("shop", source, seed=1)
    names = [f"s{i}" for i in range(30)]
    values = [0.9 + i / 1000 + shift * (i == 7) for i in range(30)]
    builder.add_many("subscriber", names, "reliability", values, how="exact", variant="bypass")
    return builder.build()


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    return save(report("predicted"), tmp_path / "a.json"), save(report("simulated", -0.05), tmp_path / "b.parquet")


def test_show_and_convert(surecast: Run, files: tuple[Path, Path], tmp_path: Path) -> None:
    shown = surecast("report", "show", "a.json", "--limit", "3")
    assert shown.returncode == 0, shown.stderr
    assert "and 27 more" in shown.stdout
    as_json = json.loads(surecast("report", "show", "b.parquet", "--json").stdout)
    assert len(as_json["figures"]) == 30
    assert surecast("report", "convert", "a.json", "c.parquet").returncode == 0
    assert load(tmp_path / "c.parquet") == load(tmp_path / "a.json")


def test_compare_finds_the_disagreement_and_draws_it(surecast: Run, files: tuple[Path, Path], tmp_path: Path) -> None:
    done = surecast("compare", "a.json", "b.parquet", "--picture", "s.png", "--picture", "s.html", "--save", "d.json")
    assert done.returncode == 0, done.stderr
    assert "s7" in done.stdout
    assert (tmp_path / "s.png").stat().st_size > 5000
    assert (tmp_path / "s.html").exists()
    rows = json.loads((tmp_path / "d.json").read_text())["rows"]
    assert rows[0]["name"] == "s7"
    first = json.loads(surecast("compare", "a.json", "b.parquet", "--json", "--limit", "1").stdout)["rows"]
    assert [row["name"] for row in first] == ["s7"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["report", "show", "absent.json"], "absent.json"),
        (["report", "show", "a.json", "--scope", "brokr"], "brokr"),
        (["report", "show", "a.json", "--variant", "bypas"], "bypas"),
        (["report", "convert", "a.json", "c.csv"], ".parquet"),
        (["compare", "a.json"], "second report"),
        (["compare", "a.json", "b.parquet", "--picture", "x.gif"], ".svg"),
        (["compare", "a.json", "b.parquet", "--metric", "utilisation", "--picture", "x.png"], "utilisation"),
    ],
)
def test_mistakes_are_explained(surecast: Run, files: tuple[Path, Path], arguments: list[str], message: str) -> None:
    done = surecast(*arguments)
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_metrics(surecast: Run) -> None:
    assert "reliability" in surecast("report", "metrics").stdout
    listed = json.loads(surecast("report", "metrics", "--json").stdout)
    assert {"name", "scopes", "unit", "meaning"} <= set(listed[0])
