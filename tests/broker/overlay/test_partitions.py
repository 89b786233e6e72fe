"""A group in the middle of an overlay in network namespaces, under real partitions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.patience import PATIENCE_S

NAMESPACES_MISSING = 3


def test_a_group_in_the_middle_keeps_its_promises_under_real_partitions(repository: Path) -> None:
    command = [sys.executable, str(repository / "tools" / "overlay_soak.py"), "--namespaces", "--seconds", "8"]
    soak = subprocess.run(
        [*command, "--seed", "2"], capture_output=True, text=True, timeout=60 + 4 * PATIENCE_S, check=False
    )
    if soak.returncode == NAMESPACES_MISSING:
        pytest.skip(soak.stdout.strip())
    assert soak.returncode == 0, soak.stdout + soak.stderr
    assert "leader cut off" in soak.stdout
