"""Many events in columns: what the generator makes, files hold and statistics read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from surecast.zap.events import VOLUME_MAX, BadLine, ChannelChange, Event, Status, StatusKind, stamp

__all__ = ["CHANGE", "MUTE", "POWER", "VOLUME", "EventTable", "join_tables"]

CHANGE, VOLUME, MUTE, POWER = range(4)
STATUS_KINDS: tuple[StatusKind, ...] = ("volume", "mute", "power")
_KIND_NUMBERS = {kind: number for number, kind in enumerate(STATUS_KINDS, 1)}
_TAILS: tuple[list[str], ...] = (
    [],
    [f"Volume: {value}" for value in range(VOLUME_MAX + 1)],
    ["Mute: 0", "Mute: 1"],
    ["Power: 0", "Power: 1"],
)


@dataclass(frozen=True, eq=False)
class EventTable:
    """Events in columns. `value` is the place of the new channel in `channels`, or the value of a status; `previous`
    the place of the channel before, -1 for a status. `address` is the IPv4 address as a number.

    >>> table = EventTable.of([ChannelChange(60, "10.0.0.1", "B", "A"), Status(61, "10.0.0.1", "power", 0)])
    >>> len(table), table.channels, table.lines()
    (2, ('B', 'A'), ['1970-01-01,00:01:00,10.0.0.1,B,A', '1970-01-01,00:01:01,10.0.0.1,Power: 0'])
    """

    time_s: NDArray[np.int64]
    address: NDArray[np.uint32]
    kind: NDArray[np.uint8]
    value: NDArray[np.int32]
    previous: NDArray[np.int32]
    channels: tuple[str, ...]

    @staticmethod
    def of(events: Iterable[Event | BadLine], channels: Sequence[str] = ()) -> EventTable:
        """Returns the events of a sequence, without its bad lines; `channels` are numbered first."""
        places = {name: i for i, name in enumerate(channels)}
        times: list[int] = []
        rest: list[int] = []
        for event in events:
            if isinstance(event, ChannelChange):
                times.append(event.time_s)
                to = places.setdefault(event.to_channel, len(places))
                previous = places.setdefault(event.from_channel, len(places))
                rest += (address_of(event.box), CHANGE, to, previous)
            elif isinstance(event, Status):
                times.append(event.time_s)
                rest += (address_of(event.box), _KIND_NUMBERS[event.kind], event.value, -1)
        columns = np.array(rest, dtype=np.int64).reshape(-1, 4).T
        return EventTable(
            np.array(times, dtype=np.int64),
            columns[0].astype(np.uint32),
            columns[1].astype(np.uint8),
            columns[2].astype(np.int32),
            columns[3].astype(np.int32),
            tuple(places),
        )

    def __len__(self) -> int:
        return len(self.time_s)

    def __getitem__(self, rows: slice | NDArray[np.intp] | NDArray[np.bool_]) -> EventTable:
        return EventTable(
            self.time_s[rows],
            self.address[rows],
            self.kind[rows],
            self.value[rows],
            self.previous[rows],
            self.channels,
        )

    def events(self) -> Iterator[Event]:
        """Yields the events one by one."""
        names = self.channels
        for time_s, box, kind, value, previous in self._rows():
            if kind == CHANGE:
                yield ChannelChange(time_s, box, names[value], names[previous])
            else:
                yield Status(time_s, box, STATUS_KINDS[kind - 1], value)

    def lines(self) -> list[str]:
        """Returns the events as lines of text, without line ends."""
        names, stamps = self.channels, {time_s: stamp(time_s) for time_s in np.unique(self.time_s).tolist()}
        return [
            f"{stamps[time_s]},{box},{names[value]},{names[previous]}"
            if kind == CHANGE
            else f"{stamps[time_s]},{box},{_TAILS[kind][value]}"
            for time_s, box, kind, value, previous in self._rows()
        ]

    def boxes(self) -> list[str]:
        """Returns the address of each event's box as text."""
        return address_texts(self.address)

    def _rows(self) -> Iterator[tuple[int, str, int, int, int]]:
        columns = (self.kind.tolist(), self.value.tolist(), self.previous.tolist())
        return zip(self.time_s.tolist(), self.boxes(), *columns, strict=True)


def join_tables(tables: Sequence[EventTable]) -> EventTable:
    """Returns one table of several, in their order; each may number channels in its own way.

    >>> one = EventTable.of([ChannelChange(60, "10.0.0.1", "B", "A")])
    >>> join_tables([one, EventTable.of([ChannelChange(70, "10.0.0.1", "A", "B")])]).value.tolist()
    [0, 1]
    """
    if not tables:
        return EventTable.of([])
    places: dict[str, int] = {}
    values, previous = [], []
    for table in tables:
        new = np.array([places.setdefault(name, len(places)) for name in table.channels] or [0], dtype=np.int32)
        change = table.kind == CHANGE
        values.append(np.where(change, new[np.where(change, table.value, 0)], table.value))
        previous.append(np.where(change, new[np.where(change, table.previous, 0)], -1))
    return EventTable(
        np.concatenate([table.time_s for table in tables]),
        np.concatenate([table.address for table in tables]),
        np.concatenate([table.kind for table in tables]),
        np.concatenate(values).astype(np.int32),
        np.concatenate(previous).astype(np.int32),
        tuple(places),
    )


def address_of(box: str) -> int:
    """Returns the number of an IPv4 address.

    >>> address_of("10.0.0.1")
    167772161
    """
    a, b, c, d = box.split(".")
    return int(a) << 24 | int(b) << 16 | int(c) << 8 | int(d)


def address_texts(addresses: NDArray[np.uint32]) -> list[str]:
    """Addresses as text.

    >>> address_texts(np.array([167772161], dtype=np.uint32))
    ['10.0.0.1']
    """
    high = {place: f"{place >> 8}.{place & 255}" for place in np.unique(addresses >> 16).tolist()}
    low = _low_halves()
    return [f"{high[address >> 16]}.{low[address & 0xFFFF]}" for address in addresses.tolist()]


@cache
def _low_halves() -> list[str]:
    return [f"{place >> 8}.{place & 255}" for place in range(1 << 16)]
