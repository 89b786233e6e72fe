"""The commands of a replicated broker: what its replicas saw happen at their connections, in one order for all.

A command says which replica it comes from, in which of its incarnations, and its place in the sequence of that
incarnation; then follow items, each of a kind, a number, which is mostly that of a connection, and data.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Final, NamedTuple

from surecast.protocol.broker.response_target import Decision
from surecast.protocol.broker.state_records import DECISION
from surecast.protocol.codec import TEXT, U64, Layout, sized
from surecast.protocol.mqtt import AckBatch, Packet, PublishBatch
from surecast.protocol.mqtt.batches import join

__all__ = [
    "BATCH_ITEM",
    "DECIDED",
    "ENTRY",
    "HEAD",
    "ITEM",
    "Decided",
    "Decoded",
    "Entry",
    "Happening",
    "Item",
    "Packets",
    "SentBatch",
    "items_of",
    "pack",
    "read_batch",
]

HEAD: Final = struct.Struct(">HQQ")
ITEM: Final = struct.Struct(">BII")
BATCH_ITEM: Final = struct.Struct(">BIIBBII")
"""The beginning of a BATCH item: its kind, how many clients sent it, and its size; then the first byte of its messages,
whether they are of MQTT 5, how many they are, and their length, 0 if they have several. The numbers of the connections
follow, how many messages each sent, four bytes each; where the messages end if they have several lengths, likewise; and
the messages."""

Packets = list[Packet | PublishBatch | AckBatch]
Happening = tuple[int, int, bytes, Packets | PublishBatch | None]
"""An event of a connection: kind, number, data, and what is known of the data: its packets, or that it is a batch
of messages to one topic, or like one."""


class SentBatch(NamedTuple):
    """Messages to one topic, and the connections that sent them, in order, with how many each sent."""

    batch: PublishBatch
    numbers: tuple[int, ...]
    counts: tuple[int, ...]


Decoded = list[Happening | SentBatch]
"""The items of a command as the home replica has them."""


class Item(IntEnum):
    """The kinds of items in a command."""

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
    """The access rules from now on."""
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
    DECISION = 17
    """The decision by which the response target of a session is kept from now on."""
    BATCH = 16
    """Messages of clients to one topic: as PACKETS, with what saves others to find out where each ends. (15 was such an
    item before 0.1.0.)"""
    LINK_CALLED = 18
    """There is a connection to a neighbour in the overlay, whose name follows; it wants the hello of the group."""
    LINK_HELLO = 19
    """A neighbour has said hello."""
    LINK_FRAMES = 20
    """Frames of a neighbour, as they came, behind the difference of its clock."""
    LINK_ENDED = 21
    """A connection to a neighbour is over."""
    LINKS_TAKEN = 22
    """This replica leads: links that others have are down."""
    CUT = 23
    """A cut through the accounts of the overlay begins here."""


_BATCH: Final = int(Item.BATCH)  # local alias: avoids an attribute lookup


@dataclass(frozen=True, slots=True)
class Entry:
    """A connection as it enters the group. The client is empty where it has no identifier of its own."""

    listener: str
    peer: str
    user: str
    connect: bytes
    client: str = ""


class Decided(NamedTuple):
    """A decision for the target of a session, which is named by its key, and the revision that it answers."""

    key: str
    revision: int
    decision: Decision


DECIDED: Final = Layout("decided", Decided, key=TEXT, revision=U64, decision=DECISION)
"""The data of a DECISION item."""

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
    """A command of items, in pieces, and as the home replica will carry it out.

    Batches of messages with one topic and equal flags behind each other become one.

    >>> pieces, _ = pack(2, 1, 7, [(Item.LOST, 5, b"gone", None)])
    >>> command = b"".join(pieces)
    >>> HEAD.unpack_from(command), list(items_of(command))
    ((2, 1, 7), [(3, 5, b'gone')])
    """
    parts = [HEAD.pack(replica, incarnation, sequence)]
    decoded: Decoded = []
    at, end = 0, len(items)
    while at < end:
        item = items[at]
        kind, number, data, known = item
        at += 1
        if not isinstance(known, PublishBatch):
            parts += (ITEM.pack(kind, number, len(data)), data)
            decoded.append(item)
            continue
        first_byte, version_5, topic = known.first_byte, known.version_5, known.topics[0]
        batches, pieces, numbers, counts = [known], [data], [number], [known.count]
        while at < end:
            _, number, data, other = items[at]
            if (
                not isinstance(other, PublishBatch)
                or other.first_byte != first_byte
                or other.topics[0] != topic
                or other.version_5 is not version_5
            ):
                break
            batches.append(other)
            pieces.append(data)
            numbers.append(number)
            counts.append(other.count)
            at += 1
        sent = SentBatch(join(batches, pieces), tuple(numbers), tuple(counts))
        parts += _pack_batch(sent)
        decoded.append(sent)
    return parts, decoded


def _pack_batch(sent: SentBatch) -> list[bytes]:
    batch, numbers, counts = sent
    ends = batch.ends
    is_even = isinstance(ends, range) or len(ends) == 1
    table = [*numbers, *counts] if is_even else [*numbers, *counts, *ends]
    size = BATCH_ITEM.size - ITEM.size + 4 * len(table) + len(batch.data)
    length = ends[0] if is_even else 0
    head = BATCH_ITEM.pack(_BATCH, len(numbers), size, batch.first_byte, batch.version_5, batch.count, length)
    return [head + _table(len(table)).pack(*table), batch.data]


@lru_cache(maxsize=4096)
def _table(numbers: int) -> struct.Struct:
    return struct.Struct(f">{numbers}I")


def read_batch(data: bytes, at: int) -> tuple[SentBatch, int]:
    """The BATCH item at `at`, and where the next item is."""
    _, senders, size, first_byte, version_5, count, length = BATCH_ITEM.unpack_from(data, at)
    table = at + BATCH_ITEM.size
    after = at + ITEM.size + size
    both = _table(2 * senders).unpack_from(data, table)
    numbers, counts = both[:senders], both[senders:]
    begin = table + 8 * senders
    ends: Sequence[int]
    if length:
        ends = range(length, length * count + 1, length)
    else:
        ends = _table(count).unpack_from(data, begin)
        begin += 4 * count
    messages = data[begin:after]
    topic_at = 4 if messages[1] < 128 else 5
    topic = _topic(messages[topic_at : topic_at + (messages[topic_at - 2] << 8 | messages[topic_at - 1])])
    batch = PublishBatch(messages, first_byte, bool(version_5), (topic,), (0,), ends, None)
    return SentBatch(batch, numbers, counts), after


@lru_cache(maxsize=4096)
def _topic(encoded: bytes) -> str:
    return encoded.decode()


def items_of(command: bytes) -> Iterator[tuple[int, int, bytes]]:
    """The items of a command."""
    at, size, unpack = HEAD.size, ITEM.size, ITEM.unpack_from
    while at < len(command):
        kind, connection, length = unpack(command, at)
        at += size
        yield kind, connection, command[at : at + length]
        at += length
