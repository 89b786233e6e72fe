"""The load of a simulated group, and its settings."""

from __future__ import annotations

import math
from dataclasses import dataclass

from surecast.errors import ConfigurationError
from surecast.protocol.paxos import PaxosSettings
from surecast.scenario.group import Group

__all__ = ["ClosedLoad", "Load", "OpenLoad", "settings_of"]

TICKS_PER_HEARTBEAT = 4
"""Ticks of a replica's clock in one interval between heartbeats."""


@dataclass(frozen=True, slots=True)
class OpenLoad:
    """Publications at random, `rate_per_s` on average (a Poisson process), whatever becomes of them."""

    rate_per_s: float
    publishers: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.rate_per_s < math.inf:
            raise ConfigurationError(f"rate_per_s: {self.rate_per_s} must be 0 or more, and finite")
        if self.publishers < 1:
            raise ConfigurationError(f"publishers: {self.publishers} must be 1 or more")


@dataclass(frozen=True, slots=True)
class ClosedLoad:
    """Publishers that each keep `window` publications in flight; the next goes `think_s` after an acknowledgement."""

    publishers: int
    window: int = 1
    think_s: float = 0.0

    def __post_init__(self) -> None:
        if self.publishers < 1 or self.window < 1:
            raise ConfigurationError(f"publishers, window: {self.publishers} and {self.window} must both be 1 or more")
        if not 0 <= self.think_s < math.inf:
            raise ConfigurationError(f"think_s: {self.think_s} must be 0 or more, and finite")


Load = OpenLoad | ClosedLoad


def settings_of(group: Group) -> PaxosSettings:
    """The settings of the replicas of a group. Messages are sent again only when they must be lost.

    >>> settings_of(Group(3)).heartbeat_s
    0.05
    """
    round_s = 2 * group.delay_s + 2 * group.sync_s + group.service_s
    return PaxosSettings(
        variant=group.variant,  # type: ignore[arg-type]
        alpha=group.window,
        heartbeat_s=group.heartbeat_s,
        suspect_s=group.suspect_s,
        election_step_s=group.election_step_s,
        backoff_s=group.backoff_s,
        resend_s=max(0.1, 20 * round_s),
        retry_s=max(0.5, 50 * round_s),
        recover_s=max(0.05, 10 * round_s),
        proposal_interval_s=group.batching_delay_s,
        commit_notification_s=group.batching_delay_s,
        lazy_delay_s=group.lazy_delay_s,
        vote_window=max(64, 4 * group.window),
        snapshot_every=5_000,
        reply_window=4_096,
    )
