"""The scenario commands as a user meets them: real processes, files and exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from surecast.scenario import TEMPLATES

ROOT = Path(__file__).parents[2]


def surecast(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ, COLUMNS="110", NO_COLOR="1")
    command = [str(Path(sys.executable).parent / "surecast"), *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("template", TEMPLATES)
def test_new_check_show(template: str, tmp_path: Path) -> None:
    made = surecast("scenario", "new", "my.yaml", "--template", template, cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    checked = surecast("scenario", "check", "my.yaml", cwd=tmp_path)
    assert (checked.returncode, checked.stdout) == (0, "my.yaml: ok\n")
    shown = surecast("scenario", "show", "my.yaml", "--json", cwd=tmp_path)
    assert json.loads(shown.stdout)["name"] == template


def test_new_refuses_to_overwrite(tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text("precious")
    refused = surecast("scenario", "new", "my.yaml", cwd=tmp_path)
    assert refused.returncode == 1
    assert "add --force" in refused.stderr
    assert (tmp_path / "my.yaml").read_text() == "precious"
    assert surecast("scenario", "new", "my.yaml", "--force", cwd=tmp_path).returncode == 0
    assert "minimal" in (tmp_path / "my.yaml").read_text()


def test_new_lists_templates_and_refuses_unknown_ones(tmp_path: Path) -> None:
    assert "internet" in surecast("scenario", "new", cwd=tmp_path).stdout
    assert set(json.loads(surecast("scenario", "new", "--json", cwd=tmp_path).stdout)) == set(TEMPLATES)
    refused = surecast("scenario", "new", "x.yaml", "-t", "nope", cwd=tmp_path)
    assert refused.returncode == 1
    assert "there are: minimal" in refused.stderr
    assert not (tmp_path / "x.yaml").exists()
    unwritable = surecast("scenario", "new", "no/such/x.yaml", cwd=tmp_path)
    assert unwritable.returncode == 1
    assert "cannot be written" in unwritable.stderr


def test_every_example_passes_the_check(tmp_path: Path) -> None:
    done = surecast("scenario", "check", *sorted((ROOT / "examples").glob("*.yaml")), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(": ok") == 6


def test_check_reports_all_problems_and_goes_on(tmp_path: Path) -> None:
    broken = ROOT / "tests/scenario/broken/together.yaml"
    good = ROOT / "examples/dropping.yaml"
    done = surecast("scenario", "check", broken, good, cwd=tmp_path)
    assert done.returncode == 1
    assert f"{broken}:4: overlay.brokers[0].capacity: '-1/s' is negative; write a rate" in done.stderr
    assert done.stderr.count("together.yaml:") == 3
    assert f"{good}: ok" in done.stdout
    as_json = surecast("scenario", "check", broken, good, "--json", cwd=tmp_path)
    assert as_json.returncode == 1
    first, second = json.loads(as_json.stdout)
    assert (first["ok"], second["ok"], len(first["problems"])) == (False, True, 3)
    assert first["problems"][0]["line"] == 4


def test_missing_file(tmp_path: Path) -> None:
    done = surecast("scenario", "show", "absent.yaml", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr == "absent.yaml: there is no such file; start one with: surecast scenario new\n"


def test_set_changes_a_field(tmp_path: Path) -> None:
    file = ROOT / "examples/reliability-tree.yaml"
    done = surecast("scenario", "show", file, "--set", "overlay.brokers[0].count=4", "--json", cwd=tmp_path)
    assert len(json.loads(done.stdout)["brokers"]) == 4
    for wrong, message in (
        ("seed", "write --set FIELD=VALUE"),
        ("a[=3", "not a field name"),
        ("overlay.brokers=5", "should be a list"),
    ):
        refused = surecast("scenario", "show", file, "--set", wrong, cwd=tmp_path)
        assert refused.returncode == 1
        assert message in refused.stderr


def test_drawings(tmp_path: Path) -> None:
    file = ROOT / "examples/company.yaml"
    done = surecast("scenario", "show", file, "--draw", "a.html", "--draw", "b.svg", "--draw", "c.png", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "a.html").read_text(encoding="utf-8").lower().startswith("<!doctype html>")
    assert "<svg" in (tmp_path / "b.svg").read_text(encoding="utf-8")
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    refused = surecast("scenario", "show", file, "--draw", "a.bmp", cwd=tmp_path)
    assert refused.returncode == 1
    assert ".svg" in refused.stderr


def test_schema(tmp_path: Path) -> None:
    printed = surecast("scenario", "schema", cwd=tmp_path)
    assert json.loads(printed.stdout)["title"] == "Surecast scenario"
    surecast("scenario", "schema", "--out", "s.json", cwd=tmp_path)
    assert json.loads((tmp_path / "s.json").read_text()) == json.loads(printed.stdout)


def test_a_closed_pipe_is_no_error(tmp_path: Path) -> None:
    command = f"{Path(sys.executable).parent / 'surecast'} scenario schema | head -1"
    done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "{\n"
    assert "Traceback" not in done.stderr
