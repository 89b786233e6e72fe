"""Says when a neighbour is to be taken for down, and from when on a link that broke may come up again.

A neighbour of which nothing was heard for a while is asked whether it is there, and after `suspect_s` without a word it
is suspected. Each end asks for itself, so a link over which only one direction works ends too: the end that hears
nothing gives it up.

A broker that was stopped or overloaded has heard nothing either, and would suspect all its neighbours. Its own timer
was late then, and that lateness is added to the time that a neighbour has.

A link that breaks stays down for `hold_down_s`. If it breaks within a moment of coming up (ten times `hold_down_s`, or
twice `suspect_s`: a link that carries nothing lasts until it is suspected), it flaps, and the time doubles each time. A
link that was up for longer has broken by another fault, and is as at first: else faults that come every few seconds
would meet links that are still down from the one before.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final, Literal, TypeAlias

__all__ = ["DetectorTimes", "LinkDetector", "Verdict"]

Verdict: TypeAlias = Literal["well", "ask", "suspect"]

_STABLE: Final = 10


@dataclass(frozen=True, slots=True)
class DetectorTimes:
    """The times of a detector, in seconds.

    `ping_s`: silence after which a neighbour is asked. `suspect_s`: silence after which it is suspected. `hold_down_s`:
    how long a link that broke stays down at least, and `hold_down_max_s` what that grows to while it flaps.
    """

    ping_s: float = 0.1
    suspect_s: float = 0.5
    hold_down_s: float = 0.1
    hold_down_max_s: float = 30.0


class LinkDetector:
    """The detector of one link. Times are those of a clock that is never set.

    >>> detector = LinkDetector(DetectorTimes(ping_s=0.25, suspect_s=1.0))
    >>> detector.connected(0.0)
    >>> detector.tick(0.125), detector.next_timer()
    ('well', 0.25)
    >>> [detector.tick(moment / 4) for moment in range(1, 5)]
    ['ask', 'ask', 'ask', 'suspect']
    """

    def __init__(self, times: DetectorTimes = DetectorTimes()):  # noqa: B008 (immutable)
        self.times = times
        self.hold_s = times.hold_down_s
        """The time that the link stays down when it breaks."""
        self.may_connect_s = -inf
        """From when on the link may come up."""
        self.late_s = 0.0
        """The longest time by which the own timer was late."""
        self._connected_s = inf
        self._heard_s = 0.0
        self._due_s = inf

    @property
    def is_connected(self) -> bool:
        """Returns whether there is a connection."""
        return self._connected_s < inf

    def connected(self, now: float) -> None:
        """Notes that the link came up."""
        self._connected_s = self._heard_s = now
        self._due_s = now + self.times.ping_s

    def disconnected(self, now: float) -> None:
        """Notes that the link broke."""
        if now - self._connected_s >= max(_STABLE * self.times.hold_down_s, 2 * self.times.suspect_s):
            self.hold_s = self.times.hold_down_s
        self.may_connect_s = now + self.hold_s
        self.hold_s = min(2 * self.hold_s, self.times.hold_down_max_s)
        self._connected_s = self._due_s = inf

    def heard(self, now: float) -> None:
        """Notes that something came from the neighbour."""
        self._heard_s = now

    def next_timer(self) -> float:
        """Returns when `tick` has to be called next."""
        return self._due_s

    def tick(self, now: float) -> Verdict:
        """Returns what follows from the silence of the neighbour: it is well, should be asked, or is suspected."""
        if now < self._due_s:
            return "well"
        late_s = now - self._due_s
        self.late_s = max(self.late_s, late_s)
        self._heard_s = min(now, self._heard_s + late_s)
        asked_from_s, suspected_from_s = self._heard_s + self.times.ping_s, self._heard_s + self.times.suspect_s
        if now >= suspected_from_s:
            self._due_s = inf
            return "suspect"
        if now < asked_from_s:
            self._due_s = asked_from_s
            return "well"
        self._due_s = min(now + self.times.ping_s, suspected_from_s)
        return "ask"
