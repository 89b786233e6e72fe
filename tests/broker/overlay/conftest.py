"""Overlays of brokers for tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

Run = Callable[..., CompletedProcess[str]]


@pytest.fixture
def surecast_overlay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_here: Run) -> Run:
    """Runs `surecast overlay ...` in an empty folder, in this process."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str | Path) -> CompletedProcess[str]:
        return run_here(["overlay", *map(str, arguments)])

    return run
