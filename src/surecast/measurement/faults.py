"""Failures of processes: killed and started again by the scenario's times up and down; and what clients see of it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from surecast.event_log_records import PROBE_TOPICS
from surecast.measurement.load_clients import DirectLink
from surecast.measurement.overlay_processes import OverlayProcesses
from surecast.measurement.processes import Processes
from surecast.protocol.mqtt import NO_PROPERTIES

__all__ = [
    "PROBE_TOPIC",
    "Crash",
    "Outage",
    "Probe",
    "StartUp",
    "cut_and_open",
    "fail_and_repair",
    "find_down_times",
    "find_outages",
    "freeze_and_thaw",
    "kill_leader",
]

Floats = NDArray[np.float64]

PROBE_TOPIC: Final = f"{PROBE_TOPICS}probe"
_PROBE_S: Final = 0.05
OUTAGE_LEAST_S: Final = 0.25
"""Shorter pauses without any acknowledgement do not count as outages, unless a process was killed in them."""
_SUSPICIOUS_S: Final = 0.1
_AFTERMATH_S: Final = 0.5


@dataclass(slots=True)
class Crash:
    """A process was killed: which, when (real time), whether it led with a majority left, and when it was up again."""

    number: int
    killed_at: float
    led: bool
    up_at: float | None = None


class StartUp:
    """The time that a process takes to start while the others run.

    All were started at once in the beginning, which takes longer; `first_s` is how long, with `processes` of them.
    """

    def __init__(self, first_s: float, processes: int):
        self.restarts: list[float] = []
        self._first_s = first_s * min(1.0, (os.cpu_count() or 1) / processes)

    @property
    def expected_s(self) -> float:
        """The median of the restarts, and before the first one what follows from the start of all."""
        return float(np.median(self.restarts)) if self.restarts else self._first_s


async def fail_and_repair(
    processes: Processes, number: int, changes: Sequence[float], start_up: StartUp, crashes: list[Crash], majority: int
) -> None:
    """Kills a process and starts it again, in turn, at the times of `changes`.

    A process takes a while to start; it is started so much earlier, to be up when it is to be.
    """
    home = processes.home_of(number)
    own = processes.processes_of[home]
    for index, change in enumerate(changes):
        if index % 2 == 0:
            await _until(change)
            up = [n for n in own if not any(c.number == n and c.up_at is None for c in crashes)]
            led = len(up) > majority and await processes.leader(home) == number
            crash = Crash(number, time.time(), led)
            crashes.append(crash)
            crash.killed_at = await asyncio.to_thread(processes.kill, number)
        else:
            await _until(change - start_up.expected_s)
            await asyncio.to_thread(processes.begin, number)
            start_up.restarts.append(await processes.wait_ready(number))
            crashes[_last(crashes, number)].up_at = time.time()


async def freeze_and_thaw(
    processes: OverlayProcesses, number: int, changes: Sequence[float], crashes: list[Crash]
) -> None:
    """Freezes a process and lets it go on, in turn, at the times of `changes`."""
    for index, change in enumerate(changes):
        await _until(change)
        if index % 2 == 0:
            crashes.append(Crash(number, time.time(), False))
            await asyncio.to_thread(processes.freeze, number)
        else:
            await asyncio.to_thread(processes.thaw, number)
            crashes[_last(crashes, number)].up_at = time.time()


async def cut_and_open(processes: OverlayProcesses, ends: tuple[str, str], changes: Sequence[float]) -> None:
    """Cuts a link and opens it again, in turn, at the times of `changes`."""
    for place, change in enumerate(changes):
        await _until(change)
        await asyncio.to_thread(processes.set_cut, *ends, place % 2 == 0)


async def kill_leader(processes: Processes, due: float, crashes: list[Crash], majority: int) -> None:
    """Kills the leader at a time, and starts it again at once."""
    await _until(due)
    number = await processes.leader(0)
    if not number:
        return
    crash = Crash(number, time.time(), len(processes.numbers) > majority)
    crashes.append(crash)
    crash.killed_at = await asyncio.to_thread(processes.kill, number)
    await asyncio.to_thread(processes.begin, number)
    await processes.wait_ready(number)
    crash.up_at = time.time()


def _last(crashes: Sequence[Crash], number: int) -> int:
    return max(i for i, crash in enumerate(crashes) if crash.number == number)


async def _until(due: float) -> None:
    await asyncio.sleep(max(0.0, due - time.time()))


@dataclass(slots=True)
class Probe:
    """Publishes to one process again and again; `acknowledged` has the times at which it got an answer."""

    address: str
    client_id: str
    acknowledged: list[float] = field(default_factory=list)

    async def run(self) -> None:
        """Does so until it is cancelled."""
        link = DirectLink([self.address], self.client_id)
        try:
            await link.connect()
            while True:
                if await link.publish(PROBE_TOPIC, b"", NO_PROPERTIES):
                    self.acknowledged.append(time.time())
                await asyncio.sleep(_PROBE_S)
        finally:
            await link.close()


@dataclass(frozen=True, slots=True)
class Outage:
    """A time without any acknowledgement; `failover` if it began when a leader was killed with a majority left."""

    start: float
    end: float
    failover: bool

    @property
    def length_s(self) -> float:
        """The length of the outage."""
        return self.end - self.start


def find_outages(acknowledged: Sequence[float], crashes: Sequence[Crash], begin: float, end: float) -> list[Outage]:
    """Returns the intervals between `begin` and `end` without any acknowledgement, although somebody always published.

    Each crash belongs to the longest pause soon after it: publications in flight may still be acknowledged. An outage
    begins with its first crash, or else with the last acknowledgement before it, and is longer then.

    >>> find_outages([0.0, 0.1, 0.2, 3.0, 3.1], [Crash(1, 0.21, True)], 0.0, 3.1)
    [Outage(start=0.21, end=3.0, failover=True)]
    """
    inside = sorted(moment for moment in acknowledged if begin <= moment <= end)
    edges = np.array([begin, *inside, end])
    left, right = edges[:-1], edges[1:]
    lengths = right - left
    inner: dict[int, list[Crash]] = {}
    for crash in crashes:
        near = np.flatnonzero((right > crash.killed_at) & (left <= crash.killed_at + _AFTERMATH_S))
        if len(near):
            inner.setdefault(int(near[np.argmax(lengths[near])]), []).append(crash)
    outages = []
    for i in np.flatnonzero(lengths > _SUSPICIOUS_S).tolist():
        here = inner.get(i, [])
        if here or lengths[i] > OUTAGE_LEAST_S:
            start = max(float(left[i]), min((crash.killed_at for crash in here), default=float(left[i])))
            outages.append(Outage(start, float(right[i]), any(crash.led for crash in here) and bool(right[i] < end)))
    return outages


def find_down_times(crashes: Sequence[Crash], begin: float, end: float) -> list[Outage]:
    """Returns the parts between `begin` and `end` of the times from a kill or freeze until the process was up again.

    >>> find_down_times([Crash(1, 0.5, False, 2.0), Crash(1, 7.0, False)], 1.0, 10.0)
    [Outage(start=1.0, end=2.0, failover=False), Outage(start=7.0, end=10.0, failover=False)]
    """
    spans = [(max(begin, crash.killed_at), end if crash.up_at is None else min(end, crash.up_at)) for crash in crashes]
    return [Outage(start, until, failover=False) for start, until in sorted(spans) if start < until]
