"""The brokers of an overlay on this machine, each a process of its own."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from surecast.broker.admin_client import AdminError, ask
from surecast.broker.config import default_admin_socket
from surecast.broker.local_processes import POLL_S, LocalProcesses, stop_processes
from surecast.broker.overlay.overlay_file import load_overlay
from surecast.broker.overlay.overlay_group import found_group
from surecast.errors import ConfigurationError

__all__ = ["LocalOverlay", "stop_brokers"]


class LocalOverlay(LocalProcesses[str]):
    """Starts, watches, asks, kills and stops the brokers of an overlay's file, as processes of this machine."""

    KIND = "broker"
    COMMAND = "overlay"

    def __init__(self, path: Path):
        super().__init__(path.parent)
        self.path = path
        self.file = load_overlay(path)

    @property
    def brokers(self) -> list[str]:
        """The names of the brokers."""
        return list(self.file.plan.brokers)

    @property
    def names(self) -> list[str]:
        """The names of the processes: one for each broker, and NAME-ID for each replica of a group."""
        return [name for broker in self.brokers for name in self.processes_of(broker)]

    def processes_of(self, broker: str) -> list[str]:
        """Returns the names of the processes of a broker."""
        replicas = self.file.broker(broker).replicas
        return [f"{broker}-{one.id}" for one in replicas] if replicas else [broker]

    def arguments(self, name: str) -> list[str]:
        """Returns the arguments with which a process is started."""
        broker, number = self._parts(name)
        replica = [] if number is None else ["--id", str(number)]
        return ["broker", "--overlay", str(self.path), "--name", broker, *replica]

    def state_folder(self, name: str) -> Path:
        """Returns the folder of the state of a process."""
        broker, number = self._parts(name)
        return self.file.folder(broker) if number is None else self.file.folder(broker) / str(number)

    def start(self, *names: str) -> None:
        """Starts processes that do not run, all of them if none are named. A group without any data is founded."""
        for broker in dict.fromkeys(self._parts(name)[0] for name in names or self.names):
            if self.file.broker(broker).replicas:
                found_group(self.file, broker)
        super().start(*names)

    def ask(self, name: str, view: str, query: dict[str, Any] | None = None, method: str = "GET") -> dict[str, Any]:
        """Returns the answer of a broker or of one process to a request for administrators; AdminError where it does
        not answer. For a group its leader answers."""
        if name not in self.brokers or not self.file.broker(name).replicas:
            return ask(default_admin_socket(self.state_folder(name), 0), view, query, method)
        leader = self.leader(name)
        if leader is None:
            raise AdminError(f"no replica of {name} leads")
        return self.ask(leader, view, query, method)

    def leader(self, broker: str) -> str | None:
        """Returns the process that leads a group; None where none does."""
        for process in self.processes_of(broker):
            with suppress(AdminError):
                if self.ask(process, "/links")["leads"]:
                    return process
        return None

    def _parts(self, name: str) -> tuple[str, int | None]:
        """Returns the broker and the replica that a process is; None where the broker is no group."""
        for broker in self.brokers:
            for replica in self.file.broker(broker).replicas:
                if name == f"{broker}-{replica.id}":
                    return broker, replica.id
        return name, None

    def ask_all(self, view: str, query: dict[str, Any] | None = None) -> dict[str, dict[str, Any]]:
        """Returns the answer of each broker, or its error."""
        answers: dict[str, dict[str, Any]] = {}
        for name in self.brokers:
            try:
                answers[name] = self.ask(name, view, query)
            except AdminError as error:
                answers[name] = {"error": "it does not run" if not self._runs(name) else str(error)}
        return answers

    def wait_ready(self, timeout_s: float = 60.0, stops: Sequence[object] = ()) -> None:
        """Waits until every broker that was started takes clients and all links between them are up, or until there is
        something in `stops`. ConfigurationError says which broker ended, or what is missing."""
        until = time.monotonic() + timeout_s
        while not stops:
            for name, code in self.ended().items():
                raise ConfigurationError(f"broker {name} ended with code {code}: {self.last_words(name)}")
            missing = self._missing()
            if not missing:
                return
            if time.monotonic() > until:
                raise ConfigurationError(
                    f"the overlay was not ready within {timeout_s:g} s: {missing}; see {self.path.parent}"
                )
            time.sleep(POLL_S)

    def _missing(self) -> str:
        """Returns what is not there yet: a broker that takes clients, or a link; nothing where all is."""
        for name in self.processes:
            try:
                if not self.ask(name, "/status")["ready"]:
                    return f"broker {name} takes no clients"
            except AdminError as error:
                return f"broker {name}: {error}"
        started = {self._parts(name)[0] for name in self.processes}
        for broker in started:
            try:
                links = self.ask(broker, "/links")["links"]
            except AdminError as error:
                return f"broker {broker}: {error}"
            for link in links:
                if not link["is_up"] and link["neighbour"] in started:
                    return f"link from {broker} to {link['neighbour']}: {link['reason']}"
        return ""

    def _runs(self, name: str) -> bool:
        return any(process in self.running() for process in self.processes_of(name))


def stop_brokers(path: Path, timeout_s: float = 15.0) -> list[str]:
    """Stops the brokers of an overlay's file that run on this machine; returns the names of their processes."""
    overlay = LocalOverlay(path)
    return stop_processes({name: overlay.state_folder(name) for name in overlay.names}, timeout_s)
