"""Sets disks of a real replicated broker back to older copies under load, and checks that no acknowledged one is lost.

    python tools/fault_disk_set_back.py --seconds 120 --seed 1 [--replicas 3|5] [--sync none]

Publishers publish at QoS 1, retained, each message under a topic of its own, and note what was acknowledged. Again and
again one replica is killed and comes back with an older copy of its folder: one from before its last start, a later,
or none at all. The other replicas are restarted meanwhile, and now and then all but one of them stay down, so that the
one with the older copy and one that knows would be a majority. What must hold:

- every replica with an older copy or none stops, with exit code 3 or 1, and names the command that repairs it;
- that command, `surecast cluster repair`, puts a new one in its place;
- at the end every acknowledged message is there, and all replicas have the same running hash.

With --admit-all the replicas run without the check, to show that this tool notices: the verdict must then be a failure.
The exit code is 1 if a promise was broken.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from surecast.broker.cluster import LocalGroup, write_group
from surecast.broker.cluster_repair import repair_replica
from surecast.client.group_client import GroupClient
from surecast.errors import ConfigurationError, SurecastError

REFUSED_S = 30.0
DURABLE_S = 1.0
"""After so long what replicas saw of each other is durable, on a busy machine too."""
ADMIT_ALL = """
from surecast.protocol.paxos import admission
admission.objection_to = lambda told, seen: None
admission.Admission._other_log = lambda self, applied, running: None
"""
PAXOS = {"snapshot_every": 400, "log_keep": 100, "snapshot_at_once": "1B"}


class Trial:
    """A group, what was acknowledged, and the copies of its folders."""

    def __init__(self, folder: Path, replicas: int, sync: str, seed: int):
        self.folder = folder
        options = {"sync": sync, "paxos": PAXOS}
        self.group = LocalGroup(write_group(folder / "group", replicas, options=options))
        self.acknowledged: list[str] = []
        self.rows: list[str] = []
        self.problems: list[str] = []
        self._draw = random.Random(seed)
        self._count = 0

    def copy(self, number: int, name: str) -> Path:
        """Copies the folder of a replica that is down."""
        target = self.folder / "copies" / f"{name}-{self._count}-{number}"
        shutil.copytree(self.group.spec.folder(number), target, ignore=shutil.ignore_patterns("*.sock"))
        return target

    def load(self, count: int) -> None:
        """Publishes, and notes what was acknowledged."""

        async def run() -> None:
            async with GroupClient(self.group.addresses) as client:
                for _ in range(count):
                    self._count += 1
                    topic = f"kept/{self._count}"
                    await client.publish(topic, b"x", qos=1, retain=True)
                    self.acknowledged.append(topic)

        asyncio.run(asyncio.wait_for(run(), 60))

    def restart(self, number: int) -> None:
        """Kills a replica and starts it again."""
        self.group.kill(number)
        self.group.start(number)
        self.group.wait_ready()

    def round(self) -> None:
        """Sets one replica back, in one of the ways."""
        group, draw = self.group, self._draw
        kind = draw.choice(("before the last start", "after it", "wiped"))
        victim, *others = draw.sample(group.numbers, len(group.numbers))
        self.load(draw.randint(5, 30))
        if kind == "after it":
            self.restart(victim)
            self.load(draw.randint(5, 20))
        group.kill(victim)
        copy = self.copy(victim, "copy")
        group.start(victim)
        group.wait_ready()
        absent = others[: (len(group.numbers) - 1) // 2]
        for number in absent:
            group.kill(number)
        self.load(draw.randint(10, 40))
        time.sleep(DURABLE_S)
        for number in group.numbers:
            if number not in absent:
                group.kill(number)
        shutil.rmtree(group.spec.folder(victim))
        if kind != "wiped":
            shutil.copytree(copy, group.spec.folder(victim))
        witnesses = [number for number in others if number not in absent]
        self._check(kind, victim, witnesses, absent)

    def _check(self, kind: str, victim: int, witnesses: list[int], absent: list[int]) -> None:
        """The victim and those that know it come up first, then the others, who may not know it."""
        group = self.group
        group.start(*witnesses, victim)
        process = group.processes[victim]
        begin = time.monotonic()
        while process.poll() is None and time.monotonic() - begin < REFUSED_S:
            time.sleep(0.05)
        code = process.poll()
        log = (group.path.parent / f"{victim}.log").read_text(errors="replace")
        noticed = code in (1, 3) and f"surecast cluster repair {victim} {group.path}" in log
        text = f"{kind:<22} replica {victim}: " + (f"refused, exit {code}" if noticed else f"NOT NOTICED, exit {code}")
        self.rows.append(f"{text} after {time.monotonic() - begin:.1f} s")
        if not noticed:
            self.problems.append(f"replica {victim} came back, {kind}, and nobody noticed")
            for number in witnesses:  # with those who were not there it would be a majority that has forgotten
                group.kill(number)
            group.start(*absent)
            with suppress(SurecastError):
                group.wait_ready()
            self.load(5)
            group.start(*witnesses)
            return
        del group.processes[victim]
        group.start(*absent)
        group.wait_ready()
        done = repair_replica(group.path, victim, tell=lambda line: None)
        if done.process is not None:
            group.processes[done.new] = done.process
        repaired = LocalGroup(group.path)
        repaired.processes = group.processes
        self.group = repaired
        repaired.wait_ready()

    def finish(self) -> None:
        """Counts what is left of what was acknowledged, and compares the replicas."""

        async def run() -> set[str]:
            seen: set[str] = set()
            async with GroupClient(self.group.addresses) as client, client.subscription("kept/#", qos=1) as messages:
                with suppress(TimeoutError):
                    async with asyncio.timeout(20):
                        async for message in messages:
                            seen.add(message.topic)
                            if len(seen) == len(self.acknowledged):
                                break
            return seen

        lost = sorted({*self.acknowledged} - asyncio.run(run()))
        if lost:
            self.problems.append(f"{len(lost)} of {len(self.acknowledged)} acknowledged are lost: {lost[:5]} ...")
        until = time.monotonic() + 30
        while True:
            states = {(one.get("applied"), one.get("hash")) for one in self.group.status()}
            if len(states) == 1 or time.monotonic() > until:
                break
            time.sleep(0.2)
        if len(states) > 1:
            self.problems.append(f"the replicas differ: {sorted(states, key=str)}")


def run(options: argparse.Namespace, folder: Path) -> int:
    """One run; the exit code."""
    if options.admit_all:
        (folder / "sitecustomize.py").write_text(ADMIT_ALL)
        os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    trial = Trial(folder, options.replicas, options.sync, options.seed)
    ends = time.monotonic() + options.seconds
    try:
        trial.group.start()
        trial.group.wait_ready()
        while time.monotonic() < ends and not trial.problems:
            trial.round()
            print(trial.rows[-1], flush=True)
        trial.finish()
    except (ConfigurationError, TimeoutError) as error:
        trial.problems.append(f"the group did not come back: {error or 'time is over'}")
    finally:
        for process in trial.group.processes.values():
            process.kill()
            process.wait()
    print(f"{len(trial.rows)} disks set back, {len(trial.acknowledged)} publications acknowledged")
    print("\n".join(trial.problems) or "0 lost, every set-back noticed")
    return 1 if trial.problems else 0


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--replicas", type=int, choices=(3, 5), default=3)
    parser.add_argument("--sync", choices=("majority", "none"), default="majority")
    parser.add_argument("--admit-all", action="store_true", help="without the check: the verdict must be a failure")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that no replica is left behind
    with tempfile.TemporaryDirectory() as folder:
        return run(options, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
