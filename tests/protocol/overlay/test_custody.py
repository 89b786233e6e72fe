"""What a broker answers for: its bounds, its memory, and what it does with repetitions."""

from __future__ import annotations

from math import inf

from tests.protocol.overlay.node_bench import NodeBench

from surecast.protocol.demand import JointFilter
from surecast.protocol.overlay.custody import Custody
from surecast.protocol.overlay.event_bodies import BatchedMessage, MessageRun
from surecast.protocol.overlay.event_id import EventId
from surecast.protocol.overlay.frame_sizes import frame_bytes
from surecast.protocol.overlay.node_links import NodeSettings
from surecast.protocol.overlay.overlay_frames import EventBatch, Events
from surecast.protocol.overlay.overlay_plan import OverlayPlan, Tree


def batch(number: int, count: int = 1, **named: float) -> EventBatch:
    return EventBatch(EventId("b1", 1, number), count, "stock", published_s=0.0, qos=1, **named)  # type: ignore[arg-type]


def test_events_that_are_acknowledged_long_before_they_expire_leave_nothing_in_memory() -> None:
    custody = Custody([])
    for number in range(5_000):
        custody.take(0, batch(number, expires_s=1e6), {"b2": 1})
        custody.acknowledge("b2", EventId("b1", 1, number))
    assert len(custody._expiry) < 1_100
    custody.take(0, batch(9_000, expires_s=2e6), {"b2": 1})
    assert custody.next_timer() == 2e6
    assert [held.batch.first.number for held, _ in custody.expire(2e6)] == [9_000]


def test_what_waits_for_one_tree_leaves_room_and_way_to_the_other() -> None:
    custody = Custody([], hop_events_max=2)
    custody.take(0, batch(0, 2), {"b2": 1})
    custody.take(1, batch(2), {"b2": 1})
    assert (custody.is_full("b2", 0), custody.is_full("b2", 1)) == (True, False)
    assert [held.batch.first.number for held in custody.unsent("b2", 1)] == [2]
    custody.unsend("b2", [EventId("b1", 1, 2)])
    assert custody.events_unsent("b2") == 3


def test_a_repetition_of_what_still_waits_is_known_though_the_memory_has_forgotten_it() -> None:
    custody = Custody([])
    custody.take(0, batch(0, 2), {"b2": 1})
    assert custody.not_held(batch(0, 2)) is None
    rest = custody.not_held(batch(0, 5))
    assert rest is not None
    assert (rest.first.number, rest.count) == (2, 3)
    assert custody.not_held(batch(7)) == batch(7)


def test_a_neighbour_that_begins_session_after_session_puts_one_window_at_most_into_full_custody() -> None:
    settings = NodeSettings(window_bytes=1_000, custody_bytes_max=2_000, resume_s=0.0)
    names = ("b0", "b1", "b2")
    links = (("b0", "b1"), ("b1", "b2"))
    plan = OverlayPlan(names, links, (Tree(links, "buffering"),))
    bench = NodeBench(plan, settings)
    bench.demand("b2", JointFilter("#", qos=1))
    bench.crash("b2")
    for _ in range(20):
        bench.crash("b0")
        bench.disks["b0"].clear()
        bench.recover("b0")
        for _ in range(30):
            bench.publish("b0", "t", qos=1, body=MessageRun.of([BatchedMessage(False, inf, b"", bytes(100))]))
    held = bench.node("b1").custody.waiting_for("b2")
    assert sum(frame_bytes(Events(0, batch.batch)) for batch in held) <= 2 * (2_000 + 1_000)
