"""The turn of the loop: what is promised is committed before it is sent, once for all that arrived together."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.patience import PATIENCE_S

from surecast.broker.authenticator import IsWanted, Verdict
from surecast.broker.server import Server
from surecast.broker.shell import PIECE_BYTES, Hooks
from surecast.broker.store import MemoryStore
from surecast.protocol.broker import Connection, Origin
from surecast.protocol.mqtt import V5, Connect, Properties, Publish, Subscribe, SubscriptionRequest, encode


class Channel:
    """A connection without a network, which notes when something is sent."""

    connection: Connection

    def __init__(self, history: list[str]):
        self.history = history
        self.piece_bytes = PIECE_BYTES
        self.sent = b""

    def send(self, data: bytes) -> None:
        self.history.append("send")
        self.sent += data

    def close(self) -> None:
        self.history.append("close")

    def pause_reading(self) -> None:
        self.history.append("pause")

    def resume_reading(self) -> None:
        self.history.append("resume")

    abort = close


class NotingStore(MemoryStore):
    """Notes when something is committed."""

    def __init__(self, history: list[str]):
        super().__init__()
        self.history = history

    def commit(self, operations: Any) -> None:
        self.history.append("commit")
        super().commit(operations)


def test_a_hundred_messages_are_one_commit_and_it_comes_before_the_answers() -> None:
    history: list[str] = []

    async def main() -> bytes:
        server = Server(store=NotingStore(history), hooks=Hooks(turn=lambda: history.append("turn")))
        server.start()
        channel = Channel(history)
        server.connected(channel, Origin())
        lasting = Connect("ann", clean_start=False, properties=Properties(session_expiry_s=60))
        server.received(channel.connection, encode(lasting, V5))
        server.received(channel.connection, encode(Subscribe(1, (SubscriptionRequest("a", 1),)), V5))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        history.clear()
        channel.sent = b""
        for number in range(1, 101):
            server.received(channel.connection, encode(Publish("a", b"x", 1, packet_id=number), V5))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert history == ["commit", "send", "turn"]
        server.stop()
        return channel.sent

    sent = asyncio.run(main())
    assert sent.count(b"\x40\x02") >= 100  # every one is acknowledged
    assert history[-3:] == ["send", "close", "turn"]  # the goodbye


def test_connections_of_one_client_are_let_in_in_the_order_they_came() -> None:
    """However long the check of each password takes: the later connection is the one that stays."""
    is_second_checked = asyncio.Event()

    async def authenticate(connect: Connect, origin: Origin, is_wanted: IsWanted) -> Verdict:
        if origin.peer == "first":
            await is_second_checked.wait()
        else:
            is_second_checked.set()
        return "ann"

    async def main() -> None:
        server = Server(authenticate=authenticate)
        server.start()
        channels = []
        for peer in ("first", "second"):
            channel = Channel([])
            server.connected(channel, Origin(peer=peer))
            server.received(channel.connection, encode(Connect("till"), V5))
            channels.append(channel)
        while not all(channel.sent for channel in channels):
            await asyncio.sleep(0.005)
        [session] = server.broker.sessions.by_key.values()
        assert session.connection is channels[1].connection

    asyncio.run(main())


def test_a_client_does_not_wait_for_others_that_show_its_name_and_another_password() -> None:
    """Whoever knows a user and a client identifier could otherwise hold up their owner while a check lasts."""

    async def authenticate(connect: Connect, origin: Origin, is_wanted: IsWanted) -> Verdict:
        if connect.password != b"right":
            await asyncio.Event().wait()
        return "ann"

    async def main() -> None:
        server = Server(authenticate=authenticate)
        server.start()
        channels = [Channel([]) for _ in range(3)]
        for channel, password in zip(channels, (b"wrong", b"worse", b"right"), strict=True):
            server.connected(channel, Origin())
            server.received(channel.connection, encode(Connect("till", username="ann", password=password), V5))
        async with asyncio.timeout(PATIENCE_S):
            while not channels[2].sent:
                await asyncio.sleep(0.005)
        for task in server._checks:
            task.cancel()

    asyncio.run(main())


def test_what_one_client_sends_at_once_is_handled_in_many_turns_and_others_go_between() -> None:
    """A WebSocket frame may have megabytes, and a SUBSCRIBE of ten bytes costs more than a hundred messages."""
    history: list[str] = []

    async def main() -> None:
        server = Server(store=NotingStore(history), hooks=Hooks(turn=lambda: history.append("turn")))
        server.start()
        channel, other = Channel(history), Channel([])
        server.connected(channel, Origin())
        server.connected(other, Origin())
        server.received(channel.connection, encode(Connect("greedy"), V5))
        server.received(other.connection, encode(Connect("polite"), V5))
        await asyncio.sleep(0.01)
        history.clear()
        other.sent = b""
        many = 20_000
        data = encode(Subscribe(1, (SubscriptionRequest("a/b"),)), V5) * many
        server.received(channel.connection, data)
        server.received(channel.connection, b"\xc0\0")  # read before the transport was paused: it keeps its place
        assert history == ["pause"]
        server.received(other.connection, b"\xc0\0")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert other.sent == b"\xd0\0"
        assert server.broker.counters.packets_in < many
        while "resume" not in history:
            await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        assert server.broker.counters.packets_in == 4 + many
        assert channel.sent.endswith(b"\xd0\0")
        assert history.count("pause") == history.count("resume") == 1
        server.stop()

    asyncio.run(main())


def test_what_a_client_sent_before_it_left_is_carried_out() -> None:
    async def main() -> None:
        server = Server()
        server.start()
        channel = Channel([])
        server.connected(channel, Origin())
        server.received(channel.connection, encode(Connect("ann"), V5))
        data = b"".join(encode(Publish(f"r/{n}", b"x", retain=True), V5) for n in range(10_000))
        server.received(channel.connection, data)
        assert len(server.broker.retained) < 10_000
        server.lost(channel.connection)
        assert len(server.broker.retained) < 10_000  # others go between
        assert server.transports == 0
        while server.broker.connections:
            await asyncio.sleep(0)
        assert len(server.broker.retained) == 10_000
        assert not server.broker.connections
        server.stop()

    asyncio.run(main())
