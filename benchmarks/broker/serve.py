"""Surecast's broker with a store on disk that makes each message durable on its own, for comparison.

    python -m benchmarks.broker.serve PORT FOLDER together|each

`together` is what the broker does: whatever arrived in one turn of its loop is one commit and one fsync.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from pathlib import Path

import uvloop

from surecast.broker.security_acl import AccessRules, parse_rule
from surecast.broker.server import Server
from surecast.broker.store import Operation, SegmentStore, Store
from surecast.broker.tcp import TcpChannel

RULES = ("deny all secret/#", "allow all bench/# anonymous")


class EachAlone(SegmentStore):
    """Makes every message durable before the next one is written."""

    def commit(self, operations: Iterable[Operation]) -> None:
        """Commits as often as there are messages; what belongs to a message follows it."""
        batch: list[Operation] = []
        for operation in operations:
            if operation[0][:1] == b"m" and operation[1] is not None and batch:
                super().commit(batch)
                batch = []
            batch.append(operation)
        super().commit(batch)


async def serve(port: int, store: Store) -> None:
    """Serves on the loopback until it is killed."""
    server = Server(None, store, authorise=AccessRules(map(parse_rule, RULES)).allows)
    server.start()
    loop = asyncio.get_running_loop()
    listener = await loop.create_server(lambda: TcpChannel(server, "default"), "127.0.0.1", port)
    await listener.serve_forever()


if __name__ == "__main__":
    kind = EachAlone if sys.argv[3] == "each" else SegmentStore
    uvloop.run(serve(int(sys.argv[1]), kind(Path(sys.argv[2]))))
