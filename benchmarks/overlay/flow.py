"""Throughput, processor time for each hop, and the delay that each broker adds."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.broker.load import run_cell
from benchmarks.broker.shapes import Cell
from benchmarks.overlay.clients import clients
from benchmarks.overlay.contestants import KINDS, Stable
from benchmarks.overlay.rows import Book, Row, Task
from benchmarks.overlay.steady import Steady, quantile
from benchmarks.overlay.systems import TOPIC, Overlay
from benchmarks.overlay.topology import CHAINS, TOPOLOGIES

__all__ = ["RATE_PER_S", "measure", "tasks"]

RATE_PER_S = 1_000.0
_WINDOWS = {0: 16_384, 1: 4_096}
_WINDOW_SINGLES = 512
_BURST = 128
_SINGLES = "singles"
_AROUND_S = 2.5
"""What a measurement takes beside its seconds: connections, the way through, what is under way at the end."""


def tasks(experiment: str, rounds: int, systems: Sequence[str]) -> list[Task]:
    """All measurements of an experiment, in the order of visits: contestants are the innermost loop."""
    return list(_tasks(experiment, rounds, systems))


def _tasks(experiment: str, rounds: int, systems: Sequence[str]) -> Iterator[Task]:
    shapes = TOPOLOGIES if experiment == "throughput" else CHAINS
    for kind, (_, names) in KINDS.items():
        if experiment == "delay" and kind.endswith(_SINGLES):
            continue
        for number in range(rounds):
            for shape in shapes:
                # Whoever is second finds another machine.
                for name in names if number % 2 else names[::-1]:
                    if not systems or name in systems:
                        yield {
                            "experiment": experiment, "kind": kind, "topology": shape.name,
                            "system": name, "round": number,
                        }  # fmt: skip


def measure(book: Book, wanted: Sequence[Task], folder: Path, seconds: float) -> None:
    """Measures what is missing, one table after the other, as long as there is time."""
    cores = sorted(os.sched_getaffinity(0))
    for kind in KINDS:
        todo = [task for task in book.open_tasks(wanted) if task["kind"] == kind]
        if not todo or book.is_late(seconds + _AROUND_S):
            continue
        pinned = todo[0]["experiment"] == "throughput" and len(cores) > 1
        with Stable(folder / f"{todo[0]['experiment']}-{kind}", cores[0] if pinned else None) as stable:
            stable.bring_up((task["system"], task["topology"]) for task in todo)
            if pinned:
                os.sched_setaffinity(0, cores[-1:])
            try:
                _visit(book, todo, stable, seconds)
            finally:
                os.sched_setaffinity(0, cores)


def _visit(book: Book, todo: Sequence[Task], stable: Stable, seconds: float) -> None:
    for task in todo:
        overlay = stable.get(task["system"], task["topology"])
        if overlay is None:
            continue
        if book.is_late(seconds + _AROUND_S):
            return
        qos, burst = KINDS[task["kind"]][0], 1 if task["kind"].endswith(_SINGLES) else _BURST
        try:
            if task["experiment"] == "throughput":
                figures = _throughput(overlay, qos, burst, seconds)
            else:
                figures = _delay(overlay, qos, seconds)
        except (OSError, ValueError) as error:
            figures = {"failed": str(error) or type(error).__name__}
        book.keep(task, figures)


def _throughput(overlay: Overlay, qos: int, burst: int, seconds: float) -> Row:
    shape = overlay.topology
    each: list[list[float]] = []

    def processor_s() -> float:
        each.append([overlay.processor_of(broker) for broker in shape.brokers])
        return sum(each[-1])

    cell = Cell(shape.name, "burst", qos, 1, 1, 1, burst, _WINDOWS[qos] if burst > 1 else _WINDOW_SINGLES, varying=True)
    entry, leave = overlay.place(shape.entry), overlay.place(shape.exit)
    outcome = run_cell(cell, overlay.dialect(qos), entry, seconds, processor_s, subscribers_at=leave)
    delivered = max(1, outcome.delivered)
    brokers_us = [1e6 * (after - before) / delivered for before, after in zip(*each[:2], strict=True)]
    return {
        "rate_per_s": outcome.rate_per_s,
        "cpu_us": outcome.processor_us,
        "hop_us": outcome.processor_us / shape.hops,
        "brokers_us": brokers_us,
        "busiest_us": max(brokers_us),
        "generator_us": 1e6 * outcome.own_processor_s / delivered,
        "generator_busy": outcome.own_processor_s / outcome.elapsed_s,
        "brokers_busy": outcome.processor_s / outcome.elapsed_s,
        "sent": outcome.sent,
        "lost": outcome.lost,
        "disordered": outcome.disordered,
        "unacknowledged": outcome.unacknowledged,
        "sound": outcome.is_sound,
        "said": f"{outcome.rate_per_s / 1e3:,.1f} thousand/s, {outcome.processor_us:.2f} us"
        + ("" if outcome.is_sound else f"; {outcome.lost} lost, {outcome.disordered} out of order"),
    }


def _delay(overlay: Overlay, qos: int, seconds: float) -> Row:
    shape = overlay.topology
    feed, sink = clients(overlay.dialect(qos), qos, overlay.place(shape.entry), overlay.place(shape.exit), TOPIC)
    steady = Steady(feed, sink, RATE_PER_S)
    try:
        steady.await_way()
        before = overlay.processor_s()
        steady.run(seconds)
        processor_s = overlay.processor_s() - before
        steady.drain()
    finally:
        steady.close()
    delays = steady.delays_s()
    lost, doubled, disordered = steady.missing(), steady.doubled(), steady.disordered()
    p50, p99 = 1e6 * quantile(delays, 0.5), 1e6 * quantile(delays, 0.99)
    return {
        "p50_us": p50,
        "p99_us": p99,
        "cpu_us": 1e6 * processor_s / steady.count,
        "hop_us": 1e6 * processor_s / steady.count / shape.hops,
        "sent": steady.count,
        "lost": lost,
        "doubled": doubled,
        "disordered": disordered,
        "unacknowledged": steady.unacknowledged(),
        "generator_pause_s": steady.longest_pause_s,
        "sound": not (lost or doubled or disordered or steady.unacknowledged()),
        "said": f"p50 {p50:,.0f} us, p99 {p99:,.0f} us" + (f"; {lost} lost" if lost else ""),
    }
