"""The client against our broker, and against another where it is installed."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.patience import PATIENCE_S

from surecast.broker.broker_service import BrokerService
from surecast.broker.config import load_config
from surecast.broker.service_log import BrokerLog
from surecast.client import Client, ClientError, LostError, RefusedError, tls_context
from surecast.errors import ConfigurationError
from surecast.protocol.mqtt import V5, V311, Properties, ReasonCode, SubscriptionRequest, Will


@asynccontextmanager
async def our_broker(folder: Path, **flags: Any) -> AsyncIterator[int]:
    """A broker in this process; its port."""
    given = {"listeners[0].port": 0, "admin_socket": folder / "admin.sock", "drain": "1s", **flags}
    service = BrokerService(load_config(None, given), BrokerLog("error"))
    task = asyncio.create_task(service.run())
    ready = asyncio.create_task(service.ready.wait())
    await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED)
    try:
        yield service.listeners[0].port
    finally:
        service.stop()
        await task


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[int]:
    """Another broker, as a process; its port."""
    program = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        pytest.skip("mosquitto is not installed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    file = tmp_path / "mosquitto.conf"
    file.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\n", encoding="utf-8")
    process = subprocess.Popen([program, "-c", str(file)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        ends = time.monotonic() + PATIENCE_S
        while time.monotonic() < ends:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.02)
        yield port
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


async def exchange(port: int, version: int) -> None:
    """All qualities of service there and back."""
    async with Client(port=port, client_id="sub", version=version) as subscriber:
        assert await subscriber.subscribe("t/#", qos=2) == (ReasonCode.GRANTED_QOS_2,)
        async with Client(port=port, version=version) as publisher:
            for qos in (0, 1, 2):
                assert await publisher.publish("t/a", b"%d" % qos, qos) < 0x80
            received = [await subscriber.message() for _ in range(3)]
            assert [(m.topic, m.payload, m.qos) for m in received] == [("t/a", b"%d" % qos, qos) for qos in (0, 1, 2)]
            await subscriber.unsubscribe("t/#")
            await publisher.publish("t/a", b"late", 1)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await subscriber.message()


@pytest.mark.parametrize("version", [V311, V5])
def test_every_quality_of_service(version: int, tmp_path: Path) -> None:
    async def main() -> None:
        async with our_broker(tmp_path) as port:
            await exchange(port, version)

    asyncio.run(main())


@pytest.mark.parametrize("version", [V311, V5])
def test_every_quality_of_service_with_another_broker(version: int, mosquitto: int) -> None:
    asyncio.run(exchange(mosquitto, version))


def test_many_publications_at_once_wait_for_their_own_answers(tmp_path: Path) -> None:
    async def main() -> None:
        async with our_broker(tmp_path, **{"limits.receive_maximum": 5}) as port, Client(port=port) as client:
            await client.subscribe("n", qos=2)
            qos = [number % 3 for number in range(200)]
            reasons = await asyncio.gather(*(client.publish("n", b"%d" % n, q) for n, q in enumerate(qos)))
            assert set(reasons) == {ReasonCode.SUCCESS}
            received = sorted([int((await client.message()).payload) for _ in range(200)])
            assert received == list(range(200))

    asyncio.run(main())


def test_what_is_not_taken_comes_again(tmp_path: Path) -> None:
    """A message of QoS 1 is acknowledged when the application takes it, not before."""

    async def main() -> None:
        lasting = Properties(session_expiry_s=60)
        async with our_broker(tmp_path) as port:
            first = Client(port=port, client_id="ann", properties=lasting)
            await first.connect()
            await first.subscribe("a", qos=1)
            async with Client(port=port) as publisher:
                await publisher.publish("a", b"1", qos=1)
                await publisher.publish("a", b"2", qos=1)
            assert (await first.message()).payload == b"1"
            await first.disconnect()
            async with Client(port=port, client_id="ann", clean_start=False, properties=lasting) as again:
                assert again.connack.session_present
                message = await again.message()
                assert (message.payload, message.dup) == (b"2", True)

    asyncio.run(main())


def test_properties_wills_content_filters_and_take_over(tmp_path: Path) -> None:
    async def main() -> None:
        async with our_broker(tmp_path) as port, Client(port=port, client_id="watch") as watch:
            await watch.subscribe(SubscriptionRequest("stocks", 1, no_local=True), "wills", qos=1)
            async with Client(port=port) as rich:
                content = Properties(user=(("filter", "price > 30"),))
                await rich.subscribe("stocks", properties=content)
                for price in ("29", "31"):
                    given = Properties(user=(("price", price),), content_type="text/plain")
                    await rich.publish("stocks", price.encode(), 1, properties=given)
                    assert (await watch.message()).properties.content_type == "text/plain"
                assert (await rich.message()).payload == b"31"
            dying = Client(port=port, client_id="twin", will=Will("wills", b"gone"))
            await dying.connect()
            async with Client(port=port, client_id="twin"):
                with pytest.raises(RefusedError) as caught:
                    await dying.message()
                assert caught.value.reason is ReasonCode.SESSION_TAKEN_OVER
            assert (await watch.message()).payload == b"gone"
            await dying.disconnect()

    asyncio.run(main())


def test_errors_say_what_is_wrong(tmp_path: Path) -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            port = silent.getsockname()[1]
            with pytest.raises(ClientError, match=r"the answer to CONNECT: no answer within 0\.2 s"):
                await Client(port=port, timeout_s=0.2).connect()
        with pytest.raises(ClientError, match="cannot connect"):
            await Client(port=port).connect()
        with pytest.raises(ClientError, match="no such host"):
            await Client("no-such-host.invalid").connect()
        async with our_broker(tmp_path, **{"security.rules": ["allow subscribe a/#"]}) as port:
            with pytest.raises(ClientError, match="closed the connection at once; does it speak TLS at this port"):
                await Client(port=port, tls=tls_context(insecure=True)).connect()
            with pytest.raises(ClientError, match="no MQTT by WebSocket here"):
                await Client(port=port, websocket_path="/mqtt").connect()
            client = Client(port=port)
            with pytest.raises(ClientError, match="connect first"):
                await client.publish("a")
            async with client:
                with pytest.raises(RefusedError, match="publish to 'a': the broker refused it: not authorized"):
                    await client.publish("a", qos=1)
                with pytest.raises(ConfigurationError, match="has a wildcard"):
                    await client.publish("a/#")
                with pytest.raises(ClientError, match="connects once"):
                    await client.connect()
            with pytest.raises(LostError, match="the client has disconnected"):
                await client.publish("a", qos=1)

    asyncio.run(main())


def test_a_silent_connection_is_kept_alive(tmp_path: Path) -> None:
    async def main() -> None:
        async with our_broker(tmp_path) as port, Client(port=port, keep_alive_s=1) as client:
            await asyncio.sleep(1.8)  # the broker would have closed after one and a half keep-alive periods
            assert await client.publish("a", qos=1) is ReasonCode.NO_MATCHING_SUBSCRIBERS

    asyncio.run(main())
