"""The identity of events, and the memory of those that were seen.

The numbers of an origin are dense, but filtering makes gaps, and a detour overtakes the tree: so the memory is a set of
intervals and never a highest number. It is bounded. What it had to forget is not `new` any more but `too old`.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, Literal, NamedTuple, TypeAlias

__all__ = ["EventId", "IntervalSet", "Seen", "SeenEvents"]

Seen: TypeAlias = Literal["new", "seen", "too-old"]

_INTERVALS_MAX: Final = 50_000  # more than a window of small events, each of which filtering has put apart
_INCARNATIONS_KEPT: Final = 16  # so many restarts while an event may still be repeated


class EventId(NamedTuple):
    """Names an event: the broker that took it from its publisher, that broker's incarnation, and a dense number."""

    origin: str
    incarnation: int
    number: int

    def plus(self, count: int) -> EventId:
        """Returns the identity of the event so many places further on.

        >>> EventId("b1", 1, 7).plus(2)
        EventId(origin='b1', incarnation=1, number=9)
        """
        return EventId(self.origin, self.incarnation, self.number + count)


class IntervalSet:
    """A set of whole numbers as intervals, of which only the highest few are kept.

    >>> numbers = IntervalSet(intervals_max=2)
    >>> for first, count in ((1, 3), (10, 1), (4, 2), (20, 5)):
    ...     numbers.add(first, count)
    >>> numbers.intervals(), numbers.floor
    ([(10, 11), (20, 25)], 6)
    >>> 10 in numbers, 12 in numbers, 5 in numbers
    (True, False, True)
    """

    def __init__(self, intervals_max: int = _INTERVALS_MAX):
        self.floor = 0
        """Numbers below this one are forgotten, and count as members."""
        self._intervals_max = intervals_max
        self._starts: list[int] = []
        self._ends: list[int] = []

    def __contains__(self, number: int) -> bool:
        place = bisect_right(self._starts, number) - 1
        return number < self.floor or (place >= 0 and number < self._ends[place])

    def has_none_of(self, first: int, count: int) -> bool:
        """Returns whether none of `count` numbers from `first` on is a member."""
        place = bisect_right(self._starts, first + count - 1) - 1
        return first >= self.floor and (place < 0 or self._ends[place] <= first)

    def add(self, first: int, count: int = 1) -> None:
        """Takes in `count` numbers from `first` on."""
        starts, ends = self._starts, self._ends
        begin, end = max(first, self.floor), first + count
        if begin >= end:
            return
        low = bisect_right(starts, begin)
        if low and ends[low - 1] >= begin:
            low -= 1
            begin = starts[low]
        high = low
        while high < len(starts) and starts[high] <= end:
            end = max(end, ends[high])
            high += 1
        starts[low:high] = [begin]
        ends[low:high] = [end]
        if len(starts) > self._intervals_max:
            forgotten = self._intervals_max // 10 + 1  # several at once: each time the others move up
            self.floor = ends[forgotten - 1]
            del starts[:forgotten], ends[:forgotten]

    def discard(self, number: int) -> None:
        """Takes out a number."""
        place = bisect_right(self._starts, number) - 1
        if place < 0 or number >= self._ends[place]:
            return
        start, end = self._starts[place], self._ends[place]
        parts = [(begin, stop) for begin, stop in ((start, number), (number + 1, end)) if begin < stop]
        self._starts[place : place + 1] = [begin for begin, _ in parts]
        self._ends[place : place + 1] = [stop for _, stop in parts]

    def intervals(self) -> list[tuple[int, int]]:
        """Returns the intervals that are kept, each with its first number and the one behind its last."""
        return list(zip(self._starts, self._ends, strict=True))


class SeenEvents:
    """The events that were seen, by origin and incarnation. The incarnations before the last few are forgotten.

    >>> seen = SeenEvents()
    >>> event = EventId("b1", 1, 5)
    >>> seen.look(event), seen.add(event), seen.look(event)
    ('new', None, 'seen')
    """

    def __init__(self, intervals_max: int = _INTERVALS_MAX):
        self._intervals_max = intervals_max
        self._origins: dict[str, dict[int, IntervalSet]] = {}

    def look(self, event: EventId) -> Seen:
        """Returns whether an event was seen, or may have been: it is older than the memory."""
        incarnations = self._origins.get(event.origin)
        if incarnations is None:
            return "new"
        numbers = incarnations.get(event.incarnation)
        if numbers is None:
            is_forgotten = len(incarnations) == _INCARNATIONS_KEPT and event.incarnation < min(incarnations)
            return "too-old" if is_forgotten else "new"
        if event.number < numbers.floor:
            return "too-old"
        return "seen" if event.number in numbers else "new"

    def are_new(self, first: EventId, count: int) -> bool:
        """Returns whether none of `count` events from `first` on was seen, or may have been."""
        numbers = self._origins.get(first.origin, {}).get(first.incarnation)
        if numbers is None:
            return self.look(first) == "new"
        return numbers.has_none_of(first.number, count)

    def discard(self, event: EventId) -> None:
        """Takes out an event."""
        numbers = self._origins.get(event.origin, {}).get(event.incarnation)
        if numbers is not None:
            numbers.discard(event.number)

    def runs(self) -> list[tuple[EventId, int]]:
        """Returns runs of the events that are kept, each with its first and their number."""
        return [
            (EventId(origin, incarnation, first), after - first)
            for origin, incarnations in self._origins.items()
            for incarnation, numbers in incarnations.items()
            for first, after in numbers.intervals()
        ]

    def add(self, first: EventId, count: int = 1) -> None:
        """Takes in `count` events from `first` on."""
        incarnations = self._origins.setdefault(first.origin, {})
        numbers = incarnations.get(first.incarnation)
        if numbers is None:
            numbers = incarnations[first.incarnation] = IntervalSet(self._intervals_max)
            if len(incarnations) > _INCARNATIONS_KEPT:
                del incarnations[min(incarnations)]
        numbers.add(first.number, count)
