"""Topic names and filters by the examples of section 4.7 of the standard, and both tries against the plain scan."""

from __future__ import annotations

import random
import re
import sys
from functools import cache
from itertools import product

import pytest

from surecast.protocol.mqtt import (
    SharedError,
    TopicError,
    TopicMap,
    TopicTree,
    match,
    parse_shared,
    validate_filter,
    validate_topic_name,
)

LEVELS = ["a", "b", "", "$x", "+"]


@cache
def matches_by_pattern(filter: str, topic: str) -> bool:
    """A second way to say it: the filter as a regular expression."""
    if topic.startswith("$") and not filter.startswith("$"):
        return False
    pattern = "/".join("[^/]*" if level == "+" else re.escape(level) for level in filter.split("/"))
    if filter == "#":
        return True
    if filter.endswith("/#"):
        pattern = pattern.removesuffix("/" + re.escape("#")) + "(/.*)?"
    return re.fullmatch(pattern, topic, re.DOTALL) is not None


@pytest.mark.parametrize(
    ("filter", "topic", "expected"),
    [
        ("sport/tennis/player1/#", "sport/tennis/player1", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/ranking", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", True),
        ("sport/#", "sport", True),
        ("#", "sport/tennis", True),
        ("sport/tennis/+", "sport/tennis/player1", True),
        ("sport/tennis/+", "sport/tennis/player1/ranking", False),
        ("sport/+", "sport", False),
        ("sport/+", "sport/", True),
        ("+/+", "/finance", True),
        ("/+", "/finance", True),
        ("+", "/finance", False),
        ("#", "$SYS/monitor/Clients", False),
        ("+/monitor/Clients", "$SYS/monitor/Clients", False),
        ("$SYS/#", "$SYS/monitor/Clients", True),
        ("$SYS/monitor/+", "$SYS/monitor/Clients", True),
        ("ACCOUNTS", "Quotas", False),
        ("a/#", "ab", False),
    ],
)
def test_matching_by_the_examples_of_the_standard(filter: str, topic: str, expected: bool) -> None:
    assert match(filter, topic) is expected
    assert matches_by_pattern(filter, topic) is expected
    tree: TopicTree[str, str] = TopicTree()
    tree.subscribe(filter, "k", "v")
    assert tree.match(topic) == (("v",) if expected else ())


@pytest.mark.parametrize("filter", ["#", "+", "a", "/", "a//b", "+/#", "sport/+/player1", "a b", "$share", "é/\u2028"])
def test_filters_that_are_valid(filter: str) -> None:
    validate_filter(filter)


@pytest.mark.parametrize(
    "filter", ["", "a#", "#/a", "a/#/b", "##", "+a", "a+", "a/+b/c", "a\0", "é" * 32_768, "/" * 200]
)
def test_filters_that_are_not(filter: str) -> None:
    with pytest.raises(TopicError):
        validate_filter(filter)


def test_topic_names() -> None:
    validate_topic_name("/" * 199)
    validate_topic_name("a" * 65_535)
    for wrong in ("", "a/+", "#", "a\0", "a" * 65_536):
        with pytest.raises(TopicError) as refused:
            validate_topic_name(wrong)
        assert not refused.value.too_deep
    with pytest.raises(TopicError, match="201 levels; at most 200") as deep:
        validate_topic_name("/" * 200)
    assert deep.value.too_deep
    validate_topic_name("/" * 200, max_levels=201)


def test_shared_subscriptions() -> None:
    assert parse_shared("$share/g/a/+/#") == ("g", "a/+/#")
    assert parse_shared("$share/g//") == ("g", "/")
    assert parse_shared("$shared/g/a") is None
    for wrong in ("$share/", "$share//a", "$share/g", "$share/g/", "$share/g+/a", "$share/#/a"):
        with pytest.raises(SharedError):
            parse_shared(wrong)


def some_topic(rng: random.Random, levels: list[str]) -> str:
    return "/".join(rng.choices(levels, k=rng.randint(1, 4))) or "a"


def some_filter(rng: random.Random) -> str:
    return some_topic(rng, LEVELS) + rng.choice(["", "", "/#"]) if rng.random() < 0.95 else "#"


