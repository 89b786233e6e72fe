"""Commands as processes of their own, as a user starts them; what they say is checked in more detail elsewhere.

Those that import most are run every time, all others with `make test-long`.
"""

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


COMMANDS = [
    (["predict", "s.yaml"], "buffering"),
    (["simulate", "s.yaml", "--scheme", "buffering", "--workers", "2"], "the same seed gives the same result"),
    (["sweep", "load", "company.yaml", "--steps", "3", "--picture", "a.svg"], "saved a.svg"),
    (["scenario", "check", "s.yaml"], "s.yaml: ok"),
    (["broker", "--check-config", "good.yaml"], "good.yaml: ok"),
    (["compare", "s.yaml", "--scheme", "buffering"], "reliability"),
    (["advise", "improve", "s.yaml"], "Gain in mean reliability"),
    (["plan", "company.yaml", "--max-brokers", "2", "--algorithm", "flooding"], "55 placements, 55 cases"),
    (["drop", "--arrival", "2/s", "--service", "8/s", "--on", "20s", "--off", "20s", "--target", "7s"], "buffer 22"),
    (["report", "metrics"], "reliability"),
]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [pytest.param(*case, marks=[] if number < 5 else [pytest.mark.long]) for number, case in enumerate(COMMANDS)],
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
