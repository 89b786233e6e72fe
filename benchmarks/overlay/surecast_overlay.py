"""Surecast's overlay, from the file that `surecast overlay plan` writes and `surecast overlay up` starts."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import yaml
from benchmarks.broker.contestants import HOST
from benchmarks.broker.dialects import Dialect, Mqtt
from benchmarks.broker.load import TOPIC_BYTES
from benchmarks.broker.shapes import PAYLOAD_BYTES
from benchmarks.overlay.gap_trace import read_traces
from benchmarks.overlay.systems import Overlay
from benchmarks.overlay.topology import Topology

from surecast.broker.admin_client import AdminError, ask
from surecast.broker.config import default_admin_socket
from surecast.broker.overlay.overlay_writing import write_overlay
from surecast.protocol.overlay.overlay_plan import OverlayPlan, Tree

__all__ = ["LIMITS", "SCHEMES", "SurecastOverlay"]

SCHEMES = {
    "surecast": ("none", "memory"),
    "surecast, disk": ("buffering", "full"),
    "surecast, bypass": ("bypass-buffering", "full"),
}
"""By name: the scheme of fault tolerance, and what survives when it is acknowledged."""

_PROMISES = {
    "none": "QoS 1 acknowledged once the home broker has handled it; remote copies are in the memory of links",
    "buffering": "QoS 1 acknowledged once the home broker has the event on disk (fsync), and so at every broker",
    "bypass-buffering": "as buffering, and events go around what has failed",
}
TRACED = "surecast, bypass"
_TRACED_BROKER = Path(__file__).with_name("traced_broker.py")
_STABLE_S = 2.1
_SETTLED_WITHIN_S = 40.0
LIMITS = {"queue_messages": 1_000_000, "queue_size": "1GiB", "subscriptions": 200_000}
"""A subscriber that falls behind loses nothing, and one client may have all filters."""


class SurecastOverlay(Overlay):
    """`surecast broker --overlay FILE --name NAME`, one process for each broker."""

    fail_over_qos = 2
    suspects_after_s = 0.5

    def __init__(self, name: str, topology: Topology, folder: Path, core: int | None, **settings: Any):
        self.name = name
        scheme, durability = SCHEMES[name]
        self.promise = _PROMISES[scheme]
        super().__init__(topology, folder, core)
        plan = OverlayPlan(topology.brokers, topology.links, (Tree(topology.tree, scheme),))
        self._file = self.folder / "overlay.yaml"
        options = {"durability": durability, "limits": LIMITS, "log": {"level": "warning"}, **settings}
        overlay = write_overlay(self._file, "bench", plan, options=options)
        for broker in topology.brokers:
            self.ports[broker] = int(overlay.mqtt_address(broker).rpartition(":")[2])
            self.link_ports[broker] = overlay.addresses(broker)[0].port
        self._trace_files = {broker: self.folder / f"{broker}.trace" for broker in topology.brokers}
        self._state = {broker: overlay.folder(broker) for broker in topology.brokers}

    def command(self, broker: str) -> list[str]:
        """One broker; one that reaches a neighbour through a relay has a file of its own with the same plan."""
        path = self._file
        if any(own == broker for own, _ in self.relays):
            data = yaml.safe_load(path.read_text(encoding="utf-8"))
            for entry in data["brokers"]:
                entry["link"] = f"{HOST}:{self.relays.get((broker, entry['name'])) or self.link_ports[entry['name']]}"
            path = self.folder / f"{broker}.yaml"
            path.write_text(yaml.safe_dump(data), encoding="utf-8")
            path.chmod(0o600)
        if self.name == TRACED:
            return [sys.executable, str(_TRACED_BROKER), str(path), broker, str(self._trace_files[broker])]
        return [sys.executable, "-m", "surecast", "broker", "--overlay", str(path), "--name", broker]

    def traces(self) -> dict[str, list[Any]]:
        """What each broker has written down about failures."""
        return read_traces(self._trace_files)

    def up(self) -> None:
        """Starts every broker, on all cores; the one that they are to work on is theirs from then on."""
        core, self._core = self._core, None
        super().up()
        self._core = core
        if core is not None:
            for process in self.processes.values():
                os.sched_setaffinity(process.pid, {core})

    def settle(self) -> None:
        """Waits until all links have been up for so long that the next failure is not taken for flapping."""
        until = time.monotonic() + _SETTLED_WITHIN_S
        while not self._is_settled():
            if time.monotonic() > until:
                raise ConnectionError(f"the links were not all up within {_SETTLED_WITHIN_S:g} s")
            time.sleep(0.1)

    def _is_settled(self) -> bool:
        try:
            links = [
                link
                for broker in self.topology.brokers
                for link in ask(default_admin_socket(self._state[broker], 0), "/links")["links"]
            ]
        except AdminError:
            return False
        return all(link["is_up"] and link["since_s"] >= _STABLE_S for link in links)

    def dialect(self, qos: int) -> Dialect:
        """MQTT."""
        return Mqtt(qos, TOPIC_BYTES, PAYLOAD_BYTES)
