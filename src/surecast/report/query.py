"""Questions to the columns of a report or a comparison."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from surecast.report.columns import Columns
from surecast.report.figure import SCOPES
from surecast.report.metric_registry import find_metric
from surecast.report.report_errors import ReportError, listing, suggestion

__all__: list[str] = []


def matching_rows(columns: Columns, wanted: Mapping[str, str | None]) -> NDArray[np.intp]:
    """Returns the rows where each column holds what is wanted, None meaning anything.

    A scope or metric that nobody knows is refused, as it is most likely a slip; one that is merely absent is not.
    """
    check_scope(wanted.get("scope"))
    metric = wanted.get("metric")
    if metric is not None and metric not in columns.metric.words:
        find_metric(metric)
    mask = np.ones(len(columns), dtype=np.bool_)
    for column, word in wanted.items():
        if word is not None:
            mask &= columns.text(column).is_word(word)
    return np.flatnonzero(mask)


def check_scope(scope: str | None) -> None:
    """Refuses an unknown scope."""
    if scope is not None and scope not in SCOPES:
        raise ReportError(f"unknown scope {scope!r}; known are {listing(SCOPES)}{suggestion(scope, SCOPES)}")
