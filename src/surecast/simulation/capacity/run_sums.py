"""The sums counted during a run, and the figures that are left of them afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["BINS", "RunResult", "RunSums", "bin_ends", "bin_of"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_SHORTEST_S: Final = 1e-9
_PER_UNIT: Final = 200.0  # bins of half a percent
BINS: Final = 8000
"""Delays are counted in bins of half a percent, from a nanosecond to years."""


def bin_of(delay_s: float) -> int:
    """The bin of a delay.

    >>> bin_ends(np.array([bin_of(0.25)])).round(4).ravel().tolist()
    [0.2495, 0.2508]
    """
    if delay_s <= _SHORTEST_S:
        return 0
    return min(BINS - 1, int(_PER_UNIT * log(delay_s / _SHORTEST_S)))


def bin_ends(bins: Ints) -> Floats:
    """Returns the lower and the upper ends of bins, as two rows."""
    return np.asarray(_SHORTEST_S * np.exp(np.stack([bins, bins + 1]) / _PER_UNIT), dtype=np.float64)


@dataclass(frozen=True)
class RunResult:
    """The counts of one run between its warm-up and its end.

    By kind (notifications, control messages) and directed link, or broker: `sent`, `received`. By directed link: how
    many messages arrived, and the sum of their times on the link. By broker: table entries times seconds. By queue:
    messages, the sums of their waiting and service times, and the time that the server was busy. By client, then for
    the last delivery of an event and the end of a subscription's way, then by class: delays, their sum, and how many
    fell into which bin (`rows`, `bins`, `counts`).
    """

    duration_s: float
    sent: Floats
    received: Floats
    arrived: Floats
    link_s: Floats
    local_s: Floats
    remote_s: Floats
    served: Floats
    waiting_s: Floats
    work_s: Floats
    busy_s: Floats
    delays: Floats
    delay_s: Floats
    rows: Ints
    bins: Ints
    counts: Ints
    steps: int
    checked: int


class RunSums:
    """The running sums of a run, as plain lists: they are changed at every message."""

    def __init__(self, links: int, brokers: int, queues: int, rows: int):
        self.sent = [[0] * links, [0] * links]
        self.received = [[0] * brokers, [0] * brokers]
        self.arrived = [0] * links
        self.link_s = [0.0] * links
        self.local_s = [0.0] * brokers
        self.remote_s = [0.0] * brokers
        self.served = [0] * queues
        self.waiting_s = [0.0] * queues
        self.work_s = [0.0] * queues
        self.delays = [0] * rows
        self.delay_s = [0.0] * rows
        self.histogram: dict[int, int] = {}

    def add_delay(self, row: int, delay_s: float, number: int = 1) -> None:
        """Counts so many equal delays in a row."""
        key = row * BINS + bin_of(delay_s)
        self.histogram[key] = self.histogram.get(key, 0) + number
        self.delays[row] += number
        self.delay_s[row] += number * delay_s

    def result(self, duration_s: float, busy_s: list[float], steps: int, checked: int) -> RunResult:
        """Returns the counts as arrays."""
        keys = np.array(sorted(self.histogram), dtype=np.int64)
        return RunResult(
            duration_s,
            sent=_array(self.sent),
            received=_array(self.received),
            arrived=_array(self.arrived),
            link_s=_array(self.link_s),
            local_s=_array(self.local_s),
            remote_s=_array(self.remote_s),
            served=_array(self.served),
            waiting_s=_array(self.waiting_s),
            work_s=_array(self.work_s),
            busy_s=_array(busy_s),
            delays=_array(self.delays),
            delay_s=_array(self.delay_s),
            rows=keys // BINS,
            bins=keys % BINS,
            counts=np.array([self.histogram[key] for key in keys.tolist()], dtype=np.int64),
            steps=steps,
            checked=checked,
        )


def _array(values: Sequence[float] | Sequence[Sequence[float]]) -> Floats:
    return np.array(values, dtype=np.float64)
