"""Publications as bytes: everything that is the same for all messages of a stream is encoded beforehand."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from typing import Final

from surecast.load.load_plan import HEADER_BYTES, LoadPlan
from surecast.protocol.mqtt import V5
from surecast.protocol.mqtt.wire import variable_bytes

__all__ = ["HEADER", "PublicationEncoder"]

HEADER: Final = "IIQI"
"""A payload begins with its stream, its number there, the time it was due in ns, and how many us later it was sent."""

_SIZES: Final = 64
_ROW_MIN: Final = 8

Pack = Callable[..., bytes]


class PublicationEncoder:
    """The publications of one stream. Payload sizes that vary are drawn once, and taken in turn.

    >>> from surecast.load.broker_access import BrokerAccess
    >>> plan = LoadPlan(BrokerAccess("localhost", 1883, version=4), qos=1, prefix="p")
    >>> data = PublicationEncoder(plan, 3, 0).encode(7, 2, 10**9, 0)
    >>> data[:2].hex(), data[4:15], data[15:17].hex(), data[17:25].hex(), len(data)
    ('3251', b'p/run/t/000', '3030', '0007000000030000', 83)
    """

    __slots__ = ("_at", "_heads", "_identifier_at", "_packs", "_size", "_stream", "_template", "payload_bytes")

    def __init__(self, plan: LoadPlan, stream: int, topic: int):
        draw = random.Random(f"{plan.seed} {stream}")
        largest = max(plan.size_bytes, plan.size_max_bytes)
        sizes = [plan.size_bytes]
        if plan.size_max_bytes > plan.size_bytes:
            sizes = [draw.randint(plan.size_bytes, largest) for _ in range(_SIZES)]
        self._stream = stream
        self._at = 0
        self._packs: list[Pack] = []
        self._heads: list[bytes] = []
        self.payload_bytes = sum(sizes) / len(sizes)
        self._size = sizes[0] if len(sizes) == 1 else 0
        name = plan.topic(topic).encode()
        for size in sizes:
            rest = size - HEADER_BYTES
            middle = ("H" if plan.qos else "") + ("x" if plan.access.version == V5 else "")
            length = 2 + len(name) + (2 if plan.qos else 0) + (plan.access.version == V5) + size
            head = (
                bytes((0x30 | plan.qos << 1 | plan.retain,))
                + variable_bytes(length)
                + len(name).to_bytes(2, "big")
                + name
            )
            self._heads.append(head)
            self._identifier_at = len(head)
            self._packs.append(struct.Struct(f">{len(head)}s{middle}{HEADER}{rest}x").pack)

        self._template = self.encode(bool(plan.qos), 0, 0, 0) if self._size else b""

    def encode_row(self, identifiers: Sequence[int], first: int, dues_ns: Sequence[int], now_ns: int) -> bytes:
        """Returns the bytes of the next messages, which were due at these moments; `identifiers` is empty at QoS 0.

        Where all are equally long, each byte that differs is written into all messages at once.

        >>> from surecast.load.broker_access import BrokerAccess
        >>> encoder = PublicationEncoder(LoadPlan(BrokerAccess("localhost", 1883), qos=1), 3, 0)
        >>> dues_ns, now_ns = [10**9 + 1000 * i for i in range(9)], 10**9 + 300_000
        >>> row = encoder.encode_row(range(1, 10), 250, dues_ns, now_ns)
        >>> singles = [encoder.encode(i + 1, 250 + i, dues_ns[i], (now_ns - dues_ns[i]) // 1000) for i in range(9)]
        >>> row == b"".join(singles)
        True
        """
        count = len(dues_ns)
        late_us = [(now_ns - due_ns) // 1000 for due_ns in dues_ns]
        if not self._size or count < _ROW_MIN:
            names = identifiers or [0] * count
            return b"".join([self.encode(names[i], first + i, dues_ns[i], late_us[i]) for i in range(count)])
        row, length = bytearray(self._template * count), len(self._template)
        begin = length - self._size
        columns = [
            (begin + 4, struct.pack(f">{count}I", *range(first, first + count)), 4),
            (begin + 8, struct.pack(f">{count}Q", *dues_ns), 8),
            (begin + 16, struct.pack(f">{count}I", *late_us), 4),
        ]
        if identifiers:
            columns.append((self._identifier_at, struct.pack(f">{count}H", *identifiers), 2))
        for at, values, width in columns:
            for byte in range(width):
                row[at + byte :: length] = values[byte::width]
        return bytes(row)

    def encode(self, identifier: int, number: int, due_ns: int, late_us: int) -> bytes:
        """Returns the bytes of the next message; an identifier of 0 is that of QoS 0."""
        at = self._at
        self._at = (at + 1) % len(self._packs)
        if identifier:
            return self._packs[at](self._heads[at], identifier, self._stream, number, due_ns, late_us)
        return self._packs[at](self._heads[at], self._stream, number, due_ns, late_us)
