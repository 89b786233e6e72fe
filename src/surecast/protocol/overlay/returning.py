"""Neighbours that are back, and have not caught up yet with what waited for them.

Events go on around such a neighbour, while it takes what was in custody for it, in order, and new events behind that.
So nobody behind it waits for its backlog; what comes twice is known by its identity.

Events are taken over all the time, so the backlog is worked off in rounds: a round ends when the neighbour has
acknowledged all that was in custody when it began. A short round says that the neighbour keeps up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from surecast.protocol.overlay.custody import Custody
from surecast.protocol.overlay.event_id import EventId

__all__ = ["ReturningNeighbours"]

_SHORT_S: Final = 0.03
"""A subscriber behind the neighbour may wait so long when events go to it alone again."""
_ROUNDS_MAX: Final = 16
"""A neighbour that is always behind is not helped by taking everything twice."""


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

    def go_on(self, hop: str, now: float, *, knows_demand: bool) -> None:
        """Something came from a neighbour that is back: looks whether it has caught up. `knows_demand` says whether its
        demand was compared."""
        this = self._rounds[hop]
        if this.last is not None and self._custody.holds(hop, this.last):
            return
        newest = self._custody.newest_for(hop)
        is_short = newest is None or now - this.begun_s <= _SHORT_S
        if knows_demand and (is_short or this.number >= _ROUNDS_MAX):
            del self._rounds[hop]
        elif newest is not None:
            self._rounds[hop] = _Round(newest, now, this.number + 1)
