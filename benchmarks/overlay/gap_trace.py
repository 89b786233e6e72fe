"""Why no event came for a while: what the brokers wrote down meanwhile, and which process was not run itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["Gap", "explain", "read_traces", "waited_s"]

Gap = tuple[float, float]
"""From the last event before it to the first behind it, by the clock of `time.perf_counter`."""
Line = list[Any]
_LINES_MAX = 60
_TIMED = ("commit", "turn", "gc")
"""What is written with the time of its beginning, and its milliseconds."""
_WAITED = 3
"""The place of the milliseconds without a processor in a line of the kind `late`."""


def read_traces(paths: Mapping[str, Path]) -> dict[str, list[Line]]:
    """Returns what each broker wrote down; see `traced_broker.py`."""
    traces: dict[str, list[Line]] = {}
    for broker, path in paths.items():
        if path.exists():
            # A broker that was killed may have written half a line.
            lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.endswith("]")]
            traces[broker] = [json.loads(line) for line in lines]
    return traces


def waited_s(traces: Mapping[str, list[Line]], gap: Gap, besides: str = "") -> float:
    """Returns for how long a broker was ready and had no processor in a gap, of the one for which that was longest.

    >>> traces = {"a": [[1.25, "late", 30.0, 20.0], [1.5, "late", 5.0, 4.0]], "b": [[9.0, "late", 90.0, 90.0]]}
    >>> waited_s(traces, (1.0, 2.0))
    0.024
    """
    begin, end = gap
    each = [
        sum(line[_WAITED] for line in lines if line[1] == "late" and begin < line[0] <= end)
        for broker, lines in traces.items()
        if broker != besides
    ]
    return max(each, default=0.0) / 1e3


def explain(traces: Mapping[str, list[Line]], gap: Gap, fault_s: float) -> list[str]:
    """Returns what happened in a gap, in order, with the milliseconds since the fault and the broker. What began before
    the gap and ended in it, such as a commit, is there too.

    >>> explain({"a": [[0.75, "commit", 300.0], [0.75, "commit", 200.0]]}, (1.0, 2.0), fault_s=1.0)
    ['-250.0 a commit 300.0']
    >>> explain({"a": [[1.25, "down", "b", "hung up"]], "c": [[1.0, "pass", "d", 3]]}, (1.0, 2.0), fault_s=1.0)
    ['0.0 c pass d 3', '250.0 a down b hung up']
    """
    begin, end = gap
    happened = sorted(
        (line[0], broker, line[1:])
        for broker, lines in traces.items()
        for line in lines
        if begin <= line[0] + (line[2] / 1e3 if line[1] in _TIMED else 0.0) and line[0] <= end
    )  # fmt: skip
    return [f"{1e3 * (at - fault_s):.1f} {broker} {' '.join(map(str, what))}" for at, broker, what in happened][
        :_LINES_MAX
    ]
