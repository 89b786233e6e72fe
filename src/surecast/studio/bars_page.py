"""A bar chart as a page: an interactive figure by Plotly, the numbers as a table, and to save."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from surecast.studio import wording
from surecast.studio.page import Cell, Downloads, Figure, Heading, Page, Section, Table, render_page
from surecast.studio.style import clean, plotly_axis, plotly_layout, series_variable, shorten

if TYPE_CHECKING:
    from surecast.studio.bars import BarChart

__all__ = ["bars_page"]

BAR_PX, ROW_PX_MIN, TWO_LINES_PX, ROW_PX_MAX, PLOT_PX_MIN = 19, 26, 36, 64, 240
FRAME_PX = 140


def bars_page(chart: BarChart, *, dark: bool) -> str:
    """Returns the page as HTML."""
    table = _table(chart)
    says = [chart.caption]
    if chart.target is not None:
        says.append(f"The dashed line: {chart.target_text()}.")
    if chart.remainder:
        says.append(f"{chart.remainder} The table has all.")
    rows, series = wording.count(len(chart.names), "row"), wording.count(len(chart.labels), "series", "series")
    sections: list[Section] = [
        Figure(
            {"data": _traces(chart), "layout": _layout(chart)},
            alt=f"{chart.title}: a bar chart of {chart.axis} with {rows} and {series}.",
            caption=" ".join(text for text in says if text),
            ratio=0.0,
            height_px_min=round(chart.rows * _row_px(chart)) + FRAME_PX,
        ),
        Heading("Numbers"),
        table,
        Downloads(table, "numbers"),
    ]
    return render_page(Page(chart.title, sections, dark=dark))


def _row_px(chart: BarChart) -> float:
    """Returns the height of a row: room for its bars and for its name, and more where there are few."""
    two_lines = any(len(chart.row_label(row)) > 1 for row in range(chart.rows))
    least = max(TWO_LINES_PX if two_lines else ROW_PX_MIN, BAR_PX * len(chart.labels) + 8)
    return max(least, min(ROW_PX_MAX, PLOT_PX_MIN / chart.rows))


def _traces(chart: BarChart) -> list[dict[str, Any]]:
    """Returns the bars of each series, then the target, and the values above both."""
    drawn: list[dict[str, Any]] = []
    texts: list[dict[str, Any]] = []
    for i, label in enumerate(chart.labels):
        aside, thickness = chart.place(i)
        values = chart.values[i, : chart.rows]
        middles = np.arange(chart.rows) + aside
        drawn.append(
            {"type": "bar", "orientation": "h", "x": values, "y": middles, "width": thickness, "legendgroup": str(i)}
            | {"name": escape(shorten(label, 34), quote=False), "marker": {"color": series_variable(i)}}
            | {"hoverinfo": "text", "hovertext": [_hover(chart, i, row) for row in range(chart.rows)]}
        )
        # A value below zero stands right of the zero line, where its row is empty.
        defined = ~np.isnan(values)
        texts.append(
            {"type": "scatter", "mode": "text", "x": np.where(defined, np.maximum(values, 0.0), 0.0), "y": middles}
            | {"text": [f"\N{NO-BREAK SPACE}{chart.written(value)}" for value in values]}
            | {"textposition": "middle right", "cliponaxis": False, "hoverinfo": "skip"}
            | {"textfont": {"size": 11, "color": ["var(--ink)" if k else "var(--muted)" for k in defined]}}
            | {"showlegend": False, "legendgroup": str(i)}
        )
    if chart.target is not None:
        line = {"color": "var(--ink)", "width": 1.4, "dash": "dash"}
        drawn.append(
            {"type": "scatter", "mode": "lines", "x": [chart.target] * 2, "y": [-0.5, chart.rows - 0.5], "line": line}
            | {"showlegend": False, "hoverinfo": "skip"}
        )
    return drawn + texts


def _layout(chart: BarChart) -> dict[str, Any]:
    low, high = chart.ends
    span = high - low
    rows = range(chart.rows)
    labels = ["<br>".join(escape(line, quote=False) for line in chart.row_label(row)) for row in rows]
    title = {"text": escape(chart.axis, quote=False), "font": {"size": 13, "color": "var(--muted)"}, "standoff": 10}
    longest = max(len(chart.written(value)) for value in chart.values[:, : chart.rows].ravel())
    ends = [low - 0.01 * span if low < 0 else 0.0, high + 0.01 * span]
    xaxis = plotly_axis(range=ends, title=title, showgrid=True, zeroline=True, zerolinecolor="var(--muted)")
    if chart.whole and span < 8:
        xaxis["dtick"] = 1
    names = {"tickvals": list(rows), "ticktext": labels, "tickfont": {"size": 12, "color": "var(--ink)"}}
    yaxis = plotly_axis(range=[chart.rows - 0.5, -0.5], fixedrange=True, showgrid=False, ticklen=6, **names)
    yaxis |= {"ticks": "outside", "tickcolor": "var(--surface)"}
    notes = []
    if chart.target is not None:
        share = (chart.target - low) / span
        side = "right" if share > 0.7 else "left" if share < 0.15 else "center"
        notes.append(
            {"x": chart.target, "y": 1, "yref": "paper", "xanchor": side, "yanchor": "bottom", "showarrow": False}
            | {"text": escape(chart.target_text(), quote=False), "font": {"size": 12, "color": "var(--ink)"}}
        )
    return plotly_layout(
        xaxis=xaxis,
        yaxis=yaxis,
        annotations=notes,
        barmode="overlay",
        showlegend=len(chart.labels) > 1,
        margin={"l": 24, "r": 14 + 8 * longest, "t": 54 if notes else 32, "b": 84 if len(chart.labels) > 1 else 52},
    )


def _hover(chart: BarChart, series: int, row: int) -> str:
    unit = f" {clean(chart.unit)}" if chart.unit else ""
    value = f"{clean(chart.value_label)}: {chart.values[series, row]:,.6g}{unit}"
    lines = [clean(text) for text in (chart.names[row], chart.notes[row], chart.labels[series]) if text]
    name, *more = (escape(line, quote=False) for line in (*lines, value))
    return "<br>".join([f"<b>{name}</b>", *more])


def _table(chart: BarChart) -> Table:
    def cell(value: float) -> Cell:
        if np.isnan(value):
            return None
        return int(value) if chart.whole else float(value)

    first, last = ("Name", "Note") if not {"Name", "Note"} & set(chart.labels) else ("Row", "Row note")
    noted = any(chart.notes)
    rows: list[list[Cell]] = []
    for row, name in enumerate(chart.names):
        rows.append([name, *(cell(value) for value in chart.values[:, row]), *([chart.notes[row]] if noted else [])])
    return Table([first, *chart.labels, *([last] if noted else [])], rows, chart.axis[:1].upper() + chart.axis[1:])
