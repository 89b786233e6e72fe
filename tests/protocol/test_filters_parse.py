"""The written form of filters: the grammar, its errors, and that any text is a filter or an error."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surecast.protocol.filters import (
    NOTHING,
    Constraint,
    Equals,
    Event,
    Exists,
    Filter,
    FilterSyntaxError,
    Interval,
    StartsWith,
    above,
    at_least,
    at_most,
    below,
    between,
    equals,
    parse,
)

INF = float("inf")

numbers = st.one_of(
    st.integers(-3, 3),
    st.integers(-(10**300), 10**300),
    st.floats(allow_nan=False, allow_infinity=False),
)
bounds = st.one_of(numbers, st.sampled_from([INF, -INF]))
constraints = st.one_of(
    st.builds(Exists),
    st.builds(Interval, bounds, bounds, st.booleans(), st.booleans()),
    st.builds(equals, numbers),
    st.builds(Equals, st.text()),
    st.builds(StartsWith, st.text()),
)
names = st.one_of(
    st.sampled_from(["price", "and", "inf", "in", "true", "a.b-c", "é", "", "-inf", "x y", "`", "\\"]), st.text()
)
filters = st.builds(Filter, st.none() | names, st.lists(st.tuples(names, constraints), max_size=4))

WRITTEN: list[tuple[str, Filter]] = [
    ('price > 35 and stock = "Foo"', Filter(None, {"price": above(35), "stock": equals("Foo")})),
    ("Stock: price >= 35", Filter("Stock", {"price": at_least(35)})),
    ("*: price < 3.5e1", Filter(None, {"price": below(35)})),
    ("Stock:price<=-.5", Filter("Stock", {"price": at_most(-0.5)})),
    ("price = +7", Filter(None, {"price": equals(7)})),
    ("price in [1, 2]", Filter(None, {"price": between(1, 2)})),
    ("price in (1, inf)", Filter(None, {"price": above(1)})),
    ("price in [-inf, inf]", Filter(None, {"price": Interval()})),
    ("price in [2, 1]", NOTHING),
    ("price > 3 and price < 3", NOTHING),
    ("price > 3 and price in [0, 5)", Filter(None, {"price": Interval(3, 5, True, True)})),
    ('name startswith "Fo"', Filter(None, {"name": StartsWith("Fo")})),
    ('name prefix "Fo" and name = "Foo"', Filter(None, {"name": Equals("Foo")})),
    ("name exists", Filter(None, {"name": Exists()})),
    (
        '`and` exists and `odd name` = "a \\"b\\" \\\\ c"',
        Filter(None, [("and", Exists()), ("odd name", Equals('a "b" \\ c'))]),
    ),
    ("Stock: true", Filter("Stock")),
    ("true", Filter()),
    ("Stock: false", NOTHING),
    ("infinite = 1 and inf-x = 2", Filter(None, {"infinite": equals(1), "inf-x": equals(2)})),
]


@pytest.mark.parametrize(("text", "meant"), WRITTEN, ids=[text for text, _ in WRITTEN])
def test_the_grammar(text: str, meant: Filter) -> None:
    assert parse(text) == meant
    assert parse(str(meant)) == meant


@pytest.mark.parametrize(
    ("text", "position", "expected"),
    [
        ("", 0, "the name of an attribute"),
        ("price", 5, "=, <, <=, >, >=, in, startswith or exists"),
        ("price >", 7, "a number"),
        ('price > "a"', 8, "a number"),
        ("price = name", 8, "a number or a text"),
        ("price != 3", 6, "a name, a number, a text or an operator"),
        ("price > 3 or price < 1", 10, "'and' or the end"),
        ("price > 3 and", 13, "the name of an attribute"),
        ("price > 3x", 9, "'and' or the end"),
        ("price in 3", 9, "'[' or '('"),
        ("price in [3", 11, "','"),
        ("price in [3, 4", 14, "']' or ')'"),
        ("price in [a, 4]", 10, "a number, inf or -inf"),
        ("price < inf", 8, "a number"),
        ("price < 1e999", 8, "a number below 1.8e308"),
        ("price < " + "9" * 5000, 8, "a number of at most 400 characters"),
        ("name startswith 3", 16, "a text in double quotes"),
        ('name = "Foo', 7, 'a closing "'),
        ("`name = 3", 0, "a closing `"),
        ("true: x exists", 0, "a class name or *"),
        ("true and x exists", 5, "'and' or the end"),
        ("and = 3", 0, "the name of an attribute"),
    ],
)
def test_an_error_names_the_position_and_what_was_expected(text: str, position: int, expected: str) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        parse(text)
    assert (caught.value.position, caught.value.expected) == (position, expected)
    assert str(caught.value).startswith(f"character {position + 1}: expected {expected}, found ")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@settings(max_examples=100)
@given(filters)
def test_what_is_written_reads_back(one: Filter) -> None:
    assert parse(str(one)) == one


@given(st.integers(-(10**17), 10**17))
def test_equal_filters_are_written_alike(number: int) -> None:
    as_float = float(number)
    assert str(Filter("A", {"x": above(as_float)})) == str(Filter("A", {"x": above(int(as_float))}))


WORDS = ["price", "and", "in", "exists", "startswith", "true", "false", "inf", "-inf", "3", "-1.5", "1e999", "é"]
MARKS = ["[", "(", "]", ")", ",", "=", "<=", ">", ":", "*", "!", '"a"', "`b`", '"', "`", "\\", " ", "\n"]
PIECES = WORDS + MARKS


@settings(max_examples=100)
@given(
    st.one_of(
        st.text(),
        st.lists(st.sampled_from(PIECES), max_size=12).map(" ".join),
        st.lists(st.sampled_from(PIECES), max_size=8).map("".join),
    )
)
def test_any_text_is_a_filter_or_an_error(text: str) -> None:
    try:
        one = parse(text)
    except FilterSyntaxError as error:
        assert 0 <= error.position <= len(text)
        assert error.expected
        return
    assert parse(str(one)) == one
    one.matches(Event("A", {"price": 3}))


def test_constraint_is_the_union_of_the_four_kinds() -> None:
    kinds: list[Constraint] = [Exists(), Interval(), Equals("a"), StartsWith("a")]
    assert len({str(Filter("A", {"x": kind})) for kind in kinds}) == 4
