"""Snapshots that a child process writes: what the child lets go of, how it ends, and what is left of one that died."""

from __future__ import annotations

import asyncio
import errno
import io
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.patience import PATIENCE_S

from surecast.broker.replica.snapshot_files import SnapshotFile, SnapshotFiles
from surecast.broker.segment_store import SegmentStore
from surecast.broker.service_log import BrokerLog
from surecast.broker.store import StoreError
from surecast.errors import ConfigurationError
from surecast.protocol.paxos import PaxosSettings
from surecast.protocol.paxos.example_store import get, incr, put
from surecast.protocol.paxos.quorums import digest_of

Local = Callable[..., Any]
Run = Callable[..., Any]


async def write(files: SnapshotFiles, pieces: Iterator[bytes], slot: int = 7) -> SnapshotFile | str:
    """Has a child write, and waits for it."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[SnapshotFile | str] = loop.create_future()
    files.begin(loop, slot, pieces, ended.set_result)
    assert files.is_writing
    result = await ended
    assert not files.is_writing
    return result


def fd(number: int) -> Path:
    return Path(f"/proc/self/fd/{number}")


def children() -> set[int]:
    """The processes that this one has started and not waited for."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = stat.read_text().rpartition(")")[2].split()[1]
            if int(parent) == os.getpid():
                found.add(int(stat.parent.name))
    return found


@pytest.fixture(autouse=True)
def others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remembers the processes that other tests have left running for later ones, such as Spark."""
    monkeypatch.setitem(globals(), "OTHERS", children())


OTHERS: set[int] = set()


def no_child_is_left() -> bool:
    return children() <= OTHERS


@pytest.mark.parametrize("where", ["folder", "memory"])
def test_the_bytes_of_a_copy_of_the_state_are_in_the_file(run: Run, tmp_path: Path, where: str) -> None:
    state = [b"before"]

    def pieces() -> Iterator[bytes]:
        time.sleep(0.05)
        yield from state
        yield bytes(3 << 20)

    async def main() -> None:
        files = SnapshotFiles(tmp_path if where == "folder" else None, syncs=True)
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[Any] = loop.create_future()
        files.begin(loop, 7, pieces(), ended.set_result)
        state[0] = b"after!"  # by the replica, which goes on
        kept = await ended
        whole = b"before" + bytes(3 << 20)
        assert kept.reference == (7, 1, len(whole), digest_of(whole))
        assert kept.read(0, len(whole)) == whole
        assert (kept.read(4, 4), kept.read(len(whole) - 2, 10)) == (b"re\0\0", b"\0\0")
        if where == "folder":
            assert files.open(kept.reference).read(0, len(whole)) == whole

    run(main)
    assert no_child_is_left()


def test_the_child_has_no_socket_and_no_file_but_its_own(run: Run, tmp_path: Path) -> None:
    def pieces() -> Iterator[bytes]:
        yield "\n".join(str(file.readlink()) for file in map(fd, range(256)) if file.is_symlink()).encode()
        handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
        yield f"\n{handlers == [signal.SIG_DFL] * 2} {signal.pthread_sigmask(signal.SIG_BLOCK, ())}".encode()

    async def main() -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, print)
        server = await asyncio.start_server(print, "127.0.0.1", 0)
        with SegmentStore(tmp_path):
            kept = await write(SnapshotFiles(tmp_path, syncs=False), pieces())
        server.close()
        assert isinstance(kept, SnapshotFile)
        *names, last = kept.read(0, 10_000).decode().splitlines()
        assert last == "True set()"
        others = [name for name in names if name not in (os.devnull, str(tmp_path / "snapshot-0000000001"))]
        assert len(others) == 1, others
        assert others[0].startswith("pipe:")

    run(main)


def test_a_child_that_fails_says_why(run: Run, tmp_path: Path) -> None:
    def raises() -> Iterator[bytes]:
        yield b"half"
        raise ValueError("a half packet")

    def is_full() -> Iterator[bytes]:
        yield b"half"
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def is_killed() -> Iterator[bytes]:
        yield b"half"
        os.kill(os.getpid(), signal.SIGKILL)

    async def main() -> None:
        files = SnapshotFiles(tmp_path, syncs=True)
        first = await write(files, iter([b"whole"]))
        path = tmp_path / "snapshot-0000000002"
        assert await write(files, raises()) == f"{path}: ValueError('a half packet')"
        assert await write(files, is_full()) == f"{path}: No space left on device"
        assert await write(files, is_killed()) == f"{path}: the process that wrote it was ended by signal 9"
        assert path.exists()
        files.tidy()
        assert [each.name for each in tmp_path.iterdir()] == ["snapshot-0000000001"]
        again = await write(files, iter([b"more"]))
        assert isinstance(first, SnapshotFile)
        assert isinstance(again, SnapshotFile)
        files.tidy()
        assert [each.name for each in tmp_path.iterdir()] == ["snapshot-0000000002"]
        assert first.read(0, 10) == b"whole"  # somebody may still be sent it
        with pytest.raises(StoreError, match="snapshot-0000000001: the snapshot that the store names cannot be read"):
            files.open(first.reference)

    run(main)
    assert no_child_is_left()


def test_a_child_is_ended_with_its_replica(run: Run, tmp_path: Path) -> None:
    def pieces() -> Iterator[bytes]:
        time.sleep(10 * PATIENCE_S)
        yield b""

    async def main() -> None:
        files = SnapshotFiles(tmp_path, syncs=True)
        files.begin(asyncio.get_running_loop(), 7, pieces(), print)
        files.stop()
        files.stop()
        assert not files.is_writing

    begun = time.monotonic()
    run(main)
    assert no_child_is_left()
    assert time.monotonic() - begun < PATIENCE_S


KILLED = """
import asyncio, os, sys, time
from pathlib import Path
from surecast.broker.replica import new_loop
from surecast.broker.replica.snapshot_files import SnapshotFiles
from surecast.broker.segment_store import SegmentStore

