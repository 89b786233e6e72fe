"""Faults of a group: what clients see when a leader dies, and a leader when a follower stops."""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from benchmarks.broker.durable import resident_bytes
from benchmarks.group.load import Load, run_load
from benchmarks.group.measure import Row
from benchmarks.group.systems import Replicated

from surecast.client.group_client import GroupClient

__all__ = ["fail_over", "stopped_follower"]

Keep = Callable[[Row], None]
_EVERY_S = 0.005
_SETTLED_S = 1.5


def fail_over(folder: Path, kills: int, sync: str, keep: Keep) -> None:
    """Kills whoever leads, again and again; the longest pause of a subscriber around each kill is its gap."""
    group = Replicated(f"3 replicas, sync {sync}", folder / f"kills-{sync}", 3, sync)
    try:
        for row in asyncio.run(_kill_often(group, kills)):
            keep({"experiment": "fail-over", "system": group.name, "load_average": os.getloadavg()[0], **row})
    finally:
        group.close()


async def _kill_often(group: Replicated, kills: int) -> list[Row]:
    """Publishes every few milliseconds at QoS 1 while leaders are killed; each publication carries its number."""
    addresses = list(group.group.addresses)
    came: list[tuple[float, int]] = []
    rows: list[Row] = []
    reader, writer = (GroupClient(addresses, client_id=name) for name in ("reader", "writer"))
    async with reader, writer:
        await reader.subscribe("gap/#", qos=1)

        async def read() -> None:
            while True:
                payload = (await reader.message()).payload
                came.append((time.perf_counter(), int(payload)))

        ended = asyncio.Event()
        acknowledged: set[int] = set()

        async def write() -> None:
            number, under_way = 0, set[asyncio.Task[None]]()

            async def one(at: int) -> None:
                await writer.publish("gap/1", str(at).encode(), qos=1)
                acknowledged.add(at)

            while not ended.is_set():
                task = asyncio.create_task(one(number))
                under_way.add(task)
                task.add_done_callback(under_way.discard)
                number += 1
                await asyncio.sleep(_EVERY_S)
            await asyncio.gather(*under_way)

        reading, writing = asyncio.create_task(read()), asyncio.create_task(write())
        for number in range(kills):
            await asyncio.sleep(_SETTLED_S)
            await asyncio.to_thread(group.entry)
            leader, begin = group.leader, time.perf_counter()
            own = [client.address == group.place(leader) for client in (reader, writer)]
            await asyncio.to_thread(group.group.kill, leader)
            await asyncio.sleep(_SETTLED_S)
            times = [begin, *(moment for moment, _ in came if moment > begin)]
            gaps = [after - before for before, after in pairwise(times)]
            rows.append({
                "round": number,
                "gap_s": max(gaps, default=float("nan")),
                "reader_was_there": own[0],
                "writer_was_there": own[1],
            })  # fmt: skip
            group.group.start(leader)
            await asyncio.to_thread(group.group.wait_ready, 60.0)
        ended.set()
        await writing
        await asyncio.sleep(0.5)
        reading.cancel()
    numbers = [number for _, number in came]
    missing = acknowledged - set(numbers)
    for row in rows:
        row["acknowledged"], row["missing"] = len(acknowledged), len(missing)
        row["disordered"] = sum(b < a for a, b in pairwise(numbers))
    return rows


def stopped_follower(folder: Path, seconds: float, keep: Keep) -> None:
    """Stops a follower under full load, and watches the leader's memory and its queue."""
    group = Replicated("3 replicas", folder / "stopped", 3)
    try:
        load = Load("50 publishers, 16 each", 50, 16)
        entry = group.entry()
        _warm(group, load, entry)
        follower = next(number for number in group.group.numbers if number != group.leader)
        leader_pid = group.pids()[0]
        group.group.processes[follower].send_signal(signal.SIGSTOP)
        seen: list[tuple[float, int]] = []
        ended = threading.Event()

        def watch() -> None:
            begin = time.perf_counter()
            while not ended.wait(0.5):
                seen.append((time.perf_counter() - begin, resident_bytes(leader_pid)))

        watcher = threading.Thread(target=watch)
        watcher.start()
        outcome = run_load(load, group.tongue(load), [entry], seconds, group.processor_s)
        ended.set()
        watcher.join()
        status = next(one for one in group.group.status() if one["replica"] == group.leader)
        queued = {str(one["replica"]): one["queued_bytes"] for one in status["peers"]}
        group.group.processes[follower].send_signal(signal.SIGCONT)
        begin = time.perf_counter()
        while len({one["applied"] for one in group.group.status()}) > 1 and time.perf_counter() - begin < 60.0:
            time.sleep(0.1)
        keep({
            "experiment": "stopped follower",
            "system": group.name,
            "rate_per_s": outcome.rate_per_s,
            "sound": outcome.is_sound,
            "published_bytes": outcome.acknowledged * 78,
            "resident_bytes": [size for _, size in seen],
            "resident_first": statistics.median(size for _, size in seen[:4]),
            "resident_last": statistics.median(size for _, size in seen[-4:]),
            "queued_bytes": queued[str(follower)],
            "caught_up_s": time.perf_counter() - begin,
            "load_average": os.getloadavg()[0],
        })  # fmt: skip
    finally:
        group.close()


def _warm(group: Replicated, load: Load, entry: tuple[str, int]) -> None:
    """Caches and buffers grow to their size first."""
    run_load(load, group.tongue(load), [entry], 4.0, group.processor_s)
