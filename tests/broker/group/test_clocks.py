"""Clocks of real replicas that are wrong: nothing ends early or late because of them."""

from __future__ import annotations

import asyncio
import http.client
import socket
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.patience import PATIENCE_S

from surecast.broker.config import admin_socket_path
from surecast.broker.group_config import config_of
from surecast.client.client import Client
from surecast.protocol.mqtt import V5, Properties

Run = Callable[..., Any]
HOURS_S = 7_200.0
METRIC = "surecast_group_clock_difference_seconds{"


def differences(moved: Any, number: int) -> list[float]:
    """Returns how far the clocks of the others are ahead of that of a replica, by its metrics."""
    connection = http.client.HTTPConnection("localhost", timeout=PATIENCE_S)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(admin_socket_path(config_of(moved.group.spec, number))))
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    return [float(line.split()[-1]) for line in lines if line.startswith(METRIC)]


def client_of(address: str, name: str, expiry_s: int) -> Client:
    host, _, port = address.rpartition(":")
    properties = Properties(session_expiry_s=expiry_s)
    return Client(
        host, int(port), client_id=name, version=V5, clean_start=False, properties=properties, keep_alive_s=60
    )


async def until(condition: Callable[[], Any], timeout_s: float = PATIENCE_S) -> None:
    async with asyncio.timeout(timeout_s):
        while not await asyncio.to_thread(condition):
            await asyncio.sleep(0.1)


def test_a_leader_whose_clock_is_hours_off_ends_no_session_early_or_late(
    clock_tool: ModuleType, run: Run, tmp_path: Path
) -> None:
    moved = clock_tool.MovedGroup(tmp_path, 3, {})

    async def main() -> None:
        leader = await moved.leader()
        follower = next(number for number in moved.group.numbers if number != leader)
        address = moved.group.addresses[leader - 1]
        async with client_of(address, "an hour", 3_600):
            pass
        async with client_of(address, "connected", 0) as client:
            moved.set_clock(leader, HOURS_S)
            await until(lambda: max(differences(moved, leader)) < -0.9 * HOURS_S)
            await until(lambda: max(differences(moved, follower)) > 0.9 * HOURS_S)
            await client.publish("moves/the/time", b"", 1)
            await asyncio.sleep(0.5)
            assert "an hour" in moved.sessions()
            moved.set_clock(leader, -HOURS_S)
            await until(lambda: min(differences(moved, leader)) > 0.9 * HOURS_S)
            async with client_of(address, "a second", 1):
                pass
            await until(lambda: "a second" not in moved.sessions())
            assert "an hour" in moved.sessions()
            assert client.ended is None
        status = {one["replica"]: one for one in await asyncio.to_thread(moved.group.status)}
        assert status[leader]["clock_ahead_s"] == pytest.approx(-HOURS_S, abs=60)
        assert status[follower]["clock_ahead_s"] == pytest.approx(0.0, abs=60)
        moved.set_clock(leader, 0.0)
        log = tmp_path / f"{leader}.log"
        await until(lambda: log.read_text().count("clocks agree again") == 2)
        assert log.read_text().count("clocks differ") == 2  # once for each peer, though it jumped

    try:
        moved.group.start()
        moved.group.wait_ready(PATIENCE_S)
        run(main)
    finally:
        moved.end()
