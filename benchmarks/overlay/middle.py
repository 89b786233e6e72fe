"""A group in the middle of a chain of three brokers: throughput, and the gap when its leader is killed.

    python -m benchmarks.overlay.middle [--rounds 3] [--seconds 2] [--kills 5] [--json rows.json]

Side by side and visited in turn: the middle a group of three replicas, the middle one process, and Mosquitto bridges.
Each killed process is started again at once, as a supervisor would. QoS 1 everywhere; buffering, with state on disk.
What was acknowledged must arrive: the exit code is 1 if anything of it was lost with Surecast.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.broker.contestants import HOST, UnavailableError, processor_s
from benchmarks.broker.dialects import Dialect, Mqtt
from benchmarks.broker.load import TOPIC_BYTES, run_cell
from benchmarks.broker.shapes import PAYLOAD_BYTES, Cell
from benchmarks.overlay.clients import clients
from benchmarks.overlay.steady import Steady, quantile
from benchmarks.overlay.surecast_overlay import LIMITS
from benchmarks.overlay.systems import TOPIC, MosquittoBridges
from benchmarks.overlay.topology import CHAINS

from surecast.broker.admin_client import AdminError
from surecast.broker.overlay.local_overlay import LocalOverlay
from surecast.broker.overlay.overlay_writing import write_overlay
from surecast.protocol.overlay.overlay_plan import OverlayPlan, Tree

CHAIN = CHAINS[1]
MIDDLE = CHAIN.brokers[1]
_WINDOW = 4_096
_BURST = 128
_RATE_PER_S = 500.0
_BEFORE_S, _AFTER_S, _STEP_S, _MOST_S = 0.5, 1.0, 0.25, 20.0
_LATE_S = 3.0
_SETTLED_S = 40.0


class Chain(ABC):
    """Three brokers in a row, of which the middle one is killed."""

    name: str

    @abstractmethod
    def place(self, broker: str) -> tuple[str, int]:
        """Returns the address for clients."""

    @abstractmethod
    def processor_s(self) -> float:
        """Returns the processor time so far of all processes."""

    @abstractmethod
    def kill_and_restart(self) -> str:
        """Kills the middle, of a group its leader, and starts it again; returns who that was."""

    @abstractmethod
    def settle(self) -> None:
        """Waits until all links are there, and for a group all of its replicas."""

    @abstractmethod
    def close(self) -> None:
        """Ends all processes."""


class SurecastChain(Chain):
    """Surecast's brokers, of which the middle one may be a group."""

    def __init__(self, folder: Path, replicas: int, durability: str):
        self.name = f"group of {replicas}" if replicas > 1 else "one process"
        self._replicas = replicas
        plan = OverlayPlan(CHAIN.brokers, CHAIN.links, (Tree(CHAIN.tree, "buffering"),))
        options = {"durability": durability, "limits": LIMITS, "log": {"level": "warning"}}
        path = folder / f"chain-{replicas}" / "overlay.yaml"
        groups = {MIDDLE: replicas} if replicas > 1 else {}
        write_overlay(path, "bench", plan, options=options, groups=groups)
        self._overlay = LocalOverlay(path)
        try:
            self._overlay.start()
            self._overlay.wait_ready()
        except BaseException:
            self._overlay.close()
            raise

    def place(self, broker: str) -> tuple[str, int]:
        return HOST, int(self._overlay.file.mqtt_address(broker).rpartition(":")[2])

    def processor_s(self) -> float:
        return sum(processor_s(process.pid) for process in self._overlay.processes.values())

    def kill_and_restart(self) -> str:
        victim = self._overlay.leader(MIDDLE) if self._replicas > 1 else MIDDLE
        assert victim is not None
        self._overlay.kill(victim)
        self._overlay.start(victim)
        return victim

    def settle(self) -> None:
        self._overlay.wait_ready(_SETTLED_S)
        until = time.monotonic() + _SETTLED_S
        while not self._has_settled():
            if time.monotonic() > until:
                raise ConnectionError(f"{self.name}: the links were not all up within {_SETTLED_S:g} s")
            time.sleep(0.1)

    def _has_settled(self) -> bool:
        """Whether links have been up for so long that the next failure is not taken for flapping."""
        try:
            answers = [self._overlay.ask(broker, "/links") for broker in CHAIN.brokers]
        except AdminError:
            return False
        return all(link["is_up"] and link["since_s"] > 2.1 for answer in answers for link in answer["links"])

    def close(self) -> None:
        self._overlay.close()


class MosquittoChain(Chain):
    """Mosquitto's brokers with bridges, whose state is on disk once a second."""

    name = "mosquitto"

    def __init__(self, folder: Path):
        self._bridges = MosquittoBridges("mosquitto, disk", CHAIN, folder, None)
        self._bridges.up()

    def place(self, broker: str) -> tuple[str, int]:
        return self._bridges.place(broker)

    def processor_s(self) -> float:
        return self._bridges.processor_s()

    def kill_and_restart(self) -> str:
        self._bridges.kill(MIDDLE)()
        self._bridges.restart(MIDDLE)
        return MIDDLE

    def settle(self) -> None:
        self._bridges.settle()

    def close(self) -> None:
        self._bridges.close()


def _dialect() -> Dialect:
    return Mqtt(1, TOPIC_BYTES, PAYLOAD_BYTES)


