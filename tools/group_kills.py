"""Kills, stops and starts the replicas of a real replicated broker under load, and checks what it promises.

    python tools/group_kills.py --seconds 120 --seed 1 [--replicas 3|5] [--variant multi|batch|fast] [--sync none]
    python tools/group_kills.py --leader-kills 1000 --piece 50 --seconds 3600

Publishers and subscribers, of this library and of paho-mqtt in both versions of MQTT, with QoS 1 and 2, are connected
to all replicas. Meanwhile the leader or another replica is killed (SIGKILL) and started again, or stopped (SIGSTOP)
and let go on; now and then so many at once that there is no majority. What must hold:

- no acknowledged publication is lost, and none is delivered twice where publisher and subscriber use QoS 2;
- all subscribers get the messages in one order, which keeps that of each publisher;
- the viewer figures of ZapViewers are those computed anew from the events in the order of the log;
- at the end all replicas have the same running hashes, of inputs and of effects, and the same accounts, which balance;
- no replica ever differed from the others in its effects;
- the service comes back each time.

With `--leader-kills` only leaders are killed, so many times, in pieces: each piece is a new group under load, checked
as a whole at its end. The gaps that subscribers saw are printed. `--seconds` bounds the time of all pieces together.

All choices come from the seed, but not the timing of real processes. The exit code is 1 if a promise was broken, and 2
if the time was over before all leaders were killed.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from group_load import Load, Zappers
from surecast.broker.admin_client import ask
from surecast.broker.cluster import LocalGroup, write_group
from surecast.broker.config import admin_socket_path
from surecast.broker.group_config import config_of
from surecast.broker.replica.administer import ask_status

SETTLE_S = 120.0  # a limit for busy machines: what takes so long is not back
START_S = 120.0  # three replicas beside other work
PAXOS = {"snapshot_every": 400, "log_keep": 100, "snapshot_at_once": "1B"}
"""Snapshots come often, so that replicas that come back also catch up by one."""


@dataclass(frozen=True)
class Trouble:
    """A fault: its kind, the number of replicas, and for how long; the leader is among them if `leader`."""

    kind: Literal["kill", "stop"]
    count: int = 1
    down_s: float = 1.0
    leader: bool = True


@dataclass(frozen=True)
class Outcome:
    """One trouble, and the longest silence that a subscriber noticed."""

    at_s: float
    what: str
    victims: tuple[int, ...]
    down_s: float
    gap_s: float


class Trial:
    """A group under load. As a context manager it ends all processes."""

    def __init__(self, folder: Path, replicas: int = 3, variant: str = "multi", sync: str = "majority", seed: int = 1):
        options = {"sync": sync, "paxos": {**PAXOS, "variant": variant}, "zap": {"every": "0.2s"}}
        self.group = LocalGroup(write_group(folder, replicas, options=options))
        self.load = Load(self.group.addresses, seed)
        self.zappers = Zappers(self.group.addresses, seed)
        self.outcomes: list[Outcome] = []
        self._draw = random.Random(seed)
        self._began = time.monotonic()

    async def start(self) -> None:
        """Starts the group and its clients."""
        self.group.start()
        await asyncio.to_thread(self.group.wait_ready, START_S)
        await self.load.start()
        await self.zappers.start()
        self._began = time.monotonic()

    def end(self) -> None:
        """Kills whatever runs, stopped processes too."""
        for process in self.group.processes.values():
            process.kill()
            process.wait()

    async def statuses(self) -> dict[int, dict[str, Any]]:
        """The status of every replica that answers."""
        return {one["replica"]: one for one in await ask_status(self.group.spec) if "error" not in one}

    async def make(self, trouble: Trouble, after_s: float = 1.0) -> Outcome:
        """Makes trouble, and waits until all replicas are back and clients are served for `after_s`."""
        group = self.group
        leader = next((n for n, one in (await self.statuses()).items() if one["leads"]), group.numbers[0])
        others = [n for n in group.numbers if n != leader]
        self._draw.shuffle(others)
        victims = tuple(([leader] if trouble.leader else [])[: trouble.count] + others)[: trouble.count]
        begin = time.monotonic()
        for victim in victims:
            if trouble.kind == "kill":
                group.kill(victim)
            else:
                group.processes[victim].send_signal(signal.SIGSTOP)
        await asyncio.sleep(trouble.down_s)
        for victim in victims:
            if trouble.kind == "kill":
                group.start(victim)
            else:
                group.processes[victim].send_signal(signal.SIGCONT)
        await self._served(time.monotonic(), after_s)
        gap_s = self.load.history.gap_s(begin, begin + trouble.down_s + 1.0)
        what = (
            f"{trouble.kind} {'the leader' if trouble.leader else 'a follower' if trouble.count == 1 else 'followers'}"
        )
        what += f" and {trouble.count - 1} more" if trouble.leader and trouble.count > 1 else ""
        self.outcomes.append(Outcome(begin - self._began, what, victims, trouble.down_s, gap_s))
        return self.outcomes[-1]

    async def _served(self, since: float, after_s: float) -> None:
        """Waits until every subscriber gets messages again and all replicas answer."""
        until = time.monotonic() + SETTLE_S
        while True:
            lasts = [one.got[-1][0] if one.got else 0.0 for one in self.load.history.received.values()]
            if min(lasts) > since and len(await self.statuses()) == len(self.group.numbers):
                break
            if time.monotonic() > until:
                raise AssertionError(f"service is not back {SETTLE_S:g} s after the replicas are\n{self.log()}")
            await asyncio.sleep(0.05)
        await asyncio.sleep(max(0.0, since + after_s - time.monotonic()))

    async def finish(self) -> list[str]:
        """Ends the load; every promise that was broken."""
        problems = await self.zappers.finish()
        await self.load.finish()
        problems += [str(error) for error in self.load.failures]
        problems += self.load.history.problems()
        return problems + await self._differences()

    async def _differences(self) -> list[str]:
        """Returns how the replicas differ once they have applied equally much."""
        until = time.monotonic() + SETTLE_S
        while True:
            found = await self.statuses()
            applied = {one["applied"] for one in found.values()}
            hashes = {(one["applied"], one["hash"], one["effects"]) for one in found.values()}
            if len(hashes) > len(applied):
                return [f"replicas that applied equally much have different hashes: {sorted(hashes)}"]
            if len(found) == len(self.group.numbers) and len(applied) == 1:
                # ZapViewers has the log go on: what differs meanwhile is asked for again.
                accounts = [self.accounts(number) for number in self.group.numbers]
                if all(each == accounts[0] for each in accounts):
                    break
                if {one["applied"] for one in (await self.statuses()).values()} == applied:
                    break
            if time.monotonic() > until:
                return [f"the replicas did not become equal: {sorted(hashes)}"]
            await asyncio.sleep(0.1)
        problems = (
            []
            if all(each == accounts[0] for each in accounts)
            else [f"the replicas have different accounts: {accounts}"]
        )
        for number in self.group.numbers:
            lines = (self.group.path.parent / f"{number}.log").read_text(errors="replace").splitlines()
            problems += [f"replica {number}: {line}" for line in lines if " agreement " in line]
        for client, (queued, waiting) in accounts[0].items():
            if queued != waiting:
                problems.append(f"accounts of {client}: {queued} are left, but {waiting} wait")
        return problems

    def accounts(self, number: int) -> dict[str, tuple[int, int]]:
        """Returns for every session at a replica the number queued by its accounts, and the number that is."""
        socket = admin_socket_path(config_of(self.group.spec, number))
        sessions = ask(socket, "/sessions", {"limit": 10_000})["sessions"]
        return {
            one["client"]: (one["accounts"]["queued"], one["inflight"] + one["waiting"])
            for one in sorted(sessions, key=lambda s: str(s["client"]))
        }

    def log(self) -> str:
        """The end of what the replicas logged."""
        files = sorted(self.group.path.parent.glob("*.log"))
        return "".join(f"--- {file.name}\n{file.read_text(errors='replace')[-2000:]}" for file in files)

    def table(self) -> str:
        """The troubles with their gaps."""
        rows = [f"{'at':>7}  {'what':<24} {'replicas':<10} {'for':>6} {'gap':>8}"]
        for one in self.outcomes:
            which = ",".join(map(str, one.victims))
            rows.append(f"{one.at_s:6.1f}s  {one.what:<24} {which:<10} {one.down_s:5.1f}s {one.gap_s * 1000:5.0f} ms")
        return "\n".join(rows)

    def summary(self) -> str:
        """Returns a summary of what went through."""
        history = self.load.history
        got = " ".join(f"{name}={len(one.got)}" for name, one in history.received.items())
        acknowledged = f"{len(history.acknowledged)} of {len(history.sent)} publications acknowledged"
        return (
            f"{acknowledged}, {self.load.fail_overs} fail-overs; received {got}; {len(self.zappers.lines)} zap events"
        )


def draw_trouble(draw: random.Random, replicas: int) -> Trouble:
    """The next trouble: most often the leader is killed, one time in eight the majority is."""
    kind: Literal["kill", "stop"] = "kill" if draw.random() < 0.7 else "stop"
    is_many = draw.random() < 0.125
    tolerated = (replicas - 1) // 2
    count = tolerated + 1 if is_many else draw.randint(1, tolerated)
    return Trouble(kind, count, draw.uniform(4.0, 7.0) if is_many else draw.uniform(0.1, 2.5), draw.random() < 0.7)


async def run(options: argparse.Namespace, folder: Path) -> int:
    """One run; the exit code."""
    trial = Trial(folder, options.replicas, options.variant, options.sync, options.seed)
    draw = random.Random(options.seed)
    try:
        await trial.start()
        ends = time.monotonic() + options.seconds
        while time.monotonic() < ends:
            await trial.make(draw_trouble(draw, options.replicas), draw.uniform(0.5, 2.0))
        problems = await trial.finish()
    finally:
        trial.end()
    print(trial.table())
    print(trial.summary())
    print("\n".join(problems) or "all promises kept")
    return 1 if problems else 0


def describe(gaps_s: list[float]) -> str:
    """Returns the distribution of gaps in a line."""
    gaps = sorted(gaps_s) or [0.0]
    shares = ((0.5, "median"), (0.9, "90 %"), (0.99, "99 %"), (1.0, "longest"))
    return "gaps: " + ", ".join(
        f"{name} {gaps[min(len(gaps) - 1, int(share * len(gaps)))]:.3f} s" for share, name in shares
    )


async def kill_leaders(options: argparse.Namespace, folder: Path) -> int:
    """Kills leaders in pieces until so many died or the time is over; the exit code."""
    ends = time.monotonic() + options.seconds
    gaps_s: list[float] = []
    acknowledged = broken = piece = 0
    while len(gaps_s) < options.leader_kills and time.monotonic() < ends and not broken:
        piece += 1
        seed = options.seed + piece
        draw = random.Random(seed)
        trial = Trial(folder / str(piece), options.replicas, options.variant, options.sync, seed)
        try:
            await trial.start()
            for _ in range(min(options.piece, options.leader_kills - len(gaps_s))):
                if time.monotonic() > ends:
                    break
                gaps_s.append(
                    (await trial.make(Trouble("kill", 1, draw.uniform(0.1, 1.0)), draw.uniform(0.1, 0.5))).gap_s
                )
            problems = await trial.finish()
        finally:
            trial.end()
        acknowledged += len(trial.load.history.acknowledged)
        broken += len(problems)
        killed = len(trial.outcomes)
        print(f"piece {piece}, seed {seed}: {killed} leaders killed; {trial.summary()}; {describe(gaps_s[-killed:])}")
        print("\n".join(problems) or "all promises kept", flush=True)
    print(
        f"{len(gaps_s)} of {options.leader_kills} leaders killed, {acknowledged} publications acknowledged, "
        f"{broken} promises broken; {describe(gaps_s)}"
    )
    return 1 if broken else 2 if len(gaps_s) < options.leader_kills else 0


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--replicas", type=int, choices=(3, 5, 7), default=3)
    parser.add_argument("--variant", choices=("multi", "batch", "fast"), default="multi")
    parser.add_argument("--sync", choices=("majority", "none"), default="majority")
    parser.add_argument("--leader-kills", type=int, metavar="N", help="kill N leaders, in pieces, and nothing else")
    parser.add_argument("--piece", type=int, default=50, metavar="N", help="kills in one piece")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that no replica is left behind
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run((kill_leaders if options.leader_kills else run)(options, Path(folder)))


if __name__ == "__main__":
    sys.exit(main())
