"""Replicated brokers measured on this machine.

    python -m benchmarks.group                      everything: about 25 minutes
    python -m benchmarks.group goals paper          some of it: goals, paper, variants, delay, order, kills, stopped
    python -m benchmarks.group goals --loads varying "5,000/s"   some of its rows
    python -m benchmarks.group --quick              short rounds
    python -m benchmarks.group --report rows.json   tables and pictures of an earlier run

All systems of an experiment are up at once and visited in turn, and ratios are medians over the rounds of pairs that
were measured side by side. The process that clients are connected to has one core, publishers and subscriber another;
the other replicas go where there is room. Groups whose turn it is not are stopped, since their heartbeats would take
time from the others.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.group.experiments import delay, goals, order, paper, variants
from benchmarks.group.faults import fail_over, stopped_follower
from benchmarks.group.measure import Row
from benchmarks.group.report import draw, report

_EXPERIMENTS = ("goals", "paper", "variants", "delay", "order", "kills", "stopped")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.group", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("experiments", nargs="*", metavar="EXPERIMENT", help=f"some of {', '.join(_EXPERIMENTS)}")
    parser.add_argument("--seconds", type=float, default=3.0, help="time of one measurement (3)")
    parser.add_argument("--rounds", type=int, default=5, help="visits of every system (5)")
    parser.add_argument(
        "--loads", nargs="*", default=[""], metavar="TEXT", help="goals: loads whose name contains this"
    )
    parser.add_argument("--kills", type=int, default=12, help="leaders killed, for each kind of durability (12)")
    parser.add_argument("--quick", action="store_true", help="half a second, two rounds and two kills")
    parser.add_argument("--nats", metavar="PATH", help="where nats-server is, if not on the path")
    parser.add_argument("--json", type=Path, metavar="FILE", help="add every figure to this file")
    parser.add_argument("--report", type=Path, metavar="FILE", help="measure nothing, show the figures of this file")
    parser.add_argument("--pictures", type=Path, metavar="FOLDER", help="draw pictures into this folder")
    parser.add_argument("--folder", type=Path, help="where systems keep their state: the disk that is measured")
    options = parser.parse_args(arguments)
    for name in options.experiments:
        if name not in _EXPERIMENTS:
            parser.error(f"{name} is no experiment; choose from {', '.join(_EXPERIMENTS)}")
    if options.quick:
        options.seconds, options.rounds, options.kills = 0.5, 2, 2
    return options


def measure(options: argparse.Namespace, rows: list[Row]) -> None:
    """Runs the experiments that are asked for; rows are kept as they come."""
    nats = options.nats or shutil.which("nats-server")
    seconds, rounds = options.seconds, options.rounds

    def keep(row: Row) -> None:
        rows.append(row)
        if options.json is not None:
            options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")

    for name in options.experiments or _EXPERIMENTS:
        with tempfile.TemporaryDirectory(dir=options.folder) as place:
            folder = Path(place)
            print(f"{name}: {rounds} rounds of {seconds:g} s; load average {os.getloadavg()[0]:.1f}", flush=True)
            if name == "goals":
                goals(folder, seconds, rounds, keep, nats, options.loads)
            elif name == "paper":
                paper(folder, seconds, rounds, keep)
            elif name == "variants":
                variants(folder, seconds, rounds, keep)
            elif name == "delay":
                delay(folder, seconds, rounds, keep)
            elif name == "order":
                order(folder, seconds, rounds, keep)
            elif name == "kills":
                for sync in ("none", "majority"):
                    fail_over(folder, options.kills, sync, keep)
            else:
                stopped_follower(folder, 5 * seconds, keep)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, prints tables and draws pictures; 1 if something was lost or came out of order."""
    options = parse(arguments)
    rows: list[Row] = []
    source = options.report or options.json
    if source is not None and source.exists():
        rows = json.loads(source.read_text(encoding="utf-8"))
    if options.report is None:
        measure(options, rows)
    report(rows)
    if options.pictures is not None:
        draw(rows, options.pictures)
    unsound = [row for row in rows if row.get("sound") is False]
    for row in unsound:
        print(
            f"{row['experiment']}, {row.get('load', '')}, {row['system']}: {row.get('lost')} lost, "
            f"{row.get('disordered')} out of order, {row.get('unacknowledged')} not acknowledged"
        )
    return 1 if unsound else 0


if __name__ == "__main__":
    sys.exit(main())
