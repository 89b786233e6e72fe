"""How long a replica stands still while it takes a snapshot of large sessions: two versions one after the other.

    python -m benchmarks.snapshot_pause                          this checkout alone, 200 MB of sessions
    python -m benchmarks.snapshot_pause --before DIR --mb 500    and a checkout of another version

A replica alone in its group, with its store on the disk and synced, has the sessions of clients that are away, each
with messages of 1,000 bytes waiting. It is asked for something 100 times a second. Then it takes a snapshot. The table
has the longest time in which the event loop did nothing else: heartbeats to other replicas would have come that late.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MESSAGES = 100
PAYLOAD_BYTES = 1_000
CALM_S = 2.0


def fill(broker: Any, megabytes: int) -> None:
    """Gives a core sessions of clients that are away, with so many messages that wait."""
    from surecast.protocol.broker import Origin
    from surecast.protocol.mqtt import V311, Connect, Publish, Subscribe, SubscriptionRequest, encode

    now = 1e9
    publisher = broker.open(Origin(), now)
    broker.receive(publisher, encode(Connect("publisher", version=V311), V311), now)
    for number in range(megabytes * 1_000_000 // (MESSAGES * PAYLOAD_BYTES)):
        client = broker.open(Origin(), now)
        connect = Connect(f"client-{number}", clean_start=False, version=V311)
        broker.receive(client, encode(connect, V311), now)
        broker.receive(client, encode(Subscribe(1, (SubscriptionRequest(f"to/{number}", 1),)), V311), now)
        broker.lost(client, now, "away")
        for at in range(MESSAGES):
            payload = b"%08d%08d" % (number, at) + bytes(PAYLOAD_BYTES - 16)
            broker.receive(publisher, encode(Publish(f"to/{number}", payload, qos=1, packet_id=1), V311), now)
        for connection in broker.dirty:
            connection.out.clear()
        broker.dirty.clear()


class Gaps:
    """Asks to be called every millisecond, and notes the longest time in which it was not."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._last_s = time.perf_counter()
        self._call()

    def _call(self) -> None:
        now = time.perf_counter()
        self.longest_s = max(self.longest_s, now - self._last_s)
        self._last_s = now
        asyncio.get_running_loop().call_later(0.001, self._call)

    def take_ms(self) -> float:
        """Returns the longest since the last call."""
        longest, self.longest_s = self.longest_s, 0.0
        return 1e3 * longest


async def measure(megabytes: int) -> dict[str, float]:
    """Returns the figures of one version."""
    from surecast.broker.replica import Address, Place, ReplicaNode, found_store
    from surecast.broker.segment_store import SegmentStore
    from surecast.protocol.broker import BrokerCore, BrokerSettings
    from surecast.protocol.broker.state_journal import NoJournal
    from surecast.protocol.group import GroupMachine
    from surecast.protocol.group.commands import HEAD

    settings = BrokerSettings(queue_messages_max=1 << 20, queue_bytes_max=1 << 40)
    machine = GroupMachine(
        1, lambda authorise: BrokerCore(settings, authorise=authorise, journal=NoJournal(), watches=False)
    )
    with tempfile.TemporaryDirectory(dir=os.environ.get("SNAPSHOT_PAUSE_FOLDER")) as folder:
        store = SegmentStore(Path(folder), "full")
        found_store(store, "")
        node = ReplicaNode(1, machine, {1: Place(Address("127.0.0.1", 0))}, group="g", secret=b"secret", store=store)
        await node.start()
        fill(machine.broker, megabytes)
        answers: list[float] = []
        sequence = 0

        async def ask_until(done: Any) -> None:
            nonlocal sequence
            while not done():
                sequence += 1
                begun = time.perf_counter()
                node.submit(
                    [(9, sequence, HEAD.pack(1, 0, 0))], lambda _, at=begun: answers.append(time.perf_counter() - at)
                )
                await asyncio.sleep(0.01)

        snapshots = node.replica.snapshots
        gaps = Gaps()
        begun = time.perf_counter()
        await ask_until(lambda: time.perf_counter() - begun > CALM_S)
        calm_ms, calm_answer_ms = gaps.take_ms(), 1e3 * max(answers)
        calm_ms = gaps.take_ms() if calm_ms > 1e3 else calm_ms
        answers.clear()
        slot, begun = snapshots.slot, time.perf_counter()
        snapshots.log_bytes = 1 << 50  # one is due
        await ask_until(lambda: snapshots.slot != slot)
        await asyncio.sleep(0.1)
        took_s = time.perf_counter() - begun
        figures = {
            "longest pause without a snapshot, ms": calm_ms,
            "longest answer without a snapshot, ms": calm_answer_ms,
            "longest pause, ms": gaps.take_ms(),
            "longest answer, ms": 1e3 * max(answers),
            "taken after, s": took_s,
            "largest memory of the replica, MB": memory_mb(),
        }
        await node.stop()
    return figures


def memory_mb() -> float:
    """Returns the largest resident memory that this process had."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) / 1e3 for line in lines if line.startswith("VmHWM"))


def run(checkout: Path, megabytes: int) -> dict[str, float]:
    """Measures the version of a checkout in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
    command = [sys.executable, __file__, "--serve", "--mb", str(megabytes)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--before", type=Path, metavar="DIR", help="a checkout of another version")
    parser.add_argument("--mb", type=int, default=200, help="megabytes of messages that wait (200)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        from surecast.broker.replica import new_loop

        with asyncio.Runner(loop_factory=new_loop) as runner:
            print(json.dumps(runner.run(measure(options.mb))))
        return 0
    checkouts = {"now": ROOT} if options.before is None else {"before": options.before.resolve(), "now": ROOT}
    found = {name: run(checkout, options.mb) for name, checkout in checkouts.items()}
    if options.json:
        print(json.dumps(found))
        return 0
    print(f"{options.mb} MB of messages that wait".ljust(40) + "".join(name.rjust(12) for name in found))
    for row in found["now"]:
        print(row.ljust(40) + "".join(f"{figures[row]:12,.1f}" for figures in found.values()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
