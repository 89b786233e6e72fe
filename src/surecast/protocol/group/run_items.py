"""RUNS items of other replicas: runs are counted if no more is to do, or read."""

from __future__ import annotations

from collections.abc import Mapping
from struct import unpack_from
from typing import Final

from surecast.protocol.broker import Connection, Phase
from surecast.protocol.broker.short_ways import ShortWays
from surecast.protocol.group.commands import ITEM, RUNS_ITEM, Runs
from surecast.protocol.mqtt.runs import Pattern, pattern_of

__all__ = ["count_runs", "read_runs"]

_OPEN: Final = Phase.OPEN  # a name of its own is found in a third of the time


def count_runs(data: bytes, at: int, connections: Mapping[int, Connection], ways: ShortWays, now: float) -> int:
    """Takes the RUNS item at `at` if this replica has only to count its messages; where the next item is, or `at`."""
    pattern, count, table, begin, after = _read_head(data, at)
    groups = ways.countable(pattern)
    if groups is None:
        return at
    topic, version_5 = pattern.topic, pattern.version_5
    numbers = unpack_from(f">{2 * count}I", data, table)
    for number, run_size in zip(numbers, numbers[count:], strict=False):
        connection = connections.get(number)
        if (
            connection is None
            or not connection.is_elsewhere
            or connection.pace is not None
            or connection.phase is not _OPEN
            or connection.version_5 is not version_5
            or run_size > connection.limits.packet_bytes_max
            or not connection.allowed.get(topic)
        ):
            return at
        connection.heard_at = now  # as whoever reads the item does
    ways.count(groups, (after - begin) // pattern.length, after - begin)
    return after


def read_runs(data: bytes, at: int) -> tuple[Runs, int]:
    """The RUNS item at `at`, and where the next item is."""
    pattern, count, table, begin, after = _read_head(data, at)
    numbers = unpack_from(f">{2 * count}I", data, table)
    pieces = []
    for run_size in numbers[count:]:
        pieces.append(data[begin : begin + run_size])
        begin += run_size
    return Runs(pattern, numbers[:count], tuple(pieces)), after


def _read_head(data: bytes, at: int) -> tuple[Pattern, int, int, int, int]:
    """The pattern of a RUNS item, how many runs it has, and where its table, its messages and the next item begin."""
    _, count, size, length, id_at, extra = RUNS_ITEM.unpack_from(data, at)
    table = at + RUNS_ITEM.size
    begin = table + 8 * count
    pattern = pattern_of(data[begin : begin + id_at], length, id_at + extra)
    return pattern, count, table, begin, at + ITEM.size + size
