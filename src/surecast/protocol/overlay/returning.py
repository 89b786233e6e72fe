"""Neighbours around which events go although their links are up: some are back and behind, some are silent.

*Back*: it has not caught up yet with what waited for it. Events go on around it while it takes what was in custody for
it, in order, and new events behind that. So nobody behind it waits for its backlog; what comes twice is known by its
identity. Events are taken over all the time, so the backlog is worked off in rounds: a round ends when the neighbour
has acknowledged all that was in custody when it began. A short round says that the neighbour keeps up.

*Silent*: it takes far longer to acknowledge an event than before. It may be dead: connections of a killed process are
reset only when the system has freed its memory, and one that is frozen has to be suspected first. What is in custody
for it goes around it at once, and then it is behind like one that is back, until it has acknowledged.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final

from surecast.protocol.overlay.custody import Custody
from surecast.protocol.overlay.event_id import EventId

__all__ = ["AwaitedAcks", "ReturningNeighbours"]

_SHORT_S: Final = 0.03
"""A subscriber behind the neighbour may wait so long when events go to it alone again."""
_ROUNDS_MAX: Final = 16
"""A neighbour that is always behind is not helped by taking everything twice."""
_MEAN_PART: Final = 1 / 8
_DEVIATION_PART: Final = 1 / 4
_DEVIATIONS: Final = 4
"""As TCP estimates when to send again (RFC 6298),"""
_SLACK_MAX: Final = 0.75
"""and the deviations add at most so many of the least times: one slow commit must not hide the next failure."""

_READ_S: Final = 0.005
"""Within such a time a broker that was busy has read what came meanwhile."""


@dataclass(slots=True)
class _Round:
    last: EventId | None
    """The event whose acknowledgement ends it."""
    begun_s: float
    number: int = 1


class ReturningNeighbours:
    """The neighbours that are back and behind.

    >>> from surecast.protocol.overlay.overlay_frames import EventBatch
    >>> custody = Custody([])
    >>> def take(number):
    ...     return custody.take(0, EventBatch(EventId("b1", 1, number), 1, "stock", 0.0, qos=1), {"b2": 1})
    >>> _ = take(0)
    >>> returning = ReturningNeighbours(custody)
    >>> returning.begin("b2", now=0.0)
    >>> _ = take(1)
    >>> custody.acknowledge("b2", EventId("b1", 1, 0))
    >>> returning.go_on("b2", now=1.0, knows_demand=True)  # it took a second, so there is another round
    >>> custody.acknowledge("b2", EventId("b1", 1, 1))
    >>> "b2" in returning
    True
    >>> returning.go_on("b2", now=1.01, knows_demand=True)
    >>> "b2" in returning
    False
    """

    def __init__(self, custody: Custody):
        self._custody = custody
        self._rounds: dict[str, _Round] = {}

    def __contains__(self, hop: str) -> bool:
        return hop in self._rounds

    def begin(self, hop: str, now: float) -> None:
        """A neighbour is back."""
        self._rounds[hop] = _Round(self._custody.newest_for(hop), now)

    def end(self, hop: str) -> None:
        """A neighbour is down again."""
        self._rounds.pop(hop, None)

    def go_on(self, hop: str, now: float, *, knows_demand: bool, usual_s: float = 0.0) -> None:
        """Something came from a neighbour that is behind: looks whether it has caught up. `knows_demand` says whether
        its demand was compared, and `usual_s` within which time it acknowledges events at other times."""
        this = self._rounds[hop]
        if this.last is not None and self._custody.holds(hop, this.last):
            return
        newest = self._custody.newest_for(hop)
        is_short = newest is None or now - this.begun_s <= max(_SHORT_S, usual_s)
        if knows_demand and (is_short or this.number >= _ROUNDS_MAX):
            del self._rounds[hop]
        elif newest is not None:
            self._rounds[hop] = _Round(newest, now, this.number + 1)


@dataclass(slots=True)
class _Probe:
    first: EventId
    since_s: float
    due_s: float
    was_late: bool = False


class AwaitedAcks:
    """The time that each neighbour takes to acknowledge an event, and those that take too long.

    One event at a time is measured for each neighbour. It is late after `least_s`, or later where the times so far say
    so: after their mean and four mean deviations, at most 0.75 `least_s`. With `least_s` 0 nobody is ever late.

    >>> from surecast.protocol.overlay.overlay_frames import EventBatch
    >>> custody = Custody([])
    >>> awaited = AwaitedAcks(custody, least_s=0.02)
    >>> for number in range(2):
    ...     first = EventId("b1", 1, number)
    ...     _ = custody.take(0, EventBatch(first, 1, "stock", 0.0, qos=1), {"b2": 1})
    ...     awaited.sent("b2", first, now=1.0)
    >>> custody.acknowledge("b2", EventId("b1", 1, 0))
    >>> awaited.acknowledged("b2", now=1.004)  # the second one is measured from now on
    >>> round(awaited.next_timer(), 3), awaited.late(1.02), awaited.late(1.0241)
    (1.024, [], ['b2'])
    """

    def __init__(self, custody: Custody, least_s: float):
        self._custody = custody
        self._least_s = least_s
        self._probes: dict[str, _Probe] = {}
        self._times: dict[str, tuple[float, float]] = {}
        """Mean and mean deviation of the times of each neighbour."""

    def sent(self, hop: str, first: EventId, now: float) -> None:
        """Some events were handed to the link to a neighbour."""
        if self._least_s and hop not in self._probes:
            self._probes[hop] = _Probe(first, now, now + self.allowed_s(hop))

    def acknowledged(self, hop: str, now: float) -> None:
        """A neighbour has acknowledged something."""
        probe = self._probes.get(hop)
        if probe is None or self._custody.holds(hop, probe.first):
            return
        took_s = now - probe.since_s
        mean_s, deviation_s = self._times.get(hop, (took_s, took_s / 2))
        deviation_s += _DEVIATION_PART * (abs(took_s - mean_s) - deviation_s)
        self._times[hop] = (mean_s + _MEAN_PART * (took_s - mean_s), deviation_s)
        del self._probes[hop]
        newest = self._custody.newest_for(hop)
        if newest is not None:
            self.sent(hop, newest, now)

    def forget(self, hop: str) -> None:
        """The link to a neighbour is down."""
        self._probes.pop(hop, None)

    def next_timer(self) -> float:
        """Returns when `late` may have an answer."""
        return min(probe.due_s for probe in self._probes.values()) if self._probes else inf

    def late(self, now: float) -> list[str]:
        """Returns the neighbours that have become late. Where this is asked late itself, the broker was busy, its
        disk was slow or it did not run: what they said meanwhile is read first."""
        late: list[str] = []
        for hop, probe in self._probes.items():
            if now < probe.due_s:
                continue
            if not probe.was_late and now - probe.due_s > self.allowed_s(hop) / 4:
                probe.was_late = True
                probe.due_s = now + _READ_S
            else:
                probe.due_s = inf
                late.append(hop)
        return late

    def allowed_s(self, hop: str) -> float:
        """Returns how long a neighbour may take."""
        mean_s, deviation_s = self._times.get(hop, (0.0, 0.0))
        return max(self._least_s, mean_s + min(_DEVIATIONS * deviation_s, _SLACK_MAX * self._least_s))
