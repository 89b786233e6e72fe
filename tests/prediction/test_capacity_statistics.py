"""Measured filter statistics against closed forms, exact enumeration, integrals and random subscriptions."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.integrate import quad

from surecast.errors import ConfigurationError
from surecast.prediction.capacity import filter_probabilities as filters
from surecast.prediction.capacity.filter_statistics import UNIFORM, FilterStatistics, statistics_of
from surecast.prediction.capacity.transform import Transform
from surecast.scenario.system import AttributeStatistics, Histogram

FUNCTIONS = ("notification_probability", "subscription_probability", "remote_entries")
COUNTS = np.array([0.0, 1e-6, 0.01, 0.7, 1.0, 6.0, 40.0, 149.9, 150.1, 1e3, 1e5])
SKEWED = Histogram((0.0, 1.0, 2.0, 5.0, 10.0), (0.4, 0.3, 0.2, 0.1))
COARSE = Histogram((0.0, 4.0, 10.0), (0.3, 0.7))
NUMBERS = Histogram((1.0, 2.0, 5.0), (0.5, 0.2, 0.3))


def attribute(value: Histogram, ends: Histogram, constrained: float = 1.0, name: str = "a") -> AttributeStatistics:
    return AttributeStatistics(name, value, ends, constrained=constrained)


def centred(
    value: Histogram, centre: Histogram, width: Histogram, constrained: float = 1.0, name: str = "a"
) -> AttributeStatistics:
    return AttributeStatistics(name, value, None, centre, width, constrained)


@pytest.mark.parametrize("routing", filters.ROUTINGS)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_uniform_laws_give_the_closed_forms(function: str, routing: str) -> None:
    # capacity Eqs. 5, 12, 20
    closed = getattr(filters, function)(routing, COUNTS)
    for given in (UNIFORM, attribute(SKEWED, SKEWED), attribute(COARSE, COARSE)):
        found = getattr(FilterStatistics((given,)), function)(routing, COUNTS)
        assert found == pytest.approx(closed, rel=2e-7, abs=1e-8)
    assert getattr(FilterStatistics(), function)(routing, COUNTS).tolist() == closed.tolist()


Subscription = tuple[tuple[float, float] | None, ...]


def kinds_of(given: AttributeStatistics) -> list[tuple[tuple[float, float] | None, float]]:
    """All intervals of an attribute whose laws are numbers that occur, with their probabilities."""
    found: dict[tuple[float, float] | None, float] = {None: 1.0 - given.constrained}
    if given.ends is not None:
        ends = list(zip(given.ends.points, given.ends.weights, strict=True))
        drawn = [((min(a, b), max(a, b)), p * r) for (a, p), (b, r) in itertools.product(ends, ends)]
    else:
        centres = zip(given.centre.points, given.centre.weights, strict=True)
        widths = list(zip(given.width.points, given.width.weights, strict=True))
        drawn = [((c - w / 2, c + w / 2), p * r) for (c, p), (w, r) in itertools.product(centres, widths)]
    for interval, p in drawn:
        found[interval] = found.get(interval, 0.0) + given.constrained * p
    return [(interval, p) for interval, p in found.items() if p > 0]


def holds(one: Subscription, value: tuple[float, ...]) -> bool:
    return all(i is None or i[0] <= v <= i[1] for i, v in zip(one, value, strict=True))


def covers(wide: Subscription, narrow: Subscription) -> bool:
    return all(
        w is None or (n is not None and w[0] <= n[0] and n[1] <= w[1]) for w, n in zip(wide, narrow, strict=True)
    )


def hull_of(some: list[Subscription]) -> Subscription:
    return tuple(
        None if None in column else (min(i[0] for i in column), max(i[1] for i in column))
        for column in zip(*some, strict=True)
    )


class Enumerated:
    """Everything by going through all sets of subscriptions, told apart by which filters are there."""

    def __init__(self, *given: AttributeStatistics):
        combined = itertools.product(*(kinds_of(each) for each in given))
        self.kinds = [(tuple(k for k, _ in parts), math.prod(p for _, p in parts)) for parts in combined]
        values = itertools.product(*(zip(g.value.points, g.value.weights, strict=True) for g in given))
        self.values = [(tuple(v for v, _ in parts), math.prod(p for _, p in parts)) for parts in values]

    def mean(self, function: object, x: float) -> float:
        total = 0.0
        for there in itertools.product((False, True), repeat=len(self.kinds)):
            p = math.prod(
                -math.expm1(-x * w) if present else math.exp(-x * w)
                for present, (_, w) in zip(there, self.kinds, strict=True)
            )
            total += p * function([kind for present, (kind, _) in zip(there, self.kinds, strict=True) if present])  # type: ignore[operator]
        return total

    def entries(self, routing: str, there: list[Subscription]) -> list[Subscription]:
        if routing == "covering":
            return [one for one in there if not any(other != one and covers(other, one) for other in there)]
        return [hull_of(there)] if there else []

    def passed(self, there: list[Subscription]) -> float:
        return sum(w for value, w in self.values if any(holds(one, value) for one in there))


DISCRETE = {
    "equal ends": (attribute(NUMBERS, NUMBERS),),
    "not always constrained": (attribute(Histogram((0.0, 2.0, 3.0), (0.2, 0.3, 0.5)), NUMBERS, 0.6),),
    "centre and width": (
        centred(Histogram((0.5, 1.1, 2.0), (0.3, 0.3, 0.4)), NUMBERS, Histogram((0.0, 0.2, 7.0), (0.2, 0.5, 0.3)), 0.9),
    ),
    "two attributes": (
        attribute(Histogram((1.0, 1.5, 2.0), (0.2, 0.5, 0.3)), Histogram((1.0, 2.0), (0.4, 0.6)), 0.8),
        centred(Histogram((7.0, 8.0), (0.5, 0.5)), Histogram((7.0,), (1.0,)), Histogram((0.0, 2.0), (0.7, 0.3)), 0.5),
    ),
}


@pytest.mark.parametrize("name", list(DISCRETE))
@pytest.mark.parametrize("x", [0.4, 3.0, 20.0])
def test_numbers_that_occur_are_enumerated(name: str, x: float) -> None:
    # capacity Eqs. 5, 12, 20 with filters that may be equal
    given = DISCRETE[name]
    statistics, every = FilterStatistics(given), Enumerated(*given)

    def close(found: np.ndarray, function: object) -> None:
        assert float(found) == pytest.approx(every.mean(function, x), abs=1e-10)

    close(statistics.notification_probability("simple", x), every.passed)
    close(statistics.notification_probability("merging", x), lambda s: every.passed(every.entries("merging", s)))
    close(statistics.remote_entries("covering", x), lambda s: len(every.entries("covering", s)))
    for routing in ("covering", "merging"):

        def passes(there: list[Subscription], routing: str = routing) -> float:
            entries = every.entries(routing, there)
            return sum(w for new, w in every.kinds if not any(covers(one, new) for one in entries))

        def matching(there: list[Subscription], routing: str = routing) -> float:
            entries = every.entries(routing, there)
            return sum(w * holds(one, value) for one in entries for value, w in every.values)

        close(statistics.subscription_probability(routing, x), passes)
        close(statistics.matching_entries(routing, x), matching)
    if len(given) == 1:
        close(statistics.candidate_entries("covering", x), lambda s: matching(s, "covering"))


MIXED = {
    "values unlike ends": (attribute(COARSE, SKEWED),),
    "numbers among intervals": (attribute(NUMBERS, SKEWED, 0.7),),
    "ends that occur": (attribute(SKEWED, NUMBERS),),
    "centre and width": (centred(SKEWED, COARSE, Histogram((0.0, 1.0, 6.0), (0.8, 0.2))),),
    "centres that occur": (centred(COARSE, NUMBERS, Histogram((0.5, 3.0), (1.0,)), 0.8),),
    "widths that occur": (centred(NUMBERS, COARSE, Histogram((1.0, 3.0), (0.5, 0.5))),),
    "two attributes": (attribute(COARSE, SKEWED, 0.8, "a"), attribute(SKEWED, COARSE, 0.5, "b")),
    "three attributes": (
        attribute(COARSE, SKEWED, 0.9, "a"),
        centred(SKEWED, COARSE, Histogram((0.0, 8.0), (1.0,)), 0.7, "b"),
        attribute(NUMBERS, NUMBERS, 0.6, "c"),
    ),
}


def drawn(law: Histogram, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    at = rng.choice(len(law.weights), size=shape, p=np.array(law.weights))
    points = np.array(law.points)
    if not law.is_continuous:
        return points[at]
    return points[at] + rng.random(shape) * np.diff(points)[at]


def intervals(given: AttributeStatistics, rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    if given.ends is not None:
        ends = np.sort(drawn(given.ends, rng, (*shape, 2)), axis=-1)
        low, high = ends[..., 0], ends[..., 1]
    else:
        centre, half = drawn(given.centre, rng, shape), drawn(given.width, rng, shape) / 2
        low, high = centre - half, centre + half
    free = rng.random(shape) >= given.constrained
    return np.where(free, -np.inf, low), np.where(free, np.inf, high)


class Drawn:
    """Random sets of subscriptions: runs by subscription (absent ones marked) by attribute."""

    def __init__(self, given: tuple[AttributeStatistics, ...], x: float, runs: int, seed: int):
        rng = np.random.default_rng(seed)
        count = rng.poisson(x, runs)
        self.there = np.arange(count.max())[None, :] < count[:, None]
        sets = [intervals(g, rng, self.there.shape) for g in given]
        self.low, self.high = (np.stack([s[k] for s in sets], axis=-1) for k in (0, 1))
        new = [intervals(g, rng, (runs, 1)) for g in given]
        self.new_low, self.new_high = (np.stack([s[k] for s in new], axis=-1) for k in (0, 1))
        self.value = np.stack([drawn(g.value, rng, (runs, 1)) for g in given], axis=-1)
        some = count > 0
        there = self.there[:, :, None]
        self.hull_low = np.where(some[:, None], np.where(there, self.low, np.inf).min(axis=1), np.inf)
        self.hull_high = np.where(some[:, None], np.where(there, self.high, -np.inf).max(axis=1), -np.inf)

    def matched(self) -> np.ndarray:
        return self.there & ((self.low <= self.value) & (self.value <= self.high)).all(axis=2)

    def maximal(self) -> np.ndarray:
        """Which subscriptions are not covered by another; of equal ones the first."""
        low, high = self.low, self.high
        within = ((low[:, None] <= low[:, :, None]) & (high[:, None] >= high[:, :, None])).all(axis=3)
        same = within & within.transpose(0, 2, 1)
        earlier = np.tri(low.shape[1], k=-1, dtype=bool)[None]
        beaten = (within & ~same) | (same & earlier)
        return self.there & ~(beaten & self.there[:, None, :]).any(axis=2)


def agrees(expected: np.ndarray, sample: np.ndarray) -> None:
    error = sample.std() / math.sqrt(len(sample))
    assert sample.mean() == pytest.approx(float(expected), abs=4.5 * error + 1e-12)


@pytest.mark.parametrize("name", list(MIXED))
def test_random_subscriptions_behave_so(name: str) -> None:
    given, x = MIXED[name], 4.0
    statistics, sample = FilterStatistics(given), Drawn(given, x, 30_000, len(name))
    agrees(statistics.notification_probability("covering", x), sample.matched().any(axis=1))
    value, low, high = sample.value[:, 0], sample.hull_low, sample.hull_high
    agrees(statistics.notification_probability("merging", x), ((low <= value) & (value <= high)).all(axis=1))
    new_low, new_high = sample.new_low, sample.new_high
    covering = sample.there & ((sample.low <= new_low) & (sample.high >= new_high)).all(axis=2)
    agrees(statistics.subscription_probability("covering", x), ~covering.any(axis=1))
    kept = ((low <= new_low[:, 0]) & (high >= new_high[:, 0])).all(axis=1)
    agrees(statistics.subscription_probability("merging", x), ~kept)
    agrees(statistics.matching_entries("simple", x), sample.matched().sum(axis=1))
    entries = sample.maximal()
    agrees(statistics.remote_entries("covering", x), entries.sum(axis=1))
    agrees(statistics.matching_entries("covering", x), (entries & sample.matched()).sum(axis=1))
    bounded = (sample.low > -np.inf) & (sample.low <= sample.value) & (sample.value <= sample.high)
    agrees(statistics.satisfied_predicates("simple", x), (bounded & sample.there[:, :, None]).sum(axis=(1, 2)))
    agrees(statistics.satisfied_predicates("covering", x), (bounded & entries[:, :, None]).sum(axis=(1, 2)))
    hull = (low > -np.inf) & (low <= value) & (value <= high)
    agrees(statistics.satisfied_predicates("merging", x), hull.sum(axis=1))


@pytest.mark.parametrize("x", [0.3, 5.0, 60.0])
def test_one_attribute_is_an_integral(x: float) -> None:
    # capacity Eqs. 6, 13 with laws that differ: values uniform on [0, 4] and [4, 10], ends skewed
    def share(t: float) -> float:
        return float(np.interp(t, SKEWED.points, np.cumsum([0.0, *SKEWED.weights])))

    passed = 0.0
    for a, b, density in ((0, 1, 0.075), (1, 2, 0.075), (2, 4, 0.075), (4, 5, 0.7 / 6), (5, 10, 0.7 / 6)):
        passed += density * quad(lambda v: -math.expm1(-2 * x * share(v) * (1 - share(v))), a, b)[0]
    found = FilterStatistics((attribute(COARSE, SKEWED),)).notification_probability("simple", x)
    assert float(found) == pytest.approx(passed, abs=1e-9)


@pytest.mark.parametrize("x", [0.5, 8.0])
def test_centres_and_widths_are_an_integral(x: float) -> None:
    # Centres uniform on [0, 1], widths on [0, 1/2]: an interval covers [a, b] if its centre is in [b - w/2, a + w/2].
    def covered(a: float, b: float) -> float:
        def share(w: float) -> float:
            return max(0.0, min(a + w / 2, 1.0) - max(b - w / 2, 0.0))

        kinks = [k for k in (b - a, 2 * b, 2 - 2 * a) if 0 < k < 0.5]
        return 2 * quad(share, min(b - a, 0.5), 0.5, points=kinks, epsabs=1e-11)[0] if b - a < 0.5 else 0.0

    c, w = (np.arange(60) + 0.5) / 60, (np.arange(40) + 0.5) / 80
    bare = np.mean([math.exp(-x * covered(i - j / 2, i + j / 2)) for i in c for j in w])
    one = FilterStatistics((centred(UNIFORM.value, UNIFORM.value, Histogram((0.0, 0.5), (1.0,))),))
    assert float(one.subscription_probability("covering", x)) == pytest.approx(bare, abs=2e-4)
    point = quad(lambda v: -math.expm1(-x * covered(v, v)), 0, 1, limit=200)[0]
    assert float(one.notification_probability("simple", x)) == pytest.approx(point, abs=1e-8)


def test_bins_may_be_cut_without_changing_anything() -> None:
    cut = Histogram((0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0), (0.2, 0.2, 0.15, 0.15, 0.2 / 3, 0.4 / 3, 0.1))
    width, cut_width = Histogram((0.0, 3.0), (1.0,)), Histogram((0.0, 1.0, 3.0), (1 / 3, 2 / 3))
    x = np.array([0.5, 10.0, 300.0])
    for one, other in (
        (attribute(COARSE, SKEWED, 0.8), attribute(COARSE, cut, 0.8)),
        (attribute(SKEWED, COARSE), attribute(cut, COARSE)),
        (centred(COARSE, SKEWED, width), centred(COARSE, cut, cut_width)),
    ):
        for routing, function in itertools.product(("covering", "merging"), FUNCTIONS):
            found = [getattr(FilterStatistics((each,)), function)(routing, x) for each in (one, other)]
            error = 1e-4 if one.ends is None else 2e-6
            assert found[0] == pytest.approx(found[1], rel=error, abs=1e-9), (routing, function)


def test_the_order_of_attributes_does_not_matter() -> None:
    x = np.array([0.5, 10.0, 300.0])
    a, b, c = MIXED["three attributes"]
    for routing, function in itertools.product(("covering", "merging"), FUNCTIONS):
        found = [getattr(FilterStatistics(order), function)(routing, x) for order in ((a, b, c), (c, a, b))]
        assert found[0] == pytest.approx(found[1], rel=1e-6, abs=1e-9)


def test_an_attribute_that_nobody_constrains_says_nothing() -> None:
    x = np.array([0.1, 3.0, 200.0])
    both = FilterStatistics((attribute(COARSE, SKEWED), attribute(SKEWED, COARSE, 0.0, "b")))
    alone = FilterStatistics((attribute(COARSE, SKEWED),))
    for routing, function in itertools.product(filters.ROUTINGS, FUNCTIONS):
        expected = getattr(alone, function)(routing, x)
        assert getattr(both, function)(routing, x) == pytest.approx(expected, rel=1e-7, abs=1e-9)


def test_the_most_selective_predicate_of_a_filter() -> None:
    # Matched with 2 uniform ends: the width of an interval, density 2(1 - t); the least of two has the tail (1 - t)^4.
    two = FilterStatistics((UNIFORM, AttributeStatistics("b", UNIFORM.value, UNIFORM.ends)))
    assert float(two.candidate_entries("simple", 10.0)) == pytest.approx(10 / 5, rel=1e-3)
    for routing in ("covering", "merging"):
        x = np.array([0.5, 20.0])
        assert (two.candidate_entries(routing, x) >= two.matching_entries(routing, x)).all()
        assert (two.candidate_entries(routing, x) <= two.remote_entries(routing, x)).all()


def test_many_points_are_collected_without_loss() -> None:
    rng = np.random.default_rng(5)
    rates, x = rng.random(20_000) ** 6, np.geomspace(1e-3, 1e8, 60)
    weights = rng.random(20_000) / 10_000
    direct = np.exp(-np.multiply.outer(x, rates)) @ weights
    collected = Transform.of(rates, weights)
    assert len(collected.rates) < 2000
    assert collected(x) == pytest.approx(direct, abs=1e-7, rel=1e-6)
    other = Transform.of(np.array([0.0, 0.3, 1.0]), np.array([0.2, 0.3, 0.5]))
    product = 0.2 * weights.sum() + 0.3 * np.exp(-0.3 * np.multiply.outer(x, rates)) @ weights + 0.5 * direct
    assert other.times(collected)(x) == pytest.approx(product, abs=1e-7, rel=1e-6)


def test_arrays_keep_their_shape_and_wrong_numbers_are_refused() -> None:
    statistics = statistics_of(MIXED["two attributes"])
    assert statistics_of(MIXED["two attributes"]) is statistics
    assert statistics.notification_probability("covering", np.ones((3, 2))).shape == (3, 2)
    with pytest.raises(ConfigurationError, match="negative or not finite"):
        statistics.remote_entries("covering", [-1.0])
    with pytest.raises(ConfigurationError, match="there is no routing"):
        statistics.subscription_probability("rumour", [1.0])
