"""A run that has happened, for a simulation to go through again: when what was up, who noticed it, who published."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import NamedTuple

from surecast.errors import ConfigurationError
from surecast.scenario.system import System

__all__ = ["GivenPublication", "GivenRun", "GivenTrace"]


class GivenPublication(NamedTuple):
    """A publication: when, by whom and on which topic, both by their place in the system."""

    time_s: float
    publisher: int
    topic: int


@dataclass(frozen=True)
class GivenRun:
    """Up intervals of brokers and links by name, from the start of the run; what is not named was up all the time.

    `notices` has the times at which a broker noticed that its link to a neighbour was down, in order. A break of which
    there is no notice before the link is back is noticed then. `publications` are in order of time.
    With `keeps_sessions` a broker has the sessions of its clients on disk, as a broker that runs: it need not wait for
    their next refresh.
    """

    up: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    notices: Mapping[tuple[str, str], Sequence[float]] = field(default_factory=dict)
    publications: Sequence[GivenPublication] = ()
    keeps_sessions: bool = False

    def check(self, system: System) -> None:
        """Refuses names that the system does not have, and intervals that are not in order."""
        names = {broker.name for broker in system.overlay.brokers} | {link.name for link in system.overlay.links}
        for name, intervals in self.up.items():
            if name not in names:
                raise ConfigurationError(f"given run: there is no broker or link {name!r}")
            edges = [edge for interval in intervals for edge in interval]
            if any(later < earlier for earlier, later in pairwise(edges)):
                raise ConfigurationError(f"given run: {name}: up intervals must be in order and without overlap")

    def trace(self, name: str) -> GivenTrace | None:
        """Returns when a broker or link changed; None where it did not."""
        return GivenTrace(self.up[name]) if name in self.up else None

    def notice_s(self, broker: str, neighbour: str, broken_s: float) -> float:
        """Returns when a broker noticed that its link to a neighbour was broken; inf where it did not."""
        notices = self.notices.get((broker, neighbour), ())
        place = bisect_left(notices, broken_s)
        return notices[place] if place < len(notices) else inf


class GivenTrace:
    """The times at which a component changed its state.

    >>> trace = GivenTrace([(0.0, 4.0), (6.0, float("inf"))])
    >>> trace.starts_up, [time_s for _, time_s in zip(range(3), trace)]
    (True, [4.0, 6.0, inf])
    """

    def __init__(self, up: Sequence[tuple[float, float]]):
        self.starts_up = bool(up) and up[0][0] <= 0.0
        self._up = up

    def __iter__(self) -> Iterator[float]:
        """Times of the changes, in order; then there is none any more."""
        edges = [edge for interval in self._up for edge in interval]
        yield from edges[1:] if self.starts_up else edges
        while True:
            yield inf
