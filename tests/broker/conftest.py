"""Brokers for tests: in this process on a loop of their own, or as real processes; certificates; paho clients."""

from __future__ import annotations

import json
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions
from tests.patience import PATIENCE_S

from surecast.broker.admin_client import ask

SURECAST = Path(sys.executable).parent / "surecast"


class Process:
    """A broker as a process, with its log lines."""

    def __init__(self, *arguments: str | Path, port: int = 0):
        command = [SURECAST, "broker", "--port", str(port), "--log-format", "json", *arguments]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        self.lines: list[dict[str, Any]] = []
        self._more = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.started = self.wait_for("started")

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._more:
                data = json.loads(line) if line.startswith("{") else {"event": "text", "text": line}
                self.lines.append(data)
                self._more.notify_all()
        with self._more:
            self.lines.append({"event": "end of log"})
            self._more.notify_all()

    def wait_for(self, event: str, after: int = 0) -> dict[str, Any]:
        """The first line of an event."""

        def found() -> dict[str, Any] | None:
            return next((line for line in self.lines[after:] if line["event"] in (event, "end of log")), None)

        with self._more:
            assert self._more.wait_for(found, timeout=PATIENCE_S), f"no {event} in {self.lines}"
            line = found()
            assert line is not None
            assert line["event"] == event, self.lines
            return line

    @property
    def port(self) -> int:
        return int(self.started["listeners"][0]["port"])

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(timeout=PATIENCE_S)
        self._reader.join(timeout=PATIENCE_S)
        if self.process.stderr is not None:
            self.process.stderr.close()
        return code


