"""A run: starts everything, drives the workload, lets processes fail, and counts what arrives."""

from __future__ import annotations

import asyncio
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from surecast.errors import OverloadError, SurecastError
from surecast.measurement.client_processes import Clients, open_clients
from surecast.measurement.client_share import Lateness, Share, ShareResult, stamps_of
from surecast.measurement.event_fates import EventFates, read_fates
from surecast.measurement.faults import (
    Crash,
    Probe,
    StartUp,
    cut_and_open,
    fail_and_repair,
    freeze_and_thaw,
    kill_leader,
)
from surecast.measurement.load_clients import Received
from surecast.measurement.measurement_plan import RunPlan, client_of
from surecast.measurement.overlay_processes import BrokerCounts, LinkChange, OverlayProcesses
from surecast.measurement.processes import Processes, start_processes

__all__ = ["Measured", "RunInterrupted", "interruptible", "measure", "run_folder"]

Progress = Callable[[int, int], None]
Times: TypeAlias = np.ndarray[tuple[int], np.dtype[np.float64]]
_TICK_S: Final = 0.2
_IDLE_S: Final = 0.3
_AHEAD_S: Final = 0.5
"""Several processes are told so much ahead when the run begins."""
_DRAIN_S: Final = 20.0
_UNTAKEN: Final = 0.0
_FOLLOW_S: Final = 0.25


@dataclass
class Measured:
    """All that a run has seen; times are real ones, in seconds since 1970.

    `published_at` is when each event was due, and `sent_at` when it was sent, 0 where it was not; `acknowledged_at` is
    when the broker took it over, 0 where that is not known. `acknowledgements` are those of the probe of each process;
    an overlay has probes where its brokers are groups. `start_up_s` is how long a process takes to start. `cut` is when
    the figures end: what arrives later was queued. Of an overlay, `counts` has what each broker has counted,
    `suspect_s` the silence after which a neighbour is taken for down, and `collected` when nothing was underway any
    more; `gate_changes` are the cuts that were made and ended, `link_changes` what brokers found of their links.
    `publisher_ups` are the times at which connections of publishers were made, with the home broker. `lateness` is that
    of each process with clients. `targets` are the brokers' answers to the response targets that were asked for, by
    name of the subscriber.
    """

    plan: RunPlan
    began: float
    ended: float
    cut: float
    published_at: Times
    sent_at: Times
    acknowledged_at: Times
    receivers: list[Received]
    event_fates: EventFates
    crashes: list[Crash]
    start_up_s: float
    acknowledgements: list[list[float]]
    accounts: list[dict[str, Any]]
    logs: Path
    is_interrupted: bool = False
    problems: list[str] = field(default_factory=list)
    counts: dict[str, BrokerCounts] = field(default_factory=dict)
    suspect_s: float = 0.0
    collected: float = 0.0
    gate_changes: list[tuple[tuple[str, str], float, bool]] = field(default_factory=list)
    link_changes: list[LinkChange] = field(default_factory=list)
    publisher_ups: list[tuple[int, float]] = field(default_factory=list)
    lateness: list[Lateness] = field(default_factory=list)
    targets: dict[str, dict[str, Any]] = field(default_factory=dict)


class RunInterrupted(SurecastError):  # noqa: N818 - what happened, not that it is an error
    """A run was ended before there was anything to report."""


async def measure(plan: RunPlan, folder: Path, progress: Progress | None = None) -> Measured:
    """Runs a plan; all that it starts is stopped again, whatever happens.

    Ctrl-C (and SIGTERM) ends it early, with what was measured until then; a second one ends it at once.
    """
    drive: _Drive | None = None
    processes: Processes | None = None
    with interruptible(lambda: None if drive is None else drive.stop):
        try:
            processes, start_up_s = await start_processes(plan, folder)
            drive = _Drive(plan, processes, start_up_s, progress)
            return await drive.run()
        finally:
            if drive is not None:
                await drive.close()
            if processes is not None:
                await asyncio.to_thread(processes.close)


