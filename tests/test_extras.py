"""Extras: the base runs brokers, groups and clients; whatever needs more says in one line what to install."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.patience import PATIENCE_S

from surecast.extras import EXTRA_OF

ROOT = Path(__file__).parent.parent
# Runs a command as where some packages were never installed.
BLOCKED = """
import sys

blocked = sys.argv[1].split(",")

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocker())
from surecast.cli import main

for command in sys.argv[2:]:
    sys.argv = ["surecast", *command.split("\\n")]
    try:
        main()
    except SystemExit as stop:
        if isinstance(stop.code, str):  # Python ends with 1 then, and prints it
            print(stop.code, file=sys.stderr)
        code = 1 if isinstance(stop.code, str) else stop.code
sys.exit(code)
"""


def run_without(packages: list[str], *commands: list[str]) -> subprocess.CompletedProcess[str]:
    """Runs commands one after the other in a process; returns what all wrote, and the exit code of the last."""
    command = [sys.executable, "-c", BLOCKED, ",".join(packages), *("\n".join(each) for each in commands)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def packages_of(extra: str) -> list[str]:
    return [package for package, its_extra in EXTRA_OF.items() if its_extra == extra]


def test_each_package_of_an_extra_has_its_remedy() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {
        re.split(r"[\[<>=;]", requirement)[0]: extra
        for extra, requirements in project["optional-dependencies"].items()
        for requirement in requirements
        if extra != "dev" and not requirement.startswith("surecast[")
    }
    assert declared == EXTRA_OF
    base = {re.split(r"[\[<>=;]", requirement)[0] for requirement in project["dependencies"]}
    assert not base & set(EXTRA_OF)


def test_a_command_that_needs_models_says_so_in_one_line() -> None:
    commands = (
        ["predict", "minimal.yaml"],
        ["simulate", "minimal.yaml"],
        ["run", "minimal.yaml"],
        ["scenario", "check", "minimal.yaml"],
        ["drop", "--arrival", "2/s", "--service", "8/s", "--on", "20s", "--off", "20s", "--target", "7s"],
        ["zap", "stats", "minimal.yaml"],
    )
    done = run_without(packages_of("models"), *commands)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert len(lines) == len(commands)
    for line in lines:
        assert re.fullmatch(
            r"error: this needs \w+, which is not installed; run: pip install 'surecast\[models\]'", line
        )


def test_a_picture_needs_the_extra_of_pictures(tmp_path: Path) -> None:
    file, picture = tmp_path / "minimal.yaml", tmp_path / "minimal.svg"
    file.write_text((ROOT / "src/surecast/scenario/templates/minimal.yaml").read_text())
    done = run_without(packages_of("pictures"), ["scenario", "show", str(file), "--draw", str(picture)])
    assert done.returncode == 1
    assert (
        done.stderr == "error: this needs matplotlib, which is not installed; run: pip install 'surecast[pictures]'\n"
    )
    assert not picture.exists()


def test_the_pipeline_needs_the_extra_of_spark(tmp_path: Path) -> None:
    done = run_without(packages_of("spark"), ["pipeline", "run", "-i", str(tmp_path), "-o", str(tmp_path / "out")])
    assert done.returncode == 1
    assert done.stderr == "error: this needs pyspark, which is not installed; run: pip install 'surecast[spark]'\n"


def test_another_missing_module_is_a_defect_and_shown_as_one() -> None:
    done = run_without(["yaml"], ["predict", "minimal.yaml"])
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "No module named 'yaml'" in done.stderr
