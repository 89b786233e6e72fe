"""Two versions of Surecast side by side: does a change make the broker or a group slower?

    python -m benchmarks.before_after --before DIR          DIR is a checkout of the version before
    python -m benchmarks.before_after --before DIR --quick  short rounds

Both versions of the single broker and of a group of three replicas are up at once and visited in turn, so that what
disturbs the machine disturbs neighbours alike. A ratio is the median over the rounds of pairs measured one after the
other; a processor time below 1.00 means that this checkout needs less than the one before.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.broker.contestants import HOST, Contestant, UnavailableError, processor_s, start_process, surecast
from benchmarks.broker.load import Outcome as CellOutcome
from benchmarks.broker.load import run_cell
from benchmarks.broker.run import table
from benchmarks.broker.shapes import choose
from benchmarks.group.load import Load, Tongue
from benchmarks.group.measure import Row, pick, visit
from benchmarks.group.systems import SETTLE_S, System
from benchmarks.group.tongues import Spoken

from surecast.broker.free_ports import free_port

ROOT = Path(__file__).resolve().parents[1]
SHAPES = ["/burst", "/single"]
LOADS = (
    Load("QoS 0 subscriber", 50, 16),
    Load("QoS 0, varying", 50, 16, varying=True),
    Load("QoS 1 subscriber", 50, 16, subscribe_qos=1),
    Load("QoS 1, persistent", 50, 16, subscribe_qos=1, persistent=True),
    Load("window 1", 50, 1),
    Load("5,000/s", 50, 1, 5_000.0),
)

# Runs inside the version that is measured, so that it writes the group file that its own replicas read.
_GROUP = """
import json, sys
from pathlib import Path
from surecast.broker.cluster import LocalGroup, write_group
options = {"sync": "none", "log": {"level": "error"}, "limits": {"queue_messages": 1_000_000, "queue_size": "1GiB"}}
with LocalGroup(write_group(Path(sys.argv[1]), 3, options=options)) as group:
    group.start()
    group.wait_ready(90.0)
    pids = {number: process.pid for number, process in group.processes.items()}
    print(json.dumps({"pids": pids, "addresses": group.addresses}), flush=True)
    for line in sys.stdin:
        if line == "ready\\n":
            group.wait_ready(30.0)
        print(group.leader(), flush=True)
"""


class GroupOf:
    """A group of three replicas of one checkout."""

    promise = "acknowledged once the operating systems of a majority have it"

    def __init__(self, name: str, checkout: Path, folder: Path):
        self.name = name
        self.leader = 0
        environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
        self._driver = subprocess.Popen(
            [sys.executable, "-c", _GROUP, str(folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=checkout,
        )  # fmt: skip
        answer = json.loads(self._read() or "null")
        if answer is None:
            raise UnavailableError(f"{name}: its group did not start")
        self._pids: dict[int, int] = {int(number): pid for number, pid in answer["pids"].items()}
        self._places = [(host, int(port)) for host, _, port in (one.rpartition(":") for one in answer["addresses"])]

    def _read(self) -> str:
        assert self._driver.stdout is not None
        return self._driver.stdout.readline()

    def _ask(self, question: str) -> int:
        assert self._driver.stdin is not None
        self._driver.stdin.write(question + "\n")
        self._driver.stdin.flush()
        return int(self._read() or 0)

    def entry(self) -> tuple[str, int]:
        """Returns where the replica that leads takes clients."""
        until = time.monotonic() + 30.0
        while not (leader := self._ask("leader")):
            if time.monotonic() > until:
                raise UnavailableError(f"{self.name}: nobody leads")
            time.sleep(0.05)
        self.leader = leader
        return self._places[sorted(self._pids).index(leader)]

    def tongue(self, load: Load) -> Tongue:
        """MQTT."""
        return Spoken(load)

    def processor_s(self) -> list[float]:
        """The processor time so far of each replica, the one that leads first."""
        return [processor_s(pid) for pid in (self.busiest(), *self.others())]

    def busiest(self) -> int:
        """The process of the replica that leads."""
        return self._pids[self.leader]

    def others(self) -> list[int]:
        """The processes of the other replicas."""
        return [pid for number, pid in sorted(self._pids.items()) if number != self.leader]

    def freeze(self) -> None:
        """Stops all replicas, so that their heartbeats take no time from others."""
        for pid in self._pids.values():
            os.kill(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Lets them go on, and waits until one leads."""
        for pid in self._pids.values():
            os.kill(pid, signal.SIGCONT)
        time.sleep(SETTLE_S)
        self._ask("ready")

    def close(self) -> None:
        """Ends it."""
        for pid in self._pids.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        assert self._driver.stdin is not None
        self._driver.stdin.close()
        self._driver.wait(60.0)


