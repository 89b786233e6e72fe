"""Counts how often leadership of a replicated broker moves though nothing failed, and the gaps that clients see.

    python tools/group_suspicions.py --seconds 60 --busy 20 [--writers 4] [--replicas 3] [--kills 0]

Busy processes load the machine while a client publishes every 5 ms at QoS 1 and another reads, and further writers
publish as fast as they are acknowledged, so that the replicas have all to do that they can. No replica is hurt
(without `--kills`), so every election is a false suspicion. The gap is the longest pause of the reader; what of it the
reading process itself was late is printed beside it. With `--kills`, the leader is killed so many times meanwhile, and
the gap of each kill is printed: real failures must still be noticed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from surecast.broker.cluster import LocalGroup, write_group
from surecast.broker.replica.administer import ask_status
from surecast.client.group_client import GroupClient
from surecast.protocol.paxos.ballots import round_of

EVERY_S = 0.005
WATCH_S = 0.01
GAP_S = 0.5
PAYLOAD = b"x" * 64
WINDOW = 50
BUSY = "import time\nend = time.monotonic() + {seconds}\nwhile time.monotonic() < end: sum(range(1000))"


class Watch:
    """A reader's record: when messages came, and how late this process itself was meanwhile."""

    def __init__(self) -> None:
        self.came: list[float] = []
        self.late: list[tuple[float, float]] = []

    async def read(self, reader: GroupClient) -> None:
        while True:
            await reader.message()
            self.came.append(time.monotonic())

    async def look(self) -> None:
        """Notes every time that this process did not run when it wanted to."""
        before = time.monotonic()
        while True:
            await asyncio.sleep(WATCH_S)
            now = time.monotonic()
            if now - before > 5 * WATCH_S:
                self.late.append((before, now))
            before = now

    def gaps(self, begin: float, end: float) -> list[tuple[float, float, float]]:
        """Pauses of the reader: when they began, how long they were, and how much of it this process did not run."""
        times = [begin, *(moment for moment in self.came if begin < moment < end), end]
        found = []
        for a, b in pairwise(times):
            if b - a > 0.1:
                own_s = sum(max(0.0, min(b, until) - max(a, since)) for since, until in self.late)
                found.append((a - begin, b - a, own_s))
        return found


