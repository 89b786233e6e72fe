"""Traffic of set-top boxes, made from a seed.

A box is on or off; one that is on goes from stop to stop, and each stop is a moment (surfing) or longer (staying).
Boxes report a stop once it has lasted `retention_s`, with the channel reported before as its FROMCH, and whatever
they have kept is sent every `batch_s`. All boxes are advanced together, a stretch of time after the other: the first
round takes the next step of every box that has one within the stretch, the second round the step after, and so on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surecast.errors import ConfigurationError
from surecast.scenario.streams import Streams
from surecast.zap.event_table import CHANGE, MUTE, POWER, VOLUME, EventTable
from surecast.zap.events import VOLUME_MAX
from surecast.zap.traffic import ADDRESSES, DayCycle, Traffic, zipf_shares

__all__ = ["Batch", "Generator", "channel_names"]

STRETCH_BATCHES = 60
VOLUME_STEP_MAX = 5
WARM_UP_S = 4 * 3600.0
"""A box that has been on for longer is followed for so long only."""
_FIRST_ADDRESS = (10 << 24) + 1
_Indices = NDArray[np.intp]
_Times = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Batch:
    """The message of a publisher's boxes at one moment: events of `batch_s` seconds, in order of time."""

    sent_s: float
    events: EventTable


def channel_names(count: int) -> tuple[str, ...]:
    """Returns names of channels by rank of popularity.

    >>> channel_names(300)[:2]
    ('CH001', 'CH002')
    """
    width = max(3, len(str(count)))
    return tuple(f"CH{rank:0{width}d}" for rank in range(1, count + 1))


