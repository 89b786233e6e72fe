"""The measured systems: the broker alone, groups of it, and NATS JetStream, each as processes of this machine."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import yaml
from benchmarks.broker.contestants import HOST, UnavailableError, processor_s, start_process
from benchmarks.group.load import Load, Tongue
from benchmarks.group.tongues import JetStream, Spoken

from surecast.broker.cluster import LocalGroup, write_group
from surecast.broker.free_ports import free_port

__all__ = ["SETTLE_S", "Alone", "JetStreamGroup", "Replicated", "System"]

Place = tuple[str, int]
SETTLE_S = 0.4  # longer than a replica takes to miss a leader
_LIMITS = {"queue_messages": 1_000_000, "queue_size": "1GiB"}
"""A subscriber of QoS 1 that falls behind loses nothing: what is measured is how fast it gets everything."""


class System(Protocol):
    """Something that is up and takes publications."""

    name: str
    promise: str
    leader: int

    def entry(self) -> Place:
        """Returns the addresses for clients: first the replica that leads. It is looked for now, and put first."""

    def tongue(self, load: Load) -> Tongue:
        """Returns the dialect to talk to it."""

    def processor_s(self) -> list[float]:
        """The processor time so far of each of its processes, the one that leads first."""

    def busiest(self) -> int:
        """The process that clients are connected to."""

    def others(self) -> list[int]:
        """Its other processes."""

    def freeze(self) -> None:
        """It is not its turn: nothing of it takes time from the others."""

    def thaw(self) -> None:
        """Its turn begins."""

    def close(self) -> None:
        """Ends it."""


class Alone:
    """`surecast broker`, one process."""

    leader = 1

    def __init__(self, name: str, folder: Path, durability: str = "memory"):
        self.name = name
        self.promise = {
            "memory": "acknowledged once it is in the memory of one process",
            "full": "acknowledged once it is on one disk (fsync), where a persistent session wants it",
        }[durability]
        folder.mkdir(parents=True)
        self._port = free_port()
        state = {"durability": durability} if durability == "memory" else {"folder": str(folder / "state")}
        fields: dict[str, Any] = {
            "listeners": [{"kind": "tcp", "host": HOST, "port": self._port}],
            "state": state,
            "log": {"level": "error"},
            "limits": _LIMITS,
            "admin_socket": str(folder / "admin.sock"),
        }
        config = folder / "broker.yaml"
        config.write_text(yaml.safe_dump(fields), encoding="utf-8")
        command = [sys.executable, "-m", "surecast", "broker", "--config", str(config)]
        self._process = start_process(_apart(command), self._port, None, folder / "log")

    def entry(self) -> Place:
        """Returns the addresses for clients."""
        return HOST, self._port

    def tongue(self, load: Load) -> Tongue:
        """MQTT."""
        return Spoken(load)

    def processor_s(self) -> list[float]:
        """The processor time so far."""
        return [processor_s(self._process.pid)]

    def busiest(self) -> int:
        """The process."""
        return self._process.pid

    def others(self) -> list[int]:
        """There are none."""
        return []

    def freeze(self) -> None:
        """It sleeps by itself where nobody connects."""

    def thaw(self) -> None:
        """It is ready at any time."""

    def close(self) -> None:
        """Ends it."""
        _end([self._process])


class Replicated:
    """A group of `surecast broker --group`; `options` are fields of its file."""

    def __init__(self, name: str, folder: Path, replicas: int, sync: str = "none", **options: Any):
        self.name = name
        self.promise = {
            "majority": "acknowledged once it is on the disks (fsync) of a majority",
            "none": "acknowledged once the operating systems of a majority have it",
        }[sync]
        fields = {"sync": sync, "log": {"level": "error"}, "limits": _LIMITS, **options}
        self.group = LocalGroup(write_group(folder, replicas, options=fields))
        self.leader = 0
        try:
            self.group.start()
            self.group.wait_ready(90.0)
        except BaseException:
            self.group.close()
            raise

    def entry(self) -> Place:
        """Returns the address at which the replica that leads takes clients."""
        until = time.monotonic() + 30.0
        while not (leader := self.group.leader()):
            if time.monotonic() > until:
                raise UnavailableError(f"{self.name}: nobody leads")
            time.sleep(0.05)
        self.leader = leader
        return self.place(leader)

    def place(self, number: int) -> Place:
        """Returns the address at which a replica takes clients."""
        listener = self.group.spec.replica(number).mqtt[0]
        return listener.host, listener.wanted_port

    def tongue(self, load: Load) -> Tongue:
        """MQTT."""
        return Spoken(load)

    def pids(self) -> list[int]:
        """The processes, the one that leads first."""
        ordered = sorted(self.group.processes, key=lambda number: number != self.leader)
        return [self.group.processes[number].pid for number in ordered]

    def processor_s(self) -> list[float]:
        """The processor time so far of each replica."""
        return [processor_s(pid) for pid in self.pids()]

    def busiest(self) -> int:
        """The process of the replica that leads."""
        return self.pids()[0]

    def others(self) -> list[int]:
        """The processes of the other replicas."""
        return self.pids()[1:]

    def applied(self) -> int:
        """Instances carried out so far."""
        return max(int(one["applied"]) for one in self.group.status())

    def freeze(self) -> None:
        """Stops all replicas, so that their heartbeats take no time from others."""
        for process in self.group.processes.values():
            process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Lets them go on, and waits until one leads."""
        for process in self.group.processes.values():
            process.send_signal(signal.SIGCONT)
        time.sleep(SETTLE_S)
        self.group.wait_ready(30.0)

    def close(self) -> None:
        """Ends it."""
        for process in self.group.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
        self.group.close()


