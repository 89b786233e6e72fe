"""Viewers of each channel and the most viewed channels, kept up to date event by event.

A box is counted on the channel it was last heard on, while it is on. Its own record counts, not the FROMCH of the
event: boxes are heard of for the first time in the middle of a day, and what never arrived cannot be subtracted.
So the same events again change nothing. An event costs a few steps, whatever the number of boxes and channels:
`Ranking` keeps channels sorted while their viewers come and go.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from surecast.errors import ConfigurationError, PeerError
from surecast.protocol.codec import REST, U8, U64, Layout, many, sized
from surecast.zap.event_table import address_of
from surecast.zap.events import ChannelChange, Event

__all__ = ["ChannelViewers", "Ranking", "Viewers"]


_VERSION: Final = 2


class _State(NamedTuple):
    version: int
    events: int
    broken_chains: int
    refused: int
    on: int
    names: Sequence[str]
    boxes: bytes


_STATE: Final = Layout(
    "snapshot of the viewers",
    _State,
    version=U8,
    events=U64,
    broken_chains=U64,
    refused=U64,
    on=U64,
    names=many(sized(1, is_text=True)),
    boxes=REST,
)


@dataclass(frozen=True, slots=True)
class ChannelViewers:
    """The number of boxes tuned to a channel."""

    channel: str
    viewers: int


class Viewers:
    """The state of ZapViewers, P2S Listing 4. Boxes and channels beyond the limits are left out and counted.

    >>> from surecast.zap.events import parse_line
    >>> viewers = Viewers()
    >>> sorted(viewers.execute(map(parse_line, [
    ...     "2024-01-01,20:00:00,10.0.0.1,B,A", "2024-01-01,20:00:00,10.0.0.2,B,A", "2024-01-01,20:00:03,10.0.0.1,C,B",
    ...     "2024-01-01,20:00:05,10.0.0.1,Power: 0"])))
    ['B', 'C']
    >>> viewers.num_viewers("B"), viewers.num_viewers("C"), viewers.compute_top_list(10)
    (1, 0, [ChannelViewers(channel='B', viewers=1)])
    """

    def __init__(self, boxes_max: int = 8_000_000, channels_max: int = 10_000):
        if boxes_max < 1 or channels_max < 1:
            raise ConfigurationError("boxes_max and channels_max: write 1 or more")
        self.boxes_max, self.channels_max = boxes_max, channels_max
        self.events = 0
        """Events that were executed."""
        self.broken_chains = 0
        """Channel changes whose FROMCH is not where the box was last heard: something between was lost."""
        self.refused = 0
        """Channel changes of boxes or channels beyond the limits."""
        self.on = 0
        """Boxes that are counted on a channel now."""
        self._names: list[str] = []
        self._channel_indices: dict[str, int] = {}
        self._boxes: dict[int, int] = {}  # address: twice the channel's place, plus 1 while on
        self._ranking = Ranking()

    def execute(self, events: Iterable[Event]) -> set[str]:
        """Takes events in, and says whose viewers they changed."""
        changed: set[int] = set()
        for event in events:
            self.events += 1
            if isinstance(event, ChannelChange):
                self._tune(event, changed)
            elif event.kind == "power":
                self._switch(address_of(event.box), event.value, changed)
        return {self._names[channel_index] for channel_index in changed}

    def num_viewers(self, channel: str) -> int:
        """Boxes that are tuned in on the channel now."""
        channel_index = self._channel_indices.get(channel)
        return 0 if channel_index is None else self._ranking.count(channel_index)

    def compute_top_list(self, n: int) -> list[ChannelViewers]:
        """Returns the `n` most viewed channels, by viewers and among equals by name; channels without viewers are left
        out."""
        ranked = [(-count, self._names[channel_index]) for channel_index, count in self._ranking.first(n)]
        return [ChannelViewers(name, -count) for count, name in sorted(ranked)[:n]]

    @property
    def channels(self) -> list[str]:
        """The channels that have been heard of, by name."""
        return sorted(self._names)

    @property
    def boxes(self) -> int:
        """Boxes whose channel is known, on or off."""
        return len(self._boxes)

    def _tune(self, event: ChannelChange, changed: set[int]) -> None:
        address = address_of(event.box)
        before = self._boxes.get(address)
        channel_index = self._channel_indices.get(event.to_channel)
        if (before is None and len(self._boxes) >= self.boxes_max) or (
            channel_index is None and len(self._names) >= self.channels_max
        ):
            self.refused += 1
            return
        if channel_index is None:
            channel_index = self._channel_indices[event.to_channel] = len(self._names)
            self._names.append(event.to_channel)
        if before is not None:
            self.broken_chains += self._names[before >> 1] != event.from_channel
            if before & 1:
                self._count(before >> 1, -1, changed)
        self._boxes[address] = channel_index << 1 | 1
        self._count(channel_index, 1, changed)

    def _switch(self, address: int, value: int, changed: set[int]) -> None:
        before = self._boxes.get(address)
        # a box without an earlier event is on an unknown channel
        if before is not None and before & 1 != value:
            self._boxes[address] = before ^ 1
            self._count(before >> 1, 1 if value else -1, changed)

    def _count(self, channel_index: int, by: int, changed: set[int]) -> None:
        self.on += by
        changed.add(channel_index)
        if by > 0:
            self._ranking.rise(channel_index)
        else:
            self._ranking.fall(channel_index)

    def snapshot(self) -> bytes:
        """Returns the state as bytes; equal states give equal bytes, whatever their history."""
        order = sorted(range(len(self._names)), key=self._names.__getitem__)
        new = np.empty(len(order), dtype=np.int64)
        new[order] = np.arange(len(order))
        address = np.fromiter(self._boxes.keys(), np.int64, len(self._boxes))
        state = np.fromiter(self._boxes.values(), np.int64, len(self._boxes))
        by_address = np.argsort(address)
        state = new[state >> 1] << 1 | (state & 1) if len(state) else state
        names = [self._names[channel_index] for channel_index in order]
        boxes = address[by_address].astype("<u4").tobytes() + state[by_address].astype("<u4").tobytes()
        return _STATE.encode(_State(_VERSION, self.events, self.broken_chains, self.refused, self.on, names, boxes))

    def restore(self, state: bytes) -> None:
        """Replaces the state by that of a snapshot; empty bytes are the initial state. PeerError if it is damaged."""
        fresh = Viewers(self.boxes_max, self.channels_max)
        if state:
            try:
                fresh._read(state)
            except (ValueError, IndexError) as error:
                raise PeerError(f"the snapshot of the viewers cannot be read: {error}") from None
        self.__dict__.update(fresh.__dict__)

    def _read(self, state: bytes) -> None:
        version, self.events, self.broken_chains, self.refused, on, names, table = _STATE.decode(state)
        if version != _VERSION:
            raise ValueError(f"its version is {version}, {_VERSION} was expected")
        self._names = list(names)
        self._channel_indices = {name: channel_index for channel_index, name in enumerate(names)}
        boxes = len(table) // 8
        if len(table) != 8 * boxes:
            raise ValueError(f"its boxes have {len(table)} bytes, {8 * boxes} were expected")
        address = np.frombuffer(table, "<u4", boxes)
        where = np.frombuffer(table, "<u4", boxes, 4 * boxes)
        if boxes and int(where.max()) >> 1 >= len(names):
            raise ValueError("a box is on a channel that is not there")
        self._boxes = dict(zip(address.tolist(), where.tolist(), strict=True))
        counts = np.bincount(where[where & 1 == 1] >> 1, minlength=len(names))
        self._ranking = Ranking(counts.tolist())
        self.on = int(counts.sum())
        if self.on != on:
            raise ValueError(f"{self.on} boxes are on, {on} were expected")


class Ranking:
    """Counts of the items 0, 1, 2, ..., sorted while they go up and down by one; an item without a count has 0.

    Items stand in a list by falling count. Items of one count are neighbours, a *block*. One that goes up changes
    places with the first of its block and is then the last of the block above; one that goes down likewise.

    >>> ranking = Ranking([2, 5, 1])
    >>> ranking.rise(2); ranking.rise(2); ranking.fall(1)
    >>> ranking.first(2), ranking.count(2)
    ([(1, 4), (2, 3)], 3)
    """

    def __init__(self, counts: Iterable[int] = ()):
        held = {item: count for item, count in enumerate(counts) if count}
        self._counts = held
        self._order = sorted(held, key=lambda item: -held[item])
        self._position = {item: position for position, item in enumerate(self._order)}
        self._starts: dict[int, int] = {}
        self._sizes: dict[int, int] = {}
        for position, item in enumerate(self._order):
            self._starts.setdefault(held[item], position)
            self._sizes[held[item]] = self._sizes.get(held[item], 0) + 1

    def count(self, item: int) -> int:
        """Returns the count of an item."""
        return self._counts.get(item, 0)

    def first(self, n: int) -> list[tuple[int, int]]:
        """Returns at least the `n` items with the largest counts above 0, with all that are equal to the last of
        them."""
        if n <= 0 or not self._order:
            return []
        last = self._counts[self._order[min(n, len(self._order)) - 1]]
        end = self._starts[last] + self._sizes[last]
        return [(item, self._counts[item]) for item in self._order[:end]]

    def rise(self, item: int) -> None:
        """Raises the count of an item by one."""
        count = self._counts.get(item, 0)
        if count == 0:
            # a block of items without a count, of this one alone, at the end
            self._position[item] = len(self._order)
            self._order.append(item)
            target = len(self._order) - 1
        else:
            target = self._starts[count]
            self._swap(item, target)
            self._starts[count] += 1
            self._shrink(count)
        self._counts[item] = count + 1
        self._starts.setdefault(count + 1, target)
        self._sizes[count + 1] = self._sizes.get(count + 1, 0) + 1

    def fall(self, item: int) -> None:
        """Lowers the count of an item by one; the count must be above 0."""
        count = self._counts[item]
        target = self._starts[count] + self._sizes[count] - 1
        self._swap(item, target)
        self._shrink(count)
        if count == 1:
            # the last of the last block
            self._order.pop()
            del self._counts[item], self._position[item]
            return
        self._counts[item] = count - 1
        self._starts[count - 1] = target
        self._sizes[count - 1] = self._sizes.get(count - 1, 0) + 1

    def _swap(self, item: int, target: int) -> None:
        place, other = self._position[item], self._order[target]
        self._order[place], self._order[target] = other, item
        self._position[other], self._position[item] = place, target

    def _shrink(self, count: int) -> None:
        self._sizes[count] -= 1
        if not self._sizes[count]:
            del self._sizes[count], self._starts[count]
