"""Reports seen from further away: per metric, and per component."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from surecast.report.columns import Columns, Groups
from surecast.report.metric_registry import catalogue_rank, metric_or_plain

__all__ = ["Summary"]

FAMILY = ("variant", "scope", "metric", "detail")
"""Figures that agree in these are of the same family: they differ only in the component they are about."""


@dataclass(frozen=True, slots=True)
class Summary:
    """All figures of one variant, scope, metric and detail. `worst` is the component that is worst off, empty where
    the metric has no better and worse."""

    variant: str
    scope: str
    metric: str
    detail: str
    count: int
    mean: float
    smallest: float
    largest: float
    worst: str


def summarise(columns: Columns) -> list[Summary]:
    """Returns one summary per family of figures, in order of first appearance."""
    groups = Groups(columns.keys(FAMILY))
    means = groups.mean(columns.value)
    smallest, largest = groups.largest_row(-columns.value), groups.largest_row(columns.value)
    rows = []
    for i, first in enumerate(groups.first.tolist()):
        low, high = int(smallest[i]), int(largest[i])
        better = metric_or_plain(columns.metric[first]).better
        rows.append(
            Summary(
                *columns.family(first),
                count=int(groups.size[i]),
                mean=float(means[i]),
                smallest=float(columns.value[low]),
                largest=float(columns.value[high]),
                worst={"more": columns.name[low], "less": columns.name[high], "": ""}[better],
            )
        )
    return rows


def column_name(metric: str, detail: str) -> str:
    """Returns the name of a column of the wide form.

    >>> column_name("share_dropped", "expired")
    'share_dropped:expired'
    """
    return f"{metric}:{detail}" if detail else metric


def wide_columns(columns: Columns) -> list[tuple[str, str]]:
    """Returns the (metric, detail) pairs there are, in the order of the catalogue, details in order of appearance."""
    first = Groups(columns.keys(("metric", "detail"))).first.tolist()
    pairs = [(columns.metric[row], columns.detail[row]) for row in first]
    return sorted(pairs, key=lambda pair: catalogue_rank(pair[0]))


def wide_cells(columns: Columns) -> list[tuple[str, str, dict[tuple[str, str], int]]]:
    """Yields variant, name and the row of each (metric, detail), for every component in order of first appearance."""
    groups = Groups(columns.keys(("variant", "name")))
    cells: list[tuple[str, str, dict[tuple[str, str], int]]] = [
        (columns.variant[row], columns.name[row], {}) for row in groups.first.tolist()
    ]
    metrics, details = columns.metric.texts(), columns.detail.texts()
    for row, group in enumerate(groups.of.tolist()):
        cells[group][2][metrics[row], details[row]] = row
    return cells


def wide_rows(columns: Columns) -> list[dict[str, Any]]:
    """Returns one mapping per component, with the same keys in each."""
    pairs = wide_columns(columns)
    values: list[float] = np.asarray(columns.value).tolist()
    return [
        {
            "variant": variant,
            "name": name,
            **{column_name(*pair): values[cells[pair]] if pair in cells else None for pair in pairs},
        }
        for variant, name, cells in wide_cells(columns)
    ]
