"""Ctrl-C and SIGTERM end a command at any moment: one line, no traceback, no process and no file left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.patience import PATIENCE_S

SCENARIO = """
surecast: 1
name: long
overlay: {brokers: [{name: b, count: 4}], links: {build: ring}}
availability: {brokers: {mtbf: 2h, mttr: 5min}, links: {mtbf: 1h, mttr: 1min}}
workload:
  topics: [t]
  deadline: 2min
  publishers: [{name: p, home: b-1, topics: [t], rate: 5/s}]
  subscribers: [{name: s, count: 4, home: b-3, topics: [t]}]
delivery: {fault_tolerance: {scheme: buffering, retransmission_interval: 5s}}
experiment: {duration: 100d, runs: 10000}
"""
STARTED = "import sys; from surecast.cli import main; print('started', flush=True); main()"


def interrupted(folder: Path, arguments: list[str], after_s: float, number: signal.Signals) -> tuple[int, str, str]:
    """Starts a command, interrupts it as a terminal does, with all its processes, and returns how it ended."""
    (folder / "long.yaml").write_text(SCENARIO)
    process = subprocess.Popen(
        [sys.executable, "-c", STARTED, *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        time.sleep(after_s)
        if number == signal.SIGINT:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        out, error = process.communicate(timeout=PATIENCE_S)
        assert processes_of(process.pid) == []
    finally:
        if processes_of(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return process.returncode, out, error


def processes_of(group: int) -> list[int]:
    """The processes of a process group that still run; the tracker of multiprocessing ends by itself."""
    for _ in range(50):
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[2]) == group and fields[0] != "Z":
                found.append(int(stat.parent.name))
        if not found:
            return []
        time.sleep(0.1)
    return found


SIMULATE = ["simulate", "long.yaml", "--out", "report.json"]
# Python starts, modules are imported, kernels are loaded, and then it computes. Both signals take the same way.
MOMENTS = [
    *((signal.SIGINT, after_s) for after_s in (0.01, 0.11, 0.37, 1.5)),
    *((signal.SIGTERM, after_s) for after_s in (0.05, 0.9)),
]


@pytest.mark.parametrize(("number", "after_s"), MOMENTS)
def test_a_simulation_is_interrupted_at_any_moment(tmp_path: Path, number: signal.Signals, after_s: float) -> None:
    status, out, error = interrupted(tmp_path, SIMULATE, after_s, number)
    assert (status, out, error) == (128 + number, "", "interrupted\n")
    assert [path.name for path in tmp_path.iterdir()] == ["long.yaml"]


@pytest.mark.parametrize("after_s", [1.0, 2.6])
def test_its_workers_end_with_it_and_say_nothing(tmp_path: Path, after_s: float) -> None:
    status, out, error = interrupted(tmp_path, [*SIMULATE, "--workers", "3"], after_s, signal.SIGINT)
    assert (status, out, error) == (130, "", "interrupted\n")
    assert [path.name for path in tmp_path.iterdir()] == ["long.yaml"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["compare", "long.yaml"],
        ["simulate", "long.yaml", "--method", "protocol"],
        ["advise", "deploy", "long.yaml", "--set", "delivery.fault_tolerance.scheme=bypass"],
        ["predict", "long.yaml"],
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_other_commands_are_interrupted_while_they_import(tmp_path: Path, arguments: list[str]) -> None:
    status, _, error = interrupted(tmp_path, arguments, 0.25, signal.SIGINT)
    assert (status, error) == (130, "interrupted\n")


def test_a_server_that_has_stopped_ignores_further_signals() -> None:
    """As `surecast broker` does, also while Python itself ends: a second SIGTERM must not change its exit code."""
    code = (
        "import signal, sys, atexit\n"
        "from surecast import cli\n"
        "atexit.register(lambda: signal.raise_signal(signal.SIGTERM))\n"
        "def stopped():\n"
        "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "    raise SystemExit(0)\n"
        "with cli._interrupts():\n"
        "    stopped()\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=PATIENCE_S).returncode == 0
