"""The overlays that are compared, each as broker processes of this machine."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.broker.contestants import HOST, UnavailableError, pinned, processor_s, start_process
from benchmarks.broker.dialects import Dialect, Mqtt, Nats
from benchmarks.broker.load import TOPIC_BYTES
from benchmarks.broker.shapes import PAYLOAD_BYTES
from benchmarks.overlay.topology import Topology
from benchmarks.overlay.zenoh_wire import Zenoh

from surecast.broker.free_ports import free_port

__all__ = ["TOPIC", "MosquittoBridges", "NatsLeafs", "Overlay", "ZenohRouters", "prefer", "program", "working_folder"]

TOPIC = "bench/00"
_STOP_S = 5.0
_SETTLE_S = 2.5
_ROOT = Path(__file__).resolve().parents[2]


class Overlay(ABC):
    """Brokers that are up, linked as a topology says."""

    name: str
    promise: str
    one_port = False
    """Neighbours and clients dial the same port."""
    nice = 0
    """The priority of all brokers and of the generator; below 0 what else the machine does disturbs less."""
    suspects_after_s = 0.0
    """Silence after which a broker is taken for down: who waits for a processor meanwhile makes nobody wait."""
    fail_over_qos = 0
    """The QoS of events while brokers fail."""

    def __init__(self, topology: Topology, folder: Path, core: int | None):
        self.topology = topology
        self.folder = working_folder(folder / f"{self.name} {topology.name}".replace(" ", "-").replace(",", ""))
        self.ports = {broker: free_port() for broker in topology.brokers}
        self.link_ports = self.ports if self.one_port else {broker: free_port() for broker in topology.brokers}
        self.relays: dict[tuple[str, str], int] = {}
        """Ports at which a broker reaches another through something that counts bytes or cuts."""
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._core = core

    @abstractmethod
    def command(self, broker: str) -> list[str]:
        """The command of a broker."""

    @abstractmethod
    def dialect(self, qos: int) -> Dialect:
        """The protocol of its clients."""

    def up(self) -> None:
        """Starts every broker, those that are dialled first, and waits until each takes clients."""
        try:
            for broker in self.topology.brokers:
                self.processes[broker] = start_process(
                    _apart(self.command(broker)), self.ports[broker], self._core, self.folder / f"{broker}.log"
                )
                prefer(self.processes[broker].pid, self.nice)
        except BaseException:
            self.close()
            raise

    def place(self, broker: str) -> tuple[str, int]:
        """The address for clients."""
        return HOST, self.ports[broker]

    def neighbours(self, broker: str) -> list[str]:
        """Those that a broker dials; all links, for systems that find their own way."""
        return [other for own, other in self.topology.links if own == broker]

    def port_of(self, broker: str, other: str) -> int:
        """The port at which a broker reaches another."""
        return self.relays.get((broker, other)) or self.link_ports[other]

    def processor_s(self) -> float:
        """The processor time so far of all brokers."""
        return sum(self.processor_of(broker) for broker in self.processes)

    def processor_of(self, broker: str) -> float:
        """The processor time so far of one broker."""
        return processor_s(self.processes[broker].pid)

    def kill(self, broker: str) -> Callable[[], float]:
        """Sends SIGKILL to a broker and does not wait for its end, which takes long where memory has to be freed: the
        clients go on meanwhile. Returns what waits, and returns when it had ended."""
        process = self.processes[broker]
        ended_s: list[float] = []

        def wait() -> None:
            process.wait()
            ended_s.append(time.perf_counter())

        waiting = threading.Thread(target=wait, daemon=True)
        waiting.start()
        process.kill()

        def end() -> float:
            waiting.join()
            return ended_s[0]

        return end

    def restart(self, broker: str) -> None:
        """Starts a broker that was killed, and does not wait for it."""
        with pinned(self._core), (self.folder / f"{broker}.log").open("ab") as log:
            self.processes[broker] = subprocess.Popen(
                _apart(self.command(broker)), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        prefer(self.processes[broker].pid, self.nice)

    def freeze(self, broker: str) -> None:
        """Stops a broker with SIGSTOP."""
        self.processes[broker].send_signal(signal.SIGSTOP)

    def thaw(self, broker: str) -> None:
        """Lets a stopped broker go on."""
        self.processes[broker].send_signal(signal.SIGCONT)

    def traces(self) -> dict[str, list[Any]]:
        """What each broker wrote down about failures, where it does."""
        return {}

    def settle(self) -> None:
        """Waits until all links are there again after a fault, so that each fault is the only one."""
        time.sleep(_SETTLE_S)

    def close(self) -> None:
        """Ends all brokers."""
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
        until = time.monotonic() + _STOP_S
        for process in self.processes.values():
            try:
                process.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


_MOSQUITTO = """\
listener {port} 127.0.0.1
user {user}
allow_anonymous true
max_inflight_messages 0
max_queued_messages 0
set_tcp_nodelay true
log_dest none
persistence {persistence}
persistence_location {folder}/
autosave_interval 1
"""

_BRIDGE = """
connection {own}-{other}
address 127.0.0.1:{port}
topic # both {qos}
cleansession false
notifications false
restart_timeout 1
bridge_protocol_version mqttv311
"""


class MosquittoBridges(Overlay):
    """Brokers that dial their neighbours as clients. Loops are forbidden, so only tree links are used."""

    one_port = True

    def __init__(self, name: str, topology: Topology, folder: Path, core: int | None):
        self.name = name
        self.persistent = "disk" in name
        state = "the whole state is written to a file every second" if self.persistent else "no persistence"
        self.promise = f"QoS 1 acknowledged once it is in memory; bridges keep what their neighbour lacks; {state}"
        super().__init__(topology, folder, core)

    def neighbours(self, broker: str) -> list[str]:
        """Those that a broker dials."""
        return [other for own, other in self.topology.tree if own == broker]

    def command(self, broker: str) -> list[str]:
        """`mosquitto` with one bridge for each neighbour that it dials."""
        state = self.folder / broker
        state.mkdir(exist_ok=True)
        text = _MOSQUITTO.format(
            port=self.ports[broker], user="root" if os.geteuid() == 0 else "mosquitto",
            persistence=str(self.persistent).lower(), folder=state,
        )  # fmt: skip
        for other in self.neighbours(broker):
            text += _BRIDGE.format(own=broker, other=other, port=self.port_of(broker, other), qos=1)
        config = self.folder / f"{broker}.conf"
        config.write_text(text, encoding="utf-8")
        return [program("mosquitto"), "-c", str(config)]

    def dialect(self, qos: int) -> Dialect:
        """MQTT."""
        return Mqtt(qos, TOPIC_BYTES, PAYLOAD_BYTES)


class NatsLeafs(Overlay):
    """Servers that dial their neighbours as leaf nodes. Loops are refused, so only tree links are used."""

    name = "nats"
    promise = "at most once, nothing is acknowledged"

    def neighbours(self, broker: str) -> list[str]:
        """Those that a server dials."""
        return [other for own, other in self.topology.tree if own == broker]

    def command(self, broker: str) -> list[str]:
        """`nats-server` with one remote for each neighbour that it dials."""
        remotes = ", ".join(
            f'{{url: "nats://127.0.0.1:{self.port_of(broker, other)}"}}' for other in self.neighbours(broker)
        )
        # Servers tell each other their ports, and would go around a relay.
        relayed = [port for (_, other), port in self.relays.items() if other == broker]
        advertise = f'advertise: "127.0.0.1:{relayed[0]}", ' if relayed else ""
        config = self.folder / f"{broker}.conf"
        config.write_text(
            f'server_name: {broker}\nlisten: "127.0.0.1:{self.ports[broker]}"\nping_interval: "1h"\n'
            f'leafnodes {{ listen: "127.0.0.1:{self.link_ports[broker]}", {advertise}remotes: [{remotes}] }}\n',
            encoding="utf-8",
        )
        return [program("nats-server"), "-c", str(config)]

    def dialect(self, qos: int) -> Dialect:
        """NATS, at most once."""
        return Nats(TOPIC_BYTES, PAYLOAD_BYTES)


class ZenohRouters(Overlay):
    """Routers of the package `eclipse-zenoh`. They use all links, and find a way by the states of links."""

    one_port = True

    def __init__(self, name: str, topology: Topology, folder: Path, core: int | None):
        if importlib.util.find_spec("zenoh") is None:
            raise UnavailableError("the optional Python package is not installed: `pip install eclipse-zenoh`")
        self.name = name
        self.gossip = "gossip" in name
        self.promise = (
            "at most once over a failure, hop by hop reliable, senders wait for room; "
            f"gossip scouting {'on' if self.gossip else 'off'}"
        )
        super().__init__(topology, folder, core)

    def command(self, broker: str) -> list[str]:
        """One router."""
        own = f"tcp/127.0.0.1:{self.ports[broker]}"
        others = [f"tcp/127.0.0.1:{self.port_of(broker, other)}" for other in self.neighbours(broker)]
        script = str(_ROOT / "benchmarks" / "overlay" / "zenoh_router.py")
        return [sys.executable, script, own, "gossip" if self.gossip else "quiet", *others]

    def dialect(self, qos: int) -> Dialect:
        """Zenoh's own."""
        return Zenoh(TOPIC)  # type: ignore[return-value]


def prefer(pid: int, nice: int) -> None:
    """Gives a process and its session a priority, where the system shares its processors among sessions too."""
    if nice:
        os.setpriority(os.PRIO_PROCESS, pid, nice)
        with suppress(OSError):
            Path(f"/proc/{pid}/autogroup").write_text(str(nice), encoding="ascii")


def program(name: str) -> str:
    """The path of a program; UnavailableError if it is not installed."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    if found is None:
        raise UnavailableError(f"{name} is not on the path")
    return found


def working_folder(folder: Path) -> Path:
    """A new folder."""
    folder.mkdir(parents=True)
    return folder


def _apart(command: list[str]) -> list[str]:
    """In a session of its own: some systems share processor time among sessions, not processes."""
    return ["setsid", *command] if shutil.which("setsid") else command
