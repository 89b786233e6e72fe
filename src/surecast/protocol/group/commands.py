"""The commands of a replicated broker: what its replicas saw happen at their connections, in one order for all.

A command says which replica it comes from, in which of its lives, and its place in the sequence of that life; then
follow items, each of a kind, the number of a connection, and data.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from surecast.errors import PeerError
from surecast.protocol.mqtt import AckRun, Packet, PublishRun

__all__ = [
    "HEAD",
    "ITEM",
    "RUN_BYTES",
    "RUN_ITEM",
    "Decoded",
    "Entry",
    "Heads",
    "Item",
    "items_of",
    "pack",
    "pack_entry",
    "pack_texts",
    "read_entry",
    "read_texts",
    "run_head",
]

HEAD: Final = struct.Struct(">HQQ")
ITEM: Final = struct.Struct(">BII")
RUN_ITEM: Final = struct.Struct(">BIIIH")
"""The beginning of a RUN item: as of others, then the length of its packets and where their identifiers are."""
RUN_BYTES: Final = RUN_ITEM.size - ITEM.size
_HEADS_MAX: Final = 10_000

Heads = dict[bytes, tuple[str, tuple[int, bool, bool]]]
"""What the beginnings of packets say: topic and flags."""

Decoded = list[tuple[int, int, bytes, list[Packet | PublishRun | AckRun] | None]]
"""The items of a command as the home replica has them: kind, connection, data, and the packets that are in the data.

With its packets, a RUN item has the messages alone as data.
"""


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
    """A life of a replica is over, and with it its connections."""
    KICK = 7
    """An administrator ends a connection, or a session."""
    UNSUBSCRIBE = 8
    """An administrator ends a subscription."""
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
    RUN = 14
    """Messages of a client that are a run: as PACKETS, with what saves other replicas to find that out again."""


_RUN_KIND: Final = int(Item.RUN)  # a name of its own is found in a third of the time


@dataclass(frozen=True, slots=True)
class Entry:
    """A connection as it enters the group."""

    listener: str
    peer: str
    user: str
    connect: bytes


def pack_texts(*texts: str | bytes) -> bytes:
    """Texts, each with its length in front.

    >>> read_texts(pack_texts("a", "bc"))
    [b'a', b'bc']
    """
    parts = []
    for text in texts:
        data = text.encode() if isinstance(text, str) else text
        parts += [len(data).to_bytes(4, "big"), data]
    return b"".join(parts)


def read_texts(data: bytes) -> list[bytes]:
    """The texts of `pack_texts`."""
    found = []
    at = 0
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        found.append(data[at + 4 : end])
        at = end
    if at != len(data):
        raise PeerError("group command: a text is longer than its item")
    return found


def pack_entry(entry: Entry) -> bytes:
    """The data of an ENTER item."""
    return pack_texts(entry.listener, entry.peer, entry.user, entry.connect)


def read_entry(data: bytes) -> Entry:
    """What `pack_entry` packed."""
    listener, peer, user, connect = read_texts(data)
    return Entry(listener.decode(), peer.decode(), user.decode(), connect)


def run_head(data: bytes, at: int, id_at: int, known: Heads) -> tuple[str, tuple[int, bool, bool]]:
    """Topic and flags of a run whose messages begin at `at`, with identifiers at `id_at` of each.

    `known` remembers what the beginnings of packets say.
    """
    head = data[at : at + id_at]
    found = known.get(head)
    if found is None:
        topic_at = next(at for at in range(1, 5) if head[at] < 128) + 3
        if len(known) >= _HEADS_MAX:
            known.clear()
        first = head[0]
        found = known[head] = head[topic_at:].decode(), (first >> 1 & 3, bool(first & 1), bool(first & 8))
    return found


def pack(replica: int, life: int, sequence: int, items: Decoded) -> list[bytes]:
    """A command of items, in pieces.

    >>> command = b"".join(pack(2, 1, 7, [(Item.LOST, 5, b"gone", None)]))
    >>> HEAD.unpack_from(command), list(items_of(command))
    ((2, 1, 7), [(3, 5, b'gone')])
    """
    parts = [HEAD.pack(replica, life, sequence)]
    append = parts.append
    for kind, connection, data, packets in items:
        if kind == _RUN_KIND and packets and isinstance(run := packets[0], PublishRun):
            append(RUN_ITEM.pack(kind, connection, RUN_BYTES + len(data), run.length, run.id_at))
        else:
            append(ITEM.pack(kind, connection, len(data)))
        append(data)
    return parts


def items_of(command: bytes) -> Iterator[tuple[int, int, bytes]]:
    """The items of a command."""
    at, size, unpack = HEAD.size, ITEM.size, ITEM.unpack_from
    while at < len(command):
        kind, connection, length = unpack(command, at)
        at += size
        yield kind, connection, command[at : at + length]
        at += length
