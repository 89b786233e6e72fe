"""Each command once as a process of its own, as a user starts it; what it says is checked in more detail elsewhere."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]
SCENARIO = """
surecast: 1
name: pair
overlay: {brokers: [{name: a}, {name: b}], links: [[a, b]]}
availability: {brokers: {mtbf: 2h, mttr: 5min}}
workload:
  topics: [t]
  publishers: [{name: p, home: a, topics: [t], rate: 1/min}]
  subscribers: [{name: s, home: b, topics: [t]}]
delivery: {fault_tolerance: {scheme: buffering}}
experiment: {duration: 1d, runs: 2}
"""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["predict", "s.yaml"], "buffering"),
        (["simulate", "s.yaml", "--scheme", "buffering", "--workers", "2"], "the same seed gives the same result"),
        (["compare", "s.yaml", "--scheme", "buffering"], "reliability"),
        (["advise", "improve", "s.yaml"], "Gain in mean reliability"),
        (["plan", "company.yaml", "--max-brokers", "2", "--algorithm", "flooding"], "55 placements, 55 cases"),
        (["sweep", "load", "company.yaml", "--steps", "3", "--picture", "a.svg"], "saved a.svg"),
        (
            ["drop", "--arrival", "2/s", "--service", "8/s", "--on", "20s", "--off", "20s", "--target", "7s"],
            "buffer 22",
        ),
        (["report", "metrics"], "reliability"),
        (["scenario", "check", "s.yaml"], "s.yaml: ok"),
        (["broker", "--check-config", "good.yaml"], "good.yaml: ok"),
    ],
)
def test_commands(surecast_process: Run, repository: Path, tmp_path: Path, arguments: list[str], says: str) -> None:
    (tmp_path / "s.yaml").write_text(SCENARIO)
    (tmp_path / "company.yaml").write_text((repository / "examples" / "company.yaml").read_text())
    (tmp_path / "good.yaml").write_text("listeners: [{port: 1884}]\n")
    done = surecast_process(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert says in done.stdout


def test_a_mistake_is_explained_without_a_traceback(surecast_process: Run) -> None:
    done = surecast_process("predict", "absent.yaml")
    assert (done.returncode, done.stdout) == (1, "")
    assert "no such file" in done.stderr
    assert "Traceback" not in done.stderr
