"""A comparison as a page: an interactive figure by Plotly, the errors as a table, and the numbers to save."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from surecast.studio import wording
from surecast.studio.page import Cell, Downloads, Figure, Heading, Page, Section, Table, render_page
from surecast.studio.style import SYMBOLS, clean, plotly_axis, plotly_layout, series_variable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from surecast.studio.scatter import Comparison, Series

__all__ = ["scatter_page"]


def scatter_page(comparison: Comparison, *, dark: bool) -> str:
    """Returns the page as HTML."""
    errors, points = _error_table(comparison), _point_table(comparison)
    sections: list[Section] = [
        Figure(
            {"data": _traces(comparison), "layout": _layout(comparison)},
            alt=f"{comparison.title}: a scatter plot of {wording.count(len(points.rows), 'point')}.",
            caption=(comparison.caption + " " if comparison.caption else "")
            + "On the dashed line both agree; the further a point lies from it, the more they differ."
            + (" Vertical bars are intervals." if any(s.low is not None for s in comparison.series) else ""),
            ratio=0.64,
            height_px_min=460,
        ),
        Heading("Errors"),
        errors,
        Downloads(errors, "errors"),
        Downloads(points, "points"),
    ]
    return render_page(Page(comparison.title, sections, dark=dark))


def _traces(comparison: Comparison) -> list[dict[str, Any]]:
    ends = [comparison.low, comparison.high]
    line = {"color": "var(--ink)", "width": 1.4, "dash": "dash"}
    traces: list[dict[str, Any]] = [
        {"type": "scatter", "mode": "lines", "name": "both agree", "x": ends, "y": ends, "line": line}
        | {"hoverinfo": "skip", "legendrank": 2000}
    ]
    points = sum(len(series.x) for series in comparison.series)
    for i, series in enumerate(comparison.series):
        trace: dict[str, Any] = {
            "type": "scatter",
            "mode": "markers",
            "name": "<br>".join(escape(line, quote=False) for line in comparison.legend(series)),
            "x": series.x,
            "y": series.y,
            "legendgroup": str(i),
            "hoverinfo": "text",
            "hovertext": [_hover(comparison, series, k) for k in range(len(series.x))],
            "marker": {
                "symbol": SYMBOLS[i % len(SYMBOLS)],
                "size": 10 if points <= 60 else 8 if points <= 400 else 5,
                "color": series_variable(i),
                "opacity": 0.9,
                "line": {"color": "var(--surface)", "width": 1},
            },
        }
        if series.low is not None and series.high is not None:
            bars = {"color": series_variable(i), "width": 1.4}
            traces.append(
                {"type": "scatter", "mode": "lines", "line": bars, "opacity": 0.55, "hoverinfo": "skip"}
                | {"x": np.repeat(series.x, 3), "y": _bars(series.low, series.high)}
                | {"showlegend": False, "legendgroup": str(i)}
            )
        traces.append(trace)
    return traces


def _bars(low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the ends of every interval, with a gap after each."""
    return np.column_stack([low, high, np.full(len(low), np.nan)]).ravel()


def _layout(comparison: Comparison) -> dict[str, Any]:
    ends = [comparison.low, comparison.high]

    def axis(label: str, **more: Any) -> dict[str, Any]:
        title = {"text": escape(label, quote=False), "font": {"size": 13, "color": "var(--muted)"}, "standoff": 10}
        return plotly_axis(range=ends, title=title, constrain="domain", mirror=True, showline=True, **more)

    x_label, y_label = comparison.axes
    return plotly_layout(
        xaxis=axis(x_label),
        yaxis=axis(y_label, scaleanchor="x", scaleratio=1),
        margin={"l": 64, "r": 16, "t": 16, "b": 56},
    )


def _hover(comparison: Comparison, series: Series, k: int) -> str:
    unit = f" {clean(comparison.unit)}" if comparison.unit else ""
    lines = [
        clean(series.names[k]),
        clean(series.label),
        f"{clean(comparison.x_label)}: {series.x[k]:.6g}{unit}",
        f"{clean(comparison.y_label)}: {series.y[k]:.6g}{unit}",
    ]
    if series.low is not None and series.high is not None and np.isfinite(series.low[k] + series.high[k]):
        lines.append(f"interval: {series.low[k]:.6g} to {series.high[k]:.6g}{unit}")
    safe = [escape(line, quote=False) for line in lines]
    return "<br>".join([f"<b>{safe[0]}</b>", *safe[1:]])


def _error_table(comparison: Comparison) -> Table:
    unit = f" ({comparison.unit})" if comparison.unit else ""
    header = ["Group", "Points", f"Mean error{unit}", f"Largest error{unit}", "Largest at"]
    rows: list[list[Cell]] = [
        [s.label, len(s.x), s.error_mean, s.error_max, s.names[s.worst]] for s in comparison.series
    ]
    return Table(header, rows, f"How far {comparison.y_label} is from {comparison.x_label}")


def _point_table(comparison: Comparison) -> Table:
    rows: list[list[Cell]] = []
    for s in comparison.series:
        for k in range(len(s.x)):
            interval = [None if v is None or not np.isfinite(v[k]) else float(v[k]) for v in (s.low, s.high)]
            rows.append([s.label, s.names[k], float(s.x[k]), float(s.y[k]), *interval])
    return Table(["Group", "Name", "x", "y", "Low", "High"], rows, "All points")
