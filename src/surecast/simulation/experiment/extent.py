"""The extent of a run: its length, the part that counts, and the seed of all runs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from surecast.errors import ConfigurationError

__all__ = ["Extent"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """The extent of a run: events from `warm_up_s` on, for `duration_s`, count.

    >>> Extent(duration_s=3600.0, warm_up_s=60.0, seed=1).end_s
    3660.0
    """

    duration_s: float
    warm_up_s: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.duration_s < math.inf:
            raise ConfigurationError(f"duration_s: {self.duration_s} must be above 0 and finite")
        if not 0 <= self.warm_up_s < math.inf:
            raise ConfigurationError(f"warm_up_s: {self.warm_up_s} must be 0 or more, and finite")

    @property
    def end_s(self) -> float:
        """The end of the time that counts."""
        return self.warm_up_s + self.duration_s
