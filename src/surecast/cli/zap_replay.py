"""The network part of `surecast zap replay`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from surecast.client import Client
    from surecast.zap import BadLine, Payload

__all__ = ["ReplayResult", "replay_log"]

IN_FLIGHT_MAX = 64


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The result of a replay: messages sent, its duration, and its lag behind its timetable at the end."""

    events: int
    messages: int
    took_s: float
    behind_s: float


async def replay_log(
    log: Path,
    connect: Callable[[], Client],
    topic: str,
    qos: int,
    speed: float,
    batch_s: int,
    bad: Callable[[BadLine], None],
    move: Callable[[int, int], None],
) -> ReplayResult:
    """Publishes a log, each batch when it is due; at speed 0 as soon as the batches before it are acknowledged."""
    from surecast.zap import payloads, read_tables

    messages = payloads(read_tables(log, bad, move), batch_s)
    loop = asyncio.get_running_loop()
    events = count = 0
    behind_s = 0.0
    async with connect() as client:
        begin = loop.time()
        under_way: set[asyncio.Task[object]] = set()
        try:
            # reading a log takes its time; the connection is kept alive meanwhile
            while (message := await asyncio.to_thread(_next, messages)) is not None:
                if speed > 0.0:
                    due = begin + message.after_s / speed
                    await asyncio.sleep(max(0.0, due - loop.time()))
                    behind_s = loop.time() - due
                under_way.add(asyncio.create_task(client.publish(topic, message.data, qos)))
                # all of one connection, so they arrive in order; what the broker has not taken yet is bounded
                if len(under_way) >= IN_FLIGHT_MAX:
                    await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                for task in [publication for publication in under_way if publication.done()]:
                    under_way.remove(task)
                    task.result()
                events += message.events
                count += 1
            await asyncio.gather(*under_way)
        finally:
            for task in under_way:
                task.cancel()
    return ReplayResult(events, count, loop.time() - begin, behind_s)


def _next(messages: Iterator[Payload]) -> Payload | None:
    return next(messages, None)
