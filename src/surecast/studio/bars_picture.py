"""A bar chart as a picture, by Matplotlib: SVG or PNG."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING

from matplotlib.ticker import MaxNLocator

from surecast.studio.style import (
    SMALL_PT,
    TEXT_PT,
    TITLE_PT,
    WIDE_IN,
    Theme,
    clean,
    matplotlib_style,
    new_figure,
    save_figure,
    shorten,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Plot
    from matplotlib.figure import Figure

    from surecast.studio.bars import BarChart

__all__ = ["bars_picture"]

EDGE_IN, LINE_IN, AXIS_IN, LEGEND_ROW_IN = 0.2, 0.17, 0.52, 0.2
LEGEND_COLUMNS = 3
CHARACTER_IN = 0.068
PLOT_IN_MIN, ROW_IN_MAX = 2.2, 0.6


def bars_picture(chart: BarChart, suffix: str, width: int, theme: Theme) -> bytes:
    """Returns the bytes of the picture."""
    with matplotlib_style(theme):
        notes = [line for text in (chart.caption, chart.remainder) for line in textwrap.wrap(clean(text), 140)]
        many = len(chart.labels) > 1
        head_in = 0.48 + LINE_IN * len(notes) + (0.26 if chart.target is not None else 0.1)
        legend_in = LEGEND_ROW_IN * math.ceil(len(chart.labels) / LEGEND_COLUMNS) + 0.1 if many else 0.0
        plot_in = chart.rows * _row_in(chart)
        height_in = head_in + plot_in + AXIS_IN + legend_in
        figure = new_figure(WIDE_IN, height_in)
        left_in = _label_in(figure, chart) + EDGE_IN + 0.1
        box_in = WIDE_IN - left_in - EDGE_IN
        plot = figure.add_axes(
            (left_in / WIDE_IN, (legend_in + AXIS_IN) / height_in, box_in / WIDE_IN, plot_in / height_in)
        )
        _draw(plot, chart, theme, box_in)
        title = figure.text(EDGE_IN / WIDE_IN, 1 - 0.14 / height_in, shorten(chart.title, 70), va="top")
        title.set(fontsize=TITLE_PT, fontweight="bold")
        for i, line in enumerate(notes):
            y_in = 0.43 + LINE_IN * i
            figure.text(
                EDGE_IN / WIDE_IN, 1 - y_in / height_in, line, va="top", fontsize=TEXT_PT - 1, color=theme.muted
            )
        if many:
            place = (left_in / WIDE_IN, 0.04 / height_in)
            handles = plot.get_legend_handles_labels()[0]
            figure.legend(
                handles=handles, loc="lower left", bbox_to_anchor=place, ncols=LEGEND_COLUMNS, borderaxespad=0
            )
        return save_figure(figure, suffix, width, chart.title)


def _row_in(chart: BarChart) -> float:
    """Returns the height of a row: room for its bars and for its name, and more where there are few."""
    two_lines = any(len(chart.row_label(row)) > 1 for row in range(chart.rows))
    least = max(0.36 if two_lines else 0.24, 0.165 * len(chart.labels) + 0.09)
    return max(least, min(ROW_IN_MAX, PLOT_IN_MIN / chart.rows))


def _label_in(figure: Figure, chart: BarChart) -> float:
    """Returns the width of the longest row name, as its font writes it."""
    widths = []
    for row in range(chart.rows):
        text = figure.text(0, 0, "\n".join(chart.row_label(row)), fontsize=SMALL_PT + 0.5)
        widths.append(text.get_window_extent().width / figure.dpi)
        text.remove()
    return min(0.45 * WIDE_IN, max(0.3, *widths))


def _draw(plot: Plot, chart: BarChart, theme: Theme, box_in: float) -> None:
    rows = range(chart.rows)
    low, high = chart.ends
    written = [[chart.written(value) for value in line[: chart.rows]] for line in chart.values]
    room_in = 0.12 + CHARACTER_IN * max(len(text) for line in written for text in line)
    span = (high - low) / (1 - min(0.5, room_in / box_in))
    plot.set_xlim(low - (0.01 * span if low < 0 else 0), low + span)
    plot.set_ylim(chart.rows - 0.5, -0.5)
    plot.grid(True, axis="x")
    plot.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 2.5, 5, 10], integer=chart.whole))
    plot.spines[["top", "right", "left"]].set_visible(False)
    plot.axvline(0, color=theme.muted, lw=0.8, zorder=4)
    plot.set_xlabel(chart.axis)
    plot.set_yticks(list(rows), ["\n".join(chart.row_label(row)) for row in rows])
    plot.tick_params(axis="y", labelsize=SMALL_PT + 0.5, labelcolor=theme.ink)
    ground = {"boxstyle": "square,pad=0.08", "facecolor": theme.surface, "edgecolor": "none"}
    for i, label in enumerate(chart.labels):
        aside, thickness = chart.place(i)
        middles = [row + aside for row in rows]
        values = chart.values[i, : chart.rows]
        colour = theme.series[i % len(theme.series)]
        plot.barh(middles, values, thickness, color=colour, zorder=3, label=shorten(label, 34))
        for y, value, text in zip(middles, values, written[i], strict=True):
            # A value below zero stands right of the zero line, where its row is empty.
            end = (max(0.0, value) if value == value else 0.0, y)
            plot.annotate(
                text,
                end,
                (3, 0),
                textcoords="offset points",
                va="center",
                fontsize=SMALL_PT,
                bbox=ground,
                zorder=6,
            ).set_color(theme.ink if value == value else theme.muted)
    if chart.target is not None:
        plot.axvline(chart.target, color=theme.ink, lw=1.1, ls=(0, (5, 3)), zorder=5)
        share = (chart.target - low) / span
        side = "right" if share > 0.7 else "left" if share < 0.15 else "center"
        says = plot.text(chart.target, 1.0, chart.target_text(), transform=plot.get_xaxis_transform(), ha=side)
        says.set(fontsize=TEXT_PT - 1, va="bottom")
