"""The QoS report: what `predict`, `simulate` and a measured run all return."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from surecast.report.columns import KEY, Columns, Groups, matching_rows
from surecast.report.figure import SCOPES, Figure, describe_key
from surecast.report.info import ReportInfo
from surecast.report.report_errors import ReportError, listing, suggestion
from surecast.report.report_summary import Summary, summarise, wide_rows

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

__all__ = ["QoSReport"]


class QoSReport:
    """Figures about one scenario, one row each, and where they come from (`info`).

    Reports are made with `ReportBuilder` or read with `load`, and never change afterwards. Two reports are equal if
    they hold the same figures in the same order under the same head.

    >>> report = example_report()
    >>> len(report), report.info.source
    (7, 'simulated')
    >>> report.value("reliability", name="s1")
    0.95
    """

    __slots__ = ("columns", "info")

    def __init__(self, info: ReportInfo, columns: Columns):
        self.info = info
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns)

    def __iter__(self) -> Iterator[Figure]:
        return self.columns.figures()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, QoSReport):
            return NotImplemented
        return self.info == other.info and self.columns.equals(other.columns)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        variants = f" in {len(self.variants)} variants" if len(self.variants) > 1 else ""
        return f"<QoSReport {self.info}: {len(self):,} figure{'s' if len(self) != 1 else ''}{variants}>"

    @property
    def variants(self) -> tuple[str, ...]:
        """The variants there are figures of, in order of first appearance."""
        return self.columns.variant.words

    @property
    def scopes(self) -> tuple[str, ...]:
        """The scopes there are figures of, the whole system first."""
        return tuple(scope for scope in SCOPES if scope in self.columns.scope.words)

    def select(
        self,
        *,
        scope: str | None = None,
        name: str | None = None,
        metric: str | None = None,
        detail: str | None = None,
        variant: str | None = None,
    ) -> QoSReport:
        """Returns the report of only those figures that fit, under the same head.

        >>> example_report().select(scope="subscriber", metric="reliability")
        <QoSReport star, simulated: 2 figures>
        """
        rows = self._rows(variant=variant, scope=scope, name=name, metric=metric, detail=detail)
        return QoSReport(self.info, self.columns.take(rows))

    def figures(
        self,
        *,
        scope: str | None = None,
        name: str | None = None,
        metric: str | None = None,
        detail: str | None = None,
        variant: str | None = None,
    ) -> list[Figure]:
        """Returns the figures that fit; an unknown scope or metric is refused, as it is most likely a slip.

        >>> [figure.name for figure in example_report().figures(metric="reliability")]
        ['s1', 's2']
        """
        rows = self._rows(variant=variant, scope=scope, name=name, metric=metric, detail=detail)
        return [self.columns.figure(row) for row in rows.tolist()]

    def figure(
        self, metric: str, *, scope: str | None = None, name: str = "", detail: str = "", variant: str | None = None
    ) -> Figure:
        """Returns the one figure that fits. Without a scope it is that of the only component of this name.

        >>> example_report().figure("reliability", name="s2").high
        0.92
        """
        if scope is None and not name:
            scope = "system"
        rows = self._rows(variant=variant, scope=scope, name=name, metric=metric, detail=detail)
        if len(rows) == 1:
            return self.columns.figure(int(rows[0]))
        key = describe_key(variant or "", scope or "component", name, metric, detail)
        if len(rows):
            words: tuple[str, ...] = ()
            for column in [c for c, wanted in (("scope", scope), ("variant", variant)) if wanted is None]:
                words = self.columns.text(column).take(rows).words
                if len(words) > 1:
                    break
            raise ReportError(f"{key}: {len(rows)} figures fit; say which {column}: {listing(words)}")
        raise ReportError(f"{key}: no such figure; {self._what_exists(scope, name, metric, detail)}")

    def value(
        self, metric: str, *, scope: str | None = None, name: str = "", detail: str = "", variant: str | None = None
    ) -> float:
        """Returns the value of the one figure that fits.

        >>> example_report().value("message_rate_per_s", detail="control")
        20.0
        >>> example_report().value("reliability", name="s3")
        Traceback (most recent call last):
        ...
        surecast.report.report_errors.ReportError: component s3, reliability: no such figure; it is there for s1, s2
        """
        return self.figure(metric, scope=scope, name=name, detail=detail, variant=variant).value

    def values(self, metric: str, *, scope: str, detail: str = "", variant: str | None = None) -> dict[str, float]:
        """Returns the values of one metric by the name of the component, of one variant.

        >>> example_report().values("reliability", scope="subscriber")
        {'s1': 0.95, 's2': 0.9}
        """
        rows = self._rows(variant=variant, scope=scope, metric=metric, detail=detail)
        variants = dict.fromkeys(self.columns.variant.take(rows).words)
        if len(variants) > 1:
            raise ReportError(f"{metric} of {scope}: there are several variants, say which: {listing(variants)}")
        names = self.columns.name
        return {names[row]: float(self.columns.value[row]) for row in rows.tolist()}

    def wide(self, scope: str, variant: str | None = None) -> list[dict[str, Any]]:
        """Returns one row per component (and variant), with a column per metric, or per `metric:detail`; None where
        absent.

        >>> example_report().wide("subscriber")[0]
        {'variant': '', 'name': 's1', 'reliability': 0.95, 'share_dropped:expired': 0.05}
        """
        return wide_rows(self.columns.take(self._rows(scope=scope, variant=variant)))

    def summary(self) -> list[Summary]:
        """Returns, per variant, scope, metric and detail, the number of figures, their mean, the extremes and the worst
        component.

        >>> row = example_report().summary()[2]
        >>> row.metric, row.count, round(row.mean, 3), row.worst
        ('reliability', 2, 0.925, 's2')
        """
        return summarise(self.columns)

    def to_arrow(self) -> pa.Table:
        """Returns the figures as an Arrow table, texts dictionary-encoded; its metadata holds the head of the report.

        >>> example_report().to_arrow().num_rows
        7
        """
        from surecast.report.data_frames import library

        library("pyarrow")
        from surecast.report.arrow import report_to_arrow

        return report_to_arrow(self)

    def to_pandas(self) -> pd.DataFrame:
        """Returns the figures as a pandas data frame, the columns of `to_arrow`; ReportError names what is missing.

        >>> example_report().to_pandas().shape
        (7, 10)
        """
        from surecast.report.data_frames import to_pandas

        return to_pandas(self)

    def to_polars(self) -> pl.DataFrame:
        """Returns the figures as a Polars data frame, the columns of `to_arrow`; ReportError names what is missing."""
        from surecast.report.data_frames import to_polars

        return to_polars(self)

    def _repr_html_(self) -> str:
        """Returns the tables that the commands print, for a notebook."""
        from surecast.report.data_frames import NOTEBOOK_ROWS, as_html
        from surecast.report.report_tables import render

        return as_html(render(self, limit=NOTEBOOK_ROWS))

    def _rows(self, **wanted: str | None) -> NDArray[np.intp]:
        """Returns the rows where each column holds what is wanted, None meaning anything."""
        return matching_rows(self.columns, wanted)

    def _what_exists(self, scope: str | None, name: str, metric: str, detail: str) -> str:
        """Returns the closest keys that exist, for a message about a figure that does not."""
        words = self.columns.text
        same_metric = self._rows(scope=scope, metric=metric)
        if not len(same_metric):
            there = self.columns.take(self._rows(scope=scope)).metric.words
            place = "the report" if scope is None else f"scope {scope!r}"
            return f"{place} has {listing(there)}"
        same_detail = self._rows(scope=scope, metric=metric, detail=detail)
        if not len(same_detail):
            return f"its details are {listing(words('detail').take(same_metric).words)}"
        same_name = self._rows(scope=scope, metric=metric, detail=detail, name=name)
        if not len(same_name):
            names = words("name").take(same_detail).words
            return f"it is there for {listing(names)}{suggestion(name, names)}"
        return f"its variants are {listing(words('variant').take(same_name).words)}"

    def families(self) -> list[str]:
        """Returns the variants, scopes and metrics of the report, for messages."""
        groups = Groups(self.columns.keys([column for column in KEY if column not in ("name", "detail")]))
        texts = (self.columns.variant, self.columns.scope, self.columns.metric)
        rows = ([text[row] for text in texts] for row in groups.first.tolist())
        return [" ".join(word for word in row if word) for row in rows]


def example_report() -> QoSReport:
    """Returns a small report for the examples in this package's documentation.

    >>> [str(figure) for figure in example_report()][:2]
    ['whole system, message_rate_per_s by notification: 120 (simulated)', \
'whole system, message_rate_per_s by control: 20 (simulated)']
    """
    from surecast.report.builder import ReportBuilder

    builder = ReportBuilder("star", "simulated", seed=7, version="0", notes=["links never fail"])
    builder.add_many("system", "", "message_rate_per_s", [120, 20], how="simulated", detail=["notification", "control"])
    names, low, high = ("s1", "s2"), [0.94, 0.88], [0.96, 0.92]
    builder.add_many("subscriber", names, "reliability", [0.95, 0.9], how="simulated", low=low, high=high, samples=400)
    builder.add_many("subscriber", names, "share_dropped", [0.05, 0.1], how="simulated", detail="expired")
    builder.add("broker", "b1", "utilisation", 0.42, how="simulated")
    builder.warn("run for 60 s only")
    return builder.build()
