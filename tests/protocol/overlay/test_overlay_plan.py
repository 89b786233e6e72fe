"""Plans that hold together, and the trees on which topics and filters are."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product
from random import Random

import pytest
from tests.seeds import seeds

from surecast.errors import ConfigurationError
from surecast.protocol.mqtt.topics import match
from surecast.protocol.overlay.event_id import EventId, IntervalSet, SeenEvents
from surecast.protocol.overlay.overlay_plan import OverlayPlan, Tree

BROKERS = ("b1", "b2", "b3")
LINKS = (("b1", "b2"), ("b2", "b3"), ("b1", "b3"))
PLAN = OverlayPlan(BROKERS, LINKS, (Tree(LINKS[:2]), Tree(LINKS[1:])))
LEVELS = ("a", "b", "c")
NAMES = ["/".join(levels) for depth in (1, 2, 3) for levels in product(LEVELS, repeat=depth)]


@pytest.mark.parametrize("seed", seeds(8, range(20)))
def test_a_filter_is_on_every_tree_on_which_a_topic_that_it_matches_travels(seed: int) -> None:
    random = Random(seed)
    trees = (Tree(LINKS[:2]),) * 4
    prefixes = dict.fromkeys(["", *random.sample(NAMES, 4)])
    placed = tuple((prefix, tuple(sorted(random.sample(range(4), random.choice((1, 2)))))) for prefix in prefixes)
    plan = OverlayPlan(BROKERS, LINKS, trees, placed)
    filters = ["/".join(levels) for depth in (1, 2, 3) for levels in product((*LEVELS, "+"), repeat=depth)]
    for wanted in [*filters, "#", "a/#", "+/b/#", "a/b/#"]:
        needed = {plan.tree_of(name) for name in NAMES if match(wanted, name)}
        assert needed <= set(plan.trees_for(wanted))
        if "+" not in wanted and "#" not in wanted:
            assert needed == set(plan.trees_for(wanted))


def test_topics_that_begin_with_a_dollar_have_a_tree_too() -> None:
    assert PLAN.trees_for("$SYS/#") == (0,)
    assert PLAN.tree_of("$SYS/uptime") == 0


def test_equal_plans_have_equal_hashes_and_others_have_not() -> None:
    assert PLAN.hash == OverlayPlan(BROKERS, LINKS, PLAN.trees).hash
    assert PLAN.hash != replace(PLAN, epoch=2).hash
    assert PLAN.hash != OverlayPlan(BROKERS, LINKS, (replace(PLAN.trees[0], scheme="bypass"), PLAN.trees[1])).hash


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"brokers": ("b1", "b1", "b2", "b3")}, "each broker needs a name of its own"),
        ({"links": (*LINKS, ("b1", "b9"))}, r"links: \('b1', 'b9'\) does not join two brokers"),
        ({"links": (*LINKS, ("b2", "b1"))}, r"links: \('b2', 'b1'\) stands there twice"),
        ({"trees": ()}, "0 trees; an overlay has 1 to 16"),
        ({"trees": (Tree(LINKS),)}, r"trees\[0\]: its 3 links are no tree of all 3 brokers"),
        ({"trees": (Tree(LINKS[:1]),)}, r"trees\[0\]: its 1 links are no tree"),
        ({"links": LINKS[:2], "trees": (Tree(LINKS[1:]),)}, r"trees\[0\]: \('b1', 'b3'\) is no link of the overlay"),
        ({"trees": (Tree(LINKS[:2], scheme="hope"),)}, "no scheme 'hope'; use one of none"),
        ({"trees": (Tree(LINKS[:2], root="b9"),)}, r"trees\[0\].root: 'b9' is no broker"),
        ({"trees": (Tree(LINKS[:2], algorithms=((LINKS[2], "simple"),)),)}, "is no link of this tree"),
        ({"prefixes": (("a", (0,)),)}, "the empty one, for all other topics, is there"),
        ({"prefixes": (("", (7,)),)}, r"prefixes\[''\]: \(7,\) are not trees of the plan"),
    ],
)
def test_a_plan_that_does_not_hold_together_is_refused_by_its_part(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        replace(PLAN, **changes)  # type: ignore[arg-type]


def test_a_rooted_tree_knows_the_way_up() -> None:
    plan = OverlayPlan(BROKERS, LINKS, (Tree(LINKS[:2], root="b3", algorithms=((("b2", "b1"), "simple"),)),))
    assert [plan.parent(0, broker) for broker in BROKERS] == ["b2", "b3", None]
    assert plan.algorithm(0, "b1", "b2") == "simple"
    assert plan.algorithm(0, "b2", "b3") == "covering"


@pytest.mark.parametrize("seed", seeds(8, range(20)))
def test_a_set_of_intervals_is_a_set_above_its_floor(seed: int) -> None:
    random = Random(seed)
    intervals, plain = IntervalSet(intervals_max=6), set[int]()
    for _ in range(100):
        first, count = random.randrange(80), random.choice((1, 1, 2, 5))
        intervals.add(first, count)
        plain.update(range(first, first + count))
        kept = intervals.intervals()
        assert len(kept) <= 6
        assert all(a[1] < b[0] for a, b in pairwise(kept))
        for number in range(90):
            assert (number in intervals) == (number < intervals.floor or number in plain)


def test_what_the_memory_has_forgotten_is_too_old() -> None:
    seen = SeenEvents(intervals_max=2)
    for number in (1, 3, 5, 7):
        seen.add(EventId("b1", 4, number))
    assert [seen.look(EventId("b1", 4, number)) for number in (3, 4, 5, 6, 7)] == [
        "too-old",
        "new",
        "seen",
        "new",
        "seen",
    ]
    for incarnation in range(5, 21):
        seen.add(EventId("b1", incarnation, 0))
    assert seen.look(EventId("b1", 4, 9)) == "too-old"
    assert seen.look(EventId("b1", 30, 0)) == "new"