class Generator:
    """The boxes of one publisher, from `start_s` (seconds since 1970, on the log's clock) on.

    At the start boxes are on as they are on any day at that time, in the middle of what they watch; with `announce`
    they report it, as a change from a channel to itself. Publishers differ in addresses and in their random numbers.

    >>> first = next(Generator(Traffic(boxes=1000), 0, seed=1).batches())
    >>> first.sent_s, bool((first.events.time_s < 10).all())
    (13.0, True)
    """

    def __init__(self, traffic: Traffic, start_s: int, seed: int = 1, publisher: int = 0, announce: bool = False):
        last = traffic.boxes * (publisher + 1)
        if publisher < 0 or last > ADDRESSES - 2:
            raise ConfigurationError(
                f"publisher {publisher} with {traffic.boxes} boxes: addresses of 10.0.0.0/8 end at {ADDRESSES - 2} "
                "boxes; number publishers from 0 on and give them fewer boxes"
            )
        if start_s < 0:
            raise ConfigurationError(f"start_s {start_s}: write a time from 1970 on")
        self.traffic, self.start_s = traffic, start_s
        self.channels = channel_names(traffic.channels)
        self._random = Streams(seed).generator("zap", f"publisher {publisher}")
        self._cycle = DayCycle(traffic)
        self._address = np.arange(_FIRST_ADDRESS + traffic.boxes * publisher, _FIRST_ADDRESS + last, dtype=np.uint32)
        self._chances = np.cumsum(zipf_shares(traffic.channels, traffic.zipf_exponent, traffic.zipf_offset))
        self._chances[-1] = 1.0
        # the line-up is the operator's, the same for all publishers of a seed
        self._line_up = Streams(seed).generator("zap", "line-up").permutation(traffic.channels)
        self._made: list[tuple[_Times, _Indices, int, NDArray[np.int32], NDArray[np.int32]]] = []
        self._on_periods: list[tuple[_Indices, _Times, _Times]] = []
        self._begin(announce)

    def batches(self, duration_s: float | None = None) -> Iterator[Batch]:
        """Yields batch after batch, for a duration or without end. The events do not depend on how many are
        consumed."""
        left = None if duration_s is None else int(np.ceil(duration_s / self.traffic.batch_s))
        end_s = None if duration_s is None else self.start_s + duration_s
        begin_s = self.start_s
        while left is None or left > 0:
            stretch = self._stretch(begin_s)
            edges = begin_s + self.traffic.batch_s * np.arange(STRETCH_BATCHES + 1)
            cuts = np.searchsorted(stretch.time_s, edges)
            for k in range(STRETCH_BATCHES if left is None else min(left, STRETCH_BATCHES)):
                events = stretch[cuts[k] : cuts[k + 1]]
                if end_s is not None and edges[k + 1] > end_s:
                    events = events[events.time_s < end_s]
                yield Batch(float(edges[k + 1]) + self.traffic.retention_s, events)
            left = None if left is None else left - STRETCH_BATCHES
            begin_s = int(edges[-1])

    # The boxes.

    def _begin(self, announce: bool) -> None:
        traffic, random, count = self.traffic, self._random, self.traffic.boxes
        start = float(self.start_s)
        self._on = random.random(count) < self._cycle.on_share(start)
        # exponential times have no memory: from now on they are as if they began now
        waits = random.exponential(size=count)
        begin = np.full(count, start)
        self._next_power = np.where(self._on, start + waits * traffic.on_mean_s, self._cycle.next_on(begin, waits))
        self._next_zap = np.full(count, np.inf)
        self._surfs = np.zeros(count, dtype=np.bool_)
        self._reported = self._popular(count)
        self._cursor = random.integers(0, traffic.channels, count)
        on = np.nonzero(self._on)[0]
        self._warm_up(on, start - np.minimum(self._cycle.ages(start, len(on), random), WARM_UP_S), start)
        self._on_since = begin
        self._level = random.integers(15, 60, count)
        self._mutes = np.zeros(count, dtype=np.int64)
        if announce:
            self._note(begin[on], on, CHANGE, self._reported[on], self._reported[on])

    def _warm_up(self, boxes: _Indices, switched_on_s: _Times, start_s: float) -> None:
        """Brings boxes that have been on for some time to where they are at the start; nobody hears of it."""
        self._stop(boxes, switched_on_s, switched_on=True)
        while len(boxes := boxes[self._next_zap[boxes] < start_s]):
            self._stop(boxes, self._next_zap[boxes], switched_on=False)
        self._made.clear()

    def _stretch(self, begin_s: int) -> EventTable:
        """Returns all events of the next stretch of time."""
        end = float(begin_s + STRETCH_BATCHES * self.traffic.batch_s)
        boxes = np.nonzero(np.minimum(self._next_zap, self._next_power) < end)[0]
        while len(boxes):
            zap, power = self._next_zap[boxes], self._next_power[boxes]
            by_power = power <= zap
            zapping = ~by_power
            self._stop(boxes[zapping], zap[zapping], switched_on=False)
            if by_power.any():
                self._switch(boxes[by_power], power[by_power])
            boxes = boxes[np.minimum(self._next_zap[boxes], self._next_power[boxes]) < end]
        on = np.nonzero(self._on)[0]
        self._on_periods.append((on, self._on_since[on].copy(), np.full(len(on), end)))
        self._on_since[on] = end
        self._change_statuses()
        return self._collected()

    def _stop(self, boxes: _Indices, time_s: _Times, switched_on: bool) -> None:
        """Moves boxes to another channel."""
        traffic, random, count = self.traffic, self._random, len(boxes)
        surfs = random.random(count) < np.where(self._surfs[boxes], traffic.surf_again, traffic.surf_start)
        median, sigma = self._stop_lengths(surfs)
        leaves = time_s + median * np.exp(sigma * random.standard_normal(count))
        channel = self._popular(count)
        if traffic.next_share > 0.0 and not switched_on:
            steps = surfs & (random.random(count) < traffic.next_share)
            steppers = boxes[steps]
            self._cursor[steppers] = (self._cursor[steppers] + 1) % traffic.channels
            channel[steps] = self._line_up[self._cursor[steppers]]
        self._surfs[boxes], self._next_zap[boxes] = surfs, leaves
        # a stop that power off cuts short counts with what was left of it
        reported = np.minimum(leaves, self._next_power[boxes]) - time_s > traffic.retention_s
        before = self._reported[boxes]
        if not switched_on:
            reported &= channel != before
        self._note(time_s[reported], boxes[reported], CHANGE, channel[reported], before[reported])
        self._reported[boxes[reported]] = channel[reported]

    def _switch(self, boxes: _Indices, time_s: _Times) -> None:
        """Switches boxes on or off."""
        was_on = self._on[boxes]
        off, off_s = boxes[was_on], time_s[was_on]
        self._on_periods.append((off, self._on_since[off], off_s))
        self._next_zap[off] = np.inf
        self._next_power[off] = self._cycle.next_on(off_s, self._random.exponential(size=len(off)))
        on, on_s = boxes[~was_on], time_s[~was_on]
        self._on_since[on] = on_s
        self._next_power[on] = on_s + self._random.exponential(self.traffic.on_mean_s, len(on))
        self._surfs[on] = False
        self._on[boxes] = ~was_on
        for group, moment, value in ((off, off_s, 0), (on, on_s, 1)):
            self._note(moment, group, POWER, np.full(len(group), value, np.int32), np.full(len(group), -1, np.int32))
        self._stop(on, on_s, switched_on=True)

    def _stop_lengths(self, surfs: NDArray[np.bool_]) -> tuple[_Times, _Times]:
        traffic = self.traffic
        median = np.where(surfs, traffic.surf_median_s, traffic.stay_median_s)
        return median, np.where(surfs, traffic.surf_sigma, traffic.stay_sigma)

    def _popular(self, count: int) -> NDArray[np.int32]:
        """Returns channels by their popularity."""
        ranks = np.searchsorted(self._chances, self._random.random(count), side="right")
        return np.asarray(ranks, dtype=np.int32)

    def _change_statuses(self) -> None:
        """Adds changes of volume and mute, at any moment while a box is on."""
        boxes, begin, end = (np.concatenate(parts) for parts in zip(*self._on_periods, strict=True))
        self._on_periods.clear()
        for kind, per_h in ((VOLUME, self.traffic.volume_per_h), (MUTE, self.traffic.mute_per_h)):
            counts = self._random.poisson(per_h / 3600.0 * (end - begin))
            whose = np.repeat(np.arange(len(boxes)), counts)
            time_s = begin[whose] + (end - begin)[whose] * self._random.random(len(whose))
            order = np.lexsort((time_s, boxes[whose]))
            box, time_s = boxes[whose][order], time_s[order]
            value = self._volumes(box) if kind == VOLUME else self._muted(box)
            self._note(time_s, box, kind, value, np.full(len(box), -1, np.int32))

    def _volumes(self, box: _Indices) -> NDArray[np.int32]:
        """Steps up and down, one after the other for each box; a walk between two walls is a free one, folded."""
        size = self._random.integers(1, VOLUME_STEP_MAX + 1, len(box))
        steps = np.where(self._random.random(len(box)) < 0.5, -size, size)
        free = self._level[box] + _sums_within(box, steps)
        np.add.at(self._level, box, steps)
        return np.asarray(VOLUME_MAX - np.abs(free % (2 * VOLUME_MAX) - VOLUME_MAX), dtype=np.int32)

    def _muted(self, box: _Indices) -> NDArray[np.int32]:
        """Returns on and off in turns."""
        pressed = self._mutes[box] + _sums_within(box, np.ones(len(box), dtype=np.int64))
        np.add.at(self._mutes, box, 1)
        return np.asarray(pressed % 2, dtype=np.int32)

    # What is made.

    def _note(
        self, time_s: _Times, boxes: _Indices, kind: int, value: NDArray[np.int32], previous: NDArray[np.int32]
    ) -> None:
        if len(boxes):
            self._made.append((time_s, boxes, kind, value, previous))

    def _collected(self) -> EventTable:
        """Returns the collected events in order of time; of one moment and box the power comes first, as it was added
        first."""
        chunks = self._made
        if not chunks:
            return EventTable.of([], self.channels)
        time_s = np.concatenate([chunk[0] for chunk in chunks])
        order = np.argsort(time_s, kind="stable")
        table = EventTable(
            time_s[order].astype(np.int64),
            self._address[np.concatenate([chunk[1] for chunk in chunks])[order]],
            np.repeat(np.array([chunk[2] for chunk in chunks], dtype=np.uint8), [len(chunk[0]) for chunk in chunks])[
                order
            ],
            np.concatenate([chunk[3] for chunk in chunks])[order],
            np.concatenate([chunk[4] for chunk in chunks])[order],
            self.channels,
        )
        chunks.clear()
        return table


def _sums_within(box: _Indices, steps: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns running sums that begin anew with every box; the boxes are sorted."""
    sums = np.cumsum(steps)
    first = np.searchsorted(box, box)
    return np.asarray(sums - sums[first] + steps[first], dtype=np.int64)
