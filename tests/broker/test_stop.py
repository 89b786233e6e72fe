"""Stopping is bounded by what clients have to take, not by those who come, stay silent or begin a handshake."""

from __future__ import annotations

import json
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from tests.broker.conftest import Certificates, Process
from tests.patience import PATIENCE_S

from surecast.broker.cluster import LocalGroup, write_group
from surecast.protocol.mqtt import V5, Connect, encode

CONNECT = encode(Connect(keep_alive_s=0), V5)
DRAIN_S = 240
IN_TIME_S = 120
"""Far below the time for clients that are slow to take what is unsent; who waits for it waits for nobody."""

Start = Callable[..., Process]


@contextmanager
def storm(port: int) -> Iterator[None]:
    """Clients that connect and leave all the time, half of them with a CONNECT."""
    is_over = threading.Event()

    def come_and_go() -> None:
        count = 0
        while not is_over.is_set():
            count += 1
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1) as sock:
                if count % 2:
                    sock.sendall(CONNECT)

    threads = [threading.Thread(target=come_and_go) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


def test_clients_that_come_and_go_at_that_moment(start_broker: Start, tmp_path: Path) -> None:
    (tmp_path / "broker.yaml").write_text(f"drain: {DRAIN_S}s\nstate: {{durability: memory}}\n")
    broker = start_broker("--config", tmp_path / "broker.yaml")
    with storm(broker.port):
        begun = time.monotonic()
        assert broker.end() == 0
        assert time.monotonic() - begun < IN_TIME_S


def test_clients_that_come_and_go_at_a_replica(tmp_path: Path) -> None:
    with LocalGroup(write_group(tmp_path, 1, options={"sync": "none", "drain": f"{DRAIN_S}s"})) as group:
        group.start()
        group.wait_ready(PATIENCE_S)
        process = group.processes[1]
        with storm(int(group.addresses[0].rpartition(":")[2])):
            begun = time.monotonic()
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=PATIENCE_S) == 0
            assert time.monotonic() - begun < IN_TIME_S


@pytest.mark.parametrize("said", [b"", CONNECT[:5], CONNECT, b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\n"])
def test_clients_that_stay_and_say_nothing_more(
    start_broker: Start, tmp_path: Path, certificates: Certificates, said: bytes
) -> None:
    """At every kind of listener, and where metrics are read: each takes the bytes for what they may be there."""
    config = tmp_path / "broker.yaml"
    secure = {"certificate": str(certificates.server), "key": str(certificates.server_key)}
    listeners = [
        {"kind": kind, "port": 0, **(secure if kind in ("tls", "secure-websocket") else {})}
        for kind in ("tcp", "tls", "websocket", "secure-websocket")
    ]
    data = {
        "listeners": listeners, "http": {"port": 0}, "drain": f"{DRAIN_S}s", "state": {"durability": "memory"},
        "admin_socket": str(tmp_path / "admin.sock"),
    }  # fmt: skip
    config.write_text(json.dumps(data))
    broker = start_broker("--config", config)
    ports = [int(each["port"]) for each in broker.started["listeners"]]
    ports += [int(address.rpartition(":")[2]) for address in broker.started["http"]]
    assert len(ports) == 5
    with ExitStack() as stack:
        for port in ports:
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S))
            sock.sendall(said)
        time.sleep(0.2)
        begun = time.monotonic()
        assert broker.end() == 0
        assert time.monotonic() - begun < IN_TIME_S
