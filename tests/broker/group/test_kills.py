"""Real replicas are killed under the load of real clients (P2S sections 3.3 and 3.5); nobody notices but by a pause.

`tools/group_kills.py` does it for as long as wanted, with pauses and without a majority too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.mark.parametrize(
    ("replicas", "variant", "sync", "at_once", "times"),
    [
        (3, "multi", "majority", 1, 4),
        pytest.param(3, "fast", "none", 1, 1, marks=pytest.mark.long),
        pytest.param(5, "batch", "none", 2, 1, marks=pytest.mark.long),
    ],
    ids=["the leader again and again", "fast Paxos", "batch Paxos, two of five at once"],
)
def test_killed_leaders_lose_nothing_and_change_no_order(
    kills: ModuleType,
    tmp_path: Path,
    run: Run,
    replicas: int,
    variant: str,
    sync: str,
    at_once: int,
    times: int,
) -> None:
    trial = kills.Trial(tmp_path, replicas, variant, sync)

    async def main() -> list[str]:
        await trial.start()
        for _ in range(times):
            await trial.make(kills.Trouble("kill", at_once, 0.5), after_s=0.3)
        problems: list[str] = await trial.finish()
        return problems

    try:
        problems = run(main)
    finally:
        trial.end()
    sys.stdout.write(f"\n{trial.table()}\n{trial.summary()}\n")
    assert not problems, f"{problems}\n{trial.log()}"
    history = trial.load.history
    assert len(history.acknowledged) == len(history.sent) > 300
    assert trial.zappers.lines
    assert all(outcome.gap_s > 0 for outcome in trial.outcomes)
