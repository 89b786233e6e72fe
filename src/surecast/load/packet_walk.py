"""Packets in what was read, one after the other, with nothing decoded that a generator does not need."""

from __future__ import annotations

from collections.abc import Iterator

from surecast.errors import PeerError

__all__ = ["next_packet", "walk"]


def walk(buffer: bytes | bytearray | memoryview, have: int) -> Iterator[tuple[int, int, int]]:
    """Yields the first byte of each whole packet, where its body begins, and where it ends.

    >>> list(walk(bytes.fromhex("40020007 d000 3003"), 8))
    [(64, 2, 4), (208, 6, 6)]
    """
    at = 0
    while (found := next_packet(buffer, at, have)) is not None:
        yield buffer[at], *found
        at = found[1]


def next_packet(buffer: bytes | bytearray | memoryview, at: int, have: int) -> tuple[int, int] | None:
    """Returns where the body of the packet at a place begins, and where it ends; None if it is not whole yet."""
    length = shift = 0
    body = at + 1
    while body < have:
        byte = buffer[body]
        length |= (byte & 127) << shift
        body += 1
        if byte < 128:
            return (body, body + length) if body + length <= have else None
        shift += 7
        if shift > 21:
            raise PeerError("a packet whose length has more than four bytes: no MQTT comes from there")
    return None
