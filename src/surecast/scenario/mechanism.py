"""The mechanism of a broker for the events of a subscriber that disconnects at times, with every parameter decided.

A scenario may leave parameters to be found (`auto`); a `Mechanism` has them all. Predictions find them, and
predictions and simulations both work on them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from surecast.errors import ConfigurationError

__all__ = ["JoinTable", "Mechanism", "parameter_text"]

JoinTable = tuple[tuple[float, ...], tuple[float, ...]]
"""Join probabilities while disconnected and while connected, by the number of events in the queue."""


@dataclass(frozen=True, slots=True)
class Mechanism:
    """One dropping mechanism, or several at once. As it stands without parameters, nothing is dropped.

    >>> Mechanism(join_probability=0.4, buffer_size=30).name
    'probabilistic+finite-buffer'
    >>> Mechanism().name
    'none'
    """

    join_probability: float = 1.0
    """Probability that an event joins the queue while the subscriber is disconnected."""
    lifetime_s: float = math.inf
    """Mean lifetime of an event, from its publication on; inf: it never expires."""
    lifetime_distribution: Literal["deterministic", "exponential"] = "deterministic"
    """The distribution of lifetimes: all equal, or exponential."""
    buffer_size: int | None = None
    """Events that fit into the subscriber's queue, the one in transmission included; None: any number."""
    input_buffer_size: int | None = None
    """Events that fit into the broker's input queue, the one in service included; None: any number."""
    join_table: JoinTable | None = None
    """Join probabilities by state and queue length; beyond the end of a row its last entry holds. None: no table."""
    protect_connected: bool = False
    """An event that arrives while the subscriber is connected always joins, and never expires."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.join_probability <= 1.0:
            raise ConfigurationError(f"join_probability: {self.join_probability} must be between 0 and 1")
        if not self.lifetime_s > 0.0:
            raise ConfigurationError(f"lifetime_s: {self.lifetime_s} must be above 0; inf means that nothing expires")
        if self.lifetime_distribution not in ("deterministic", "exponential"):
            raise ConfigurationError(
                f"lifetime_distribution: {self.lifetime_distribution!r} must be 'deterministic' or 'exponential'"
            )
        for field in ("buffer_size", "input_buffer_size"):
            size = getattr(self, field)
            if size is not None and size < 1:
                raise ConfigurationError(f"{field}: {size} must be 1 or more, or None for any number of events")
        self._check_table()

    def _check_table(self) -> None:
        if self.join_table is None:
            return
        if len(self.join_table) != 2 or not all(self.join_table):
            raise ConfigurationError("join_table: give two rows, disconnected and connected, with an entry each")
        if not all(0.0 <= entry <= 1.0 for row in self.join_table for entry in row):
            raise ConfigurationError("join_table: every entry is a probability, between 0 and 1")
        if self.join_probability != 1.0:
            raise ConfigurationError("join_table and join_probability both say who joins; give one of them")

    @property
    def expires(self) -> bool:
        """True if events have a lifetime."""
        return self.lifetime_s < math.inf

    @property
    def name(self) -> str:
        """The policies it consists of, as scenarios name them, joined by `+`; `none` if it drops nothing."""
        parts = {
            "optimal": self.join_table is not None,
            "probabilistic": self.join_probability < 1.0,
            "expiry": self.expires,
            "finite-buffer": self.buffer_size is not None or self.input_buffer_size is not None,
        }
        return "+".join(part for part, used in parts.items() if used) or "none"


def parameter_text(mechanism: Mechanism) -> str:
    """Returns the parameters of a mechanism in words.

    >>> parameter_text(Mechanism(join_probability=0.35, buffer_size=30))
    'join probability 0.35, buffer 30'
    """
    parts = []
    if mechanism.join_table is not None:
        rows = [_threshold(row) for row in mechanism.join_table]
        parts.append(f"threshold {rows[0]}" + (f", {rows[1]} while connected" if rows[1] else ""))
    elif mechanism.join_probability < 1.0:
        parts.append(f"join probability {mechanism.join_probability:.4g}")
    if mechanism.buffer_size is not None:
        parts.append(f"buffer {mechanism.buffer_size}")
    if mechanism.expires:
        kind = "mean lifetime" if mechanism.lifetime_distribution == "exponential" else "lifetime"
        parts.append(f"{kind} {mechanism.lifetime_s:.4g} s")
    return ", ".join(parts) or "nothing is dropped"


def _threshold(row: Sequence[float]) -> str:
    """The number of events from which on none joins, with the chance at the last as its fraction; empty if all join."""
    return f"{sum(row):.5g}" if row[-1] == 0.0 else ""
