"""The group's time: what a majority of the members' clocks have reached, whoever asks.

Heartbeats carry the wall clock of their sender, and echo the timer of their receiver, as NTP does. What a heartbeat
shows is past when it arrives; the echo says how long ago it was sent at most. So each replica knows an interval for the
clock of every other, which narrows with every heartbeat until it is as wide as the quickest way there and back. One
clock that is wrong, ahead or behind, moves nothing: the majority decides, not the leader.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from surecast.protocol.paxos.membership import Configuration

__all__ = ["Clocks", "Difference"]

_DRIFT = 1e-3
"""By which share a clock may be faster or slower than a timer: twice what NTP lets it be while it sets it right."""
_SLOWER = 0.5
"""The speed of the group's time while it is ahead of the clocks, because they were set back: half of theirs."""


@dataclass(slots=True)
class _Estimate:
    """The clock of a member: between two distances from the own timer, when it was last heard."""

    low_s: float
    high_s: float
    heard_s: float


@dataclass(frozen=True, slots=True)
class Difference:
    """The distance of a member's clock ahead of the own one, and its possible error.

    >>> Difference(7200.0, 0.1).least_s, Difference(-0.05, 0.1).least_s
    (7199.9, 0.0)
    """

    ahead_s: float
    error_s: float

    @property
    def least_s(self) -> float:
        """The least difference, ahead or behind, that the measurement leaves."""
        return max(0.0, abs(self.ahead_s) - self.error_s)


class Clocks:
    """The clocks of a group as one replica, `replica`, sees them.

    `epoch_s` is how far its own wall clock is ahead of its timer, which is the `now` of all calls; the shell sets it
    anew when the clock was set.

    >>> from surecast.protocol.paxos.membership import Membership
    >>> clocks = Clocks(1, epoch_s=7200.0, now=10.0)
    >>> members = Membership.founding([1, 2, 3], 10).configurations
    >>> clocks.settle(members, 10.0)
    >>> clocks.reached_s(10.0) is None
    True
    >>> clocks.hear(2, clock_us=10_000_000, sent_us=1, echo_us=0, now=10.0)
    >>> clocks.settle(members, 10.0)
    >>> clocks.reached_s(11.0)
    11.0
    """

    def __init__(self, replica: int, epoch_s: float, now: float):
        self.id = replica
        self.epoch_s = epoch_s
        self._started_s = now
        self._estimates: dict[int, _Estimate] = {}
        self._stamps: dict[int, tuple[int, float]] = {}
        self._reached_s: float | None = None
        self._log_us = 0
        self._log_s = now

    # What heartbeats carry

    def shown(self, peer: int, now: float) -> tuple[int, int, int]:
        """The own clock, the own timer, and what the timer of a peer shows at least; 0 where it was not heard."""
        stamp = self._stamps.get(peer)
        echo_us = 0 if stamp is None else stamp[0] + int((now - stamp[1]) * 1e6)
        return int((now + self.epoch_s) * 1e6), int(now * 1e6), echo_us

    def hear(self, peer: int, clock_us: int, sent_us: int, echo_us: int, now: float) -> None:
        """Takes what the heartbeat of a peer shows. An interval that does not meet the one before replaces it."""
        self._stamps[peer] = (sent_us, now)
        low_s = clock_us / 1e6 - now
        way_s = now - echo_us / 1e6
        high_s = low_s + way_s if echo_us and 0.0 <= way_s <= now - self._started_s else inf
        before = self._estimates.get(peer)
        if before is not None:
            slack_s = _DRIFT * (now - before.heard_s)
            if low_s <= before.high_s + slack_s and before.low_s - slack_s <= high_s:
                low_s, high_s = max(low_s, before.low_s - slack_s), min(high_s, before.high_s + slack_s)
        self._estimates[peer] = _Estimate(low_s, high_s, now)

    # What comes of them

    def settle(self, configurations: Iterable[Configuration], now: float) -> None:
        """Finds out anew what a majority has reached; under two configurations, one of each."""
        lows = {
            peer: one.low_s - _DRIFT * (now - one.heard_s)  # it may have stopped, and its clock may be slow
            for peer, one in self._estimates.items()
        }
        lows[self.id] = self.epoch_s
        reached_s = min(
            sorted((lows.get(one, -inf) for one in part.ids), reverse=True)[part.quorum - 1] for part in configurations
        )
        self._reached_s = None if reached_s == -inf else reached_s

    @property
    def are_known(self) -> bool:
        """Returns whether the clocks of a majority are known."""
        return self._reached_s is not None

    def reached_s(self, now: float) -> float | None:
        """Returns what the clocks of a majority have reached; None while too few of them are known."""
        return None if self._reached_s is None else now + self._reached_s

    def time_us(self, log_us: int, now: float) -> int | None:
        """The group's time, of which `log_us` is already in the log; None while too few clocks are known.

        It does not go back. While the log is ahead of the clocks, because they were set back, time goes on slowly
        until they have caught up: standing still, nothing would expire for as long as that.
        """
        if self._reached_s is None:
            return None
        if log_us != self._log_us:
            self._log_us, self._log_s = log_us, now
        reached_us = max(0, int((now + self._reached_s) * 1e6))
        if reached_us >= log_us:
            return reached_us
        return max(reached_us, log_us + int(_SLOWER * max(0.0, now - self._log_s) * 1e6))

    def ahead_s(self) -> float | None:
        """Returns how far the own clock is ahead of what a majority has reached; None while too few are known."""
        return None if self._reached_s is None else self.epoch_s - self._reached_s

    def difference(self, peer: int) -> Difference | None:
        """Returns how far the clock of a peer is ahead of the own one; None while that was not measured."""
        one = self._estimates.get(peer)
        if one is None or one.high_s == inf:
            return None
        return Difference((one.low_s + one.high_s) / 2 - self.epoch_s, (one.high_s - one.low_s) / 2)
