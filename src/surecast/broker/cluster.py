"""A group of replicas on this machine, each a process of its own."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from surecast.broker.cluster_file import write_group
from surecast.broker.group_config import BrokerGroupSpec, load_broker_group
from surecast.broker.private import open_file
from surecast.broker.replica.administer import ask_status
from surecast.errors import ConfigurationError

__all__ = ["LocalGroup", "is_running", "stop_replicas", "write_group"]

_POLL_S: Final = 0.05


class LocalGroup:
    """Starts, watches, kills and stops the replicas of a group's file, as processes of this machine.

    `command` is what runs a replica. Their log lines go to `N.log` beside the file. As a context manager it stops them
    at the end.
    """

    def __init__(self, path: Path):
        self.path = path
        self.spec: BrokerGroupSpec = load_broker_group(path)
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.command = [sys.executable, "-m", "surecast"]

    def __enter__(self) -> LocalGroup:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def numbers(self) -> list[int]:
        """The numbers of the replicas."""
        return [one.id for one in self.spec.replicas]

    @property
    def addresses(self) -> list[str]:
        """The addresses at which the replicas take MQTT clients."""
        return self.spec.mqtt_addresses()

    def start(self, *numbers: int) -> None:
        """Starts replicas, all of them if none are named."""
        for number in numbers or self.numbers:
            if number in self.processes and self.processes[number].poll() is None:
                continue
            with open_file(self.path.parent / f"{number}.log", "ab") as log:
                self.processes[number] = subprocess.Popen(
                    [*self.command, "broker", "--group", str(self.path), "--id", str(number)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # a Ctrl-C at the terminal is for whoever watches them
                )
            _share_processors(self.processes[number].pid)

    def kill(self, number: int) -> None:
        """Ends a replica at once, as a crash would."""
        process = self.processes[number]
        process.send_signal(signal.SIGKILL)
        process.wait()

    def ended(self) -> dict[int, int]:
        """The replicas whose process has ended, with its exit code."""
        return {n: code for n, process in self.processes.items() if (code := process.poll()) is not None}

    def status(self) -> list[dict[str, Any]]:
        """Returns the status of each replica, or the error of one that does not answer."""
        return asyncio.run(ask_status(self.spec))

    def leader(self) -> int:
        """The replica that leads; 0 while there is none."""
        return next((int(one["replica"]) for one in self.status() if one.get("leads")), 0)

    def running(self) -> list[int]:
        """Returns the replicas that run on this machine, whoever started them."""
        return [number for number in self.numbers if is_running(self.spec.folder(number))]

    def wait_ready(self, timeout_s: float = 30.0, *, failures_max: int = 0) -> None:
        """Waits until every running replica takes clients and knows a leader; ConfigurationError if that fails.

        `failures_max` replicas may end meanwhile: `ended` has them.
        """
        until = time.monotonic() + timeout_s
        while True:
            running = [n for n in self.processes if self.processes[n].poll() is None]
            gone = self.ended()
            if len(gone) > failures_max:
                number, code = next(iter(gone.items()))
                raise ConfigurationError(f"replica {number} ended with code {code}: {self.last_words(number)}")
            if all(self._takes_clients(n) for n in running):
                known = [one for one in self.status() if one["replica"] in running]
                if known and all(one.get("leader") for one in known):
                    return
            if time.monotonic() > until:
                raise ConfigurationError(f"the group was not ready within {timeout_s:g} s; see {self.path.parent}")
            time.sleep(_POLL_S)

    def _takes_clients(self, number: int) -> bool:
        for listener in self.spec.replica(number).mqtt:
            try:
                host = "127.0.0.1" if listener.host in ("*", "0.0.0.0") else listener.host
                socket.create_connection((host, listener.wanted_port), 1.0).close()
            except OSError:
                return False
        return True

    def last_words(self, number: int) -> str:
        """The last line of a replica's log."""
        lines = (self.path.parent / f"{number}.log").read_text(encoding="utf-8", errors="replace").splitlines()
        return lines[-1] if lines else "it said nothing"

    def close(self, timeout_s: float = 10.0) -> None:
        """Stops all replicas, in good order if they do so in time."""
        running = [process for process in self.processes.values() if process.poll() is None]
        for process in running:
            process.terminate()
        until = time.monotonic() + timeout_s
        for process in running:
            try:
                process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes.clear()


def _share_processors(process: int) -> None:
    """Replicas of one machine do not interrupt each other.

    Otherwise a follower takes the processor of the leader whose message wakes it, even where another one is idle, and
    the two work in turns where they could work at once. Only Linux knows this.
    """
    with suppress(AttributeError, OSError):
        os.sched_setscheduler(process, os.SCHED_BATCH, os.sched_param(0))


def stop_replicas(path: Path, timeout_s: float = 15.0) -> list[int]:
    """Stops the replicas of a group's file that run on this machine; their numbers."""
    group = load_broker_group(path)
    stopping = []
    for one in group.replicas:
        try:
            if not is_running(group.folder(one.id)):
                continue  # the file of a process that died may name another one by now
            pid = int((group.folder(one.id) / "broker.pid").read_text(encoding="utf-8"))
            os.kill(pid, signal.SIGTERM)
        except (OSError, ValueError):
            continue
        stopping.append(one.id)
    until = time.monotonic() + timeout_s
    while any(is_running(group.folder(number)) for number in stopping):
        if time.monotonic() > until:
            raise ConfigurationError(f"some of the replicas {stopping} still run after {timeout_s:g} s; see their logs")
        time.sleep(_POLL_S)
    return stopping


def is_running(folder: Path) -> bool:
    """Returns whether a process uses the state in a folder, which it locks as long as it runs."""
    try:
        with (folder / "lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
