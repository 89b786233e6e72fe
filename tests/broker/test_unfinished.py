"""Packets that never end: forty of 16 MiB took 715 MiB. All together have a bound, and the oldest one has to go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from tests.patience import PATIENCE_S

from surecast.client import Client
from surecast.protocol.mqtt import V5, Connect, Disconnect, PacketDecoder, Publish, ReasonCode, encode
from surecast.protocol.mqtt.unfinished import PartialPacketHolder, Unfinished
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


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.005)


def test_the_packet_that_was_begun_first_has_to_go(running: Running) -> None:
    async def main() -> None:
        async with running(FLAGS) as service:
            port = service.listeners[0].port
            clients = []

            def closed() -> int:
                return int(service.server.limited["unfinished_size"])

            for number in range(6):
                clients.append(await begin(port, f"c{number}"))
                await until(lambda n=number: len(service.server.broker.sessions.by_key) + closed() > n)
            await until(lambda: closed() == 4)
            assert service.server.unfinished.bytes <= 1_000_000
            packets = PacketDecoder(version=V5, side="client").feed(await clients[0][0].read())
            assert isinstance(packets[-1], Disconnect)
            assert packets[-1].reason == ReasonCode.QUOTA_EXCEEDED
            async with Client(port=port, client_id="honest") as honest:
                await honest.subscribe("t", qos=1)
                await honest.publish("t", b"x" * SIZE, 1)
                assert len((await honest.message()).payload) == SIZE
            for _, writer in clients:
                writer.close()
            await until(lambda: service.server.unfinished.bytes == 0)

    asyncio.run(main())


def test_a_decoder_counts_what_it_holds_and_no_longer_what_is_whole() -> None:
    gone: list[PartialPacketHolder] = []
    unfinished = Unfinished[PartialPacketHolder](10_000, gone.append)
    decoder, other = PacketDecoder(version=V5), PacketDecoder(version=V5)
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


def frame(data: bytes, size: int = 0) -> bytes:
    """A WebSocket frame of a client, or the beginning of one of so many bytes; its mask is zero."""
    return b"\x82\xff" + (size or len(data)).to_bytes(8, "big") + b"\0\0\0\0" + data


async def open_websocket(port: int, name: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A WebSocket client that was accepted."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        b"GET /mqtt HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Protocol: mqtt\r\n\r\n"
    )
    await reader.readuntil(b"\r\n\r\n")
    writer.write(frame(encode(Connect(name), V5)))
    await reader.readexactly(4)
    return reader, writer


def test_unfinished_frames_count_as_well(running: Running) -> None:
    async def main() -> None:
        async with running({**FLAGS, "listeners[0].kind": "websocket"}) as service:
            port = service.listeners[0].port
            clients = [await open_websocket(port, f"w{number}") for number in range(4)]
            for _, writer in clients:
                writer.write(frame(b"x" * (SIZE - 100), SIZE))
            await until(lambda: service.server.limited["unfinished_size"] == 2)
            assert service.server.unfinished.bytes <= 1_000_000
            for _, writer in clients:
                writer.close()
            await until(lambda: service.server.unfinished.bytes == 0)

    asyncio.run(main())


def test_a_flood_of_tiny_frames_leaves_turns_to_others(running: Running) -> None:
    async def main() -> None:
        async with running({"listeners[0].kind": "websocket"}) as service:
            reader, writer = await open_websocket(service.listeners[0].port, "tiny")
            [channel] = service.server._channels.values()
            sizes: list[int] = []
            parse = channel._parse

            def note(data: bytes) -> None:
                sizes.append(len(data))
                parse(data)

            channel._parse = note
            publish = b"".join(frame(bytes((byte,))) for byte in encode(Publish("t", b"x", 1, packet_id=1), V5))
            writer.write(publish * 500 + frame(b"\xc0\0"))
            await until(lambda: service.server.broker.counters.published == 500)
            await until(lambda: sum(sizes) == len(publish) * 500 + 16)
            assert max(sizes) <= 8 * 1024
            writer.close()
            del reader

    asyncio.run(main())


def test_a_whole_frame_counts_until_it_is_handled(running: Running) -> None:
    """A frame may be as large as a packet, and was held uncounted while it was handled in pieces."""

    async def main() -> None:
        async with running({**FLAGS, "listeners[0].kind": "websocket"}) as service:
            server = service.server
            publish = encode(Publish("t", b"x" * 100), V5)
            clients = [await open_websocket(service.listeners[0].port, f"w{number}") for number in range(4)]
            go_on = server._next_piece
            server._next_piece = lambda channel: None  # others have their turn
            for _, writer in clients:
                writer.write(frame(publish * (SIZE // len(publish))))
            await until(lambda: server.limited["unfinished_size"] == 2)
            await until(lambda: server.unfinished.bytes > 2 * SIZE * 0.9)
            assert server.unfinished.bytes <= 1_000_000
            server._next_piece = go_on
            for channel in list(server._rest):
                go_on(channel)
            await until(lambda: server.unfinished.bytes == 0)
            await until(lambda: server.broker.counters.published == 2 * (SIZE // len(publish)))
            assert server.transports == 2
            for _, writer in clients:
                writer.close()

    asyncio.run(main())
