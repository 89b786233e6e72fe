"""The brokers of an overlay on this machine, each a process of its own."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from surecast.broker.admin_client import AdminError, ask
from surecast.broker.config import default_admin_socket
from surecast.broker.local_processes import POLL_S, LocalProcesses, stop_processes
from surecast.broker.overlay.overlay_file import load_overlay
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
    def names(self) -> list[str]:
        """The names of the brokers."""
        return list(self.file.plan.brokers)

    def arguments(self, name: str) -> list[str]:
        """Returns the arguments with which a broker is started."""
        return ["broker", "--overlay", str(self.path), "--name", name]

    def state_folder(self, name: str) -> Path:
        """Returns the folder of a broker's state."""
        return self.file.folder(name)

    def ask(self, name: str, view: str, query: dict[str, Any] | None = None, method: str = "GET") -> dict[str, Any]:
        """Returns the answer of a broker to a request for administrators; AdminError where it does not answer."""
        return ask(default_admin_socket(self.file.folder(name), 0), view, query, method)

    def ask_all(self, view: str, query: dict[str, Any] | None = None) -> dict[str, dict[str, Any]]:
        """Returns the answer of each broker, or its error."""
        answers: dict[str, dict[str, Any]] = {}
        for name in self.names:
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
                links = self.ask(name, "/links")["links"]
            except AdminError as error:
                return f"broker {name}: {error}"
            for link in links:
                if not link["is_up"] and link["neighbour"] in self.processes:
                    return f"link from {name} to {link['neighbour']}: {link['reason']}"
        return ""

    def _runs(self, name: str) -> bool:
        return name in self.running()


def stop_brokers(path: Path, timeout_s: float = 15.0) -> list[str]:
    """Stops the brokers of an overlay's file that run on this machine; returns their names."""
    overlay = load_overlay(path)
    return stop_processes({name: overlay.folder(name) for name in overlay.plan.brokers}, timeout_s)