def throughput(chain: Chain, seconds: float) -> dict[str, Any]:
    """Returns how many events pass the chain in a second with a window of them on their way, and what each costs."""
    chain.settle()
    cell = Cell("middle", "burst", 1, 1, 1, 1, _BURST, _WINDOW, varying=True)
    entry, leave = chain.place(CHAIN.entry), chain.place(CHAIN.exit)
    outcome = run_cell(cell, _dialect(), entry, seconds, chain.processor_s, subscribers_at=leave)
    return {"rate_per_s": outcome.rate_per_s, "cpu_us": outcome.processor_us, "acknowledged_lost": outcome.lost}


def kill(chain: Chain, number: int) -> dict[str, Any]:
    """Returns what a subscriber notices of the death of the middle: events flow at a rate before, while and after."""
    chain.settle()
    feed, sink = clients(_dialect(), 1, chain.place(CHAIN.entry), chain.place(CHAIN.exit), TOPIC, mark=f"-{number}")
    steady = Steady(feed, sink, _RATE_PER_S)
    try:
        steady.await_way()
        steady.run(_BEFORE_S)
        begin = time.perf_counter()
        victim = chain.kill_and_restart()
        after = steady.first + steady.count
        while time.perf_counter() - begin < _MOST_S:
            steady.run(_STEP_S)
            if any(event > after for _, event in steady.arrivals[-20:]):
                break
        steady.run(_AFTER_S)
        end = time.perf_counter()
        steady.drain(_LATE_S)
    finally:
        steady.close()
    first, last = steady.longest_gap(begin, end)
    lost, acknowledged_lost = steady.lost()
    return {
        "victim": victim,
        "gap_s": last - first,
        "p50_s": quantile(steady.delays_s(), 0.5),
        "sent": steady.count,
        "lost": lost,
        "acknowledged_lost": acknowledged_lost,
        "doubled": steady.doubled(),
    }


def measure(arguments: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Visits all chains in turn; returns a row for each visit."""
    rows: list[dict[str, Any]] = []
    with ExitStack() as stack:
        chains: list[Chain] = [SurecastChain(folder, size, arguments.durability) for size in (3, 1)]
        try:
            chains.append(MosquittoChain(folder))
        except UnavailableError as error:
            print(f"mosquitto is left out: {error}", flush=True)
        for chain in chains:
            stack.callback(chain.close)
        visits = [("throughput", number) for number in range(arguments.rounds)]
        visits += [("kill", number) for number in range(arguments.kills)]
        for what, number in visits:
            for chain in chains:
                figures = throughput(chain, arguments.seconds) if what == "throughput" else kill(chain, number)
                load = os.getloadavg()[0]
                rows.append({"what": what, "chain": chain.name, "round": number, "load": load, **figures})
                print(f"{what} {number}, {chain.name}: {_said(figures)}, load {load:.1f}", file=sys.stderr, flush=True)
    return rows


def _said(figures: dict[str, Any]) -> str:
    if "gap_s" in figures:
        return (
            f"gap {1e3 * figures['gap_s']:,.0f} ms, {figures['acknowledged_lost']} acknowledged of {figures['sent']} "
            f"lost, {figures['doubled']} doubled"
        )
    return f"{figures['rate_per_s']:,.0f} events/s, {figures['cpu_us']:.1f} us each"


def report(rows: Sequence[dict[str, Any]]) -> None:
    """Prints the medians, and the ratios of pairs that were measured side by side."""
    head = ["middle", "events/s", "us each", "rate / one process", "gap, median", "longest", "events"]
    head += ["acknowledged lost", "doubled"]
    print(f"| {' | '.join(head)} |\n{'|---' * len(head)}|")
    alone = {row["round"]: row for row in rows if row["what"] == "throughput" and row["chain"] == "one process"}
    for name in dict.fromkeys(row["chain"] for row in rows):
        own = [row for row in rows if row["chain"] == name]
        flows = [row for row in own if row["what"] == "throughput"]
        kills = [row for row in own if row["what"] == "kill"]
        ratios = [row["rate_per_s"] / alone[row["round"]]["rate_per_s"] for row in flows]
        cells = [name]
        cells += [f"{_median(flows, 'rate_per_s'):,.0f}", f"{_median(flows, 'cpu_us'):.1f}"] if flows else ["", ""]
        cells += [f"{statistics.median(ratios):.2f}"] if ratios else [""]
        longest_s = max((row["gap_s"] for row in kills), default=0.0)
        cells += [f"{1e3 * _median(kills, 'gap_s'):,.0f} ms", f"{1e3 * longest_s:,.0f} ms"] if kills else ["", ""]
        cells += [f"{sum(row[field] for row in kills):,}" for field in ("sent", "acknowledged_lost", "doubled")]
        print(f"| {' | '.join(cells)} |")


def _median(rows: Sequence[dict[str, Any]], field: str) -> float:
    return statistics.median(row[field] for row in rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints a table; 1 if Surecast lost something that was acknowledged."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="measurements of throughput of each (3)")
    parser.add_argument("--seconds", type=float, default=2.0, help="time of one of them (2)")
    parser.add_argument("--kills", type=int, default=5, help="kills of each (5)")
    parser.add_argument("--durability", choices=("full", "os"), default="full", help="fsync, or not (full)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every row here")
    parser.add_argument("--folder", type=Path, help="where brokers keep their state: the disk that is measured")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=options.folder) as place:
        rows = measure(options, Path(place))
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    report(rows)
    return int(any(row["acknowledged_lost"] for row in rows if row["chain"] != "mosquitto"))


if __name__ == "__main__":
    sys.exit(main())
