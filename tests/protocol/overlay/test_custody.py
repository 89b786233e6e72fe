"""What a broker answers for: its bounds, its memory, and what it does with repetitions."""

from __future__ import annotations

from surecast.protocol.overlay.custody import Custody
from surecast.protocol.overlay.event_id import EventId
from surecast.protocol.overlay.overlay_frames import EventBatch


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
