"""Every operation on filters against brute force: all events of a small world are tried one by one.

The world has two attributes. Numbers in filters are whole, so half-way points and points outside tell any two intervals
apart; the texts in it tell any two prefixes over the letters a and b up to length two apart.
"""

from __future__ import annotations

import itertools
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surecast.errors import ConfigurationError
from surecast.protocol.filters import (
    NOTHING,
    Constraint,
    Equals,
    Event,
    Exists,
    Filter,
    Interval,
    StartsWith,
    above,
    at_least,
    at_most,
    below,
    between,
    equals,
    hull,
    merge,
)

ENDS = [0, 1, 2]
NUMBERS = [-0.5, 0, 0.5, 1, 1.5, 2, 2.5]
TEXTS = ["", "a", "b", "c", "aa", "ab", "ac", "ba", "bc", "aac", "abc", "bac"]
VALUES: list[float | str | None] = [None, *NUMBERS, *TEXTS]
WORLD = [
    Event(name, {key: value for key, value in (("x", x), ("y", y)) if value is not None})
    for name in ("A", "B", "other")
    for x, y in itertools.product(VALUES, VALUES)
]

INF = float("inf")
INTERVALS = [
    Interval(low, high, low_open, high_open)
    for low, high in itertools.product([-INF, *ENDS], [*ENDS, INF])
    for low_open, high_open in itertools.product([False, True], repeat=2)
]
CONSTRAINTS: list[Constraint] = [
    Exists(),
    *INTERVALS,
    *(Equals(text) for text in ("a", "aa", "b", "")),
    *(StartsWith(text) for text in ("", "a", "aa", "ab", "b")),
]
FULL = [one for one in CONSTRAINTS if not (isinstance(one, Interval) and one.is_empty)]

constraints = st.sampled_from(CONSTRAINTS)
filters = st.builds(
    Filter,
    st.sampled_from(["A", "B", None]),
    st.lists(st.tuples(st.sampled_from(["x", "y"]), constraints), max_size=3),
)
near = st.builds(
    Filter,
    st.sampled_from(["A", None]),
    st.tuples(st.tuples(st.just("x"), constraints), st.tuples(st.just("y"), st.sampled_from(FULL[:6]))),
)
"""Filters that often differ in one attribute alone, so that many of them can be merged."""


def extent(one: Filter) -> frozenset[int]:
    """The numbers of the events of the world that a filter matches."""
    return frozenset(number for number, event in enumerate(WORLD) if one.matches(event))


def small(constraint: Constraint) -> frozenset[int]:
    return frozenset(n for n, value in enumerate(VALUES) if value is not None and constraint.holds(value))


@given(st.sampled_from(["A", None]), st.lists(st.tuples(st.sampled_from(["x", "y"]), constraints), max_size=4))
def test_a_filter_is_the_conjunction_of_what_it_was_made_of(
    name: str | None, parts: list[tuple[str, Constraint]]
) -> None:
    made = Filter(name, parts)
    for event in WORLD:
        wanted = (name is None or event.class_name == name) and all(
            (value := event.get(attribute)) is not None and part.holds(value) for attribute, part in parts
        )
        assert made.matches(event) == wanted, event
    assert made.satisfiable == bool(extent(made))
    assert made.satisfiable or made == NOTHING


@settings(max_examples=100)
@given(st.one_of(st.tuples(filters, filters), st.tuples(near, near)))
def test_covers_intersects_and_equality_are_those_of_the_sets(pair: tuple[Filter, Filter]) -> None:
    a, b = pair
    in_a, in_b = extent(a), extent(b)
    assert a.covers(b) == (in_b <= in_a)
    assert a.intersects(b) == bool(in_a & in_b)
    assert (a == b) == (in_a == in_b)
    assert a != b or hash(a) == hash(b)


@settings(max_examples=100)
@given(st.one_of(st.tuples(filters, filters), st.tuples(near, near)))
def test_merge_is_the_union_or_there_is_none(pair: tuple[Filter, Filter]) -> None:
    a, b = pair
    union = extent(a) | extent(b)
    merged = merge(a, b)
    assert merged == merge(b, a)
    if merged is not None:
        assert extent(merged) == union
    else:  # the hull is the smallest filter above both, so if any filter is the union, the hull is
        assert extent(hull(a, b)) > union


@settings(max_examples=100)
@given(filters, filters, filters)
def test_the_hull_is_the_smallest_filter_above_both(a: Filter, b: Filter, c: Filter) -> None:
    both = hull(a, b)
    assert both.covers(a)
    assert both.covers(b)
    assert both == hull(b, a)
    assert hull(both, c) == hull(a, hull(b, c))
    if c.covers(a) and c.covers(b):
        assert c.covers(both)


def test_every_pair_of_constraints_on_one_attribute() -> None:
    sets = {one: small(one) for one in FULL}
    made = {one: Filter("A", {"x": one}) for one in FULL}
    for a, b in itertools.product(FULL, FULL):
        assert made[a].covers(made[b]) == (sets[b] <= sets[a]), (a, b)
        assert made[a].intersects(made[b]) == bool(sets[a] & sets[b]), (a, b)
        merged = merge(made[a], made[b])
        # By brute force over the whole language: is any constraint the union?
        unions = [one for one in FULL if sets[one] == sets[a] | sets[b]]
        assert (merged is not None) == bool(unions), (a, b)
        above_both = [one for one in FULL if sets[one] >= sets[a] | sets[b]]
        smallest = min(above_both, key=lambda one: len(sets[one]))
        assert hull(made[a], made[b]) == made[smallest], (a, b)
        if merged is not None:
            assert merged == made[unions[0]], (a, b)


def test_the_constructors() -> None:
    assert (above(1), at_least(1)) == (Interval(1, low_open=True), Interval(1))
    assert (below(1), at_most(1)) == (Interval(high=1, high_open=True), Interval(high=1))
    assert (equals(1), equals("a")) == (between(1, 1), Equals("a"))
    assert Interval(-INF, INF) == Interval(low_open=True, high_open=True)


def test_whole_numbers_are_compared_exactly_beyond_the_precision_of_floats() -> None:
    big = 2**60
    one = Filter("A", {"x": between(big + 1, big + 2)})
    assert [one.matches(Event("A", {"x": big + n})) for n in range(4)] == [False, True, True, False]
    assert not one.covers(Filter("A", {"x": equals(float(big))}))


@pytest.mark.parametrize("value", [float("nan"), INF, True, 10**400, None])
def test_an_event_holds_finite_numbers_and_text_only(value: object) -> None:
    with pytest.raises(ConfigurationError):
        Event("A", {"x": value})  # type: ignore[dict-item]


@pytest.mark.parametrize("make", [above, at_least, below, at_most, equals])
def test_a_bound_is_finite(make: object) -> None:
    assert callable(make)
    with pytest.raises(ConfigurationError, match="not finite"):
        make(INF)


@given(filters)
def test_filters_and_events_survive_pickling_and_are_frozen(one: Filter) -> None:
    assert pickle.loads(pickle.dumps(one)) == one
    event = Event("A", {"x": 1, "y": "a"})
    copy = pickle.loads(pickle.dumps(event))
    assert copy == event
    assert hash(copy) == hash(event)
    assert copy.get("y") == "a"
    with pytest.raises(AttributeError):
        one.class_name = "B"  # type: ignore[misc]
