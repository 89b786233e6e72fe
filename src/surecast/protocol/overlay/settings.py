"""The schemes, each a choice of mechanisms."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from surecast.errors import refuse_unknown
from surecast.scenario.spec.delivery import SCHEMES, FaultTolerance

__all__ = ["SCHEMES", "Settings", "settings_for"]


@dataclass(frozen=True, slots=True)
class Settings:
    """Which mechanisms a broker uses.

    `buffers`: events are stored, acknowledged and sent again; routing entries are then kept on disk too, as an event
    can only wait for a subscriber whose subscription outlives the failure it waits for.
    `bypasses`: link-state flooding, and detours around failed neighbours.
    `refreshes`: subscribers are expected to issue their subscriptions again and again.
    `subscription_timeout_s`: age at which a routing entry that was not refreshed is discarded.
    `retransmission_interval_s`: time between two transmissions of an unacknowledged event; 0 means as soon as the
    neighbour detector reports the neighbour up.
    `store_max`: number of events that may wait for an acknowledgement; beyond it an event is not accepted, so that the
    neighbour keeps it and tries again, and a publisher's event is dropped.
    `memory_max`: number of event identifiers remembered, oldest forgotten first, where there is no disk to ask.
    """

    buffers: bool = False
    bypasses: bool = False
    refreshes: bool = True
    subscription_timeout_s: float = inf
    retransmission_interval_s: float = 10.0
    store_max: int = 1_000_000
    memory_max: int = 100_000


def settings_for(scheme: str, tolerance: FaultTolerance | None = None) -> Settings:
    """The settings of a scheme by its name, with the intervals of a scenario.

    >>> settings_for("bypass").bypasses, settings_for("bypass").subscription_timeout_s
    (True, 180.0)
    """
    refuse_unknown("scheme", [scheme], SCHEMES)
    given = tolerance or FaultTolerance()
    timeout_s = 3 * given.refresh_interval if given.subscription_timeout is None else given.subscription_timeout
    buffers = scheme in ("buffering", "bypass-buffering")
    return Settings(
        buffers=buffers,
        bypasses=scheme in ("bypass", "bypass-buffering"),
        refreshes=scheme != "none",
        subscription_timeout_s=inf if buffers or scheme == "none" else timeout_s,
        retransmission_interval_s=given.retransmission_interval,
    )
