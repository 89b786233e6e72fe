"""A log as the messages that its boxes sent, and when."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from surecast.errors import ConfigurationError
from surecast.zap.event_table import EventTable, join_tables

__all__ = ["Payload", "payloads"]

PAYLOAD_BYTES_MAX = 60_000


@dataclass(frozen=True, slots=True)
class Payload:
    """Lines of events that are sent together, so many seconds of the log after its first batch began."""

    after_s: int
    events: int
    data: bytes


def payloads(tables: Iterable[EventTable], batch_s: int = 10, bytes_max: int = PAYLOAD_BYTES_MAX) -> Iterator[Payload]:
    """Yields the messages of a log: all events of `batch_s` seconds are sent at their end, in messages of up to
    `bytes_max`.

    Batches begin at whole multiples of `batch_s`. Events that are earlier than those before them are sent with these.

    >>> from surecast.zap.events import parse_line
    >>> fields = ["20:00:01,10.0.0.1,B,A", "20:00:09,10.0.0.1,C,B", "20:00:30,10.0.0.1,B,C"]
    >>> lines = [f"2024-01-01,{rest}" for rest in fields]
    >>> [(one.after_s, one.events) for one in payloads([EventTable.of(map(parse_line, lines))])]
    [(10, 2), (40, 1)]
    """
    if batch_s < 1 or bytes_max < 1000:
        raise ConfigurationError(f"batch_s {batch_s}, bytes_max {bytes_max}: write at least 1 and 1000")
    first: int | None = None
    current = 0
    waiting: list[EventTable] = []
    for table in tables:
        if not len(table):
            continue
        # an event out of order belongs to the latest batch that has begun
        batches = np.maximum.accumulate(np.maximum(table.time_s // batch_s, current))
        first = int(batches[0]) if first is None else first
        for batch in np.unique(batches).tolist():
            if batch > current:
                yield from _split(waiting, (current + 1 - first) * batch_s, bytes_max)
                waiting, current = [], batch
            waiting.append(table[batches == batch])
    if first is not None:
        yield from _split(waiting, (current + 1 - first) * batch_s, bytes_max)


def _split(tables: list[EventTable], after_s: int, bytes_max: int) -> Iterator[Payload]:
    lines: list[bytes] = []
    size = 0
    for text in join_tables(tables).lines():
        line = text.encode()
        if lines and size + len(line) + 1 > bytes_max:
            yield Payload(after_s, len(lines), b"\n".join(lines))
            lines, size = [], 0
        lines.append(line)
        size += len(line) + 1
    if lines:
        yield Payload(after_s, len(lines), b"\n".join(lines))
