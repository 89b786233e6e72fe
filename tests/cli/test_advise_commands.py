"""Advice on the command line: tables, JSON, pictures, and clear refusals."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]

# Five brokers in a ring; "easy" lives where its topic is published, nobody publishes what "idle" wants.
SCENARIO = """
surecast: 1
name: ring
seed: 5
overlay:
  brokers: [{name: b, count: 5}]
  links: [[b-1, b-2], [b-2, b-3], [b-3, b-4], [b-4, b-5], [b-5, b-1]]
availability:
  brokers: {availability: 0.95, period: 2d}
  links: {availability: 0.99, period: 5h}
workload:
  topics: [t, u, silent]
  deadline: 1h
  publishers: [{name: p, home: b-1, topics: [t], rate: 1/min}, {name: q, home: b-3, topics: [u], rate: 1/min}]
  subscribers:
    - {name: easy, home: b-1, topics: [t]}
    - {name: far, count: 2, home: b-3, topics: [t]}
    - {name: both, home: b-4, topics: [t, u]}
    - {name: idle, count: 3, home: b-5, topics: [silent]}
delivery: {fault_tolerance: {scheme: bypass-buffering, refresh: end-to-end, refresh_interval: 1s}}
targets: {reliability: 0.916}
"""
COMMANDS = ("admission", "homes", "improve", "scheme", "deploy")


@pytest.fixture(autouse=True)
def scenario(tmp_path: Path) -> None:
    (tmp_path / "ring.yaml").write_text(SCENARIO)
    without = SCENARIO.replace("targets: {reliability: 0.916}\n", "")
    (tmp_path / "aimless.yaml").write_text(without)


@pytest.fixture
def advise(surecast: Run) -> Callable[..., str]:
    """What a command prints where it succeeds."""

    def run(*arguments: str) -> str:
        done = surecast("advise", *arguments)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        return done.stdout

    return run


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("admission", ["2 of 4 subscribers can be promised", "nobody publishes its topics", "fits at home"]),
        ("homes", ["of 7 subscribers should move", "far-1", "predicted then"]),
        ("improve", ["Gain in mean reliability", "b-1", "broker", "link"]),
        ("scheme", ["messages per event", "periodic-subscription", "bypass-buffering", "of 4"]),
        ("deploy", ["subscribers below target", "nothing", "a link between", "All targets are met"]),
    ],
)
def test_each_command_prints_a_table_and_says_what_it_drew(
    command: str, says: list[str], advise: Callable[..., str], tmp_path: Path
) -> None:
    printed = advise(command, "ring.yaml", "--picture", "a.png", "--picture", "a.html")
    for text in says:
        assert text in printed
    assert printed.endswith("drew a.png\ndrew a.html\n")
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"
    assert '<div class="plot" id="figure-1"' in (tmp_path / "a.html").read_text()


@pytest.mark.parametrize("command", COMMANDS)
def test_json_stays_one_document_beside_a_picture(command: str, advise: Callable[..., str], tmp_path: Path) -> None:
    assert json.loads(advise(command, "ring.yaml", "--json", "--picture", "a.svg"))
    assert "<svg" in (tmp_path / "a.svg").read_text()


def test_admission_lists_everyone_with_a_target(advise: Callable[..., str]) -> None:
    promises: list[dict[str, Any]] = json.loads(advise("admission", "ring.yaml", "--json"))
    found = {promise["subscriber"]: promise for promise in promises}
    assert found["easy"]["met"]
    assert found["idle-1"]["reliability"] is None
    assert not found["idle-1"]["met"]
    assert all(p["met"] == (p["reliability"] is not None and p["reliability"] >= 0.916) for p in promises)


def test_homes_keep_to_the_limit_and_json_has_no_number_where_there_is_none(advise: Callable[..., str]) -> None:
    # Three cannot stay at one broker, so some that nobody publishes to must move.
    answer = json.loads(advise("homes", "ring.yaml", "--most", "2", "--json", "--picture", "a.svg"))
    idle = [move for move in answer["moves"] if move["subscriber"].startswith("idle")]
    assert idle
    assert all(move["reliability_after"] is None for move in idle)
    assert answer["mean_after"] >= 0.9


def test_limit_shortens_the_table(advise: Callable[..., str]) -> None:
    assert "... and 9 more" in advise("improve", "ring.yaml", "--limit", "1")


def test_commands_that_need_no_target_do_without(advise: Callable[..., str]) -> None:
    printed = {command: advise(command, "aimless.yaml", "--picture", "a.svg") for command in COMMANDS[1:4]}
    assert "no targets" in printed["scheme"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["admission", "aimless.yaml"], "no subscriber has a reliability target"),
        (["deploy", "aimless.yaml"], "no subscriber has a reliability target"),
        (["deploy", "ring.yaml", "--set", "delivery.fault_tolerance.scheme=buffering"], "new links change nothing"),
        (["admission", "ring.yaml", "--set", "delivery.fault_tolerance.scheme=none"], "nothing can be promised"),
        (["homes", "ring.yaml", "--most", "1"], "7 subscribers do not fit"),
        *(([command, "absent.yaml"], "absent.yaml") for command in COMMANDS),
        *(([command, "ring.yaml", "--picture", "a.gif"], ".html, .svg, .png") for command in COMMANDS),
        (["scheme", "ring.yaml", "--picture", "absent/a.png"], "does not exist"),
    ],
)
def test_refusals_say_what_to_do(arguments: list[str], says: str, surecast: Run, tmp_path: Path) -> None:
    done = surecast("advise", *arguments)
    assert done.returncode == 1
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert {path.name for path in tmp_path.iterdir()} == {"ring.yaml", "aimless.yaml"}