@pytest.mark.parametrize(("seed", "cached"), list(product(range(2), [0, 3, 1000])))
def test_the_tree_finds_what_a_scan_finds(seed: int, cached: int) -> None:
    rng = random.Random(seed)
    tree: TopicTree[int, str] = TopicTree(cached_topics=cached)
    held: dict[tuple[str, int], str] = {}
    for step in range(600):
        wanted, key = some_filter(rng), rng.randrange(4)
        if rng.random() < 0.55:
            assert tree.subscribe(wanted, key, f"v{step}") == held.get((wanted, key))
            held[wanted, key] = f"v{step}"
        else:
            assert tree.unsubscribe(wanted, key) == held.pop((wanted, key), None)
        topic = some_topic(rng, LEVELS[:-1])
        expected = sorted(value for (f, _), value in held.items() if matches_by_pattern(f, topic))
        assert sorted(tree.match(topic)) == expected
        assert sorted(value for (f, _), value in held.items() if match(f, topic)) == expected
        assert tree.get(wanted, key) == held.get((wanted, key))
        assert len(tree._cache) <= cached
    assert len(tree) == len(held)
    assert {(f, k): v for f, k, v in tree} == held
    for wanted, key in held:
        tree.unsubscribe(wanted, key)
    assert len(tree) == 0
    assert not tree._root.below


@pytest.mark.parametrize("seed", range(4))
def test_the_map_finds_what_a_scan_finds(seed: int) -> None:
    rng = random.Random(seed)
    store: TopicMap[int] = TopicMap()
    held: dict[str, int] = {}
    for step in range(600):
        topic = some_topic(rng, LEVELS[:-1])
        if rng.random() < 0.6:
            store[topic] = held[topic] = step
        else:
            assert store.pop(topic) == held.pop(topic, None)
        wanted = some_filter(rng)
        assert sorted(store.matching(wanted)) == sorted(
            (t, v) for t, v in held.items() if matches_by_pattern(wanted, t)
        )
        assert store.get(topic) == held.get(topic)
        assert (topic in store, len(store)) == (topic in held, len(held))
    for topic in list(store):
        store.pop(topic)
    assert not store._root.below


def test_a_key_with_two_matching_filters_is_found_twice() -> None:
    tree: TopicTree[str, int] = TopicTree()
    tree.subscribe("a/+", "k", 1)
    tree.subscribe("a/#", "k", 2)
    assert sorted(tree.match("a/b")) == [1, 2]


def test_deep_topics_need_no_stack() -> None:
    levels = 5 * sys.getrecursionlimit()
    deep = "/".join("a" * levels)
    tree: TopicTree[str, int] = TopicTree(max_levels=levels + 1)
    store: TopicMap[int] = TopicMap(max_levels=levels)
    tree.subscribe(deep, "k", 1)
    tree.subscribe("a/#", "k", 2)
    store[deep] = 3
    assert sorted(tree.match(deep)) == [1, 2]
    assert store.matching("a/#") == [(deep, 3)]
    assert len(list(tree)) == 2
    tree.unsubscribe(deep, "k")
    assert store.pop(deep) == 3
    for refusing in (TopicTree[str, int](), TopicTree[str, int](max_levels=levels - 1)):
        with pytest.raises(TopicError, match="levels"):
            refusing.subscribe(deep, "k", 1)
    assert TopicTree[str, int]().match(deep) == ()
    with pytest.raises(TopicError, match="levels"):
        TopicMap[int]()[deep] = 1


def test_long_topics_are_not_remembered() -> None:
    tree: TopicTree[str, int] = TopicTree()
    assert tree.match("a" * 257) == ()
    assert tree.match("a" * 256) == ()
    assert list(tree._cache) == ["a" * 256]


def test_a_hundred_thousand_subscriptions() -> None:
    tree: TopicTree[int, int] = TopicTree()
    for client in range(100_000):
        tree.subscribe(f"site{client % 100}/device{client}/+", client, client)
    assert len(tree) == 100_000
    assert tree.match("site42/device4242/temperature") == (4242,)
    assert tree.match("site42/device4243/temperature") == ()
