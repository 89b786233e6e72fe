"""The store of a replica on a disk that loses power, again and again: what was confirmed is there, and nothing else."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path

import pytest
from tests.broker.replica.power import Disk, PowerLoss

from surecast.broker.replica import segment_store
from surecast.broker.replica.segment_store import SegmentStore
from surecast.broker.store import Operation, StoreError

LIVES = 8


def applied(state: dict[bytes, bytes], changes: list[Operation]) -> dict[bytes, bytes]:
    after = dict(state)
    for key, value in changes:
        if value is None:
            after.pop(key, None)
        else:
            after[key] = value
    return after


def live_and_die(folder: Path, seed: int, patch: pytest.MonkeyPatch) -> dict[str, int]:
    """A store in several lives; how much of what happened."""
    draw = random.Random(seed)
    errors, segment_bytes = draw.choice((0.0, 0.0, 0.01)), draw.choice((600, 1_000, 2_000))
    left: dict[str, bytes] = {}
    allowed: list[dict[bytes, bytes]] = [{}]
    seen = {"commits": 0, "losses": 0, "torn": 0, "failures": 0}
    for _ in range(LIVES):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        disk = Disk(folder, left, draw, draw.randint(1, 200), errors)
        with patch.context() as context:
            disk.install(context)
            try:
                store = SegmentStore(folder, "full", segment_bytes, slack_bytes=draw.choice((0, 2_000)))
                state = dict(store.items())
                assert state in allowed, f"seed {seed}"
                allowed = [state]
                seen["torn"] += store.cut_bytes > 0
                while True:
                    keys = [b"%d" % draw.randrange(12) for _ in range(draw.randint(1, 4))]
                    changes = [(key, draw.choice((None, draw.randbytes(draw.randrange(300))))) for key in keys]
                    allowed = [state, applied(state, changes)]
                    store.commit(changes)
                    state = allowed[1]
                    allowed = [state]
                    seen["commits"] += 1
            except PowerLoss:
                seen["losses"] += 1
            except StoreError as error:
                assert "damaged" not in str(error), f"seed {seed}"
                assert "missing" not in str(error), f"seed {seed}"
                seen["failures"] += 1
            disk.let_go()
        left = disk.left()
    return seen


def live_often(folder: Path, patch: pytest.MonkeyPatch) -> Counter[str]:
    """Many stores."""
    seen = Counter[str]()
    for seed in range(150):
        seen.update(live_and_die(folder, seed, patch))
    return seen


def test_what_was_confirmed_is_there_after_a_loss_of_power_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = live_often(tmp_path / "store", monkeypatch)
    assert seen["commits"] > 5_000
    assert seen["losses"] > 700
    assert seen["torn"] > 30
    assert seen["failures"] > 30


@pytest.mark.parametrize("mistake", ["the folder is not synced", "files have one salt"])
def test_mistakes_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mistake: str) -> None:
    if mistake == "the folder is not synced":
        monkeypatch.setattr(SegmentStore, "_sync_folder", lambda store: None)
    else:
        monkeypatch.setattr(segment_store.secrets, "randbits", lambda bits: 1)
    with pytest.raises(AssertionError, match="seed"):
        live_often(tmp_path / "store", monkeypatch)
