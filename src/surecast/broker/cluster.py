"""A group of replicas on this machine, each a process of its own."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from surecast.broker.cluster_file import write_group
from surecast.broker.group_config import BrokerGroupSpec, load_broker_group
from surecast.broker.local_processes import POLL_S, LocalProcesses, is_running, stop_processes, takes_clients
from surecast.broker.replica.administer import ask_status
from surecast.errors import ConfigurationError

__all__ = ["LocalGroup", "is_running", "stop_replicas", "write_group"]


class LocalGroup(LocalProcesses[int]):
    """Starts, watches, kills and stops the replicas of a group's file, as processes of this machine."""

    KIND = "replica"
    COMMAND = "cluster"

    def __init__(self, path: Path):
        super().__init__(path.parent)
        self.path = path
        self.spec: BrokerGroupSpec = load_broker_group(path)

    @property
    def names(self) -> list[int]:
        """The numbers of the replicas."""
        return self.numbers

    @property
    def numbers(self) -> list[int]:
        """The numbers of the replicas."""
        return [one.id for one in self.spec.replicas]

    @property
    def addresses(self) -> list[str]:
        """The addresses at which the replicas take MQTT clients."""
        return self.spec.mqtt_addresses()

    def arguments(self, name: int) -> list[str]:
        """Returns the arguments with which a replica is started."""
        return ["broker", "--group", str(self.path), "--id", str(name)]

    def state_folder(self, name: int) -> Path:
        """Returns the folder of a replica's state."""
        return self.spec.folder(name)

    def status(self) -> list[dict[str, Any]]:
        """Returns the status of each replica, or the error of one that does not answer."""
        return asyncio.run(ask_status(self.spec))

    def leader(self) -> int:
        """The replica that leads; 0 while there is none."""
        return next((int(one["replica"]) for one in self.status() if one.get("leads")), 0)

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
            if all(takes_clients(self.spec.replica(n).mqtt) for n in running):
                known = [one for one in self.status() if one["replica"] in running]
                if known and all(one.get("leader") for one in known):
                    return
            if time.monotonic() > until:
                raise ConfigurationError(f"the group was not ready within {timeout_s:g} s; see {self.path.parent}")
            time.sleep(POLL_S)


def stop_replicas(path: Path, timeout_s: float = 15.0) -> list[int]:
    """Stops the replicas of a group's file that run on this machine; their numbers."""
    group = load_broker_group(path)
    return stop_processes({one.id: group.folder(one.id) for one in group.replicas}, timeout_s)
