"""Fail-over in the diamond: the broker on the way is killed or frozen while events flow."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.broker.contestants import HOST
from benchmarks.overlay.clients import clients
from benchmarks.overlay.contestants import FAIL_OVER, Stable
from benchmarks.overlay.gap_trace import explain, waited_s
from benchmarks.overlay.rows import Book, Row, Task
from benchmarks.overlay.steady import Steady
from benchmarks.overlay.systems import TOPIC, Overlay
from benchmarks.overlay.topology import DIAMOND

__all__ = ["measure", "tasks"]

_RATE_PER_S = 1_000.0
_BEFORE_S = 0.6
_STEP_S = 0.25
_LEAST_S = 1.5
"""A fault lasts at least so long,"""
_MOST_S = 12.0
"""and where events do not flow again by another way, so long: Zenoh believes in a silent neighbour for 10 s."""
_AFTER_S = 1.0
_UP_S = 30.0
_LATE_S = 10.0
"""What has not come after so long without any event is lost."""
_AROUND_S = 15.0


def tasks(faults: int, systems: Sequence[str]) -> list[Task]:
    """All faults, the kinds and the contestants in turn."""
    return [
        {"experiment": "fail-over", "kind": kind, "topology": DIAMOND.name, "system": name, "round": number}
        for number in range(faults)
        for kind, names in FAIL_OVER.items()
        for name in names
        if not systems or name in systems
    ]


def measure(book: Book, wanted: Sequence[Task], folder: Path) -> None:
    """Carries out the faults that are missing; all contestants are up, and events flow through one at a time."""
    todo = book.open_tasks(wanted)
    if not todo or book.is_late(_AROUND_S):
        return
    with Stable(folder, None) as stable:
        stable.bring_up((task["system"], task["topology"]) for task in todo)
        for task in todo:
            overlay = stable.get(task["system"], task["topology"])
            if overlay is None:
                continue
            if book.is_late(_AROUND_S + (_MOST_S if _was_slow(book, task) else 0.0)):
                return
            try:
                figures = _fault(overlay, task["kind"], task["round"])
            except (OSError, ValueError) as error:
                figures = {"failed": str(error) or type(error).__name__}
            book.keep(task, figures)


def _was_slow(book: Book, task: Task) -> bool:
    return any(
        row.get("fault_s", 0.0) > 5.0
        for row in book.rows
        if row["system"] == task["system"] and row["kind"] == task["kind"]
    )


def _fault(overlay: Overlay, kind: str, number: int) -> Row:
    """One fault, from the flow before it to the flow with all brokers again."""
    overlay.settle()
    shape = overlay.topology
    qos = overlay.fail_over_qos
    entry, leave = overlay.place(shape.entry), overlay.place(shape.exit)
    feed, sink = clients(overlay.dialect(qos), qos, entry, leave, TOPIC, mark=f"-{kind}-{number}")
    steady = Steady(feed, sink, _RATE_PER_S)
    try:
        steady.await_way()
        middle = shape.brokers[1:-1]
        before = {broker: overlay.processor_of(broker) for broker in middle}
        steady.run(_BEFORE_S)
        victim = max(middle, key=lambda broker: overlay.processor_of(broker) - before[broker])
        steady.longest_pause_s = 0.0
        begin = time.perf_counter()
        ended = None
        if kind == "kill":
            ended = overlay.kill(victim)
        else:
            overlay.freeze(victim)
        died_s = 0.0
        """Until a killed process had ended, and its connections with it."""
        try:
            _run_until_flow(steady, begin)
        finally:
            if ended is not None:
                died_s = ended() - begin
            healed = time.perf_counter()
            (overlay.restart if kind == "kill" else overlay.thaw)(victim)
        pause_s, steady.longest_pause_s = steady.longest_pause_s, 0.0
        _run_until_back(steady, overlay.ports[victim])
        steady.run(_AFTER_S)
        finished = time.perf_counter()
        steady.drain(_LATE_S)
    finally:
        steady.close()
    lost, acknowledged_lost = steady.lost()
    gap, back = steady.longest_gap(begin, healed), steady.longest_gap(healed, finished)
    gap_s, traces = gap[1] - gap[0], overlay.traces()
    silent_s = 0.0 if kind == "kill" else overlay.suspects_after_s
    return {
        "victim": victim,
        "fault_s": healed - begin,
        "gap_s": gap_s,
        "gap_after_s": back[1] - back[0],
        "generator_pause_s": pause_s,
        "died_s": died_s,
        "waited_s": max(waited_s(traces, (max(gap[0], begin + silent_s), gap[1]), besides=victim), pause_s),
        "waited_after_s": max(waited_s(traces, back), steady.longest_pause_s),
        "trace": explain(traces, gap, begin),
        "trace_after": explain(traces, back, healed),
        "qos": qos,
        "sent": steady.count,
        "lost": lost,
        "acknowledged_lost": acknowledged_lost,
        "doubled": steady.doubled(),
        "disordered": steady.disordered(),
        "unacknowledged": steady.unacknowledged(),
        "said": f"{victim}, gap {1e3 * gap_s:,.1f} ms, when it was back {1e3 * (back[1] - back[0]):,.1f} ms, "
        f"{lost} of {steady.count} lost, {steady.doubled()} doubled",
    }


def _run_until_flow(steady: Steady, begin: float) -> None:
    """Sends until what was sent after the fault arrives, at least and at most for the times above."""
    after = steady.first + steady.count
    while (past := time.perf_counter() - begin) < _MOST_S:
        steady.run(_STEP_S)
        flows = any(number >= after + 100 for _, number in steady.arrivals[-50:])
        if flows and past >= _LEAST_S:
            return


def _run_until_back(steady: Steady, port: int) -> None:
    """Sends until a broker takes connections again."""
    until = time.perf_counter() + _UP_S
    while time.perf_counter() < until:
        steady.run(_STEP_S)
        with socket.socket() as client:
            client.settimeout(_STEP_S)
            if not client.connect_ex((HOST, port)):
                return
    raise ConnectionError(f"the broker that failed is not back after {_UP_S:g} s")
