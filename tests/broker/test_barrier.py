"""Commits that are written by one thread and made durable by another."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.patience import PATIENCE_S

from surecast.broker.segment_file import BarrierThread
from surecast.broker.segment_mark import read_mark
from surecast.broker.segment_store import SegmentStore
from surecast.broker.store_base import MemoryStore, StoreError


class Disk:
    """Notes which file is synced when, and can hold or fail a sync."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.fails = False
        self._real = os.fdatasync

    def fdatasync(self, file: int) -> None:
        self.goes_on.wait(PATIENCE_S)
        if self.fails:
            raise OSError(5, "Input/output error")
        self.notes.append(Path(os.readlink(f"/proc/self/fd/{file}")).name)  # noqa: PTH115
        self._real(file)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    made = Disk()
    monkeypatch.setattr(os, "fdatasync", made.fdatasync)
    yield made
    made.goes_on.set()


def opened(folder: Path, segment_bytes: int = 16 << 20) -> SegmentStore:
    return SegmentStore(folder, segment_bytes=segment_bytes, slack_bytes=0, sync_every_s=0)


def confirmed(folder: Path) -> int:
    return read_mark(folder / "mark").number


def test_a_commit_counts_when_its_barrier_is_over(tmp_path: Path, disk: Disk) -> None:
    with opened(tmp_path) as store:
        store.commit([(b"a", b"0")])
        disk.notes.clear()
        store.write([(b"a", b"1")])
        assert disk.notes == []
        store.write([(b"b", b"2")])
        assert disk.notes == ["segment-0000000001.log"]  # one commit at most is not durable
        barrier = store.barrier()
        assert confirmed(tmp_path) == 2
        assert barrier is not None
        barrier()
        assert confirmed(tmp_path) == 3
        assert disk.notes == ["segment-0000000001.log"] * 2
        barrier()  # again
        assert len(disk.notes) == 2
        assert store.barrier() is None
        store.write([(b"c", b"3")])
        store.write([(b"d", b"4")])
    assert confirmed(tmp_path) == 5  # closing waits for it
    with opened(tmp_path) as store:
        assert dict(store.items()) == {b"a": b"1", b"b": b"2", b"c": b"3", b"d": b"4"}


def test_a_barrier_that_is_overtaken_takes_nothing_back(tmp_path: Path, disk: Disk) -> None:
    """A commit of the event loop while the thread has a barrier that it has not begun."""
    with opened(tmp_path, segment_bytes=100) as store:
        store.write([(b"a", bytes(200))])
        early = store.barrier()
        store.commit([(b"b", bytes(200))])  # in the next file; what is before it is synced too
        assert disk.notes[-2:] == ["spare-0000000001.log", "spare-0000000002.log"]
        assert confirmed(tmp_path) == 2
        assert early is not None
        early()
        assert confirmed(tmp_path) == 2
        assert store.barrier() is None


def test_a_new_file_has_its_name_once_its_first_commit_is_durable(tmp_path: Path, disk: Disk) -> None:
    with opened(tmp_path, segment_bytes=100) as store:
        for number in range(4):
            store.write([(b"%d" % number, bytes(200))])
            assert len(list(tmp_path.glob("segment-*"))) == number
    with opened(tmp_path) as store:
        assert len(dict(store.items())) == 4


def test_files_that_leave_the_log_wait_for_what_replaces_them(tmp_path: Path, disk: Disk) -> None:
    """The commit that moves the last live pair out of a file is written, and not durable yet."""
    waited = 0
    with opened(tmp_path, segment_bytes=2_000) as store:
        for number in range(40):
            store.write([(b"%d" % (number % 4), bytes(500))])
            before = len(list(tmp_path.glob("segment-*")))
            waited += bool(store._retiring)
            if (barrier := store.barrier()) is not None:
                barrier()
            assert not store._retiring
            assert len(list(tmp_path.glob("segment-*"))) <= before + 1
    assert waited > 5
    with opened(tmp_path) as store:
        assert sorted(dict(store.items())) == [b"0", b"1", b"2", b"3"]


def test_a_process_that_ends_before_its_barrier_has_lost_that_only(tmp_path: Path, disk: Disk) -> None:
    child = os.fork()
    if not child:
        store = opened(tmp_path, segment_bytes=1_000)
        for number in range(20):
            store.write([(b"%d" % number, bytes(300))])
            if number == 9 and (barrier := store.barrier()) is not None:
                barrier()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    with opened(tmp_path) as store:
        kept = dict(store.items())
        assert {b"%d" % number for number in range(10)} <= set(kept)
        store.commit([(b"more", b"x")])
    with opened(tmp_path) as store:
        assert dict(store.items()) == {**kept, b"more": b"x"}


def test_a_disk_that_confirms_nothing_ends_the_store(tmp_path: Path, disk: Disk) -> None:
    store = opened(tmp_path)
    store.commit([(b"a", b"1")])
    store.write([(b"a", b"2")])
    barrier = store.barrier()
    disk.fails = True
    assert barrier is not None
    with pytest.raises(StoreError, match="the disk did not confirm a commit"):
        barrier()
    disk.fails = False
    for refused in (lambda: store.write([(b"b", b"1")]), barrier):
        with pytest.raises(StoreError, match="did not confirm"):
            refused()
    assert confirmed(tmp_path) == 1
    store.close()


def test_a_thread_calls_barriers_in_their_order_while_the_loop_goes_on(tmp_path: Path, disk: Disk) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        told: asyncio.Queue[BaseException | None] = asyncio.Queue()
        with opened(tmp_path) as store:
            store.commit([(b"a", b"0")])
            thread = BarrierThread(loop, told.put_nowait)
            disk.goes_on.clear()
            store.write([(b"a", b"1")])
            first = store.barrier()
            assert first is not None
            thread.call(first)
            await asyncio.sleep(0.05)  # the loop goes on
            assert (confirmed(tmp_path), told.empty()) == (1, True)
            disk.goes_on.set()
            assert await told.get() is None
            assert confirmed(tmp_path) == 2
            disk.fails = True
            store.write([(b"a", b"2")])
            second = store.barrier()
            assert second is not None
            thread.call(second)
            failure = await told.get()
            assert isinstance(failure, StoreError)
            assert thread.stop() is failure

    asyncio.run(main())


def test_memory_has_no_barriers() -> None:
    store = MemoryStore()
    store.write([(b"a", b"1")])
    assert store.barrier() is None
    assert dict(store.items()) == {b"a": b"1"}
