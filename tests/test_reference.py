"""The reference pages that are made from code say what the code says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.patience import PATIENCE_S

ROOT = Path(__file__).parent.parent


def test_the_scenario_reference_is_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "tools" / "scenario_reference.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
