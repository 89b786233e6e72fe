"""Kills the replicas of a real replicated broker in turn under content filters and hostile payloads.

    python tools/fault_content_kills.py --seconds 60 --seed 1 [--sync majority] [--variant multi|batch|fast]
    python tools/fault_content_kills.py --seconds 20 --careless 2       must fail: replica 2 parses payloads as it likes

Publishers send JSON that parsers disagree about: nested 900 to 999 deep and around our limit, numbers of thousands of
digits, long names, other encodings, fields given twice. Subscribers have content filters; one of them is away all the
time and comes back at the end. Meanwhile the replicas are killed (SIGKILL) and started again, one after the other, so
that each applies its log again. What must hold, with what is said of each payload by hand as the oracle:

- every acknowledged publication that a filter takes arrives, once where all is QoS 2, and no other arrives;
- at the end all replicas have the same running hash of effects and the same whole state (`surecast cluster verify`);
- no replica ever had to discard its state, and none applied its log with other effects than before.

`--careless N` is the mutation that shows that the verdict can fail: replica N takes any depth, as json.loads does.
The exit code is 1 if a promise was broken.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from surecast.broker.cluster import LocalGroup, write_group
from surecast.broker.replica.administer import ask_status, ask_verify
from surecast.broker.replica.standing import verdict
from surecast.client.client_errors import ClientError
from surecast.client.group_client import GroupClient
from surecast.protocol.mqtt import Properties

Attributes = dict[str, Any]
TOPIC = "hostile"
OPEN_MAX = 8
SETTLE_S = 30.0
JSON = Properties(content_type="application/json")
PAXOS = {"snapshot_every": 300, "log_keep": 100, "snapshot_at_once": "1B"}
"""Snapshots come often, so that replicas begin with one, and apply the log behind it."""

FILTERS: dict[str, tuple[str, Callable[[Attributes], bool]]] = {
    "dear": ("price > 30", lambda a: a.get("price", 0) > 30),
    "foo": ('stock startswith "F" and price <= 50', lambda a: a.get("stock", "")[:1] == "F" and a["price"] <= 50),
    "deep": ("deep.er.price >= 3", lambda a: a.get("deep.er.price", 0) >= 3),
    "large": ("n > 100000000000000000000", lambda a: a.get("n", 0) > 10**20),
    "away": ("price > 30", lambda a: a.get("price", 0) > 30),
}
"""The content filters of the subscribers, and what each takes."""

_CARELESS = """
import json, sys
from surecast.protocol.broker import content
def parsed(payload):
    try:
        found = json.loads(payload)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
