"""Statistics of content filters from samples: what notifications carry, and what subscriptions ask for.

Brokers do not log contents. A file of samples has one JSON object on each line: `{"attributes": {"price": 36.5}}` for
a notification, `{"filter": "price in [30, 40]"}` for a subscription, both with an optional `"class"`.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surecast.errors import FileError
from surecast.pipeline.learn.rates import share_interval
from surecast.protocol.filters import Filter, FilterSyntaxError, Interval, parse

__all__ = ["AttributeFit", "FilterSamples", "fit_attributes", "read_filter_samples"]

Array = NDArray[np.float64]
BINS = 20
ATTRIBUTES_MAX = 8
_DISTINCT_MAX = 30


@dataclass(frozen=True)
class FilterSamples:
    """Numbers of each attribute in notifications, and filters of subscriptions."""

    values: dict[str, list[float]]
    filters: tuple[Filter, ...]
    skipped: int = 0
    """Attributes of notifications that are text: the models have numbers only."""


@dataclass(frozen=True)
class AttributeFit:
    """One attribute as a scenario file has it, and the share of subscriptions that ask anything of it."""

    spec: dict[str, Any]
    values: int
    intervals: int
    constrained: float
    low: float
    high: float
    half_open: int
    """Intervals with one end only; the other is the end of the values seen."""


def read_filter_samples(path: Path) -> FilterSamples:
    """Reads a file of samples; FileError names the line that is wrong."""
    values: dict[str, list[float]] = defaultdict(list)
    filters: list[Filter] = []
    skipped = 0
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                sample = _sample(line, str(path), number)
                if isinstance(sample, Filter):
                    filters.append(sample)
                    continue
                for name, value in sample.items():
                    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
                        values[name].append(float(value))
                    else:
                        skipped += 1
    except UnicodeDecodeError as error:
        raise FileError(f"is not UTF-8 text (byte {error.start})", str(path)) from None
    except OSError as error:
        raise FileError(f"cannot be read: {error.strerror or error}", str(path)) from None
    return FilterSamples(dict(values), tuple(filters), skipped)


def _sample(line: str, file: str, number: int) -> Filter | dict[str, Any]:
    expected = 'write {"attributes": {"price": 36.5}} or {"filter": "price in [30, 40]"}'
    try:
        data = json.loads(line)
    except ValueError:
        raise FileError(f"is not JSON; {expected}", file, number) from None
    if isinstance(data, dict) and isinstance(data.get("attributes"), dict):
        return dict(data["attributes"])
    if isinstance(data, dict) and isinstance(data.get("filter"), str):
        try:
            return parse(data["filter"])
        except FilterSyntaxError as error:
            raise FileError(f"the filter {data['filter']!r} is wrong: {error}", file, number) from None
    raise FileError(f"has neither attributes nor a filter; {expected}", file, number)


def fit_attributes(samples: FilterSamples) -> list[AttributeFit]:
    """Histograms of the values, and of centres and widths of the intervals, of each attribute with enough of both.

    >>> samples = FilterSamples({"price": [1.0, 2.0, 3.0]}, (parse("price in [1, 3]"),))
    >>> fit_attributes(samples)[0].spec["interval"]
    {'centre': {'values': [2.0], 'weights': [1.0]}, 'width': {'values': [2.0], 'weights': [1.0]}}
    """
    fits = []
    for name, numbers in sorted(samples.values.items(), key=lambda item: -len(item[1])):
        values = np.array(numbers)
        low, high = float(values.min()), float(values.max())
        constraints = [dict(each.constraints)[name] for each in samples.filters if name in dict(each.constraints)]
        intervals = [each for each in constraints if isinstance(each, Interval)]
        if not intervals:
            continue
        ends = [(max(each.low, min(low, each.high)), min(each.high, max(high, each.low))) for each in intervals]
        half_open = sum(math.isinf(each.low) or math.isinf(each.high) for each in intervals)
        lows, highs = (np.array(each) for each in zip(*ends, strict=True))
        interval = {"centre": histogram((lows + highs) / 2.0), "width": histogram(np.maximum(highs - lows, 0.0))}
        share = len(intervals) / len(samples.filters)
        spec: dict[str, Any] = {"name": name, "value": histogram(values), "interval": interval}
        if share < 1.0:
            spec["constrained"] = float(f"{share:.6g}")
        reach = share_interval(len(intervals), len(samples.filters))
        fits.append(AttributeFit(spec, len(values), len(intervals), share, *reach, half_open))
    return fits[:ATTRIBUTES_MAX]


def histogram(numbers: Iterable[float] | Array) -> dict[str, list[float]]:
    """Returns a histogram in the form of a scenario file: the numbers where few differ, and else bins of equal
    width."""
    values = np.asarray(numbers, dtype=np.float64)
    distinct, counts = np.unique(values, return_counts=True)
    if len(distinct) <= _DISTINCT_MAX:
        return {"values": distinct.tolist(), "weights": counts.astype(np.float64).tolist()}
    weights, edges = np.histogram(values, bins=min(BINS, max(2, math.isqrt(len(values)))))
    return {"edges": [float(f"{edge:.9g}") for edge in edges], "weights": weights.astype(np.float64).tolist()}
