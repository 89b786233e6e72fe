"""Limits how much of what clients sent goes into one command of the group, so that others have their turn soon.

A command is carried out in one go, by every replica, and nobody is served meanwhile. Its work is counted in bytes:
a packet costs about as much as a kilobyte of payload, a message among others of its kind much less.
"""

from __future__ import annotations

from typing import Final

from surecast.protocol.group.commands import Happening, Packets
from surecast.protocol.mqtt import PublishBatch, Subscribe, Unsubscribe

__all__ = ["MESSAGE_WORK", "WORK_MIN", "WORK_S", "fitting", "next_work_max", "work_of"]

MESSAGE_WORK: Final = 128
_PACKET_WORK: Final = 1 << 10
WORK_MIN: Final = 16 << 10
"""The work of a command while nothing is known of what it costs."""
WORK_S: Final = 0.01
"""The time that a command may take."""


def work_of(data: bytes, known: Packets | PublishBatch | None) -> int:
    """Returns about what an item costs, as a number of bytes: most packets cost much more than their length says."""
    if isinstance(known, PublishBatch):
        return len(data) + known.count * MESSAGE_WORK
    if known is None:
        return len(data) + _PACKET_WORK
    work = len(data) + len(known) * _PACKET_WORK
    for packet in known:
        if isinstance(packet, Subscribe):
            work += len(packet.subscriptions) * _PACKET_WORK
        elif isinstance(packet, Unsubscribe):
            work += len(packet.filters) * _PACKET_WORK
        elif isinstance(packet, PublishBatch):
            work += (packet.count - 1) * MESSAGE_WORK
    return work


def fitting(items: list[Happening], work_max: int) -> tuple[int, int]:
    """Returns how many items go into one command, at least one, and their work."""
    total = 0
    for count, (_, _, data, known) in enumerate(items):
        work = work_of(data, known)
        if total + work > work_max and count:
            return count, total
        total += work
    return len(items), total


def next_work_max(work_max: int, highest: int, work: int, time_s: float) -> int:
    """Returns the most work of the next commands, after one with so much work took so long.

    >>> next_work_max(1 << 20, 1 << 20, 1 << 20, 0.1)  # ten times too long
    104857
    >>> next_work_max(104_857, 1 << 20, 100_000, 0.001), next_work_max(104_857, 1 << 20, 500, 0.001)
    (209714, 106495)
    """
    if time_s > WORK_S:
        return min(highest, max(WORK_MIN, int(work * WORK_S / time_s)))
    if 2 * work >= work_max:
        return min(highest, 2 * work_max)
    return min(highest, work_max + work_max // 64)  # short ones say little, but not nothing
