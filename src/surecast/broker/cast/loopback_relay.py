"""A lossy network on loopback: one socket through which all nodes reach each other, and which loses as it is told."""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from collections.abc import Callable
from typing import Final, cast

from surecast.errors import ConfigurationError
from surecast.protocol.gossip.splitmix import mixed

__all__ = ["ADDRESS_BYTES", "DATAGRAM_MAX", "Address", "LossyRelay", "stamped"]

Address = tuple[str, int]

_NUMBER: Final = struct.Struct(">I")
ADDRESS_BYTES: Final = _NUMBER.size
"""Before each datagram stands a node's number: the receiver's on the way to the relay, the sender's behind it."""
DATAGRAM_MAX: Final = 1500
_GOLDEN: Final = 0x9E3779B97F4A7C15


def stamped(number: int, datagram: bytes) -> bytes:
    """A datagram with a node's number before it.

    >>> stamped(7, b"hello")[:4]
    b'\\x00\\x00\\x00\\x07'
    """
    return _NUMBER.pack(number) + datagram


class LossyRelay(asyncio.DatagramProtocol):
    """Passes datagrams between nodes that it knows by their address, and loses some.

    Whether the k-th datagram from one node to another is lost depends on the seed, the two and k alone. Datagrams from
    strangers, in the name of others, or of impossible size go nowhere; `counts` says how many.
    """

    def __init__(self, loss: float, seed: int, delay_s: float = 0.0):
        if not 0.0 <= loss < 1.0:
            raise ConfigurationError(f"loss: {loss} must be a share from 0 to below 1")
        if not 0.0 <= delay_s < float("inf"):
            raise ConfigurationError(f"delay: {delay_s} s must be 0 or more")
        self.loss = loss
        self.delay_s = delay_s
        self.counts: Counter[str] = Counter()
        self.tap: Callable[[bytes, Address], None] | None = None
        """A function that is shown every datagram that is passed on, and to whom; None for none."""
        self._limit = int(loss * 2.0**64)
        self._seed = mixed(seed)
        self._passed: Counter[tuple[int, int]] = Counter()
        self._addresses: dict[int, Address] = {}
        self._numbers: dict[Address, int] = {}
        self._transport: asyncio.DatagramTransport | None = None

    def introduce(self, number: int, address: Address) -> None:
        """A node is at an address."""
        self._addresses[number] = address
        self._numbers[address] = number

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # The loop's own transports need not be derived from those of asyncio.
        self._transport = cast("asyncio.DatagramTransport", transport)

    def error_received(self, exc: Exception) -> None:
        self.counts["unreachable"] += 1

    def datagram_received(self, data: bytes, addr: Address) -> None:
        sender = self._numbers.get(addr[:2])
        if sender is None:
            self.counts["stranger"] += 1
            return
        if not ADDRESS_BYTES < len(data) <= DATAGRAM_MAX:
            self.counts["impossible size"] += 1
            return
        (to,) = _NUMBER.unpack_from(data)
        address = self._addresses.get(to)
        if address is None:
            self.counts["unknown receiver"] += 1
            return
        self.counts["taken"] += 1
        if self._loses(sender, to):
            self.counts["lost"] += 1
            return
        passed = stamped(sender, data[ADDRESS_BYTES:])
        if self.delay_s:
            asyncio.get_running_loop().call_later(self.delay_s, self._pass_on, passed, address)
        else:
            self._pass_on(passed, address)

    def _loses(self, sender: int, to: int) -> bool:
        number = self._passed[sender, to]
        self._passed[sender, to] += 1
        word = mixed(mixed(self._seed ^ (sender << 32 | to)) + number * _GOLDEN)
        return word < self._limit

    def _pass_on(self, data: bytes, address: Address) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if self.tap is not None:
            self.tap(data, address)
        self._transport.sendto(data, address)
