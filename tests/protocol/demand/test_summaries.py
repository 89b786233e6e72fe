"""Summaries and tables of demand against a second implementation that looks at every filter."""

from __future__ import annotations

from collections import Counter
from itertools import product
from random import Random

import pytest
from tests.seeds import seeds

from surecast.errors import PeerError
from surecast.protocol.demand import (
    EVERY_CONTENT,
    SUMMARIES,
    CoverIndex,
    DemandChange,
    DemandSummary,
    DemandTable,
    JointFilter,
    joint_hull,
    joint_merge,
)
from surecast.protocol.filters import NOTHING, Event, Filter, above, between, equals, hull

TOPICS = ("a", "b", "a/b", "a/c", "a/+", "a/#", "+/b", "#", "+", "$s/a", "$s/#", "+/+", "a/b/#", "+/#")
NAMES = ("a", "b", "c", "a/b", "a/c", "b/b", "a/b/c", "$s/a", "$s")
EVENTS = [Event(name, {"p": p, "n": n}) for name in NAMES for p in (0, 1, 2, 3, 4, 5) for n in ("x", "y")]
CONTENTS = (
    EVERY_CONTENT,
    Filter(None, {"p": above(1)}),
    Filter(None, {"p": above(3)}),
    Filter(None, {"p": between(0, 2)}),
    Filter(None, {"p": between(2, 4)}),
    Filter(None, {"n": equals("x")}),
    Filter(None, {"p": between(1, 3), "n": equals("x")}),
    Filter(None, {"q": above(0)}),
)
EXACT = ("simple", "identity-exact", "covering", "merging-exact")


def drawn(random: Random) -> JointFilter:
    return JointFilter(random.choice(TOPICS), random.choice(CONTENTS), random.choice((0, 0, 1, 2)))


def qos_for(filters: list[JointFilter], event: Event) -> int:
    """The highest QoS at which some filter matches an event; -1 for none."""
    return max((joint.qos for joint in filters if joint.matches(event)), default=-1)


def expected(algorithm: str, behind: Counter[JointFilter]) -> list[JointFilter] | None:
    """What an algorithm announces, found without any index; None where it depends on the order of the filters."""
    filters = [joint for joint, number in behind.items() if number]
    if algorithm == "simple":
        announced = list(behind.elements())
    elif algorithm == "identity-exact":
        announced = filters
    elif algorithm == "covering":
        announced = [one for one in filters if not any(other != one and other.covers(one) for other in filters)]
    elif algorithm in ("identity", "merging"):
        announced = []
        for topic in {joint.topic for joint in filters}:
            same = [joint for joint in filters if joint.topic == topic]
            content = EVERY_CONTENT if algorithm == "identity" else same[0].content
            for joint in same[1:] if algorithm == "merging" else ():
                content = hull(content, joint.content)
            announced.append(JointFilter(topic, content, max(joint.qos for joint in same)))
    else:
        return None
    return sorted(announced, key=lambda one: one.order)


def steps(random: Random, number: int) -> list[tuple[list[JointFilter], list[JointFilter]]]:
    """Random changes, each with what goes and what comes; only what is there can go."""
    there: list[JointFilter] = []
    changes = []
    for _ in range(number):
        removed = [there.pop(random.randrange(len(there))) for _ in range(random.choice((0, 0, 1, 2))) if there]
        added = [drawn(random) for _ in range(random.choice((0, 1, 1, 3)))]
        there += added
        changes.append((removed, added))
    return changes


@pytest.mark.parametrize("algorithm", SUMMARIES)
@pytest.mark.parametrize("seed", seeds(6, range(12)))
def test_a_neighbour_knows_what_the_algorithm_makes_of_the_filters_behind_the_link(algorithm: str, seed: int) -> None:
    random = Random(f"{algorithm} {seed}")
    summary, table = SUMMARIES[algorithm](), DemandTable(["b1"])
    behind: Counter[JointFilter] = Counter()
    for removed, added in steps(random, 30):
        change = summary.change(removed, added)
        behind.update(added)
        behind.subtract(removed)
        if change is not None:
            assert change.removed or change.added
            table.apply("b1", change)
        assert table.held["b1"].filters() == summary.announced
        wanted = expected(algorithm, behind)
        assert wanted is None or summary.announced == wanted
        filters = list(behind.elements())
        for event in random.sample(EVENTS, 12):
            announced = table.find(event.class_name).neighbours(event.values).get("b1", -1)
            assert announced == qos_for(summary.announced, event)
            assert announced >= qos_for(filters, event)
            if algorithm in EXACT:
                assert announced == qos_for(filters, event)


