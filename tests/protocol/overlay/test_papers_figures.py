"""The worked examples of the papers on the overlay node, message by message: *capacity* Figures 2 and 3, *reliability*
Figures 1 to 3. A frame with one event is one message, and so is the acknowledgement of one event."""

from __future__ import annotations

from typing import Any

import pytest
from tests.protocol.overlay.node_bench import NodeBench, Said

from surecast.protocol.demand import SUMMARIES, DemandChange, DemandUpdate, JointFilter
from surecast.protocol.filters import parse
from surecast.protocol.overlay.overlay_frames import Detoured, Events
from surecast.protocol.overlay.overlay_plan import OverlayPlan, Tree

# capacity: B1 in the middle; F covers G; n matches both.
F = JointFilter("Stock", parse("price > 30"))
G = JointFilter("Stock", parse("price > 35"))
N = {"price": 37}
STAR = (("B0", "B1"), ("B1", "B2"), ("B1", "B3"), ("B1", "B4"))

# reliability: four brokers; the tree of Stock is rooted at b2, that of Temp at b3.
STOCK = (("b1", "b2"), ("b2", "b3"), ("b2", "b4"))
TEMP = (("b1", "b3"), ("b2", "b3"), ("b3", "b4"))
LINKS = (*STOCK, ("b1", "b3"), ("b3", "b4"))
WANTS_STOCK = JointFilter("Stock", qos=1)
WANTS_TEMP = JointFilter("Temp", qos=1)


def star(algorithm: str, root: str | None = None) -> NodeBench:
    return NodeBench(OverlayPlan(("B0", "B1", "B2", "B3", "B4"), STAR, (Tree(STAR, "none", algorithm, root=root),)))


def overlay(scheme: str) -> NodeBench:
    trees = (Tree(STOCK, scheme, "identity-exact"), Tree(TEMP, scheme, "identity-exact"))
    return NodeBench(OverlayPlan(("b1", "b2", "b3", "b4"), LINKS, trees, (("", (0,)), ("Temp", (1,)))))


def subscribed(scheme: str) -> NodeBench:
    bench = overlay(scheme)
    bench.demand("b3", WANTS_STOCK)
    bench.forget()
    return bench


def added(tree: int, *filters: JointFilter) -> DemandUpdate:
    return DemandUpdate(tree, DemandChange(added=filters))


def ways(said: list[Said]) -> list[tuple[str, str]]:
    return [(sender, to) for sender, to, _ in said]


def kinds(said: list[Said]) -> list[tuple[str, str, str]]:
    return [(a, b, "ack" if isinstance(what, int) else type(what).__name__) for a, b, what in said]


def test_capacity_figure_2_peer_to_peer_covering_based_routing() -> None:
    bench = star("covering")
    assert bench.demand("B2", F) == [
        ("B2", "B1", added(0, F)),
        ("B1", "B0", added(0, F)),
        ("B1", "B3", added(0, F)),
        ("B1", "B4", added(0, F)),
    ]
    # "G is not forwarded to the neighbor brokers B0 and B4, but only to B2"
    assert bench.demand("B3", G) == [("B3", "B1", added(0, G)), ("B1", "B2", added(0, G))]
    assert ways(bench.publish("B4", "Stock", N)) == [("B4", "B1"), ("B1", "B2"), ("B1", "B3")]
    assert [name for name, _ in bench.delivered] == ["B2", "B3"]


def test_capacity_figure_3_hierarchical_covering_based_routing() -> None:
    bench = star("covering", root="B0")
    assert bench.demand("B2", F) == [("B2", "B1", added(0, F)), ("B1", "B0", added(0, F))]
    assert bench.demand("B3", G) == [("B3", "B1", added(0, G))]
    # "the notification n is additionally forwarded to the root broker"
    assert ways(bench.publish("B4", "Stock", N)) == [("B4", "B1"), ("B1", "B0"), ("B1", "B2"), ("B1", "B3")]
    assert [name for name, _ in bench.delivered] == ["B2", "B3"]


