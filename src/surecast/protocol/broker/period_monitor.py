"""A monitor of a client's comings and goings: moments of its periods, and its rates.

Only additions, multiplications and divisions of the times of the log are made, which are rounded alike everywhere: so
all replicas of a broker know the same, to the last bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, NamedTuple

__all__ = ["Estimates", "PeriodMoments", "PeriodMonitor", "Prior"]

FORGET: Final = 0.99
"""The factor by which a period counts less with each one that follows: about the last hundred are remembered."""
_PRIOR_PERIODS: Final = 2.0
"""The periods after which a prior counts no more."""
_LEAST_S: Final = 0.001
"""The shortest period: a client may come and go within one moment of the log's time."""
_SHAPE_PERIODS: Final = 10.0
"""The periods that the shape of exponential periods stands for."""
_MOVED: Final = 1.25
"""The ratio by which an estimate must have changed for a new decision."""


class Prior(NamedTuple):
    """The assumption on a client that has not been seen for long: exponential periods with these means, and rates."""

    on_s: float = 600.0
    off_s: float = 600.0
    arrival_per_s: float = 1.0
    service_per_s: float = 100.0


class PeriodMoments(NamedTuple):
    """The moments of connected or disconnected periods, and how many were seen, the prior not included."""

    seen: float
    mean_s: float
    second: float
    third: float

    @property
    def variation(self) -> float:
        """The squared coefficient of variation; near 1, that of exponential periods, while few were seen."""
        return self.second / (self.mean_s * self.mean_s) - 1.0


class Estimates(NamedTuple):
    """Estimates for the queue of a client. `arrived` and `served` are the messages that the rates are known from."""

    on: PeriodMoments
    off: PeriodMoments
    arrival_per_s: float
    arrived: float
    service_per_s: float
    served: float

    def has_moved(self, since: Estimates) -> bool:
        """Returns whether so much has changed that another decision may be due.

        >>> one = PeriodMonitor().estimates(0.0, Prior())
        >>> one.has_moved(one), one.has_moved(one._replace(service_per_s=50.0))
        (False, True)
        """
        return any(
            now > before * _MOVED or now * _MOVED < before
            for now, before in zip(self._key(), since._key(), strict=True)
        )

    def _key(self) -> tuple[float, ...]:
        periods = (self.on.mean_s, self.off.mean_s, 1.0 + self.on.variation, 1.0 + self.off.variation)
        return (*periods, self.arrival_per_s, self.service_per_s)