def brokers(before: Path, seconds: float, rounds: int, shapes: list[str], folder: Path) -> None:
    """Measures the single broker of both versions and prints the ratios."""
    cores = sorted(os.sched_getaffinity(0))
    contestants: list[Contestant] = []
    with contextlib.ExitStack() as stack:
        for name, checkout in (("after", ROOT), ("before", before)):
            port, place = free_port(), folder / name
            place.mkdir()
            command = ["env", f"PYTHONPATH={checkout / 'src'}", *surecast(place, port)]
            process = start_process(command, port, cores[0], place / "log")
            contestants.append(Contestant("surecast", port, process))
            stack.callback(contestants[-1].stop)
        os.sched_setaffinity(0, {cores[-1]})
        stack.callback(os.sched_setaffinity, 0, cores)
        cells = choose(shapes)
        pairs: dict[str, list[tuple[CellOutcome, CellOutcome]]] = {cell.name: [] for cell in cells}
        for number in range(rounds):
            for cell in cells:
                found = {}
                order = contestants if number % 2 else contestants[::-1]  # whoever is second finds warmer caches
                for contestant in order:
                    dialect = contestant.dialect(cell)
                    assert dialect is not None
                    address = (HOST, contestant.port)
                    found[contestant.port] = run_cell(cell, dialect, address, seconds, contestant.processor_s)
                pairs[cell.name].append((found[contestants[0].port], found[contestants[1].port]))
            print(f"broker: round {number + 1} of {rounds} done", file=sys.stderr, flush=True)
    print("\nThe single broker: processor time of one delivery, us\n")
    rows = []
    for name, each in pairs.items():
        ratios = [after.processor_us / before.processor_us for after, before in each]
        rows.append([
            name,
            f"{statistics.median(b.processor_us for _, b in each):.3f}",
            f"{statistics.median(a.processor_us for a, _ in each):.3f}",
            _spread(ratios),
        ])  # fmt: skip
    table(["row", "before", "after", "ratio (quartiles)"], rows)


def groups(before: Path, seconds: float, rounds: int, folder: Path) -> None:
    """Measures a group of both versions and prints the ratios."""
    rows: list[Row] = []
    with contextlib.ExitStack() as stack:
        systems: list[System] = []
        for name, checkout in (("after", ROOT), ("before", before)):
            group: Any = GroupOf(name, checkout, folder / f"group-{name}")
            stack.callback(group.close)
            systems.append(group)
        visit("before and after", [(load, systems) for load in LOADS], seconds, rounds, rows.append)
    print("\nThree replicas: acknowledged publications in a second, and processor time of one over all replicas\n")
    lines = []
    for load in LOADS:
        after, past = (pick(rows, load=load.name, system=name) for name in ("after", "before"))
        if not after or not past:
            continue
        by_round = {row["round"]: row for row in past}
        pairs = [(row, by_round[row["round"]]) for row in after if row["round"] in by_round]
        lines.append([
            load.name,
            f"{statistics.median(b['rate_per_s'] for _, b in pairs):,.0f}",
            f"{statistics.median(a['rate_per_s'] for a, _ in pairs):,.0f}",
            _spread([a["rate_per_s"] / b["rate_per_s"] for a, b in pairs]),
            _spread([a["cpu_us"] / b["cpu_us"] for a, b in pairs]),
        ])  # fmt: skip
    table(["load", "before /s", "after /s", "rate, ratio", "processor time, ratio"], lines)
    unsound = [row for row in rows if not row["sound"]]
    print(f"{len(unsound)} of {len(rows)} measurements with loss, disorder or missing acknowledgements")


def _spread(ratios: Sequence[float]) -> str:
    if len(ratios) < 2:
        return f"{ratios[0]:.3f}"
    low, middle, high = statistics.quantiles(ratios, n=4)
    return f"{middle:.3f} ({low:.3f} to {high:.3f})"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures both and prints the ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--before", type=Path, required=True, metavar="DIR", help="a checkout of the version before")
    parser.add_argument("--seconds", type=float, default=1.5, help="time of one measurement (1.5)")
    parser.add_argument("--rounds", type=int, default=7, help="visits of every row (7)")
    parser.add_argument(
        "--shapes", nargs="*", default=SHAPES, help="rows of the single broker whose name contains this"
    )
    parser.add_argument("--only", choices=("broker", "group"), help="measure one of the two")
    parser.add_argument("--quick", action="store_true", help="half a second and two rounds")
    options = parser.parse_args(arguments)
    if not (options.before / "src" / "surecast").is_dir():
        parser.error(f"--before {options.before}: there is no src/surecast in it; name the root of a checkout")
    if options.quick:
        options.seconds, options.rounds = 0.5, 2
    with tempfile.TemporaryDirectory() as folder:
        if options.only != "group":
            brokers(options.before.resolve(), options.seconds, options.rounds, options.shapes, Path(folder))
        if options.only != "broker":
            groups(options.before.resolve(), options.seconds, options.rounds, Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