_NATS = """\
server_name: n{number}
listen: "127.0.0.1:{port}"
ping_interval: "1h"
jetstream {{ store_dir: "{store}"{sync} }}
cluster {{ name: bench, listen: "127.0.0.1:{route}", routes: [{routes}] }}
"""


class JetStreamGroup:
    """Three `nats-server` processes and a stream with three file replicas."""

    leader = 1

    def __init__(self, name: str, folder: Path, program: str, sync: str = ""):
        self.name = name
        self.promise = (
            "acknowledged once a majority wrote it and synced its file"
            if sync
            else "acknowledged once a majority wrote it; synced every two minutes"
        )
        folder.mkdir(parents=True)
        ports, routes = [[free_port() for _ in range(3)] for _ in range(2)]
        self._places = [(HOST, port) for port in ports]
        self._processes: list[subprocess.Popen[bytes]] = []
        try:
            for number, port in enumerate(ports):
                text = _NATS.format(
                    number=number, port=port, route=routes[number], store=folder / str(number),
                    sync=f", sync_interval: {sync}" if sync else "",
                    routes=", ".join(f'"nats-route://127.0.0.1:{route}"' for route in routes),
                )  # fmt: skip
                config = folder / f"{number}.conf"
                config.write_text(text, encoding="utf-8")
                self._processes.append(
                    start_process(_apart([program, "-c", str(config)]), port, None, folder / f"{number}.log")
                )
            self._create()
        except BaseException:
            self.close()
            raise

    def _create(self) -> None:
        wanted = {
            "name": "B", "subjects": ["bench.>"], "num_replicas": 3, "storage": "file", "retention": "limits",
            "discard": "old", "max_bytes": 256 << 20, "max_msgs": -1, "max_consumers": -1,
        }  # fmt: skip
        until = time.monotonic() + 30.0
        while True:
            answer: dict[str, Any] = {}
            with suppress(OSError):
                answer = JetStream(Load("", 1, 1)).ask(self._places[0], "$JS.API.STREAM.CREATE.B", wanted)
            if "config" in answer:
                return
            if time.monotonic() > until:
                raise UnavailableError(f"{self.name}: the stream was not created: {answer}")
            time.sleep(0.3)

    def entry(self) -> Place:
        """Returns the address at which the server that leads the stream takes clients."""
        answer = JetStream(Load("", 1, 1)).ask(self._places[0], "$JS.API.STREAM.INFO.B", {})
        self.leader = int(answer["cluster"]["leader"][1:]) + 1
        return self._places[self.leader - 1]

    def stored(self) -> int:
        """The number of the last message of the stream."""
        answer = JetStream(Load("", 1, 1)).ask(self._places[0], "$JS.API.STREAM.INFO.B", {})
        return int(answer["state"]["last_seq"])

    def tongue(self, load: Load) -> Tongue:
        """JetStream's protocol."""
        return JetStream(load)

    def processor_s(self) -> list[float]:
        """The processor time so far of each server."""
        pids = [process.pid for process in self._processes]
        at = self.leader - 1
        return [processor_s(pid) for pid in (pids[at], *pids[:at], *pids[at + 1 :])]

    def busiest(self) -> int:
        """The server that leads the stream. It works in several threads, and does more in a second on one core."""
        return self._processes[self.leader - 1].pid

    def others(self) -> list[int]:
        """The other servers."""
        return [process.pid for at, process in enumerate(self._processes, 1) if at != self.leader]

    def freeze(self) -> None:
        """Its servers are nearly idle where nobody publishes."""

    def thaw(self) -> None:
        """It is ready at any time."""

    def close(self) -> None:
        """Ends it."""
        _end(self._processes)


def _apart(command: list[str]) -> list[str]:
    """In a session of its own, as replicas are: some systems share processor time among sessions, not processes."""
    return ["setsid", *command] if shutil.which("setsid") else command


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(5.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