content._parsed = parsed
from surecast.cli import main
main()
"""


def hostile(name: str, draw: random.Random) -> tuple[bytes, Attributes]:
    """A payload that is unlike all others by a name in it, and the attributes that it has by docs/semantics.md."""
    price = draw.randrange(60)
    head = f'{{"id": "{name}", "price": {price}'
    known: Attributes = {"id": name, "price": price}

    def nested(levels: int) -> bytes:
        return f'{head}, "in": {"[" * (levels - 1)}{"]" * (levels - 1)}}}'.encode()

    digits = draw.choice((18, 24, 300, 401, 641, 4_301, 9_000))
    choices: list[Callable[[], tuple[bytes, Attributes]]] = [
        lambda: (nested(draw.randrange(900, 1_000)), {}),
        lambda: (nested(32), known),
        lambda: (nested(33), {}),
        lambda: (
            f'{head}, "n": {"7" * digits}}}'.encode(),
            known | ({"n": int("7" * digits)} if digits <= 300 else {}),
        ),
        lambda: (f'{head}, "stock": "F{"[" * 500}"}}'.encode(), known | {"stock": "F" + "[" * 500}),
        lambda: (f'{head}, "{"p" * 8_000}": {{"price": 99}}}}'.encode(), known),
        lambda: (f'{head}, "deep": {{"er": {{"price": 4}}}}}}'.encode(), known | {"deep.er.price": 4}),
        lambda: (f'{head}, "price": null}}'.encode(), {"id": name}),
        lambda: (f"{head}}}".encode("utf-16"), {}),
        lambda: (b"\xef\xbb\xbf" + f"{head}}}".encode(), {}),
        lambda: (f'{head}, "rate": NaN}}'.encode(), {}),
        lambda: (json.dumps({**known, "stock": "Foo", "more": list(range(200))}).encode(), known | {"stock": "Foo"}),
    ]
    return draw.choice(choices)()


@dataclass
class History:
    """All that was published, with its attributes, what was acknowledged, and what each subscriber got."""

    sent: dict[bytes, Attributes] = field(default_factory=dict)
    qos: dict[bytes, int] = field(default_factory=dict)
    acknowledged: set[bytes] = field(default_factory=set)
    received: dict[str, list[bytes]] = field(default_factory=dict)

    def wanted(self, name: str) -> set[bytes]:
        """The acknowledged publications that the filter of a subscriber takes."""
        return {payload for payload in self.acknowledged if FILTERS[name][1](self.sent[payload])}

    def missing(self) -> int:
        return sum(len(self.wanted(name) - set(got)) for name, got in self.received.items())

    def problems(self) -> list[str]:
        """Every promise that was broken."""
        found = []
        for name, got in self.received.items():
            seen = Counter(got)
            if lost := self.wanted(name) - seen.keys():
                found.append(f"{name}: {len(lost)} acknowledged publications lost, such as {min(lost)[:60]!r}")
            strange = [p for p in seen if p not in self.sent or not FILTERS[name][1](self.sent[p])]
            if strange:
                found.append(f"{name}: {len(strange)} that its filter does not take, such as {strange[0][:60]!r}")
            if twice := [p for p, count in seen.items() if count > 1 and self.qos[p] == 2]:
                found.append(f"{name}: {len(twice)} messages twice at QoS 2, such as {twice[0][:60]!r}")
        return found


class Trial:
    """A group under hostile load. `careless` is a replica that parses payloads as it likes, 0 for none."""

    def __init__(self, folder: Path, variant: str = "multi", sync: str = "none", seed: int = 1, careless: int = 0):
        options = {"sync": sync, "paxos": {**PAXOS, "variant": variant}}
        self.group = LocalGroup(write_group(folder, 3, options=options))
        self.history = History()
        self.kills = 0
        self._seed = seed
        self._careless = careless
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._listening: list[asyncio.Task[None]] = []
        self._clients: list[GroupClient] = []

    async def start(self) -> None:
        """Starts the group, its subscribers and its publishers."""
        for number in self.group.numbers:
            self._start(number)
        await asyncio.to_thread(self.group.wait_ready)
        for name, (text, _) in FILTERS.items():
            client = await self._connect(name)
            await client.subscribe(f"{TOPIC}/#", qos=2, properties=Properties(user=(("filter", text),)))
            if name == "away":
                await client.close()
            else:
                self._listen(name, client)
        for qos in (1, 2):
            self._tasks.append(asyncio.create_task(self._publish(f"pub{qos}", qos)))

    def _start(self, number: int) -> None:
        before = self.group.command
        if number == self._careless:
            self.group.command = [sys.executable, "-c", _CARELESS]
        self.group.start(number)
        self.group.command = before

    async def _connect(self, name: str) -> GroupClient:
        client = GroupClient(self.group.addresses, client_id=name, request_s=3.0, keep_alive_s=5)
        await client.connect()
        return client

    def _listen(self, name: str, client: GroupClient) -> None:
        got = self.history.received[name] = []

        async def listen() -> None:
            async for message in client.messages():
                got.append(message.payload)  # noqa: PERF401 - each counts as soon as it is here

        self._clients.append(client)
        self._listening.append(asyncio.create_task(listen()))

    async def _publish(self, name: str, qos: int) -> None:
        history, draw, opened, number = self.history, random.Random(f"{self._seed} {name}"), set[Any](), 0
        client = await self._connect(name)
        self._clients.append(client)

        async def one(payload: bytes) -> None:
            await client.publish(f"{TOPIC}/{name}", payload, qos=qos, properties=JSON)
            history.acknowledged.add(payload)

        while not self._stopping.is_set():
            payload, attributes = hostile(f"{name}:{number}", draw)
            number += 1
            history.sent[payload], history.qos[payload] = attributes, qos
            opened.add(task := asyncio.create_task(one(payload)))
            task.add_done_callback(opened.discard)
            while len(opened) >= OPEN_MAX:
                await asyncio.wait(opened, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(0.005)
        if opened:
            await asyncio.gather(*opened)

    async def kill_in_turn(self, ends: float, down_s: float = 0.5) -> None:
        """Kills every replica once, one after the other, unless the time is over; under load from the first one on."""
        await self._back()
        for number in self.group.numbers:
            if time.monotonic() > ends:
                return
            self.group.kill(number)
            self.kills += 1
            await asyncio.sleep(down_s)
            self._start(number)
            await self._back()

    async def _back(self) -> None:
        """Waits until all replicas answer and vote, and a hundred were acknowledged since."""
        until, before = time.monotonic() + SETTLE_S, len(self.history.acknowledged)
        while time.monotonic() < until:
            found = await ask_status(self.group.spec)
            if all(one.get("voting") for one in found) and len(self.history.acknowledged) > before + 100:
                return
            await asyncio.sleep(0.1)
        raise AssertionError(f"the service is not back {SETTLE_S:g} s after a kill\n{self.log()}")

    async def finish(self) -> list[str]:
        """Ends the load; every promise that was broken."""
        self._stopping.set()
        problems = []
        try:
            async with asyncio.timeout(SETTLE_S):
                await asyncio.gather(*self._tasks)
                self._listen("away", await self._connect("away"))
                while self.history.missing():
                    await asyncio.sleep(0.1)
        except TimeoutError:
            problems.append(f"after {SETTLE_S:g} s {self.history.missing()} messages wait still")
        await asyncio.sleep(0.5)  # whatever comes twice comes now
        for task in (*self._tasks, *self._listening):
            task.cancel()
        for client in self._clients:
            with suppress(ClientError):
                await client.close()
        return problems + self.history.problems() + await self._differences()

    async def _differences(self) -> list[str]:
        """Returns how the replicas differ, and what they say of it."""
        compared = verdict(*await ask_verify(self.group.spec))
        problems = [] if compared.is_equal else [str(compared)]
        until = time.monotonic() + SETTLE_S
        while True:
            found = [one for one in await ask_status(self.group.spec) if "error" not in one]
            if len({one["applied"] for one in found}) == 1 and len(found) == 3:
                break
            if time.monotonic() > until:
                return [*problems, "the replicas did not become equally far"]
            await asyncio.sleep(0.1)
        if len({one["effects"] for one in found}) > 1:
            problems.append(f"replicas have different effects at instance {found[0]['applied']}")
        if min(one["compared"] for one in found) == 0:
            problems.append("the replicas have not compared their effects")
        for number in self.group.numbers:
            lines = (self.group.path.parent / f"{number}.log").read_text(errors="replace").splitlines()
            said = [line for line in lines if "agreement" in line]
            problems += [f"replica {number}: {len(said)} alarms, first: {said[0]}"] if said else []
        return problems

    def end(self) -> None:
        """Kills whatever runs."""
        for process in self.group.processes.values():
            process.kill()
            process.wait()

    def log(self) -> str:
        """The end of what the replicas logged."""
        files = sorted(self.group.path.parent.glob("*.log"))
        return "".join(f"--- {file.name}\n{file.read_text(errors='replace')[-2000:]}" for file in files)

    def summary(self) -> str:
        """Returns what went through."""
        history = self.history
        got = " ".join(f"{name}={len(payloads)}" for name, payloads in history.received.items())
        return f"{self.kills} kills, {len(history.acknowledged)} of {len(history.sent)} acknowledged; received {got}"


async def run(options: argparse.Namespace, folder: Path) -> int:
    """One run; the exit code."""
    trial = Trial(folder, options.variant, options.sync, options.seed, options.careless)
    try:
        await trial.start()
        ends = time.monotonic() + options.seconds
        while time.monotonic() < ends:
            await trial.kill_in_turn(ends)
        problems = await trial.finish()
    except AssertionError as error:
        problems = [str(error)]
    finally:
        trial.end()
    print(trial.summary())
    print("\n".join(problems) or "all promises kept")
    return 1 if problems else 0


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--variant", choices=("multi", "batch", "fast"), default="multi")
    parser.add_argument("--sync", choices=("majority", "none"), default="none")
    parser.add_argument("--careless", type=int, choices=(0, 1, 2, 3), default=0, metavar="N")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that no replica is left behind
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(run(options, Path(folder)))


if __name__ == "__main__":
    sys.exit(main())
