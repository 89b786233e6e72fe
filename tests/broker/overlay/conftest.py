"""Overlays of brokers for tests: real processes on this machine, and paho clients that remember what they saw."""

from __future__ import annotations

import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from tests.patience import PATIENCE_S

from surecast.broker.overlay.local_overlay import LocalOverlay
from surecast.broker.overlay.overlay_file import OverlayFile
from surecast.broker.overlay.overlay_writing import write_overlay
from surecast.protocol.overlay.overlay_plan import OverlayPlan, Tree

Run = Callable[..., CompletedProcess[str]]
Links = tuple[tuple[str, str], ...]


@pytest.fixture
def surecast_overlay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_here: Run) -> Run:
    """Runs `surecast overlay ...` in an empty folder, in this process."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str | Path) -> CompletedProcess[str]:
        return run_here(["overlay", *map(str, arguments)])

    return run


def plan_for(links: Links, scheme: str, tree: Links = (), algorithm: str = "covering", epoch: int = 1) -> OverlayPlan:
    """Returns a plan with one tree for all topics; all links are in it unless others are given."""
    brokers = tuple(dict.fromkeys(end for link in links for end in link))
    return OverlayPlan(brokers, links, (Tree(tree or links, scheme, algorithm),), epoch=epoch)


def until(condition: Callable[[], Any], what: str, timeout_s: float = PATIENCE_S) -> None:
    """Waits for a condition; the test fails if it does not come."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {timeout_s:g} s"
        time.sleep(0.02)


class Clients:
    """The clients of a test. Subscribers remember the payloads they got, publishers those that were acknowledged."""

    def __init__(self, overlay: LocalOverlay):
        self._overlay = overlay
        self._clients: list[paho.Client] = []

    def connect(self, broker: str, name: str, *, clean: bool = False, will: str = "", replica: int = 0) -> paho.Client:
        client = paho.Client(CallbackAPIVersion.VERSION2, client_id=name, clean_session=clean)
        if will:
            client.will_set(will, b"gone", 1)
        client.reconnect_delay_set(1, 1)
        host, _, port = self._overlay.file.mqtt_addresses(broker)[replica].rpartition(":")
        client.connect(host, int(port))
        client.loop_start()
        until(client.is_connected, f"{name} at {broker}")
        self._clients.append(client)
        return client

    def subscribe(self, broker: str, name: str, topic: str, qos: int, replica: int = 0) -> Subscriber:
        return Subscriber(self.connect(broker, name, replica=replica), topic, qos)

    def publish(self, broker: str, name: str, replica: int = 0) -> Publisher:
        return Publisher(self.connect(broker, name, replica=replica))

    def close(self) -> None:
        for client in self._clients:
            client.disconnect()
            client.loop_stop()


class Subscriber:
    """What a subscriber got, in order."""

    def __init__(self, client: paho.Client, topic: str, qos: int):
        self.got: list[tuple[str, bytes, int]] = []
        subscribed = threading.Event()
        client.on_message = lambda _client, _data, message: self.got.append(
            (message.topic, message.payload, message.qos)
        )
        client.on_subscribe = lambda *_: subscribed.set()
        client.subscribe(topic, qos)
        assert subscribed.wait(PATIENCE_S)

    def payloads(self, topic: str | None = None) -> list[bytes]:
        return [payload for at, payload, _ in list(self.got) if topic is None or at == topic]

    def doubled(self, topic: str | None = None) -> list[bytes]:
        return [payload for payload, count in Counter(self.payloads(topic)).items() if count > 1]


class Publisher:
    """What a publisher sent, and what of it was acknowledged."""

    def __init__(self, client: paho.Client):
        self.client = client
        self.sent: list[tuple[bytes, paho.MQTTMessageInfo]] = []

    def publish(self, topic: str, payload: bytes, qos: int) -> None:
        self.sent.append((payload, self.client.publish(topic, payload, qos)))

    def acknowledged(self) -> set[bytes]:
        return {payload for payload, info in self.sent if info.is_published()}

    def finish(self) -> None:
        for payload, info in self.sent:
            info.wait_for_publish(PATIENCE_S)
            assert info.is_published(), f"{payload!r} was not acknowledged"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., tuple[LocalOverlay, Clients]]]:
    """Starts the brokers of a plan; returns them, and what makes clients."""
    running: list[tuple[LocalOverlay, Clients]] = []

    def begin(plan: OverlayPlan, **options: Any) -> tuple[LocalOverlay, Clients]:
        certificates, groups = options.pop("certificates", None), options.pop("groups", None)
        before: Callable[[OverlayFile], None] = options.pop("before", lambda file: None)
        options = {"gates": True, "durability": "os", "log": {"level": "info"}, **options}
        path = tmp_path / "overlay.yaml"
        write_overlay(path, "test", plan, options=options, certificates=certificates, groups=groups)
        overlay = LocalOverlay(path)
        before(overlay.file)
        clients = Clients(overlay)
        running.append((overlay, clients))
        overlay.start()
        overlay.wait_ready(PATIENCE_S)
        return overlay, clients

    try:
        yield begin
    finally:
        for overlay, clients in running:
            clients.close()
            overlay.close()


def announced(overlay: LocalOverlay, broker: str, neighbour: str) -> list[str]:
    """Returns what a broker knows that a neighbour wants."""
    routes = overlay.ask(broker, "/routes", {"filters": "true"})["routes"]
    return [text for route in routes if route["neighbour"] == neighbour for text in route["filters"]]


def is_up(overlay: LocalOverlay, broker: str, neighbour: str) -> bool:
    """Returns whether a broker has a link to a neighbour."""
    return any(link["is_up"] for link in overlay.ask(broker, "/links")["links"] if link["neighbour"] == neighbour)


def openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=PATIENCE_S)


def authority(folder: Path, name: str = "ca") -> None:
    folder.mkdir(exist_ok=True)
    key, certificate = folder / f"{name}.key", folder / f"{name}.pem"
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30", "-subj",
            f"/CN={name}", "-keyout", key, "-out", certificate)  # fmt: skip


def certificate(folder: Path, file: str, name: str, ca: str = "ca") -> None:
    """Makes `FILE.pem` and `FILE.key` with a name, signed by an authority of the folder."""
    request = folder / f"{file}.csr"
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
            "-keyout", folder / f"{file}.key", "-out", request)  # fmt: skip
    openssl("x509", "-req", "-days", "30", "-in", request, "-CA", folder / f"{ca}.pem", "-CAkey", folder / f"{ca}.key",
            "-CAcreateserial", "-out", folder / f"{file}.pem")  # fmt: skip


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    folder = tmp_path / "certs"
    authority(folder)
    for name in ("b1", "b2", "b3"):
        certificate(folder, name, name)
    return folder
