"""Cuts a batch into runs of events: those that were not seen, and those that go the same way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

from surecast.protocol.overlay.event_id import SeenEvents
from surecast.protocol.overlay.overlay_frames import EventBatch

__all__ = ["Unseen", "runs_of", "take_unseen"]

T = TypeVar("T")


class Unseen(NamedTuple):
    """The events of a batch that were not seen, in runs; how many were, and how many are older than the memory."""

    parts: list[EventBatch]
    repeated: int
    too_old: int


def take_unseen(batch: EventBatch, seen: SeenEvents, *, takes_too_old: bool) -> Unseen:
    """Returns the events that were not seen; from now on they were. What is older than the memory may have been.

    >>> from surecast.protocol.overlay.event_id import EventId
    >>> seen = SeenEvents()
    >>> seen.add(EventId("b1", 1, 6), 2)
    >>> unseen = take_unseen(EventBatch(EventId("b1", 1, 5), 5, "stock", 0.0), seen, takes_too_old=False)
    >>> [(part.first.number, part.count) for part in unseen.parts], unseen.repeated
    ([(5, 1), (8, 2)], 2)
    """
    if seen.are_new(batch.first, batch.count):  # as nearly all are
        seen.add(batch.first, batch.count)
        return Unseen([batch], 0, 0)
    looks = [seen.look(batch.first.plus(place)) for place in range(batch.count)]
    takes = [look == "new" or (takes_too_old and look == "too-old") for look in looks]
    parts = [batch.part(start, stop) for start, stop, take in runs_of(takes) if take]
    for part in parts:
        seen.add(part.first, part.count)
    return Unseen(parts, looks.count("seen"), 0 if takes_too_old else looks.count("too-old"))


def runs_of(values: Sequence[T]) -> Iterator[tuple[int, int, T]]:
    """Yields the runs of equal values: where each starts and stops, and its value.

    >>> list(runs_of("aab"))
    [(0, 2, 'a'), (2, 3, 'b')]
    """
    start = 0
    for place in range(1, len(values) + 1):
        if place == len(values) or values[place] != values[start]:
            yield start, place, values[start]
            start = place
