"""Packets that never end: forty of 16 MiB took 715 MiB. All together have a bound, and the oldest one has to go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from surecast.client import Client
from surecast.protocol.mqtt import V5, Connect, Decoder, Disconnect, ReasonCode, encode
from surecast.protocol.mqtt.unfinished import Unfinished
from surecast.protocol.mqtt.wire import variable_bytes

Running = Callable[..., AbstractAsyncContextManager[Any]]
SIZE = 400_000
FLAGS = {"limits.packet_size": "500kB", "limits.unfinished_size": "1MB"}


async def begin(port: int, name: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A client that sends most of a message, and no more."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(encode(Connect(name), V5) + b"\x30" + variable_bytes(SIZE) + b"\0\1t\0" + b"x" * (SIZE - 100))
    await writer.drain()
    return reader, writer


def test_the_packet_that_was_begun_first_has_to_go(running: Running) -> None:
    async def main() -> None:
        async with running(FLAGS) as service:
            port = service.listeners[0].port
            clients = []

            def closed() -> int:
                return int(service.server.limited["unfinished_size"])

            for number in range(6):
                clients.append(await begin(port, f"c{number}"))
                await until(lambda n=number: len(service.server.broker.sessions.by_client) + closed() > n)
            await until(lambda: closed() == 4)
            assert service.server.unfinished.bytes <= 1_000_000
            packets = Decoder(version=V5, side="client").feed(await clients[0][0].read())
            assert isinstance(packets[-1], Disconnect)
            assert packets[-1].reason == ReasonCode.QUOTA_EXCEEDED
            async with Client(port=port, client_id="honest") as honest:
                await honest.subscribe("t", qos=1)
                await honest.publish("t", b"x" * SIZE, 1)
                assert len((await honest.message()).payload) == SIZE
            for _, writer in clients:
                writer.close()
            await until(lambda: service.server.unfinished.bytes == 0)

    async def until(holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not holds():
                await asyncio.sleep(0.005)

    asyncio.run(main())


def test_a_decoder_counts_what_it_holds_and_no_longer_what_is_whole() -> None:
    gone: list[Decoder] = []
    unfinished = Unfinished[Decoder](10_000, gone.append)
    decoder, other = Decoder(version=V5), Decoder(version=V5)
    decoder.count_in(unfinished)
    other.count_in(unfinished)
    packet = b"\x30" + variable_bytes(8_000) + b"\0\1t\0" + b"x" * 7_996
    decoder.feed(packet[:5_000])
    assert unfinished.bytes == 5_000
    assert len(decoder.feed(packet[5_000:])) == 1
    assert unfinished.bytes == 0
    decoder.feed(packet[:7_000])
    other.feed(packet[:7_000])
    assert gone == [decoder]
    assert unfinished.bytes == 7_000
    other.release()
    assert unfinished.bytes == 0
