"""Cost of a delivery in the core of the broker, without sockets: bytes in, bytes out, two versions in turn.

    python -m benchmarks.delivery_core                 this checkout alone
    python -m benchmarks.delivery_core --before DIR    and a checkout of another version, in pairs

Clients write bursts of messages of equal or varying length, at QoS 0 or 1, and acknowledge all that they get in one
write for each read. Only the time within the core counts: decoding, routing, packet identifiers, acknowledgements, and
the one piece that is made of all that a connection is to be sent. Each version runs in a process of its own; they take
turns. The figure is the least time of a round for one delivery, and the ratio the median over the turns.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
ROUNDS = 12


@dataclass(frozen=True)
class Shape:
    """A pattern of publishers and subscribers; `burst` messages are in one write. A subscriber `has_all` topics, or one
    of them, and its session may be `lasting`."""

    name: str
    publishers: int
    subscribers: int
    topics: int
    burst: int
    has_all: bool = False
    lasting: bool = False


SHAPES = (
    Shape("1 to 1", 1, 1, 1, 256),
    Shape("50 to 1", 50, 1, 1, 16),
    Shape("1 to 10", 1, 10, 1, 64),
    Shape("50 to 50", 50, 50, 50, 16),
    Shape("1 over 50 topics, 50 subscribers", 1, 50, 50, 250),
    Shape("1 over 50 topics, 1 subscriber", 1, 1, 50, 250, has_all=True),
    Shape("1 to 1, lasting session", 1, 1, 1, 256, lasting=True),
    Shape("1 to 1, single", 1, 1, 1, 1),
    Shape("1 to 10, single", 1, 10, 1, 1),
    Shape("50 to 1, single", 50, 1, 1, 1),
)
CELLS = [f"{shape.name}, {'varying' if varying else 'equal'}, QoS {qos}"
         for shape in SHAPES for qos in (0, 1) for varying in (False, True)]  # fmt: skip


class World:
    """A core with its clients, for one cell."""

    def __init__(self, cell: str):
        from surecast.protocol import broker as package  # the version of this process
        from surecast.protocol.mqtt import V311, Connect, Publish, encode
        from surecast.protocol.mqtt import Subscribe as Wanted

        try:
            from surecast.protocol.mqtt import SubscriptionRequest
        except ImportError:  # earlier versions
            from surecast.protocol.mqtt import Subscription as SubscriptionRequest  # type: ignore[attr-defined,no-redef]
        name, lengths, level = cell.rsplit(", ", 2)
        shape = next(shape for shape in SHAPES if shape.name == name)
        self.qos, varying = int(level[-1]), lengths == "varying"
        core: Any = getattr(package, "BrokerCore", None) or package.Broker  # type: ignore[attr-defined]
        self.broker = core(package.BrokerSettings(queue_messages_max=1_000_000))
        topics = [f"bench/{n:02}" for n in range(shape.topics)]

        def connect(client: str, clean: bool = True) -> Any:
            connection = self.broker.open(package.Origin(peer=client), 1.0)
            self.broker.receive(connection, encode(Connect(client, clean, version=V311), V311), 1.0)
            return connection

        self.subscribers = [connect(f"sub-{n}", not shape.lasting) for n in range(shape.subscribers)]
        for n, connection in enumerate(self.subscribers):
            wanted = SubscriptionRequest("bench/+" if shape.has_all else topics[n % len(topics)], self.qos)
            self.broker.receive(connection, encode(Wanted(1, (wanted,)), V311), 1.0)
        self.reads: list[tuple[Any, bytes]] = []
        sent = 0
        for n in range(shape.publishers):
            own = topics if shape.publishers == 1 else [topics[n % len(topics)]]
            data = b"".join(
                encode(
                    Publish(
                        own[i % len(own)],
                        b"x" * (64 + varying * ((i + 7 * n) * 73 % 200)),
                        self.qos,
                        packet_id=self.qos * (i + 1),
                    ),
                    V311,
                )
                for i in range(shape.burst)
            )
            self.reads.append((connect(f"pub-{n}"), data))
            sent += shape.burst
        self.deliveries = sent * (shape.subscribers if shape.topics == 1 else 1)
        self.round()

    def round(self) -> float:
        """Everything once; the processor time in the core."""
        broker, spent, clock = self.broker, 0.0, time.thread_time
        begun = clock()
        for connection, data in self.reads:
            broker.receive(connection, data, 2.0)
        pieces = [b"".join(connection.out) for connection in broker.dirty]
        spent += clock() - begun
        subscribers = self.subscribers if self.qos else []
        acks = [(connection, _acks(b"".join(connection.out))) for connection in subscribers]
        begun = clock()
        for connection in broker.dirty:
            connection.out.clear()
        broker.dirty.clear()
        for connection, data in acks:
            broker.receive(connection, data, 2.0)
        spent += clock() - begun
        del pieces
        broker.dirty.clear()
        broker.take_journal()
        return spent


def _acks(stream: bytes) -> bytes:
    acks = bytearray()
    at = 0
    while at < len(stream):
        length, head = stream[at + 1], 2
        if length > 127:
            length, head = (length & 127) | stream[at + 2] << 7, 3
        id_at = at + head + 2 + (stream[at + head] << 8 | stream[at + head + 1])
        acks += b"\x40\x02" + stream[id_at : id_at + 2]
        at += head + length
    return bytes(acks)


def serve() -> None:
    """Measures the cells that it is asked for, one for each line, and answers in microseconds for one delivery."""
    worlds: dict[str, World] = {}
    for line in sys.stdin:
        cell = line.strip()
        world = worlds.get(cell)
        if world is None:
            world = worlds[cell] = World(cell)
        repeats = max(1, 2_000 // world.deliveries)
        least = min(sum(world.round() for _ in range(repeats)) / repeats for _ in range(ROUNDS))
        print(json.dumps(least / world.deliveries * 1e6), flush=True)


def start(checkout: Path) -> subprocess.Popen[str]:
    """A process that measures one version."""
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
    return subprocess.Popen(
        [sys.executable, str(Path(__file__).resolve()), "--serve"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip


def ask(process: subprocess.Popen[str], cell: str) -> float:
    """One figure."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(cell + "\n")
    process.stdin.flush()
    return float(json.loads(process.stdout.readline()))


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--before", type=Path, metavar="DIR", help="a checkout of another version")
    parser.add_argument("--turns", type=int, default=7, help="visits of every row (7)")
    parser.add_argument("--rows", nargs="*", default=[""], metavar="TEXT", help="only rows whose name contains this")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        serve()
        return 0
    checkouts = [ROOT] if options.before is None else [options.before.resolve(), ROOT]
    processes = [start(checkout) for checkout in checkouts]
    cells = [cell for cell in CELLS if any(text in cell for text in options.rows)]
    found: dict[str, list[list[float]]] = {cell: [] for cell in cells}
    try:
        for turn in range(options.turns):
            for cell in cells:
                order = processes if turn % 2 else processes[::-1]
                figures = {id(process): ask(process, cell) for process in order}
                found[cell].append([figures[id(process)] for process in processes])
    finally:
        for process in processes:
            assert process.stdin is not None
            process.stdin.close()
            process.wait()
    print("Processor time of one delivery in the core, us\n")
    print("| row | " + ("before | after | ratio |" if len(checkouts) > 1 else "time |"))
    print("|---|" + "---|" * (3 if len(checkouts) > 1 else 1))
    for cell, turns in found.items():
        row = [f"{min(turn[at] for turn in turns):.3f}" for at in range(len(checkouts))]
        if len(checkouts) > 1:
            row.append(f"{statistics.median(after / before for before, after in turns):.2f}")
        print("| " + " | ".join([cell, *row]) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
