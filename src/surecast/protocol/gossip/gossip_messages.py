"""Messages between subscribers about events they have and packets they miss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from surecast.protocol.coding import Packet

__all__ = ["Announced", "Announcement", "PacketRequest", "Push", "Reply", "Wanted"]


class Announced(NamedTuple):
    """An event that someone has: its number, its group of subscribers, its bytes and when it becomes useless."""

    event_id: int
    group: int
    size: int
    deadline_s: float


@dataclass(frozen=True, slots=True)
class Wanted:
    """Packets missing of a generation: any `count` independent ones, or the plain ones with these numbers."""

    generation: int
    count: int
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Announcement:
    """The sender has these events."""

    events: tuple[Announced, ...]


@dataclass(frozen=True, slots=True)
class PacketRequest:
    """The sender misses packets of an event."""

    event_id: int
    wanted: tuple[Wanted, ...]


@dataclass(frozen=True, slots=True)
class Push:
    """A packet that nobody asked for."""

    group: int
    deadline_s: float
    packet: Packet


@dataclass(frozen=True, slots=True)
class Reply:
    """A packet that was asked for."""

    group: int
    deadline_s: float
    packet: Packet
