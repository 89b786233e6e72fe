"""Who takes part in what, and how each is started."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from benchmarks.broker.contestants import UnavailableError
from benchmarks.overlay.surecast_overlay import SCHEMES, SurecastOverlay
from benchmarks.overlay.systems import MosquittoBridges, NatsLeafs, Overlay, ZenohRouters
from benchmarks.overlay.topology import TOPOLOGIES, Topology

__all__ = ["FAIL_OVER", "KINDS", "NAMES", "RECOVERY", "Stable", "start"]

KINDS: dict[str, tuple[int, tuple[str, ...]]] = {
    "q0": (0, ("surecast", "mosquitto", "nats", "zenoh")),
    "q0-singles": (0, ("surecast", "mosquitto", "nats", "zenoh")),
    "q1-memory": (1, ("surecast", "mosquitto")),
    "q1-disk": (1, ("surecast, disk", "mosquitto, disk")),
}
"""By kind: the QoS, and who has it. In `singles` every event is a write of its own, elsewhere 128 are."""

FAIL_OVER: dict[str, tuple[str, ...]] = {
    "kill": ("surecast, bypass", "zenoh, gossip", "zenoh"),
    "freeze": ("surecast, bypass", "zenoh, gossip", "zenoh"),
}
RECOVERY = ("surecast", "nats", "zenoh", "mosquitto")
NAMES = tuple(dict.fromkeys([
    *(name for _, names in KINDS.values() for name in names),
    *(name for names in FAIL_OVER.values() for name in names),
]))  # fmt: skip

_AT_ONCE = 8
"""Overlays that start at the same time."""


def make(name: str, topology: Topology, folder: Path, core: int | None) -> Overlay:
    if name in SCHEMES:
        return SurecastOverlay(name, topology, folder, core)
    if name == "nats":
        return NatsLeafs(topology, folder, core)
    if name.startswith("mosquitto"):
        return MosquittoBridges(name, topology, folder, core)
    if name.startswith("zenoh"):
        return ZenohRouters(name, topology, folder, core)
    raise UnavailableError(f"there is no contestant {name}")


def start(
    name: str, topology: Topology, folder: Path, core: int | None, change: Callable[[Overlay], None] = lambda _: None
) -> Overlay:
    """Starts an overlay; UnavailableError says why it cannot take part. `change` sees it before its brokers start."""
    overlay = make(name, topology, folder, core)
    change(overlay)
    overlay.up()
    return overlay


class Stable:
    """The overlays of one table, all up at once."""

    def __init__(self, folder: Path, core: int | None):
        self._folder, self._core = folder, core
        self._stack = ExitStack()
        self._up: dict[tuple[str, str], Overlay] = {}
        self.absent: dict[str, str] = {}
        """Why somebody does not take part."""

    def __enter__(self) -> Stable:
        """Begins with none."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Ends all."""
        self._stack.close()

    def bring_up(self, wanted: Iterable[tuple[str, str]]) -> None:
        """Starts overlays by name and topology, and says who cannot take part and why."""
        topologies = {topology.name: topology for topology in TOPOLOGIES}
        pairs = [pair for pair in dict.fromkeys(wanted) if pair[0] not in self.absent]
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            coming = [
                (name, shape, threads.submit(start, name, topologies[shape], self._folder, self._core))
                for name, shape in pairs
            ]
        for name, shape, future in coming:
            try:
                overlay = future.result()
            except UnavailableError as error:
                if name not in self.absent:
                    print(f"{name} is left out: {error}", flush=True)
                self.absent[name] = str(error)
                continue
            self._stack.callback(overlay.close)
            self._up[name, shape] = overlay
        count = sum(len(overlay.processes) for overlay in self._up.values())
        print(f"  {len(self._up)} overlays of {count} broker processes are up", file=sys.stderr, flush=True)

    def get(self, name: str, shape: str) -> Overlay | None:
        """An overlay that is up."""
        return self._up.get((name, shape))
