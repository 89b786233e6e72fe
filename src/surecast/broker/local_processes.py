"""Brokers of this machine as processes: started, watched, killed and stopped by whoever made them."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

from surecast.broker.config_models import ListenerSpec
from surecast.broker.private import open_file
from surecast.errors import ConfigurationError

__all__ = ["POLL_S", "LocalProcesses", "is_running", "stop_processes", "takes_clients"]

K = TypeVar("K")

POLL_S: Final = 0.05


class LocalProcesses(ABC, Generic[K]):
    """Processes by what names them. Their log lines go to `NAME.log` in a folder. `command` is what runs `surecast`. As
    a context manager it stops them at the end."""

    def __init__(self, folder: Path):
        self.processes: dict[K, subprocess.Popen[bytes]] = {}
        self.command = [sys.executable, "-m", "surecast"]
        self._folder = folder

    @abstractmethod
    def arguments(self, name: K) -> list[str]:
        """Returns the arguments with which a process is started."""

    @abstractmethod
    def state_folder(self, name: K) -> Path:
        """Returns the folder that a process locks as long as it runs."""

    @property
    @abstractmethod
    def names(self) -> list[K]:
        """All processes that there can be."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self, *names: K) -> None:
        """Starts processes that do not run, all of them if none are named."""
        for name in names or self.names:
            if name in self.processes and self.processes[name].poll() is None:
                continue
            with open_file(self.log_file(name), "ab") as log:
                self.processes[name] = subprocess.Popen(
                    [*self.command, *self.arguments(name)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # a Ctrl-C at the terminal is for whoever watches them
                )
            _share_processors(self.processes[name].pid)

    def kill(self, name: K) -> None:
        """Ends a process at once, as a crash would."""
        process = self.processes[name]
        process.send_signal(signal.SIGKILL)
        process.wait()

    def ended(self) -> dict[K, int]:
        """Returns the processes that have ended, with their exit codes."""
        return {name: code for name, process in self.processes.items() if (code := process.poll()) is not None}

    def running(self) -> list[K]:
        """Returns the processes that run on this machine, whoever started them."""
        return [name for name in self.names if is_running(self.state_folder(name))]

    def log_file(self, name: K) -> Path:
        """Returns the file of a process's log lines."""
        return self._folder / f"{name}.log"

    def last_words(self, name: K) -> str:
        """Returns the last line of a process's log."""
        lines = self.log_file(name).read_text(encoding="utf-8", errors="replace").splitlines()
        return lines[-1] if lines else "it said nothing"

    def close(self, timeout_s: float = 10.0) -> None:
        """Stops all processes, in good order if they do so in time."""
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


def takes_clients(listeners: Iterable[ListenerSpec]) -> bool:
    """Returns whether all listeners of a broker take connections."""
    for listener in listeners:
        try:
            host = "127.0.0.1" if listener.host in ("*", "0.0.0.0") else listener.host
            socket.create_connection((host, listener.wanted_port), 1.0).close()
        except OSError:
            return False
    return True


def stop_processes(folders: dict[K, Path], timeout_s: float = 15.0) -> list[K]:
    """Stops the processes of this machine that use some folders of state; returns their names."""
    stopping = []
    for name, folder in folders.items():
        try:
            if not is_running(folder):
                continue  # the file of a process that died may name another one by now
            os.kill(int((folder / "broker.pid").read_text(encoding="utf-8")), signal.SIGTERM)
        except (OSError, ValueError):
            continue
        stopping.append(name)
    until = time.monotonic() + timeout_s
    while any(is_running(folders[name]) for name in stopping):
        if time.monotonic() > until:
            names = ", ".join(map(str, stopping))
            raise ConfigurationError(f"some of {names} still run after {timeout_s:g} s; see their logs")
        time.sleep(POLL_S)
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


def _share_processors(process: int) -> None:
    """Brokers of one machine do not interrupt each other.

    Otherwise a follower takes the processor of the leader whose message wakes it, even where another one is idle, and
    the two work in turns where they could work at once. Only Linux knows this.
    """
    with suppress(AttributeError, OSError):
        os.sched_setscheduler(process, os.SCHED_BATCH, os.sched_param(0))
