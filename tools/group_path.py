"""Counts the files and functions that a publication passes in a group of three replicas, all in this process.

    python tools/group_path.py                 the two figures
    python tools/group_path.py --list          each file with its functions
    python tools/group_path.py --json          as data

The replicas are whole, with front end, consensus, log files and sockets between them; only the clients are plain
objects. One publisher at the leader publishes at QoS 1 to one subscriber there, each time waiting for the
acknowledgement and for all replicas to have applied it. What a publication passes is every function of this package
that is called in most of the publications. Heartbeats, and what happens now and then, such as a checkpoint or a
snapshot, do not count. Comprehensions and lambda expressions count as part of the function that they stand in.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import uvloop

import surecast
from surecast.broker.cluster import write_group
from surecast.broker.group_config import config_of, load_broker_group
from surecast.broker.group_server import GroupServer
from surecast.broker.replica import make_node
from surecast.protocol.broker import BrokerCore, Origin
from surecast.protocol.broker.state_journal import NoJournal
from surecast.protocol.group import GroupMachine
from surecast.protocol.mqtt import V311, Connect, Publish, Subscribe, SubscriptionRequest, encode

ROOT = Path(surecast.__file__).parent
PUBLICATIONS = 60
TOPIC = "path/of/it"
_QUIET_S = 0.01


class Client:
    """A client of a replica in this process; `heard` counts the writes to it."""

    piece_bytes = 1 << 20
    connection: Any = None

    def __init__(self) -> None:
        self.heard = 0

    def send(self, data: bytes) -> None:
        """Gets what the server sends."""
        self.heard += 1

    def close(self) -> None:
        """The server closes when the group stops."""

    abort = pause_reading = resume_reading = close


async def start_group(folder: Path) -> list[GroupServer]:
    """Starts three replicas, the one that leads first."""
    group = load_broker_group(write_group(folder, 3, options={"sync": "none"}))
    servers = []
    for replica in group.replicas:
        settings = config_of(group, replica.id).settings

        def make_broker(authorise: Any, settings: Any = settings) -> BrokerCore:
            return BrokerCore(settings, authorise=authorise, journal=NoJournal(), watches=False)

        machine = GroupMachine(replica.id, make_broker)
        node = make_node(group, replica.id, machine)
        await node.start()
        server = GroupServer(node, machine, settings)
        server.start()
        servers.append(server)
    async with asyncio.timeout(30.0):
        while not any(server.node.leads for server in servers):
            await asyncio.sleep(0.02)
    servers.sort(key=lambda server: not server.node.leads)
    return servers


async def count_calls(folder: Path) -> Counter[CodeType]:
    """Returns in how many of the publications each function was called."""
    servers = await start_group(folder)
    leader = servers[0]
    publisher, subscriber = Client(), Client()
    for name, client in (("pub", publisher), ("sub", subscriber)):
        leader.connected(client, Origin("mqtt", "127.0.0.1:1"))
        leader.received(client.connection, encode(Connect(name, version=V311), V311))
    async with asyncio.timeout(10.0):
        while publisher.connection.session is None or subscriber.connection.session is None:
            await asyncio.sleep(0.01)
    leader.received(subscriber.connection, encode(Subscribe(1, (SubscriptionRequest(TOPIC, 0),)), V311))
    await asyncio.sleep(0.2)
    calls: Counter[CodeType] = Counter()
    for number in range(2 * PUBLICATIONS):
        data = encode(Publish(TOPIC, b"%064d" % number, 1, packet_id=number + 1), V311)
        called: set[CodeType] = set()

        def note(frame: FrameType, event: str, argument: object, called: set[CodeType] = called) -> None:
            if event == "call" and not is_timed(frame):
                called.add(frame.f_code)

        acknowledged = publisher.heard + 1
        sys.setprofile(note)
        leader.received(publisher.connection, data)
        while publisher.heard < acknowledged or len({server.node.replica.applied for server in servers}) > 1:
            await asyncio.sleep(0)
        sys.setprofile(None)
        if number >= PUBLICATIONS:  # the first ones fill caches
            calls.update(called)
        await asyncio.sleep(_QUIET_S)
    for server in servers:
        server.stop()
        await server.node.stop()
    return calls


_TIMED = frozenset(("_tick", "_on_heartbeat", "on_checkpoint"))  # on a busy machine they fall into most publications


def is_timed(frame: FrameType | None) -> bool:
    """Returns whether a call comes from a heartbeat, sent or received."""
    while frame is not None:
        if frame.f_code.co_name in _TIMED:
            return True
        frame = frame.f_back
    return False


def passed(calls: Counter[CodeType]) -> dict[str, list[str]]:
    """Returns the functions that most publications pass, by file."""
    found: dict[str, list[str]] = {}
    for code, count in calls.items():
        path, name = Path(code.co_filename), code.co_qualname
        if 2 * count > PUBLICATIONS and path.is_relative_to(ROOT) and not name.endswith(">"):
            found.setdefault(str(path.relative_to(ROOT)), []).append(name)
    return {path: sorted(names) for path, names in sorted(found.items())}


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints what was counted."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="name each file and function")
    parser.add_argument("--json", action="store_true", help="print data")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found = passed(runner.run(count_calls(Path(folder) / "group")))
    functions = sum(map(len, found.values()))
    if options.json:
        print(json.dumps({"files": len(found), "functions": functions, "passed": found}, indent=1))
        return 0
    print(f"A publication passes {len(found)} files and {functions} functions of a group of three replicas.")
    if options.list:
        for path, names in found.items():
            print(f"\n{path}: {len(names)}")
            print("\n".join(f"  {name}" for name in names))
    return 0


if __name__ == "__main__":
    sys.exit(main())
