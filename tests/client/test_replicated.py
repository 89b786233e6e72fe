"""The client of a replicated state machine, against replicas in this process."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.patience import PATIENCE_S

from surecast.broker.replica import Address, ClientPort, Place, ReplicaNode, new_loop
from surecast.broker.replica.client_link import ReplicaLink
from surecast.broker.replica.client_wire import REPLACE, REQUESTS
from surecast.broker.replica.frames import frame
from surecast.broker.replica.handshake import Hello
from surecast.client.client_errors import ClientError
from surecast.client.replicated import RequestTimeoutError, dial, dial_sync
from surecast.errors import ConfigurationError
from surecast.protocol.paxos import ExampleStore, PaxosSettings, pack_requests
from surecast.protocol.paxos.example_store import get, incr, put

LOOPBACK = Address("127.0.0.1", 0)


def run(main: Callable[[], Awaitable[Any]]) -> Any:
    async def limited() -> Any:
        async with asyncio.timeout(PATIENCE_S):
            return await main()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(limited())


class Server:
    """A group of one replica."""

    def __init__(self, settings: PaxosSettings | None = None, secret: bytes = b""):
        self.node = ReplicaNode(1, ExampleStore(), {1: Place(LOOPBACK)}, group="g", secret=b"s" * 16, settings=settings)
        self.port = ClientPort(self.node, secret)

    async def __aenter__(self) -> str:
        await self.node.start()
        self.address = await self.port.start(LOOPBACK)
        return str(self.address)

    async def __aexit__(self, *_: object) -> None:
        await self.port.stop()
        await self.node.stop()


def test_requests_are_answered_and_many_are_under_way() -> None:
    async def main() -> None:
        async with Server() as address, await dial([address], group="g") as connection:
            assert connection.window == 64
            replies = await asyncio.gather(*(connection.send_request(incr(b"k")) for _ in range(500)))
            assert sorted(int(reply[1:]) for reply in replies) == list(range(1, 501))
            big = bytes(3 << 20)
            assert await connection.send_request(put(b"big", big)) == b"+"
            assert await connection.send_request(get(b"big")) == b"+" + big
        with pytest.raises(ClientError, match="closed"):
            await connection.send_request(b"")

    run(main)


def test_a_lost_connection_is_made_again_and_nothing_counts_twice() -> None:
    async def main() -> None:
        async with Server() as address, await dial([address]) as connection:
            for count in range(1, 21):
                waiting = asyncio.ensure_future(connection.send_request(incr(b"k")))
                await asyncio.sleep(0.001 * (count % 4))
                if connection._link is not None:  # on a busy machine it may be gone, and not yet made again
                    connection._link.close()  # before, while or after it is answered
                assert await waiting == b"+%d" % count
                while connection._link is None or connection._link.is_lost:
                    await asyncio.sleep(0.005)
            assert connection.reconnects >= 5

    run(main)


def test_a_replica_that_is_silent_is_left_for_another() -> None:
    async def main() -> None:
        server = Server()
        async with server as address, await dial([address], patience_s=0.2) as connection:
            connection._addresses.append(connection._addresses[0])
            server.node.leave(server.port)
            waiting = asyncio.ensure_future(connection.send_request(incr(b"k")))
            await asyncio.sleep(0.4)
            server.node.serve(server.port)
            assert await waiting == b"+1"
            assert connection.reconnects >= 1

    run(main)


def test_too_many_requests_wait_and_are_sent_again() -> None:
    async def main() -> None:
        settings = PaxosSettings(queue_bytes_max=2_000)
        async with Server(settings) as address, await dial([address]) as connection:
            other = await dial([address])
            commands = [put(b"k", bytes(300)) for _ in range(10)]
            replies = await asyncio.gather(*(one.send_request(c) for one in (connection, other) for c in commands[:3]))
            assert replies == [b"+"] * 6
            with pytest.raises(RequestTimeoutError, match="no room"):
                await connection.send_request(put(b"k", bytes(3_000)), timeout_s=0.3)
            assert await connection.send_request(get(b"k")) == b"+" + bytes(300)
            await other.close()

    run(main)


def test_who_may_ask() -> None:
    async def main() -> None:
        async with Server(secret=b"for clients") as address:
            async with await dial([address], secret=b"for clients") as connection:
                assert await connection.send_request(incr(b"k")) == b"+1"
            with pytest.raises(ClientError, match=r"every replica refuses: .*the secret is not"):
                await dial([address], secret=b"wrong")
            with pytest.raises(ClientError, match="replica of the group 'g', not 'h'"):
                await dial([address], group="h", secret=b"for clients")

    run(main)


@pytest.mark.parametrize(
    "content",
    [
        REQUESTS + pack_requests([(0, 0, b"a change of the membership")]),
        REQUESTS + pack_requests([(8, 1, b"in the name of another")]),
        REQUESTS + pack_requests([(7, 1, b"cut off")])[:-1],
        REQUESTS + b"\xff\xff\xff\xff",
        REQUESTS,
        REPLACE + b"{}",
        b"?",
    ],
)
def test_what_a_client_may_not_say_ends_its_connection(content: bytes) -> None:
    async def main() -> None:
        async with Server() as address, await dial([address]) as connection:
            host, _, port = address.rpartition(":")
            link, _ = await ReplicaLink.open(Address(host, int(port)), Hello("client", "", 7, 0, "00"), b"")
            link.write(frame(content))
            while not link.is_lost:
                link.changed.clear()
                await link.changed.wait()
            assert await connection.send_request(incr(b"k")) == b"+1"

    run(main)


def test_nobody_there() -> None:
    async def main() -> None:
        with socket.create_server(LOOPBACK) as listener:
            port = listener.getsockname()[1]
        with pytest.raises(ClientError, match=r"no replica answers within 0\.3 s"):
            await dial([f"127.0.0.1:{port}"], timeout_s=0.3)
        with pytest.raises(ConfigurationError, match="no addresses"):
            await dial([])

    run(main)


def test_without_an_event_loop() -> None:
    started, over = threading.Event(), threading.Event()
    address: list[str] = []

    async def serve() -> None:
        async with Server() as found:
            address.append(found)
            started.set()
            while not over.is_set():
                await asyncio.sleep(0.02)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert started.wait(PATIENCE_S)
    try:
        with dial_sync(address) as connection:
            assert [connection.send_request(incr(b"k")) for _ in range(3)] == [b"+1", b"+2", b"+3"]
        with pytest.raises(ClientError, match="closed"):
            connection.send_request(b"")
    finally:
        over.set()
        thread.join()
