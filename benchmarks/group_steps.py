"""Where the time of a lone publication goes in a group of three replicas in one process: two versions in turn.

    python -m benchmarks.group_steps                 this checkout alone
    python -m benchmarks.group_steps --before DIR    and a checkout of another version, in turns

The world is that of `benchmarks.group_core`: whole replicas, plain clients. A publication is on its way in steps: the
leader makes a proposal of the bytes of its client; a follower reads it, stores it, and votes; the leader reads the
vote, carries the publication out, and acknowledges it. Steps in between are the kernel's, and what the leader does
while others vote. Each figure is a median, so that another process that takes the processor now and then changes
nothing. In processes of their own, replicas wake each other and find their caches cold, which takes as long again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import group_core

CELL = "one at a time, equal"
STEPS = {
    "leader: from the bytes of the client to the proposal": ("P", "S"),
    "follower: from the read to the vote": ("R", "S"),
    "leader: from the read of the vote to the acknowledgement": ("R", "A"),
}
"""What begins and what ends a step, in the order in which they come."""


class Clock:
    """The times of what happens to a publication: published, sent to a replica, read from one, acknowledged."""

    def __init__(self) -> None:
        self.events: list[tuple[str, float]] = []

    def watch(self, owner: type, method: str, event: str) -> None:
        """Notes when a method begins."""
        real, events, now = getattr(owner, method), self.events, time.perf_counter

        def noted(self: Any, *arguments: Any) -> Any:
            events.append((event, now()))
            return real(self, *arguments)

        setattr(owner, method, noted)

    def steps_us(self) -> list[float] | None:
        """The time of each step; None where something else came in between."""
        at, found = 0, []
        for begins, ends in STEPS.values():
            names = [name for name, _ in self.events]
            try:
                begin = names.index(begins, at)
                at = names.index(ends, begin)
            except ValueError:
                return None
            found.append((self.events[at][1] - self.events[begin][1]) * 1e6)
        return found


def watched() -> Clock:
    """A clock that watches this version."""
    from surecast.broker.replica import links

    try:
        from surecast.broker.replica import accepted_connection as accepting
    except ImportError:  # earlier versions
        from surecast.broker.replica import doors as accepting  # type: ignore[attr-defined,no-redef]
    clock = Clock()
    clock.watch(links.PeerLink, "_send", "S")
    for owner in [each for each in vars(accepting).values() if isinstance(each, type)]:
        if "data_received" in vars(owner):
            clock.watch(owner, "data_received", "R")
    clock.watch(group_core.Client, "publish", "P")
    send = group_core.Client.send

    def noted(self: group_core.Client, data: bytes) -> None:
        if self.reads:
            clock.events.append(("A", time.perf_counter()))
        send(self, data)

    group_core.Client.send = noted  # type: ignore[method-assign]
    return clock


async def serve(publications: int) -> None:
    """Measures as often as it is asked to, a line each, and answers with the median of each step."""
    clock = watched()
    loop = asyncio.get_running_loop()
    with tempfile.TemporaryDirectory() as folder:
        world = group_core.World(CELL, Path(folder))
        await world.open()
        world.rounds = 1
        while (await loop.run_in_executor(None, sys.stdin.readline)).strip():
            found = []
            for _ in range(publications):
                clock.events.clear()
                await world.visit()
                if (steps := clock.steps_us()) is not None:
                    found.append(steps)
            print(json.dumps([statistics.median(step) for step in zip(*found, strict=True)]), flush=True)
        await world.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--before", type=Path, metavar="DIR", help="a checkout of another version")
    parser.add_argument("--publications", type=int, default=500, help="publications in a turn (500)")
    parser.add_argument("--turns", type=int, default=6, help="turns of each version (6)")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(options.publications))
        return 0
    checkouts = [group_core.ROOT] if options.before is None else [options.before.resolve(), group_core.ROOT]
    count = ("--publications", str(options.publications))
    processes = [group_core.start(checkout, "benchmarks.group_steps", *count) for checkout in checkouts]
    turns: list[list[list[float]]] = []
    try:
        for _ in range(options.turns):
            turns.append([])
            for process in processes:
                process.stdin.write("again\n")
                process.stdin.flush()
                turns[-1].append(json.loads(process.stdout.readline()))
    finally:
        for process in processes:
            process.stdin.close()
            process.wait()
    print(f"A lone publication in three replicas in one process, us; medians of {options.turns} turns\n")
    print("| step | " + ("before | now |" if len(checkouts) > 1 else "time |"))
    print("|---|" + "---|" * len(checkouts))
    for number, step in enumerate(STEPS):
        cells = [f"{statistics.median(turn[at][number] for turn in turns):.1f}" for at in range(len(checkouts))]
        print("| " + " | ".join([step, *cells]) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