@contextmanager
def interruptible(find_stop: Callable[[], Callable[[], None] | None]) -> Iterator[None]:
    """Calls the function that `find_stop` returns at the first SIGINT or SIGTERM; without one, or at the second,
    cancels the task.

    Then RunInterrupted is raised, once all is cleaned up.
    """
    task = asyncio.current_task()
    interrupted = False

    def interrupt() -> None:
        nonlocal interrupted
        stop = find_stop()
        if stop is not None and not interrupted:
            stop()
        elif task is not None:
            task.cancel()
        interrupted = True

    with _hearing(interrupt):
        try:
            yield
        except asyncio.CancelledError:
            if interrupted:
                raise RunInterrupted("interrupted: everything was stopped, and nothing is reported") from None
            raise


@contextmanager
def _hearing(interrupt: Callable[[], None]) -> Iterator[None]:
    """Calls a function at SIGINT and SIGTERM, where this is the main thread, which alone hears signals."""
    loop, handlers = asyncio.get_running_loop(), []
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(ValueError, RuntimeError):  # in another thread
            before = signal.getsignal(number)
            loop.add_signal_handler(number, interrupt)
            handlers.append((number, before))
    try:
        yield
    finally:
        for number, before in handlers:
            loop.remove_signal_handler(number)
            signal.signal(number, before)


