"""The rules that every figure must obey, for one figure or a whole column."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence

import numpy as np

from surecast.report.columns import COLUMNS, NO_SAMPLES, Codes, Columns, Floats, Ints
from surecast.report.figure import HOW, SCOPES
from surecast.report.metric_registry import Metric, metric_or_plain
from surecast.report.report_errors import ReportError, listing, suggestion

__all__: list[str] = []

ROUNDING = 1e-9
"""The distance that a value may stray beyond the range of its metric, or beyond its own interval, by rounding."""
LARGEST = 1e150
"""No figure is larger than this, so that squares of figures can be added up."""


def check_one(where: str, lowest: float, largest: float, value: float, low: float, high: float, samples: int) -> None:
    """Refuses a figure whose number cannot be right. NaN stands for an absent end of the interval."""
    if math.isnan(value):
        raise ReportError(f"{where}: the value is not a number; leave out a figure that does not exist")
    for column, number in (("value", value), ("low", low), ("high", high)):
        if abs(number) > LARGEST:
            raise ReportError(
                f"{where}: {column} is {number}; a figure must be finite (and below {LARGEST:g}): leave it out, and "
                "say why in a warning"
            )
    if not lowest - ROUNDING <= value <= largest + ROUNDING:
        allowed = f"between {lowest:g} and {largest:g}" if math.isfinite(largest) else f"{lowest:g} or more"
        raise ReportError(f"{where}: value {value!r} is out of range; it must be {allowed}")
    slack = ROUNDING * max(abs(number) for number in (value, low, high) if number == number)
    if low > high + slack:
        raise ReportError(f"{where}: the interval [{low!r}, {high!r}] has its ends exchanged")
    if low > value + slack or high < value - slack:
        raise ReportError(f"{where}: value {value!r} lies outside its own interval [{low!r}, {high!r}]")
    if samples < NO_SAMPLES or samples >= 2**63:
        raise ReportError(f"{where}: {samples} samples; the number of samples must be 0 or more")


def check_many(
    where: Callable[[int], str],
    metrics: Sequence[Metric],
    of: Codes,
    value: Floats,
    low: Floats,
    high: Floats,
    samples: Ints,
) -> None:
    """Checks columns as `check_one` does a figure; `where` describes a row, and `metrics[of[row]]` is its metric."""
    lowest = np.array([metric.minimum for metric in metrics])[of]
    largest = np.array([metric.maximum for metric in metrics])[of]
    with np.errstate(invalid="ignore", over="ignore"):
        bad = ~((value >= lowest - ROUNDING) & (value <= largest + ROUNDING))
        for column in (value, low, high):
            bad |= np.abs(column) > LARGEST
        slack = ROUNDING * np.fmax(np.abs(value), np.fmax(np.abs(low), np.abs(high)))
        bad |= (low > high + slack) | (low > value + slack) | (high < value - slack)
    bad |= samples < NO_SAMPLES
    if bad.any():
        row = int(np.argmax(bad))
        limits = (float(lowest[row]), float(largest[row]))
        check_one(where(row), *limits, float(value[row]), float(low[row]), float(high[row]), int(samples[row]))
        raise AssertionError(f"{where(row)}: refused without a reason")


def check_name(scope: str, name: str) -> None:
    """Refuses a component without a name, and a name for the system as a whole."""
    if scope == "system" and name:
        raise ReportError(f"scope 'system' is the whole system: name {name!r} must be empty")
    if scope != "system" and not name:
        raise ReportError(f"a figure of scope {scope!r} needs the name of its {SCOPES[scope]}")


def check_how(how: str) -> None:
    if how not in HOW:
        raise ReportError(f"unknown how {how!r}; known are {listing(HOW)}{suggestion(how, HOW)}")


def check_unique(columns: Columns) -> None:
    """Refuses two figures with the same key."""
    keys = columns.keys()
    order = np.argsort(keys, kind="stable")
    again = order[1:][np.diff(keys[order]) == 0]
    if len(again):
        row = int(again.min())
        more = f" ({len(again)} figures are repeated in all)" if len(again) > 1 else ""
        raise ReportError(f"{columns.describe(row)}: this figure was given twice{more}")


def check_columns(names: Collection[str]) -> None:
    missing = [name for name in COLUMNS if name not in names]
    if missing:
        raise ReportError(f"column {listing(missing)} is missing; a report has {listing(COLUMNS, 10)}")


def check_read(columns: Columns) -> None:
    """Checks figures that come from a file. Metrics need not be registered: another Surecast may know more."""
    for scope in columns.scope.words:
        if scope not in SCOPES:
            raise ReportError(f"unknown scope {scope!r}; known are {listing(SCOPES)}")
    for how in columns.how.words:
        check_how(how)
    if "" in columns.metric.words:
        raise ReportError("a figure has no metric")
    unnamed = columns.name.is_word("")
    wrong = unnamed != columns.scope.is_word("system")
    if wrong.any():
        row = int(np.argmax(wrong))
        check_name(columns.scope[row], columns.name[row])
    metrics = [metric_or_plain(metric) for metric in columns.metric.words]
    of = columns.metric.codes
    check_many(columns.describe, metrics, of, columns.value, columns.low, columns.high, columns.samples)
    check_unique(columns)
