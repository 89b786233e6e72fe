"""The processes of a run: one broker, or the replicas of a group, each killed and started on its own."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from surecast.broker.admin_client import AdminError, ask
from surecast.broker.cluster import LocalGroup, write_group
from surecast.broker.config import default_admin_socket
from surecast.broker.free_ports import free_port
from surecast.broker.private import make_private, open_file, write_private
from surecast.broker.replica.administer import ask_status
from surecast.documents.reading import yaml_text
from surecast.errors import ConfigurationError, OverloadError
from surecast.measurement.measurement_plan import RunPlan

__all__ = ["POLL_S", "READY_S", "STOP_S", "BrokerProcesses", "GroupProcesses", "Processes", "start_processes"]

POLL_S: Final = 0.01
READY_S: Final = 60.0
STOP_S: Final = 5.0
_TRIES: Final = 3
_LEADER_S: Final = 0.5
_SESSIONS_MAX: Final = 10_000


class Processes(ABC):
    """The processes of a run, numbered from 1. `processes_of` are the numbers of those of each broker."""

    addresses: list[str]
    logs: Path
    log_folders: list[Path]
    _states: list[Path]

    def __init__(self, plan: RunPlan):
        self.processes_of = plan.processes_of
        self.numbers = [number for own in self.processes_of for number in own]

    def home_of(self, number: int) -> int:
        """Returns the broker of a process."""
        return next(home for home, own in enumerate(self.processes_of) if number in own)

    @abstractmethod
    def begin(self, number: int) -> None:
        """Starts a process that does not run, and does not wait for it."""

    @abstractmethod
    def kill(self, number: int) -> float:
        """Ends a process at once, as a crash would; returns when, in real time."""

    @property
    def addresses_of(self) -> tuple[tuple[str, ...], ...]:
        """Where the clients of each home broker connect: at any of its processes."""
        return tuple(tuple(self.addresses[number - 1] for number in own) for own in self.processes_of)

    @property
    def log_folders_of(self) -> list[list[Path]]:
        """The event logs of each broker."""
        return [[self.log_folders[number - 1] for number in own] for own in self.processes_of]

    @abstractmethod
    def died(self, number: int) -> str | None:
        """Returns the last output of a process that has ended by itself; None while it runs."""

    async def leader(self, home: int) -> int:
        """Returns the number of the process that leads a broker; 0 if none does."""
        return self.processes_of[home][0]

    async def missing(self) -> str:
        """Returns what keeps the processes from working together; empty where nothing does."""
        return "" if await self.leader(0) else "no replica leads"

    @abstractmethod
    def close(self) -> None:
        """Stops all."""

    def takes_clients(self, number: int) -> bool:
        """Returns whether a process listens."""
        host, _, port = self.addresses[number - 1].rpartition(":")
        try:
            socket.create_connection((host, int(port)), 1.0).close()
        except OSError:
            return False
        return True

    def accounts(self, number: int) -> list[dict[str, Any]]:
        """Returns the sessions of a broker with their accounts; OverloadError if it does not answer."""
        path = default_admin_socket(self._states[number - 1], 0)
        try:
            answer = ask(path, "/sessions", {"limit": _SESSIONS_MAX})
        except AdminError as error:
            raise OverloadError(f"process {number}: {error}") from None
        sessions: list[dict[str, Any]] = answer["sessions"]
        return sessions

    def targets(self, number: int) -> list[dict[str, Any]]:
        """Returns the response targets of a broker's sessions, with what it decided."""
        path = default_admin_socket(self._states[number - 1], 0)
        try:
            answer = ask(path, "/targets", {"limit": _SESSIONS_MAX})
        except AdminError as error:
            raise OverloadError(f"process {number}: {error}") from None
        targets: list[dict[str, Any]] = answer["targets"]
        return targets

    async def wait_whole(self) -> None:
        """Waits until the processes work together: a group has a leader, an overlay all its links."""
        begun = time.monotonic()
        while missing := await self.missing():
            if time.monotonic() - begun > READY_S:
                raise OverloadError(f"the processes did not find each other within {READY_S:g} s: {missing}")
            await asyncio.sleep(POLL_S)

    async def wait_ready(self, number: int, timeout_s: float = READY_S) -> float:
        """Waits until a process takes clients; returns the time that took. ConfigurationError says why it does not."""
        begun = time.monotonic()
        while not await asyncio.to_thread(self.takes_clients, number):
            words = self.died(number)
            if words is not None:
                raise ConfigurationError(f"broker process {number} ended: {words}")
            if time.monotonic() - begun > timeout_s:
                raise OverloadError(f"broker process {number} accepted no clients within {timeout_s:g} s")
            await asyncio.sleep(POLL_S)
        return time.monotonic() - begun