def pieces():
    os.write(1, b"lost")  # to nowhere
    while True:
        time.sleep(0.3)
        yield bytes(2 << 20)

async def main():
    store = SegmentStore(Path(sys.argv[1]))
    files = SnapshotFiles(store.folder, True)
    files.begin(asyncio.get_running_loop(), 7, pieces(), print)
    print(files._child, flush=True)
    await asyncio.sleep(60)

with asyncio.Runner(loop_factory=new_loop) as runner:
    runner.run(main())
"""


def test_a_replica_that_is_killed_leaves_neither_a_lock_nor_a_child(tmp_path: Path) -> None:
    command = [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        time.sleep(0.1)
        process.kill()
        process.wait()
        with SegmentStore(tmp_path) as store:  # though the child may be there for a moment more
            store.commit([(b"a", b"1")])
        assert process.stdout.read() == ""
    ends = time.monotonic() + PATIENCE_S
    while Path(f"/proc/{child}").exists() and state_of(child) not in "ZX":
        assert time.monotonic() < ends
        time.sleep(0.02)


def state_of(process: int) -> str:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


BESIDE = PaxosSettings(snapshot_every=20, log_keep=5, snapshot_at_once_bytes=0)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


def test_a_node_writes_its_state_beside_and_starts_again_from_it(local: Local, run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        group = local(1, settings=BESIDE)
        node = await group.start(1, store=SegmentStore(tmp_path))
        await group.leader()
        await group.ask(node, 7, 1, put(b"large", b"value"))
        for sequence in range(2, 60):
            await group.ask(node, 7, sequence, incr(b"k"))
        await until(lambda: node.replica.snapshots.slot)
        first = node.replica.snapshots.slot
        for sequence in range(60, 140):
            await group.ask(node, 7, sequence, incr(b"k"))
        await until(lambda: node.replica.snapshots.slot > first)
        await until(lambda: not node._snapshot_files.is_writing)
        del group.nodes[1]
        await node.stop()
        again = await group.start(1, store=SegmentStore(tmp_path))
        assert again.replica.snapshots.slot > first
        await group.leader()
        assert await group.ask(again, 7, 140, incr(b"k")) == b"+139"
        await group.stop()
        paths = list(tmp_path.glob("snapshot-*"))
        assert 1 <= len(paths) <= 2
        for path in paths:
            path.write_bytes(path.read_bytes().replace(b"large", b"LARGE"))
        with SegmentStore(tmp_path) as store, pytest.raises(ConfigurationError, match=r"snapshot-\d+: damaged"):
            await group.start(1, store=store)
        for path in paths:
            path.unlink(missing_ok=True)
        with SegmentStore(tmp_path) as store, pytest.raises(StoreError, match="cannot be read: No such file"):
            await group.start(1, store=store)

    run(main)
    assert no_child_is_left()


def test_a_snapshot_in_memory_serves_one_that_lags(local: Local, run: Run) -> None:
    async def main() -> None:
        group = local(3, settings=BESIDE)
        for number in (1, 2):
            await group.start(number)
        leader = await group.leader()
        for sequence in range(1, 60):
            await group.ask(leader, 7, sequence, incr(b"k"))
        await until(lambda: leader.replica.snapshots.slot)
        late = await group.start(3)
        await until(lambda: late.replica.applied == leader.replica.applied)
        assert await group.ask(late, 8, 1, get(b"k")) == b"+59"
        await group.stop()

    run(main)


def test_where_no_child_can_be_made_the_replica_writes_itself(
    local: Local, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = io.StringIO()

    def refuse() -> int:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    async def main() -> None:
        group = local(1, settings=BESIDE, log=BrokerLog("error", stream=said))
        node = await group.start(1, store=SegmentStore(tmp_path))
        await group.leader()
        monkeypatch.setattr(os, "fork", refuse)
        for sequence in range(1, 60):
            await group.ask(node, 7, sequence, incr(b"k"))
        await until(lambda: node.replica.snapshots.slot)
        assert dict(node.store.items())[b"Ps"]
        await group.stop()

    run(main)
    assert "snapshot failed" in said.getvalue()
    assert "no other process can be started (Cannot allocate memory)" in said.getvalue()


def test_a_child_that_is_killed_is_said_and_the_replica_goes_on(local: Local, run: Run, tmp_path: Path) -> None:
    said = io.StringIO()

    async def main() -> None:
        group = local(1, settings=BESIDE, log=BrokerLog("error", stream=said))
        node = await group.start(1, store=SegmentStore(tmp_path))
        await group.leader()
        begin = node._snapshot_files.begin
        node._snapshot_files.begin = lambda loop, slot, pieces, done: begin(loop, slot, endless(), done)
        for sequence in range(1, 40):
            await group.ask(node, 7, sequence, incr(b"k"))
        await until(lambda: node._snapshot_files.is_writing)
        os.kill(node._snapshot_files._child, signal.SIGTERM)
        await until(lambda: not node._snapshot_files.is_writing)
        assert node.replica.counts["snapshots failed"] == 1
        assert await group.ask(node, 7, 40, incr(b"k")) == b"+40"
        await group.stop()

    def endless() -> Iterator[bytes]:
        while True:
            time.sleep(0.01)
            yield b"more"

    run(main)
    assert "ended by signal 15" in said.getvalue()
