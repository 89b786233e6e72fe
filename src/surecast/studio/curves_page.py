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
    from surecast.studio.curves import Band, Curve, CurveChart

__all__ = ["curves_figure", "curves_page", "curves_table"]

Trace = dict[str, Any]
DASH = "7px,4px"
"""In pixels, as the legend draws thicker lines, whose dashes would be as long as its sample."""


def curves_page(chart: CurveChart, *, dark: bool) -> str:
    """Returns the page as HTML."""
    table = curves_table(chart)
    sections: list[Section] = [curves_figure(chart), Heading("Numbers"), table, Downloads(table, "numbers")]
    return render_page(Page(chart.title, sections, dark=dark))


def curves_figure(chart: CurveChart, *, ratio: float = 0.5, height_px_min: int = 420) -> Figure:
    """Returns the chart as a figure."""
    traces = [trace for band in chart.bands for trace in _band(band)]
    for curve, colour in chart.coloured:
        traces += _share(chart, curve, colour) if chart.stacked else _line(chart, curve, colour)
    names = ", ".join(clean(curve.label) for curve in chart.named)
    about = f"{wording.count(len(chart.named), 'curve')} of {chart.y_label} over {chart.x_label}"
    return Figure(
        {"data": traces, "layout": _layout(chart)},
        alt=f"{chart.title}: {about}: {names}.",
        caption=chart.about,
        ratio=ratio,
        height_px_min=height_px_min,
    )


def _colour(number: int) -> str:
    return {-1: "var(--steady)", -2: "var(--grid)"}.get(number) or series_variable(number)


def _name(label: str) -> str:
    return escape(shorten(label, 44), quote=False)


def _line(chart: CurveChart, curve: Curve, number: int) -> list[Trace]:
    colour = _colour(number)
    shared: Trace = {"type": "scatter", "legendgroup": curve.label, "name": _name(curve.label), "hoverinfo": "text"}
    line = {"color": colour, "width": 2.2, "dash": DASH if curve.dashed else "solid"}
    line["shape"] = "hv" if curve.stepped else "linear"
    if curve.faint:
        thin = {"line": line | {"width": 0.8}, "opacity": 0.55, "showlegend": False}
        text = [shared["name"]] * len(curve.x)
        return [shared | {"mode": "lines", "x": list(curve.x), "y": list(curve.y), "hovertext": text} | thin]
    traces: list[Trace] = []
    if len(curve.x):
        hover = [_hover(chart, curve, "by formula", x, y) for x, y in zip(curve.x, curve.y, strict=True)]
        traces.append(
            shared | {"mode": "lines", "x": list(curve.x), "y": list(curve.y), "line": line, "hovertext": hover}
        )
    last = chart.end_of(curve)
    if curve.ends and last is not None:
        text_at_end = f"<b>{shared['name']}</b><br>{escape(clean(curve.ends), quote=False)}"
        traces.append(
            shared
            | {"mode": "markers", "x": [last[0]], "y": [last[1]], "showlegend": False, "hovertext": [text_at_end]}
            | {"marker": {"symbol": SYMBOLS[6], "size": 10, "color": colour}, "cliponaxis": False}
        )
    return traces + _points(chart, curve, number, shared)


def _points(chart: CurveChart, curve: Curve, number: int, shared: Trace) -> list[Trace]:
    marks, colour = curve.marks, _colour(number)
    if marks is None:
        return []
    traces: list[Trace] = []
    if marks.low is not None and marks.high is not None:
        ends = np.column_stack([marks.low, marks.high, np.full(len(marks.x), np.nan)]).ravel()
        traces.append(
            shared
            | {"mode": "lines", "x": np.repeat(np.asarray(marks.x, float), 3), "y": ends, "hoverinfo": "skip"}
            | {"line": {"color": colour, "width": 1.6}, "opacity": 0.7, "showlegend": False}
        )
    symbol = {"symbol": SYMBOLS[number % len(SYMBOLS)], "size": 8, "color": colour}
    symbol["line"] = {"color": "var(--surface)", "width": 1}
    hover = [_hover(chart, curve, "simulated", x, y) for x, y in zip(marks.x, marks.y, strict=True)]
    points = {"mode": "markers", "x": list(marks.x), "y": list(marks.y), "marker": symbol, "hovertext": hover}
    return [*traces, shared | points | {"showlegend": not len(curve.x)}]


