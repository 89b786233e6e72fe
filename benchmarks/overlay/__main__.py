"""Overlays of brokers side by side: chains of 1, 3 and 5 brokers, and a diamond.

    python -m benchmarks.overlay --json rows.json             everything: run it again until it says that it is complete
    python -m benchmarks.overlay throughput delay    some of it: throughput, delay, recovery, retained, fail-over
    python -m benchmarks.overlay --quick                      short rounds
    python -m benchmarks.overlay --report rows.json           tables of an earlier run

All contestants of a table are up at once and are visited in turn; ratios are medians over the rounds of pairs that were
measured side by side. A run ends by itself after `--within` seconds; with `--json` the next one goes on where it ended.
Zenoh routers need the optional Python package: `pip install eclipse-zenoh`. Who is not installed is left out, and the
reason is printed.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.overlay import failover, flow, recovery, retained
from benchmarks.overlay.contestants import NAMES
from benchmarks.overlay.report import report, unsound
from benchmarks.overlay.rows import Book
from benchmarks.overlay.systems import Overlay, prefer

_EXPERIMENTS = ("throughput", "delay", "recovery", "retained", "fail-over")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options."""
    summary = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overlay", description=summary)
    parser.add_argument("experiments", nargs="*", metavar="EXPERIMENT", help=f"some of {', '.join(_EXPERIMENTS)}")
    parser.add_argument("--seconds", type=float, default=3.0, help="time of one measurement (3)")
    parser.add_argument("--rounds", type=int, default=5, help="visits of every contestant (5)")
    parser.add_argument("--faults", type=int, default=50, help="kills, and freezes, of every contestant (50)")
    parser.add_argument(
        "--filters", type=int, nargs="*", default=[10_000, 100_000], help="filters that are recovered (10000 100000)"
    )
    parser.add_argument(
        "--topics", type=int, nargs="*", default=[100_000], help="retained messages that are compared (100000)"
    )
    parser.add_argument("--systems", nargs="*", default=[], choices=NAMES, help="who takes part (all)")
    parser.add_argument("--quick", action="store_true", help="half a second, two rounds, two faults, 1,000 filters")
    parser.add_argument("--within", type=float, default=110.0, help="seconds after which nothing new is begun (110)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep every figure here, and go on from here")
    parser.add_argument("--report", type=Path, metavar="FILE", help="measure nothing, show the figures of this file")
    parser.add_argument("--nice", type=int, default=0, help="priority of all that is measured; below 0 needs root")
    parser.add_argument("--again", action="store_true", help="measure again what has failed")
    parser.add_argument("--folder", type=Path, help="where brokers keep their state: the disk that is measured")
    options = parser.parse_args(arguments)
    for name in options.experiments:
        if name not in _EXPERIMENTS:
            parser.error(f"{name} is no experiment; choose from {', '.join(_EXPERIMENTS)}")
    if options.report is not None and not options.report.exists():
        parser.error(f"there is no file {options.report}")
    if options.quick:
        options.seconds, options.rounds, options.faults, options.filters = 0.5, 2, 2, [1_000]
        options.topics = [1_000]
    return options


def measure(options: argparse.Namespace, book: Book) -> int:
    """Measures what is missing; returns how many measurements are still missing."""
    missing = 0
    for name in options.experiments or _EXPERIMENTS:
        if name == "recovery":
            wanted = recovery.tasks(options.rounds, options.filters, options.systems)
        elif name == "retained":
            wanted = retained.tasks(options.rounds, options.topics, options.systems)
        elif name == "fail-over":
            wanted = failover.tasks(options.faults, options.systems)
        else:
            wanted = flow.tasks(name, options.rounds, options.systems)
        print(
            f"{name}: {len(book.open_tasks(wanted))} of {len(wanted)} measurements to do; "
            f"load average {os.getloadavg()[0]:.1f}",
            file=sys.stderr, flush=True,
        )  # fmt: skip
        with tempfile.TemporaryDirectory(dir=options.folder) as place:
            if name == "recovery":
                recovery.measure(book, wanted, Path(place))
            elif name == "retained":
                retained.measure(book, wanted, Path(place))
            elif name == "fail-over":
                failover.measure(book, wanted, Path(place))
            else:
                flow.measure(book, wanted, Path(place), options.seconds)
        missing += len(book.open_tasks(wanted))
    return missing


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints tables; 1 if something was lost or came out of order although nothing failed."""
    options = parse(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # brokers are ended with their benchmark
    Overlay.nice = options.nice
    prefer(os.getpid(), options.nice)
    book = Book(options.report or options.json, options.within, options.again)
    if options.report is None:
        missing = measure(options, book)
        if missing:
            again = "run the same command again" if options.json else "use --json FILE to go on, or a longer --within"
            print(f"{missing} measurements are missing: {again}\n")
        else:
            print("complete\n")
    report(book.rows)
    problems = unsound(book.rows)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
