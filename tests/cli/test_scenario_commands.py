"""The scenario commands as a user meets them: files, messages and exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.patience import PATIENCE_S

from surecast.scenario import TEMPLATES

Run = Callable[..., subprocess.CompletedProcess[str]]
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("template", TEMPLATES)
def test_new_check_show(template: str, tmp_path: Path, surecast: Run) -> None:
    made = surecast("scenario", "new", "my.yaml", "--template", template)
    assert made.returncode == 0, made.stderr
    checked = surecast("scenario", "check", "my.yaml")
    assert (checked.returncode, checked.stdout) == (0, "my.yaml: ok\n")
    shown = surecast("scenario", "show", "my.yaml", "--json")
    assert json.loads(shown.stdout)["name"] == template


def test_new_refuses_to_overwrite(tmp_path: Path, surecast: Run) -> None:
    (tmp_path / "my.yaml").write_text("precious")
    refused = surecast("scenario", "new", "my.yaml")
    assert refused.returncode == 1
    assert "add --force" in refused.stderr
    assert (tmp_path / "my.yaml").read_text() == "precious"
    assert surecast("scenario", "new", "my.yaml", "--force").returncode == 0
    assert "minimal" in (tmp_path / "my.yaml").read_text()


def test_new_lists_templates_and_refuses_unknown_ones(tmp_path: Path, surecast: Run) -> None:
    assert "internet" in surecast("scenario", "new").stdout
    assert set(json.loads(surecast("scenario", "new", "--json").stdout)) == set(TEMPLATES)
    refused = surecast("scenario", "new", "x.yaml", "-t", "nope")
    assert refused.returncode == 1
    assert "there are: minimal" in refused.stderr
    assert not (tmp_path / "x.yaml").exists()
    unwritable = surecast("scenario", "new", "no/such/x.yaml")
    assert unwritable.returncode == 1
    assert "cannot be written" in unwritable.stderr


def test_every_example_passes_the_check(tmp_path: Path, surecast: Run) -> None:
    examples = sorted((ROOT / "examples").glob("*.yaml"))
    done = surecast("scenario", "check", *examples)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(": ok") == len(examples)


def test_check_reports_all_problems_and_goes_on(tmp_path: Path, surecast: Run) -> None:
    broken = ROOT / "tests/scenario/broken/together.yaml"
    good = ROOT / "examples/dropping.yaml"
    done = surecast("scenario", "check", broken, good)
    assert done.returncode == 1
    assert f"{broken}:4: overlay.brokers[0].capacity: '-1/s' is negative; write a rate" in done.stderr
    assert done.stderr.count("together.yaml:") == 3
    assert f"{good}: ok" in done.stdout
    as_json = surecast("scenario", "check", broken, good, "--json")
    assert as_json.returncode == 1
    first, second = json.loads(as_json.stdout)
    assert (first["ok"], second["ok"], len(first["problems"])) == (False, True, 3)
    assert first["problems"][0]["line"] == 4


def test_missing_file(tmp_path: Path, surecast: Run) -> None:
    done = surecast("scenario", "show", "absent.yaml")
    assert done.returncode == 1
    assert done.stderr == "absent.yaml: there is no such file; start one with: surecast scenario new\n"


def test_set_changes_a_field(tmp_path: Path, surecast: Run) -> None:
    file = ROOT / "examples/reliability-tree.yaml"
    done = surecast("scenario", "show", file, "--set", "overlay.brokers[0].count=4", "--json")
    assert len(json.loads(done.stdout)["brokers"]) == 4
    for wrong, message in (
        ("seed", "write --set FIELD=VALUE"),
        ("a[=3", "not a field name"),
        ("overlay.brokers=5", "should be a list"),
    ):
        refused = surecast("scenario", "show", file, "--set", wrong)
        assert refused.returncode == 1
        assert message in refused.stderr


def test_drawings(tmp_path: Path, surecast: Run) -> None:
    file = ROOT / "examples/company.yaml"
    done = surecast("scenario", "show", file, "--draw", "a.html", "--draw", "b.svg", "--draw", "c.png")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "a.html").read_text(encoding="utf-8").lower().startswith("<!doctype html>")
    assert "<svg" in (tmp_path / "b.svg").read_text(encoding="utf-8")
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    refused = surecast("scenario", "show", file, "--draw", "a.bmp")
    assert refused.returncode == 1
    assert ".svg" in refused.stderr


def test_schema(tmp_path: Path, surecast: Run) -> None:
    printed = surecast("scenario", "schema")
    assert json.loads(printed.stdout)["title"] == "Surecast scenario"
    surecast("scenario", "schema", "--out", "s.json")
    assert json.loads((tmp_path / "s.json").read_text()) == json.loads(printed.stdout)


def test_a_closed_pipe_is_no_error(tmp_path: Path, surecast: Run) -> None:
    command = f"{Path(sys.executable).parent / 'surecast'} scenario schema | head -1"
    done = subprocess.run(
        command, shell=True, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.stdout == "{\n"
    assert "Traceback" not in done.stderr
