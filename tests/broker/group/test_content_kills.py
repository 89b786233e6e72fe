"""Replicas that are killed in turn decide about hostile payloads as before; a careless one is found out."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

Run = Callable[..., Any]


def test_filters_under_kills_and_hostile_payloads(content_kills: ModuleType, tmp_path: Path, run: Run) -> None:
    trial = content_kills.Trial(tmp_path)

    async def main() -> list[str]:
        await trial.start()
        await trial.kill_in_turn(time.monotonic() + 60)
        problems: list[str] = await trial.finish()
        return problems

    try:
        problems = run(main)
    finally:
        trial.end()
    sys.stdout.write(f"\n{trial.summary()}\n")
    assert not problems, f"{problems}\n{trial.log()}"
    assert trial.kills == 3
    assert len(trial.history.acknowledged) == len(trial.history.sent) > 300
    assert all(trial.history.received.values()), "every filter took something"


@pytest.mark.long
def test_a_careless_replica_is_found_out(content_kills: ModuleType, tmp_path: Path, run: Run) -> None:
    trial = content_kills.Trial(tmp_path, careless=2)

    async def main() -> list[str]:
        await trial.start()
        await trial.kill_in_turn(0.0)  # none
        problems: list[str] = await trial.finish()
        return problems

    try:
        problems = run(main)
    finally:
        trial.end()
    assert any("replica 2 differs from the majority" in line for line in problems), problems
    assert "discards its state" in (tmp_path / "2.log").read_text()
