"""What a publication costs in a group of three replicas in one process: two versions in turn, without client sockets.

    python -m benchmarks.group_core                 this checkout alone
    python -m benchmarks.group_core --before DIR    and a checkout of another version, in pairs

The replicas are whole: front end, consensus, log files, state machine, and Unix-domain sockets between them. Clients of
the leader are plain objects in the same process that hand their bytes to the server and count what it sends to them, so
that neither the scheduler nor cold caches disturb the figure. So many publishers at a time send a burst each and wait
until all is acknowledged. Each version runs in a process of its own; they take turns. The figure is the processor time
of all replicas together for one publication, the least of all turns; the ratio is the median over the turns.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.delivery_core import ROOT, ask

TOPIC = "bench/00"
TURN_S = 0.12
"""About how long a visit of one version lasts."""


@dataclass(frozen=True)
class Row:
    """`together` publishers send `burst` publications each at a time; `lasting` is the subscriber's session."""

    name: str
    together: int
    burst: int
    qos: int = 0
    lasting: bool = False


ROWS = (
    Row("QoS 0", 20, 16),
    Row("QoS 1", 20, 16, 1),
    Row("QoS 1, persistent", 20, 16, 1, lasting=True),
    Row("window 1", 16, 1),
    Row("one at a time", 1, 1),
    Row("one at a time, QoS 1", 1, 1, 1),
)
CELLS = [f"{row.name}, {lengths}" for row in ROWS for lengths in ("equal", "varying")]


class Client:
    """A client of a server in this process; it counts its PUBACKs, and keeps what it is to acknowledge itself."""

    piece_bytes = 1 << 20

    def __init__(self, world: World, reads: Sequence[bytes] = (), burst: int = 0):
        self.connection: Any = None
        self.reads = reads
        self._world = world
        self._burst = burst
        self._next = 0

    def send(self, data: bytes) -> None:
        """Gets what the server sends."""
        if self._burst:
            self._world.acknowledged += len(data) // 4
            if self._world.acknowledged >= self._world.wanted:
                self._world.done.set()
        else:
            self._world.heard.append(data)

    def close(self) -> None:
        """The server closes; in a measurement it must not."""
        assert self._world.is_over, "the server closed a connection"

    abort = pause_reading = resume_reading = close

    def publish(self) -> None:
        """Sends the next burst."""
        data = self.reads[self._next]
        self._next = (self._next + 1) % len(self.reads)
        self._world.server.received(self.connection, data)


class World:
    """Three replicas with the clients of one row."""

    def __init__(self, cell: str, folder: Path):
        name, lengths = cell.rsplit(", ", 1)
        self.row = next(row for row in ROWS if row.name == name)
        self.varying = lengths == "varying"
        self.folder = folder
        self.servers: list[Any] = []
        self.acknowledged = self.wanted = 0
        self.heard: list[bytes] = []
        self.done = asyncio.Event()
        self.is_over = False

    async def open(self) -> None:
        """Starts the replicas, and lets the clients in."""
        from surecast.broker import group_run, group_server
        from surecast.broker.cluster import write_group
        from surecast.broker.group_config import config_of, load_broker_group
        from surecast.broker.replica import make_node
        from surecast.protocol.group import GroupMachine

        make_core: Any = getattr(group_run, "group_core", None) or vars(group_run)["_core"]  # of earlier versions
        limits = {"queue_messages": 1_000_000, "queue_size": "1GiB"}
        path = write_group(self.folder, 3, options={"sync": "none", "limits": limits})
        group = load_broker_group(path)
        for replica in group.replicas:
            settings = config_of(group, replica.id).settings
            machine = GroupMachine(replica.id, partial(_make_broker, make_core, settings))
            node = make_node(group, replica.id, machine)
            await node.start()
            server = group_server.GroupServer(node, machine, settings)
            server.start()
            self.servers.append(server)
        until = time.monotonic() + 30.0
        while not any(server.node.leads for server in self.servers):
            assert time.monotonic() < until, "nobody leads"
            await asyncio.sleep(0.05)
        self.server = next(server for server in self.servers if server.node.leads)
        await asyncio.sleep(0.3)
        await self._let_in()

    async def _let_in(self) -> None:
        from surecast.protocol.mqtt import V311, Connect, Publish, Subscribe, encode

        try:
            from surecast.protocol.mqtt import SubscriptionRequest
        except ImportError:  # earlier versions
            from surecast.protocol.mqtt import Subscription as SubscriptionRequest  # type: ignore[attr-defined,no-redef]
        row = self.row
        self.subscriber = Client(self)
        wanted = encode(Subscribe(1, (SubscriptionRequest(TOPIC, row.qos),)), V311)
        self._connect(self.subscriber, encode(Connect("sub", not row.lasting, version=V311), V311))
        count = max(1, min(50, 2 * row.together))
        self.publishers = [
            Client(
                self,
                [
                    b"".join(
                        encode(
                            Publish(TOPIC, b"x" * (64 + self.varying * ((i + 7 * n + k) * 73 % 200)), 1,
                                    packet_id=(k * row.burst + i) % 65_535 + 1),
                            V311,
                        )
                        for i in range(row.burst)
                    )
                    for k in range(40)
                ],
                row.burst,
            )
            for n in range(count)
        ]  # fmt: skip
        for number, publisher in enumerate(self.publishers):
            self._connect(publisher, encode(Connect(f"pub-{number}", version=V311), V311))
        clients = [self.subscriber, *self.publishers]
        while any(client.connection.session is None for client in clients):
            await asyncio.sleep(0.01)
        self.server.received(self.subscriber.connection, wanted)
        await asyncio.sleep(0.1)
        self.heard.clear()
        self._turn_of = 0
        gc.collect()
        gc.freeze()  # as a replica's process does
        self.rounds = 1
        spent = min([await self.visit() * row.burst * row.together for _ in range(12)][4:])
        self.rounds = max(2, int(TURN_S / spent))

    def _connect(self, client: Client, connect: bytes) -> None:
        from surecast.protocol.broker import Origin

        self.server.connected(client, Origin("mqtt", "127.0.0.1:1"))
        self.server.received(client.connection, connect)

    async def visit(self) -> float:
        """Some rounds; the processor time of a publication, in seconds."""
        row, server = self.row, self.server
        spent = 0.0
        for _ in range(self.rounds):
            self.done.clear()
            self.acknowledged, self.wanted = 0, row.together * row.burst
            begun = time.thread_time()
            for _ in range(row.together):
                self.publishers[self._turn_of].publish()
                self._turn_of = (self._turn_of + 1) % len(self.publishers)
            await self.done.wait()
            spent += time.thread_time() - begun
            if row.qos:
                acks = acknowledgements(b"".join(self.heard))
                begun = time.thread_time()
                server.received(self.subscriber.connection, acks)
                await asyncio.sleep(0)
                spent += time.thread_time() - begun
            self.heard.clear()
        return spent / (self.rounds * row.together * row.burst)

    async def close(self) -> None:
        """Ends the replicas."""
        self.is_over = True
        for server in self.servers:
            server.stop()
            await server.node.stop()


