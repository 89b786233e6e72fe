"""A broker that is back: nobody behind it waits for what it missed."""

from __future__ import annotations

import pytest
from tests.protocol.overlay.node_bench import NodeBench, Said

from surecast.protocol.demand import JointFilter
from surecast.protocol.link import NumberedFrame
from surecast.protocol.overlay.node_links import NodeSettings
from surecast.protocol.overlay.overlay_frames import Detoured, Events
from surecast.protocol.overlay.overlay_node import OverlayNode
from surecast.protocol.overlay.overlay_plan import OverlayPlan, Tree

LINKS = (("b", "a"), ("c", "a"), ("d", "b"), ("d", "c"))
EVENTS = 3


def diamond_without_b(reconnect_s: float = 0.0) -> NodeBench:
    """A broker in the middle is down, and has missed some events that went around it."""
    plan = OverlayPlan(("a", "b", "c", "d"), LINKS, (Tree(LINKS[:3], "bypass-buffering"),))
    bench = NodeBench(plan, NodeSettings(reconnect_s=reconnect_s))
    bench.demand("d", JointFilter("#", qos=1))
    bench.crash("b")
    for _ in range(EVENTS):
        bench.publish("a", "stock", qos=1)
    assert [name for name, _ in bench.delivered] == ["d"] * EVENTS
    return bench


def targets(said: list[Said]) -> list[str]:
    """The brokers to which `a` sends events around something."""
    return [
        (c, *frame.path)[-1]
        for sender, c, frame in said
        if sender == "a" and isinstance(frame, Detoured) and isinstance(frame.frame, Events)
    ]


def detours(node: OverlayNode) -> int:
    frames = [each.content for each in node.output("c") if isinstance(each, NumberedFrame)]
    return sum(isinstance(frame, Detoured) and frame.sender == node.name for frame in frames)


def exchange(a: OverlayNode, b: OverlayNode, now: float) -> None:
    while any([_carry(a, b, now), _carry(b, a, now)]):
        pass


def _carry(sender: OverlayNode, receiver: OverlayNode, now: float) -> bool:
    written = sender.output(receiver.name)
    for each in written:
        receiver.receive(sender.name, each, now)
    return bool(written)


def test_events_go_around_a_neighbour_that_is_back_until_it_has_what_it_missed() -> None:
    bench = diamond_without_b()
    bench.start("b")
    a, b = bench.node("a"), bench.node("b")
    hello_a, hello_b = a.hello("b"), b.hello("a")
    a.link_up("b", hello_b, now=1.0)
    b.link_up("a", hello_a, now=1.0)
    detours(a)
    a.publish("stock", 1, now=1.0, qos=1)
    assert detours(a) == 1
    exchange(a, b, now=1.01)
    assert len(a.custody) == 0
    a.publish("stock", 1, now=1.02, qos=1)
    assert detours(a) == 0


def test_a_neighbour_that_others_reach_again_has_a_moment_to_connect() -> None:
    """Until then events go past it, and what it missed does not go around to it."""
    bench = diamond_without_b(reconnect_s=0.5)
    bench.start("b")
    assert targets(bench.join(("b", "d"))) == []
    assert targets(bench.publish("a", "stock", qos=1)) == ["d"]
    assert bench.node("a").next_timer() == 0.5
    bench.now = 0.5
    assert targets(bench.tick("a")) == ["b"] * (EVENTS + 1)
    assert targets(bench.publish("a", "stock", qos=1)) == ["b"]


def test_a_neighbour_that_connects_in_time_gets_what_it_missed_over_its_link() -> None:
    bench = diamond_without_b(reconnect_s=0.5)
    bench.start("b")
    said = bench.join(("b", "d"), ("b", "a"))
    bench.now = 1.0
    assert targets(said + bench.tick("a")) == []
    assert len(bench.node("a").custody) == 0


def test_who_is_behind_a_broker_takes_what_was_sent_to_it_over_oneself() -> None:
    """The first to notice that it froze still sees a way to it; its other neighbour takes the events at once."""
    bench = diamond_without_b()
    bench.recover("b")
    bench.forget()
    bench.node("d").link_down("b", bench.now)  # nobody was told yet
    bench.joined -= {frozenset(("a", "b")), frozenset(("b", "d"))}
    bench.node("a").link_down("b", bench.now)
    bench.publish("a", "stock", qos=1)
    assert [name for name, _ in bench.delivered] == ["d"]
    assert bench.node("d").accounts.hops["b"].dropped["path-down"] == 0


def diamond_with_waits() -> NodeBench:
    """All links are up, and b takes 4 ms to acknowledge an event."""
    plan = OverlayPlan(("a", "b", "c", "d"), LINKS, (Tree(LINKS[:3], "bypass-buffering"),))
    bench = NodeBench(plan, NodeSettings(ack_wait_s=0.02))
    bench.demand("d", JointFilter("#", qos=1))
    a, b = bench.node("a"), bench.node("b")
    for _ in range(5):
        a.publish("stock", 1, now=bench.now, qos=1)
        bench.now += 0.004
        exchange(a, b, bench.now)
    return bench


def test_events_go_around_a_neighbour_that_does_not_acknowledge_long_before_it_is_suspected() -> None:
    bench = diamond_with_waits()
    a, b, now = bench.node("a"), bench.node("b"), bench.now
    on_link = []
    for after_s in (0.0, 0.01):
        a.publish("stock", 1, now=now + after_s, qos=1)
        on_link += a.output("b")
    assert a.next_timer() == now + 0.02
    a.tick(now + 0.021)
    assert detours(a) == 4, "all that it has not acknowledged, to it and past it"
    a.publish("stock", 1, now=now + 0.03, qos=1)
    on_link += a.output("b")
    assert detours(a) == 2, "and all that is new"
    a.tick(now + 0.2)
    assert detours(a) == 0, "each event once"
    for written in on_link:
        b.receive("a", written, now + 0.21)
    exchange(a, b, now + 0.21)
    a.publish("stock", 1, now=now + 0.22, qos=1)
    assert detours(a) == 0
    assert a.next_timer() - (now + 0.22) > 0.021, "it was late without a failure, so that it has longer from now on"


@pytest.mark.parametrize("acknowledges", [True, False])
def test_a_broker_that_was_late_itself_reads_what_has_come_and_no_longer_waits(acknowledges: bool) -> None:
    bench = diamond_with_waits()
    a, b, now = bench.node("a"), bench.node("b"), bench.now
    a.publish("stock", 1, now=now, qos=1)
    on_link = a.output("b")
    a.tick(now + 0.5)
    assert detours(a) == 0
    if acknowledges:
        for written in on_link:
            b.receive("a", written, now + 0.501)
        exchange(a, b, now + 0.501)  # what had come meanwhile is read now
    a.tick(now + 0.506)
    assert detours(a) == (0 if acknowledges else 2)


def test_a_neighbour_whose_link_is_full_is_not_taken_for_silent() -> None:
    plan = OverlayPlan(("a", "b", "c", "d"), LINKS, (Tree(LINKS[:3], "bypass-buffering"),))
    bench = NodeBench(plan, NodeSettings(ack_wait_s=0.02, window_bytes=100))
    bench.demand("d", JointFilter("#", qos=1))
    a = bench.node("a")
    for _ in range(5):
        a.publish("stock", 1, now=bench.now, qos=1)
        a.output("b")
    a.tick(bench.now + 0.021)
    assert detours(a) == 0
