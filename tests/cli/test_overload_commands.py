"""Every command that answers for an overloaded system refuses: it names the component, and exits with 3."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]

ONE = """
surecast: 1
name: one
overlay: {brokers: [{name: b, capacity: CAPACITY}]}
workload:
  topics: [t]
  deadline: 1s
  publishers: [{name: p, home: b, topics: [t], rate: RATE}]
  subscribers: [{name: s, home: b, topics: [t], reliability_target: 0.99}]
delivery: {fault_tolerance: {scheme: bypass}}
"""
COMMANDS = (
    ["predict"],
    ["predict", "--scheme", "buffering"],
    ["simulate", "--runs", "2", "--duration", "1min"],
    ["simulate", "--runs", "2", "--duration", "1min", "--method", "protocol", "--scheme", "none"],
    ["compare", "--runs", "2", "--duration", "1min"],
    ["advise", "admission"],
    ["advise", "homes"],
    ["advise", "scheme"],
    ["advise", "deploy"],
    ["advise", "improve"],
)


@pytest.fixture
def overloaded(tmp_path: Path) -> Path:
    path = tmp_path / "overloaded.yaml"
    path.write_text(ONE.replace("CAPACITY", "10/s").replace("RATE", "5001/s"))
    return path


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_command_refuses_and_exits_with_3(surecast: Run, overloaded: Path, command: list[str]) -> None:
    words = command[:2] if command[0] == "advise" else command[:1]
    done = surecast(*words, overloaded, *command[len(words) :])
    assert done.returncode == 3, done.stdout + done.stderr
    assert "broker b is overloaded: 5001 events/s come, and it carries 10/s" in done.stderr
    assert "Traceback" not in done.stderr
    assert not done.stdout


def test_a_drop_question_about_an_overloaded_broker_exits_with_3(surecast: Run) -> None:
    arguments = ("--arrival", "20/s", "--service", "8/s", "--on", "20s", "--off", "20s", "--input", "16/s")
    done = surecast("drop", *arguments, "--target", "7s")
    assert done.returncode == 3, done.stdout + done.stderr
    assert "20 events/s arrive and it processes 16/s" in done.stderr


def test_a_plan_takes_an_overloaded_placement_for_one_that_does_not_fit(surecast: Run, repository: Path) -> None:
    company = repository / "examples" / "company.yaml"
    busy = ("--set", "workload.publications=100000/s", "--max-brokers", "2", "--algorithm", "flooding")
    done = surecast("plan", company, *busy)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
