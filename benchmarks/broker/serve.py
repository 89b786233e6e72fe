"""Surecast's broker as the benchmarks run it: default settings, access rules on, a port on the loopback.

    python -m benchmarks.broker.serve PORT [--store FOLDER] [--each] [--queue N]

With `--store` sessions are kept on disk, each commit with an fsync. `--each` makes every message a commit of its own,
for comparison.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path

import uvloop

from surecast.broker.security_acl import AccessRules, parse_rule
from surecast.broker.server import Server, TcpChannel
from surecast.broker.store import MemoryStore, Operation, SqliteStore, Store
from surecast.protocol.broker import BrokerSettings

RULES = ("deny all bench/secret/#", "allow all bench/# anonymous", "allow subscribe $SYS/#")


class EachAlone(SqliteStore):
    """A store that makes each written record durable on its own: what a broker without group commit does."""

    def commit(self, operations: Sequence[Operation]) -> None:
        """Commits one by one; deletions go with the record after them."""
        batch: list[Operation] = []
        for operation in operations:
            batch.append(operation)
            if operation[1] is not None and operation[0][:1] == b"m":
                super().commit(batch)
                batch = []
        if batch:
            super().commit(batch)


async def serve(port: int, store: Store, settings: BrokerSettings) -> None:
    server = Server(settings, store, authorise=AccessRules(map(parse_rule, RULES)).allows)
    server.start()
    loop = asyncio.get_running_loop()
    listener = await loop.create_server(lambda: TcpChannel(server, "default"), "127.0.0.1", port, backlog=4_096)
    await listener.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--each", action="store_true")
    parser.add_argument("--queue", type=int, default=BrokerSettings().queue_messages_max)
    options = parser.parse_args()
    store: Store = MemoryStore()
    if options.store is not None:
        store = (EachAlone if options.each else SqliteStore)(options.store)
    uvloop.run(serve(options.port, store, BrokerSettings(queue_messages_max=options.queue)))


if __name__ == "__main__":
    main()
