"""Runs a load: starts its processes, watches them, collects what they found, and leaves nothing at the broker."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from surecast.load.board import Board, Phase, Progress, Stage
from surecast.load.broker_access import BrokerConnection, LoadError
from surecast.load.load_outcome import LoadOutcome, merge_received, merge_sent
from surecast.load.load_plan import LoadPlan
from surecast.load.probing import ProbeShare, probe
from surecast.load.process_times import ProcessUse, processes_use
from surecast.load.receiving import ReceivedShare, receive
from surecast.load.sending import SentShare, send
from surecast.load.storming import StormShare, storm
from surecast.workers import worker_pool

__all__ = ["clients_of", "forget", "run_load"]

_START_S: Final = 60.0
_LEAD_S: Final = 0.1
_LOOK_S: Final = 0.05
_QUIET_S: Final = 3.0
_DRAIN_S: Final = 20.0
_END_S: Final = 5.0

OnProgress = Callable[[str, float, float], None]


def run_load(
    plan: LoadPlan,
    pids: Sequence[int] = (),
    on_progress: OnProgress | None = None,
    *,
    pool: Executor | None = None,
) -> LoadOutcome:
    """Runs a load and returns what it found. `pids` are the processes of the broker, where it runs on this machine.

    Many loads one after the other share a `pool`, which must have a process for each task of a load.

    LoadError says what the broker refused or ended; nothing stays at the broker then either. `on_progress` is told
    what is done now, how much of it, and of how much.
    """
    check_broker(plan)
    left_behind: list[str] = []
    with _removal(plan, left_behind), _board_folder() as folder:
        tasks = _tasks(plan)
        path = folder / "board"
        workers = worker_pool(len(tasks)) if pool is None else nullcontext(pool)
        with Board(path, len(tasks)) as board, workers as started:
            futures = [
                started.submit(work, plan, path, len(tasks), process, slot)
                for slot, (work, process) in enumerate(tasks)
            ]
            outcome = _Control(plan, board, futures, pids, on_progress or (lambda *_: None)).run()
    outcome.left_behind = left_behind
    return outcome


def check_broker(plan: LoadPlan) -> None:
    """Connects once: LoadError says why the broker cannot be measured, before any process is started."""
    connection = BrokerConnection(plan.access, f"load-{plan.name}-0")
    connection.close()
    properties = connection.connack.properties
    highest = properties.maximum_qos
    if highest is not None and plan.qos > highest:
        raise LoadError(f"{plan.access}: the broker allows QoS up to {highest}, not {plan.qos}")
    if plan.retain and properties.retain_available is False:
        raise LoadError(f"{plan.access}: the broker retains no messages")


def clients_of(plan: LoadPlan) -> int:
    """Returns how many connections a load keeps open."""
    return plan.publishers + plan.subscribers + plan.idle + (2 if plan.probes_per_s else 0)


def _tasks(plan: LoadPlan) -> list[tuple[Callable[..., Any], int]]:
    """Returns what each process does, and which share of it."""
    tasks: list[tuple[Callable[..., Any], int]] = []
    for process in range(plan.processes):
        if plan.share(plan.publishers, process):
            tasks.append((send, process))
        if plan.share(plan.subscribers, process) or plan.share(plan.idle, process):
            tasks.append((receive, process))
    if plan.probes_per_s:
        tasks.append((probe, 0))
    if plan.storm_per_s:
        tasks.append((storm, 0))
    if not tasks:
        raise LoadError("there is nothing to do: ask for publishers, subscribers, probes or a storm")
    return tasks


class _Control:
    """The run as its controller sees it."""

    def __init__(
        self, plan: LoadPlan, board: Board, futures: list[Future[Any]], pids: Sequence[int], on_progress: OnProgress
    ):
        self._plan, self._board, self._futures = plan, board, futures
        self._pids, self._on_progress = pids, on_progress

    def run(self) -> LoadOutcome:
        """Takes the run from one phase to the next; whatever goes wrong ends all processes."""
        board = self._board
        try:
            self._await_connections()
            use = self._measure()
            self._await_rest()
        except BaseException:
            self._end()
            raise
        board.enter(Phase.STOPPED)
        shares = [future.result(_START_S) for future in self._futures]
        storms = [each for each in shares if isinstance(each, StormShare)]
        probes = [each for each in shares if isinstance(each, ProbeShare)]
        return LoadOutcome(
            self._plan,
            merge_sent(each for each in shares if isinstance(each, SentShare)),
            merge_received(each for each in shares if isinstance(each, ReceivedShare)),
            probes[0] if probes else None,
            storms[0] if storms else None,
            use,
        )

    def _end(self) -> None:
        """Lets processes say goodbye to the broker; those that do not end soon are ended."""
        self._board.enter(Phase.STOPPED)
        until = time.monotonic() + _END_S
        with suppress(KeyboardInterrupt):
            while time.monotonic() < until and not all(future.done() for future in self._futures):
                time.sleep(_LOOK_S)

    def _look(self) -> None:
        """Waits a moment; raises what made a process fail."""
        time.sleep(_LOOK_S)
        for future in self._futures:
            if future.done() and (error := future.exception()) is not None:
                raise error

    def _stages(self) -> list[int]:
        return [self._board.get(slot, Progress.STAGE) for slot in range(self._board.processes)]

    def _await_connections(self) -> None:
        wanted, before, since = clients_of(self._plan), (-1, -1), time.monotonic()
        while (least := min(self._stages())) < Stage.CONNECTED:
            self._look()
            connected = self._board.sum(Progress.CONNECTED)
            self._on_progress("connecting", connected, wanted)
            allowed_s = self._plan.access.timeout_s if least else _START_S
            if (connected, least) != before:
                before, since = (connected, least), time.monotonic()
            elif time.monotonic() - since > allowed_s:
                raise LoadError(
                    f"{self._plan.access}: {connected:,} of {wanted:,} clients are connected, and for "
                    f"{allowed_s:g} s no more"
                )

    def _measure(self) -> ProcessUse | None:
        plan = self._plan
        start_ns = time.monotonic_ns() + int(_LEAD_S * 1e9)
        from_ns = start_ns + int(plan.warm_up_s * 1e9)
        until_ns = from_ns + int(plan.seconds * 1e9)
        self._board.begin(start_ns, from_ns, until_ns)
        self._wait_until(from_ns, "warming up", start_ns)
        before = processes_use(self._pids) if self._pids else None
        self._wait_until(until_ns, "measuring", from_ns)
        if before is None:
            return None
        return processes_use(self._pids).since(before)

    def _wait_until(self, until_ns: int, activity: str, since_ns: int) -> None:
        while (left_s := (until_ns - time.monotonic_ns()) / 1e9) > 0:
            if left_s > _LOOK_S:
                self._look()
            else:
                time.sleep(left_s)
            total_s = (until_ns - since_ns) / 1e9
            self._on_progress(activity, total_s - left_s, total_s)

    def _await_rest(self) -> None:
        """Waits for what is on its way, as long as some of it comes."""
        board = self._board
        board.enter(Phase.ENDING)
        receivers = {slot for slot, (work, _) in enumerate(_tasks(self._plan)) if work is receive}
        begin = since = time.monotonic()
        before = (-1, False)
        while time.monotonic() - begin < _DRAIN_S + self._plan.access.timeout_s:
            # In this order: who has sent everything has said before how much it was.
            is_sent = all(stage >= Stage.SENT for slot, stage in enumerate(self._stages()) if slot not in receivers)
            delivered, expected = board.sum(Progress.DELIVERED), board.sum(Progress.EXPECTED)
            self._on_progress("waiting for what is on its way", delivered, expected)
            if is_sent and delivered >= expected:
                return
            if (delivered, is_sent) != before:
                before, since = (delivered, is_sent), time.monotonic()
            elif is_sent and time.monotonic() - since > _QUIET_S:
                return
            self._look()


@contextmanager
def _board_folder() -> Iterator[Path]:
    """A folder for the board, in memory where there is such a place."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield Path(folder)


@contextmanager
def _removal(plan: LoadPlan, problems: list[str]) -> Iterator[None]:
    """Removes sessions and retained messages of a load, however it ended, and says what could not be removed."""
    try:
        yield
    except BaseException as error:
        forget(plan, problems)
        for problem in problems:
            error.add_note(problem)
        raise
    forget(plan, problems)


def forget(plan: LoadPlan, problems: list[str]) -> None:
    """Removes what a load has left at the broker; appends in words what could not be removed."""
    access = replace(plan.access, timeout_s=min(plan.access.timeout_s, _END_S))
    if plan.retain:
        try:
            connection = BrokerConnection(access, f"load-{plan.name}-0")
            for number in range(plan.topics):
                connection.publish(plan.topic(number), b"", plan.qos, True)
            connection.close()
        except (LoadError, OSError) as error:
            problems.append(f"retained messages below {plan.base}/t/ may be left at the broker: {error}")
    if not plan.persistent:
        return
    for number in range(plan.subscribers):
        name = plan.subscriber_name(number)
        try:
            BrokerConnection(access, name).close()
        except (LoadError, OSError) as error:
            last = plan.subscriber_name(plan.subscribers - 1)
            problems.append(f"the sessions {name} to {last} may be left at the broker: {error}")
            return
