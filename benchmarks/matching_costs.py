"""Costs of a routing table: the constants behind `overlay.brokers[].matching`.

Run without arguments. For tables of growing size it measures a plain scan, predicate counting and the index of this
software, and for control messages the upkeep of a routing table and the comparisons of covering. It prints the times,
and the constants that fit them by least squares of relative errors: those are the defaults of a scenario.
"""

from __future__ import annotations

import random
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable

import numpy as np
from scipy.optimize import nnls

from surecast.protocol.demand import JointFilter, TreeDemand
from surecast.protocol.filters import Event, Filter, FilterIndex, Interval

SIZES = (100, 1_000, 10_000)
CLASSES = (1, 10)
EVENTS = 60
REPEATS = 5
Row = tuple[str, list[float], float]


class Counting:
    """Predicate counting: for each attribute all predicates that hold, then the filters with as many as they have.

    Predicates are sorted by their lower ends, and by their upper ends; of both lists of those that hold on one side
    the shorter is gone through.
    """

    def __init__(self, filters: list[Filter]):
        self.needed = [len(one.constraints) for one in filters]
        self.tables: dict[tuple[str | None, str], tuple[list[float], list[int], list[float], list[int]]] = {}
        self.ends: dict[tuple[int, str], tuple[float, float]] = {}
        by_attribute: dict[tuple[str | None, str], list[tuple[float, float, int]]] = {}
        for number, one in enumerate(filters):
            for name, constraint in one.constraints:
                assert isinstance(constraint, Interval)
                by_attribute.setdefault((one.class_name, name), []).append((constraint.low, constraint.high, number))
                self.ends[number, name] = (constraint.low, constraint.high)
        for key, entries in by_attribute.items():
            lows = sorted((low, number) for low, _, number in entries)
            highs = sorted((high, number) for _, high, number in entries)
            self.tables[key] = (
                [e for e, _ in lows],
                [n for _, n in lows],
                [e for e, _ in highs],
                [n for _, n in highs],
            )

    def match(self, event: Event) -> list[int]:
        counts: dict[int, int] = {}
        for name, value in event.attributes:
            table = self.tables.get((event.class_name, name))
            if table is None or isinstance(value, str):
                continue
            lows, by_low, highs, by_high = table
            begun, reaching = bisect_right(lows, value), bisect_left(highs, value)
            some = by_low[:begun] if begun <= len(highs) - reaching else by_high[reaching:]
            for number in some:
                low, high = self.ends[number, name]
                if low <= value <= high:
                    counts[number] = counts.get(number, 0) + 1
        return [number for number, count in counts.items() if count == self.needed[number]]


def filters_of(size: int, classes: int, attributes: int, rng: random.Random) -> list[Filter]:
    found = []
    for number in range(size):
        constraints = {}
        for name in "pqr"[:attributes]:
            low, high = sorted((rng.random(), rng.random()))
            constraints[name] = Interval(low, high)
        found.append(Filter(f"c{number % classes}", constraints))
    return found


def shortest(work: Callable[[], object]) -> float:
    """The shortest of a few times: what disturbs a measurement only makes it longer."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def measure(size: int, classes: int, attributes: int) -> list[Row]:
    """For each algorithm what was counted (1, entries, predicates, matches) and the time of one notification."""
    rng = random.Random(size + classes)
    filters = filters_of(size, classes, attributes, rng)
    events = [Event("c0", {name: rng.random() for name in "pqr"[:attributes]}) for _ in range(EVENTS)]
    index: FilterIndex[int] = FilterIndex()
    for number, one in enumerate(filters):
        index.add(one, number)
    counting = Counting(filters)
    own = [one for one in filters if one.class_name == "c0"]
    holding = sum(c.holds(event.get(n) or 0.0) for event in events for one in own for n, c in one.constraints) / EVENTS
    matches = sum(one.matches(event) for event in events for one in own) / EVENTS
    looked_at = sum(len(index._found(event)) for event in events) / EVENTS
    assert [set(counting.match(event)) for event in events] == [index.match(event) for event in events]
    return [
        (
            "brute-force",
            [1.0, size, len(own), 0.0],
            shortest(lambda: [[n for n, one in enumerate(filters) if one.matches(e)] for e in events]) / EVENTS,
        ),
        ("counting", [1.0, 0.0, holding, matches], shortest(lambda: [counting.match(e) for e in events]) / EVENTS),
        ("index", [1.0, 0.0, 0.0, looked_at], shortest(lambda: [index.match(e) for e in events]) / EVENTS),
    ]


def control(size: int, algorithm: str) -> Row:
    """The mean time of a subscription and its revocation among `size` filters of which none covers another.

    Covering compares it with all of them twice when it comes (does one cover it, does it cover one) and once when it
    goes (does it uncover one).
    """
    demand = TreeDemand(0, {"n": algorithm})
    demand.local(added=[JointFilter("c", Filter(None, {"p": Interval(n, n + size)})) for n in range(size)])
    clients: FilterIndex[str] = FilterIndex()

    def change() -> None:
        for n in range(20):
            one = Filter(None, {"p": Interval(n + 0.5, n + 0.5 + size)})
            for add, by in ((clients.add, "added"), (clients.remove, "removed")):
                add(one, "s")
                demand.local(**{by: [JointFilter("c", one)]})

    compared = 1.5 * size if algorithm == "covering" else 0.0
    return algorithm, [1.0, compared], shortest(change) / 40


def fitted(rows: list[Row]) -> list[float]:
    """Constants of 0 or more with the least relative errors."""
    counts, times = np.array([row[1] for row in rows]), np.array([row[2] for row in rows])
    return [float(value) for value in nnls(counts / times[:, None], np.ones(len(times)))[0]]


def main() -> None:
    rows: list[Row] = []
    print(f"{'algorithm':12} {'entries':>8} {'classes':>8} {'attributes':>10} {'time':>10}")
    for attributes in (1, 3):
        for classes in CLASSES:
            for size in SIZES:
                for row in measure(size, classes, attributes):
                    rows.append(row)
                    print(f"{row[0]:12} {size:8} {classes:8} {attributes:10} {1e6 * row[2]:7.1f} us")
    for algorithm in ("brute-force", "counting", "index"):
        lookup, entry, predicate, match = (1e6 * c for c in fitted([row for row in rows if row[0] == algorithm]))
        costs = f"lookup {lookup:.3f} us, entry {entry:.4f} us, predicate {predicate:.4f} us, match {match:.4f} us"
        print(f"{algorithm:12} {costs}")
    upkeep = [control(size, algorithm) for algorithm in ("simple", "covering") for size in (10, 100, 1_000)]
    for algorithm, counts, taken in upkeep:
        print(f"{algorithm:12} {1e6 * taken:.1f} us per control message, {counts[1]:.0f} comparisons")
    update, comparison = (1e6 * c for c in fitted(upkeep))
    print(f"control      update {update:.3f} us, comparison {comparison:.4f} us")


if __name__ == "__main__":
    main()
