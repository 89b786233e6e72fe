"""Covering and intersection of topic filters against the sets of topic names that they match."""

from __future__ import annotations

from itertools import product

import pytest

from surecast.protocol.mqtt.topics import covers, intersects, match

LEVELS = ("", "a", "b", "$s")
NAMES = [name for depth in (1, 2, 3, 4) for levels in product(LEVELS, repeat=depth) if (name := "/".join(levels))]
"""All topic names of up to four levels: enough to tell filters of up to three levels apart."""


def filters() -> list[str]:
    """All topic filters of up to three levels, with and without a closing #."""
    plain = ["/".join(levels) for depth in (1, 2, 3) for levels in product((*LEVELS[:2], "+", "$s"), repeat=depth)]
    closed = ["/".join((*levels, "#")) for depth in (0, 1, 2) for levels in product(("", "a", "+", "$s"), repeat=depth)]
    return sorted(set(plain + closed) - {""})


@pytest.fixture(scope="module")
def matched() -> dict[str, frozenset[str]]:
    """The topic names that each filter matches."""
    return {wanted: frozenset(name for name in NAMES if match(wanted, name)) for wanted in filters()}


def test_a_filter_covers_another_exactly_if_it_matches_all_that_the_other_matches(
    matched: dict[str, frozenset[str]],
) -> None:
    pairs = [(wide, narrow) for wide, narrow in product(matched, repeat=2)]
    assert [pair for pair in pairs if covers(*pair) != (matched[pair[1]] <= matched[pair[0]])] == []


def test_filters_intersect_exactly_if_some_topic_name_is_matched_by_both(matched: dict[str, frozenset[str]]) -> None:
    pairs = [(a, b) for a, b in product(matched, repeat=2)]
    assert [pair for pair in pairs if intersects(*pair) != bool(matched[pair[0]] & matched[pair[1]])] == []
