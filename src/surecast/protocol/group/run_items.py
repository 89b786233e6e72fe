"""RUN items where the packets have to be read from the command: runs are counted if no more is to do, or read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from surecast.protocol.broker import Connection, Phase
from surecast.protocol.broker.short_ways import ShortWays
from surecast.protocol.group.commands import RUN_BYTES, RUN_ITEM, Heads, Item, run_head
from surecast.protocol.mqtt import PublishRun

__all__ = ["count_runs", "read_runs"]

_RUN: Final = int(Item.RUN)
_OPEN: Final = Phase.OPEN  # a name of its own is found in a third of the time


def count_runs(
    data: bytes, at: int, end: int, connections: Mapping[int, Connection], ways: ShortWays, known: Heads, now: float
) -> int:
    """Takes RUN items between `at` and `end`, as long as this replica has only to count them; where it stopped.

    Counting changes nothing that the next item is judged by, so like runs are counted together.
    """
    unpack, head_size, last = RUN_ITEM.unpack_from, RUN_ITEM.size, end - RUN_ITEM.size
    head, topic, version_5, length, groups, bytes_counted = b"", "", False, 1, None, 0
    while at <= last:
        kind, number, size, run_length, id_at = unpack(data, at)
        connection = connections.get(number) if kind == _RUN else None
        size -= RUN_BYTES
        if (
            connection is None
            or not connection.is_elsewhere
            or connection.pace is not None
            or connection.phase is not _OPEN
            or size > connection.limits.packet_bytes_max
        ):
            break
        begin = at + head_size
        if data[begin : begin + id_at] != head or connection.version_5 is not version_5:
            if groups is not None:
                ways.count(groups, bytes_counted // length, bytes_counted)
            head, version_5, length, bytes_counted = data[begin : begin + id_at], connection.version_5, run_length, 0
            topic, flags = run_head(data, begin, id_at, known)
            groups = ways.countable(topic, flags, length, version_5)
        if groups is None or not connection.allowed.get(topic):
            break
        connection.heard_at = now
        bytes_counted += size
        at = begin + size
    if groups is not None:
        ways.count(groups, bytes_counted // length, bytes_counted)
    return at


def read_runs(
    data: bytes, at: int, end: int, connections: Mapping[int, Connection], known: Heads
) -> tuple[list[tuple[Connection, PublishRun]], int]:
    """The runs of the RUN items between `at` and `end` that begin as the first one does, and where they stop.

    An item that is larger than the largest packet of its client ends them too: its packets must be looked at.
    """
    runs: list[tuple[Connection, PublishRun]] = []
    head, last = b"", end - RUN_ITEM.size
    while at <= last:
        kind, number, size, length, id_at = RUN_ITEM.unpack_from(data, at)
        begin = at + RUN_ITEM.size
        if kind != _RUN or not data.startswith(head, begin):
            break
        after = begin + size - RUN_BYTES
        connection = connections.get(number)
        if connection is not None:
            if after - begin > connection.limits.packet_bytes_max:
                break
            head = data[begin : begin + id_at]
            topic, flags = run_head(data, begin, id_at, known)
            payload_at = id_at + 2 * (flags[0] > 0) + connection.version_5
            count = (after - begin) // length
            runs.append((connection, PublishRun(topic, flags, count, length, id_at, payload_at, data[begin:after])))
        at = after
    return runs, at