@pytest.fixture
def start_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Process]]:
    """Starts broker processes, which end with the test at the latest."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    started: list[Process] = []

    def start(*arguments: str | Path, port: int = 0) -> Process:
        process = Process(*arguments, port=port)
        started.append(process)
        return process

    yield start
    for process in started:
        process.end(signal.SIGKILL)


@pytest.fixture
def running(tmp_path: Path) -> Callable[..., AbstractAsyncContextManager[Any]]:
    """A broker in this process: `async with running({"field": value}) as service`."""
    import asyncio

    from surecast.broker.broker_service import BrokerService
    from surecast.broker.config import load_config
    from surecast.broker.service_log import BrokerLog

    @asynccontextmanager
    async def run(flags: dict[str, Any] | None = None) -> AsyncIterator[Any]:
        given = {"listeners[0].port": 0, "admin_socket": tmp_path / "admin.sock", "drain": "1s", **(flags or {})}
        with (tmp_path / "broker.log").open("a") as stream:
            service = BrokerService(load_config(None, given), BrokerLog("debug", "json", stream))
            task = asyncio.create_task(service.run())
            ready = asyncio.create_task(service.ready.wait())
            await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                ready.cancel()
                task.result()
            try:
                yield service
            finally:
                service.stop()
                await task

    return run


@dataclass(frozen=True)
class Certificates:
    ca: Path
    server: Path
    server_key: Path
    client: Path
    client_key: Path


def make_certificate(folder: Path, name: str, ca: str | None, subject: str, extension: str = "") -> None:
    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", f"/CN={subject}"]
    if ca is None:
        openssl("req", "-x509", *new, "-days", "30", "-keyout", f"{name}.key", "-out", f"{name}.crt")
        return
    openssl("req", *new, "-keyout", f"{name}.key", "-out", f"{name}.csr")
    (folder / f"{name}.ext").write_text(extension)
    signing = ["-CA", f"{ca}.crt", "-CAkey", f"{ca}.key", "-CAcreateserial", "-days", "30"]
    openssl("x509", "-req", "-in", f"{name}.csr", *signing, "-out", f"{name}.crt", "-extfile", f"{name}.ext")


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """An authority, a server's certificate for loopback, and a client's for `ann`."""
    folder = tmp_path_factory.mktemp("certificates")
    make_certificate(folder, "ca", None, "Test Authority")
    make_certificate(folder, "server", "ca", "localhost", "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1\n")
    make_certificate(folder, "ann", "ca", "ann")
    files = ("ca.crt", "server.crt", "server.key", "ann.crt", "ann.key")
    return Certificates(*(folder / file for file in files))


# Clients that others wrote.


class LiveBroker:
    """A broker for all tests of this module, with one listener of each kind."""

    def __init__(self, folder: Path, certificates: Certificates):
        config = {
            "listeners": [
                {"kind": "tcp", "port": 0},
                {"kind": "websocket", "port": 0},
                {
                    "kind": "tls",
                    "port": 0,
                    "certificate": str(certificates.server),
                    "key": str(certificates.server_key),
                },
            ],
            "state": {"folder": str(folder / "state")},
            "admin_socket": str(folder / "admin.sock"),
            "limits": {"packet_size": "12MB"},
        }
        (folder / "broker.yaml").write_text(json.dumps(config))
        self.process = Process("--config", folder / "broker.yaml")
        self.port, self.web_port, self.tls_port = (int(each["port"]) for each in self.process.started["listeners"])
        self._socket = folder / "admin.sock"

    def kick(self, client: str) -> None:
        ask(self._socket, "/kick", {"client": client}, "POST")

    def has_subscribed(self, client: str) -> bool:
        sessions = ask(self._socket, "/sessions", {"limit": 10_000})["sessions"]
        return any(each["client"] == client and each["subscriptions"] for each in sessions)

    def accounts_balance(self) -> bool:
        sessions = ask(self._socket, "/sessions")["sessions"]
        return all(each["accounts"]["queued"] == each["inflight"] + each["waiting"] for each in sessions)


@pytest.fixture(scope="session")
def live_broker(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[LiveBroker]:
    made = LiveBroker(tmp_path_factory.mktemp("real"), certificates)
    yield made
    assert made.accounts_balance()
    assert made.process.end() == 0


class Paho:
    """A paho client whose callbacks fill queues."""

    def __init__(self, port: int, name: str, version: int, lasting: bool = False, **options: Any):
        self.version = version
        given = {} if version == paho.MQTTv5 else {"clean_session": not lasting}
        made: Any = paho.Client  # its types are narrower than what it takes
        self.client = made(CallbackAPIVersion.VERSION2, name, protocol=version, **given, **options)
        self.client.reconnect_delay_set(1, 1)
        self.port, self.lasting = port, lasting
        self.connected: queue.Queue[tuple[Any, Any, Any]] = queue.Queue()
        self.disconnected: queue.Queue[Any] = queue.Queue()
        self.inbox: queue.Queue[paho.MQTTMessage] = queue.Queue()
        self.answers: queue.Queue[list[int]] = queue.Queue()
        self.reasons: dict[int, int] = {}
        self.client.on_connect = lambda c, u, *rest: self.connected.put(rest)
        self.client.on_disconnect = lambda c, u, flags, reason, properties: self.disconnected.put(reason)
        self.client.on_message = lambda c, u, message: self.inbox.put(message)
        self.client.on_subscribe = lambda c, u, mid, reasons, p: self.answers.put([r.value for r in reasons])
        self.client.on_publish = lambda c, u, mid, reason, p: self.reasons.__setitem__(mid, reason.value)

    def connect(self, keep_alive_s: int = 60, **properties: Any) -> bool:
        """Connects; whether the session was there."""
        if self.version == paho.MQTTv5:
            if self.lasting:
                properties.setdefault("SessionExpiryInterval", 300)
            given = make_properties(PacketTypes.CONNECT, **properties)
            self.client.connect("127.0.0.1", self.port, keep_alive_s, clean_start=not self.lasting, properties=given)
        else:
            self.client.connect("127.0.0.1", self.port, keep_alive_s)
        self.client.loop_start()
        return self.accepted()

    def accepted(self) -> bool:
        flags, reason, self.welcome = self.connected.get(timeout=PATIENCE_S)
        assert reason.value == 0
        return bool(flags.session_present)

    def subscribe(self, *filters: tuple[str, Any], **properties: Any) -> list[int]:
        wanted: list[Any] = list(filters)
        if self.version == paho.MQTTv5:
            wanted = [(f, o if isinstance(o, SubscribeOptions) else SubscribeOptions(qos=o)) for f, o in filters]
        given = make_properties(PacketTypes.SUBSCRIBE, **properties) if properties else None
        self.client.subscribe(wanted, properties=given)
        return self.answers.get(timeout=PATIENCE_S)

    def publish(self, topic: str, payload: Any = b"", qos: int = 0, retain: bool = False, **properties: Any) -> int:
        """Publishes, and waits for the acknowledgement; its reason code."""
        given = make_properties(PacketTypes.PUBLISH, **properties) if properties else None
        info = self.client.publish(topic, payload, qos, retain, given)
        info.wait_for_publish(PATIENCE_S)
        assert info.is_published()
        return self.reasons.get(info.mid, 0)

    def get(self, count: int = 1) -> list[paho.MQTTMessage]:
        return [self.inbox.get(timeout=PATIENCE_S) for _ in range(count)]

    def break_off(self) -> None:
        """The connection breaks; paho's loop will make another."""
        sock = self.client.socket()
        assert sock is not None
        sock.shutdown(socket.SHUT_RDWR)

    def die(self) -> None:
        """No goodbye, and no coming back."""
        self.client.loop_stop()
        self.break_off()

    def end(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


def make_properties(packet: int, **values: Any) -> Properties:
    made = Properties(packet)  # type: ignore[no-untyped-call]
    for name, value in values.items():
        for each in value if isinstance(value, list) else [value]:
            setattr(made, name, each)
    return made


@pytest.fixture
def make_paho(live_broker: LiveBroker) -> Iterator[Callable[..., Paho]]:
    with ExitStack() as stack:

        def make(name: str, version: int = paho.MQTTv5, lasting: bool = False, **options: Any) -> Paho:
            client = Paho(options.pop("port", live_broker.port), name, version, lasting, **options)
            stack.callback(client.end)
            return client

        yield make
