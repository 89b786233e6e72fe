"""Periodic subscription from end to end, and retransmission at an interval, as the *reliability* paper has them."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from random import Random

import pytest
from tests.protocol.overlay.node_bench import NodeBench, Said
from tests.protocol.overlay.overlay_world import World

from surecast.errors import ConfigurationError, PeerError
from surecast.protocol.demand import DemandHashes, JointFilter, Subscription, Subscriptions
from surecast.protocol.link import CONTROL, NumberedFrame
from surecast.protocol.overlay.node_links import NodeSettings
from surecast.protocol.overlay.overlay_frames import Detoured, Frame
from surecast.protocol.overlay.overlay_node import OverlayNode
from surecast.protocol.overlay.overlay_plan import OverlayPlan, Tree

STOCK = (("b1", "b2"), ("b2", "b3"), ("b2", "b4"))
LINKS = (*STOCK, ("b1", "b3"), ("b3", "b4"))
WANTS = JointFilter("Stock", qos=1)
OWN_TIMER = NodeSettings(resume_s=0.0, refresh_s=inf, timeout_s=180.0)

AT_INTERVAL = NodeSettings(resume_s=0.0, refresh_s=inf, grace_s=inf, retransmission_interval_s=10.0)


def overlay(scheme: str, settings: NodeSettings = OWN_TIMER, **tree: object) -> NodeBench:
    planned = Tree(STOCK, scheme, refresh="end-to-end", **tree)  # type: ignore[arg-type]
    return NodeBench(OverlayPlan(("b1", "b2", "b3", "b4"), LINKS, (planned,)), settings)


def subscribed(scheme: str, settings: NodeSettings = OWN_TIMER) -> NodeBench:
    bench = overlay(scheme, settings)
    bench.demand("b3", WANTS)
    bench.forget()
    return bench


def ways(said: list[Said]) -> list[tuple[str, str]]:
    return [(sender, to) for sender, to, _ in said]


def kinds(said: list[Said]) -> list[str]:
    return ["ack" if isinstance(what, int) else type(what).__name__ for _, _, what in said]


def test_figure_1a_a_subscription_follows_the_tree_and_so_does_each_refresh() -> None:
    bench = overlay("periodic-subscription")
    tree = [("b3", "b2"), ("b2", "b1"), ("b2", "b4")]
    assert ways(bench.demand("b3", WANTS)) == tree
    assert ways(bench.refresh("b3", WANTS)) == tree
    assert ways(bench.demand("b3", WANTS)) == [], "it is there already"
    assert {name: bench.node("b2").wanted_by(name, 0) for name in ("b1", "b3", "b4")} == {
        "b1": [],
        "b3": [WANTS],
        "b4": [],
    }
    assert ways(bench.publish("b1", "Stock", qos=1)) == [("b1", "b2"), ("b2", "b3")]


def test_on_a_tree_with_a_root_a_subscription_goes_towards_it() -> None:
    bench = overlay("periodic-subscription", root="b1")
    assert ways(bench.demand("b3", WANTS)) == [("b3", "b2"), ("b2", "b1")]
    assert ways(bench.publish("b4", "Stock", qos=1)) == [("b4", "b2"), ("b2", "b1"), ("b2", "b3")]


def test_an_unsubscription_ends_the_flow_and_an_older_issue_does_not_bring_it_back() -> None:
    bench = subscribed("periodic-subscription")
    assert ways(bench.demand("b3", removed=(WANTS,))) == [("b3", "b2"), ("b2", "b1"), ("b2", "b4")]
    assert bench.publish("b1", "Stock", qos=1) == []
    entries = Subscriptions(0, "b2", 1, {"b1": "simple", "b3": "simple"})
    entries.receive("b3", Subscription(0, "b3", (1, 2), WANTS, is_wanted=False), 0.0)
    assert entries.receive("b3", Subscription(0, "b3", (1, 1), WANTS), 0.0) == []
    assert len(entries) == 0


def test_an_entry_moves_to_the_neighbour_from_which_it_came_last() -> None:
    entries = Subscriptions(0, "b2", 1, {"b1": "simple", "b3": "simple"})
    entries.receive("b1", Subscription(0, "b9", (1, 1), WANTS), 0.0)
    assert entries.receive("b3", Subscription(0, "b9", (1, 2), WANTS), 1.0)[0][0] == "b1"
    assert entries.table.find("Stock").always == {"b3": 1}


@pytest.mark.parametrize("scheme", ["none", "periodic-subscription", "bypass"])
def test_a_crash_takes_the_table_and_only_a_refresh_brings_it_back(scheme: str) -> None:
    bench = subscribed(scheme)
    bench.crash("b2")
    bench.now = 10.0
    bench.recover("b2")
    bench.publish("b1", "Stock", qos=1)
    assert bench.delivered == []
    bench.refresh("b3", WANTS)
    bench.publish("b1", "Stock", qos=1)
    assert [name for name, _ in bench.delivered] == ["b3"]


def test_a_subscription_that_is_not_refreshed_times_out() -> None:
    bench = subscribed("periodic-subscription")
    bench.now = 180.0
    assert len(bench.publish("b1", "Stock", qos=1)) == 2
    bench.now = 180.5
    assert bench.publish("b1", "Stock", qos=1) == []


@pytest.mark.parametrize("scheme", ["none", "buffering", "bypass-buffering"])
def test_what_is_never_refreshed_or_is_on_disk_does_not_time_out(scheme: str) -> None:
    bench = subscribed(scheme)
    bench.now = 1e6
    assert ways(bench.publish("b1", "Stock", qos=0)) == [("b1", "b2"), ("b2", "b3")]


def test_buffering_keeps_subscriptions_on_disk_until_they_are_revoked() -> None:
    bench = subscribed("buffering")
    bench.crash("b2")
    bench.recover("b2")
    assert bench.node("b2").wanted_by("b3", 0) == [WANTS]
    bench.demand("b3", removed=(WANTS,))
    bench.crash("b2")
    bench.recover("b2")
    assert bench.node("b2").wanted_by("b3", 0) == []


@pytest.mark.parametrize(("scheme", "refreshes"), [("none", False), ("periodic-subscription", True), ("bypass", True)])
def test_a_home_broker_refreshes_by_itself_where_the_scheme_has_it(scheme: str, refreshes: bool) -> None:
    bench = overlay(scheme, NodeSettings(resume_s=0.0, refresh_s=60.0, grace_s=inf))
    bench.demand("b3", WANTS)
    assert bench.node("b3").next_timer() == 60.0
    bench.now = 60.0
    assert ways(bench.tick("b3")) == ([("b3", "b2"), ("b2", "b1"), ("b2", "b4")] if refreshes else [])


def test_figure_3_subscriptions_take_the_detours_of_events() -> None:
    bench = overlay("bypass")
    bench.crash("b2")
    said = bench.demand("b3", WANTS)
    assert ways(said) == [("b3", "b1"), ("b3", "b4")]
    assert all(isinstance(what, Detoured) and what.via == "b2" for _, _, what in said)
    assert bench.node("b1").wanted_by("b2", 0) == [WANTS], "as if b2 had sent it"
    bench.publish("b1", "Stock", qos=1)
    assert [name for name, _ in bench.delivered] == ["b3"]


def test_without_detours_a_subscription_over_a_dead_link_is_lost_and_counted() -> None:
    bench = overlay("periodic-subscription")
    bench.crash("b2")
    assert bench.demand("b3", WANTS) == []
    assert bench.node("b3").accounts.subscriptions_lost == 1


def test_figure_2_an_event_is_sent_again_at_an_interval_until_it_is_acknowledged() -> None:
    bench = subscribed("buffering", AT_INTERVAL)
    bench.crash("b2")
    assert bench.publish("b1", "Stock", qos=1) == []
    to_b2 = bench.node("b1").accounts.hops["b2"]
    assert (bench.node("b1").next_timer(), to_b2.transmitted, to_b2.retransmitted) == (10.0, 1, 0)
    for bench.now in (10.0, 20.0):
        assert bench.tick("b1") == []
    assert to_b2.retransmitted == 2, "sent, and lost"
    bench.now = 25.0
    assert "Events" not in kinds(bench.recover("b2")), "it waits for the interval"
    bench.now = 30.0
    assert kinds(bench.tick("b1")) == ["Events", "ack", "Events", "ack"]
    assert [name for name, _ in bench.delivered] == ["b3"]
    assert bench.node("b1").next_timer() == inf
    assert (to_b2.transmitted, to_b2.retransmitted) == (1, 3)


def test_what_a_restarted_broker_has_in_custody_is_sent_when_its_link_comes_up_first() -> None:
    bench = subscribed("buffering", AT_INTERVAL)
    bench.crash("b2")
    bench.publish("b1", "Stock", qos=1)
    bench.crash("b1")
    bench.now = 5.0
    bench.recover("b2")
    said = bench.recover("b1")
    assert [what for what in kinds(said) if what in ("Events", "ack")] == ["Events", "ack", "Events", "ack"]
    assert [name for name, _ in bench.delivered] == ["b3"]


def test_with_detours_a_broker_knows_what_is_down_and_sends_nothing_there_in_vain() -> None:
    bench = subscribed("bypass-buffering", AT_INTERVAL)
    bench.crash("b2")
    assert kinds(bench.publish("b1", "Stock", qos=1)) == ["Detoured", "Detoured", "Detoured"]
    bench.now = 10.0
    assert bench.tick("b1") == []
    accounts = bench.node("b1").accounts.hops["b2"]
    assert (accounts.transmitted, accounts.retransmitted) == (0, 0)
    bench.recover("b2")
    bench.now = 20.0
    assert kinds(bench.tick("b1")) == ["Events", "ack", "Events", "ack"]
    assert (accounts.transmitted, accounts.retransmitted) == (0, 1)
    assert len(bench.delivered) == 1


@pytest.mark.parametrize("interval_s", [0.0, 2.0])
@pytest.mark.parametrize("scheme", ["none", "periodic-subscription", "buffering", "bypass", "bypass-buffering"])
@pytest.mark.parametrize("seed", range(4))
def test_under_faults_nothing_is_doubled_and_custody_loses_nothing(seed: int, scheme: str, interval_s: float) -> None:
    settings = NodeSettings(
        resume_s=20.0, refresh_s=5.0, timeout_s=15.0, window_bytes=600, retransmission_interval_s=interval_s
    )
    world = World(Random(f"end to end {scheme} {seed}"), scheme, settings=settings, refresh="end-to-end")
    for _ in range(300):
        world.step()
        assert world.problems() == []
    world.heal()
    assert world.problems() == []
    if "buffering" in scheme:
        # Subscriptions are kept on disk: who wanted an event when it was published gets it.
        assert world.missing() == []
        assert all(len(machine.node.custody) == 0 for machine in world.machines.values() if machine.node)


def test_what_does_not_fit_the_plan_is_refused_by_name() -> None:
    by_link = NodeBench(OverlayPlan(("b1", "b2"), STOCK[:1], (Tree(STOCK[:1]),))).node("b1")
    end_to_end = overlay("none").node("b1")
    subscription, comparison = Subscription(0, "b2", (1, 1), WANTS), DemandHashes(0, "held", ((0, 0, 0),))

    def receive(node: OverlayNode, frame: Frame) -> None:
        number = node._links.sessions["b2"]._number_received + 1
        node.receive("b2", NumberedFrame(number, CONTROL, 10, frame), 0.0)

    with pytest.raises(PeerError, match="compares demand on tree 0, which is refreshed from end to end"):
        receive(end_to_end, comparison)
    with pytest.raises(PeerError, match="a subscription of b2 on tree 0, on which there is none"):
        receive(by_link, subscription)
    with pytest.raises(PeerError, match="a subscription of x on tree 0"):
        receive(end_to_end, replace(subscription, home="x"))
    with pytest.raises(ConfigurationError, match=r"trees\[0\].refresh: 'often'"):
        OverlayPlan(("b1", "b2"), STOCK[:1], (Tree(STOCK[:1], refresh="often"),))  # type: ignore[arg-type]
