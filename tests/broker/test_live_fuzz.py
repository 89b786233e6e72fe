"""Damaged traffic over real sockets, while a well-behaved client goes on as if nothing were."""

from __future__ import annotations

import asyncio
import importlib.util
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.patience import PATIENCE_S

from surecast.protocol.mqtt import V5, Connect, encode

TOOLS = Path(__file__).parents[2] / "tools"


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def test_damaged_traffic_hurts_nobody_else(running: Any) -> None:
    fuzz = load("fuzz_mqtt")

    async def main() -> None:
        async with running() as service:
            cases = [f"live:{number}" for number in range(400)]
            found = await fuzz.attack("127.0.0.1", service.listeners[0].port, cases)
            assert found.cases == 400
            assert found.good_messages >= 10
            assert service.server.broker.counters.protocol_errors > 50
            service.server.broker.routes.settle()
            for session in service.server.broker.sessions.by_key.values():
                assert session.accounts.queued == session.queued

    asyncio.run(main())


COST_NS = 4_000
"""Processor time that a byte may cost: seven times as much as any stream here does."""
SIZE = 100_000


@pytest.fixture
def hostile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """Starts a broker in a process of its own, with a repair taken out of it if one is named."""
    monkeypatch.syspath_prepend(TOOLS)
    costs, brokers = load("fault_hostile_costs"), []

    def start(mutation: str = "") -> Any:
        broker = costs.Broker(tmp_path, mutation)
        brokers.append(broker)
        broker.wait_ready()
        return broker

    start.costs = costs  # type: ignore[attr-defined]
    yield start
    for broker in brokers:
        broker.end()


def cost_ns(hostile: Any, broker: Any, version: int, data: bytes) -> float:
    """Returns the processor time of the broker for each byte of a client; the time of others does not count."""
    before = hostile.costs._running_s(broker.pids)
    with socket.create_connection(("127.0.0.1", broker.port), timeout=PATIENCE_S) as client:
        client.sendall(encode(Connect("fuzz", version=version), version))
        asyncio.run(_exchange(client, data + b"\xc0\0"))
    return 1e9 * hostile.costs._busiest_s(broker.pids, before) / len(data)


async def _exchange(client: socket.socket, data: bytes) -> None:
    """Sends all of it, and reads what comes until the last ping is answered or the connection is over."""
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    sending = asyncio.ensure_future(loop.sock_sendall(client, data))
    async with asyncio.timeout(PATIENCE_S):
        while (answer := await loop.sock_recv(client, 1 << 16)) and not (sending.done() and answer.endswith(b"\xd0\0")):
            pass
        await asyncio.wait([sending])
        sending.exception()


def with_properties(count: int) -> bytes:
    """A PUBLISH with so many user properties."""
    return bytes(sys.modules["hostile_attacks"].with_properties(0x30, b"\0\1t", count))


def test_no_sound_traffic_costs_much_for_its_length(hostile: Any) -> None:
    fuzz, broker = load("fuzz_mqtt"), hostile()
    streams = [fuzz.pattern(f"live {number}") for number in range(12)]
    streams += [(V5, (with_properties(500),))]
    costs = {}
    for number, (version, parts) in enumerate(streams):
        sound = b"".join(part for part in parts if part[0] not in (0xE0, 0xF0)) or b"\xc0\0"  # a goodbye ends all cost
        costs[number] = cost_ns(hostile, broker, version, sound * (SIZE // len(sound)))
    assert max(costs.values()) < COST_NS, costs


def test_the_check_of_cost_notices_what_is_quadratic(hostile: Any) -> None:
    assert cost_ns(hostile, hostile("quadratic-properties"), V5, with_properties(60_000)) > COST_NS