def _make_broker(make_core: Any, settings: Any, authorise: Any) -> Any:
    return make_core(settings, authorise, None)


def acknowledgements(stream: bytes) -> bytes:
    """The PUBACK packets for deliveries of QoS 1."""
    acks = bytearray()
    at = 0
    while at < len(stream):
        length, head = stream[at + 1], 2
        if length > 127:
            length, head = (length & 127) | stream[at + 2] << 7, 3
        if stream[at] & 0xF0 == 0x30:
            id_at = at + head + 2 + (stream[at + head] << 8 | stream[at + head + 1])
            acks += b"\x40\x02" + stream[id_at : id_at + 2]
        at += head + length
    return bytes(acks)


async def serve() -> None:
    """Measures the cells that it is asked for, one for each line, and answers in microseconds for one publication."""
    loop = asyncio.get_running_loop()
    with tempfile.TemporaryDirectory() as folder:
        current: World | None = None
        while cell := (await loop.run_in_executor(None, sys.stdin.readline)).strip():
            if current is None or cell != f"{current.row.name}, {'varying' if current.varying else 'equal'}":
                if current is not None:
                    await current.close()
                current = World(cell, Path(folder) / cell.replace(", ", "-").replace(" ", "-"))
                await current.open()
            print(json.dumps(await current.visit() * 1e6), flush=True)
        if current is not None:
            await current.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--before", type=Path, metavar="DIR", help="a checkout of another version")
    parser.add_argument("--turns", type=int, default=30, help="visits of every row (30)")
    parser.add_argument("--rows", nargs="*", default=[""], metavar="TEXT", help="only rows whose name contains this")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve())
        return 0
    checkouts = [ROOT] if options.before is None else [options.before.resolve(), ROOT]
    processes = [start(checkout) for checkout in checkouts]
    found: dict[str, list[list[float]]] = {}
    try:
        for cell in [cell for cell in CELLS if any(text in cell for text in options.rows)]:
            turns = found[cell] = []
            for turn in range(options.turns):
                order = processes if turn % 2 else processes[::-1]
                figures = {id(process): ask(process, cell) for process in order}
                turns.append([figures[id(process)] for process in processes])
    finally:
        for process in processes:
            assert process.stdin is not None
            process.stdin.close()
            process.wait()
    print("Processor time of one publication, three replicas in one process, us\n")
    print("| row | " + ("before | after | ratio (quartiles) |" if len(checkouts) > 1 else "time |"))
    print("|---|" + "---|" * (3 if len(checkouts) > 1 else 1))
    for cell, turns in found.items():
        row = [f"{statistics.median(turn[at] for turn in turns):.3f}" for at in range(len(checkouts))]
        if len(checkouts) > 1:
            low, median, high = statistics.quantiles([after / before for before, after in turns], n=4)
            row.append(f"{median:.3f} ({low:.3f} to {high:.3f})")
        print("| " + " | ".join([cell, *row]) + " |")
    return 0


def start(checkout: Path, module: str = "benchmarks.group_core", *arguments: str) -> Any:
    """A process that measures one version."""
    import os
    import subprocess

    environment = {**os.environ, "PYTHONPATH": f"{checkout / 'src'}{os.pathsep}{ROOT}"}
    return subprocess.Popen(
        [sys.executable, "-m", module, "--serve", *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd="/",
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
