"""Figures of the tour, as plain data for Plotly in the colours of the page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from surecast.studio.page import Cell, Figure, Table, plain_values
from surecast.studio.style import SYMBOLS, clean, plotly_axis, plotly_layout, series_variable
from surecast.tour.stage_content import Picture, SavedTable

__all__ = [
    "Trace",
    "axis",
    "band",
    "bars",
    "decades",
    "figure",
    "line",
    "picture",
    "points",
    "share",
    "upright",
    "words",
]

Trace = dict[str, Any]
Shape = dict[str, Any]


def words(text: str) -> str:
    """Returns text that Plotly takes as it stands."""
    return escape(clean(text), quote=False)


def share(value: float, digits: int = 1) -> str:
    """Returns a share in percent.

    >>> share(0.8514), share(0.6, 0)
    ('85.1 %', '60 %')
    """
    return f"{100.0 * value:.{digits}f} %"


def axis(title: str, **more: Any) -> dict[str, Any]:
    """Returns an axis with its quantity and unit."""
    named = {"text": words(title), "font": {"size": 13, "color": "var(--muted)"}, "standoff": 8}
    return plotly_axis(title=named, showline=True, **more)


def decades(values: Sequence[float]) -> dict[str, Any]:
    """Ticks of a logarithmic axis that are written out."""
    low, high = max(min(values, default=1.0), 0.1), max([*values, 1.0])
    ticks = [step * 10.0**decade for decade in range(-1, 6) for step in (1, 2, 5)]
    shown = [tick for tick in ticks if low / 2 <= tick <= 2 * high]
    ends = [float(np.log10(low / 1.3)), float(np.log10(high * 1.6))]
    return {"tickmode": "array", "tickvals": shown, "ticktext": [f"{tick:,g}" for tick in shown], "range": ends}


def line(name: str, x: Any, y: Any, colour: int, *, steps: bool = False, width: float = 2.2, **more: Any) -> Trace:
    """Returns a curve in a colour of the series; with `steps` it stays until it changes."""
    look = {"color": series_variable(colour), "width": width} | ({"shape": "hv"} if steps else {})
    return {"type": "scatter", "mode": "lines", "name": words(name), "x": x, "y": y, "line": look} | more


def points(name: str, x: Any, y: Any, colour: int, *, size: float = 8.0, **more: Any) -> Trace:
    """Markers, each series with a shape of its own."""
    marker = {
        "size": size,
        "color": series_variable(colour),
        "symbol": SYMBOLS[colour % len(SYMBOLS)],
        "line": {"width": 0.8, "color": "var(--surface)"},
    }
    return {"type": "scatter", "mode": "markers", "name": words(name), "x": x, "y": y, "marker": marker} | more


def bars(names: Sequence[str], values: Sequence[float], texts: Sequence[str], best: int | None = None) -> Trace:
    """Bars from left to right with their values beside them, the best one marked."""
    colours = ["var(--accent)" if i == best else series_variable(0) for i in range(len(names))]
    return {
        "type": "bar",
        "orientation": "h",
        "x": list(values),
        "y": [words(name) for name in names],
        "text": [words(text) for text in texts],
        "textposition": "outside",
        "cliponaxis": False,
        "hoverinfo": "text",
        "marker": {"color": colours},
        "showlegend": False,
    }


def upright(x: float, text: str, colour: str = "var(--accent)", level: int = 0) -> tuple[Shape, dict[str, Any]]:
    """Returns a line upwards at a moment, and its name beside its top; names on another `level` do not touch."""
    shape = {
        "type": "line", "xref": "x", "yref": "paper", "x0": x, "x1": x, "y0": 0, "y1": 1,
        "line": {"color": colour, "width": 1.6, "dash": "dot"},
    }  # fmt: skip
    note = {
        "xref": "x", "yref": "paper", "x": x, "y": 1.0 - 0.085 * level, "xanchor": "left", "yanchor": "top",
        "xshift": 4,
        "text": words(text), "showarrow": False, "font": {"size": 12, "color": colour},
        "bgcolor": "var(--surface)",
    }  # fmt: skip
    return shape, note


def band(x0: float, x1: float) -> Shape:
    """Returns a stretch of time in the colour of attention."""
    return {
        "type": "rect", "xref": "x", "yref": "paper", "x0": x0, "x1": x1, "y0": 0, "y1": 1,
        "fillcolor": "var(--accent)", "opacity": 0.14, "line": {"width": 0}, "layer": "below",
    }  # fmt: skip


def figure(
    traces: Sequence[Trace],
    x: dict[str, Any],
    y: dict[str, Any],
    *,
    alt: str,
    caption: str,
    height_px: int = 400,
    ratio: float = 0.0,
    **layout: Any,
) -> Figure:
    """Returns a figure over two axes, its legend above it."""
    legend = {
        "orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom", "itemsizing": "constant",
        "font": {"size": 12, "color": "var(--ink)"}, "bgcolor": "var(--surface)",
    }  # fmt: skip
    margin = {"l": 56, "r": 16, "t": 16, "b": 52}
    whole = plotly_layout(xaxis=x, yaxis=y, margin=margin, legend=legend, **layout)
    return Figure(
        {"data": list(traces), "layout": whole}, alt=alt, caption=caption, ratio=ratio, height_px_min=height_px
    )


def picture(title: str, drawn: Figure, header: Sequence[str], rows: Sequence[Sequence[Cell]], name: str) -> Picture:
    """Returns a figure with the numbers behind it, which are shown on request."""
    plain = [[plain_values(cell) for cell in row] for row in rows]
    return Picture(title, drawn, SavedTable(Table(header, plain, title), name, folded=True))
