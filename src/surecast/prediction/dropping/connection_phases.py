"""The comings and goings of a subscriber as a small Markov chain, and the queue that follows them without a bound."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surecast.errors import AssumptionError, ConfigurationError
from surecast.prediction.reliability.phase_fit import fit_phase_type
from surecast.scenario.distributions import Distribution, Empirical, Erlang, Exponential, Hyperexponential, PhaseType

__all__ = [
    "Phases",
    "alternating",
    "exponential_phases",
    "fitted_phases",
    "infinite_queue",
    "measured_phases",
    "phases_of_moments",
]

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
Moments = tuple[float, float, float]
_BRANCH_MIN = 1e-6
_STAGES_MAX = 24
"""Stages of a period at most: more cost time and change the queue little."""


@dataclass(frozen=True, eq=False)
class Phases:
    """A Markov chain whose phases are connected or not; `generator` holds its rates per second."""

    generator: Array
    connected: Flags

    @cached_property
    def shares(self) -> Array:
        """Share of time in each phase."""
        size = len(self.generator)
        system = np.vstack([self.generator.T, np.ones(size)])
        solution = np.linalg.lstsq(system, np.append(np.zeros(size), 1.0), rcond=None)[0]
        return np.asarray(np.maximum(solution, 0.0))

    @property
    def connected_share(self) -> float:
        return float(self.shares[self.connected].sum())

    def by_state(self, disconnected: float, connected: float) -> Array:
        """Returns one value for each phase, by its state."""
        return np.where(self.connected, connected, disconnected).astype(np.float64)


def alternating(off: tuple[Array, Array], on: tuple[Array, Array]) -> Phases:
    """Disconnected and connected periods in turn, each given by initial probabilities and a sub-generator.

    >>> one = np.ones(1)
    >>> alternating((one, np.array([[-0.1]])), (one, np.array([[-0.05]]))).generator.tolist()
    [[-0.1, 0.1], [0.05, -0.05]]
    """
    (start_off, stay_off), (start_on, stay_on) = off, on
    top = np.hstack([stay_off, np.outer(-stay_off.sum(axis=1), start_on)])
    bottom = np.hstack([np.outer(-stay_on.sum(axis=1), start_off), stay_on])
    connected = np.arange(len(start_off) + len(start_on)) >= len(start_off)
    return Phases(np.vstack([top, bottom]), connected)


def exponential_phases(on_s: float, off_s: float) -> Phases:
    """Returns the phases of exponential periods with these means.

    >>> float(round(exponential_phases(30.0, 10.0).connected_share, 12))
    0.75
    """
    for name, value in (("on_s", on_s), ("off_s", off_s)):
        if not 0.0 < value < np.inf:
            raise ConfigurationError(f"{name}: {value!r} must be above 0 and finite")
    start = np.ones(1)
    return alternating((start, np.array([[-1.0 / off_s]])), (start, np.array([[-1.0 / on_s]])))


def fitted_phases(on: Distribution, off: Distribution) -> tuple[Phases, bool]:
    """Returns the phases of periods of any distribution, and whether they are exact.

    Exponential, Erlang, hyperexponential and phase-type periods are taken as they are. Others are replaced by two
    exponential branches with the same first three moments where there are such, else by a phase-type time with the same
    first two; at most 24 stages, so very regular periods keep only their mean.

    >>> from surecast.scenario import parse_distribution
    >>> phases, exact = fitted_phases(
    ...     parse_distribution({"distribution": "lognormal", "mean": "20s", "cv": 2}), parse_distribution("10s"))
    >>> len(phases.generator), exact
    (3, False)
    """
    parts, exact = [], True
    for period in (off, on):
        is_phase_type = isinstance(period, Exponential | Erlang | Hyperexponential | PhaseType)
        branches = None if is_phase_type else _two_branches(*period.moments())
        parts.append(fit_phase_type(period, _STAGES_MAX) if branches is None else branches)
        exact &= is_phase_type and (not isinstance(period, Erlang) or period.stages <= _STAGES_MAX)
    return alternating(parts[0], parts[1]), exact


def measured_phases(on_s: ArrayLike, off_s: ArrayLike, *, moments: Literal[1, 2, 3] = 2) -> Phases:
    """Phases for measured connected and disconnected periods, with their first moments.

    One moment gives exponential periods. Three moments need periods more variable than exponential ones whose third
    moment two exponential branches can have; where they cannot, two moments are kept.

    >>> rng = np.random.default_rng(1)
    >>> len(measured_phases(rng.exponential(20.0, 500), rng.lognormal(1.0, 1.5, 500), moments=3).generator)
    4
    """
    parts = []
    for name, periods in (("off_s", off_s), ("on_s", on_s)):
        values = np.asarray(periods, dtype=np.float64)
        if values.ndim != 1 or len(values) == 0 or not ((values >= 0.0) & np.isfinite(values)).all():
            raise ConfigurationError(f"{name}: give measured periods in seconds, none of them negative")
        if not values.any():
            raise ConfigurationError(f"{name}: all periods are 0 s long")
        first, second, third = (float((values**k).mean()) for k in (1, 2, 3))
        branches = _two_branches(first, second, third) if moments == 3 else None
        if moments == 1:
            parts.append((np.ones(1), np.array([[-1.0 / first]])))
        elif branches is not None:
            parts.append(branches)
        else:
            parts.append(fit_phase_type(Empirical.model_construct(values=tuple(values.tolist())), _STAGES_MAX))
    return alternating(parts[0], parts[1])


def phases_of_moments(on: Moments, off: Moments) -> Phases:
    """Phases for connected and disconnected periods that are known by their first three moments.

    Two exponential branches where there are such with these moments; else two branches, or a number of equal stages,
    with the first two.

    >>> phases_of_moments((20.0, 800.0, 48_000.0), (10.0, 110.0, 1331.0)).connected_share.__round__(6)
    0.666667
    """
    return alternating(_part(*off), _part(*on))


def _part(first: float, second: float, third: float) -> tuple[Array, Array]:
    branches = _two_branches(first, second, third)
    if branches is not None:
        return branches
    variation = second / (first * first) - 1.0
    if variation > 1.0:
        share = 0.5 * (1.0 + float(np.sqrt((variation - 1.0) / (variation + 1.0))))
        shares = np.array([share, 1.0 - share])
        return shares, np.diag(-2.0 * shares / first)  # two branches with balanced means
    stages = min(_STAGES_MAX, max(1, round(1.0 / max(variation, 1.0 / _STAGES_MAX))))
    rate = stages / first
    return np.eye(stages)[0], rate * (np.eye(stages, k=1) - np.eye(stages))


def _two_branches(first: float, second: float, third: float) -> tuple[Array, Array] | None:
    """Returns two exponential branches with these moments, None if there are none."""
    a, b, c = first, second / 2.0, third / 6.0
    if b <= a * a * (1.0 + 1e-9):
        return None
    total = (c - a * b) / (b - a * a)
    product = total * a - b
    inside = total * total - 4.0 * product
    if product <= 0.0 or inside <= 0.0:
        return None
    longer = 0.5 * (total + np.sqrt(inside))
    shorter = product / longer
    if shorter < _BRANCH_MIN * first:
        return None  # rates so far apart leave no digits
    share = (a - shorter) / (longer - shorter)
    if not 0.0 < share < 1.0:
        return None
    return np.array([share, 1.0 - share]), np.diag([-1.0 / longer, -1.0 / shorter])


def infinite_queue(
    phases: Phases, arrival_per_s: float, service_per_s: float, join_probability: float
) -> tuple[Array, Array]:
    """Returns the distribution of an empty queue over the phases, and the rate matrix R, of the queue without a bound.

    G comes from logarithmic reduction, R from G (dropping Eqs. 15, 16), the empty queue from dropping Eqs. 20, 21
    with the vector of ones for e.

    >>> empty, rate = infinite_queue(exponential_phases(20.0, 20.0), 2.0, 8.0, 1.0)
    >>> rate.round(4).tolist()
    [[0.9817, 0.25], [0.0061, 0.25]]
    """
    size = len(phases.generator)
    up = np.diag(arrival_per_s * phases.by_state(join_probability, 1.0))
    down = np.diag(phases.by_state(0.0, service_per_s))
    drift = float(phases.shares @ (np.diag(up) - np.diag(down)))
    if drift >= 0.0:
        offered = float(phases.shares @ np.diag(up)) / (service_per_s * phases.connected_share)
        raise AssumptionError(
            f"the queue is unstable: its utilisation while connected would be {offered:.6g}; lower the arrival rate or "
            "the join probability, or transmit faster"
        )
    local = phases.generator - up - down
    climb = -up @ np.linalg.inv(local + up @ _first_passage(up, local, down))
    boundary = phases.generator - up + climb @ down
    system = np.vstack([boundary.T, np.linalg.solve(np.eye(size) - climb, np.ones(size))])
    empty = np.linalg.lstsq(system, np.append(np.zeros(size), 1.0), rcond=None)[0]
    return np.maximum(empty, 0.0), climb


def _first_passage(up: Array, local: Array, down: Array) -> Array:
    """Returns the matrix G by logarithmic reduction."""
    inverse = np.linalg.inv(-local)
    higher, lower = inverse @ up, inverse @ down
    passage, product = lower.copy(), higher.copy()
    identity = np.eye(len(up))
    for _ in range(64):
        middle = np.linalg.inv(identity - higher @ lower - lower @ higher)
        higher, lower = middle @ higher @ higher, middle @ lower @ lower
        step = product @ lower
        passage += step
        product = product @ higher
        if step.max() < 1e-17:
            break
    return np.asarray(passage)
