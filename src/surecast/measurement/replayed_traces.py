"""Failures of real machines for the brokers of a run: components of an availability trace, at its own times."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from surecast.documents.units import format_duration
from surecast.errors import ConfigurationError
from surecast.scenario.system import System
from surecast.scenario.traces import AvailabilityTrace, failures_of, read_traces

__all__ = ["TraceReplay", "changes_of", "replayed"]


@dataclass(frozen=True)
class TraceReplay:
    """Which trace a run replays: a file in one of the formats of traces, and the component that each broker fails as.

    Brokers that are not named take the first components of the file, in its order, that nobody has, were observed for
    the whole run and failed in it: at the first moment at which there are enough. The run begins `start_s` after the
    moment from which all of them were observed.
    """

    file: Path
    format: str
    components: Mapping[str, str]
    start_s: float = 0.0


def replayed(system: System, replay: TraceReplay, end_s: float) -> tuple[System, dict[str, AvailabilityTrace]]:
    """Returns the system whose brokers fail as often as the components do in the time of the run, and the trace of each
    broker from the start of the run to its end."""
    traces = {trace.name: trace for trace in read_traces(replay.file, replay.format)}
    names = [broker.name for broker in system.overlay.brokers]
    for broker, component in replay.components.items():
        if broker not in names:
            raise ConfigurationError(f"trace: {broker}={component}: there is no broker {broker!r}: {', '.join(names)}")
        if component not in traces:
            few = ", ".join(list(traces)[:5])
            raise ConfigurationError(
                f"trace: {broker}={component}: {replay.file} has no component {component!r}; it has {len(traces)}, "
                f"such as {few}"
            )
    given = {broker: traces[component] for broker, component in replay.components.items()}
    chosen = given | _others(
        [name for name in names if name not in given],
        [trace for trace in traces.values() if trace.name not in replay.components.values()],
        list(given.values()),
        replay,
        end_s,
    )
    begin_s = max(trace.start_s for trace in chosen.values()) + replay.start_s
    windows = {}
    for broker, trace in chosen.items():
        if trace.end_s < begin_s + end_s:
            raise ConfigurationError(
                f"trace: {broker}={trace.name}: it was observed for {_length(trace.end_s - begin_s)} from the start of "
                f"the run, which takes {_length(end_s)}: choose another component, an earlier start or a shorter run"
            )
        windows[broker] = _window(trace, begin_s, end_s)
    brokers = tuple(replace(each, failures=failures_of(windows[each.name])) for each in system.overlay.brokers)
    return replace(system, overlay=replace(system.overlay, brokers=brokers)), windows


def _others(
    brokers: Sequence[str],
    traces: Sequence[AvailabilityTrace],
    given: Sequence[AvailabilityTrace],
    replay: TraceReplay,
    end_s: float,
) -> dict[str, AvailabilityTrace]:
    """Returns components for the brokers that have none: the first that fit all before them."""
    if not brokers:
        return {}
    least_s = max((trace.start_s for trace in given), default=-math.inf)
    ends = {trace.name: [end for _, end in trace.up] for trace in traces}

    def fits(trace: AvailabilityTrace, first_s: float) -> bool:
        begin_s, own = first_s + replay.start_s, ends[trace.name]
        place = bisect_right(own, begin_s)
        fails = place < len(own) and own[place] < begin_s + end_s
        return fails and trace.start_s <= first_s and trace.end_s >= begin_s + end_s

    fitting: list[AvailabilityTrace] = []
    for first_s in sorted({max(least_s, trace.start_s) for trace in traces}):  # the first moment at which enough fit
        candidates = [trace for trace in traces if fits(trace, first_s)]
        fitting = max(fitting, candidates, key=len)
        if len(fitting) >= len(brokers):
            break
    if len(fitting) < len(brokers):
        raise ConfigurationError(
            f"trace: {replay.file}: {len(fitting)} of its {len(traces)} other components at most were observed for the "
            f"{_length(end_s)} of the run and failed in it, and {len(brokers)} brokers need one: name components, "
            "start later, or make the run shorter"
        )
    return dict(zip(brokers, fitting, strict=False))


def _window(trace: AvailabilityTrace, begin_s: float, end_s: float) -> AvailabilityTrace:
    """Returns what was up from the start of the run to its end.

    >>> _window(AvailabilityTrace("a", 0.0, 100.0, ((0.0, 20.0), (30.0, 100.0))), 10.0, 50.0).up
    ((0.0, 10.0), (20.0, 50.0))
    """
    shifted = ((max(0.0, a - begin_s), min(b - begin_s, end_s)) for a, b in trace.up)
    return AvailabilityTrace(trace.name, 0.0, end_s, tuple((a, b) for a, b in shifted if a < b))


def changes_of(trace: AvailabilityTrace) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Returns the times at which a component failed and was repaired, in turn, from its start on.

    >>> changes_of(AvailabilityTrace("a", 0.0, 50.0, ((0.0, 10.0), (20.0, 50.0)))).tolist()
    [10.0, 20.0]
    """
    edges = [edge for interval in trace.up for edge in interval if 0.0 < edge < trace.end_s]
    down_first = not trace.up or trace.up[0][0] > 0.0
    return np.array([0.0, *edges] if down_first else edges)


def _length(seconds: float) -> str:
    return format_duration(round(max(0.0, seconds)))
