"""The brokers, each started as a process of its own, pinned to one core, with what it promises."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml
from benchmarks.broker.dialects import Dialect, Mqtt, Nats
from benchmarks.broker.load import TOPIC_BYTES
from benchmarks.broker.shapes import PAYLOAD_BYTES, Cell

from surecast.broker.free_ports import free_port
from surecast.broker.security import set_password
from surecast.load import processes_use

__all__ = [
    "HOST",
    "NAMES",
    "PASSWORD",
    "PROMISES",
    "USER",
    "Contestant",
    "UnavailableError",
    "pinned",
    "processor_s",
    "start",
    "start_process",
    "surecast",
]

HOST = "127.0.0.1"
USER, PASSWORD = "bench", "correct horse"
RULES = ("deny all secret/#", f"allow all bench/# user={USER}", "deny all #")
NAMES = ("surecast", "mosquitto", "nats", "amqtt")

PROMISES = {
    "surecast": (
        "QoS 1 acknowledged once every persistent session has the message on disk (fsync; clean sessions need none); "
        "password, access rules, metrics"
    ),
    "mosquitto": "QoS 1 acknowledged once it is in memory; no persistence; anonymous, no access rules",
    "nats": "at most once, nothing is acknowledged; anonymous, no access rules",
    "amqtt": "QoS 1 acknowledged once it is in memory; anonymous, no access rules",
}

_MOSQUITTO = """\
listener {port} 127.0.0.1
allow_anonymous true
max_inflight_messages 0
max_queued_messages 0
set_tcp_nodelay true
persistence false
log_dest none
"""

_NATS = """\
host: 127.0.0.1
port: {port}
ping_interval: "1h"
"""

_NATS_MQTT = """\
server_name: bench
host: 127.0.0.1
port: -1
jetstream {{ store_dir: {folder} }}
mqtt {{ host: 127.0.0.1, port: {port} }}
"""

_AMQTT = """\
listeners:
  default:
    type: tcp
    bind: 127.0.0.1:{port}
plugins:
  amqtt.plugins.authentication.AnonymousAuthPlugin:
    allow_anonymous: true
"""


class UnavailableError(Exception):
    """A contestant cannot take part; the message says why."""


@dataclass
class Contestant:
    """A broker that is up."""

    name: str
    port: int
    process: subprocess.Popen[bytes]

    def dialect(self, cell: Cell) -> Dialect | None:
        """How to talk to it in a cell; None if it has no such thing."""
        if self.name == "nats":
            return None if cell.qos else Nats(TOPIC_BYTES, PAYLOAD_BYTES)
        if self.name == "surecast":
            return Mqtt(cell.qos, TOPIC_BYTES, PAYLOAD_BYTES, USER, PASSWORD)
        return Mqtt(cell.qos, TOPIC_BYTES, PAYLOAD_BYTES)

    def processor_s(self) -> float:
        """Its processor time so far."""
        return processor_s(self.process.pid)

    def stop(self) -> None:
        """Ends it."""
        self.process.terminate()
        try:
            self.process.wait(5.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def start(name: str, folder: Path, core: int | None, nats: str | None = None) -> Contestant:
    """Starts a broker and waits until it answers; UnavailableError if it is not installed."""
    port = free_port()
    if name == "surecast":
        command = surecast(folder, port)
    elif name == "mosquitto":
        command = [_program("mosquitto"), "-c", _write(folder / "mosquitto.conf", _MOSQUITTO, port)]
    elif name == "nats":
        command = [nats or _program("nats-server"), "-c", _write(folder / "nats.conf", _NATS, port)]
    elif name == "nats-mqtt":  # its listener for MQTT 3.1.1, which needs a name of the server and JetStream
        text = _NATS_MQTT.replace("{folder}", str(folder / "jetstream"))
        command = [nats or _program("nats-server"), "-c", _write(folder / "nats-mqtt.conf", text, port)]
    else:
        if importlib.util.find_spec("amqtt") is None:
            raise UnavailableError("the Python package amqtt is not installed")
        script = "import sys; from amqtt.scripts.broker_script import main; sys.argv = ['amqtt', *sys.argv[1:]]; main()"
        command = [sys.executable, "-c", script, "-c", _write(folder / "amqtt.yaml", _AMQTT, port)]
    return Contestant(name, port, start_process(command, port, core, folder / f"{name}.log"))


def surecast(folder: Path, port: int, durability: str = "full", limits: Mapping[str, int] | None = None) -> list[str]:
    """The command of `surecast broker` with a user, access rules and a folder for its state, else as it comes."""
    users, config = folder / "users", folder / "surecast.yaml"
    if not users.exists():
        set_password(users, USER, PASSWORD)
    state = {"durability": durability} if durability == "memory" else {"folder": str(folder / "state")}
    fields: dict[str, object] = {
        "listeners": [{"kind": "tcp", "host": HOST, "port": port}],
        "state": state,
        "security": {"users": str(users), "rules": list(RULES)},
        "admin_socket": str(folder / "admin.sock"),
    }
    if limits:
        fields["limits"] = dict(limits)
    config.write_text(yaml.safe_dump(fields), encoding="utf-8")
    return [sys.executable, "-c", "from surecast.cli import main; main()", "broker", "--config", str(config)]


def start_process(command: list[str], port: int, core: int | None, log: Path) -> subprocess.Popen[bytes]:
    """Starts a process on a core and waits until its port takes connections."""
    with log.open("wb") as output, pinned(core):
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        except OSError as error:
            raise UnavailableError(f"{command[0]}: {error.strerror}") from None
    until = time.perf_counter() + 20.0
    while time.perf_counter() < until:
        if process.poll() is not None:
            break
        with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=1.0):
            return process
        time.sleep(0.05)
    process.kill()
    process.wait()
    raise UnavailableError(f"it did not start: {log.read_text(errors='replace')[-400:].strip()}")


@contextlib.contextmanager
def pinned(core: int | None) -> Iterator[None]:
    """Processes started inside run on one core only."""
    before = os.sched_getaffinity(0)
    if core is not None:
        os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def processor_s(pid: int) -> float:
    """The processor time of all threads of a process, from the scheduler, in seconds."""
    return processes_use([pid]).processor_s


def _program(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    if found is None:
        raise UnavailableError(f"{name} is not on the path")
    return found


def _write(path: Path, text: str, port: int) -> str:
    path.write_text(text.format(port=port), encoding="utf-8")
    return str(path)
