"""The choice of home brokers for all subscribers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surecast.errors import AssumptionError
from surecast.planning.alternatives import alternatives_of, current_scheme
from surecast.scenario import System

__all__ = ["HomeChoice", "choose_homes"]


@dataclass(frozen=True)
class HomeChoice:
    """A home broker for each subscriber, with the reliability before and after; NaN where nobody publishes to it."""

    subscribers: tuple[str, ...]
    before: tuple[str, ...]
    after: tuple[str, ...]
    reliability_before: NDArray[np.float64]
    reliability_after: NDArray[np.float64]

    @property
    def moved(self) -> int:
        return sum(a != b for a, b in zip(self.before, self.after, strict=True))


def choose_homes(system: System, *, limit: int | None = None) -> HomeChoice:
    """Returns the home brokers that give the largest mean reliability, with at most `limit` subscribers at a broker.

    Subscribers that want the same topics are interchangeable, so this is a transportation problem: the answer is
    optimal. Nobody moves where moving gains nothing.
    """
    scheme, brokers = current_scheme(system), len(system.overlay.brokers)
    if limit is not None and limit * brokers < len(system.subscribers):
        fewest = -(-len(system.subscribers) // brokers)
        raise AssumptionError(f"{len(system.subscribers)} subscribers do not fit: the limit must be at least {fewest}")
    alternatives = alternatives_of(system, [scheme])
    table, wants = alternatives.reliability[scheme], np.array(alternatives.wants)
    homes = np.array([subscriber.home for subscriber in system.subscribers])
    gain = np.nan_to_num(table[wants])
    # Where two homes are equally good, staying is better than moving.
    gain[np.arange(len(homes)), homes] += 1e-9
    chosen = np.argmax(gain, axis=1) if limit is None else _within(gain, limit)
    names = [broker.name for broker in system.overlay.brokers]
    return HomeChoice(
        tuple(subscriber.name for subscriber in system.subscribers),
        tuple(names[i] for i in homes),
        tuple(names[i] for i in chosen),
        table[wants, homes],
        table[wants, chosen],
    )


def _within(gain: NDArray[np.float64], limit: int) -> NDArray[np.intp]:
    """Returns the best assignment with `limit` places at each broker."""
    from scipy.optimize import linear_sum_assignment

    slots = np.repeat(np.arange(gain.shape[1]), min(limit, gain.shape[0]))
    rows, columns = linear_sum_assignment(gain[:, slots], maximize=True)
    chosen = np.empty(len(rows), dtype=np.intp)
    chosen[rows] = slots[columns]
    return chosen
