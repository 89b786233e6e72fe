"""A node of the dissemination on a UDP socket."""

from __future__ import annotations

import asyncio
import math
import struct
from collections import Counter
from collections.abc import Callable, Iterable
from typing import cast

from surecast.broker.cast.loopback_relay import ADDRESS_BYTES, DATAGRAM_MAX, Address, stamped
from surecast.protocol.dissemination import DisseminationNode, Effect, EventComplete, EventPrefix, Expire, SendTo

__all__ = ["Endpoint"]

Happened = Callable[[int, EventComplete | EventPrefix | Expire, float], None]


class Endpoint(asyncio.DatagramProtocol):
    """Runs a node: datagrams and timers go in, its effects are carried out.

    It listens to the relay alone: what comes from another address is counted and ignored, whatever it says. `happened`
    is told of everything that is not to be sent, with the node's number and the time.
    """

    def __init__(self, node: DisseminationNode, relay: Address, happened: Happened):
        self.node = node
        self.relay = relay
        self.happened = happened
        self.counts: Counter[str] = Counter()
        self._transport: asyncio.DatagramTransport | None = None
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = math.inf

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # The loop's own transports need not be derived from those of asyncio.
        self._transport = cast("asyncio.DatagramTransport", transport)

    def error_received(self, exc: Exception) -> None:
        self.counts["unreachable"] += 1

    def datagram_received(self, data: bytes, addr: Address) -> None:
        if addr[:2] != self.relay:
            self.counts["stranger"] += 1
            return
        if not ADDRESS_BYTES < len(data) <= DATAGRAM_MAX:
            self.counts["impossible size"] += 1
            return
        (sender,) = struct.unpack_from(">I", data)
        self.perform(self.node.receive(data[ADDRESS_BYTES:], sender, self._loop.time()))

    def perform(self, effects: Iterable[Effect]) -> None:
        """Sends what is to be sent, tells of the rest, and sets the timer anew."""
        now_s = self._loop.time()
        for effect in effects:
            if not isinstance(effect, SendTo):
                self.happened(self.node.node, effect, now_s)
            elif effect.after_s > 0.0:
                self._loop.call_later(effect.after_s, self._send, effect)
            else:
                self._send(effect)
        self._set_timer()

    def close(self) -> None:
        """Sends and does no more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.close()

    def _send(self, effect: SendTo) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.sendto(stamped(effect.to, self.node.datagram(effect.message)), self.relay)

    def _set_timer(self) -> None:
        next_s = self.node.next_timer()
        if next_s == self._timer_s:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_s = next_s
        self._timer = None if next_s == math.inf else self._loop.call_at(next_s, self._due)

    def _due(self) -> None:
        self._timer_s = math.inf
        # A loop may wake a little early by its clock; what is due is due by the node's.
        self.perform(self.node.handle_timer(max(self._loop.time(), self.node.next_timer())))
