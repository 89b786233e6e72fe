"""Cost of a delivery in the core of the broker, without sockets: bytes in, bytes out, two versions in turn.

    python -m benchmarks.delivery_core                 this checkout alone
    python -m benchmarks.delivery_core --before DIR    and a checkout of another version, in pairs

Clients write bursts of messages of equal or varying length, at QoS 0, 1 or 2, and acknowledge all that they get in one
write for each read, until nothing more comes. Only the time within the core counts: decoding, routing, packet
identifiers, acknowledgements, what is waiting, and the one piece that is made of all that a connection is to be sent.
Each version runs in a process of its own; they take turns. The figure is the least time of a round for one delivery,
and the ratio the median over the turns.
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
    """A pattern of publishers and subscribers; `burst` messages are in one write.

    A subscriber `has_all` topics, or one of them. Its session may be `lasting`; it may have at most `window` messages
    in flight; it may be `away` while the messages are published, and come back for them; and so many others of a
    `backlog` may wait before each that it gets. If `versions_differ`, subscribers speak MQTT 5, publishers MQTT 3.1.1.
    """

    name: str
    publishers: int
    subscribers: int
    topics: int
    burst: int
    has_all: bool = False
    lasting: bool = False
    window: int = 1_000
    away: bool = False
    backlog: int = 0
    versions_differ: bool = False
    qos: tuple[int, ...] = (0, 1)


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
    Shape("50 over 50 topics, 1 subscriber, single", 50, 1, 50, 1, has_all=True),
    Shape("1 to 1, window 32", 1, 1, 1, 256, window=32, qos=(1, 2)),
    Shape("1 to 10, window 32", 1, 10, 1, 256, window=32, qos=(1,)),
    Shape("1 to 1, behind", 1, 1, 1, 256, backlog=2_000, qos=(1,)),
    Shape("1 over 50 topics, 1 subscriber, behind", 1, 1, 50, 250, has_all=True, backlog=2_000, qos=(1,)),
    Shape("1 to 1, lasting session, behind", 1, 1, 1, 256, lasting=True, backlog=2_000, qos=(1,)),
    Shape("1 to 1, lasting session, back", 1, 1, 1, 256, lasting=True, away=True, qos=(1, 2)),
    Shape("1 to 10, lasting sessions", 1, 10, 1, 64, lasting=True, qos=(1,)),
    Shape("1 to 1, versions differ", 1, 1, 1, 256, versions_differ=True),
)
CELLS = [f"{shape.name}, {'varying' if varying else 'equal'}, QoS {qos}"
         for shape in SHAPES for qos in shape.qos for varying in (False, True)]  # fmt: skip


class World:
    """A core with its clients, for one cell."""

    def __init__(self, cell: str):
        from surecast.protocol import broker as package  # the version of this process
        from surecast.protocol.mqtt import V5, V311, Connect, Properties, Publish, encode
        from surecast.protocol.mqtt import Subscribe as Wanted

        try:
            from surecast.protocol.mqtt import SubscriptionRequest
        except ImportError:  # earlier versions
            from surecast.protocol.mqtt import Subscription as SubscriptionRequest  # type: ignore[attr-defined,no-redef]
        name, lengths, level = cell.rsplit(", ", 2)
        self.shape = shape = next(shape for shape in SHAPES if shape.name == name)
        self.qos, varying = int(level[-1]), lengths == "varying"
        core: Any = getattr(package, "BrokerCore", None) or package.Broker  # type: ignore[attr-defined]
        self.broker = core(package.BrokerSettings(queue_messages_max=1_000_000, inflight_max=shape.window))
        topics = [f"bench/{n:02}" for n in range(shape.topics)]
        version = V5 if shape.versions_differ else V311

        def connect(client: str, clean: bool = True, version: int = V311, connection: Any = None) -> Any:
            connection = self.broker.open(package.Origin(peer=client), 1.0)
            properties = Properties(session_expiry_s=None if clean else 10_000) if version == V5 else Properties()
            packet = Connect(client, clean, version=version, properties=properties)
            self.broker.receive(connection, encode(packet, version), 1.0)
            return connection

        self.connect = lambda n: connect(f"sub-{n}", not shape.lasting, version)
        self.subscribers = [self.connect(n) for n in range(shape.subscribers)]
        for n, connection in enumerate(self.subscribers):
            wanted = SubscriptionRequest("bench/+" if shape.has_all else topics[n % len(topics)], self.qos)
            self.broker.receive(connection, encode(Wanted(1, (wanted,)), version), 1.0)
        self.take()
        self.reads: list[tuple[Any, bytes]] = []
        self.releases: list[tuple[Any, bytes]] = []
        sent = 0
        for n in range(shape.publishers):
            own = topics if shape.publishers == 1 else [topics[n % len(topics)]]
            identifiers = range(1, shape.burst + 1)
            data = b"".join(
                encode(
                    Publish(
                        own[i % len(own)],
                        b"x" * (64 + varying * ((i + 7 * n) * 73 % 200)),
                        self.qos,
                        packet_id=identifiers[i] if self.qos else 0,
                    ),
                    V311,
                )
                for i in range(shape.burst)
            )
            publisher = connect(f"pub-{n}")
            self.reads.append((publisher, data))
            self.releases.append((publisher, b"".join(b"\x62\x02" + i.to_bytes(2, "big") for i in identifiers)))
            sent += shape.burst
        self.unread: dict[Any, list[bytes]] = {}
        while shape.backlog > sum(session.queued for session in self.broker.sessions.by_key.values()):
            self.publish()
            self.keep()
        self.deliveries = sent * (shape.subscribers if shape.topics == 1 else 1)
        self.round()

    def round(self) -> float:
        """Everything once; the processor time in the core."""
        spent = self.publish()
        if self.shape.away:
            begun = time.thread_time()
            self.subscribers = [self.connect(n) for n in range(len(self.subscribers))]
            spent += time.thread_time() - begun
        spent += self.keep()
        if self.shape.backlog:
            spent += self.acknowledge(1)
        else:
            while any(self.unread.values()):
                spent += self.acknowledge()
        if self.shape.away:
            for connection in self.subscribers:
                self.broker.lost(connection, 2.0)
            self.take()
        self.broker.dirty.clear()
        self.broker.take_journal()
        return spent

    def publish(self) -> float:
        """All publishers write, and at QoS 2 release what they wrote; the processor time."""
        broker, begun = self.broker, time.thread_time()
        for connection, data in self.reads:
            broker.receive(connection, data, 2.0)
        if self.qos == 2:
            for connection, data in self.releases:
                broker.receive(connection, data, 2.0)
        return time.thread_time() - begun

    def keep(self) -> float:
        """Takes what there is to be sent, and keeps that of subscribers; the processor time to make it one piece."""
        begun = time.thread_time()
        pieces = [(connection, b"".join(connection.out)) for connection in self.broker.dirty]
        spent = time.thread_time() - begun
        for connection, data in pieces:
            self.unread.setdefault(connection, []).append(data)
        begun = time.thread_time()
        self.take()
        return spent + time.thread_time() - begun

    def take(self) -> None:
        """Throws away what was sent."""
        for connection in self.broker.dirty:
            connection.out.clear()
        self.broker.dirty.clear()

    def acknowledge(self, reads: int = 1_000_000) -> float:
        """All subscribers answer what they got in so many reads, in one write; the processor time."""
        broker, spent = self.broker, 0.0
        answers = []
        for each in self.subscribers:
            unread = self.unread.get(each, [])
            answers.append((each, _answers(b"".join(unread[:reads]))))
            del unread[:reads]
        self.unread = {each: self.unread.get(each, []) for each in self.subscribers}
        if not self.qos:
            return spent
        begun = time.thread_time()
        for connection, data in answers:
            if data:
                broker.receive(connection, data, 2.0)
        return spent + time.thread_time() - begun + self.keep()


def _answers(stream: bytes) -> bytes:
    """What a subscriber says to what it got."""
    answers = bytearray()
    at = 0
    while at < len(stream):
        kind = stream[at]
        length, head = stream[at + 1], 2
        if length > 127:
            length, head = (length & 127) | stream[at + 2] << 7, 3
        if kind >> 4 == 3 and kind & 6:
            id_at = at + head + 2 + (stream[at + head] << 8 | stream[at + head + 1])
            answers += (b"\x40\x02" if kind & 2 else b"\x50\x02") + stream[id_at : id_at + 2]
        elif kind == 0x62:
            answers += b"\x70\x02" + stream[at + 2 : at + 4]
        at += head + length
    return bytes(answers)


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
