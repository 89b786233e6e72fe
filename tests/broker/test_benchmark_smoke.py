"""The load generator of benchmarks/broker counts right: what it says was delivered is what the broker counts."""

from __future__ import annotations

import asyncio
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.broker.dialects import Mqtt, Nats
from benchmarks.broker.load import TOPIC_BYTES, Outcome, Subscriber, run_cell
from benchmarks.broker.shapes import PAYLOAD_BYTES, Cell

from surecast.broker.server import Server
from surecast.broker.tcp import TcpChannel

CELLS = [
    Cell("one-to-one", "burst", 0, 1, 1, 1, 32, 64),
    Cell("fan-in", "burst", 1, 5, 1, 1, 4, 20),
    Cell("fan-out", "single", 1, 1, 3, 1, 1, 8),
    Cell("cycle", "burst", 0, 1, 4, 4, 8, 16),
    Cell("one-to-one", "rate", 1, 1, 1, 1, 1, 8, rate_per_s=2_000.0),
    Cell("fan-in", "rate", 1, 3, 1, 1, 1, 8, rate_per_s=2_000.0),
    Cell("collect", "burst", 0, 1, 1, 4, 8, 16),
    Cell("one-to-one", "burst", 0, 1, 1, 1, 32, 64, varying=True),
    Cell("fan-in", "burst", 1, 5, 1, 1, 4, 20, varying=True),
    Cell("cycle", "burst", 1, 1, 4, 4, 8, 16, varying=True),
    Cell("collect", "single", 1, 1, 1, 4, 1, 16, varying=True),
]


def measured(cell: Cell) -> tuple[Outcome, int, int]:
    """What the generator says, and what the broker says: messages published and delivered."""

    async def work() -> tuple[Outcome, int, int]:
        server = Server()
        server.start()
        loop = asyncio.get_running_loop()
        listener = await loop.create_server(lambda: TcpChannel(server, "default"), "127.0.0.1", 0)
        address = listener.sockets[0].getsockname()
        dialect = Mqtt(cell.qos, TOPIC_BYTES, PAYLOAD_BYTES)
        accounts = server.broker.accounts
        with ThreadPoolExecutor(1) as threads:
            outcome = await loop.run_in_executor(
                threads, lambda: run_cell(cell, dialect, address, 0.1, lambda: 0.0, warm_up_s=0.05)
            )
        while server.transports:
            await asyncio.sleep(0.01)
        found = accounts()
        published = server.broker.counters.published
        listener.close()
        server.stop()
        return outcome, published, found.delivered

    return asyncio.run(work())


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_the_generator_and_the_broker_count_the_same(cell: Cell) -> None:
    outcome, published, delivered = measured(cell)
    assert outcome.is_sound
    assert outcome.sent == published > 0
    assert delivered == outcome.sent * cell.copies
    assert 0 < outcome.delivered <= delivered
    if cell.rate_per_s:
        assert len(outcome.latencies_s) == outcome.delivered


@pytest.mark.parametrize(("order", "disordered"), [((0, 1, 2), 0), ((0, 2, 3), 1), ((1, 0, 2), 1), ((0, 0, 1), 1)])
@pytest.mark.parametrize("publishers", [1, 2])
@pytest.mark.parametrize("varying", [False, True])
def test_lost_repeated_and_exchanged_messages_are_noticed(
    order: tuple[int, ...], disordered: int, publishers: int, varying: bool
) -> None:
    dialect = Mqtt(0, TOPIC_BYTES, PAYLOAD_BYTES)
    buffer = bytearray(1_000)
    broker, client = socket.socketpair()
    with broker, client:
        subscriber = Subscriber(client, dialect, publishers, varying)
        for number in order:
            broker.sendall(dialect.publication("bench/00", bytes((0, number)) + bytes(PAYLOAD_BYTES - 2), 0))
        assert subscriber.receive(buffer, memoryview(buffer)) == 3
    assert (subscriber.disordered > 0) == (disordered > 0)


@pytest.mark.parametrize("cut", range(0, 200, 7))
@pytest.mark.parametrize("varying", [False, True])
def test_a_question_of_nats_between_messages_is_answered_and_not_counted(cut: int, varying: bool) -> None:
    dialect = Nats(TOPIC_BYTES, PAYLOAD_BYTES)
    one = [f"MSG bench.00 1 {PAYLOAD_BYTES}\r\n".encode() + bytes((0, i)) + b"x" * 62 + b"\r\n" for i in range(3)]
    assert len(one[0]) == dialect.delivery_bytes
    stream = one[0] + one[1] + b"PING\r\n" + one[2] + b"PING\r\n"
    buffer = bytearray(1_000)
    broker, client = socket.socketpair()
    with broker, client:
        client.setblocking(False)
        subscriber = Subscriber(client, dialect, 1, varying)
        for part in filter(None, (stream[:cut], stream[cut:])):
            broker.sendall(part)
            subscriber.receive(buffer, memoryview(buffer))
        assert (subscriber.count, subscriber.disordered) == (3, 0)
        assert broker.recv(100).startswith(b"PONG\r\n")