def test_a_revocation_and_what_it_uncovers_travel_in_one_message() -> None:
    """capacity Eq. 18's factor 2: the revocation of F costs as many messages as F did."""
    bench = star("covering")
    bench.demand("B2", F)
    bench.demand("B3", G)
    assert bench.demand("B2", removed=(F,)) == [
        ("B2", "B1", DemandUpdate(0, DemandChange(removed=(F,)))),
        ("B1", "B0", DemandUpdate(0, DemandChange((F,), (G,)))),
        ("B1", "B3", DemandUpdate(0, DemandChange(removed=(F,)))),
        ("B1", "B4", DemandUpdate(0, DemandChange((F,), (G,)))),
    ]


def test_the_other_algorithms_on_the_same_scene() -> None:
    everything = JointFilter("Stock")
    expected: dict[str, list[Said]] = {
        "flooding": [],
        "simple": [("B3", "B1", added(0, G)), *(("B1", hop, added(0, G)) for hop in ("B0", "B2", "B4"))],
        "identity": [("B3", "B1", added(0, everything)), ("B1", "B2", added(0, everything))],
        "identity-exact": [("B3", "B1", added(0, G)), *(("B1", hop, added(0, G)) for hop in ("B0", "B2", "B4"))],
        "covering": [("B3", "B1", added(0, G)), ("B1", "B2", added(0, G))],
        "merging": [("B3", "B1", added(0, G)), ("B1", "B2", added(0, G))],
        "merging-exact": [("B3", "B1", added(0, G)), ("B1", "B2", added(0, G))],
    }
    assert set(expected) == {"flooding", *SUMMARIES}
    for algorithm, said in expected.items():
        bench = star(algorithm)
        bench.demand("B2", F)
        assert bench.demand("B3", G) == said, algorithm
        bench.publish("B4", "Stock", N)
        assert sorted(name for name, _ in bench.delivered) == ["B2", "B3"], algorithm


def test_reliability_figure_1_subscriptions_follow_the_tree_of_their_topic_and_events_go_back() -> None:
    bench = overlay("periodic-subscription")
    assert bench.demand("b3", WANTS_STOCK) == [
        ("b3", "b2", added(0, WANTS_STOCK)),
        ("b2", "b1", added(0, WANTS_STOCK)),
        ("b2", "b4", added(0, WANTS_STOCK)),
    ]
    assert bench.demand("b4", WANTS_TEMP) == [
        ("b4", "b3", added(1, WANTS_TEMP)),
        ("b3", "b1", added(1, WANTS_TEMP)),
        ("b3", "b2", added(1, WANTS_TEMP)),
    ]
    said = bench.publish("b1", "Stock", qos=1)
    assert ways(said) == [("b1", "b2"), ("b2", "b3")]
    assert all(isinstance(what, Events) and what.attempt == "b1" for _, _, what in said)
    assert [name for name, _ in bench.delivered] == ["b3"]


def test_an_event_passes_a_link_once_however_many_subscriptions_match() -> None:
    bench = subscribed("periodic-subscription")
    bench.demand("b3", JointFilter("+", qos=1), JointFilter("#"))
    bench.forget()
    assert ways(bench.publish("b1", "Stock", qos=1)) == [("b1", "b2"), ("b2", "b3")]
    assert len(bench.delivered) == 1


def test_reliability_figure_2_store_acknowledge_forward_discard() -> None:
    """reliability section 2.4.2: store, ACK to the upstream neighbour, forward, wait for the ACK, discard."""
    bench = subscribed("buffering")
    said = bench.publish("b1", "Stock", qos=1)
    assert sorted(kinds(said)) == [
        ("b1", "b2", "Events"),
        ("b2", "b1", "ack"),
        ("b2", "b3", "Events"),
        ("b3", "b2", "ack"),
    ]
    log: list[tuple[Any, ...]] = bench.log

    def before(first: tuple[Any, ...], second: tuple[Any, ...]) -> bool:
        return log.index(first) < log.index(second)

    for broker, upstream, downstream in (("b1", None, "b2"), ("b2", "b1", "b3")):
        stored, discarded = (broker, "disk", "held", True), (broker, "disk", "held", False)
        assert before(stored, (broker, "send", downstream))
        assert before((broker, "send", downstream), discarded)
        assert before((downstream, "acknowledge", broker), discarded)
        assert upstream is None or before(stored, (broker, "acknowledge", upstream))
    assert before(("b3", "disk", "handled", True), ("b3", "acknowledge", "b2"))
    assert all(len(bench.node(name).custody) == 0 for name in bench.nodes)
    assert [name for name, _ in bench.delivered] == ["b3"]


