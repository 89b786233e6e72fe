"""The store of a replica on a disk that loses power, again and again: what was confirmed is there, and nothing else."""

from __future__ import annotations

import random
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
from tests.broker.power import Disk, PowerLoss

from surecast.broker import segment_clean, segment_file, segment_store
from surecast.broker.segment_store import SegmentStore
from surecast.broker.store import Operation, StoreError
from surecast.broker.store_base import DamagedError

LIVES = 8


def applied(state: dict[bytes, bytes], changes: list[Operation]) -> dict[bytes, bytes]:
    after = dict(state)
    for key, value in changes:
        if value is None:
            after.pop(key, None)
        else:
            after[key] = value
    return after


def live_and_die(folder: Path, seed: int, patch: pytest.MonkeyPatch, durability: Literal["full", "os"]) -> Counter[str]:
    """A store in several incarnations; how much of what happened.

    `states` are those after each commit, `floor` is the first that may be found: with `os`, what was synced.
    """
    draw = random.Random(seed)
    is_beside = durability == "full" and seed % 2 == 1  # a thread may call the barrier, or nobody
    errors, segment_bytes = draw.choice((0.0, 0.0, 0.01)), draw.choice((600, 1_000, 2_000))
    left: dict[str, bytes] = {}
    states: list[dict[bytes, bytes]] = [{}]
    floor = 0
    seen = Counter[str]()
    for _ in range(LIVES):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        disk = Disk(folder, left, draw, draw.randint(1, 200), errors)
        slack = draw.choice((0, 2_000))
        with patch.context() as context:
            disk.install(context)
            context.setattr(segment_clean, "_INDEX_MAX", draw.choice((0, 1000)))
            try:
                store = SegmentStore(folder, durability, segment_bytes, slack, may_lose=True, sync_every_s=0)
                state = dict(store.items())
                assert state in states[floor:], f"seed {seed}"
                states, floor = [state], 0
                seen["torn"] += store.cut_bytes > 0
                seen["in doubt"] += store.statistics().in_doubt
                while True:
                    keys = [b"%d" % draw.randrange(12) for _ in range(draw.randint(1, 4))]
                    changes = [(key, draw.choice((None, draw.randbytes(draw.randrange(300))))) for key in keys]
                    states.append(applied(states[-1], changes))
                    before = len(states) - 2
                    if is_beside and draw.random() < 0.5:  # the next commit waits for this one, at the latest
                        store.write(changes)
                        floor = max(floor, before) if durability == "full" else floor
                        barrier = store.barrier() if draw.random() < 0.5 else None
                        if barrier is None:
                            continue
                        barrier()
                    else:
                        store.commit(changes)
                    seen["commits"] += 1
                    if durability == "full":
                        floor = len(states) - 1
                    if draw.random() < 0.1:
                        store.sync()
                        if not store._broken and store.barrier() is None:
                            floor = len(states) - 1
            except PowerLoss:
                seen["losses"] += 1
            except StoreError as error:
                assert not isinstance(error, DamagedError), f"seed {seed}: {error}"
                seen["failures"] += 1
            disk.let_go()
        left = disk.left()
    return seen


def live_often(
    folder: Path, patch: pytest.MonkeyPatch, durability: Literal["full", "os"] = "full", seeds: int = 100
) -> Counter[str]:
    """Many stores."""
    seen = Counter[str]()
    for seed in range(seeds):
        seen.update(live_and_die(folder, seed, patch, durability))
    return seen


def test_what_was_confirmed_is_there_after_a_loss_of_power_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = live_often(tmp_path / "store", monkeypatch)
    assert seen["commits"] > 2_500
    assert seen["losses"] > 450
    assert seen["torn"] > 20
    assert seen["failures"] > 20
    assert seen["in doubt"] > 200


def test_without_sync_the_last_commits_only_are_lost_and_none_that_was_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = live_often(tmp_path / "store", monkeypatch, "os", 60)
    assert seen["commits"] > 2_500
    assert seen["losses"] > 250
    assert seen["in doubt"] > 200


MISTAKES: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "a commit does not wait for the one before": lambda patch: patch.setattr(SegmentStore, "write", hasty),
    "the folder is not synced": lambda patch: patch.setattr(SegmentStore, "_sync_folder", lambda store: None),
    "files have one salt": lambda patch: patch.setattr(segment_store.secrets, "randbits", lambda bits: 1),
    "the mark is ahead of the disk": lambda patch: patch.setattr(segment_store, "write_all", ahead),
}


_WRITE = SegmentStore.write


def hasty(store: SegmentStore, operations: list[Operation]) -> None:
    """Writes without waiting for the barrier before."""
    confirmed, store._confirmed = store._confirmed, store._next - 1
    _WRITE(store, operations)
    store._confirmed = confirmed


def ahead(file: int, parts: list[bytes], at: int, size: int = -1) -> None:
    """Confirms a commit before it is written."""
    store = sys._getframe(1).f_locals["self"]
    if at:
        store._mark.confirm(store._next)
    segment_file.write_all(file, parts, at, size)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mistake: str) -> None:
    MISTAKES[mistake](monkeypatch)
    with pytest.raises(AssertionError, match="seed"):
        live_often(tmp_path / "store", monkeypatch)


@pytest.mark.parametrize("mistake", ["files leave before that is synced", "synced before it is"])
def test_mistakes_without_sync_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mistake: str) -> None:
    if mistake == "synced before it is":
        monkeypatch.setattr(SegmentStore, "sync", lambda store: store._mark.confirm_synced(store._next - 1))
    else:
        real = SegmentStore._retire

        def retire(store: SegmentStore) -> None:
            store._keeps_order = False
            real(store)

        monkeypatch.setattr(SegmentStore, "_retire", retire)
    with pytest.raises(AssertionError, match="seed"):
        live_often(tmp_path / "store", monkeypatch, "os")
