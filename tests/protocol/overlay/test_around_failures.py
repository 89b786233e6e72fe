"""What goes around failures: demand on trees with a root, and the fate of events on a detour."""

from __future__ import annotations

from itertools import pairwise

import pytest
from tests.protocol.overlay.node_bench import NodeBench

from surecast.protocol.demand import JointFilter
from surecast.protocol.overlay.node_links import NodeSettings
from surecast.protocol.overlay.overlay_plan import OverlayPlan, Tree

LINE = ("b0", "b1", "b2", "b3", "b4")


def ring(scheme: str = "bypass", root: str | None = None) -> OverlayPlan:
    """A tree that is a line, and one more link that closes it to a ring."""
    links = tuple(pairwise(LINE))
    return OverlayPlan(LINE, (*links, ("b0", "b4")), (Tree(links, scheme, root=root),))


@pytest.mark.parametrize("root", LINE)
@pytest.mark.parametrize("dead", ["b1", "b2", "b3"])
@pytest.mark.parametrize("home", LINE)
def test_what_is_wanted_behind_a_dead_broker_is_learned_around_it_whatever_the_root(
    root: str, dead: str, home: str
) -> None:
    """A client subscribes while a broker is dead, and its neighbours start anew: none of them knew anything."""
    if home == dead:
        return
    bench = NodeBench(ring(root=root))
    bench.crash(dead)
    place = LINE.index(dead)
    bench.demand(home, JointFilter("stock/#", qos=1))
    for name in (LINE[place - 1], LINE[place + 1]):
        if name != home:
            bench.crash(name)
            bench.recover(name)
    bench.now = 10.0
    for name in LINE:
        if name != dead:
            bench.tick(name)
    bench.forget()
    for publisher in LINE:
        if publisher not in (home, dead):
            bench.publish(publisher, "stock/acme", qos=1)
    assert [name for name, _ in bench.delivered] == [home] * 3
    bench.recover(dead)
    bench.now = 20.0
    for name in LINE:
        bench.tick(name)
    bench.forget()
    for publisher in LINE:
        if publisher != home:
            bench.publish(publisher, "stock/acme", qos=1)
    assert [name for name, _ in bench.delivered] == [home] * 4
    for name in LINE:
        tree = bench.node(name)._demand._trees[0]
        assert tree._arounds == {}, name
        assert not [other for other in tree.table.held if "\0" in other]


def test_events_that_are_lost_on_a_detour_are_lost_at_the_broker_that_sent_them_there() -> None:
    """b0 sends around b1 over b4; b4 dies before it has them, and the session with it."""
    bench = NodeBench(ring(), NodeSettings(resume_s=0.0))
    bench.demand("b2", JointFilter("stock/#", qos=1))
    bench.crash("b1")
    b0 = bench.node("b0")
    b0.publish("stock/acme", 3, 0.0, qos=1)
    assert b0.accounts.hops["b1"].detoured == 3
    way = b0.accounts.hops["b4"]
    assert (way.offered, way.on_link) == (3, 3)
    b0.output("b4")
    bench.crash("b4")
    assert (way.lost, way.on_link) == (3, 0)
    assert way.problem(0) == ""


def test_events_that_pass_on_a_detour_are_acknowledged_link_by_link() -> None:
    bench = NodeBench(ring())
    bench.demand("b2", JointFilter("stock/#", qos=1))
    bench.crash("b1")
    bench.publish("b0", "stock/acme", qos=1)
    assert [name for name, _ in bench.delivered] == ["b2"]
    for name, hop in (("b0", "b4"), ("b4", "b3"), ("b3", "b2")):
        accounts = bench.node(name).accounts.hops[hop]
        assert (accounts.offered, accounts.acknowledged, accounts.problem(0)) == (1, 1, ""), name


def test_a_detour_that_was_given_up_and_came_after_all_is_not_lost() -> None:
    bench = NodeBench(ring(), NodeSettings(resume_s=5.0))
    bench.demand("b3", JointFilter("stock/#", qos=1))
    bench.crash("b1")
    b0, b4 = bench.node("b0"), bench.node("b4")
    bench.now = 10.0
    bench.tick("b0")
    b0.publish("stock/acme", 2, 10.0, qos=1)
    for written in b0.output("b4"):
        b4.receive("b0", written, 10.0)
    bench.cut("b0", "b4")
    bench.now = 20.0
    bench.tick("b0")
    way = b0.accounts.hops["b4"]
    assert (way.lost, way.acknowledged) == (2, 0)
    bench.join(("b0", "b4"))
    assert (way.lost, way.acknowledged, way.problem(0)) == (0, 2, "")
