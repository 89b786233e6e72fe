"""The map of retained messages, frame by frame."""

from __future__ import annotations

from typing import Any

import pytest

from surecast.errors import PeerError
from surecast.protocol.link import CONTROL
from surecast.protocol.overlay.event_id import EventId
from surecast.protocol.overlay.frame_rules import check_frame
from surecast.protocol.overlay.overlay_frames import (
    EventBatch,
    Events,
    MapBucket,
    MapEntries,
    MapForget,
    MapFrame,
    MapSums,
)
from surecast.protocol.overlay.overlay_plan import OverlayPlan, Tree
from surecast.protocol.overlay.retained_map import RetainedMap

LINKS = (("b1", "b2"), ("b2", "b3"))
PLAN = OverlayPlan(("b1", "b2", "b3"), LINKS, (Tree(LINKS), Tree(LINKS)), (("", (0,)), ("other", (1,))))


def entry(topic: str, stamp: int, origin: str = "b1", **changes: Any) -> EventBatch:
    return EventBatch(EventId(origin, 1, stamp), 1, topic, 0.0, stamp=stamp, **changes)


def map_of(name: str, *entries: EventBatch) -> RetainedMap:
    retained = RetainedMap(name, PLAN, [], lambda: EventId(name, 1, 1_000), lambda hop: True, 100, 10_000)
    for each in entries:
        assert retained.take(0, each)
    return retained


def receive(retained: RetainedMap, neighbour: str, frame: MapFrame) -> list[tuple[str, MapFrame]]:
    return retained.receive(neighbour, frame, 1.0, lambda hop, entry: False)[0]


def test_a_deletion_that_one_broker_lacks_is_not_forgotten_although_all_are_there() -> None:
    deleted = entry("t", 5, deletes=True)
    first, second, third = map_of("b1", deleted), map_of("b2", deleted), map_of("b3", entry("t", 4))
    ((to, ask),) = first.begin_waves(1.0)
    assert (to, ask.step) == ("b2", "ask")  # type: ignore[union-attr]
    ((to, ask),) = receive(second, "b1", ask)
    ((back, have),) = receive(third, "b2", ask)
    assert (to, back, have.keys) == ("b3", "b2", ())  # type: ignore[union-attr]
    ((_, have),) = receive(second, "b3", have)
    assert receive(first, "b2", have) == []
    assert [each.tombstones for each in (first, second, third)] == [1, 1, 0]


def test_a_deletion_is_dropped_by_all_when_all_have_it_or_something_later() -> None:
    deleted = entry("t", 5, deletes=True)
    brokers = {"b1": map_of("b1", deleted), "b2": map_of("b2", deleted), "b3": map_of("b3", deleted)}
    brokers["b3"].take(0, entry("t", 6))
    frames = [("b1", *each) for each in brokers["b1"].begin_waves(1.0)]
    while frames:
        sender, to, frame = frames.pop(0)
        frames += [(to, *each) for each in receive(brokers[to], sender, frame)]
    assert [each.tombstones for each in brokers.values()] == [0, 0, 0]
    assert brokers["b3"].get("t") == entry("t", 6)


def test_an_answer_to_a_wave_that_is_over_means_nothing() -> None:
    deleted = entry("t", 5, deletes=True)
    first = map_of("b1", deleted)
    ((_, old),) = first.begin_waves(1.0)
    first.begin_waves(100.0)
    assert isinstance(old, MapForget)
    assert receive(first, "b2", MapForget(0, old.number, "have", old.keys)) == []
    first.disconnected("b2")
    assert receive(first, "b2", MapForget(0, 100, "have", old.keys)) == []
    assert first.tombstones == 1


def test_who_drops_what_others_still_have_does_not_take_it_again() -> None:
    first = map_of("b1", entry("t", 5, deletes=True))
    frame = MapForget(0, 9, "drop", tuple(key for _, frame in first.begin_waves(1.0) for key in frame.keys))  # type: ignore[union-attr]
    receive(first, "b2", frame)
    receive(first, "b2", MapEntries(0, (entry("t", 5, deletes=True),)))
    assert first.tombstones == 0
    receive(first, "b2", MapEntries(0, (entry("t", 6, "b3"),)))
    assert first.get("t") is not None, "what is later is news"


def test_equal_stamps_are_decided_by_origin_whichever_comes_first() -> None:
    for versions in ((entry("t", 5, "b1"), entry("t", 5, "b2")), (entry("t", 5, "b2"), entry("t", 5, "b1"))):
        retained = map_of("b3")
        for each in versions:
            retained.take(0, each)
        assert retained.get("t") == entry("t", 5, "b2")


def test_versions_on_their_way_as_events_are_not_sent_by_a_comparison() -> None:
    retained = map_of("b1", entry("t", 5))
    ((_, root),) = retained.compare("b2")
    assert isinstance(root, MapSums)
    place = next(n for n in range(4096) if retained.receive("b2", MapBucket(0, n, ()), 1.0, lambda *_: False)[0])
    bucket = MapBucket(0, place, ())
    assert retained.receive("b2", bucket, 1.0, lambda hop, entry: True) == ([], [])
    (frames, _) = retained.receive("b2", bucket, 1.0, lambda hop, entry: False)
    assert frames == [("b2", MapEntries(0, (entry("t", 5),)))]


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (MapSums(0, ((4, 0, 1),)), "places that are none"),
        (MapSums(0, ((1, 16, 1),)), "places that are none"),
        (MapBucket(0, 4096, ()), "bucket 4096"),
        (MapEntries(0, (EventBatch(EventId("b1", 1, 1), 1, "t", 0.0),)), "as one that is retained"),
        (MapEntries(0, (EventBatch(EventId("b1", 1, 1), 2, "t", 0.0, stamp=5),)), "2 messages"),
        (MapEntries(0, (entry("t", 5, "b9"),)), "events of b9"),
        (MapEntries(0, (entry("other", 5),)), "on tree 0, which is not its own"),
        (MapSums(2, ()), "on which it is no neighbour"),
        (Events(1, entry("t", 5), "b1"), "on tree 1, which is not its own"),
    ],
)
def test_frames_about_retained_messages_that_break_the_rules_are_refused(frame: Any, words: str) -> None:
    lane = frame.tree if isinstance(frame, Events) else CONTROL
    with pytest.raises(PeerError, match=words):
        check_frame(PLAN, "b1", "b2", frame, lane)
