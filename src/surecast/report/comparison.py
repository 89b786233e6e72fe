"""The comparison of two reports: per figure, per metric, and what only one of them has."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from surecast.report.agreement import UNKNOWN, Agreement, Unmatched, agreements, consistent, unmatched
from surecast.report.columns import Columns, Floats, matching_rows
from surecast.report.figure import describe_key
from surecast.report.info import ReportInfo
from surecast.report.metric_registry import metric_or_plain
from surecast.report.report import QoSReport
from surecast.report.report_errors import ReportError, listing
from surecast.report.side_by_side import disagreement, join

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

__all__ = ["Comparison", "Difference", "PairedPoints", "compare"]

FORMAT = "surecast-comparison"
FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class Difference:
    """One figure in both reports. `difference` is b - a, `relative` the same over |a| (None where a is 0),
    `inside` whether the two fit what is known about their accuracy (None where nothing is known)."""

    variant: str
    scope: str
    name: str
    metric: str
    detail: str
    a: float
    b: float
    difference: float
    relative: float | None
    disagreement: float
    inside: bool | None
    a_how: str
    b_how: str
    a_low: float | None
    a_high: float | None
    b_low: float | None
    b_high: float | None

    def __str__(self) -> str:
        where = describe_key(self.variant, self.scope, self.name, self.metric, self.detail)
        return f"{where}: {self.a:.6g} against {self.b:.6g}"


@dataclass(frozen=True, slots=True)
class PairedPoints:
    """One metric of both reports, for a scatter of one against the other. NaN stands for an absent interval end."""

    metric: str
    unit: str
    labels: list[str]
    a: Floats
    b: Floats
    a_low: Floats
    a_high: Floats
    b_low: Floats
    b_high: Floats


class Comparison:
    """Two reports side by side, the largest disagreements first. Made by `compare`."""

    def __init__(self, a: QoSReport, b: QoSReport, variants: Mapping[str, str] | None = None):
        pairs = join(a, b, variants)
        if not len(pairs.a_rows):
            raise ReportError(_nothing_shared(a, b))
        self.a: ReportInfo = a.info
        self.b: ReportInfo = b.info
        self.variants = None if variants is None else dict(variants)
        self.only_a: list[Unmatched] = unmatched(a.columns.take(pairs.only_a))
        self.only_b: list[Unmatched] = unmatched(b.columns.take(pairs.only_b))
        in_order = a.columns.take(pairs.a_rows)
        distance = disagreement(in_order, in_order.value, b.columns.value[pairs.b_rows])
        order = np.argsort(-distance, kind="stable")
        self.disagreement: Floats = distance[order]
        self.a_columns: Columns = in_order.take(order)
        self.b_columns: Columns = b.columns.take(pairs.b_rows[order])
        self.inside: NDArray[np.int8] = consistent(self.a_columns, self.b_columns)

    def __len__(self) -> int:
        return len(self.a_columns)

    def __repr__(self) -> str:
        return f"<Comparison of {self.a} with {self.b}: {len(self):,} figure{'s' if len(self) != 1 else ''} in both>"

    @property
    def difference(self) -> Floats:
        """b - a, row by row."""
        return self.b_columns.value - self.a_columns.value

    @property
    def relative(self) -> Floats:
        """(b - a) / |a|, row by row; NaN where a is 0 or so small that the quotient is no number."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            quotient = self.difference / np.abs(self.a_columns.value)
        return np.where(np.isfinite(quotient), quotient, np.nan)

    def rows(
        self,
        limit: int | None = None,
        *,
        scope: str | None = None,
        metric: str | None = None,
        variant: str | None = None,
    ) -> list[Difference]:
        """Returns the figures that fit, the largest disagreements first; at most `limit` of them.

        >>> from surecast.report.report import example_report
        >>> print(*compare(example_report(), example_report()).rows(1))
        whole system, message_rate_per_s by notification: 120 against 120
        """
        rows = self._rows(scope=scope, metric=metric, variant=variant)
        return list(self._differences(rows if limit is None else rows[:limit]))

    @cached_property
    def summary(self) -> list[Agreement]:
        """Agreement per variant, scope, metric and detail; the family with the largest disagreement first.

        >>> from surecast.report.report import example_report
        >>> [row.largest for row in compare(example_report(), example_report()).summary]
        [0.0, 0.0, 0.0, 0.0, 0.0]
        """
        return agreements(self.a_columns, self.b_columns, self.disagreement, self.inside)

    def points(
        self, metric: str, *, scope: str | None = None, detail: str | None = None, variant: str | None = None
    ) -> PairedPoints:
        """Returns the two values of every figure of a metric, for a scatter of one report against the other.

        >>> from surecast.report.report import example_report
        >>> points = compare(example_report(), example_report()).points("reliability")
        >>> points.a.tolist(), points.labels
        ([0.95, 0.9], ['s1', 's2'])
        """
        rows = self._rows(metric=metric, scope=scope, detail=detail, variant=variant)
        if not len(rows):
            there = self.a_columns.metric.words
            raise ReportError(f"no figure of {metric!r} fits; both reports have {listing(there)}")
        a, b = self.a_columns.take(rows), self.b_columns.take(rows)
        shown = [c for c in ("variant", "scope", "name", "detail") if c == "name" or len(a.text(c).words) > 1]
        texts = zip(*(a.text(column).texts() for column in shown), strict=True)
        labels = [" ".join(word for word in row if word) for row in texts]
        ends = (a.low, a.high, b.low, b.high)
        return PairedPoints(metric, metric_or_plain(metric).unit, labels, a.value, b.value, *ends)

    def as_dict(self, limit: int | None = None) -> dict[str, Any]:
        """Returns the comparison as plain values, ready for JSON; with at most `limit` rows."""
        return {**self._head(), "rows": [asdict(row) for row in self.rows(limit)]}

    def to_arrow(self) -> pa.Table:
        """Returns one row per figure that both reports have, in the order of `rows`."""
        from surecast.report.data_frames import library

        library("pyarrow")
        from surecast.report.arrow import comparison_to_arrow

        return comparison_to_arrow(self, self._head())

    def to_pandas(self) -> pd.DataFrame:
        """Returns the rows as a pandas data frame; ReportError says what to install without it."""
        from surecast.report.data_frames import to_pandas

        return to_pandas(self)

    def to_polars(self) -> pl.DataFrame:
        """Returns the rows as a Polars data frame; ReportError says what to install without it."""
        from surecast.report.data_frames import to_polars

        return to_polars(self)

    def _repr_html_(self) -> str:
        """Returns the tables that the commands print, for a notebook."""
        from surecast.report.compare_tables import render_comparison
        from surecast.report.data_frames import NOTEBOOK_ROWS, as_html

        return as_html(render_comparison(self, limit=NOTEBOOK_ROWS))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the comparison as .json (rows and summaries) or .parquet (rows; summaries in the metadata)."""
        from surecast.report.report_files import encode_json, json_lines, suffix_of, write_parquet, write_whole

        target = Path(path)
        if suffix_of(target) == ".parquet":
            table = self.to_arrow()
            write_whole(target, lambda file: write_parquet(table, file))
        else:
            rows = self._differences(np.arange(len(self)))
            lines = json_lines(self._head(), "rows", (encode_json(asdict(row)) for row in rows))
            write_whole(target, lambda file: file.writelines(line.encode() for line in lines))
        return target

    def _head(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "a": self.a.as_dict(),
            "b": self.b.as_dict(),
            "variants": self.variants,
            "summary": [asdict(row) for row in self.summary],
            "only_a": [asdict(row) for row in self.only_a],
            "only_b": [asdict(row) for row in self.only_b],
        }

    def _rows(self, **wanted: str | None) -> NDArray[np.intp]:
        return matching_rows(self.a_columns, wanted)

    def _differences(self, rows: NDArray[np.intp]) -> Iterator[Difference]:
        difference, relative = self.difference, self.relative
        for row in rows.tolist():
            a, b = self.a_columns.figure(row), self.b_columns.figure(row)
            share = float(relative[row])
            yield Difference(
                *self.a_columns.key(row),
                a=a.value,
                b=b.value,
                difference=float(difference[row]),
                relative=None if share != share else share,
                disagreement=float(self.disagreement[row]),
                inside=None if self.inside[row] == UNKNOWN else bool(self.inside[row]),
                a_how=a.how,
                b_how=b.how,
                a_low=a.low,
                a_high=a.high,
                b_low=b.low,
                b_high=b.high,
            )


def compare(a: QoSReport, b: QoSReport, *, variants: Mapping[str, str] | None = None) -> Comparison:
    """Compares two reports figure by figure.

    `variants` maps variants of `a` to the variants of `b` that they are to be compared with; without it equal names
    are compared.

    >>> from surecast.report import ReportBuilder
    >>> predicted, simulated = ReportBuilder("star", "predicted"), ReportBuilder("star", "simulated")
    >>> predicted.add_many("subscriber", ["s1", "s2"], "reliability", [0.95, 0.97], how="exact")
    >>> simulated.add_many("subscriber", ["s1", "s2"], "reliability", [0.94, 0.93], how="simulated",
    ...                    low=[0.93, 0.92], high=[0.95, 0.94])
    >>> comparison = compare(predicted.build(), simulated.build())
    >>> [(row.name, round(row.difference, 9), row.inside) for row in comparison.rows()]
    [('s2', -0.04, False), ('s1', -0.01, True)]
    """
    return Comparison(a, b, variants)


def _nothing_shared(a: QoSReport, b: QoSReport) -> str:
    message = (
        f"the two reports have no figure in common: the first ({a.info}) has {listing(a.families())}; "
        f"the second ({b.info}) has {listing(b.families())}"
    )
    if a.variants and b.variants and not set(a.variants) & set(b.variants):
        message += f"; to compare different variants, map them: {{{a.variants[0]!r}: {b.variants[0]!r}}}"
    return message
