"""The tool that attacks a real broker: its verdict is good for this broker, and bad for one without a repair."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.patience import PATIENCE_S

TOOL = Path(__file__).parents[2] / "tools" / "fault_hostile_costs.py"


def run(*arguments: str) -> tuple[int, dict[str, Any]]:
    ended = subprocess.run(
        [sys.executable, str(TOOL), "--json", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ended.stdout, ended.stderr
    return ended.returncode, json.loads(ended.stdout)


def test_attacks_cost_others_nothing() -> None:
    code, answer = run("--seconds", "1", "--attacks", "properties,silent-http", "--busy", "2")
    assert code == 0, answer
    assert [one["attack"] for one in answer["attacks"]] == ["properties", "silent-http"]
    assert all(one["round_trips"] for one in answer["attacks"])


@pytest.mark.long
def test_a_broker_that_reads_properties_in_quadratic_time_is_noticed() -> None:
    code, answer = run("--seconds", "5", "--attacks", "properties", "--mutation", "quadratic-properties")
    assert code == 1
    assert answer["attacks"][0]["failures"]


@pytest.mark.long
@pytest.mark.parametrize("kind", [(), ("--group",)], ids=["single", "group"])
def test_packets_without_end_and_without_a_limit_are_noticed(kind: tuple[str, ...]) -> None:
    mutation = ("--mutation", "unfinished-without-end")
    code, answer = run("--seconds", "10", "--attacks", "unfinished", *mutation, *kind)
    assert code == 1
    assert "memory grew" in answer["attacks"][0]["failures"][0]
