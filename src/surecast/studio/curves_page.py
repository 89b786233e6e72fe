"""Curves as a figure of a page, by Plotly, with the numbers as a table; or as a page of their own."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from surecast.studio import wording
from surecast.studio.page import Cell, Downloads, Figure, Heading, Page, Section, Table, render_page
from surecast.studio.style import SYMBOLS, clean, plotly_axis, plotly_layout, series_variable, shorten

if TYPE_CHECKING:
    from surecast.studio.curves import Curve, CurveChart

__all__ = ["curves_figure", "curves_page", "curves_table"]


def curves_page(chart: CurveChart, *, dark: bool) -> str:
    """The page as HTML."""
    table = curves_table(chart)
    sections: list[Section] = [curves_figure(chart), Heading("Numbers"), table, Downloads(table, "numbers")]
    return render_page(Page(chart.title, sections, dark=dark))


def curves_figure(chart: CurveChart, *, ratio: float = 0.5, height_px_min: int = 420) -> Figure:
    """The chart as a figure."""
    return Figure(
        {"data": _traces(chart), "layout": _layout(chart)},
        alt=f"{chart.title}: {wording.count(len(chart.curves), 'curve')} of {chart.y_label} over {chart.x_label}.",
        caption=chart.about,
        ratio=ratio,
        height_px_min=height_px_min,
    )


def _traces(chart: CurveChart) -> list[dict[str, Any]]:
    traces: list[dict[str, Any]] = []
    for place, curve in enumerate(chart.curves):
        i = place if curve.colour is None else curve.colour
        colour, name = series_variable(i), escape(shorten(curve.label, 44), quote=False)
        shared = {"type": "scatter", "legendgroup": str(i), "name": name, "hoverinfo": "text"}
        line = {"color": colour, "width": 2.2, "dash": "dash" if curve.dashed else "solid"}
        line["shape"] = "hv" if curve.stepped else "linear"
        drawn = len(curve.x) > 0
        if drawn:
            hover = [_hover(chart, curve, "by formula", x, y) for x, y in zip(curve.x, curve.y, strict=True)]
            traces.append(
                {**shared, "mode": "lines", "x": list(curve.x), "y": list(curve.y), "line": line, "hovertext": hover}
            )
        marks = curve.marks
        if marks is None:
            continue
        if marks.low is not None and marks.high is not None:
            ends = np.column_stack([marks.low, marks.high, np.full(len(marks.x), np.nan)]).ravel()
            traces.append(
                {**shared, "mode": "lines", "x": np.repeat(np.asarray(marks.x, float), 3), "y": ends}
                | {"line": {"color": colour, "width": 1.6}, "opacity": 0.7, "showlegend": False, "hoverinfo": "skip"}
            )
        symbol = {"symbol": SYMBOLS[i % len(SYMBOLS)], "size": 8, "color": colour}
        symbol["line"] = {"color": "var(--surface)", "width": 1}
        hover = [_hover(chart, curve, "simulated", x, y) for x, y in zip(marks.x, marks.y, strict=True)]
        traces.append(
            {**shared, "mode": "markers", "x": list(marks.x), "y": list(marks.y), "marker": symbol, "hovertext": hover}
            | {"showlegend": not drawn}
        )
    return traces


def _layout(chart: CurveChart) -> dict[str, Any]:
    x_low, x_high = chart.x_ends
    y_low, y_high = chart.y_ends
    shapes, notes = [], []
    line = {"color": "var(--ink)", "width": 1.3, "dash": "dot"}
    words = {"showarrow": False, "font": {"size": 12, "color": "var(--ink)"}}
    if chart.level is not None:
        label, value = chart.level
        shapes.append({"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": value, "y1": value, "line": line})
        at = math.log10(value) if chart.y_log else value
        notes.append(
            {**words, "xref": "paper", "x": 1, "y": at, "xanchor": "right", "yanchor": "bottom"}
            | {"text": escape(clean(label), quote=False)}
        )
    if chart.moment is not None:
        label, value = chart.moment
        shapes.append({"type": "line", "yref": "paper", "y0": 0, "y1": 1, "x0": value, "x1": value, "line": line})
        at = math.log10(value) if chart.x_log else value
        notes.append(
            {**words, "yref": "paper", "y": 1, "x": at, "xanchor": "center", "yanchor": "bottom"}
            | {"text": escape(clean(label), quote=False)}
        )
    rows = math.ceil(len(chart.curves) / 4) if len(chart.curves) > 1 else 0
    return plotly_layout(
        xaxis=_axis(chart.x_label, x_low, x_high, chart.x_log),
        yaxis=_axis(chart.y_label, y_low, y_high, chart.y_log),
        shapes=shapes,
        annotations=notes,
        # as many lines as the names need on a narrow page; a legend below grows into this margin
        margin={"l": 64, "r": 16, "t": 30 if chart.moment else 14, "b": 56 + (22 * rows + 18 if rows else 0)},
        showlegend=rows > 0,
    )


def _axis(label: str, low: float, high: float, log: bool) -> dict[str, Any]:
    title = {"text": escape(clean(label), quote=False), "font": {"size": 13, "color": "var(--muted)"}, "standoff": 10}
    ends = [math.log10(low), math.log10(high)] if log else [low, high]
    axis = plotly_axis(range=ends, title=title, mirror=True, showline=True)
    return axis | ({"type": "log", "dtick": 1} if log else {})


def _hover(chart: CurveChart, curve: Curve, how: str, x: float, y: float) -> str:
    lines = [f"{clean(chart.x_label)}: {x:.6g}", f"{clean(chart.y_label)}: {y:.6g}", how]
    safe = [escape(line, quote=False) for line in lines]
    return "<br>".join([f"<b>{escape(clean(curve.label), quote=False)}</b>", *safe])


def curves_table(chart: CurveChart) -> Table:
    """All numbers: a row for each x of each curve, with what is simulated there."""
    rows: list[list[Cell]] = []
    for curve in chart.curves:
        by_formula = dict(zip((float(x) for x in curve.x), (float(y) for y in curve.y), strict=True))
        simulated: dict[float, tuple[float, ...]] = {}
        if curve.marks is not None:
            missing = [math.nan] * len(curve.marks.x)
            low, high = curve.marks.low, curve.marks.high
            parts = (curve.marks.y, missing if low is None else low, missing if high is None else high)
            for k, x in enumerate(curve.marks.x):
                simulated[float(x)] = tuple(float(part[k]) for part in parts)
        for x in sorted({*by_formula, *simulated}):
            values = (by_formula.get(x, math.nan), *simulated.get(x, (math.nan,) * 3))
            rows.append([curve.label, x, *(None if math.isnan(v) else v for v in values)])
    return Table(["Curve", chart.x_label, "By formula", "Simulated", "Low", "High"], rows, chart.title)