class _Drive:
    def __init__(self, plan: RunPlan, processes: Processes, start_up_s: float, progress: Progress | None):
        self.plan, self.processes, self.progress = plan, processes, progress
        self.start_up = StartUp(start_up_s, len(processes.numbers))
        self.overlay = processes if isinstance(processes, OverlayProcesses) else None
        addresses = processes.addresses_of
        self.shares = [Share(plan, i, plan.client_processes, addresses) for i in range(plan.client_processes)]
        self.clients: list[Clients] = []
        # Whether a group serves, only its clients can say; the run knows when other brokers of an overlay are up.
        asked = processes.addresses if self.overlay is None or plan.group.replicas > 1 else []
        self.probes = [Probe(a, f"probe {i}") for i, a in enumerate(asked, 1)]
        self.crashes: list[Crash] = []
        self.problems: list[str] = []
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._failed: BaseException | None = None

    async def _follow_leader(self, home: int, end: float) -> None:
        """Keeps the publishers of a home broker at whichever replica leads (`delivery.replication.entry`)."""
        current = 0
        while time.time() < end:
            leader = await self.processes.leader(home)
            if leader and leader != current:
                current = leader
                address = self.processes.addresses[leader - 1]
                await asyncio.gather(*(clients.move(home, address) for clients in self.clients))
            await asyncio.sleep(_FOLLOW_S)

    def stop(self) -> None:
        """Ends the run early."""
        self._stopping.set()

    def _spawn(self, work: Any) -> None:
        """Starts something that goes on until the end; if it fails, so does the run."""

        def done(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and task.exception() is not None:
                self._failed = self._failed or task.exception()
                self._stopping.set()

        task = asyncio.create_task(work)
        task.add_done_callback(done)
        self._tasks.append(task)

    async def run(self) -> Measured:
        """Runs everything, from the first subscription to the last message."""
        await self._set_up()
        began = time.time() + (_AHEAD_S if len(self.clients) > 1 else 0.0)
        end = began + self.plan.real_s
        for number, trace in zip(self.processes.numbers, self.plan.traces, strict=True):
            changes = self._real(trace, began)
            if changes and self.plan.freezes and self.overlay is not None:
                self._spawn(freeze_and_thaw(self.overlay, number, changes, self.crashes))
            elif changes:
                self._spawn(
                    fail_and_repair(
                        self.processes, number, changes, self.start_up, self.crashes, self.plan.group.majority
                    )
                )
        if self.overlay is not None and self.plan.overlay is not None:
            for ends, trace in zip(self.plan.overlay.links, self.plan.link_traces, strict=True):
                self._spawn(cut_and_open(self.overlay, ends, self._real(trace, began)))
        for time_s in self.plan.leader_kills_s:
            when = began + time_s / self.plan.scale
            self._spawn(kill_leader(self.processes, when, self.crashes, self.plan.group.majority))
        if self.plan.group.replicas > 1 and self.plan.group.entry == "leader":
            for home in range(len(self.processes.processes_of)):
                self._spawn(self._follow_leader(home, end))
        await asyncio.gather(*(clients.begin(began) for clients in self.clients))
        await self._wait(began, end)
        ended = min(time.time(), end)
        is_interrupted = self._stopping.is_set() and self._failed is None and ended < end
        if self._failed is None:
            await asyncio.gather(*(clients.settle() for clients in self.clients))
        cut = time.time()
        await self._end_faults()
        if self._failed is not None:
            raise self._failed
        return await self._collect(began, ended, cut, is_interrupted)

    def _real(self, trace: Any, began: float) -> list[float]:
        """Returns the real times of the changes in a run."""
        return [began + time_s / self.plan.scale for time_s in trace.tolist() if time_s < self.plan.end_s]

    async def _set_up(self) -> None:
        """Creates all sessions and connects all publishers before the clock starts."""
        self.clients = await open_clients(self.shares)
        for clients in self.clients:
            self._spawn(clients.failed())
        for probe in self.probes:
            self._spawn(probe.run())
        try:
            async with asyncio.timeout(60.0):
                await asyncio.gather(*(clients.subscribe() for clients in self.clients))
                if self.overlay is not None:
                    await self.overlay.wait_for_demand()
                await asyncio.gather(*(clients.connect() for clients in self.clients))
        except TimeoutError:
            raise OverloadError("the clients could not all connect within 60 s; is the machine overloaded?") from None

    async def _wait(self, began: float, end: float) -> None:
        total = max(1, round(end - began))
        while not self._stopping.is_set() and (now := time.time()) < end:
            if self.progress is not None:
                self.progress(min(total, int(now - began)), total)
            with suppress(TimeoutError):
                async with asyncio.timeout(min(_TICK_S, end - now)):
                    await self._stopping.wait()
        if self.progress is not None:
            self.progress(total, total)

    async def _end_faults(self) -> None:
        """Ends all faults and starts the processes that are down, so that they can be asked."""
        staying = len(self.clients) + len(self.probes)
        for task in self._tasks[staying:]:
            task.cancel()
        await asyncio.gather(*self._tasks[staying:], return_exceptions=True)
        if self.overlay is not None:
            await asyncio.to_thread(self.overlay.heal)
        if self._failed is not None:
            return
        for number in self.processes.numbers:
            if await asyncio.to_thread(self.processes.takes_clients, number):
                continue
            words = self.processes.died(number)
            if words is not None and not any(c.number == number and c.up_at is None for c in self.crashes):
                self.problems.append(f"broker process {number} ended by itself: {words}")
            await asyncio.to_thread(self.processes.kill, number)  # it may be half started
            await asyncio.to_thread(self.processes.begin, number)
            await self.processes.wait_ready(number)
        await self.processes.wait_whole()

    async def _collect(self, began: float, ended: float, cut: float, is_interrupted: bool) -> Measured:
        """Empties the queues, until nothing that was acknowledged is missing in the logs, and asks for the accounts."""
        targets = await self._ask_targets()  # before the brokers see everybody connected all the time
        await asyncio.gather(*(clients.hurry() for clients in self.clients))
        stamps = {stamp: number for number, stamp in enumerate(stamps_of(self.plan, began).tolist())}
        until = time.time() + _DRAIN_S
        while True:
            begun = time.time()
            while time.time() < until and max(begun, await self._last_at()) > time.time() - _IDLE_S:
                await asyncio.sleep(_IDLE_S / 3)
            event_fates = await asyncio.to_thread(read_fates, self.processes.log_folders_of, stamps)
            results = await asyncio.gather(*(clients.result() for clients in self.clients))
            published_at, sent_at, acknowledged_at, receivers = self._joined(results)
            is_underway = self.overlay is not None and bool(await asyncio.to_thread(self.overlay.in_transit))
            if self.overlay is None or self.plan.keeps_all:
                is_underway = is_underway or self._is_missing(event_fates, acknowledged_at, receivers)
            if time.time() >= until or not is_underway:
                break
        accounts: list[dict[str, Any]] = []
        for own in self.processes.processes_of:
            for number in own:
                try:
                    accounts += await asyncio.to_thread(self.processes.accounts, number)
                    break  # all replicas of a broker have all of its sessions
                except SurecastError as error:
                    self.problems.append(f"the broker's accounts could not be read: {error}")
        overlay = self.overlay
        if overlay is not None:
            await asyncio.to_thread(overlay.finish_counts)
        return Measured(
            self.plan,
            began,
            ended,
            cut,
            published_at,
            sent_at,
            acknowledged_at,
            receivers,
            event_fates,
            self.crashes,
            self.start_up.expected_s,
            [probe.acknowledged for probe in self.probes],
            accounts,
            self.processes.logs,
            is_interrupted,
            self.problems,
            overlay.counts if overlay is not None else {},
            overlay.suspect_s if overlay is not None else 0.0,
            time.time(),
            overlay.gate_changes if overlay is not None else [],
            await asyncio.to_thread(overlay.link_changes) if overlay is not None else [],
            [each for result in results for each in result.ups],
            [result.lateness for result in results],
            targets,
        )

    async def _ask_targets(self) -> dict[str, dict[str, Any]]:
        """Returns what the brokers decided for the subscribers that asked for a target, by name."""
        names = {client_of("subscriber", name): name for name in self.plan.asked}
        views: dict[str, dict[str, Any]] = {}
        for number in self.processes.numbers if names else ():
            try:
                answers = await asyncio.to_thread(self.processes.targets, number)
            except SurecastError as error:
                self.problems.append(f"the broker's response targets could not be read: {error}")
                continue
            for view in answers:
                if view["client"] in names:
                    views.setdefault(names[view["client"]], view)
        return views

    async def _last_at(self) -> float:
        return max(await asyncio.gather(*(clients.last_at() for clients in self.clients)))

    def _joined(self, results: Sequence[ShareResult]) -> tuple[Times, Times, Times, list[Received]]:
        """Returns what all clients have seen, by event and by subscriber."""
        times = [np.zeros(len(self.plan.events)) for _ in range(3)]
        for result in results:
            for column, own in zip(times, (result.published_at, result.sent_at, result.acknowledged_at), strict=True):
                column[result.events] = own
        received = {place: each for result in results for place, each in result.receivers.items()}
        return times[0], times[1], times[2], [received[place] for place in range(len(received))]

    def _is_missing(self, event_fates: EventFates, acknowledged_at: Times, receivers: Sequence[Received]) -> bool:
        """Returns whether an acknowledged event has neither arrived nor been accounted for."""
        topics = self.plan.events.topic
        index = {topic.name: i for i, topic in enumerate(self.plan.system.topics)}
        acknowledged = np.flatnonzero(acknowledged_at > _UNTAKEN)
        for receiver, who in zip(receivers, self.plan.system.subscribers, strict=True):
            wanted = np.isin(topics[acknowledged], [index[topic] for topic in who.topics])
            fates = event_fates.of(receiver.client_id)
            for number in acknowledged[wanted].tolist():
                if number in receiver.first or number in receiver.expired:
                    continue
                if number not in fates or fates[number].outcome == "delivered":
                    return True
        return False

    async def close(self) -> None:
        """Ends all clients."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(clients.close() for clients in self.clients), return_exceptions=True)


def run_folder() -> tempfile.TemporaryDirectory[str]:
    """Returns a folder of its own for a run, deleted at its end."""
    return tempfile.TemporaryDirectory(prefix="surecast-run-", ignore_cleanup_errors=True)
