"""A chart of lines as an interactive figure of a page, by Plotly."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from surecast.studio.page import Figure
from surecast.studio.style import SYMBOLS, clean, plotly_axis, plotly_layout, series_variable

if TYPE_CHECKING:
    from surecast.studio.lines import Band, Line, LineChart, Mark

__all__ = ["line_figure"]

Trace = dict[str, Any]


def line_figure(chart: LineChart, height_px_min: int = 440) -> Figure:
    """The chart as a section of a page."""
    traces = [trace for band in chart.bands for trace in _band(band)]
    shown = 0
    for line in chart.lines:
        traces += _line(chart, line, shown)
        shown += not line.faint
    names = ", ".join(line.label for line in chart.lines if not line.faint)
    return Figure(
        {"data": traces, "layout": _layout(chart)},
        alt=f"{chart.title}: {chart.y_label} against {chart.x_label}; {names}.",
        caption=chart.caption,
        ratio=0.56,
        height_px_min=height_px_min,
    )


def _colour(number: int) -> str:
    return {-1: "var(--steady)", -2: "var(--grid)"}.get(number) or series_variable(number)


def _line(chart: LineChart, line: Line, number: int) -> list[Trace]:
    x, y = np.asarray(line.x, dtype=np.float64), np.asarray(line.y, dtype=np.float64)
    colour, name = _colour(line.colour), escape(clean(line.label), quote=False)
    trace: Trace = {"type": "scatter", "x": x, "y": y, "name": name, "legendrank": number + 1}
    if chart.stacked:
        hover = [f"<b>{name}</b><br>{_number(a)}: {100 * b:.1f} %" for a, b in zip(x, y, strict=True)]
        return [
            trace
            | {"mode": "lines", "stackgroup": "all", "fillcolor": colour, "hoverinfo": "text", "hovertext": hover}
            | {"line": {"color": "var(--surface)", "width": 0.8}}
        ]
    if line.faint:
        return [
            trace
            | {"mode": "lines", "showlegend": False, "hoverinfo": "text", "text": [name] * len(x)}
            | {"line": {"color": colour, "width": 0.8}, "opacity": 0.55}
        ]
    hover = [f"<b>{name}</b><br>{_number(a)}: {b:.4g}" for a, b in zip(x, y, strict=True)]
    drawn = [
        trace | {"mode": "lines", "line": {"color": colour, "width": 2.6}, "hoverinfo": "text", "hovertext": hover}
    ]
    last = chart.end_of(line)
    if line.ends and last is not None:
        drawn.append(
            {"type": "scatter", "mode": "markers", "x": [last[0]], "y": [last[1]], "showlegend": False}
            | {"hoverinfo": "text", "hovertext": [f"<b>{name}</b><br>{escape(clean(line.ends), quote=False)}"]}
            | {"marker": {"symbol": SYMBOLS[6], "size": 10, "color": colour}, "cliponaxis": False}
        )
    return drawn


def _band(band: Band) -> list[Trace]:
    x, low, high = (np.asarray(values, dtype=np.float64) for values in (band.x, band.low, band.high))
    some = np.isfinite(low) & np.isfinite(high)
    name = escape(clean(band.label), quote=False)
    edge: Trace = {"type": "scatter", "mode": "lines", "x": x[some], "hoverinfo": "skip", "line": {"width": 0}}
    return [
        edge | {"y": low[some], "showlegend": False},
        edge
        | {"y": high[some], "name": name, "fill": "tonexty", "fillcolor": _colour(band.colour), "opacity": 1.0}
        | {"legendrank": 900},
    ]


def _layout(chart: LineChart) -> dict[str, Any]:
    def axis(label: str, **more: Any) -> dict[str, Any]:
        title = {"text": escape(label, quote=False), "font": {"size": 13, "color": "var(--muted)"}, "standoff": 10}
        return plotly_axis(title=title, showline=True, **more)

    x_more: dict[str, Any] = {"type": "log", "dtick": 1} if chart.log_x else {"rangemode": "tozero"}
    x_more["tickformat"] = ",.12~g"
    if chart.ticks:
        x_more |= {"tickvals": list(chart.ticks), "range": [min(chart.ticks), max(chart.ticks)]}
    if chart.stacked:
        y_more: dict[str, Any] = {"range": [0, 1], "tickformat": ".0%"}
    else:
        y_more = {"range": [0, chart.y_max]} if chart.y_max is not None else {"rangemode": "tozero"}
    marks = [_mark(chart, mark) for mark in chart.marks]
    layout = plotly_layout(
        xaxis=axis(chart.x_label, **x_more),
        yaxis=axis(chart.y_label, **y_more),
        margin={"l": 70, "r": 24, "t": 30, "b": 56},
        shapes=[shape for shape, _ in marks],
        annotations=[words for _, words in marks],
    )
    # Filled areas would turn the order round.
    return layout | {"legend": layout.get("legend", {}) | {"traceorder": "normal"}}


def _mark(chart: LineChart, mark: Mark) -> tuple[dict[str, Any], dict[str, Any]]:
    line = {"color": "var(--ink)", "width": 1.2, "dash": "dash"}
    shape = {"type": "line", "x0": mark.x, "x1": mark.x, "y0": 0, "y1": 1, "yref": "paper", "line": line}
    at = math.log10(mark.x) if chart.log_x else mark.x
    words = {"x": at, "y": 1, "yref": "paper", "yanchor": "bottom", "showarrow": False}
    return shape, words | {"text": escape(clean(mark.text), quote=False), "font": {"size": 12, "color": "var(--muted)"}}


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 10 else f"{value:.3g}"
