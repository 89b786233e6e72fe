"""The options of a simulation besides the system and the scheme."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

__all__ = ["Options"]


@dataclass(frozen=True, slots=True)
class Options:
    """The differences of the simulated world from the plain one.

    `refresh_s`: time between two refreshes of a subscription from end to end, as the scenario refreshes where None; 0
    is ideal: all subscriptions are issued again as soon as anything comes up, and none times out.
    `retransmission_s`: time between two transmissions of an event, the scenario's where None; 0 is ideal: a waiting
    event goes as soon as the neighbour is up.
    `detection_s`: how long a broker takes to notice that a neighbour is gone, the scenario's where None.
    `heal_at_s`: when everything is repaired for good.
    `drain_s`: how long the world goes on after the last publication; where None, as long as events live.
    `jitter_s`: messages take up to this much longer, at random; those of a connection stay in order.
    `merges_subscribers`: subscribers with the same home broker and topic are simulated as one, as they get the same.
    `keeps_fates`: the result lists what became of every event, and every failure and repair.
    """

    refresh_s: float | None = None
    retransmission_s: float | None = None
    detection_s: float | None = None
    heal_at_s: float = inf
    drain_s: float | None = None
    jitter_s: float = 0.0
    merges_subscribers: bool = True
    keeps_fates: bool = False
