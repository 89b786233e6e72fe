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
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Final, Generic, Self, TypeVar

from surecast.broker.config_models import ListenerSpec
from surecast.broker.private import open_file
from surecast.errors import ConfigurationError

__all__ = ["POLL_S", "LocalProcesses", "is_running", "stop_on_signals", "stop_processes", "takes_clients"]

K = TypeVar("K")

POLL_S: Final = 0.05
_WATCH_S: Final = 0.2


class LocalProcesses(ABC, Generic[K]):
    """Processes by what names them. Their log lines go to `NAME.log` in a folder. `command` is what runs `surecast`. As
    a context manager it stops them at the end."""

    KIND: ClassVar[str]
    """The word for one of them, such as replica."""
    COMMAND: ClassVar[str]
    """The command that starts and stops them all, such as cluster."""

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

    def not_running(self) -> list[K]:
        """Returns the processes that do not run on this machine; ConfigurationError where all do."""
        running = self.running()
        if len(running) == len(self.names):
            raise ConfigurationError(
                f"{self._folder}: all {self.KIND}s run already; surecast {self.COMMAND} status {self._folder} shows "
                f"them, surecast {self.COMMAND} down {self._folder} stops them"
            )
        return [name for name in self.names if name not in running]

    def watch(self, stops: Sequence[object], *, restarts: bool) -> Iterator[str]:
        """Yields a line for each process that ends, until there is something in `stops` or no process is left. First
        it names those that somebody else started: they are not watched.

        With `restarts` a process that a signal killed is started again. One that was asked to stop, or that reported an
        error, would end again: it stays down.
        """
        for name in self.running():
            if name not in self.processes:
                yield f"{self.KIND} {name} runs already; this command does not restart it if it dies"
        while self.processes and not stops:
            time.sleep(_WATCH_S)
            for name, code in self.ended().items():
                if restarts and code < 0:
                    self.start(name)
                    action = "starting it again"
                else:
                    del self.processes[name]
                    action = f"it stays down: {self.last_words(name)}"
                yield f"{self.KIND} {name} ended with code {code}; {action}"

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


def stop_on_signals() -> list[int]:
    """Returns a list that gets each signal from now on which asks this process to stop, instead of ending it."""
    stops: list[int] = []
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda number, _: stops.append(number))
    return stops


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
