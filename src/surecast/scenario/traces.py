"""Availability traces: when real components were up, and what that says about how they fail.

Four formats are read, plain or gzip-compressed: `avt` (one component a line: name, number of up sessions, pairs of
start and stop), `fta` (the tabular event traces of the Failure Trace Archive), `lanl` (the failure log of Los Alamos)
and `outages` (a table of start_time, end_time, status, service).
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np

from surecast.errors import TraceError
from surecast.scenario.distributions import Distribution, parse_distribution
from surecast.scenario.system import Failures

__all__ = ["TRACE_FORMATS", "AvailabilityTrace", "failures_of", "read_traces"]

Interval = tuple[float, float]
MAX_BYTES = 512 * 2**20


@dataclass(frozen=True, slots=True)
class AvailabilityTrace:
    """The intervals in which one component was up between `start_s` and `end_s`: in order, without overlap."""

    name: str
    start_s: float
    end_s: float
    up: tuple[Interval, ...]

    @property
    def availability(self) -> float:
        """The share of the observed time that it was up."""
        return sum(b - a for a, b in self.up) / (self.end_s - self.start_s)

    def periods(self) -> tuple[list[float], list[float]]:
        """Returns complete up and down periods: those cut off by the start or the end of the observation are left
        out."""
        ups = [b - a for a, b in self.up if a > self.start_s and b < self.end_s]
        downs = [b[0] - a[1] for a, b in zip(self.up, self.up[1:], strict=False)]
        return ups, downs

    def counts(self) -> tuple[int, int]:
        """Numbers of failures and of repairs that were seen."""
        failures = sum(1 for _, b in self.up if b < self.end_s)
        repairs = sum(1 for a, _ in self.up if a > self.start_s)
        return failures, repairs


def failures_of(trace: AvailabilityTrace, *, shaped: bool = False) -> Failures | None:
    """Returns the failures of a component, estimated from its trace; None if it never failed.

    Mean times are total time over number of ends seen, so that periods cut off by the observation count in full
    (the maximum-likelihood estimate for exponential times). With `shaped`, the variability of the complete periods
    is kept too: hyperexponential or Erlang by their squared coefficient of variation.

    >>> failures = failures_of(AvailabilityTrace("a", 0, 100, ((0, 40), (50, 100))))
    >>> failures.mtbf_s, failures.mttr_s
    (90.0, 10.0)
    """
    ended, repaired = trace.counts()
    up_s = sum(b - a for a, b in trace.up)
    down_s = trace.end_s - trace.start_s - up_s
    if ended == 0 or repaired == 0 or down_s <= 0:
        return None
    ups, downs = trace.periods()
    shapes = (_shape(ups), _shape(downs)) if shaped else (_shape([]), _shape([]))
    return Failures(shapes[0].with_mean(up_s / ended), shapes[1].with_mean(down_s / repaired))


def _shape(periods: list[float]) -> Distribution:
    """Returns the shape with the squared coefficient of variation of the periods; exponential where they are few."""
    if len(periods) < 10:
        return parse_distribution("exponential")
    scv = float(np.var(periods) / np.mean(periods) ** 2)
    if scv > 1.05:
        return parse_distribution({"distribution": "hyperexponential", "scv": min(scv, 1000.0)})
    if scv < 0.7:
        return parse_distribution({"distribution": "erlang", "stages": min(100, max(2, round(1 / max(scv, 0.01))))})
    return parse_distribution("exponential")


def read_traces(path: Path, format: str) -> list[AvailabilityTrace]:
    """Returns all components of a trace file; TraceError with the line if it is wrong."""
    if format not in TRACE_FORMATS:
        raise TraceError(f"there is no trace format {format!r}; there are: {', '.join(TRACE_FORMATS)}", str(path))
    text = _read(path)
    traces = TRACE_FORMATS[format](io.StringIO(text), str(path))
    if not traces:
        raise TraceError("there is no component in it", str(path))
    return traces


def _read(path: Path) -> str:
    try:
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            with gzip.open(path) as stream:
                data = stream.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise TraceError(f"is larger than {MAX_BYTES // 2**20} MiB", str(path))
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TraceError(f"is not UTF-8 text (byte {error.start})", str(path)) from None
    except (OSError, EOFError) as error:
        raise TraceError(f"cannot be read: {getattr(error, 'strerror', None) or error}", str(path)) from None


def _avt(lines: io.StringIO, file: str) -> list[AvailabilityTrace]:
    rows: list[tuple[str, list[Interval]]] = []
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words:
            continue
        times = [_number(word, file, number) for word in words[1:]]
        if len(words) < 2 or len(times) != 1 + 2 * int(times[0]):
            message = "expected a name, the number of sessions, and as many pairs of start and stop"
            raise TraceError(message, file, number)
        rows.append((words[0], _checked(list(zip(times[1::2], times[2::2], strict=True)), file, number)))
    end = max((up[-1][1] for _, up in rows if up), default=0.0)
    start = min((up[0][0] for _, up in rows if up), default=0.0)
    return [AvailabilityTrace(name, start, end, tuple(up)) for name, up in rows if end > start]


def _fta(lines: io.StringIO, file: str) -> list[AvailabilityTrace]:
    rows: dict[str, list[tuple[float, float, int]]] = {}
    needed = ("node_name", "event_type", "event_start_time", "event_stop_time")
    for number, row in _table(lines, file, needed, "\t"):
        start, stop = (_number(row[name], file, number) for name in needed[2:])
        if row["event_type"] not in ("0", "1"):
            raise TraceError(f"event_type is 0 or 1, not {row['event_type']!r}", file, number)
        if stop > start:
            rows.setdefault(row["node_name"], []).append((start, stop, int(row["event_type"])))
    traces = []
    for name, events in rows.items():
        events.sort()
        up = _joined([(a, b) for a, b, kind in events if kind == 1])
        traces.append(AvailabilityTrace(name, events[0][0], max(b for _, b, _ in events), tuple(up)))
    return traces


def _lanl(lines: io.StringIO, file: str) -> list[AvailabilityTrace]:
    downs: dict[str, list[Interval]] = {}
    needed = ("System", "nodenumz", "Prob Started", "Prob Fixed")
    for number, row in _table(lines, file, needed, ","):
        if not row["Prob Started"] or not row["Prob Fixed"]:
            continue
        try:
            start, stop = (_seconds(row[name]) for name in needed[2:])
        except ValueError:
            message = f"expected times such as 6/21/2005 10:54, not {row['Prob Started']!r} and {row['Prob Fixed']!r}"
            raise TraceError(message, file, number) from None
        if stop > start:
            downs.setdefault(f"{row['System']}-{row['nodenumz']}", []).append((start, stop))
    return _from_downs(downs)


def _outages(lines: io.StringIO, file: str) -> list[AvailabilityTrace]:
    downs: dict[str, list[Interval]] = {}
    for number, row in _table(lines, file, ("start_time", "end_time", "status", "service"), ","):
        start, stop = _number(row["start_time"], file, number), _number(row["end_time"], file, number)
        if stop > start and _number(row["status"], file, number) > 0:
            downs.setdefault(row["service"], []).append((start, stop))
    return _from_downs(downs)


def _from_downs(downs: dict[str, list[Interval]]) -> list[AvailabilityTrace]:
    """Traces from down times alone: each component is observed from its first failure to its last repair."""
    traces = []
    for name, intervals in downs.items():
        merged = _joined(intervals)
        start, end = merged[0][0], merged[-1][1]
        up = tuple((a[1], b[0]) for a, b in itertools.pairwise(merged))
        if up:
            traces.append(AvailabilityTrace(name, start, end, up))
    return traces


def _joined(intervals: list[Interval]) -> list[Interval]:
    """Returns the union of intervals, in order; those that touch become one."""
    joined: list[Interval] = []
    for start, stop in sorted(intervals):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(stop, joined[-1][1]))
        else:
            joined.append((start, stop))
    return joined


def _checked(intervals: list[Interval], file: str, line: int) -> list[Interval]:
    if any(b < a for a, b in intervals) or any(b[0] < a[1] for a, b in itertools.pairwise(intervals)):
        raise TraceError("sessions must be in order and must not overlap", file, line)
    return _joined([(a, b) for a, b in intervals if b > a])


def _table(
    lines: io.StringIO, file: str, needed: tuple[str, ...], delimiter: str
) -> Iterator[tuple[int, dict[str, str]]]:
    reader = csv.DictReader(lines, delimiter=delimiter)
    missing = [name for name in needed if name not in (reader.fieldnames or [])]
    if missing:
        raise TraceError(f"the first line should name the columns; {', '.join(missing)} is missing", file, 1)
    try:
        for row in reader:
            if any(row.get(name) is None for name in needed):
                raise TraceError("this line has too few columns", file, reader.line_num)
            yield reader.line_num, row
    except csv.Error as error:
        raise TraceError(f"is not a table: {error}", file, reader.line_num) from None


def _number(text: str, file: str, line: int) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise TraceError(f"expected a number, and found {text!r}", file, line)
    return value


def _seconds(text: str) -> float:
    """Returns seconds since an arbitrary day; local times without a zone, as in the log."""
    return (datetime.strptime(text.strip(), "%m/%d/%Y %H:%M") - datetime(1990, 1, 1)).total_seconds()


TRACE_FORMATS: dict[str, Callable[[io.StringIO, str], list[AvailabilityTrace]]] = {
    "avt": _avt,
    "fta": _fta,
    "lanl": _lanl,
    "outages": _outages,
}
