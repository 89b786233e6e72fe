"""Curves as a picture, by Matplotlib: SVG or PNG."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import MaxNLocator, NullLocator, PercentFormatter, StrMethodFormatter

from surecast.studio.style import (
    MARKERS,
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

    from surecast.studio.curves import Curve, CurveChart

__all__ = ["curves_picture"]

PLOT_IN, LEFT_IN, RIGHT_IN, AXIS_IN = 4.2, 0.72, 0.2, 0.52
LINE_IN, LEGEND_ROW_IN, LEGEND_COLUMNS = 0.17, 0.2, 3


def curves_picture(chart: CurveChart, suffix: str, width: int, theme: Theme) -> bytes:
    """Returns the bytes of the picture."""
    with matplotlib_style(theme):
        notes = textwrap.wrap(clean(chart.about), 138)
        head_in = 0.5 + LINE_IN * len(notes) + (0.22 if chart.moment is not None else 0.06)
        named = len(chart.named) + len(chart.bands)
        foot_in = LEGEND_ROW_IN * math.ceil(named / LEGEND_COLUMNS) + 0.12 if named > 1 else 0.06
        height_in = head_in + PLOT_IN + AXIS_IN + foot_in
        figure = new_figure(WIDE_IN, height_in)
        box = (
            LEFT_IN / WIDE_IN,
            (foot_in + AXIS_IN) / height_in,
            (WIDE_IN - LEFT_IN - RIGHT_IN) / WIDE_IN,
            PLOT_IN / height_in,
        )
        plot = figure.add_axes(box)
        _draw(plot, chart, theme)
        bands = [shorten(band.label, 44) for band in chart.bands]
        title = figure.text(0.2 / WIDE_IN, 1 - 0.14 / height_in, shorten(chart.title, 78), va="top")
        title.set(fontsize=TITLE_PT, fontweight="bold")
        for i, line in enumerate(notes):
            y_in = 0.43 + LINE_IN * i
            figure.text(0.2 / WIDE_IN, 1 - y_in / height_in, line, va="top", fontsize=TEXT_PT - 1, color=theme.muted)
        if named > 1:
            # lines before the bands behind them
            entries = sorted(zip(*plot.get_legend_handles_labels(), strict=True), key=lambda entry: entry[1] in bands)
            handles, labels = zip(*entries, strict=True)
            place = (LEFT_IN / WIDE_IN, 0.04 / height_in)
            figure.legend(
                handles, labels, loc="lower left", bbox_to_anchor=place, ncols=LEGEND_COLUMNS, borderaxespad=0
            )
        return save_figure(figure, suffix, width, chart.title)


def _draw(plot: Plot, chart: CurveChart, theme: Theme) -> None:
    if chart.x_log:
        plot.set_xscale("log")
    if chart.y_log:
        plot.set_yscale("log")
    for axis, log in ((plot.xaxis, chart.x_log), (plot.yaxis, chart.y_log)):
        if log:
            # the usual labels are mathematics, which is not read here
            axis.set_major_formatter(StrMethodFormatter("{x:,g}"))
            axis.set_minor_locator(NullLocator())
        else:
            axis.set_major_locator(MaxNLocator(8, steps=[1, 2, 2.5, 5, 10]))
    if not chart.x_log:
        plot.xaxis.set_major_formatter(StrMethodFormatter("{x:,.6g}"))
    if chart.x_ticks:
        plot.set_xticks(list(chart.x_ticks))
    plot.set_xlim(*chart.x_ends)
    plot.set_ylim(*chart.y_ends)
    plot.grid(True)
    plot.set_xlabel(clean(chart.x_label))
    plot.set_ylabel(clean(chart.y_label))
    if chart.stacked:
        _shares(plot, chart, theme)
    else:
        for band in chart.bands:
            low, high = (np.asarray(edge, dtype=np.float64) for edge in (band.low, band.high))
            tint = _colour(theme, band.colour)
            plot.fill_between(band.x, low, high, color=tint, lw=0, zorder=1, label=shorten(band.label, 44))
        for curve, number in chart.coloured:
            _curve(plot, chart, curve, number, theme)
    dots: dict[str, Any] = {"color": theme.ink, "lw": 1.0, "ls": (0, (1, 2)), "zorder": 2}
    if chart.level is not None:
        label, value = chart.level
        plot.axhline(value, **dots)
        words = plot.annotate(
            shorten(label, 60), (1, value), (-4, 3), ("axes fraction", "data"), textcoords="offset points"
        )
        words.set(ha="right", va="bottom", fontsize=TEXT_PT - 1)
    if chart.moment is not None:
        label, value = chart.moment
        plot.axvline(value, **dots)
        words = plot.annotate(
            shorten(label, 60), (value, 1), (0, 3), ("data", "axes fraction"), textcoords="offset points"
        )
        words.set(ha="center", va="bottom", fontsize=TEXT_PT - 1)


def _colour(theme: Theme, number: int) -> str:
    return {-1: theme.steady, -2: theme.grid}.get(number) or theme.series[number % len(theme.series)]


def _curve(plot: Plot, chart: CurveChart, curve: Curve, number: int, theme: Theme) -> None:
    colour = _colour(theme, number)
    label = shorten(curve.label, 44)
    look: dict[str, Any] = {"color": colour, "ls": (0, (5, 3)) if curve.dashed else "-"}
    look["drawstyle"] = "steps-post" if curve.stepped else "default"
    if curve.faint:
        plot.plot(curve.x, curve.y, lw=0.5, alpha=0.55, zorder=2, **look)
        return
    drawn = len(curve.x) > 0
    if drawn:
        plot.plot(curve.x, curve.y, lw=1.6, zorder=3, label=label, **look)
    last = chart.end_of(curve)
    if curve.ends and last is not None:
        plot.plot(*last, ls="", marker="X", ms=7, mfc=colour, mec=colour, clip_on=False, zorder=6)
    marks = curve.marks
    if marks is None:
        return
    if marks.low is not None and marks.high is not None:
        plot.vlines(marks.x, marks.low, marks.high, color=colour, lw=1.1, alpha=0.7, zorder=4)
    symbol: dict[str, Any] = {"marker": MARKERS[number % len(MARKERS)], "ms": 5.0, "mfc": colour}
    symbol |= {"mec": theme.surface, "mew": 0.6}
    plot.plot(marks.x, marks.y, ls="", zorder=5, label=None if drawn else label, **symbol)


def _shares(plot: Plot, chart: CurveChart, theme: Theme) -> None:
    heights = np.array([curve.y for curve in chart.curves], dtype=np.float64)
    plot.stackplot(
        np.asarray(chart.curves[0].x, dtype=np.float64),
        heights,
        colors=[_colour(theme, number) for _, number in chart.coloured],
        labels=[shorten(curve.label, 44) for curve in chart.curves],
        edgecolor=theme.surface,
        linewidth=0.5,
    )
    plot.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
