"""Measures the broker's store and event log, and the memory of a live key. It takes about a minute and a half.

Run without arguments, or with a folder on the disk that is to be measured. Each figure is measured for the store with
and without its mark, in turns of a fifth of a second, so that what else the machine does reaches both; the ratio is
what the mark costs. Prints commits of one message against group commits at each durability, keys that are overwritten,
commits under cleaning with the space taken, the time to open, the memory of each live key, and the time of each event
record.
"""

from __future__ import annotations

import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

from surecast.broker.event_log import Delivered, EventLog, Published, Record
from surecast.broker.segment_mark import Mark
from surecast.broker.store import Operation, SegmentStore, Store
from surecast.event_log_records import LINE_WRITERS

PAYLOAD = bytes(range(100))
SECONDS = 1.5  # for each figure and store
TURN_S = 0.2


class Unkept:
    """A mark that is not told of commits."""

    def __init__(self, mark: Mark):
        self.mark = mark

    def confirm(self, number: int) -> None:
        """Notes nothing."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.mark, name)


class Unmarked(SegmentStore):
    """A store whose mark is not kept up: what each commit would cost without it."""

    def __init__(self, folder: Path, durability: Literal["full", "os"] = "full"):
        super().__init__(folder, durability)
        assert self._mark is not None
        self._mark = Unkept(self._mark)  # type: ignore[assignment]

    def close(self) -> None:
        """Lets go of the files; the mark is put right."""
        if isinstance(self._mark, Unkept):
            self._mark.mark.confirm(self._next - 1)
        super().close()


STORES: dict[str, type[SegmentStore]] = {"without": Unmarked, "with": SegmentStore}


def key(n: int) -> bytes:
    return b"m/%020d" % n


def churn(start: int, size: int, behind: int) -> list[Operation]:
    """Every other operation writes a message, and every other deletes the one written `behind` messages before."""
    return [(key(m // 2 - behind), None) if m % 2 else (key(m // 2), PAYLOAD) for m in range(start, start + size)]


def overwrite(start: int, size: int) -> list[Operation]:
    """Retained messages of 10,000 topics, written again and again."""
    return [(b"r/%06d" % (m * 7919 % 10_000), PAYLOAD) for m in range(start, start + size)]


class Run:
    """Commits of one store: the time and the processor time of each."""

    def __init__(self, store: Store, make: Callable[[int], list[Operation]], begin_at: int = 0):
        self.store = store
        self.make = make
        self.at = begin_at
        self.times: list[float] = []
        self.processor_s = 0.0
        self.operations = 0

    def go(self, seconds: float) -> None:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            operations = self.make(self.at)
            begin, processor_begin = time.perf_counter(), time.process_time()
            self.store.commit(operations)
            self.times.append(time.perf_counter() - begin)
            self.processor_s += time.process_time() - processor_begin
            self.at += len(operations)
            self.operations += len(operations)

    def show(self, label: str) -> tuple[float, float]:
        """Prints the figures; returns the time and the processor time of an operation."""
        times = sorted(self.times)
        mean_s, busy_s = sum(times) / self.operations, self.processor_s / self.operations
        quantiles = ", ".join(f"{q:.1%} {times[int(q * (len(times) - 1))] * 1e3:.2f}" for q in (0.5, 0.99, 0.999))
        print(
            f"  {label:36}: {mean_s * 1e6:8.2f} us an operation, {busy_s * 1e6:.2f} of it busy; "
            f"a commit in ms: mean {sum(times) / len(times) * 1e3:.2f}, {quantiles}, longest {times[-1] * 1e3:.2f}"
        )
        return mean_s, busy_s


def in_turns(label: str, runs: dict[str, Run], seconds: float = SECONDS) -> None:
    """Measures all runs in short turns, prints each and the ratio."""
    for _ in range(round(seconds / TURN_S)):
        for run in runs.values():
            run.go(TURN_S)
    figures = [run.show(f"{label}, {name}") for name, run in runs.items()]
    if len(figures) == 2:
        (first_s, first_busy_s), (second_s, second_busy_s) = figures
        print(f"        ratio: time {second_s / first_s:.2f}, busy {second_busy_s / first_busy_s:.2f}")


def group_commit(folder: Path) -> None:
    durabilities: tuple[Literal["full", "os"], ...] = ("full", "os")
    for durability in durabilities:
        print(f"durability {durability}, messages of {len(PAYLOAD)} bytes, each written and later deleted")
        for size in (1, 10, 100, 1000):
            runs = {
                name: Run(
                    kind(folder / f"{name} {durability} {size}", durability), partial(churn, size=size, behind=1000)
                )
                for name, kind in STORES.items()
            }
            in_turns(f"{size:5} operations a commit", runs)
            for run in runs.values():
                run.store.close()
    print("durability os, 10,000 keys overwritten for ever")
    runs = {
        name: Run(kind(folder / f"{name} overwritten", "os"), lambda n: overwrite(n, 20))
        for name, kind in STORES.items()
    }
    in_turns("   20 operations a commit", runs, 3 * SECONDS)
    for name, run in runs.items():
        run.store.close()
        print(f"        {name}: {disk_bytes(folder / f'{name} overwritten') / 1e6:.1f} MB on the disk")


def disk_bytes(folder: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in folder.iterdir())


def cleaning(folder: Path) -> None:
    print("a queue of 100,000 messages below one that comes and goes: 100 operations a commit, the log being cleaned")
    runs: dict[str, Run] = {}
    fill = 1_200_000  # until the log is as large as it may be
    for name, kind in STORES.items():
        store = kind(folder / f"{name} cleaning", "os")
        for n in range(0, 100_000, 1000):
            store.commit([(b"cold" + key(n + i), PAYLOAD) for i in range(1000)])
        for start in range(0, fill, 2000):
            store.commit(churn(start, 2000, 5000))
        store.close()
        runs[name] = Run(kind(folder / f"{name} cleaning", "full"), partial(churn, size=100, behind=5000), fill)
    in_turns("", runs, 4.5)
    for name, run in runs.items():
        found = run.store.statistics()
        disk = disk_bytes(folder / f"{name} cleaning")
        print(
            f"        {name}: live {found.live_bytes / 1e6:.1f} MB, log {found.log_bytes / 1e6:.1f} MB, "
            f"on the disk {disk / 1e6:.1f} MB"
        )
        run.store.close()


def opening(folder: Path) -> None:
    pairs = 200_000
    for name, kind in STORES.items():
        with kind(folder / f"{name} opening", "os") as store:
            for n in range(0, pairs, 100):
                store.commit([(key(n + i), PAYLOAD) for i in range(100)])
        begin = time.perf_counter()
        with kind(folder / f"{name} opening", "os") as store:
            opened = time.perf_counter()
            assert sum(1 for _ in store.items()) == pairs
            done = time.perf_counter()
        print(f"{name}: {pairs:,} live keys: open {opened - begin:.2f} s, items {done - opened:.2f} s")
        tracemalloc.start()
        with kind(folder / f"{name} opening", "os"):
            used = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        print(f"  {used / pairs:.0f} bytes of memory for each live key of {len(key(0))} bytes, the key included")


def turn_of_records(start: int, size: int) -> list[Record]:
    """Publications and deliveries of one turn of a broker."""
    now, topic, records = 1.7e9 + start * 1e-5, "plant/3/line/7/temperature", list[Record]()
    for number in range(start, start + size, 2):
        records.append(Published(now, "sensor-17", topic, number, 1, 100, 1, "plant"))
        records.append(Delivered(now, "screen-17", topic, number, 1, 100, 0, "plant"))
    return records


def event_log(folder: Path) -> None:
    """The event log against a store that keeps the same lines, in turns: what one file format for both would cost."""
    turns, size, times = 300, 50, {"log": 0.0, "store": 0.0}
    with EventLog(folder / "log") as log, SegmentStore(folder / "events", "os") as store:
        for turn in range(turns):
            begin = time.process_time()
            for record in turn_of_records(turn * size, size):
                log.append(record)
            log.flush()
            middle = time.process_time()
            lines = [
                LINE_WRITERS[record.__class__](record, number, f"{record.time:.6f}").encode()
                for number, record in enumerate(turn_of_records(turn * size, size), turn * size)
            ]
            store.commit([(b"e" + (turn * size + at).to_bytes(8, "big"), line) for at, line in enumerate(lines)])
            times["log"] += middle - begin
            times["store"] += time.process_time() - middle
    each = {name: spent / turns / size * 1e6 for name, spent in times.items()}
    print(
        f"event log, {size} records a turn: {each['log']:.2f} us of processor time a record, made, encoded and "
        f"written; as pairs of a store {each['store']:.2f}"
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as name:
        group_commit(Path(name))
        cleaning(Path(name))
        opening(Path(name))
        event_log(Path(name))
