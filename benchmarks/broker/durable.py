"""Costs of durability, and of what the broker keeps in memory.

    python -m benchmarks.broker.durable [--seconds S] [--idle N] [--queued N] [--folder FOLDER]

First QoS 1 messages to a session on disk, acknowledged after an fsync: one fsync for all that arrived together against
one for each message. Then the memory of idle connections and of messages that wait for a client that is away.
FOLDER should be on the disk that is to be measured.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.broker.contestants import HOST, PASSWORD, USER, processor_s, start_process, surecast
from benchmarks.broker.dialects import Mqtt, read_exactly
from benchmarks.broker.load import TOPIC_BYTES, run_cell
from benchmarks.broker.shapes import PAYLOAD_BYTES, Cell

from surecast.broker.free_ports import free_port

_CELLS = (
    Cell("one-to-one", "one on its way", 1, 1, 1, 1, 1, 1),
    Cell("fan-in", "one each", 1, 50, 1, 1, 1, 50),
    Cell("fan-in", "4 each", 1, 50, 1, 1, 4, 200),
)
_CHUNK = 250


@contextlib.contextmanager
def running(command: list[str], port: int, folder: Path, core: int | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A broker as long as it is needed."""
    process = start_process(command, port, core, folder / "log")
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def durable(parent: Path, seconds: float) -> None:
    """Prints group commit beside one commit for each message."""
    print("QoS 1 to a session on disk, acknowledged after an fsync; messages in a second, processor us for each")
    cores = sorted(os.sched_getaffinity(0))
    for cell in _CELLS:
        figures = []
        for kind in ("together", "each"):
            with tempfile.TemporaryDirectory(dir=parent) as name:
                folder, port = Path(name), free_port()
                command = [sys.executable, "-m", "benchmarks.broker.serve", str(port), str(folder / "state"), kind]
                with running(command, port, folder, cores[0] if len(cores) > 1 else None) as broker:
                    dialect = Mqtt(1, TOPIC_BYTES, PAYLOAD_BYTES, persistent="sub")
                    outcome = run_cell(cell, dialect, (HOST, port), seconds, partial(processor_s, broker.pid))
            if not outcome.is_sound:
                print(f"  {cell.shape}, {kind}: {outcome.lost} lost, {outcome.disordered} out of order")
            figures.append(outcome)
        together, each = figures
        print(
            f"  {cell.shape}, {cell.kind}: one fsync for all {together.rate_per_s:,.0f}/s "
            f"({together.processor_us:.1f} us), one for each {each.rate_per_s:,.0f}/s ({each.processor_us:.1f} us):"
            f" {together.rate_per_s / each.rate_per_s:.1f} times as many"
        )


def resident_bytes(pid: int) -> int:
    """The memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def settled(pid: int) -> int:
    """The memory of a process once it has stopped to change."""
    before = -1
    while (now := resident_bytes(pid)) != before:
        before = now
        time.sleep(0.3)
    return now


def idle(parent: Path, count: int) -> None:
    """Prints the memory of idle connections."""
    room = count + 200
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < room:
        resource.setrlimit(resource.RLIMIT_NOFILE, (room if hard == resource.RLIM_INFINITY else min(room, hard), hard))
        count = min(count, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 200)
    with tempfile.TemporaryDirectory(dir=parent) as name:
        folder, port = Path(name), free_port()
        dialect = Mqtt(0, TOPIC_BYTES, PAYLOAD_BYTES, USER, PASSWORD)
        clients: list[socket.socket] = []
        with running(surecast(folder, port), port, folder) as broker:
            try:
                clients += [dialect.connect((HOST, port), f"warm-{i}") for i in range(50)]
                before = settled(broker.pid)
                clients += [dialect.connect((HOST, port), f"idle-{i:06}") for i in range(count)]
                after = settled(broker.pid)
                clients[-1].sendall(b"\xc0\x00")
                assert read_exactly(clients[-1], 2) == b"\xd0\x00", "the last connection is not alive"
            finally:
                for client in clients:
                    client.close()
    print(
        f"{count:,} idle connections: {(after - before) / count / 1024:.1f} KiB each in the broker "
        f"({before / 2**20:.0f} MiB without them, {after / 2**20:.0f} MiB with)"
    )


def queued(parent: Path, count: int, durability: str) -> None:
    """Prints the memory of messages that wait for a client that is away."""
    with tempfile.TemporaryDirectory(dir=parent) as name:
        folder, port = Path(name), free_port()
        dialect = Mqtt(1, TOPIC_BYTES, PAYLOAD_BYTES, USER, PASSWORD, persistent="sub")
        command = surecast(folder, port, durability, {"queue_messages": 2 * count})
        with running(command, port, folder) as broker:
            away = dialect.connect((HOST, port), "sub-0")
            dialect.subscribe(away, "bench/00")
            away.sendall(b"\xe0\x00")
            away.close()
            publisher = dialect.connect((HOST, port), "pub-0")
            before = settled(broker.pid)
            begin = time.perf_counter()
            messages = [dialect.publication("bench/00", bytes(PAYLOAD_BYTES), i + 1) for i in range(_CHUNK)]
            for _ in range(count // _CHUNK):
                publisher.sendall(b"".join(messages))
                read_exactly(publisher, 4 * _CHUNK)
            elapsed_s = time.perf_counter() - begin
            after = settled(broker.pid)
            publisher.close()
        disk = sum(path.stat().st_size for path in (folder / "state").rglob("*") if path.is_file())
    sent = count // _CHUNK * _CHUNK
    print(
        f"{sent:,} messages of {PAYLOAD_BYTES} bytes waiting, durability {durability}: "
        f"{(after - before) / sent:.0f} bytes of memory and {disk / sent:.0f} bytes on disk each; "
        f"{sent / elapsed_s:,.0f} taken in a second"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints everything."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.broker.durable")
    parser.add_argument("--seconds", type=float, default=5.0, help="time of one measurement (5)")
    parser.add_argument("--idle", type=int, default=10_000, help="idle connections (10000)")
    parser.add_argument("--queued", type=int, default=100_000, help="waiting messages (100000)")
    parser.add_argument(
        "--folder", type=Path, help="where the brokers keep their state (the folder for temporary files)"
    )
    options = parser.parse_args(arguments)
    parent = options.folder or Path(tempfile.gettempdir())
    durable(parent, options.seconds)
    idle(parent, options.idle)
    for durability in ("full", "memory"):
        queued(parent, options.queued, durability)


if __name__ == "__main__":
    main()
