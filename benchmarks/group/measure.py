"""Visits systems in turn, and keeps what was measured as flat rows."""

from __future__ import annotations

import math
import os
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from benchmarks.broker.contestants import UnavailableError
from benchmarks.group.load import Load, Outcome, run_load
from benchmarks.group.systems import Replicated, System

__all__ = ["Row", "medians", "pick", "ratios", "row_of", "visit"]

Row = dict[str, Any]
"""One measurement: where, what, and the figures."""


def row_of(experiment: str, system: System, load: Load, number: int, outcome: Outcome) -> Row:
    """A measurement as a row."""
    each = [1e6 * busy / max(1, outcome.acknowledged) for busy in outcome.processor_s]
    return {
        "experiment": experiment,
        "system": system.name,
        "load": load.name,
        "publishers": load.publishers,
        "window": load.window,
        "round": number,
        "rate_per_s": outcome.rate_per_s,
        "acknowledged": outcome.acknowledged,
        "cpu_us": outcome.cpu_us,
        "leader_us": outcome.leader_us,
        "each_us": each,
        "own_us": outcome.own_us,
        "ack_p50_us": outcome.acknowledgement.quantile_us(0.5),
        "ack_p99_us": outcome.acknowledgement.quantile_us(0.99),
        "ack_mean_us": outcome.acknowledgement.mean_us(),
        "delivery_p50_us": outcome.delivery.quantile_us(0.5),
        "delivery_p99_us": outcome.delivery.quantile_us(0.99),
        "delivery_mean_us": outcome.delivery.mean_us(),
        "sound": outcome.is_sound,
        "lost": outcome.lost,
        "disordered": outcome.disordered,
        "unacknowledged": outcome.unacknowledged,
        "load_average": os.getloadavg()[0],
        # What two free cores would allow: the busiest process has one, and all together have two.
        "two_cores_per_s": 1e6 / max(max(each), outcome.own_us, (sum(each) + outcome.own_us) / 2),
    }


def visit(
    experiment: str,
    plan: Sequence[tuple[Load, Sequence[System]]],
    seconds: float,
    rounds: int,
    keep: Callable[[Row], None],
    *,
    spread: bool = False,
    free: bool = False,
    apart: bool = False,
) -> None:
    """Measures every load at every system in turns; neighbours in time are neighbours in the table.

    With `spread` the publishers of a group are connected to all its replicas, otherwise to the one that leads. With
    `free` the scheduler puts all processes where it wants; otherwise the process that the generator talks to has a core
    that the generator does not use, and with `apart` no other process of its system either.
    """
    systems = list(dict.fromkeys(system for _, each in plan for system in each))
    for system in systems:
        system.freeze()
    for number in range(rounds):
        for load, each in plan:
            for system in each if number % 2 else each[::-1]:  # whoever is second finds another machine
                system.thaw()
                try:
                    with _on_own_cores(system, free, apart):
                        keep(_one(experiment, system, load, seconds, number, spread))
                except (OSError, UnavailableError) as error:
                    print(f"{experiment}, {load.name}, {system.name}, round {number + 1}: {error}", file=sys.stderr)
                finally:
                    system.freeze()
        print(f"{experiment}: round {number + 1} of {rounds} done", file=sys.stderr, flush=True)
    for system in systems:
        system.thaw()


@contextmanager
def _on_own_cores(system: System, free: bool, apart: bool) -> Iterator[None]:
    """Keeps the generator, and with `apart` all others, off the core of the process that it talks to."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if free or len(cores) < 2:
        yield
        return
    system.entry()
    busiest, others = system.busiest(), system.others() if apart else []
    try:
        _run_on(busiest, cores[:1])
        for other in others:
            _run_on(other, cores[1:])
        os.sched_setaffinity(0, cores[-1:])
        yield
    finally:
        os.sched_setaffinity(0, cores)
        for process in (busiest, *others):
            _run_on(process, cores)  # another one may lead next time


def _run_on(process: int, cores: list[int]) -> None:
    """Gives all threads of a process these cores; one that has ended needs none."""
    with suppress(FileNotFoundError):
        for thread in Path(f"/proc/{process}/task").iterdir():
            with suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread.name), cores)


def _one(experiment: str, system: System, load: Load, seconds: float, number: int, spread: bool) -> Row:
    first = system.entry()
    entries = [first]
    instances = 0
    if isinstance(system, Replicated):
        instances = -system.applied()
        if spread:
            entries = [system.place(one) for one in system.group.numbers]
    outcome = run_load(load, system.tongue(load), entries, seconds, system.processor_s, subscriber_at=first)
    row = row_of(experiment, system, load, number, outcome)
    if isinstance(system, Replicated):
        row["instances"] = instances + system.applied()
        row["leader_changed"] = system.group.leader() != system.leader
    return row


def pick(rows: Iterable[Row], **wanted: object) -> list[Row]:
    """The rows with these values."""
    return [row for row in rows if all(row.get(name) == value for name, value in wanted.items())]


def medians(rows: Iterable[Row], name: str) -> float:
    """The median over the rounds of one figure; nan where there is none."""
    values = [row[name] for row in rows if row.get(name) is not None and not math.isnan(row[name])]
    return statistics.median(values) if values else math.nan


def ratios(ours: Iterable[Row], theirs: Iterable[Row], name: str) -> float:
    """The median over the rounds of the ratio of two that were measured side by side."""
    others = {row["round"]: row[name] for row in theirs}
    values = [row[name] / others[row["round"]] for row in ours if others.get(row["round"])]
    return statistics.median(values) if values else math.nan
