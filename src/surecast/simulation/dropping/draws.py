"""Random numbers of the queues, each kind from a stream of its own.

A longer run, or further points of a sweep, only add to what is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from surecast.errors import ConfigurationError
from surecast.scenario import Connectivity, Distribution, Streams
from surecast.simulation.equilibrium import residual_times

__all__ = ["Floats", "Switches", "draw_events", "draw_switches", "draw_times", "draw_units", "given_switches"]

Floats = NDArray[np.float64]
Switches = tuple[bool, Floats]
"""True if a subscriber is connected at time 0, and the times at which that changes."""

_BATCH = 2048


def draw_units(draw: Callable[[int], Floats], count: int) -> Floats:
    """The first `count` numbers of a source that is asked for whole batches."""
    if count <= _BATCH:
        return draw(_BATCH)[:count]
    return np.concatenate([draw(_BATCH) for _ in range(-(-count // _BATCH))])[:count]


def draw_times(distribution: Distribution | None, rng: np.random.Generator, count: int) -> Floats:
    """So many times of a distribution; zeros where there is none."""
    if distribution is None:
        return np.zeros(count)
    if distribution.kind == "exponential":
        # Here batches make no difference: the generator takes one number after the other.
        return np.asarray(rng.standard_exponential(count) * distribution.mean_s, dtype=np.float64)
    return draw_units(lambda size: distribution.sample(rng, size), count)


def draw_events(rng: np.random.Generator, until: float) -> Floats:
    """The points of a Poisson process of rate 1 from 0 on, up to `until` (excluded).

    >>> points = draw_events(np.random.default_rng(1), 1000.0)
    >>> bool(points[-1] < 1000), bool((np.diff(points) > 0).all()), len(points)
    (True, True, 991)
    >>> bool((draw_events(np.random.default_rng(1), 500.0) == points[points < 500]).all())
    True
    """
    batch = int(until + 6.0 * math.sqrt(until)) + 16
    gaps = rng.standard_exponential(batch)
    points = np.cumsum(gaps)
    while points[-1] < until:
        gaps = np.concatenate([gaps, rng.standard_exponential(batch)])
        points = np.cumsum(gaps)
    return points[: int(np.searchsorted(points, until))]


def draw_switches(connectivity: Connectivity | None, streams: Streams, run: int, name: str, until_s: float) -> Switches:
    """Draws the times at which a subscriber switches, up to beyond `until_s`, from a stationary start."""
    if connectivity is None:
        return True, np.empty(0)
    on, off = connectivity.on, connectivity.off
    start = streams.generator(f"run {run}/connectivity/start", name)
    is_on = bool(start.random() < on.mean_s / (on.mean_s + off.mean_s))
    left = float(residual_times(on if is_on else off, start, 1)[0])
    on_rng = streams.generator(f"run {run}/connectivity/on", name)
    off_rng = streams.generator(f"run {run}/connectivity/off", name)
    first, second = ((off, off_rng), (on, on_rng)) if is_on else ((on, on_rng), (off, off_rng))
    batch = 256
    parts: list[Floats] = [np.array([left])]
    last = left
    while last <= until_s:
        periods = np.empty(2 * batch)
        periods[0::2], periods[1::2] = first[0].sample(first[1], batch), second[0].sample(second[1], batch)
        changes = last + np.cumsum(periods)
        parts.append(changes)
        last = float(changes[-1])
    return is_on, np.concatenate(parts)


def given_switches(name: str, intervals: Sequence[tuple[float, float]]) -> Switches:
    """The switches of a subscriber whose connected periods were given: (start, end) pairs in seconds, in order.

    >>> given_switches("s", [(0, 4), (6, 9)])
    (True, array([4., 6., 9.]))
    """
    array = np.array(intervals, dtype=np.float64).reshape(-1, 2)
    times = array.ravel()
    if np.isnan(times).any() or not (np.diff(times) >= 0).all() or not (array[:, 0] < array[:, 1]).all():
        raise ConfigurationError(
            f"traces: {name}: connected periods must be (start, end) pairs in seconds, in order and without overlap"
        )
    is_on = bool(((array[:, 0] <= 0) & (array[:, 1] > 0)).any())
    return is_on, times[(times > 0) & (times < math.inf)]
