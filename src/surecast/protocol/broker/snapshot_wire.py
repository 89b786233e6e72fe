"""How the parts of a broker's snapshot are written and read: numbers, texts, counts, columns of numbers.

All numbers are big-endian. A text has two bytes of length in front, other data four.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable
from typing import Any, Final

from surecast.errors import PeerError
from surecast.protocol.broker.accounts import Accounts
from surecast.protocol.broker.broker_settings import OVERFLOWS
from surecast.protocol.broker.limits import Limits
from surecast.protocol.broker.message import text_field

__all__ = ["Reader", "Writer", "read_accounts", "read_limits", "write_accounts", "write_limits"]

_COUNT: Final = struct.Struct(">I")
_ACCOUNTS: Final = struct.Struct(">QQQ")
_LIMITS: Final = struct.Struct(">QQBHHQQdd")


class Writer:
    """Collects the bytes of a snapshot, or of a part of it."""

    __slots__ = ("add", "parts")

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.add = self.parts.append

    def pack(self, layout: struct.Struct, *values: Any) -> None:
        """Numbers, by a layout."""
        self.add(layout.pack(*values))

    def count(self, number: int) -> None:
        """How many of something follow."""
        self.add(_COUNT.pack(number))

    def texts(self, *texts: str) -> None:
        """Some texts."""
        self.parts += [text_field(text) for text in texts]

    def data(self, data: bytes) -> None:
        """Bytes of any length."""
        self.parts += (_COUNT.pack(len(data)), data)

    def column(self, kind: str, numbers: Collection[int]) -> None:
        """Many numbers of one kind; how many they are must be known to the reader."""
        if numbers:
            self.add(struct.pack(f">{len(numbers)}{kind}", *numbers))


class Reader:
    """Takes the parts of a snapshot out again. What is not there raises `struct.error`, or PeerError."""

    __slots__ = ("at", "bytes")

    def __init__(self, data: bytes):
        self.bytes = data
        self.at = 0

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        """Numbers, by a layout."""
        values = layout.unpack_from(self.bytes, self.at)
        self.at += layout.size
        return values

    def count(self) -> int:
        """How many of something follow."""
        return int(self.unpack(_COUNT)[0])

    def text(self) -> str:
        """One text."""
        return self.field()[2:].decode()

    def field(self) -> bytes:
        """One text as bytes, with its length in front."""
        return self.take(2 + int.from_bytes(self.bytes[self.at : self.at + 2], "big"))

    def data(self) -> bytes:
        """Bytes of any length."""
        return self.take(self.count())

    def take(self, size: int) -> bytes:
        """So many bytes."""
        end = self.at + size
        if end > len(self.bytes):
            raise PeerError(f"it ends at byte {len(self.bytes)}, inside something that goes on to byte {end}")
        data = self.bytes[self.at : end]
        self.at = end
        return data

    def column(self, kind: str, count: int) -> tuple[int, ...]:
        """Many numbers of one kind."""
        if not count:
            return ()
        layout = f">{count}{kind}"
        values = struct.unpack_from(layout, self.bytes, self.at)
        self.at += struct.calcsize(layout)
        return values


def write_accounts(to: Writer, accounts: Accounts) -> None:
    """The counts of a session or of a broker."""
    to.pack(_ACCOUNTS, accounts.matched, accounts.delivered, accounts.expired)
    to.count(len(accounts.dropped))
    for reason, count in sorted(accounts.dropped.items()):
        to.texts(reason)
        to.column("Q", (count,))


def read_accounts(of: Reader) -> Accounts:
    """What `write_accounts` wrote."""
    accounts = Accounts(*of.unpack(_ACCOUNTS))
    for _ in range(of.count()):
        reason = of.text()
        accounts.drop(reason, of.column("Q", 1)[0])
    return accounts


def write_limits(to: Writer, every: Iterable[Limits]) -> None:
    """The limits that clients have; clients of one kind share them."""
    found = list(every)
    to.count(len(found))
    for limits in found:
        to.pack(
            _LIMITS,
            limits.queue_messages_max,
            limits.queue_bytes_max,
            OVERFLOWS.index(limits.overflow),
            limits.inflight_max,
            limits.receive_maximum,
            limits.packet_bytes_max,
            limits.subscriptions_max,
            limits.publish_rate_per_s,
            limits.join_probability,
        )


def read_limits(of: Reader) -> list[Limits]:
    """What `write_limits` wrote."""
    found = []
    for _ in range(of.count()):
        messages, size, overflow, *others = of.unpack(_LIMITS)
        found.append(Limits(messages, size, OVERFLOWS[overflow], *others))
    return found