def test_an_event_waits_on_disk_for_a_broker_that_is_down_and_is_sent_again_at_link_up() -> None:
    bench = subscribed("buffering")
    bench.crash("b2")
    assert bench.publish("b1", "Stock", qos=1) == []
    assert len(bench.node("b1").custody) == 1
    bench.crash("b1")
    bench.recover("b1")
    said = [entry for entry in kinds(bench.recover("b2")) if entry[2] != "DemandUpdate"]
    assert sorted(said) == [
        ("b1", "b2", "Events"),
        ("b2", "b1", "ack"),
        ("b2", "b3", "Events"),
        ("b3", "b2", "ack"),
    ]
    assert [name for name, _ in bench.delivered] == ["b3"]


def test_reliability_figure_3_b1_bypasses_failed_b2_to_its_immediately_reachable_children() -> None:
    """reliability section 2.4.3: the immediately reachable children of b2 are b3 and b4."""
    bench = subscribed("bypass")
    bench.crash("b2")
    said = bench.publish("b1", "Stock", qos=1)
    assert [(a, b, what.path, what.via) for a, b, what in said if isinstance(what, Detoured)] == [
        ("b1", "b3", (), "b2"),
        ("b1", "b3", ("b4",), "b2"),
        ("b3", "b4", (), "b2"),
    ]
    assert len(said) == 3
    assert [name for name, _ in bench.delivered] == ["b3"]


def test_a_failed_link_is_bypassed_to_the_neighbour_itself() -> None:
    bench = subscribed("bypass")
    bench.cut("b1", "b2")
    said = bench.publish("b1", "Stock", qos=1)
    assert [(a, b, type(what).__name__) for a, b, what in said] == [
        ("b1", "b3", "Detoured"),
        ("b3", "b2", "Detoured"),
        ("b2", "b3", "Events"),
    ]
    assert [name for name, _ in bench.delivered] == ["b3"]


def test_bypass_with_buffering_detours_without_acknowledgement_and_keeps_the_event_for_the_failed_broker() -> None:
    """reliability section 4.5."""
    bench = subscribed("bypass-buffering")
    bench.crash("b2")
    said = bench.publish("b1", "Stock", qos=1)
    assert [type(what) for _, _, what in said] == [Detoured, Detoured, Detoured], "no acknowledgement among them"
    assert [name for name, _ in bench.delivered] == ["b3"]
    assert len(bench.node("b1").custody) == 1
    said = [entry for entry in kinds(bench.recover("b2")) if entry[2] != "DemandUpdate"]
    assert sorted(entry[2] for entry in said) == ["Events", "Events", "ack", "ack"]
    assert [name for name, _ in bench.delivered] == ["b3"], "the duplicate is filtered at the last hop"
    assert all(len(bench.node(name).custody) == 0 for name in bench.nodes)


def test_reliability_figure_3_subscriptions_take_the_same_detours() -> None:
    bench = overlay("bypass")
    bench.crash("b2")
    bench.demand("b3", WANTS_STOCK)
    said = bench.publish("b1", "Stock", qos=1)
    assert ("b1", "b3") in ways(said)
    bench.publish("b4", "Stock", qos=1)
    assert [name for name, _ in bench.delivered] == ["b3", "b3"]
    bench.demand("b3", removed=(WANTS_STOCK,))
    assert bench.publish("b1", "Stock", qos=1) == []
    bench.demand("b3", WANTS_STOCK)
    bench.recover("b2")
    bench.forget()
    assert ways(bench.publish("b1", "Stock", qos=1)) == [("b1", "b2"), ("b2", "b3")]


def test_a_broker_that_was_restarted_learns_around_a_dead_neighbour_who_wants_what() -> None:
    bench = subscribed("bypass")
    bench.crash("b2")
    bench.crash("b1")
    bench.recover("b1")
    bench.publish("b1", "Stock", qos=1)
    assert [name for name, _ in bench.delivered] == ["b3"]


@pytest.mark.parametrize("scheme", ["none", "buffering", "bypass", "bypass-buffering"])
def test_an_event_at_qos_0_is_never_in_custody(scheme: str) -> None:
    bench = subscribed(scheme)
    said = bench.publish("b1", "Stock", qos=0)
    assert kinds(said) == [("b1", "b2", "Events"), ("b2", "b3", "Events")]
    assert not any(key[0] == "held" for disk in bench.disks.values() for key in disk)
