"""When a group serves, over long times: its replicas fail and are repaired, and elections take their time."""

from __future__ import annotations

import math
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from surecast.scenario.group import Group
from surecast.scenario.streams import Streams
from surecast.scenario.system import Failures
from surecast.simulation.equilibrium import residual_times

__all__ = ["WARM_UP_CYCLES", "group_trace", "simulate_outages"]

Floats = NDArray[np.float64]
_BLOCK = 256
WARM_UP_CYCLES = 20
"""Mean times between failures for which a group has been running when a run begins."""
_FAILURE, _REPAIR, _ELECTED = range(3)


class _Times:
    """Up and down times of all replicas, drawn in blocks."""

    def __init__(self, failures: Failures, rng: np.random.Generator):
        self._laws = (failures.up, failures.down)
        self._rng = rng
        self._blocks: list[list[float]] = [[], []]

    def next(self, down: bool) -> float:
        block = self._blocks[down]
        if not block:
            block += self._laws[down].sample(self._rng, _BLOCK).tolist()
        return block.pop()


class _Process:
    """The state of a group, driven by failures, repairs and elections."""

    def __init__(self, group: Group, failures: Failures, gaps_s: Floats, streams: Streams, name: str):
        self.group = group
        self.rng = streams.generator("replication/outages", name)
        self.times = _Times(failures, self.rng)
        self.gaps_s = gaps_s
        self.events: list[tuple[float, int, int, int]] = []
        self.up: set[int] = set()
        self.waiting: list[int] = []
        self.is_repairing = False
        self.leader = -1
        self.term = 0
        self.changes: list[float] = []
        self._count = 0
        for i in range(group.replicas):
            is_up = bool(self.rng.random() < failures.availability)
            left = float(residual_times(failures.up if is_up else failures.down, self.rng, 1)[0])
            if is_up:
                self.up.add(i)
                self._at(left, _FAILURE, i)
            elif group.repair == "single" and self.is_repairing:
                self.waiting.append(i)
            else:
                self.is_repairing = True
                self._at(left, _REPAIR, i)
        self._elect()

    def _at(self, time_s: float, what: int, which: int) -> None:
        self._count += 1
        heappush(self.events, (time_s, self._count, what, which))

    def _elect(self) -> None:
        """At once, at the start: somebody leads where a majority is up."""
        if len(self.up) >= self.group.majority:
            self.leader = min(self.up)

    def run(self, until_s: float) -> None:
        while self.events[0][0] < until_s:
            time_s, _, what, which = heappop(self.events)
            if what == _FAILURE:
                self._fail(time_s, which)
            elif what == _REPAIR:
                self._mend(time_s, which)
            elif which == self.term and len(self.up) >= self.group.majority:
                self.leader = sorted(self.up)[int(self.rng.random() * len(self.up))]
                if self.changes and self.changes[-1] == time_s:
                    self.changes.pop()  # an election that takes no time is no outage
                else:
                    self.changes.append(time_s)

    def _fail(self, time_s: float, which: int) -> None:
        self.up.discard(which)
        if self.group.repair == "single" and self.is_repairing:
            self.waiting.append(which)
        else:
            self.is_repairing = True
            self._at(time_s + self.times.next(down=True), _REPAIR, which)
        short = len(self.up) < self.group.majority
        if self.leader >= 0 and (which == self.leader or short):
            self.leader = -1
            self.changes.append(time_s)
            self._begin_election(time_s)
        elif short:
            self.term += 1

    def _mend(self, time_s: float, which: int) -> None:
        self.up.add(which)
        self._at(time_s + self.times.next(down=False), _FAILURE, which)
        self.is_repairing = False
        if self.group.repair == "single" and self.waiting:
            self.is_repairing = True
            self._at(time_s + self.times.next(down=True), _REPAIR, self.waiting.pop(0))
        if self.leader < 0 and len(self.up) == self.group.majority:
            self._begin_election(time_s)

    def _begin_election(self, time_s: float) -> None:
        self.term += 1
        if len(self.up) >= self.group.majority:
            several = self.group.replicas > 1 and len(self.gaps_s)
            gap = float(self.gaps_s[int(self.rng.random() * len(self.gaps_s))]) if several else 0.0
            self._at(time_s + gap, _ELECTED, self.term)


def simulate_outages(
    group: Group, gaps_s: Floats, *, horizon_s: float, seed: int, name: str = "", warm_up_s: float = 0.0
) -> tuple[Floats, Floats]:
    """The times in which a group serves, from 0 to the horizon: starts and ends; elections are drawn from `gaps_s`.

    The process begins `warm_up_s` earlier, with each replica in its stationary state.

    >>> from surecast.scenario import Failures, parse_distribution
    >>> failures = Failures(parse_distribution("90s"), parse_distribution("10s"))
    >>> starts, ends = simulate_outages(Group(3, failures=failures), np.zeros(1), horizon_s=1e6, seed=1)
    >>> bool(abs((ends - starts).sum() / 1e6 - 0.972) < 0.005)
    True
    """
    if group.failures is None:
        return np.zeros(1), np.full(1, horizon_s)
    process = _Process(group, group.failures, gaps_s, Streams(seed), name)
    serves = process.leader >= 0
    process.run(warm_up_s + horizon_s)
    changes = np.array(process.changes) - warm_up_s
    edges = np.concatenate([[-warm_up_s - 1.0], changes]) if serves else changes
    if len(edges) % 2:
        edges = np.append(edges, horizon_s)
    starts, ends = np.maximum(edges[::2], 0.0), np.minimum(edges[1::2], horizon_s)
    kept = starts < ends
    return starts[kept], ends[kept]


def group_trace(group: Group, gaps_s: Floats, *, horizon_s: float, seed: int, name: str) -> tuple[Floats, Floats]:
    """When a group that has been running for long serves; beyond the horizon its last state goes on."""
    if group.failures is None:
        return np.zeros(1), np.full(1, math.inf)
    warm_up_s = WARM_UP_CYCLES * (group.failures.mtbf_s + group.failures.mttr_s)
    starts, ends = simulate_outages(group, gaps_s, horizon_s=horizon_s, seed=seed, name=name, warm_up_s=warm_up_s)
    return starts, np.where(ends >= horizon_s, math.inf, ends)
