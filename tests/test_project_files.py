"""The files around the code: checks before a commit, hosted tests, templates. Nothing in them fetches tools."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parent.parent
TEMPLATES = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def test_hooks_are_local_and_run_the_tools_of_the_environment() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    hooks = [hook for repository in config["repos"] for hook in repository["hooks"]]
    assert {repository["repo"] for repository in config["repos"]} == {"local"}
    assert {hook["language"] for hook in hooks} == {"system"}
    assert {Path(hook["entry"].split()[0]).name for hook in hooks} == {"ruff", "mypy", "lint-imports"}
    assert all(hook["entry"].startswith(".venv/bin/") for hook in hooks)


def test_pre_commit_accepts_the_configuration() -> None:
    command = [sys.executable, "-m", "pre_commit", "validate-config", str(ROOT / ".pre-commit-config.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_hosted_tests_only_call_the_script() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    assert [step["run"] for step in steps if "run" in step] == [".ci/run"]
    assert [step["uses"].split("@")[0] for step in steps if "uses" in step] == ["actions/checkout"]
    assert workflow["permissions"] == {"contents": "read"}
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111


@pytest.mark.parametrize("path", [path for path in TEMPLATES if path.stem != "config"], ids=lambda path: path.stem)
def test_an_issue_template_asks_for_what_it_needs(path: Path) -> None:
    template = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert template["name"]
    assert template["description"]
    fields = [field for field in template["body"] if field["type"] != "markdown"]
    assert len({field["id"] for field in fields}) == len(fields)
    assert any(field.get("validations", {}).get("required") for field in fields)


def test_every_tool_that_writes_a_page_is_run_by_make_references() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    listed = re.search(r"^REFERENCES := (.*)$", makefile, re.MULTILINE)
    assert listed is not None
    tools = {path.stem for path in (ROOT / "tools").glob("*_reference.py")} | {"architecture"}
    assert set(listed[1].split()) == tools
