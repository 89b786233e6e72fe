"""A short soak: forty clients, random breaks, and a broker that is killed. `tools/broker_soak.py` does it for hours."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.patience import PATIENCE_S

from surecast.protocol.mqtt import V311, Connack, Publish, encode

TOOL = Path(__file__).parents[2] / "tools" / "broker_soak.py"


def test_a_short_soak_keeps_all_promises() -> None:
    options = ["--minutes", "0.1", "--clients", "40", "--seed", "3", "--rate", "150"]
    options += ["--kill-interval", "2", "--kills", "2", "--online", "3"]
    done = subprocess.run(
        [sys.executable, TOOL, *options], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("all promises kept\n")
    assert done.stdout.count("killed and back") >= 2


class Wire:
    """A transport that goes nowhere."""

    def __init__(self) -> None:
        self.closed = False

    def write(self, data: bytes) -> None:
        pass

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close


def test_what_is_left_of_an_old_connection_is_not_taken_for_the_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The old connection still has a message of QoS 0 on its way, and its end is seen late: neither may count."""
    monkeypatch.syspath_prepend(str(TOOL.parent))
    import broker_soak_clients as clients

    plan = clients.Plan(1.0, 1, 1, 1.0, 1.0, 0, 1.0, "memory")

    async def main() -> Any:
        soak = clients.Soak(plan, 0)
        soak.streams["g/0/p/0"] = clients.Stream("g/0/p/0", 0, sent=10)
        soak.by_group[0] = list(soak.streams.values())
        peer = clients.Subscriber(soak, "s", 0, random.Random(1), None)
        peer.version, peer.lasting, peer.qos, peer.asked = V311, False, 0, True

        def hear(link: Any, *packets: Any) -> None:
            link.data_received(b"".join(encode(packet, V311) for packet in packets))

        def connect() -> Any:
            peer.link = link = clients.Link(peer)
            peer._decoder = clients.PacketDecoder(version=V311, side="client")
            peer._lost = asyncio.Event()
            link.connection_made(Wire())
            hear(link, Connack(False))
            return link

        old = connect()
        hear(old, Publish("g/0/p/0", b"1"))
        new = connect()
        hear(new, Publish("g/0/p/0", b"3"))
        hear(old, Publish("g/0/p/0", b"2"))
        old.connection_lost(None)
        assert peer.online
        assert not peer._lost.is_set()
        hear(new, Publish("g/0/p/0", b"2"))  # a broker that did this would be caught
        return soak

    soak = asyncio.run(main())
    assert len(soak.wrong) == 1
    assert "g/0/p/0 2 came after 3; QoS 0, dup False" in soak.wrong[0]
    assert soak.wrong[0].endswith("connected, session present False, g/0/p/0 3 as 0")
