"""The index for matching against the scan over all filters, on random histories."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from tests.seeds import seeds

from surecast.protocol.filters import (
    NOTHING,
    Constraint,
    Equals,
    Event,
    Exists,
    Filter,
    FilterIndex,
    Interval,
    StartsWith,
    equals,
)
from surecast.protocol.filters.index import _Entry
from surecast.protocol.filters.intervals import IntervalTable

INF = float("inf")
BIG = 2**60
TEXTS = ["", "a", "b", "ab", "aa", "abc", "ba"]


def coarse(rng: random.Random) -> float:
    """Few numbers, so that ends and values often coincide."""
    return rng.choice([-2, -1, -0.5, -0.0, 0, 0.5, 1, 2, 1e-300, -1e300])


def huge(rng: random.Random) -> float:
    """Whole numbers that round to the same floats."""
    return BIG + rng.randrange(-300, 300)


def spread(rng: random.Random) -> float:
    return rng.uniform(-1, 1) * rng.choice([1e-5, 1e-3, 1.0, 1e2, 1e4])


def some_interval(rng: random.Random, number: Callable[[random.Random], float]) -> Interval:
    low, high = sorted([number(rng), number(rng)])
    low, high = (-INF if rng.random() < 0.15 else low), (INF if rng.random() < 0.15 else high)
    return Interval(low, high, rng.random() < 0.4, rng.random() < 0.4)


def some_constraint(rng: random.Random) -> Constraint:
    kind = rng.randrange(6)
    if kind == 0:
        return Exists()
    if kind == 1:
        return equals(coarse(rng))
    if kind == 2:
        return Equals(rng.choice(TEXTS))
    if kind == 3:
        return StartsWith(rng.choice(TEXTS))
    return some_interval(rng, rng.choice([coarse, huge]))


def some_filter(rng: random.Random) -> Filter:
    names = rng.sample(["x", "y", "z"], rng.choice([0, 1, 1, 2, 2, 3]))
    return Filter(rng.choice(["A", "B", None]), [(name, some_constraint(rng)) for name in names])


def some_event(rng: random.Random) -> Event:
    values: dict[str, float | str] = {}
    for name in "xyz":
        if rng.random() < 0.8:
            values[name] = rng.choice(TEXTS) if rng.random() < 0.3 else rng.choice([coarse, huge])(rng)
    return Event(rng.choice(["A", "B", "C"]), values)


@pytest.mark.parametrize("seed", seeds(12, range(30)))
def test_the_index_finds_what_the_scan_finds(seed: int) -> None:
    rng = random.Random(seed)
    index: FilterIndex[int] = FilterIndex()
    pairs: set[tuple[Filter, int]] = set()
    for step in range(400):
        if pairs and rng.random() < (0.3 if step < 250 else 0.7):
            pair = rng.choice(sorted(pairs, key=str))
            assert index.remove(*pair), f"seed {seed}"
            pairs.remove(pair)
            assert not index.remove(*pair), f"seed {seed}"
        else:
            pair = (some_filter(rng), rng.randrange(5))
            assert index.add(*pair) == (pair not in pairs), f"seed {seed}"
            pairs.add(pair)
        assert len(index) == len(pairs), f"seed {seed}"
        event = some_event(rng)
        wanted = {key for one, key in pairs if one.matches(event)}
        assert index.match(event) == wanted, f"seed {seed}, step {step}, {event}"
        matching = index.filters_matching(event)
        assert len(matching) == len(set(matching)), f"seed {seed}, step {step}"
        assert set(matching) == {one for one, _ in pairs if one.matches(event)}, f"seed {seed}, step {step}"
    for pair in sorted(pairs, key=str):
        assert index.remove(*pair)
    assert not index._classes, f"seed {seed}: an emptied index keeps nothing"
    assert not index._entries
    assert not index._samples


@pytest.mark.parametrize("number", [coarse, huge, spread])
@pytest.mark.parametrize("seed", range(10))
def test_the_interval_table_finds_what_the_scan_finds(seed: int, number: Callable[[random.Random], float]) -> None:
    rng = random.Random(seed)
    table: IntervalTable[int] = IntervalTable()
    kept: dict[int, Interval] = {}
    for serial in range(300):
        one = some_interval(rng, number)
        if not one.is_empty:
            table.add(one, serial, serial)
            kept[serial] = one
        if kept and rng.random() < 0.4:
            gone = rng.choice(list(kept))
            table.remove(kept.pop(gone), gone)
        value = number(rng)
        found = table.holding(value)
        assert sorted(found) == [n for n, interval in kept.items() if interval.holds(value)], f"seed {seed}, {value}"
    assert len(table) == len(kept)


def test_an_unsatisfiable_filter_is_kept_and_never_found() -> None:
    index: FilterIndex[str] = FilterIndex()
    assert index.add(NOTHING, "s")
    assert index.match(Event("A")) == set()
    assert len(index) == 1
    assert index.remove(NOTHING, "s")


def test_only_matching_filters_are_looked_at_where_one_constraint_is_not_an_equality() -> None:
    """The cost is counted, not timed: entries touched, among 20,000 of one class."""
    rng = random.Random(7)
    index: FilterIndex[int] = FilterIndex()
    filters = []
    for key in range(20_000):
        low = rng.uniform(0, 1)
        filters.append(Filter("A", [("name", Equals(f"n{key % 50}")), ("price", Interval(low, low + 0.01))]))
        index.add(filters[-1], key)
    event = Event("A", {"name": "n7", "price": 0.5})
    touched: list[_Entry[int]] = index._found(event)
    assert {entry.filter for entry in touched} == {one for one in filters if one.matches(event)}
    assert 0 < len(touched) < 20


def some_width(rng: random.Random) -> float:
    return float(10 ** rng.uniform(-3, -0.3))


@pytest.mark.parametrize("one_sided", [False, True])
def test_a_filter_is_filed_under_the_constraint_that_holds_most_rarely(one_sided: bool) -> None:
    """Entries touched among 5,000 with three intervals each: hardly more than if the best one were known."""
    rng = random.Random(11)
    index: FilterIndex[int] = FilterIndex()
    filters, least, first = [], 0.0, 0.0
    for key in range(5_000):
        widths = {name: some_width(rng) for name in "xyz"}
        lows = {name: 1 - width if one_sided else rng.random() * (1 - width) for name, width in widths.items()}
        ends = {name: Interval(low, INF if one_sided else low + widths[name]) for name, low in lows.items()}
        filters.append(Filter("A", ends))
        index.add(filters[-1], key)
        least, first = least + min(widths.values()), first + widths["x"]
    events = [Event("A", {name: rng.random() for name in "xyz"}) for _ in range(300)]
    touched = 0
    for event in events:
        assert index.match(event) == {key for key, one in enumerate(filters) if one.matches(event)}
        touched += len(index._found(event))
    assert touched / len(events) < 1.5 * least
    assert touched / len(events) < 0.3 * first


def test_the_scale_of_an_attribute_does_not_matter() -> None:
    """A wide range of a large quantity may be rarer than a narrow range of a small one."""
    rng = random.Random(3)
    index: FilterIndex[int] = FilterIndex()
    for key in range(2_000):
        volume, price = rng.uniform(0, 1e6), rng.uniform(0, 1)
        index.add(Filter("A", {"price": Interval(price, price + 0.5), "volume": Interval(volume, volume + 1e3)}), key)
    event = Event("A", {"price": 0.7, "volume": 5e5})
    assert len(index._found(event)) < 60


def test_ends_that_moved_are_forgotten() -> None:
    rng = random.Random(5)
    index: FilterIndex[int] = FilterIndex()
    for where in (0.0, 1e6):
        for key in range(1_000):
            x, y = where + rng.random(), rng.random()
            index.add(Filter("A", {"x": Interval(x, x + 0.001), "y": Interval(y, y + 0.3)}), key)
    sample = index._samples["A"]["x"]
    assert len(sample.ordered) == len(sample.recent) == 256
    assert sample.ordered == sorted(sample.recent)
    assert min(sample.ordered) >= 1e6
