"""A short soak: forty clients, random breaks, and a broker that is killed. `tools/broker_soak.py` does it for hours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).parents[2] / "tools" / "broker_soak.py"


def test_a_short_soak_keeps_all_promises() -> None:
    options = ["--minutes", "0.1", "--clients", "40", "--seed", "3", "--rate", "150"]
    options += ["--kill-interval", "2", "--kills", "2", "--online", "3"]
    done = subprocess.run([sys.executable, TOOL, *options], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("all promises kept\n")
    assert done.stdout.count("killed and back") >= 2
