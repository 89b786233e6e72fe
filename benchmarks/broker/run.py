"""Surecast beside Mosquitto, NATS and amqtt, all in one run.

    python -m benchmarks.broker                      the whole table: about an hour
    python -m benchmarks.broker --quick              short rounds
    python -m benchmarks.broker --shapes fan-in/q1   only the rows whose name contains this

All brokers are up at once, pinned to one core; the load generator has another. In every round each row visits the
brokers one after the other, so that what disturbs the machine disturbs neighbours alike, and ratios are medians over
the rounds of pairs measured side by side. A broker that is not installed is left out, and the reason is printed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.broker.contestants import HOST, NAMES, PROMISES, Contestant, UnavailableError, start
from benchmarks.broker.load import Outcome, run_cell
from benchmarks.broker.shapes import PAYLOAD_BYTES, RATE_PER_S, SPREAD_BYTES, Cell, choose

Results = dict[tuple[str, str], list[Outcome | None]]
"""By row and broker, one outcome for each round; None where the broker failed."""


def measure(
    contestants: Sequence[Contestant], cells: Sequence[Cell], seconds: float, rounds: int
) -> tuple[Results, list[str]]:
    """Visits all; the outcomes, and what went wrong."""
    results: Results = {}
    problems: list[str] = []
    for number in range(rounds):
        for cell in cells:
            for contestant in contestants:
                dialect = contestant.dialect(cell)
                if dialect is None:
                    continue
                outcome: Outcome | None = None
                try:
                    outcome = run_cell(cell, dialect, (HOST, contestant.port), seconds, contestant.processor_s)
                except OSError as error:
                    problems.append(f"{cell.name}, {contestant.name}, round {number + 1}: {error}")
                results.setdefault((cell.name, contestant.name), []).append(outcome)
                if outcome is not None and not outcome.is_sound:
                    problems.append(
                        f"{cell.name}, {contestant.name}, round {number + 1}: of {outcome.sent} messages "
                        f"{outcome.lost} deliveries lost, {outcome.disordered} reads out of order, "
                        f"{outcome.unacknowledged} not acknowledged"
                    )
        print(f"round {number + 1} of {rounds} done", file=sys.stderr, flush=True)
    return results, problems


def median_of(outcomes: Sequence[Outcome | None], name: str, share: float = 0.0) -> float:
    """The median over the rounds of one figure."""
    values = [figure(outcome, name, share) for outcome in outcomes if outcome is not None]
    values = [value for value in values if not math.isnan(value)]
    return statistics.median(values) if values else math.nan


def figure(outcome: Outcome, name: str, share: float) -> float:
    value: float = outcome.latency_us(share) if name == "latency" else getattr(outcome, name)
    return value


def ratio(ours: Sequence[Outcome | None], theirs: Sequence[Outcome | None], name: str, share: float = 0.0) -> float:
    """The median of the ratios of rounds."""
    values = [
        figure(a, name, share) / figure(b, name, share)
        for a, b in zip(ours, theirs, strict=True)
        if a is not None and b is not None
    ]
    values = [value for value in values if not math.isnan(value)]
    return statistics.median(values) if values else math.nan


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table as Markdown."""
    print("| " + " | ".join(header) + " |")
    print("|" + "---|" * len(header))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


def show(value: float, form: str = ".2f") -> str:
    return "-" if math.isnan(value) else format(value, form)


