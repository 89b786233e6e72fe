"""How fast the broker's store and event log are, and what a live key takes in memory. About a minute.

Run without arguments, or with a folder on the disk that is to be measured. Prints commits of one message against
group commits at each durability, commits under cleaning, the time to open, the memory of each live key, and the time
of each event record.
"""

from __future__ import annotations

import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

from surecast.broker.event_log import Delivered, EventLog, Published
from surecast.broker.store import Operation, SqliteStore

PAYLOAD = bytes(range(100))
SECONDS = 1.5  # for each figure


def key(n: int) -> bytes:
    return b"m/%020d" % n


def churn(start: int, size: int, behind: int) -> list[Operation]:
    """Every other operation writes a message, and every other deletes the one written `behind` messages before."""
    return [(key(m // 2 - behind), None) if m % 2 else (key(m // 2), PAYLOAD) for m in range(start, start + size)]


def timed(store: SqliteStore, size: int, behind: int, begin_at: int = 0) -> tuple[list[float], float]:
    """The times of as many commits of `size` operations as fit, in order of length, and their processor time."""
    times: list[float] = []
    processor_s = 0.0
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        operations = churn(begin_at + len(times) * size, size, behind)
        begin, processor_begin = time.perf_counter(), time.process_time()
        store.commit(operations)
        times.append(time.perf_counter() - begin)
        processor_s += time.process_time() - processor_begin
    return sorted(times), processor_s


def show(label: str, measured: tuple[list[float], float], operations: int) -> float:
    times, processor_s = measured
    mean_s = sum(times) / len(times)
    each_processor_s = processor_s / len(times) / operations
    quantiles = ", ".join(f"{q:.1%} {times[int(q * (len(times) - 1))] * 1e3:.2f}" for q in (0.5, 0.99, 0.999))
    print(
        f"  {label}: {mean_s / operations * 1e6:8.2f} us an operation, {each_processor_s * 1e6:.2f} of it busy; "
        f"a commit in ms: mean {mean_s * 1e3:.2f}, {quantiles}, longest {times[-1] * 1e3:.2f}"
    )
    return mean_s / operations


def group_commit(folder: Path) -> None:
    for durability in ("full", "os"):
        print(f"durability {durability}, messages of {len(PAYLOAD)} bytes, each written and later deleted")
        single_s = 0.0
        for size in (1, 10, 100, 1000, 5000):
            with SqliteStore(folder / f"{durability} {size}", durability) as store:
                each_s = show(f"{size:5} operations a commit", timed(store, size, 1000), size)
                single_s = single_s or each_s
                if size > 1:
                    print(f"        {single_s / each_s:.0f} times as fast as one commit for each")


def cleaning(folder: Path) -> None:
    print("a queue of 100,000 messages below one that comes and goes: 100 operations a commit, the log being cleaned")
    with SqliteStore(folder / "cleaning", "full") as store:
        for n in range(0, 100_000, 1000):
            store.commit([(b"cold" + key(n + i), PAYLOAD) for i in range(1000)])
        fill = 400_000  # until the log is as large as it may be
        for start in range(0, fill, 2000):
            store.commit(churn(start, 2000, 5000))
        for _ in range(3):
            measured = timed(store, 100, 5000, fill)
            fill += 100 * len(measured[0])
            show("                 ", measured, 100)
            found = store.statistics()
            print(
                f"        live {found.live_bytes / 1e6:.1f} MB, log {found.log_bytes / 1e6:.1f} MB, {found.rows} rows"
            )


def opening(folder: Path) -> None:
    pairs = 200_000
    with SqliteStore(folder / "opening", "os") as store:
        for n in range(0, pairs, 100):
            store.commit([(key(n + i), PAYLOAD) for i in range(100)])
    begin = time.perf_counter()
    with SqliteStore(folder / "opening", "os") as store:
        opened = time.perf_counter()
        assert sum(1 for _ in store.items()) == pairs
        done = time.perf_counter()
    print(f"{pairs:,} live keys: open {opened - begin:.2f} s, items {done - opened:.2f} s")
    tracemalloc.start()
    with SqliteStore(folder / "opening", "os"):
        used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    print(f"  {used / pairs:.0f} bytes of memory for each live key of {len(key(0))} bytes, the key included")


def event_log(folder: Path) -> None:
    records, turn = 200_000, 50
    with EventLog(folder / "log") as log:
        begin = time.perf_counter()
        for n in range(0, records, turn):
            now = 1.7e9 + n * 1e-5
            for i in range(n, n + turn, 2):
                log.append(Published(now, "sensor-17", "plant/3/line/7/temperature", i, 1, 100, 1, "plant"))
                log.append(Delivered(now, "screen-17", "plant/3/line/7/temperature", i, 1, 100, 0, "plant"))
            log.flush()
        each_s = (time.perf_counter() - begin) / records
    print(f"event log, {turn} records a turn: {each_s * 1e6:.2f} us a record, made, encoded and written")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as name:
        group_commit(Path(name))
        cleaning(Path(name))
        opening(Path(name))
        event_log(Path(name))
