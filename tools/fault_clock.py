"""Moves the clocks of the replicas of a real replicated broker under load, and checks that nothing ends early or late.

    python tools/fault_clock.py --seconds 60 --seed 1 [--replicas 3|5] [--variant multi|batch|fast]

One clock at a time, most often that of the leader, is set two hours ahead or behind, or a few seconds, or jumps to and
fro; now and then whoever leads is stopped for a moment, so that another one leads. The other clocks are right. What
must hold meanwhile:

- a session ends when its expiry is over, and not before; one that lasts an hour stays;
- a will with a delay comes when the delay is over, and not before;
- a queued message is delivered where its expiry is an hour, and is not where it was a few seconds;
- no client that is connected is sent away, and nothing that was acknowledged is lost.

All choices come from the seed, but not the timing of real processes. The exit code is 1 if something ended early, or
later than a busy machine explains.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from group_load import Load
from surecast.broker.admin_client import ask
from surecast.broker.cluster import LocalGroup, write_group
from surecast.broker.config import admin_socket_path
from surecast.broker.group_config import config_of
from surecast.broker.replica.administer import ask_status
from surecast.client.client import Client
from surecast.client.client_errors import ClientError
from surecast.protocol.mqtt import V5, Properties, ReasonCode, Will

HOURS_S = 7_200.0
LONG_S = 3_600
EXPIRY_S = 5
WILL_S = 3
EARLY_S = 0.3
LATE_S = 3.0
"""The time by which something may end late: replicas look ten times a second, and this machine may be busy."""
READ_S = 1.5
"""A replica reads its clock every second."""
EVERY_S = 2.0


class MovedGroup:
    """A group on this machine whose clocks can be set, each by a file."""

    def __init__(self, folder: Path, replicas: int, options: Mapping[str, Any]):
        path = write_group(folder, replicas, options=options)
        content = yaml.safe_load(path.read_text())
        for one in content["replicas"]:
            one["clock_offset"] = f"clock-{one['id']}"
        path.write_text(yaml.safe_dump(content, sort_keys=False))
        self.group = LocalGroup(path)
        self.folder = folder

    def set_clock(self, number: int, ahead_s: float) -> None:
        """Sets the clock of a replica, which notices within a second."""
        draft = self.folder / "clock.part"
        draft.write_text(f"{ahead_s}")
        draft.replace(self.folder / f"clock-{number}")

    async def leader(self) -> int:
        """Returns who leads; 0 where nobody does."""
        return next((int(one["replica"]) for one in await ask_status(self.group.spec) if one.get("leads")), 0)

    def sessions(self) -> set[str] | None:
        """The sessions that some replica knows; None where it does not answer."""
        for number in self.group.numbers:
            with suppress(Exception):
                found = ask(admin_socket_path(config_of(self.group.spec, number)), "/sessions", {"limit": 10_000})
                return {str(one["client"]) for one in found["sessions"]}
        return None

    def end(self) -> None:
        """Kills whatever runs, stopped processes too."""
        for process in self.group.processes.values():
            process.kill()
            process.wait()


class Trial:
    """Sessions, wills and messages whose end is due at a known time, and what became of them."""

    def __init__(self, moved: MovedGroup, seed: int):
        self.moved = moved
        self.problems: list[str] = []
        self.counts = {"clocks set": 0, "leaders stopped": 0, "sessions expired": 0, "wills sent": 0}
        self._draw = random.Random(seed)
        self._addresses = [address.rpartition(":") for address in moved.group.addresses]
        self._left: dict[str, float] = {}
        self._wills: dict[str, float] = {}
        self._number = 0
        self._tasks: list[asyncio.Task[None]] = []

    def client(self, name: str, **options: Any) -> Client:
        """A client of MQTT 5 at any replica."""
        host, _, port = self._draw.choice(self._addresses)
        return Client(host, int(port), client_id=name, version=V5, clean_start=False, **options)

    async def start(self) -> None:
        """Leaves a session that stays, with a message that stays and one that does not; then watches."""
        async with self.client("sleeper", properties=Properties(session_expiry_s=LONG_S)) as client:
            await client.subscribe("sleeper/#", qos=1)
        async with self.client("caller") as client:
            await client.publish("sleeper/stays", b"", 1, properties=Properties(message_expiry_s=LONG_S))
            await client.publish("sleeper/goes", b"", 1, properties=Properties(message_expiry_s=EXPIRY_S))
        watching = self.client("watcher", properties=Properties(session_expiry_s=LONG_S))
        await watching.connect()
        await watching.subscribe("wills/#", qos=1)
        self._watcher = watching
        work = (self._hear_wills(), self._look(), self._leave_often())
        self._tasks = [asyncio.create_task(each) for each in work]

    async def _leave_often(self) -> None:
        """Ends connections, so that sessions expire and wills come."""
        while True:
            self._number += 1
            expiring, dying = f"expiring-{self._number}", f"dying-{self._number}"
            client = self.client(expiring, properties=Properties(session_expiry_s=EXPIRY_S))
            will = Will(f"wills/{dying}", b"", 1, properties=Properties(will_delay_s=WILL_S))
            mortal = self.client(dying, will=will, properties=Properties(session_expiry_s=LONG_S))
            with suppress(ClientError, OSError):
                await client.connect()
                await mortal.connect()
                await client.disconnect()
                self._left[expiring] = time.monotonic()
                await mortal.disconnect(ReasonCode.DISCONNECT_WITH_WILL_MESSAGE)
                self._wills[dying] = time.monotonic()
            await asyncio.sleep(EVERY_S * self._draw.uniform(0.5, 1.5))

    async def _hear_wills(self) -> None:
        while True:
            message = await self._watcher.message()
            name = message.topic.rpartition("/")[2]
            took_s = time.monotonic() - self._wills.pop(name, -1e9)
            self.counts["wills sent"] += 1
            self._judge(f"the will of {name}", took_s, WILL_S)

    async def _look(self) -> None:
        """Notes when sessions are gone."""
        while True:
            await asyncio.sleep(0.1)
            known = await asyncio.to_thread(self.moved.sessions)
            now = time.monotonic()
            if known is None:
                continue
            if "sleeper" not in known:
                self._report("the session that lasts an hour is gone")
            for name in [name for name in self._left if name not in known]:
                self.counts["sessions expired"] += 1
                self._judge(f"the session {name}", now - self._left.pop(name), EXPIRY_S)

    def _judge(self, what: str, took_s: float, due_s: float) -> None:
        if took_s < due_s - EARLY_S:
            self._report(f"{what} ended after {took_s:.2f} s, and was due after {due_s:g} s")
        elif took_s > due_s + LATE_S:
            self._report(f"{what} ended only after {took_s:.2f} s, and was due after {due_s:g} s")

    def _report(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)

    async def move(self) -> None:
        """Sets one clock, jumping or not, perhaps has it lead, and sets it right again."""
        draw, moved = self._draw, self.moved
        leader = await moved.leader()
        victim = leader if leader and draw.random() < 0.7 else draw.choice(moved.group.numbers)
        jumps = draw.choice((1, 1, 3))
        for _ in range(jumps):
            ahead_s = draw.choice((HOURS_S, -HOURS_S, draw.uniform(-10, 10)))
            moved.set_clock(victim, ahead_s)
            self.counts["clocks set"] += 1
            await asyncio.sleep(READ_S)
        if victim != leader and leader:
            self.counts["leaders stopped"] += 1
            process = moved.group.processes[leader]
            process.send_signal(signal.SIGSTOP)
            await asyncio.sleep(0.7)
            process.send_signal(signal.SIGCONT)
        await asyncio.sleep(draw.uniform(0.5, 2.0))
        moved.set_clock(victim, 0.0)
        await asyncio.sleep(READ_S)

    async def finish(self) -> None:
        """Waits for what is in flight, and fetches what waits for the sleeper."""
        self._tasks[-1].cancel()
        await asyncio.sleep(EXPIRY_S + LATE_S)
        for task in self._tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                self._report(f"a client was sent away: {error}")
            task.cancel()
        for what, left in (("session", self._left), ("will", self._wills)):
            for name in left:
                self._report(f"the {what} of {name} did not end at all")
        await self._watcher.disconnect()
        topics = set()
        async with self.client("sleeper", properties=Properties(session_expiry_s=0)) as client:
            with suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    while True:
                        topics.add((await client.message()).topic)
        if topics != {"sleeper/stays"}:
            self._report(f"of the queued messages sleeper/stays was due, and {sorted(topics)} came")


async def run(options: argparse.Namespace, folder: Path) -> int:
    """One run; the exit code."""
    moved = MovedGroup(folder, options.replicas, {"paxos": {"variant": options.variant}})
    load = Load(moved.group.addresses, options.seed, pause_s=0.05)
    trial = Trial(moved, options.seed)
    try:
        moved.group.start()
        await asyncio.to_thread(moved.group.wait_ready)
        await load.start()
        await trial.start()
        ends = time.monotonic() + options.seconds
        while time.monotonic() < ends:
            await trial.move()
        await trial.finish()
        await load.finish()
    finally:
        moved.end()
    problems = trial.problems + [str(error) for error in load.failures] + load.history.problems()
    print(", ".join(f"{count} {name}" for name, count in trial.counts.items()))
    print(f"{len(load.history.acknowledged)} publications acknowledged, {load.fail_overs} fail-overs")
    print("\n".join(problems) or "nothing ended early or late")
    return 1 if problems else 0


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--replicas", type=int, choices=(3, 5), default=3)
    parser.add_argument("--variant", choices=("multi", "batch", "fast"), default="multi")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that no replica is left behind
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(run(options, Path(folder)))


if __name__ == "__main__":
    sys.exit(main())
