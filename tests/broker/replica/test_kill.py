"""Real replicas that are killed and stopped under load. `tools/replica_kills.py` does it for as long as wanted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).parents[3] / "tools" / "replica_kills.py"


def test_killed_and_stopped_replicas_keep_all_promises() -> None:
    options = ["--seconds", "10", "--seed", "4", "--interval", "0.5", "--clients", "3"]
    done = subprocess.run([sys.executable, TOOL, *options], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("all promises kept\n")
    assert done.stdout.count("without an answer") >= 1