async def write(writer: GroupClient, ended: asyncio.Event) -> int:
    """Publishes every few milliseconds; how many were acknowledged."""
    in_flight, done = set[asyncio.Task[object]](), 0
    while not ended.is_set():
        task: asyncio.Task[object] = asyncio.create_task(writer.publish("gap/1", PAYLOAD, qos=1))
        in_flight.add(task)
        task.add_done_callback(in_flight.discard)
        done += 1
        while len(in_flight) > WINDOW:
            await asyncio.wait(in_flight, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(EVERY_S)
    await asyncio.gather(*in_flight)
    return done


async def press(addresses: list[str], name: str) -> None:
    """Publishes as fast as the group acknowledges, until this process is ended."""
    async with GroupClient(addresses, client_id=name) as client:

        async def one() -> None:
            while True:
                await client.publish(f"press/{name}", PAYLOAD, qos=1)

        await asyncio.gather(*(one() for _ in range(WINDOW)))


async def rounds(group: LocalGroup) -> tuple[int, int]:
    """Returns how many elections there were so far, and who leads."""
    while True:
        found = [one for one in await ask_status(group.spec) if "error" not in one]
        leader = next((one["replica"] for one in found if one["leads"]), 0)
        if leader:
            return max(round_of(one["ballot"]) for one in found), leader
        await asyncio.sleep(0.1)


async def run(options: argparse.Namespace, group: LocalGroup) -> int:
    """One run; the exit code."""
    reader, writer = (GroupClient(group.addresses, client_id=name) for name in ("reader", "writer"))
    watch, ended = Watch(), asyncio.Event()
    busy: list[subprocess.Popen[bytes]] = []
    async with reader, writer:
        await reader.subscribe("gap/#", qos=1)
        tasks = [asyncio.create_task(watch.read(reader)), asyncio.create_task(watch.look())]
        writing = asyncio.create_task(write(writer, ended))
        await asyncio.sleep(2.0)
        before, leader = await rounds(group)
        try:
            code = BUSY.format(seconds=options.seconds + 60)
            busy = [subprocess.Popen([sys.executable, "-c", code], start_new_session=True) for _ in range(options.busy)]
            itself = [sys.executable, __file__, "--press", ",".join(group.addresses), "--name"]
            busy += [
                subprocess.Popen([*itself, f"writer{number}"], start_new_session=True)
                for number in range(options.writers)
            ]
            begin = time.monotonic()
            kills = await spend(options, group)
            end, load = time.monotonic(), os.getloadavg()[0]
        finally:
            for process in busy:
                process.kill()
                process.wait()
        after, led = await rounds(group)
        ended.set()
        written = await writing
        await asyncio.sleep(0.5)
        for task in tasks:
            task.cancel()
    elections = after - before - len(kills)
    gaps = watch.gaps(begin, end)
    long_ones = [gap for gap in gaps if gap[1] > GAP_S]
    per_hour = elections * 3600 / (end - begin)
    beside = f"{options.busy} busy processes and {options.writers} more writers"
    print(f"{elections} elections without a failure in {end - begin:.0f} s beside {beside}")
    print(f"that is {per_hour:.0f} an hour; load {load:.1f}; leader {leader}, then {led}")
    longest = max(gaps, key=lambda gap: gap[1], default=(0.0, 0.0, 0.0))
    print(
        f"{written} published, {len(watch.came)} read; longest pause {longest[1]:.2f} s, of it {longest[2]:.2f} s own"
    )
    for at_s, gap_s, own_s in long_ones:
        print(f"  at {at_s:5.1f} s: {gap_s:5.2f} s, of it {own_s:.2f} s that the reader did not run")
    if kills:
        found = [max((b for a, b, _ in watch.gaps(at, until)), default=0.0) for at, until in pairwise([*kills, end])]
        print(f"gaps after kills: median {statistics.median(found):.2f} s; {' '.join(f'{one:.2f}' for one in found)}")
    return 0


def step_back(process: int, nice: int) -> None:
    """Gives a process a smaller share of a busy machine: Linux shares by session first, then by process."""
    os.setpriority(os.PRIO_PROCESS, process, nice)
    with suppress(OSError):
        Path(f"/proc/{process}/autogroup").write_text(str(nice))


async def spend(options: argparse.Namespace, group: LocalGroup) -> list[float]:
    """Waits for the time to pass, or kills leaders meanwhile; when they were killed."""
    kills = []
    for _ in range(options.kills):
        await asyncio.sleep(options.seconds / options.kills / 2)
        _, leader = await rounds(group)
        kills.append(time.monotonic())
        group.kill(leader)
        await asyncio.sleep(options.seconds / options.kills / 2)
        group.start(leader)
        step_back(group.processes[leader].pid, options.nice)
        await asyncio.to_thread(group.wait_ready, 60.0)
    if not options.kills:
        await asyncio.sleep(options.seconds)
    return kills


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--busy", type=int, default=20)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--replicas", type=int, choices=(1, 3, 5, 7), default=3)
    parser.add_argument("--keep", type=Path, help="folder for the group's files and logs; else they are removed")
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--nice", type=int, default=0, help="by how much replicas step back behind the busy processes")
    parser.add_argument("--press", help=argparse.SUPPRESS)
    parser.add_argument("--name", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.press:
        asyncio.run(press(options.press.split(","), options.name))
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that no process is left behind
    with tempfile.TemporaryDirectory() as folder:
        group = LocalGroup(write_group(options.keep or Path(folder), options.replicas))
        try:
            group.start()
            group.wait_ready(60.0)
            for process in group.processes.values():
                step_back(process.pid, options.nice)
            return asyncio.run(run(options, group))
        finally:
            for process in group.processes.values():
                process.kill()
                process.wait()


if __name__ == "__main__":
    sys.exit(main())