class BrokerProcesses(Processes):
    """One broker with durable state."""

    def __init__(self, plan: RunPlan, folder: Path):
        super().__init__(plan)
        port = free_port()
        self.addresses = [f"127.0.0.1:{port}"]
        self.logs = folder / "events"
        self.log_folders = [self.logs]
        self._states = [folder / "state"]
        durable = plan.system.delivery.replication.durable
        config = {
            "name": plan.system.overlay.brokers[0].name,
            "listeners": [{"name": "mqtt", "port": port}],
            "state": {"folder": "state", "durability": "full" if durable else "os"},
            **plan.common_options(),
        }
        self._file, self._log = folder / "broker.yaml", folder / "broker.log"
        write_private(self._file, yaml_text(config))
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self, number: int) -> None:
        """Starts the broker, unless it runs."""
        if self._process is not None and self._process.poll() is None:
            return
        with open_file(self._log, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "surecast", "broker", "--config", str(self._file)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # a Ctrl-C at the terminal is for the run, which then stops it
            )

    def kill(self, number: int) -> float:
        """Kills the broker."""
        now = time.time()
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
        return now

    def died(self, number: int) -> str | None:
        """Returns its last output if it has ended."""
        if self._process is None or self._process.poll() is None:
            return None
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return lines[-1] if lines else "it said nothing"

    def close(self) -> None:
        """Stops the broker."""
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class GroupProcesses(Processes):
    """The replicas of a group."""

    def __init__(self, plan: RunPlan, folder: Path):
        super().__init__(plan)
        self._group = LocalGroup(write_group(folder, plan.group.replicas, options=plan.group_options()))
        self.addresses = self._group.addresses
        self.logs = folder / "events"
        self.log_folders = [self.logs / str(number) for number in self.numbers]
        self._states = [self._group.spec.folder(number) for number in self.numbers]

    def begin(self, number: int) -> None:
        """Starts a replica."""
        self._group.start(number)

    def kill(self, number: int) -> float:
        """Kills a replica."""
        now = time.time()
        self._group.kill(number)
        return now

    def died(self, number: int) -> str | None:
        """Returns the last output of a replica that has ended."""
        return self._group.last_words(number) if number in self._group.ended() else None

    async def leader(self, home: int) -> int:
        """Returns the replica that leads."""
        try:
            async with asyncio.timeout(_LEADER_S):
                statuses = await ask_status(self._group.spec)
        except TimeoutError:
            return 0
        return next((int(status["replica"]) for status in statuses if status.get("leads")), 0)

    def close(self) -> None:
        """Stops all replicas."""
        self._group.close(STOP_S)


async def start_processes(plan: RunPlan, folder: Path) -> tuple[Processes, float]:
    """Starts all processes of a run; returns them once they are ready, and the time that one takes to start.

    A port that is free may be another's a moment later; then others are tried.
    """
    kind: Callable[[RunPlan, Path], Processes] = GroupProcesses if plan.group.replicas > 1 else BrokerProcesses
    if plan.overlay is not None:
        from surecast.measurement.overlay_processes import OverlayProcesses

        kind = OverlayProcesses
    for number in range(_TRIES):
        subfolder = folder / str(number)
        make_private(subfolder)
        processes = kind(plan, subfolder)
        try:
            for process in processes.numbers:
                processes.begin(process)
            took_s = max([await processes.wait_ready(process) for process in processes.numbers])
            await processes.wait_whole()
            return processes, took_s
        except ConfigurationError as error:
            processes.close()
            if number == _TRIES - 1 or "in use" not in str(error):
                raise
        except BaseException:
            processes.close()
            raise
    raise AssertionError("one of the tries returns or raises")
