"""Publishers wait while memory or disk run short, subscribers are served, and nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from tests.broker.test_admin import figure, http
from tests.patience import PATIENCE_S

from surecast.broker.alarms import AlarmLimits, Alarms, free_bytes, memory_bytes_usable, resident_bytes
from surecast.client import Client
from surecast.protocol.mqtt import Properties

Running = Callable[..., AbstractAsyncContextManager[Any]]
LASTING = Properties(session_expiry_s=600)


def alarms_of(service: Any, **values: int) -> None:
    """Has the broker measure what a test says."""
    service._alarms.memory = lambda: values.get("memory", 0)
    service._alarms.disk_free = lambda: values.get("disk")
    service._check_alarms()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.005)


@pytest.mark.parametrize(("kind", "short"), [("memory", {"memory": 2_000_000_000}), ("disk", {"disk": 1_000})])
def test_publishers_wait_and_subscribers_are_served(running: Running, kind: str, short: dict[str, int]) -> None:
    async def main() -> None:
        async with running({"limits.memory": "1GB", "http.port": 0, "system_interval": "50ms"}) as service:
            port, address = service.listeners[0].port, service.http_addresses[0]
            subscriber = Client(port=port, client_id="sub", keep_alive_s=1)
            publisher = Client(port=port, client_id="pub", keep_alive_s=1)
            async with subscriber, publisher:
                await subscriber.subscribe("t", qos=1)
                await publisher.publish("t", b"before", 1)
                assert (await subscriber.message()).payload == b"before"
                alarms_of(service, **short)
                # What it sends first is taken; then it is not read any more.
                await publisher.publish("t", b"first", 1)
                assert (await subscriber.message()).payload == b"first"
                await until(lambda: service.server.publishers_waiting == 1)
                waiting = asyncio.create_task(publisher.publish("t", b"second", 1))
                assert f"{kind} alarm" in (await http(address, "GET /readyz"))[2]
                assert await figure(address, f'surecast_alarm{{kind="{kind}"}}') == 1
                assert await figure(address, "surecast_publishers_waiting") == 1
                async with Client(port=port, client_id="watch") as watch:
                    await watch.subscribe(f"$SYS/broker/alarms/{kind}")
                    await until_payload(watch, b"1")
                    assert not waiting.done()
                    alarms_of(service, disk=1 << 40)
                    await waiting
                    assert (await subscriber.message()).payload == b"second"
                    await until_payload(watch, b"0")
                assert service.server.publishers_waiting == 0
                assert (await http(address, "GET /readyz"))[2] == "ready\n"
                assert service.server.limited == {"memory" if kind == "memory" else "disk_free": 1}

    async def until_payload(client: Client, payload: bytes) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while (await client.message()).payload != payload:
                pass

    asyncio.run(main())


def test_who_waits_is_not_taken_for_dead(running: Running) -> None:
    async def main() -> None:
        async with running({"limits.memory": "1GB"}) as service:
            publisher = Client(port=service.listeners[0].port, client_id="pub")
            await publisher.connect()
            alarms_of(service, memory=2_000_000_000)
            await publisher.publish("t", b"x", 1)
            connection = next(iter(service.server.broker.connections.values()))
            connection.heard_at = 0.0
            service._check_alarms()
            assert connection.heard_at > 0.0
            alarms_of(service)
            await publisher.disconnect()

    asyncio.run(main())


def test_a_publisher_that_leaves_while_it_waits_is_forgotten(running: Running) -> None:
    async def main() -> None:
        async with running({"limits.memory": "1GB"}) as service:
            publisher = Client(port=service.listeners[0].port, client_id="pub")
            await publisher.connect()
            alarms_of(service, memory=2_000_000_000)
            await publisher.publish("t", b"x", 1)
            service.server.kick("pub", False)
            await until(lambda: service.server.publishers_waiting == 0)
            await publisher.disconnect()

    asyncio.run(main())


def test_an_alarm_ends_below_its_low_mark() -> None:
    used, free = iter([900, 1_001, 950, 950, 899, 899, 899]), iter([101, 101, 101, 99, 110, 126])
    alarms, marks = Alarms(lambda: next(used), lambda: next(free)), AlarmLimits(1_000, 100)
    seen = [sorted(alarms.check(marks)) for _ in range(6)]
    assert seen == [[], ["memory"], ["memory"], ["disk"], ["disk"], []]
    assert alarms.count == 2


def test_what_is_measured_is_there(tmp_path: Path) -> None:
    assert 1 << 20 < resident_bytes() < memory_bytes_usable()
    assert (free_bytes(tmp_path) or 0) > 0
    assert free_bytes(None) is None
    assert free_bytes(tmp_path / "nowhere") is None
