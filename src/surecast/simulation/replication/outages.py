"""The times at which a group serves, over years: its replicas fail and are repaired, and elections take their time."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from surecast.scenario.group import Group
from surecast.scenario.streams import Streams
from surecast.scenario.system import Failures
from surecast.simulation.equilibrium import residual_times
from surecast.simulation.experiment.clock import NETWORK, Clock

__all__ = ["WARM_UP_CYCLES", "draw_replica_traces", "group_trace", "simulate_outages"]

Floats = NDArray[np.float64]
_BLOCK = 256
WARM_UP_CYCLES = 20
"""Mean times between failures for which a group has been running when a run begins."""


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
    """The state of a group, driven by failures, repairs and elections.

    Elections have draws of their own: replicas fail at the same times however long elections take. `ups` has the times
    from which each replica is up, and `downs` those at which it fails.
    """

    def __init__(self, group: Group, failures: Failures, gaps_s: Floats, streams: Streams, name: str):
        self.majority = group.majority
        self.repairs_one = group.repair == "single"
        self.rng = streams.generator("replication/outages", name)
        self.elections = streams.generator("replication/elections", name)
        self.times = _Times(failures, self.rng)
        self.gaps_s: list[float] = gaps_s.tolist() if group.replicas > 1 else []
        self.clock = Clock()
        self.at = self.clock.at  # avoids an attribute lookup on the hot path
        self.up: set[int] = set()
        self.waiting: list[int] = []
        self.is_repairing = False
        self.leader = -1
        self.term = 0
        self.changes: list[float] = []
        self.ups: list[list[float]] = [[] for _ in range(group.replicas)]
        self.downs: list[list[float]] = [[] for _ in range(group.replicas)]
        for i in range(group.replicas):
            is_up = bool(self.rng.random() < failures.availability)
            left = float(residual_times(failures.up if is_up else failures.down, self.rng, 1)[0])
            if is_up:
                self.up.add(i)
                self.ups[i].append(0.0)
                self.at(left, NETWORK, self._fail, i)
            elif self.repairs_one and self.is_repairing:
                self.waiting.append(i)
            else:
                self.is_repairing = True
                self.at(left, NETWORK, self._mend, i)
        self._elect()

    def _elect(self) -> None:
        """At once, at the start: somebody leads where a majority is up."""
        if len(self.up) >= self.majority:
            self.leader = min(self.up)

    def _elected(self, term: int) -> None:
        if term == self.term and len(self.up) >= self.majority:
            self.leader = sorted(self.up)[int(self.elections.random() * len(self.up))]
            if self.changes and self.changes[-1] == self.clock.now:
                self.changes.pop()  # an election that takes no time is no outage
            else:
                self.changes.append(self.clock.now)

    def _fail(self, which: int) -> None:
        time_s = self.clock.now
        self.up.discard(which)
        self.downs[which].append(time_s)
        if self.repairs_one and self.is_repairing:
            self.waiting.append(which)
        else:
            self.is_repairing = True
            self.at(time_s + self.times.next(down=True), NETWORK, self._mend, which)
        short = len(self.up) < self.majority
        if self.leader >= 0 and (which == self.leader or short):
            self.leader = -1
            self.changes.append(time_s)
            self._begin_election(time_s)
        elif short:
            self.term += 1

    def _mend(self, which: int) -> None:
        time_s = self.clock.now
        self.up.add(which)
        self.ups[which].append(time_s)
        self.at(time_s + self.times.next(down=False), NETWORK, self._fail, which)
        self.is_repairing = False
        if self.repairs_one and self.waiting:
            self.is_repairing = True
            self.at(time_s + self.times.next(down=True), NETWORK, self._mend, self.waiting.pop(0))
        if self.leader < 0 and len(self.up) == self.majority:
            self._begin_election(time_s)

    def _begin_election(self, time_s: float) -> None:
        self.term += 1
        if len(self.up) >= self.majority:
            gaps = self.gaps_s
            gap = gaps[int(self.elections.random() * len(gaps))] if gaps else 0.0
            self.at(time_s + gap, NETWORK, self._elected, self.term)


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
    process.clock.run(warm_up_s + horizon_s)
    changes = np.array(process.changes) - warm_up_s
    edges = np.concatenate([[-warm_up_s - 1.0], changes]) if serves else changes
    if len(edges) % 2:
        edges = np.append(edges, horizon_s)
    starts, ends = np.maximum(edges[::2], 0.0), np.minimum(edges[1::2], horizon_s)
    kept = starts < ends
    return starts[kept], ends[kept]


def group_trace(group: Group, gaps_s: Floats, *, horizon_s: float, seed: int, name: str) -> tuple[Floats, Floats]:
    """Returns when a group serves, from a stationary start, as starts and ends; the last state goes on for ever."""
    if group.failures is None:
        return np.zeros(1), np.full(1, math.inf)
    warm_up_s = WARM_UP_CYCLES * (group.failures.mtbf_s + group.failures.mttr_s)
    starts, ends = simulate_outages(group, gaps_s, horizon_s=horizon_s, seed=seed, name=name, warm_up_s=warm_up_s)
    return starts, np.where(ends >= horizon_s, math.inf, ends)


def draw_replica_traces(group: Group, *, horizon_s: float, seed: int, name: str) -> list[tuple[Floats, Floats]]:
    """Returns when each replica of `group_trace` is up, from 0 to the horizon: starts and ends, infinite where it does
    not fail any more.

    >>> from surecast.scenario import Failures, parse_distribution
    >>> failures = Failures(parse_distribution("90s"), parse_distribution("10s"))
    >>> traces = draw_replica_traces(Group(3, failures=failures), horizon_s=1e5, seed=1, name="run 0/b")
    >>> [round(float((np.minimum(ends, 1e5) - starts).sum() / 1e5), 1) for starts, ends in traces]
    [0.9, 0.9, 0.9]
    """
    if group.failures is None:
        return [(np.zeros(1), np.full(1, math.inf)) for _ in range(group.replicas)]
    warm_up_s = WARM_UP_CYCLES * (group.failures.mtbf_s + group.failures.mttr_s)
    process = _Process(group, group.failures, np.zeros(1), Streams(seed), name)
    process.clock.run(warm_up_s + horizon_s)
    traces = []
    for ups, downs in zip(process.ups, process.downs, strict=True):
        starts = np.array(ups) - warm_up_s
        ends = np.array([*downs, *[math.inf] * (len(ups) - len(downs))]) - warm_up_s
        kept = ends > 0.0
        traces.append((np.maximum(starts[kept], 0.0), ends[kept]))
    return traces
