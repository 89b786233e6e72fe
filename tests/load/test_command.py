"""`surecast load` against brokers of others' making and our own, as processes."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from surecast.broker.free_ports import free_port
from surecast.load import BrokerAccess, BrokerConnection
from surecast.protocol.mqtt import V5, PacketDecoder, Publish, Subscribe, SubscriptionRequest, encode

PROGRAM = str(Path(sys.executable).parent / "surecast")
MOSQUITTO = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
QUICK = ("--time", "500ms", "--warm-up", "100ms")


@pytest.fixture(params=["surecast", "mosquitto"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, int]]:
    """A broker that is up: its address and its process."""
    port = free_port()
    if request.param == "surecast":
        command = [PROGRAM, "broker", "--port", str(port)]
    else:
        if MOSQUITTO is None:
            pytest.skip("mosquitto is not installed")
        (tmp_path / "mosquitto.conf").write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\n")
        command = [MOSQUITTO, "-c", str(tmp_path / "mosquitto.conf")]
    with (tmp_path / "broker.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log)
    try:
        until = time.monotonic() + 60
        while not listens(port):
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)
        yield f"127.0.0.1:{port}", process.pid
    finally:
        process.terminate()
        process.wait(20)


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def load(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PROGRAM, "load", *arguments], capture_output=True, text=True, timeout=120, check=False)


def left_at(address: str, prefix: str) -> list[str]:
    """Returns the topics below a prefix that have a retained message."""
    host, _, port = address.partition(":")
    connection = BrokerConnection(BrokerAccess(host, int(port)), "looks-for-what-is-left")
    connection.socket.sendall(encode(Subscribe(1, (SubscriptionRequest(f"{prefix}/#", 0),)), V5))
    connection.socket.settimeout(0.5)
    decoder, found = PacketDecoder(version=V5, side="client"), []
    until = time.monotonic() + 0.5
    try:
        while time.monotonic() < until:
            packets = decoder.feed(connection.socket.recv(1 << 16))
            found += [each.topic for each in packets if isinstance(each, Publish) and each.retain]
    except TimeoutError:
        pass
    finally:
        connection.close()
    return found


def has_session(address: str, name: str) -> bool:
    host, _, port = address.partition(":")
    connection = BrokerConnection(BrokerAccess(host, int(port)), name, clean=False)
    connection.close()
    return connection.connack.session_present


def test_a_load_is_measured_and_leaves_nothing(broker: tuple[str, int]) -> None:
    address, pid = broker
    done = load(
        address, "--rate", "400/s", "--subscribers", "2", "-q", "1", "--retain", "--persistent", "--storm", "50/s",
        "--prefix", "here", "--pid", str(pid), *QUICK, "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["expected"] == 2 * figures["sent"] > 0
    assert figures["problems"] == []
    assert figures["acknowledgement_delay"]["count"] > 0
    assert figures["connections"]["accepted"] == figures["connections"]["tried"] > 0
    assert figures["broker_use"]["processor_s"] > 0
    assert left_at(address, "here") == []


def test_an_interrupted_load_leaves_nothing(broker: tuple[str, int]) -> None:
    address, _ = broker
    command = [PROGRAM, "load", address, "--rate", "400/s", "-q", "1", "--retain", "--persistent", "--prefix", "gone"]
    process = subprocess.Popen([*command, "--time", "60s"], stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 60
    while not (topics := left_at(address, "gone")):
        assert time.monotonic() < until
    process.send_signal(signal.SIGINT)
    assert "interrupted" in process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert left_at(address, "gone") == []
    assert not has_session(address, f"load-{topics[0].split('/')[1]}-s0")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("127.0.0.1:1",), "127.0.0.1:1: cannot connect: connection refused: is the broker running at 127.0.0.1:1?"),
        (("127.0.0.1:1", "--rate", "5"), "--rate: '5' is not a rate; write a rate with its unit, such as 1400/s"),
        (("127.0.0.1:1", "--size", "5B"), "--size: write at least 20, not 5"),
        (("127.0.0.1:1", "--burst", "100"), "--burst: a burst of 100 does not fit a window of 64"),
        (("127.0.0.1:1", "--prefix", "a/#"), "--prefix: 'a/#' cannot begin topics"),
        (("127.0.0.1:x",), "the port must be a number from 1 to 65535"),
        (("127.0.0.1:1", "-V", "4"), "-V 4: write 5, 311 or 31"),
    ],
)
def test_mistakes_are_named(arguments: tuple[str, ...], message: str, run_here: object) -> None:
    done = run_here(["load", *arguments])  # type: ignore[operator]
    assert done.returncode == 1
    assert message in " ".join(done.stderr.split())
