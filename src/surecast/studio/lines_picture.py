"""A chart of lines as a picture, by Matplotlib: SVG or PNG."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

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

    from surecast.studio.lines import LineChart

__all__ = ["lines_picture"]

PLOT_IN, LINE_IN, LEGEND_ROW_IN = 3.6, 0.17, 0.2
LEGEND_COLUMNS = 3


def lines_picture(chart: LineChart, suffix: str, width: int, theme: Theme) -> bytes:
    """The bytes of the picture."""
    with matplotlib_style(theme):
        notes = textwrap.wrap(clean(chart.caption), 135)
        named = sum(not line.faint for line in chart.lines) + len(chart.bands)
        head_in = 0.48 + LINE_IN * len(notes) + (0.24 if chart.marks else 0.1)
        legend_in = LEGEND_ROW_IN * math.ceil(named / LEGEND_COLUMNS) + 0.12
        height_in = head_in + PLOT_IN + 0.55 + legend_in
        figure = new_figure(WIDE_IN, height_in)
        box = (0.72 / WIDE_IN, (legend_in + 0.55) / height_in, (WIDE_IN - 0.72 - 0.3) / WIDE_IN, PLOT_IN / height_in)
        plot = figure.add_axes(box)
        _draw(plot, chart, theme)
        title = figure.text(0.2 / WIDE_IN, 1 - 0.14 / height_in, shorten(chart.title, 80), va="top")
        title.set(fontsize=TITLE_PT, fontweight="bold")
        for i, text in enumerate(notes):
            y = 1 - (0.43 + LINE_IN * i) / height_in
            figure.text(0.2 / WIDE_IN, y, text, va="top", fontsize=TEXT_PT - 1, color=theme.muted)
        handles, labels = plot.get_legend_handles_labels()
        place = (0.72 / WIDE_IN, 0.05 / height_in)
        figure.legend(handles, labels, loc="lower left", bbox_to_anchor=place, ncols=LEGEND_COLUMNS, borderaxespad=0)
        return save_figure(figure, suffix, width, chart.title)


def _draw(plot: Plot, chart: LineChart, theme: Theme) -> None:
    def colour(number: int) -> str:
        return {-1: theme.steady, -2: theme.grid}.get(number) or theme.series[number % len(theme.series)]

    plot.grid(True)
    if chart.log_x:
        plot.set_xscale("log")
        plot.minorticks_off()
    if chart.stacked:
        _draw_shares(plot, chart, [colour(line.colour) for line in chart.lines], theme)
    else:
        for band in chart.bands:
            low, high = np.asarray(band.low, dtype=np.float64), np.asarray(band.high, dtype=np.float64)
            plot.fill_between(band.x, low, high, color=colour(band.colour), lw=0, label=shorten(band.label, 44))
        for line in chart.lines:
            if line.faint:
                plot.plot(line.x, line.y, color=colour(line.colour), lw=0.5, alpha=0.55, zorder=2)
            else:
                plot.plot(line.x, line.y, color=colour(line.colour), lw=1.8, zorder=4, label=shorten(line.label, 44))
                last = chart.end_of(line)
                if line.ends and last is not None:
                    tint = colour(line.colour)
                    plot.plot(*last, ls="", marker="X", ms=7, mfc=tint, mec=tint, clip_on=False, zorder=6)
        plot.set_ylim(0.0, chart.y_max)
        plot.yaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 2.5, 5, 10]))
        if not chart.log_x:
            plot.set_xlim(left=0.0)
    if chart.ticks:
        plot.set_xticks(list(chart.ticks))
        plot.set_xlim(min(chart.ticks), max(chart.ticks))
    plot.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    plot.set_xlabel(chart.x_label)
    plot.set_ylabel(chart.y_label)
    plot.spines[["top", "right"]].set_visible(False)
    for mark in chart.marks:
        plot.axvline(mark.x, color=theme.ink, lw=1.0, ls=(0, (5, 3)), zorder=5)
        says = plot.text(mark.x, 1.0, clean(mark.text), transform=plot.get_xaxis_transform(), ha="center")
        says.set(fontsize=SMALL_PT, va="bottom", color=theme.muted)


def _draw_shares(plot: Plot, chart: LineChart, colours: list[str], theme: Theme) -> None:
    x = np.asarray(chart.lines[0].x, dtype=np.float64)
    heights = np.array([line.y for line in chart.lines], dtype=np.float64)
    labels = [shorten(line.label, 44) for line in chart.lines]
    plot.stackplot(x, heights, colors=colours, labels=labels, edgecolor=theme.surface, linewidth=0.5)
    plot.set_xlim(x.min(), x.max())
    plot.set_ylim(0.0, 1.0)
    plot.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
