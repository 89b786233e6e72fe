"""Lets thousands of clients loose on a broker that is killed again and again, and checks what it promises.

    python tools/broker_soak.py --minutes 5 --clients 2000 [--seed 1]

The broker is a process with its state in a folder. It is killed (SIGKILL) at random moments and started again; clients
break their connections, say goodbye and come back. They are of both versions, all QoS, with lasting and passing
sessions, some in shared subscriptions. What must hold:

- no message that was acknowledged to its publisher is lost to a lasting session (or to a shared subscription of such);
- a passing session misses none between two that it got by the same connection;
- at QoS 2 none arrives twice; at QoS 0 none twice, unless its publisher sent it twice;
- the messages of one publisher, topic and QoS come in order, repetitions aside;
- a lasting session is there when its client comes back, and a retained message is the last one that was acknowledged;
- the accounts balance: for each session, what they say is queued is what is in flight and waiting.

All choices come from the seed, but not the timing of real processes: the same seed makes the same plan. A failure
prints the command that repeats it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import uvloop

from broker_soak_clients import Inbox, Peer, Plan, Publisher, Reader, Soak, Subscriber
from surecast.broker.admin_client import AdminError, ask
from surecast.broker.free_ports import free_port

GROUP = 20  # clients that talk to each other; the first PUBLISHERS of them publish
PUBLISHERS = 5
NO_PROGRESS_S = 120.0  # a limit for busy machines
COMMAND = Path(sys.executable).parent / "surecast"
HARMLESS = {"offline-qos0", "slow-qos0", "session-ended"}


class Process:
    """The broker, which is killed and started again."""

    def __init__(self, folder: Path, port: int, durability: str):
        self.folder, self.port, self.durability = folder, port, durability
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> float:
        """Starts it and waits until it answers; how long that took."""
        begun = time.monotonic()
        command: list[str | Path] = [COMMAND, "broker", "--port", str(self.port), "--folder", self.folder / "state"]
        command += ["--durability", self.durability, "--set", f"admin_socket={self.folder / 'admin.sock'}"]
        command += ["--log-level", "warning", "--set", "limits.queue_messages=1000000"]
        with (self.folder / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        while True:
            if self._process.poll() is not None:
                raise SystemExit(f"the broker ended: {(self.folder / 'broker.log').read_text()[-2000:]}")
            try:
                await self.ask("/status")
                return time.monotonic() - begun
            except AdminError:
                await asyncio.sleep(0.05)

    async def ask(self, path: str) -> dict[str, Any]:
        """Returns the answer of the administration."""
        query = {"limit": 10_000} if path == "/sessions" else None
        return await asyncio.to_thread(ask, self.folder / "admin.sock", path, query)

    async def hear(self, path: str) -> dict[str, Any]:
        """As `ask` of a broker that is up: on a busy machine it may be slow to answer."""
        until = time.monotonic() + NO_PROGRESS_S
        while True:
            try:
                return await self.ask(path)
            except AdminError:
                if time.monotonic() > until:
                    raise

    def end(self, number: signal.Signals = signal.SIGKILL) -> int:
        """Ends it."""
        assert self._process is not None
        self._process.send_signal(number)
        return self._process.wait(60)


async def storm(soak: Soak, broker: Process) -> None:
    """Publishes, and kills the broker now and then, until the time is over."""
    plan, rng = soak.plan, random.Random(f"{soak.plan.seed}:storm")
    end = time.monotonic() + plan.seconds
    kill_at = time.monotonic() + plan.kill_interval_s * rng.uniform(0.5, 1.5)
    last = time.monotonic()
    owed = 0.0
    while (now := time.monotonic()) < end or soak.counts["kills"] < plan.kills_least:
        owed = min(owed + (now - last) * plan.rate_per_s, plan.rate_per_s)
        last = now
        while owed >= 1:
            count = rng.randint(1, 8)
            rng.choice(soak.publishers).publish(count)
            owed -= count
        if now >= kill_at:
            with contextlib.suppress(AdminError):
                await check_accounts(soak, broker)
            broker.end()
            await asyncio.sleep(rng.uniform(0, 0.5))
            took_s = await broker.start()
            soak.counts["kills"] += 1
            print(f"killed and back within {took_s:.1f} s; {dict(soak.counts)}", flush=True)
            last = time.monotonic()
            kill_at = last + plan.kill_interval_s * rng.uniform(0.5, 1.5)
        await asyncio.sleep(0.02)


async def check_accounts(soak: Soak, broker: Process) -> tuple[int, dict[str, int]]:
    """Compares the accounts of every session with its queue; what is queued in all, and what was dropped."""
    queued, dropped = 0, Counter[str]()
    for session in (await broker.hear("/sessions"))["sessions"]:
        there = session["inflight"] + session["waiting"]
        if session["accounts"]["queued"] != there:
            soak.violation(f"the accounts of {session['client']} do not balance: {json.dumps(session)}")
        queued += there
    for reason, count in (await broker.hear("/status"))["accounts"]["dropped"].items():
        dropped[reason] += count
        if reason not in HARMLESS:
            soak.violation(f"{count} messages were dropped: {reason}")
    return queued, dropped


async def settle(soak: Soak, broker: Process) -> None:
    """Waits until all is acknowledged and has come, as long as there is progress; what is missing then is lost."""
    soak.calm.set()
    seen, since = (-1, -1), time.monotonic()
    while True:
        open_count = sum(len(publisher.open) for publisher in soak.publishers)
        missing = sum(len(subscriber.missing()) for subscriber in soak.subscribers)
        queued, dropped = await check_accounts(soak, broker)
        if not open_count and not missing and not queued:
            break
        if (state := (open_count, missing)) != seen:
            seen, since = state, time.monotonic()
        if time.monotonic() - since > NO_PROGRESS_S:
            soak.violation(f"{open_count} messages are open at their publishers, {queued} queued in the broker")
            break
        await asyncio.sleep(0.5)
    for subscriber in soak.subscribers:
        for lost in subscriber.missing()[:3]:
            soak.violation(f"{subscriber.name} (lasting {subscriber.lasting}) never got {lost}")
    print(f"dropped by rule since the last start: {dict(dropped)}")


async def check_retained(soak: Soak) -> None:
    """A retained message is the last that was acknowledged, or a later one."""
    reader = Reader(soak)
    task = asyncio.ensure_future(reader.live())
    wanted = {s.topic: max(s.acknowledged) for s in soak.streams.values() if s.retain and s.acknowledged}
    end = time.monotonic() + NO_PROGRESS_S
    while time.monotonic() < end and any(topic not in reader.kept for topic in wanted):
        await asyncio.sleep(0.1)
    for topic, number in wanted.items():
        if reader.kept.get(topic, -1) < number:
            soak.violation(f"{topic}: {reader.kept.get(topic)} is retained, {number} was acknowledged")
    soak.over.set()
    await task


def populate(soak: Soak) -> list[Peer]:
    """The clients, in groups."""
    plan, peers = soak.plan, list[Peer]()
    for index in range(plan.clients):
        group, place = divmod(index, GROUP)
        rng = random.Random(f"{plan.seed}:{index}")
        if place < PUBLISHERS:
            soak.publishers.append(Publisher(soak, f"p{index}", group, rng))
            peers.append(soak.publishers[-1])
            continue
        if place == PUBLISHERS:
            share = Inbox()
        shared = share if place < PUBLISHERS + 3 else None
        soak.subscribers.append(Subscriber(soak, f"s{index}", group, rng, shared))
        peers.append(soak.subscribers[-1])
    return peers


async def run(plan: Plan, folder: Path) -> Soak:
    """One run, from the first start of the broker to its orderly end."""
    port = free_port()
    soak, broker = Soak(plan, port), Process(folder, port, plan.durability)
    await broker.start()
    tasks = [asyncio.ensure_future(peer.live()) for peer in populate(soak)]
    try:
        await storm(soak, broker)
        print(f"calm; {dict(soak.counts)}", flush=True)
        await settle(soak, broker)
        await check_retained(soak)
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        if (code := broker.end(signal.SIGTERM)) != 0:
            soak.violation(f"the broker ended with {code}")
    return soak


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--clients", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--rate", type=float, default=300.0, help="messages in a second, of all publishers together")
    parser.add_argument("--kill-interval", type=float, default=30.0, help="mean seconds between two kills")
    parser.add_argument("--kills", type=int, default=0, help="go on until it was killed so often")
    parser.add_argument("--online", type=float, default=30.0, help="mean seconds that a connection lasts")
    parser.add_argument("--durability", choices=("full", "os", "memory"), default="full", help="memory must fail")
    given = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4 * given.clients)), hard))
    plan = Plan(
        60 * given.minutes,
        given.clients,
        given.seed,
        given.rate,
        given.kill_interval,
        given.kills,
        given.online,
        given.durability,
    )
    print(f"seed {plan.seed}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="surecast-soak-"))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        soak = runner.run(run(plan, folder))
    for name, count in sorted(soak.counts.items()):
        print(f"{count:>10,} {name}")
    if soak.wrong:
        print(f"{len(soak.wrong)} violations; the state and the log are in {folder}. Again:")
        options = [f"--{name.replace('_', '-')} {value}" for name, value in vars(given).items()]
        print(f"  python {sys.argv[0]} {' '.join(options)}")
        return 1
    shutil.rmtree(folder)
    print("all promises kept")
    return 0


if __name__ == "__main__":
    sys.exit(main())