def _share(chart: CurveChart, curve: Curve, number: int) -> list[Trace]:
    name = _name(curve.label)
    x_name = escape(clean(chart.x_label), quote=False)
    hover = [
        f"<b>{name}</b><br>{x_name}: {_number(x)}<br>{100 * y:.1f} %" for x, y in zip(curve.x, curve.y, strict=True)
    ]
    return [
        {"type": "scatter", "mode": "lines", "name": name, "x": list(curve.x), "y": list(curve.y)}
        | {"stackgroup": "all", "fillcolor": _colour(number), "hoverinfo": "text", "hovertext": hover}
        | {"line": {"color": "var(--surface)", "width": 0.8}}
    ]


def _band(band: Band) -> list[Trace]:
    x, low, high = (np.asarray(values, dtype=np.float64) for values in (band.x, band.low, band.high))
    some = np.isfinite(low) & np.isfinite(high)
    edge: Trace = {"type": "scatter", "mode": "lines", "x": x[some], "hoverinfo": "skip", "line": {"width": 0}}
    area = {"fill": "tonexty", "fillcolor": _colour(band.colour), "legendrank": 2000}
    return [edge | {"y": low[some], "showlegend": False}, edge | {"y": high[some], "name": _name(band.label)} | area]


def _layout(chart: CurveChart) -> dict[str, Any]:
    shapes, notes = [], []
    line = {"color": "var(--ink)", "width": 1.3, "dash": "dot"}
    words = {"showarrow": False, "font": {"size": 12, "color": "var(--ink)"}}
    if chart.level is not None:
        label, value = chart.level
        shapes.append({"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": value, "y1": value, "line": line})
        position = math.log10(value) if chart.y_log else value
        notes.append(
            {**words, "xref": "paper", "x": 1, "y": position, "xanchor": "right", "yanchor": "bottom"}
            | {"text": escape(clean(label), quote=False)}
        )
    if chart.moment is not None:
        label, value = chart.moment
        shapes.append({"type": "line", "yref": "paper", "y0": 0, "y1": 1, "x0": value, "x1": value, "line": line})
        position = math.log10(value) if chart.x_log else value
        notes.append(
            {**words, "yref": "paper", "y": 1, "x": position, "xanchor": "center", "yanchor": "bottom"}
            | {"text": escape(clean(label), quote=False)}
        )
    named = len(chart.named) + len(chart.bands)
    rows = math.ceil(named / 4) if named > 1 else 0
    x_axis = _axis(chart.x_label, *chart.x_ends, chart.x_log) | {"tickformat": ",.12~g"}
    if chart.x_ticks:
        x_axis |= {"tickmode": "array", "tickvals": list(chart.x_ticks)}
    layout = plotly_layout(
        xaxis=x_axis,
        yaxis=_axis(chart.y_label, *chart.y_ends, chart.y_log) | ({"tickformat": ".0%"} if chart.stacked else {}),
        shapes=shapes,
        annotations=notes,
        # above, room for the buttons; below, as many lines as the names need on a narrow page: a legend grows into it
        margin={"l": 64, "r": 16, "t": 30, "b": 56 + (22 * rows + 18 if rows else 0)},
        showlegend=rows > 0,
    )
    # Filled areas would turn the order round.
    return layout | {"legend": layout["legend"] | {"traceorder": "normal"}}


def _axis(label: str, low: float, high: float, log: bool) -> dict[str, Any]:
    title = {"text": escape(clean(label), quote=False), "font": {"size": 13, "color": "var(--muted)"}, "standoff": 10}
    ends = [math.log10(low), math.log10(high)] if log else [low, high]
    axis = plotly_axis(range=ends, title=title, mirror=True, showline=True)
    return axis | ({"type": "log", "dtick": 1} if log else {})


def _hover(chart: CurveChart, curve: Curve, how: str, x: float, y: float) -> str:
    lines = [f"{clean(chart.x_label)}: {_number(x)}", f"{clean(chart.y_label)}: {_number(y)}", how]
    safe = [escape(line, quote=False) for line in lines]
    return "<br>".join([f"<b>{escape(clean(curve.label), quote=False)}</b>", *safe])


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.6g}"


def curves_table(chart: CurveChart) -> Table:
    """Returns the table of all numbers: a row for each x of each curve, with the simulated values there."""
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
