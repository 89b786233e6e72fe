"""Attacks a real broker with hostile clients, one kind after the other, while a polite pair measures its round trips.

    python tools/fault_hostile_costs.py [--seconds 5] [--attacks properties,unfinished] [--group] [--json]
    python tools/fault_hostile_costs.py --mutation quadratic-properties --attacks properties  # must fail
    python tools/fault_hostile_costs.py --group --mutation unfinished-without-end --attacks unfinished  # must fail

Each attack runs in a process of its own for `--seconds`. Meanwhile a client publishes at QoS 1 and another one gets
the messages; a third asks for `/healthz`. The table says, for each attack: bytes sent, processor time of the broker per
byte, growth of its memory, the most processor time it took within a round trip, the worst and the median round trip,
and a verdict. The broker holds if

- the polite pair loses nothing;
- the broker is busy for less than `--busy` within each of its round trips, and none takes longer than `--round-trip`:
  the first says what the attack did, the second also what else the machine did;
- the memory of the broker grows by less than `--memory`;
- `/healthz` and the local admin socket answer while it goes on.

The exit code is 1 if it does not. `--mutation` takes a repair out of the broker, to show that the verdict notices.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hostile_attacks import ATTACKS, Target
from surecast.broker.admin_client import AdminError, ask
from surecast.broker.broker_service import run_broker
from surecast.broker.cluster import LocalGroup, write_group
from surecast.broker.config import admin_socket_path, load_config
from surecast.broker.config_models import BrokerConfig
from surecast.broker.free_ports import free_ports
from surecast.broker.group_config import config_of
from surecast.client import Client, ClientError
from surecast.protocol.mqtt import wire

MUTATIONS: dict[str, dict[str, Any]] = {
    "quadratic-properties": {"user_properties": 1_000_000},
    "unfinished-without-end": {"unfinished_size": "100GB"},
}
"""The limits with which a broker runs that lacks a repair."""
INTERVAL_S = 0.02
HEADER = f"{'attack':17} {'sent':>12} {'cpu':>14} {'memory':>11} {'busy':>9} {'worst':>11} {'median':>11}  verdict"


@dataclass
class Outcome:
    """The outcome of one attack."""

    attack: str
    bytes_sent: int = 0
    cpu_s: float = 0.0
    memory_growth: int = 0
    round_trips: list[float] = field(default_factory=list)
    busy_s: float = 0.0
    """The most processor time that the broker, or a replica of a group, took within one round trip."""
    failures: list[str] = field(default_factory=list)

    @property
    def worst_s(self) -> float:
        """The longest round trip."""
        return max(self.round_trips, default=float("inf"))

    def row(self) -> str:
        """A line of the table."""
        per_byte = 1e9 * self.cpu_s / self.bytes_sent if self.bytes_sent else 0.0
        median = statistics.median(self.round_trips) if self.round_trips else float("nan")
        verdict = "holds" if not self.failures else "FAILS: " + "; ".join(self.failures)
        grown = self.memory_growth / 2**20
        return (
            f"{self.attack:17} {self.bytes_sent / 1e6:9.2f} MB {per_byte:9.1f} ns/B {grown:7.0f} MiB "
            f"{1e3 * self.busy_s:6.0f} ms {1e3 * self.worst_s:8.0f} ms {1e3 * median:8.1f} ms  {verdict}"
        )


class Broker:
    """A broker in a process of its own."""

    def __init__(self, folder: Path, mutation: str = ""):
        self.port, self.websocket_port, self.http_port = free_ports(3)
        self.socket = folder / "admin.sock"
        config = {
            "listeners": [
                {"port": self.port},
                {"name": "web", "kind": "websocket", "port": self.websocket_port},
            ],
            "http": {"port": self.http_port},
            "admin_socket": str(self.socket),
            "state": {"folder": str(folder / "state"), "durability": "os"},
            "log": {"level": "error"},
        }
        if mutation:
            config["limits"] = MUTATIONS[mutation]
        path = folder / "broker.yaml"
        path.write_text(json.dumps(config))
        command = [sys.executable, __file__, "--serve", str(path), "--mutation", mutation]
        self._process = subprocess.Popen(command)
        self.pids = [self._process.pid]
        self.polite_ports = (self.port, self.port)

    def wait_ready(self) -> None:
        """Waits until it answers."""
        for _ in range(200):
            if _is_healthy(self.http_port):
                return
            time.sleep(0.1)
        raise AssertionError("the broker does not come up")

    def end(self) -> bool:
        """Stops it; whether it heard that."""
        self._process.terminate()
        try:
            return self._process.wait(20) == 0
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return False


class Replicas:
    """A group of three; its first replica is attacked, and the polite pair is at the others."""

    def __init__(self, folder: Path, mutation: str = ""):
        config = BrokerConfig.model_validate(
            {
                "listeners": [{"port": 0}, {"name": "web", "kind": "websocket", "port": 0}],
                "http": {"port": 0},
                "log": {"level": "error"},
                **({"limits": MUTATIONS[mutation]} if mutation else {}),
            }
        )
        self._group = LocalGroup(write_group(folder, 3, config=config))
        self._group.start()
        told = [config_of(self._group.spec, number) for number in self._group.numbers]
        self.port, self.websocket_port = (each.wanted_port for each in told[0].listeners)
        self.polite_ports = (told[1].listeners[0].wanted_port, told[2].listeners[0].wanted_port)
        self.http_port = told[0].http.port if told[0].http is not None else 0
        self.socket = admin_socket_path(told[0])
        self.pids = [process.pid for process in self._group.processes.values()]

    def wait_ready(self) -> None:
        """Waits until all replicas take clients."""
        self._group.wait_ready()

    def end(self) -> bool:
        """Stops it; whether all heard that."""
        for process in self._group.processes.values():
            process.terminate()
        try:
            return all(process.wait(20) == 0 for process in self._group.processes.values())
        except subprocess.TimeoutExpired:
            for process in self._group.processes.values():
                process.kill()
                process.wait()
            return False


def _cpu_s(pids: list[int]) -> float:
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def _running_s(pids: list[int]) -> list[float]:
    """Processor time of the main thread of each process, exactly."""
    return [int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9 for pid in pids]


def _busiest_s(pids: list[int], before: list[float]) -> float:
    """Returns the most processor time that one process took since then."""
    return max(now - then for now, then in zip(_running_s(pids), before, strict=True))


def _settle(pids: list[int], longest_s: float = 20.0) -> None:
    """Waits until the broker is done with what the attack before it left in the network."""
    ends = time.monotonic() + longest_s
    while time.monotonic() < ends:
        busy = _running_s(pids)
        time.sleep(0.5)
        if _busiest_s(pids, busy) < 0.05:
            return


def _memory(pids: list[int]) -> int:
    """The memory of the largest process."""
    page = os.sysconf("SC_PAGE_SIZE")
    return max(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids) * page


def _is_healthy(port: int) -> bool:
    with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=3) as answer:
        return bool(answer.status == 200)
    return False


async def attack(broker: Broker | Replicas, name: str, seconds: float, limits: argparse.Namespace) -> Outcome:
    """Runs one attack, and the polite clients beside it."""
    outcome = Outcome(name)
    before, cpu = _memory(broker.pids), _cpu_s(broker.pids)
    ports = [str(port) for port in (broker.port, broker.websocket_port, broker.http_port)]
    command = [sys.executable, __file__, "--attack", name, "--seconds", str(seconds), "--ports", ",".join(ports)]
    async with AsyncExitStack() as stack:
        ports_of_pair, wait_s = broker.polite_ports, 60.0
        publisher = Client(port=ports_of_pair[0], client_id=f"polite-{name}", timeout_s=wait_s)
        subscriber = Client(port=ports_of_pair[1], client_id=f"friend-{name}", timeout_s=wait_s)
        await stack.enter_async_context(publisher)
        await stack.enter_async_context(subscriber)
        await subscriber.subscribe("polite", qos=1)
        hostile = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        ends = asyncio.create_task(hostile.communicate())
        health = asyncio.create_task(_ask_health(broker, ends, outcome))
        number = 0
        try:
            while not ends.done() or number < 3:
                begun, busy = time.monotonic(), _running_s(broker.pids)
                async with asyncio.timeout(60):
                    await publisher.publish("polite", str(number).encode(), 1)
                    message = await subscriber.message()
                outcome.round_trips.append(time.monotonic() - begun)
                outcome.busy_s = max(outcome.busy_s, _busiest_s(broker.pids, busy))
                if message.payload != str(number).encode():
                    outcome.failures.append(f"message {number} of the polite pair is lost")
                    break
                number += 1
                outcome.memory_growth = max(outcome.memory_growth, _memory(broker.pids) - before)
                await asyncio.sleep(INTERVAL_S)
        except (ClientError, TimeoutError) as error:
            outcome.failures.append(f"the polite pair is not served: {error or 'no answer in 60 s'}")
        output, _ = await ends
        await health
    outcome.bytes_sent = int(output or b"0")
    outcome.cpu_s = _cpu_s(broker.pids) - cpu
    if outcome.busy_s > limits.busy:
        outcome.failures.append(f"the broker was busy for {outcome.busy_s:.1f} s within a round trip")
    if outcome.worst_s > limits.round_trip:
        outcome.failures.append(f"a round trip took {outcome.worst_s:.1f} s")
    if outcome.memory_growth > limits.memory << 20:
        outcome.failures.append(f"memory grew by {outcome.memory_growth >> 20} MiB")
    return outcome


async def _ask_health(broker: Broker | Replicas, ends: asyncio.Task[Any], outcome: Outcome) -> None:
    """Asks for health and status again and again while an attack goes on."""
    while not ends.done():
        await asyncio.sleep(0.5)
        if not await asyncio.to_thread(_is_healthy, broker.http_port):
            outcome.failures.append("/healthz did not answer")
            return
        try:
            await asyncio.to_thread(ask, broker.socket, "/status")
        except AdminError as error:
            outcome.failures.append(f"the local socket did not answer: {error}")
            return


def mutate(name: str) -> None:
    """Takes a repair out of this process."""
    if name == "quadratic-properties":
        whole = wire._read_property

        def read(reader: Any, place: int, values: dict[str, Any], repeated: dict[str, list[Any]]) -> None:
            whole(reader, place, values, repeated)
            if "user" in repeated:
                repeated["user"] = [*repeated["user"]]  # as tuples were made anew for each property

        wire._read_property = read


def run(arguments: argparse.Namespace) -> int:
    names = arguments.attacks.split(",") if arguments.attacks else list(ATTACKS)
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        broker = (Replicas if arguments.group else Broker)(Path(folder), arguments.mutation)
        stops = False
        try:
            broker.wait_ready()
            if not arguments.json:
                print(HEADER)
            for name in names:
                _settle(broker.pids)
                outcomes.append(asyncio.run(attack(broker, name, arguments.seconds, arguments)))
                if not arguments.json:
                    print(outcomes[-1].row(), flush=True)
        finally:
            stops = broker.end()
    is_good = stops and not any(outcome.failures for outcome in outcomes)
    if arguments.json:
        attacks = [{**asdict(one), "worst_s": one.worst_s} for one in outcomes]
        print(json.dumps({"holds": is_good, "stops": stops, "attacks": attacks}))
    else:
        print("all hold" if is_good else "the broker did not hear SIGTERM" if not stops else "some attacks succeed")
    return 0 if is_good else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="time of each attack")
    parser.add_argument("--attacks", default="", help=f"some of {', '.join(ATTACKS)}")
    parser.add_argument("--group", action="store_true", help="attack a replica of a group of three")
    parser.add_argument("--busy", type=float, default=0.5, help="most processor time within a round trip, seconds")
    parser.add_argument("--round-trip", type=float, default=20.0, help="longest round trip of the polite pair, seconds")
    parser.add_argument("--memory", type=int, default=400, help="largest growth of memory in an attack, MiB")
    parser.add_argument("--mutation", default="", choices=("", *MUTATIONS), help="take a repair out")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--attack", help=argparse.SUPPRESS)
    parser.add_argument("--ports", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve is not None:
        mutate(arguments.mutation)
        return run_broker(load_config(arguments.serve))
    if arguments.attack is not None:
        ports = [int(port) for port in arguments.ports.split(",")]
        target = Target(*ports, until=time.monotonic() + arguments.seconds)
        ATTACKS[arguments.attack](target)
        target.close()
        print(target.sent)
        return 0
    if arguments.group and arguments.mutation == "quadratic-properties":
        parser.error("the mutation quadratic-properties is for the single broker: leave --group out")
    return run(arguments)


if __name__ == "__main__":
    sys.exit(main())