def report(results: Results, cells: Sequence[Cell], names: Sequence[str]) -> None:
    """Prints the figures."""
    others = [name for name in names if name != "surecast"]
    ratios = [f"/ {other}" for other in others] if "surecast" in names else []
    print(
        f"Processor time of the broker for one delivery, us; payload {PAYLOAD_BYTES} bytes, or up to "
        f"{PAYLOAD_BYTES + SPREAD_BYTES - 1} in rows that vary; ratios of Surecast\n"
    )
    rows = []
    for cell in cells:
        row = [cell.name, *(show(median_of(results.get((cell.name, name), []), "processor_us")) for name in names)]
        for other in others if ratios else ():
            ours, theirs = results.get((cell.name, "surecast"), []), results.get((cell.name, other), [])
            row.append(show(ratio(ours, theirs, "processor_us")) if theirs else "-")
        rows.append(row)
    table(["row", *names, *ratios], rows)
    full = [cell for cell in cells if not cell.rate_per_s]
    if full:
        print("Deliveries in a second, thousands (in brackets the share of its core that the broker used)\n")
        rows = []
        for cell in full:
            row = [cell.name]
            for name in names:
                outcomes = results.get((cell.name, name), [])
                busy = [o.processor_s / o.elapsed_s for o in outcomes if o is not None]
                rate = median_of(outcomes, "rate_per_s") / 1e3
                row.append(f"{rate:.0f} ({statistics.median(busy):.0%})" if busy else "-")
            rows.append(row)
        table(["row", *names], rows)
    timed = [cell for cell in cells if cell.rate_per_s]
    if timed:
        print(
            f"Time from the publisher's write to the subscriber's read at {RATE_PER_S:,.0f} messages/s, us: p50 / p99\n"
        )
        rows = []
        for cell in timed:
            row = [cell.name]
            for name in names:
                outcomes = results.get((cell.name, name), [])
                p50, p99 = median_of(outcomes, "latency", 0.5), median_of(outcomes, "latency", 0.99)
                row.append(f"{show(p50, '.0f')} / {show(p99, '.0f')}")
            for other in others if ratios else ():
                ours, theirs = results.get((cell.name, "surecast"), []), results.get((cell.name, other), [])
                row.append(show(ratio(ours, theirs, "latency", 0.5)) if theirs else "-")
            rows.append(row)
        table(["row", *names, *(f"p50 {one}" for one in ratios)], rows)


def save(path: Path, results: Results) -> None:
    """Writes every figure of every round as JSON."""
    rows = [
        {
            "row": row,
            "broker": name,
            "round": number + 1,
            "processor_us": outcome.processor_us,
            "rate_per_s": outcome.rate_per_s,
            "busy": outcome.processor_s / outcome.elapsed_s,
            "generator_busy": outcome.own_processor_s / outcome.elapsed_s,
            "p50_us": outcome.latency_us(0.5),
            "p99_us": outcome.latency_us(0.99),
            "sound": outcome.is_sound,
        }
        for (row, name), outcomes in results.items()
        for number, outcome in enumerate(outcomes)
        if outcome is not None
    ]
    path.write_text(json.dumps(rows, indent=1), encoding="utf-8")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.broker", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=3.0, help="time of one measurement (3)")
    parser.add_argument("--rounds", type=int, default=5, help="visits of every row (5)")
    parser.add_argument("--shapes", nargs="*", default=[], metavar="TEXT", help="only rows whose name contains this")
    parser.add_argument("--brokers", nargs="*", default=list(NAMES), choices=NAMES, help="who takes part (all)")
    parser.add_argument("--quick", action="store_true", help="half a second and two rounds")
    parser.add_argument("--nats", metavar="PATH", help="where nats-server is, if not on the path")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure to this file")
    options = parser.parse_args(arguments)
    if options.quick:
        options.seconds, options.rounds = 0.5, 2
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the comparison; 1 if a message was lost or came out of order."""
    options = parse(arguments)
    cells = choose(options.shapes)
    cores = sorted(os.sched_getaffinity(0))
    broker_core, own_core = (cores[0], cores[-1]) if len(cores) > 1 else (None, None)
    names: list[str] = []
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        contestants = []
        for name in options.brokers:
            try:
                contestant = start(name, Path(folder), broker_core, options.nats)
            except UnavailableError as error:
                print(f"{name} is left out: {error}")
                continue
            stack.callback(contestant.stop)
            contestants.append(contestant)
            names.append(name)
            print(f"{name}: {PROMISES[name]}")
        print(
            f"\n{options.rounds} rounds of {options.seconds} s; broker on core {broker_core}, load on core {own_core}\n"
        )
        if own_core is not None:
            os.sched_setaffinity(0, {own_core})
        results, problems = measure(contestants, cells, options.seconds, options.rounds)
    report(results, cells, names)
    if options.json is not None:
        save(options.json, results)
    for problem in problems:
        print(problem)
    print(f"{len(problems)} measurements with loss, disorder or failure")
    return 1 if any(", surecast," in problem for problem in problems) else 0


if __name__ == "__main__":
    sys.exit(main())