@dataclass(slots=True)
class PeriodMonitor:
    """Sums over the periods of one client, of which the last ones count most, and over the messages for it.

    A period that goes on counts for the mean as long as it is, and not as one more period.

    >>> monitor = PeriodMonitor()
    >>> for start in range(0, 400, 40):
    ...     monitor.connected(start, 0)
    ...     monitor.disconnected(start + 10.0, 0)
    >>> found = monitor.estimates(370.0, Prior(on_s=10.0, off_s=30.0))
    >>> round(found.on.mean_s, 3), round(found.off.mean_s, 3), round(found.off.seen, 2)
    (10.0, 30.0, 8.65)
    """

    is_connected: bool = False
    changed_at: float = 0.0
    on_count: float = 0.0
    on_sum: float = 0.0
    on_squares: float = 0.0
    on_cubes: float = 0.0
    off_count: float = 0.0
    off_sum: float = 0.0
    off_squares: float = 0.0
    off_cubes: float = 0.0
    arrived: float = 0.0
    watched_s: float = 0.0
    served: float = 0.0
    busy_s: float = 0.0
    busy_since: float = math.inf
    matched_before: int = 0

    def connected(self, now: float, matched: int) -> None:
        """The client is back, or is there for the first time; so many messages were meant for it until now."""
        if self.changed_at and not self.is_connected:
            length = max(_LEAST_S, now - self.changed_at)
            self.off_count = FORGET * self.off_count + 1.0
            self.off_sum = FORGET * self.off_sum + length
            self.off_squares = FORGET * self.off_squares + length * length
            self.off_cubes = FORGET * self.off_cubes + length * length * length
        self._change(True, now, matched)

    def disconnected(self, now: float, matched: int) -> None:
        """The client is gone."""
        self.idle(now)
        if self.changed_at and self.is_connected:
            length = max(_LEAST_S, now - self.changed_at)
            self.on_count = FORGET * self.on_count + 1.0
            self.on_sum = FORGET * self.on_sum + length
            self.on_squares = FORGET * self.on_squares + length * length
            self.on_cubes = FORGET * self.on_cubes + length * length * length
        self._change(False, now, matched)

    def _change(self, is_connected: bool, now: float, matched: int) -> None:
        if self.changed_at:
            self.arrived = FORGET * self.arrived + (matched - self.matched_before)
            self.watched_s = FORGET * self.watched_s + max(0.0, now - self.changed_at)
            self.served *= FORGET
            self.busy_s *= FORGET
        self.is_connected, self.changed_at, self.matched_before = is_connected, now, matched

    def interrupted(self, now: float, matched: int) -> None:
        """The broker was started anew: the period of a client that was connected is not known to its end."""
        if self.is_connected:
            self.is_connected, self.changed_at = False, now
        self.busy_since, self.matched_before = math.inf, matched

    def forget_rates(self, matched: int) -> None:
        """The client asks for other messages than before."""
        self.arrived = self.watched_s = 0.0
        self.matched_before = matched

    def busy(self, now: float) -> None:
        """There is something to transmit to the client, which is connected."""
        if self.busy_since == math.inf:
            self.busy_since = now

    def idle(self, now: float) -> None:
        """There is nothing more to transmit, or nobody to transmit to."""
        if self.busy_since != math.inf:
            self.busy_s += max(0.0, now - self.busy_since)
            self.busy_since = math.inf

    def estimates(self, now: float, prior: Prior, matched: int | None = None) -> Estimates:
        """Returns what is known now; `matched` is how many messages were meant for the client until now."""
        going_on = max(0.0, now - self.changed_at) if self.changed_at else 0.0
        on_rest, off_rest = (going_on, 0.0) if self.is_connected else (0.0, going_on)
        on = _moments(self.on_count, self.on_sum, self.on_squares, self.on_cubes, on_rest, prior.on_s)
        off = _moments(self.off_count, self.off_sum, self.off_squares, self.off_cubes, off_rest, prior.off_s)
        arrived, watched_s = self.arrived, self.watched_s
        if matched is not None and self.changed_at:
            arrived += matched - self.matched_before
            watched_s += going_on
        busy_s = self.busy_s + (max(0.0, now - self.busy_since) if self.busy_since != math.inf else 0.0)
        arrival_per_s = (arrived + 1.0) / (watched_s + 1.0 / prior.arrival_per_s)
        service_per_s = (self.served + 1.0) / (busy_s + 1.0 / prior.service_per_s)
        return Estimates(on, off, arrival_per_s, arrived, service_per_s, self.served)


def _moments(count: float, total: float, squares: float, cubes: float, rest: float, prior_s: float) -> PeriodMoments:
    prior = max(0.0, _PRIOR_PERIODS - count)
    mean_s = (total + prior * prior_s + rest) / (count + prior)
    if not count or not total:
        return PeriodMoments(count, mean_s, 2.0 * mean_s * mean_s, 6.0 * mean_s * mean_s * mean_s)
    # What goes on is longer than what is known of it, and does not change the shape.
    seen_s = total / count
    weight = count + _SHAPE_PERIODS
    second = (squares / (seen_s * seen_s) + 2.0 * _SHAPE_PERIODS) / weight
    third = (cubes / (seen_s * seen_s * seen_s) + 6.0 * _SHAPE_PERIODS) / weight
    return PeriodMoments(count, mean_s, second * mean_s * mean_s, third * mean_s * mean_s * mean_s)
