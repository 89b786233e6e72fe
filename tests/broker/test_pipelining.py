"""Clients that do not wait for the CONNACK: whatever they send behind CONNECT is heard, however it is cut.

Both kinds of broker, by every transport, with passwords that are checked in a thread while more arrives.
"""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from tests.broker.conftest import Certificates, Process
from tests.patience import PATIENCE_S
from websockets.frames import Frame, Opcode

from surecast.broker.cluster import LocalGroup, write_group
from surecast.protocol.mqtt import (
    V5,
    V311,
    Connack,
    Connect,
    Disconnect,
    Packet,
    PacketDecoder,
    Publish,
    Suback,
    Subscribe,
    SubscriptionRequest,
    encode,
)

SURECAST = Path(sys.executable).parent / "surecast"
ROUNDS = 4
KINDS = ("tcp", "tls", "websocket")
Ports = dict[str, int]


def listeners(certificates: Certificates) -> list[dict[str, object]]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in KINDS]
    made: list[dict[str, object]] = []
    for kind, sock in zip(KINDS, held, strict=True):
        made.append({"name": kind, "kind": kind, "host": "127.0.0.1", "port": sock.getsockname()[1]})
        sock.close()
    made[1] |= {"certificate": str(certificates.server), "key": str(certificates.server_key)}
    return made


@pytest.fixture(scope="module", params=["single", "group", "group without users"])
def ports(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[Ports]:
    """The ports of a broker by transport."""
    folder = tmp_path_factory.mktemp("pipelining")
    subprocess.run([SURECAST, "passwd", folder / "users", "ann"], input="pw\n", text=True, check=True)
    ways = listeners(certificates)
    found = {str(way["kind"]): int(str(way["port"])) for way in ways}
    if request.param == "single":
        config = {
            "listeners": ways,
            "security": {"users": str(folder / "users")},
            "state": {"folder": str(folder / "state")},
            "admin_socket": str(folder / "admin.sock"),
        }
        (folder / "broker.yaml").write_text(json.dumps(config))
        process = Process("--config", folder / "broker.yaml", port=found["tcp"])
        yield found
        assert process.end() == 0
        return
    security = {"users": "users"} if request.param == "group" else {}
    path = write_group(folder, 1, options={"sync": "none", "security": security})
    data = yaml.safe_load(path.read_text())
    data["replicas"][0]["mqtt"] = ways
    path.write_text(yaml.safe_dump(data))
    with LocalGroup(path) as group:
        group.start()
        group.wait_ready(PATIENCE_S)
        yield found


class Wire:
    """A connection that writes what it is told, and nothing else; a WebSocket has shaken hands."""

    def __init__(self, kind: str, port: int, certificates: Certificates):
        self.sock: socket.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.is_web = kind == "websocket"
        if kind == "tls":
            context = ssl.create_default_context(cafile=str(certificates.ca))
            self.sock = context.wrap_socket(self.sock, server_hostname="localhost")
        if self.is_web:
            self.sock.sendall(
                b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
                b"Sec-WebSocket-Protocol: mqtt\r\n\r\n"
            )
            while not self.sock.recv(1 << 16).endswith(b"\r\n\r\n"):
                pass

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def frame(self, data: bytes) -> bytes:
        return Frame(Opcode.BINARY, data).serialize(mask=True) if self.is_web else data

    def payload(self, data: bytes) -> bytes:
        """Returns what the frames hold; the broker's have less than 64 kB here."""
        if not self.is_web:
            return data
        parts, at = [], 0
        while at + 4 <= len(data):
            size, at = data[at + 1], at + 2
            if size == 126:
                size, at = int.from_bytes(data[at : at + 2], "big"), at + 2
            parts.append(data[at : at + size])
            at += size
        return b"".join(parts)


def in_one_write(wire: Wire, packets: list[bytes]) -> None:
    wire.sock.sendall(wire.frame(b"".join(packets)))


def in_frames_of_one_write(wire: Wire, packets: list[bytes]) -> None:
    wire.sock.sendall(b"".join(map(wire.frame, packets)))


def in_many_writes(wire: Wire, packets: list[bytes]) -> None:
    for packet in packets:
        wire.sock.sendall(wire.frame(packet))


def in_slow_writes(wire: Wire, packets: list[bytes]) -> None:
    for packet in packets:
        wire.sock.sendall(wire.frame(packet))
        time.sleep(0.002)


def byte_by_byte(wire: Wire, packets: list[bytes]) -> None:
    for byte in b"".join(packets):
        wire.sock.sendall(wire.frame(bytes((byte,))))


CUTS: list[Callable[[Wire, list[bytes]], None]] = [
    in_one_write, in_frames_of_one_write, in_many_writes, in_slow_writes, byte_by_byte,
]  # fmt: skip


def heard(wire: Wire, version: int, count: int) -> list[Packet]:
    """Returns what the broker answers, until a number of packets is there or nothing more comes."""
    data, got = b"", list[Packet]()
    wire.sock.settimeout(5)
    try:
        while len(got) < count and (more := wire.sock.recv(1 << 16)):
            data += more
            got = PacketDecoder(version=version, side="client").feed(wire.payload(data))
    except TimeoutError:
        pass
    return got


@pytest.mark.parametrize("cut", CUTS, ids=lambda cut: cut.__name__)
@pytest.mark.parametrize("kind", KINDS)
def test_what_follows_connect_is_heard(
    ports: Ports, kind: str, cut: Callable[[Wire, list[bytes]], None], certificates: Certificates
) -> None:
    for attempt in range(ROUNDS):
        version = (V5, V311)[attempt % 2]
        topic = f"pipelined/{kind}/{cut.__name__}/{attempt}"
        packets: list[Packet] = [
            Connect(f"{kind}-{attempt}", username="ann", password=b"pw", version=version),
            Subscribe(1, (SubscriptionRequest(topic, 0),)),
            *(Publish(topic, b"%d" % n) for n in range(5)),
        ]
        with Wire(kind, ports[kind], certificates) as wire:
            cut(wire, [encode(packet, version) for packet in packets])
            got = heard(wire, version, 7)
        assert [type(packet) for packet in got[:2]] == [Connack, Suback], (attempt, got)
        assert [p.payload for p in got if isinstance(p, Publish)] == [b"%d" % n for n in range(5)], (attempt, got)


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_that_says_goodbye_without_an_answer_is_heard(
    ports: Ports, kind: str, certificates: Certificates
) -> None:
    """Its password is checked while its connection is closed already, and it may be back by then."""
    topic = f"goodbye/{kind}"
    with Wire("tcp", ports["tcp"], certificates) as listens:
        hello: list[Packet] = [
            Connect("listens", username="ann", password=b"pw"),
            Subscribe(1, (SubscriptionRequest(topic, 0),)),
        ]
        in_one_write(listens, [encode(packet, V5) for packet in hello])
        assert len(heard(listens, V5, 2)) == 2
        for attempt in range(ROUNDS):
            packets: list[Packet] = [
                Connect("hasty", username="ann", password=b"pw"),
                Publish(topic, b"%d" % attempt),
                Disconnect(),
            ]
            with Wire(kind, ports[kind], certificates) as wire:
                in_one_write(wire, [encode(packet, V5) for packet in packets])
        got = heard(listens, V5, ROUNDS)
    assert sorted(p.payload for p in got if isinstance(p, Publish)) == [b"%d" % n for n in range(ROUNDS)]
