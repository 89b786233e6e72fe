"""The accounts must balance: what was published to a subscriber is on time, late, dropped or still queued."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surecast.report.columns import Columns, Floats, Groups
from surecast.report.figure import describe_key
from surecast.report.report import QoSReport

__all__ = ["Imbalance", "check_accounts"]

_ENTRIES = ("on_time", "late", "dropped", "queued")


@dataclass(frozen=True, slots=True)
class Imbalance:
    """Figures that do not add up: `parts` sum to `total`, which should have been `expected`."""

    variant: str
    scope: str
    name: str
    metric: str
    expected: float
    total: float
    parts: dict[str, float]

    def __str__(self) -> str:
        where = describe_key(self.variant, self.scope, self.name, self.metric, "")
        parts = " + ".join(f"{name} {value:.6g}" for name, value in self.parts.items())
        return f"{where}: {parts} = {self.total:.9g}, not {self.expected:.9g}"


def check_accounts(report: QoSReport, tolerance: float = 1e-6) -> list[Imbalance]:
    """Returns all subscribers, classes and systems whose accounts do not balance.

    Shares must sum to 1 and counts to `count_published`, within `tolerance` (of counts, relative to the number
    published); and where a number of dropped events is given both in all and by reason, the reasons must sum to it.
    What is not in the report counts as 0. A single share, or counts without `count_published`, is no account to check.

    >>> from surecast.report import ReportBuilder
    >>> builder = ReportBuilder("star", "measured")
    >>> builder.add("subscriber", "s1", "count_published", 100, how="measured")
    >>> builder.add("subscriber", "s1", "count_on_time", 90, how="measured")
    >>> builder.add("subscriber", "s1", "count_dropped", 7, how="measured", detail="expired")
    >>> print(*check_accounts(builder.build()))
    subscriber s1, count_published: count_on_time 90 + count_dropped:expired 7 = 97, not 100
    """
    columns = report.columns
    return [
        *_check_kind(columns, "share", tolerance),
        *_check_kind(columns, "count", tolerance),
        *_check_reasons(columns, "share_dropped", tolerance),
        *_check_reasons(columns, "count_dropped", tolerance),
    ]


def _check_kind(all_columns: Columns, kind: str, tolerance: float) -> list[Imbalance]:
    entries = [f"{kind}_{entry}" for entry in _ENTRIES]
    published = f"{kind}_published"
    columns = all_columns.take(all_columns.metric.is_one_of([*entries, published]))
    groups = Groups(columns.keys(("variant", "scope", "name")))
    is_entry = columns.metric.is_one_of(entries)
    counted = is_entry & ~_redundant_totals(columns, groups, f"{kind}_dropped")
    total = groups.sum(np.where(counted, columns.value, 0.0))
    if kind == "share":
        expected = np.ones(len(groups))
        kinds_present = sum((_present(groups, columns.metric.is_word(e)) for e in entries), np.zeros(len(groups)))
        checked = kinds_present >= 2
    else:
        is_published = columns.metric.is_word(published)
        expected = groups.sum(np.where(is_published, columns.value, 0.0))
        checked = (_present(groups, is_published) > 0) & (_present(groups, is_entry) > 0)
    wrong = checked & (np.abs(total - expected) > tolerance * np.maximum(1.0, expected))
    metric = published if kind == "count" else "shares"
    return [
        _imbalance(columns, groups, counted, int(group), metric, float(expected[group]), float(total[group]))
        for group in np.flatnonzero(wrong)
    ]


def _check_reasons(all_columns: Columns, metric: str, tolerance: float) -> list[Imbalance]:
    """Returns the totals that are not the sum of their parts."""
    columns = all_columns.take(all_columns.metric.is_word(metric))
    groups = Groups(columns.keys(("variant", "scope", "name")))
    is_total = columns.detail.is_word("")
    both = (_present(groups, is_total) > 0) & (_present(groups, ~is_total) > 0)
    expected = groups.sum(np.where(is_total, columns.value, 0.0))
    total = groups.sum(np.where(is_total, 0.0, columns.value))
    wrong = both & (np.abs(total - expected) > tolerance * np.maximum(1.0, expected))
    return [
        _imbalance(columns, groups, ~is_total, int(group), metric, float(expected[group]), float(total[group]))
        for group in np.flatnonzero(wrong)
    ]


def _present(groups: Groups, rows: NDArray[np.bool_]) -> Floats:
    """Returns 1 for each group with at least one of these rows, else 0."""
    return np.minimum(groups.sum(rows.astype(np.float64)), 1.0)


def _redundant_totals(columns: Columns, groups: Groups, metric: str) -> NDArray[np.bool_]:
    """Totals of the dropped events that must not be counted, as their parts are there too."""
    dropped = columns.metric.is_word(metric)
    is_total = dropped & columns.detail.is_word("")
    has_parts = _present(groups, dropped & ~is_total) > 0
    return np.asarray(is_total & has_parts[groups.of]) if len(groups) else is_total


def _imbalance(
    columns: Columns,
    groups: Groups,
    counted: NDArray[np.bool_],
    group: int,
    metric: str,
    expected: float,
    total: float,
) -> Imbalance:
    rows = np.flatnonzero(counted & (groups.of == group)).tolist()
    parts = {
        columns.metric[row] + (f":{columns.detail[row]}" if columns.detail[row] else ""): float(columns.value[row])
        for row in rows
    }
    first = int(groups.first[group])
    return Imbalance(columns.variant[first], columns.scope[first], columns.name[first], metric, expected, total, parts)
