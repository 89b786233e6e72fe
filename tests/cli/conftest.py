"""How tests call the command line: in this process, which is cheap, or as a real process, as a user does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.patience import PATIENCE_S

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def surecast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_here: Run) -> Run:
    """Runs `surecast ...` in an empty folder, in this process."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return run_here([str(argument) for argument in arguments])

    return run


@pytest.fixture
def surecast_process(tmp_path: Path) -> Run:
    """Runs `surecast ...` in an empty folder, as a process of its own."""

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        environment = dict(os.environ, COLUMNS="110", NO_COLOR="1")
        command = [str(Path(sys.executable).parent / "surecast"), *map(str, arguments)]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )

    return run
