"""The commands of a replicated broker: what its replicas saw happen at their connections, in one order for all.

A command says which replica it comes from, in which of its incarnations, and its place in the sequence of that
incarnation; then follow items, each of a kind, a number, which is mostly that of a connection, and data.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import groupby
from typing import Final, NamedTuple

from surecast.protocol.codec import Layout, sized
from surecast.protocol.mqtt import AckRun, Packet, PublishRun
from surecast.protocol.mqtt.runs import Pattern

__all__ = [
    "ENTRY",
    "HEAD",
    "ITEM",
    "RUNS_ITEM",
    "Decoded",
    "Entry",
    "Happening",
    "Item",
    "Packets",
    "Runs",
    "items_of",
    "pack",
]

HEAD: Final = struct.Struct(">HQQ")
ITEM: Final = struct.Struct(">BII")
RUNS_ITEM: Final = struct.Struct(">BIIIHB")
"""The beginning of a RUNS item: its kind, how many runs it has, and its size; then, of each message, its length, where
its identifier is, and how far behind that its payload begins. The numbers of the connections follow, then the sizes of
the runs, four bytes each, and the messages."""

Packets = list[Packet | PublishRun | AckRun]
Happening = tuple[int, int, bytes, Packets | Pattern | None]
"""What happened at a connection: kind, number, data, and what is known of the data: its packets, or its pattern."""


class Runs(NamedTuple):
    """Like runs of several connections, one after the other."""

    pattern: Pattern
    numbers: tuple[int, ...]
    pieces: tuple[bytes, ...]


Decoded = list[Happening | Runs]
"""The items of a command as the home replica has them."""


class Item(IntEnum):
    """What happened."""

    ENTER = 1
    """A client whose credentials were checked sent CONNECT."""
    PACKETS = 2
    """Whole packets of a client."""
    LOST = 3
    """A connection is gone."""
    CONGESTED = 4
    """Too much is unsent to a client, or no longer."""
    END = 5
    """The replica ends a connection, for a reason."""
    DOWN = 6
    """An incarnation of a replica is over, and with it its connections."""
    KICK = 7
    """An administrator ends a connection, or a session, which is named by its key."""
    RULES = 9
    """Who may publish and subscribe to what, from now on."""
    SYSTEM = 10
    """The broker's own topics are due."""
    LIMITS = 11
    """The limits of the broker, its listeners and its clients, from now on."""
    TICK = 12
    """Nothing but time."""
    RESTORE = 13
    """A part of a backup, with which a new group is to begin."""
    RELEASE = 14
    """A client of another connection may enter: all that this replica had of it is in the log, or will never be."""
    RUNS = 15
    """Messages of clients that are runs of one pattern: as PACKETS, with what saves others to find that out again."""


_RUNS: Final = int(Item.RUNS)  # a name of its own is found in a third of the time


@dataclass(frozen=True, slots=True)
class Entry:
    """A connection as it enters the group. The client is empty where it has no identifier of its own."""

    listener: str
    peer: str
    user: str
    connect: bytes
    client: str = ""


ENTRY: Final = Layout(
    "entry",
    Entry,
    listener=sized(is_text=True),
    peer=sized(is_text=True),
    user=sized(is_text=True),
    connect=sized(),
    client=sized(is_text=True),
)
"""The data of an ENTER item."""


def pack(replica: int, incarnation: int, sequence: int, items: Sequence[Happening]) -> tuple[list[bytes], Decoded]:
    """A command of items, in pieces, and as the home replica will carry it out. Like runs behind each other are one.

    >>> pieces, _ = pack(2, 1, 7, [(Item.LOST, 5, b"gone", None)])
    >>> command = b"".join(pieces)
    >>> HEAD.unpack_from(command), list(items_of(command))
    ((2, 1, 7), [(3, 5, b'gone')])
    """
    parts = [HEAD.pack(replica, incarnation, sequence)]
    decoded: Decoded = []
    for pattern, alike in groupby(items, _pattern_of):
        if pattern is not None:
            _, numbers, pieces, _ = zip(*alike, strict=True)
            runs = Runs(pattern, numbers, pieces)
            parts += _pack_runs(runs)
            decoded.append(runs)
            continue
        for item in alike:
            kind, number, data, _ = item
            parts += (ITEM.pack(kind, number, len(data)), data)
            decoded.append(item)
    return parts, decoded


def _pattern_of(item: Happening) -> Pattern | None:
    return item[3] if isinstance(item[3], Pattern) else None


def _pack_runs(runs: Runs) -> list[bytes]:
    pattern, numbers, pieces = runs
    count, sizes = len(pieces), list(map(len, pieces))
    size = RUNS_ITEM.size - ITEM.size + 8 * count + sum(sizes)
    extra = pattern.payload_at - pattern.id_at
    head = RUNS_ITEM.pack(_RUNS, count, size, pattern.length, pattern.id_at, extra)
    return [head + struct.pack(f">{2 * count}I", *numbers, *sizes), *pieces]


def items_of(command: bytes) -> Iterator[tuple[int, int, bytes]]:
    """The items of a command."""
    at, size, unpack = HEAD.size, ITEM.size, ITEM.unpack_from
    while at < len(command):
        kind, connection, length = unpack(command, at)
        at += size
        yield kind, connection, command[at : at + length]
        at += length
