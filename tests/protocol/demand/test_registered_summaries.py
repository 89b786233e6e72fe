"""Routing algorithms of one's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.protocol.overlay.node_bench import NodeBench

from surecast.errors import ConfigurationError
from surecast.protocol.demand import (
    DemandChange,
    DemandSummary,
    DemandUpdate,
    JointFilter,
    register_summary,
    unregister_summary,
)
from surecast.protocol.filters import parse
from surecast.protocol.overlay.overlay_plan import OverlayPlan, Tree

LINKS = (("b1", "b2"),)
EVERYTHING = JointFilter("#", qos=2)


class Everything(DemandSummary):
    """Asks for all events as soon as there is a filter, and until there is none."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 0

    def _add(self, joint: JointFilter) -> None:
        self.number += 1
        if self.number == 1:
            self._announce(EVERYTHING)

    def _remove(self, joint: JointFilter) -> None:
        self.number -= 1
        if self.number == 0:
            self._revoke(EVERYTHING)


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    register_summary("everything", Everything)
    yield
    unregister_summary("everything")


def plan(algorithm: str, root: str | None = None) -> OverlayPlan:
    return OverlayPlan(("b1", "b2"), LINKS, (Tree(LINKS, algorithm=algorithm, root=root),))


def test_nodes_route_by_a_registered_summary() -> None:
    bench = NodeBench(plan("everything"))
    first, second = (JointFilter("Stock", parse(text)) for text in ("price > 35", "price > 40"))
    assert bench.demand("b1", first) == [("b1", "b2", DemandUpdate(0, DemandChange(added=(EVERYTHING,))))]
    assert bench.demand("b1", second) == [], "the neighbour knows already"
    assert bench.node("b2").wanted_by("b1", 0) == [EVERYTHING]
    assert len(bench.publish("b2", "Weather")) == 1
    bench.publish("b2", "Stock", {"price": 37})
    assert [(name, batch.topic) for name, batch in bench.delivered] == [("b1", "Stock")]
    assert bench.demand("b1", removed=(first,)) == []
    assert bench.demand("b1", removed=(second,)) == [("b1", "b2", DemandUpdate(0, DemandChange(removed=(EVERYTHING,))))]
    assert bench.publish("b2", "Stock", {"price": 50}) == []


@pytest.mark.parametrize("name", ["flooding", "covering", "two words", ""])
def test_names_that_mean_something_else_are_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="take another word"):
        register_summary(name, Everything)


def test_what_is_not_registered_is_not_known_and_what_comes_with_surecast_stays() -> None:
    unregister_summary("everything")
    unregister_summary("covering")
    assert plan("covering").algorithm(0, "b1", "b2") == "covering"
    with pytest.raises(ConfigurationError, match=r"trees\[0\].algorithm: no 'everything'; use one of flooding, simple"):
        plan("everything")
    with pytest.raises(ConfigurationError, match=r"trees\[0\].algorithms: no 'magic' for"):
        OverlayPlan(("b1", "b2"), LINKS, (Tree(LINKS, algorithms=((LINKS[0], "magic"),)),))


def test_flooding_has_no_hierarchical_form() -> None:
    with pytest.raises(ConfigurationError, match=r"trees\[0\].root: flooding has no hierarchical form"):
        plan("flooding", root="b1")
