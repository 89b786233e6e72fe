"""The client of a group, against single brokers: its fail-over, its patience, and publications that count once.

`tests/broker/group` has it at real groups whose replicas are killed.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.patience import PATIENCE_S

from surecast.broker.broker_service import BrokerService
from surecast.broker.config import load_config
from surecast.broker.service_log import BrokerLog
from surecast.client import Client, ClientError, LostError, RefusedError
from surecast.client.group_client import GroupClient, split_address
from surecast.client.sync import SyncGroupClient
from surecast.errors import ConfigurationError, SurecastError
from surecast.protocol.mqtt import ReasonCode


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


@asynccontextmanager
async def broker(folder: Path, port: int = 0, **flags: Any) -> AsyncIterator[int]:
    """A broker in this process; its port."""
    given = {"listeners[0].port": port, "admin_socket": folder / "admin.sock", "drain": "1s", **flags}
    service = BrokerService(load_config(None, given), BrokerLog("error"))
    task = asyncio.create_task(service.run())
    ready = asyncio.create_task(service.ready.wait())
    await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED)
    try:
        yield service.listeners[0].port
    finally:
        service.stop()
        await task


class Mute:
    """A way to a broker over which answers are lost: what comes back after CONNACK is not passed on, and after a while
    the connection is cut. Only the first `times` connections suffer."""

    def __init__(self, port: int, times: int = 1):
        self.connections = 0
        self._port, self._times = port, times

    @asynccontextmanager
    async def open(self) -> AsyncIterator[int]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with server:
            yield server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        is_mute = self.connections <= self._times
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        with suppress(ConnectionError, TimeoutError):
            forward = asyncio.create_task(self._pass(reader, back))
            writer.write(await there.read(65_536))  # CONNACK
            if is_mute:
                await asyncio.sleep(0.2)
            else:
                await self._pass(there, writer)
            forward.cancel()
        for each in (writer, back):
            each.close()

    @staticmethod
    async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                writer.write(data)


def test_addresses() -> None:
    assert split_address("[::1]") == ("::1", 1883)
    assert split_address("::1") == ("::1", 1883)
    for wrong in ("host:", "host:0", "host:65536", "host:x"):
        with pytest.raises(ConfigurationError, match="port"):
            split_address(wrong)


def test_a_group_without_addresses_is_refused() -> None:
    async def main() -> None:
        GroupClient([])

    with pytest.raises(ConfigurationError, match="at least one"):
        asyncio.run(main())


@pytest.mark.parametrize("qos", [1, 2])
def test_a_publication_whose_acknowledgement_is_lost_counts_once(tmp_path: Path, qos: int) -> None:
    """P2S Algorithm 1: a request that is sent again is answered, and not executed again."""

    async def main() -> None:
        async with broker(tmp_path) as port, Mute(port).open() as mute, Client(port=port) as subscriber:
            await subscriber.subscribe("t", qos=2)
            async with GroupClient([f"127.0.0.1:{mute}"], request_s=5.0) as client:
                assert await client.publish("t", b"once", qos=qos) is ReasonCode.SUCCESS
                await client.publish("t", b"last", qos=qos)
                assert client.fail_overs == 1
            assert [(await subscriber.message()).payload for _ in range(2)] == [b"once", b"last"]

    asyncio.run(main())


def test_publications_under_way_keep_their_order_over_a_fail_over(tmp_path: Path) -> None:
    async def main() -> None:
        async with broker(tmp_path) as port, Mute(port, times=2).open() as mute, Client(port=port) as subscriber:
            await subscriber.subscribe("t", qos=2)
            async with GroupClient([f"127.0.0.1:{mute}"]) as client:
                await asyncio.gather(*(client.publish("t", b"%d" % n, qos=1 + n % 2) for n in range(150)))
            assert [int((await subscriber.message()).payload) for _ in range(150)] == list(range(150))

    asyncio.run(main())


def test_what_the_caller_did_wrong_is_raised_and_not_tried_for_ever(tmp_path: Path) -> None:
    async def main() -> None:
        async with broker(tmp_path) as port, GroupClient([f"127.0.0.1:{port}"]) as client:
            for topic in ("a/+", "", "x" * 70_000):
                for qos in (0, 1, 2):
                    with pytest.raises(SurecastError):
                        await asyncio.wait_for(client.publish(topic, b"", qos=qos), PATIENCE_S)
            with pytest.raises(SurecastError):
                await client.subscribe("a/#/b")
            assert await client.publish("a", b"", qos=2) is ReasonCode.NO_MATCHING_SUBSCRIBERS

    asyncio.run(main())


def test_it_finds_the_replica_that_is_there(tmp_path: Path) -> None:
    async def main() -> None:
        async with broker(tmp_path) as port:
            addresses = [f"127.0.0.1:{free_port()}", f"127.0.0.1:{port}", f"127.0.0.1:{free_port()}"]
            async with GroupClient(addresses) as client:
                assert client.address == ("127.0.0.1", port)
            assert client.address is None

    asyncio.run(main())


def test_patience_ends(tmp_path: Path) -> None:
    async def main() -> None:
        client = GroupClient([f"127.0.0.1:{free_port()}"], patience_s=0.3)
        with pytest.raises(ClientError, match=r"no replica answered within 0\.3 s"):
            await client.connect()
        with pytest.raises(ClientError, match="publish to 't'"):
            await client.publish("t", b"")
        await client.close()
        with pytest.raises(LostError, match="closed"):
            await client.publish("t", b"")

    asyncio.run(main())


def test_a_refusal_for_good_is_raised(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text("")
    users.chmod(0o600)
    flags: dict[str, Any] = {"security.users": users}

    async def main() -> None:
        async with broker(tmp_path, **flags) as port:
            client = GroupClient([f"127.0.0.1:{port}"], username="ann", password=b"x")
            with pytest.raises(RefusedError) as refused:
                await client.connect()
            assert refused.value.reason is ReasonCode.BAD_USER_NAME_OR_PASSWORD
            await client.close()

    asyncio.run(main())


def test_a_broker_that_forgot_the_session_is_told_the_subscriptions(tmp_path: Path) -> None:
    port = free_port()

    async def main() -> None:
        async with broker(tmp_path, port):
            client = GroupClient([f"127.0.0.1:{port}"], client_id="lasting")
            await client.connect()
            await client.subscribe("t/#", qos=1)
            await client.subscribe("u", qos=1)
            await client.unsubscribe("u")
        async with broker(tmp_path, port):  # another one, with nothing in memory
            await client.publish("u", b"no")
            await client.publish("t/a", b"yes")
            assert (await client.message()).payload == b"yes"
            assert client.fail_overs == 1
            await client.close()

    asyncio.run(main())


def test_only_the_session_of_a_named_client_outlives_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with broker(tmp_path) as port:
            for name, is_kept in (("named", True), ("", False)):
                async with GroupClient([f"127.0.0.1:{port}"], client_id=name) as client:
                    await client.subscribe("t")
                async with Client(port=port, client_id=client.client_id, clean_start=False) as again:
                    assert again.connack.session_present is is_kept

    asyncio.run(main())


def test_two_clients_of_one_name_do_not_fight_for_ever(tmp_path: Path) -> None:
    async def main() -> None:
        async with broker(tmp_path) as port:
            clients = [GroupClient([f"127.0.0.1:{port}"], client_id="same") for _ in range(2)]
            await asyncio.gather(*(client.connect() for client in clients), return_exceptions=True)
            first = [asyncio.create_task(client.message()) for client in clients]
            done, _ = await asyncio.wait(first, timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
            reasons = [task.exception() for task in done]
            assert reasons
            assert all(isinstance(r, RefusedError) and r.reason is ReasonCode.SESSION_TAKEN_OVER for r in reasons)
            for task in first:
                task.cancel()
            for client in clients:
                await client.close()

    asyncio.run(main())


# Without an event loop.


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """A broker in another thread."""
    ready, stop, found = threading.Event(), threading.Event(), list[int]()

    async def main() -> None:
        async with broker(tmp_path) as port:
            found.append(port)
            ready.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    assert ready.wait(PATIENCE_S)
    yield f"127.0.0.1:{found[0]}"
    stop.set()
    thread.join()


def test_the_calls_of_the_synchronous_client_wait(address: str) -> None:
    with SyncGroupClient([address]) as client:
        assert client.subscribe("t/#", qos=1) == (ReasonCode.GRANTED_QOS_1,)
        threads = [threading.Thread(target=client.publish, args=("t/a", b"%d" % n)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(client.message(PATIENCE_S).payload for _ in range(4)) == [b"0", b"1", b"2", b"3"]
        with pytest.raises(TimeoutError):
            client.message(0.05)
        client.publish("t/a", b"after the timeout", qos=2)
        assert client.message(PATIENCE_S).payload == b"after the timeout"
        client.unsubscribe("t/#")
    client.close()


def test_a_synchronous_client_that_cannot_connect_leaves_no_thread_behind() -> None:
    before = threading.active_count()
    with pytest.raises(ClientError, match="no replica answered"):
        SyncGroupClient([f"127.0.0.1:{free_port()}"], patience_s=0.2)
    assert threading.active_count() == before


def test_a_client_goes_over_to_the_replica_it_is_told(tmp_path: Path) -> None:
    async def run() -> None:
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
        async with broker(tmp_path / "a") as first, broker(tmp_path / "b") as second:
            addresses = [f"127.0.0.1:{first}", f"127.0.0.1:{second}"]
            async with GroupClient(addresses, patience_s=20) as client:
                for port in (first, second, second, first):
                    await client.move(f"127.0.0.1:{port}")
                    async with Client("127.0.0.1", port) as reader:
                        await reader.subscribe("t", qos=1)
                        await client.publish("t", b"%d" % port)
                        assert client.address == ("127.0.0.1", port)
                        assert (await asyncio.wait_for(reader.message(), PATIENCE_S)).payload == b"%d" % port
                assert client.fail_overs == 0
                with pytest.raises(ConfigurationError, match="none of the addresses"):
                    await client.move("127.0.0.1:1")

    asyncio.run(run())
