"""Damages the store of a real broker and of a real replica that was killed under load, and starts it again.

    python tools/fault_store_damage.py --seconds 120 --seed 1 [--kind broker|replica]

A broker takes messages until it is killed (SIGKILL). Each trial damages a copy of its state and starts a broker on it:
a bit is flipped, a file is cut short, deleted, overwritten with zeros from somewhere on, set back to the copy it was a
moment before, or exchanged for one of another store. Other trials do what a crash does: nothing, or half a commit after
the last one. Starting a process takes its time: for each one that is started, a number of other copies are damaged in
the same way, and opened by the store alone. What must hold:

- damage is refused, and the message names the damaged file and a byte;
- or it took nothing: what was acknowledged is there (the bit was in old content);
- or only the last commit is in doubt, and a warning says so;
- what a crash leaves is not refused.

The counts are printed, of starts and of openings. The exit code is 1 if anything acknowledged was lost in silence, if a
refusal did not name the file, or if what a crash leaves was refused. All choices come from the seed, but not the timing
of real processes.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from surecast.broker.cluster import write_group
from surecast.broker.free_ports import free_port
from surecast.broker.group_config import load_broker_group
from surecast.broker.segment_file import HEAD_BYTES, scan
from surecast.broker.segment_mark import read_mark
from surecast.broker.segment_store import SegmentStore
from surecast.broker.store_base import StoreError
from surecast.client import Client
from surecast.client.client_errors import ClientError

TOPICS = 40
PUBLISHERS = 8
LOAD_S = 1.5
LOAD_MIN = 150
READY_S = 20.0
SURECAST = (sys.executable, "-m", "surecast")
NOT_COPIED = shutil.ignore_patterns("*.sock", "*.pid")
BAD = ("silently lost", "refused without a name", "wrongly refused")

Kind = Literal["broker", "replica"]


@dataclass
class Service:
    """A broker or a group of one replica in a folder; copies of the folder can be started in its place."""

    kind: Kind
    folder: Path
    program: Sequence[str] = SURECAST
    port: int = 0

    def __post_init__(self) -> None:
        if self.kind == "broker":
            self.port = free_port()
            self.folder.mkdir()
        else:
            spec = load_broker_group(write_group(self.folder, 1))
            self.port = spec.replicas[0].mqtt[0].wanted_port

    def store(self, folder: Path) -> Path:
        """Returns where the store is."""
        return folder / "state" if self.kind == "broker" else folder / "data" / "1"

    def start(self, folder: Path) -> subprocess.Popen[bytes]:
        """Starts it in a folder; what it says goes to `said` there."""
        options = ["--port", str(self.port), "--folder", str(folder / "state")]
        if self.kind == "replica":
            options = ["--group", str(folder / "group.yaml"), "--id", "1"]
        with (folder / "said").open("wb") as said:
            return subprocess.Popen([*self.program, "broker", *options], stdout=said, stderr=said)

    async def wait_ready(self, process: subprocess.Popen[bytes]) -> bool:
        """Waits until it answers a subscriber; False where it ended instead."""
        until = time.monotonic() + READY_S
        while process.poll() is None:
            with suppress(ClientError, OSError):
                async with Client("127.0.0.1", self.port, timeout_s=2.0) as client:
                    await client.subscribe("nothing")
                    return True
            if time.monotonic() > until:
                raise RuntimeError(f"the {self.kind} neither works nor ends within {READY_S:g} s")
            await asyncio.sleep(0.05)
        return False


@dataclass
class Load:
    """The acknowledged messages: the last number of each topic."""

    acknowledged: dict[str, int] = field(default_factory=dict)
    count: int = 0

    async def publish(self, port: int, draw: random.Random) -> None:
        """Publishes retained messages one after the other, until the broker is gone."""
        with suppress(ClientError, OSError):
            async with Client("127.0.0.1", port) as client:
                while True:
                    self.count += 1
                    number, topic = self.count, f"load/{self.count % TOPICS}"
                    payload = b"%d " % number + draw.randbytes(draw.randrange(200, 8000))
                    await client.publish(topic, payload, 1, retain=True)
                    self.acknowledged[topic] = max(number, self.acknowledged.get(topic, 0))

    async def lost(self, port: int) -> list[str]:
        """Returns the topics that have an older message than was acknowledged, or none."""
        found: dict[str, int] = {}
        async with Client("127.0.0.1", port) as client:
            await client.subscribe("load/#", qos=1)
            with suppress(TimeoutError):
                while len(found) < TOPICS:
                    async with asyncio.timeout(2.0):
                        message = await client.message()
                    found[message.topic] = int(message.payload.split(b" ", 1)[0])
        return [topic for topic, number in self.acknowledged.items() if found.get(topic, 0) < number]


@dataclass
class Killed:
    """A service that was killed under load: what it had acknowledged, and its files a moment before."""

    service: Service
    load: Load
    earlier: Path
    states: list[dict[bytes, bytes]]
    """The content of an undamaged copy of its store; and without its last commit, if that was not confirmed."""


async def kill_under_load(service: Service, seed: int) -> Killed:
    """Starts it, loads it, copies its files on the way, and kills it."""
    load, draw = Load(), random.Random(seed)
    process = service.start(service.folder)
    if not await service.wait_ready(process):
        raise RuntimeError((service.folder / "said").read_text())
    tasks = [asyncio.create_task(load.publish(service.port, random.Random(seed + n))) for n in range(PUBLISHERS)]
    await asyncio.sleep(LOAD_S * draw.uniform(0.3, 0.8))
    earlier = service.folder.with_name(f"{service.folder.name}-earlier")
    shutil.copytree(service.store(service.folder), earlier, ignore=NOT_COPIED)
    await asyncio.sleep(LOAD_S * draw.uniform(0.2, 0.5))
    until = time.monotonic() + READY_S
    while load.count < LOAD_MIN and time.monotonic() < until:  # on a busy machine it takes longer
        await asyncio.sleep(0.05)
    process.kill()
    process.wait()
    await asyncio.gather(*tasks)
    return Killed(service, load, earlier, list(states_of(service)))


def states_of(service: Service) -> Iterator[dict[bytes, bytes]]:
    """Yields what a store may hold when it is opened again."""
    whole = service.folder.with_name(f"{service.folder.name}-whole")
    shutil.copytree(service.store(service.folder), whole, ignore=NOT_COPIED)
    confirmed = read_mark(whole / "mark").number
    with SegmentStore(whole, sync_every_s=0) as store:
        yield dict(store.items())
        last = store.statistics().commits
    if last == confirmed:
        return
    shutil.rmtree(whole)
    shutil.copytree(service.store(service.folder), whole, ignore=NOT_COPIED)
    file = files_of(whole)[-1]
    found = scan(file.read_bytes())
    assert found is not None
    file.write_bytes(file.read_bytes()[: found.entries[-2].end if len(found.entries) > 1 else HEAD_BYTES])
    with SegmentStore(whole, sync_every_s=0) as store:
        yield dict(store.items())


# What is done to the files of a store; each returns the file it damaged, or None where a crash could have done it.

Damage = Callable[[Path, random.Random, Path, Path], Path | None]


def files_of(store: Path) -> list[Path]:
    return sorted(store.glob("segment-*.log"))


def flip(store: Path, draw: random.Random, earlier: Path, other: Path) -> Path | None:
    """Flips a bit of the log."""
    file = draw.choice(files_of(store))
    data = bytearray(file.read_bytes())
    data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    file.write_bytes(data)
    return file


def flip_mark(store: Path, draw: random.Random, earlier: Path, other: Path) -> Path | None:
    """Flips a bit of the mark."""
    file = store / "mark"
    data = bytearray(file.read_bytes())
    data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    file.write_bytes(data)
    return file


def cut(store: Path, draw: random.Random, earlier: Path, other: Path) -> Path | None:
    """Cuts a file short."""
    file = draw.choice(files_of(store))
    file.write_bytes(file.read_bytes()[: draw.randrange(_end(file))])
    return file


def zero(store: Path, draw: random.Random, earlier: Path, other: Path) -> Path | None:
    """Overwrites a file with zeros from somewhere on."""
    file = draw.choice(files_of(store))
    data = file.read_bytes()
    at = draw.randrange(_end(file))
    file.write_bytes(data[:at] + bytes(len(data) - at))
    return file


def delete(store: Path, draw: random.Random, earlier: Path, other: Path) -> Path | None:
    """Deletes a file."""
    file = draw.choice([*files_of(store), store / "mark"])
    file.unlink()
    return file


def set_back(store: Path, draw: random.Random, earlier: Path, other: Path) -> Path | None:
    """Puts an older copy in the place of the last file."""
    file = max(earlier.glob("segment-*.log"))
    shutil.copy(file, store / file.name)
    return store / file.name


def exchange(store: Path, draw: random.Random, earlier: Path, other: Path) -> Path | None:
    """Puts the file of another store in the place of one."""
    file = draw.choice(files_of(store))
    shutil.copy(draw.choice(files_of(other)), file)
    return file


def nothing(store: Path, draw: random.Random, earlier: Path, other: Path) -> Path | None:
    """Leaves the files as the kill left them."""
    return None


def tear(store: Path, draw: random.Random, earlier: Path, other: Path) -> Path | None:
    """Leaves half a commit after the last one."""
    file = files_of(store)[-1]
    end = _end(file)
    data = file.read_bytes()
    torn = draw.randbytes(draw.randrange(1, 4000)) if draw.random() < 0.5 else bytes(draw.randrange(1, 4000))
    file.write_bytes(data[:end] + torn + data[end + len(torn) :])
    return None


def _end(file: Path) -> int:
    """Returns where the last commit of a file ends."""
    found = scan(file.read_bytes())
    assert found is not None, f"{file} was damaged before"
    return found.end


DAMAGES: dict[str, Damage] = {
    "flipped": flip,
    "cut": cut,
    "zeroed": zero,
    "deleted": delete,
    "set back": set_back,
    "exchanged": exchange,
    "mark flipped": flip_mark,
    "nothing": nothing,
    "torn": tear,
}


async def trial(killed: Killed, name: str, draw: random.Random, other: Path, keep: Path) -> str:
    """Damages a copy and starts it; what came of it."""
    service = killed.service
    copy = keep / "trial"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(service.folder, copy, ignore=NOT_COPIED)
    damaged = DAMAGES[name](service.store(copy), draw, killed.earlier, other)
    process = service.start(copy)
    try:
        starts = await service.wait_ready(process)
        said = (copy / "said").read_text(errors="replace")
        if not starts:
            if damaged is None:
                return "wrongly refused"
            is_named = "damaged at byte" in said or "it has format" in said
            # A file that ends early may show at the one that follows, and a mark that does not fit at the first.
            return "refused by name" if is_named and str(service.store(copy)) in said else "refused without a name"
        lost = await killed.load.lost(service.port)
    finally:
        process.kill()
        process.wait()
    in_doubt = "is in doubt" in said
    if len(lost) > (1 if in_doubt else 0):
        return "silently lost"
    return "last commit in doubt, with a warning" if lost else "nothing lost"


def open_trial(killed: Killed, name: str, draw: random.Random, other: Path, keep: Path) -> str:
    """Damages a copy and opens its store; what came of it."""
    copy = keep / "opened"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(killed.service.store(killed.service.folder), copy, ignore=NOT_COPIED)
    damaged = DAMAGES[name](copy, draw, killed.earlier, other)
    try:
        with SegmentStore(copy, sync_every_s=0) as store:
            found, in_doubt = dict(store.items()), store.statistics().in_doubt
    except StoreError as error:
        if damaged is None:
            return "wrongly refused"
        is_named = "damaged at byte" in str(error) or "it has format" in str(error)
        return "refused by name" if is_named and str(copy) in str(error) else "refused without a name"
    if found in killed.states:
        return "nothing lost"
    return "last commit in doubt, with a warning" if in_doubt else "silently lost"


async def rounds(
    kinds: Sequence[Kind], seconds: float, seed: int, folder: Path, opens: int, program: Sequence[str] = SURECAST
) -> Counter[tuple[str, str, str]]:
    """Runs trials on stores of each kind until the time is over; how often what came of what."""
    draw = random.Random(seed)
    results: Counter[tuple[str, str, str]] = Counter()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        place = Path(tempfile.mkdtemp(dir=folder))
        killed = [
            await kill_under_load(Service(kind, place / f"{kind}{n}", program if n == 0 else SURECAST), seed + n)
            for kind in kinds
            for n in (0, 1)  # the second one is there to take files from
        ]
        for name in DAMAGES:
            for own, other in zip(killed[::2], killed[1::2], strict=True):
                foreign = other.service.store(other.service.folder)
                for _ in range(opens if time.monotonic() < until else 0):
                    results["opened", name, open_trial(own, name, draw, foreign, place)] += 1
                if time.monotonic() < until:
                    results[own.service.kind, name, await trial(own, name, draw, foreign, place)] += 1
        shutil.rmtree(place)
        seed += 2
    return results


def report(results: Counter[tuple[str, str, str]]) -> int:
    """Prints the counts; the exit code."""
    bad = sum(count for (_, _, result), count in results.items() if result in BAD)
    print(f"{'FAILED' if bad else 'ok'}: {results.total()} trials")
    for result in sorted({result for _, _, result in results} | set(BAD)):
        print(f"  {sum(n for key, n in results.items() if key[2] == result):5}  {result}")
    for (kind, name, result), count in sorted(results.items()):
        print(f"    {kind:8} {name:13} {count:5}  {result}")
    return 1 if bad else 0


def main() -> int:
    """Parses, runs, prints."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--opens", type=int, default=20, help="Stores opened for each process that is started.")
    parser.add_argument("--kind", choices=["broker", "replica"], help="both if it is left out")
    arguments = parser.parse_args()
    kinds: tuple[Kind, ...] = ("broker", "replica") if arguments.kind is None else (arguments.kind,)
    with tempfile.TemporaryDirectory(prefix="surecast-damage-") as name:
        print(f"seed {arguments.seed}, {arguments.seconds:g} s, {' and '.join(kinds)}", flush=True)
        results = asyncio.run(rounds(kinds, arguments.seconds, arguments.seed, Path(name), arguments.opens))
    return report(results)


if __name__ == "__main__":
    sys.exit(main())
