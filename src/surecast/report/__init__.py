"""The QoS report: what `predict`, `simulate` and a measured run all return, so that any two can be compared.

>>> from surecast.report import ReportBuilder, compare
>>> predicted, measured = ReportBuilder("star", "predicted"), ReportBuilder("star", "measured")
>>> predicted.add("subscriber", "s1", "reliability", 0.95, how="exact")
>>> measured.add("subscriber", "s1", "reliability", 0.93, how="measured", low=0.91, high=0.95, samples=1000)
>>> compare(predicted.build(), measured.build()).rows()[0].inside
True
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import surecast.report.metric_catalogue as _catalogue  # registers the metrics
from surecast.report.agreement import Agreement, Unmatched
from surecast.report.builder import ReportBuilder
from surecast.report.compare_tables import render_comparison, render_side_by_side
from surecast.report.comparison import Comparison, Difference, PairedPoints, compare
from surecast.report.conservation import Imbalance, check_accounts
from surecast.report.figure import HOW, SCOPES, SOURCES, Figure
from surecast.report.formatting import format_figure, format_value
from surecast.report.info import ReportInfo
from surecast.report.metric_registry import (
    SPLITS,
    UNITS,
    Metric,
    find_metric,
    metrics,
    metrics_markdown,
    register_metric,
)
from surecast.report.report import QoSReport
from surecast.report.report_errors import ReportError
from surecast.report.report_files import as_dict, load, save
from surecast.report.report_summary import Summary
from surecast.report.report_tables import render
from surecast.report.side_by_side import SideBySide, SideBySideFamily, SideBySideRow, place_side_by_side

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "HOW",
    "SCOPES",
    "SOURCES",
    "SPLITS",
    "UNITS",
    "Agreement",
    "Comparison",
    "Difference",
    "Figure",
    "Imbalance",
    "Metric",
    "PairedPoints",
    "QoSReport",
    "ReportBuilder",
    "ReportError",
    "ReportInfo",
    "SideBySide",
    "SideBySideFamily",
    "SideBySideRow",
    "Summary",
    "Unmatched",
    "as_dict",
    "check_accounts",
    "compare",
    "find_metric",
    "format_figure",
    "format_value",
    "from_arrow",
    "load",
    "metrics",
    "metrics_markdown",
    "place_side_by_side",
    "register_metric",
    "render",
    "render_comparison",
    "render_side_by_side",
    "save",
]

del _catalogue


def from_arrow(table: pa.Table, info: ReportInfo | None = None) -> QoSReport:
    """Makes a report of an Arrow table with the columns of `QoSReport.to_arrow`.

    The head comes from the table's metadata unless it is given; further columns are ignored.

    >>> builder = ReportBuilder("star", "measured")
    >>> builder.add("broker", "b1", "utilisation", 0.4, how="measured")
    >>> from_arrow(builder.build().to_arrow()) == builder.build()
    True
    """
    from surecast.report.arrow import report_from_arrow

    return report_from_arrow(table, info)
