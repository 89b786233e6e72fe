"""The results of a simulated world."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surecast.simulation.reliability.protocol.accounts import Fate, Target

__all__ = ["Transition", "WorldResult"]

Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Transition:
    """A broker or a link goes down or comes up."""

    time_s: float
    kind: str
    name: str
    up: bool


@dataclass(frozen=True)
class WorldResult:
    """One run: the accounts of each subscriber in the order of the system, and what was sent.

    `messages` counts those sent over links from the warm-up to the last publication, by kind. `digest` is the hash
    over everything that happened, `replay` how to see it again. `steps` is the number of things that happened in
    virtual time. `fates` and `transitions` are empty unless they were asked for.
    """

    scheme: str
    replay: str
    digest: str
    steps: int
    published: Counts
    on_time: Counts
    late: Counts
    queued: Counts
    lost: dict[str, Counts]
    delay_sum_s: NDArray[np.float64]
    events_published: int
    messages: dict[str, int]
    targets: tuple[Target, ...] = ()
    fates: tuple[Fate, ...] = ()
    transitions: tuple[Transition, ...] = ()

    @property
    def reliability(self) -> NDArray[np.float64]:
        """Share of the events of each subscriber's interest that were on time; NaN where there were none."""
        # reliability Eq. 2, over what was published
        share = np.full(len(self.published), np.nan)
        np.divide(self.on_time, self.published, out=share, where=self.published > 0)
        return share