@pytest.mark.parametrize("algorithm", [name for name in SUMMARIES if name != "merging-exact"])
def test_what_is_announced_does_not_depend_on_the_order_of_the_filters(algorithm: str) -> None:
    random = Random(algorithm)
    filters = [drawn(random) for _ in range(40)]
    announced: list[list[JointFilter]] = []
    for _ in range(3):
        random.shuffle(filters)
        gone = [drawn(random) for _ in range(10)]
        summary = SUMMARIES[algorithm]()
        summary.change(added=gone)
        for joint in filters:
            summary.change(added=[joint])
        summary.change(removed=gone)
        announced.append(summary.announced)
    assert announced[0] == announced[1] == announced[2]


@pytest.mark.parametrize("algorithm", SUMMARIES)
def test_nothing_is_announced_when_nothing_is_left(algorithm: str) -> None:
    random = Random(f"empty {algorithm}")
    summary = SUMMARIES[algorithm]()
    filters = [drawn(random) for _ in range(50)]
    summary.change(added=filters)
    random.shuffle(filters)
    for joint in filters:
        summary.change(removed=[joint])
    assert summary.announced == []
    assert all(
        not value for name, value in vars(summary).items() if name not in ("_net", "_all", "_maximal", "_merged")
    )
    assert all(not len(value) for value in vars(summary).values() if isinstance(value, CoverIndex))


def test_the_cover_index_finds_what_every_pair_says() -> None:
    filters = [JointFilter(*factors) for factors in product(TOPICS, CONTENTS, (0, 1))]
    index = CoverIndex()
    half = Random(5).sample(filters, len(filters) // 2)
    for joint in half:
        index.add(joint)
    inside = set(half)
    assert len(index) == len(inside)
    for joint in filters:
        assert set(index.covering(joint)) == {other for other in inside if other.covers(joint)}
        assert set(index.covered_by(joint)) == {other for other in inside if joint.covers(other)}
        assert (joint in index) == (joint in inside)
    for joint in inside:
        index.remove(joint)
    assert list(index) == []


def test_covering_merging_and_hulls_agree_with_the_events_that_are_matched() -> None:
    filters = [
        JointFilter(topic, content, qos) for topic in ("a/b", "a/+", "#") for content in CONTENTS for qos in (0, 1)
    ]
    for a, b in product(filters, repeat=2):
        if a.covers(b):
            assert all(qos_for([a], event) >= qos_for([b], event) for event in EVENTS)
        if (merged := joint_merge(a, b)) is not None:
            assert all(qos_for([merged], event) == qos_for([a, b], event) for event in EVENTS)
        if a.topic == b.topic:
            wide = joint_hull(a, b)
            assert wide.covers(a)
            assert wide.covers(b)


def test_a_change_that_is_wrong_changes_nothing() -> None:
    table = DemandTable(["b1", "b2"], filters_max=2)
    table.apply("b1", DemandChange(added=(JointFilter("a"),)))
    with pytest.raises(PeerError, match="b1 revoked the filter b at QoS 0"):
        table.apply("b1", DemandChange(removed=(JointFilter("b"),), added=(JointFilter("c"),)))
    with pytest.raises(PeerError, match="no event can match"):
        table.apply("b1", DemandChange(added=(JointFilter("a", NOTHING),)))
    with pytest.raises(PeerError, match="b1 announced 3 filters; at most 2"):
        table.apply("b1", DemandChange(added=(JointFilter("c"), JointFilter("d"))))
    assert [str(joint) for joint in table.held["b1"].filters()] == ["a at QoS 0"]
    assert table.find("c").neighbours({}) == {}
    assert table.size == 1


def test_a_summary_that_forgets_to_uncover_is_noticed() -> None:
    class Careless(SUMMARIES["covering"]):  # type: ignore[misc]
        def _went(self, joint: JointFilter) -> None:
            self._all.remove(joint)
            if joint in self._maximal:
                self._maximal.remove(joint)
                self._revoke(joint)

    def uncovers(summary: DemandSummary) -> bool:
        summary.change(added=[JointFilter("a/#"), JointFilter("a/b")])
        summary.change(removed=[JointFilter("a/#")])
        return summary.announced == [JointFilter("a/b")]

    assert uncovers(SUMMARIES["covering"]())
    assert not uncovers(Careless())
