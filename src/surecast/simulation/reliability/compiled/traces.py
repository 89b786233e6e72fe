"""The times at which each component is up: drawn from its failures, or given from outside."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from surecast.errors import ConfigurationError
from surecast.scenario import Streams, System
from surecast.scenario.system import Failures
from surecast.simulation.equilibrium import residual_times
from surecast.simulation.reliability.compiled.up_intervals import Floats, Intervals

__all__ = ["GivenTraces", "checked_traces", "draw_trace"]

GivenTraces = Mapping[str, Sequence[tuple[float, float]]]


def draw_trace(failures: Failures | None, streams: Streams, purpose: str, name: str, horizon_s: float) -> Intervals:
    """The up intervals of one component from 0 to beyond the horizon, started in its stationary state.

    Up times, down times and the start have streams of their own: a longer horizon only adds to the trace.

    >>> starts, ends = draw_trace(None, Streams(1), "broker", "b0", 100.0)
    >>> starts.tolist(), ends.tolist()
    ([0.0], [inf])
    """
    if failures is None:
        return np.zeros(1), np.full(1, math.inf)
    start = streams.generator(f"{purpose}/start", name)
    is_up = bool(start.random() < failures.availability)
    left = float(residual_times(failures.up if is_up else failures.down, start, 1)[0])
    up, down = streams.generator(f"{purpose}/up", name), streams.generator(f"{purpose}/down", name)
    batch = 16 + int(1.5 * horizon_s / (failures.mtbf_s + failures.mttr_s))
    ups, downs = failures.up.sample(up, batch), failures.down.sample(down, batch)
    while left + ups.sum() + downs.sum() <= horizon_s * (1.0 + 1e-9):
        ups = np.concatenate([ups, failures.up.sample(up, batch)])
        downs = np.concatenate([downs, failures.down.sample(down, batch)])
    return _alternate(is_up, left, ups, downs, horizon_s)


def _alternate(is_up: bool, left: float, ups: Floats, downs: Floats, horizon_s: float) -> Intervals:
    """The up intervals of a component that stays in its first state for `left`."""
    times = np.empty(2 * len(ups) + 1)
    times[0] = left
    times[1::2], times[2::2] = (downs, ups) if is_up else (ups, downs)
    changes = np.cumsum(times)
    if is_up:
        starts, ends = np.concatenate([[0.0], changes[1::2]]), changes[0::2]
    else:
        starts, ends = changes[0:-1:2], changes[1::2]
    kept = (starts <= horizon_s) & (starts < ends)
    return starts[kept], ends[kept]


def checked_traces(system: System, traces: GivenTraces | None) -> dict[str, Intervals]:
    """Traces from outside, checked: known names (a link's ends in either order), sorted intervals, no overlap."""
    brokers = [broker.name for broker in system.overlay.brokers]
    names = {name: name for name in brokers}
    for link in system.overlay.links:
        names |= {f"{brokers[link.b]}--{brokers[link.a]}": link.name, link.name: link.name}
    result: dict[str, Intervals] = {}
    for name, intervals in (traces or {}).items():
        if name not in names:
            raise ConfigurationError(f"traces: there is no broker or link {name!r}; links are named like 'b0--b1'")
        array = np.array(intervals, dtype=np.float64).reshape(-1, 2)
        starts, ends = array[:, 0].copy(), array[:, 1].copy()
        if np.isnan(array).any() or not (starts < ends).all() or not (ends[:-1] <= starts[1:]).all():
            raise ConfigurationError(
                f"traces: {name}: up intervals must be (start, end) pairs in seconds, in order and without overlap"
            )
        result[names[name]] = np.maximum(starts, 0.0)[ends > 0], ends[ends > 0]
    return result
