"""Curves as a picture, by Matplotlib: SVG or PNG."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING, Any

from matplotlib.ticker import MaxNLocator, NullLocator, StrMethodFormatter

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
    """The bytes of the picture."""
    with matplotlib_style(theme):
        notes = textwrap.wrap(clean(chart.about), 138)
        head_in = 0.5 + LINE_IN * len(notes) + (0.22 if chart.moment is not None else 0.06)
        many = len(chart.curves) > 1
        foot_in = LEGEND_ROW_IN * math.ceil(len(chart.curves) / LEGEND_COLUMNS) + 0.12 if many else 0.06
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
        title = figure.text(0.2 / WIDE_IN, 1 - 0.14 / height_in, shorten(chart.title, 78), va="top")
        title.set(fontsize=TITLE_PT, fontweight="bold")
        for i, line in enumerate(notes):
            y_in = 0.43 + LINE_IN * i
            figure.text(0.2 / WIDE_IN, 1 - y_in / height_in, line, va="top", fontsize=TEXT_PT - 1, color=theme.muted)
        if many:
            handles, place = plot.get_legend_handles_labels()[0], (LEFT_IN / WIDE_IN, 0.04 / height_in)
            figure.legend(
                handles=handles, loc="lower left", bbox_to_anchor=place, ncols=LEGEND_COLUMNS, borderaxespad=0
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
            axis.set_major_formatter(StrMethodFormatter("{x:g}"))
            axis.set_minor_locator(NullLocator())
        else:
            axis.set_major_locator(MaxNLocator(8, steps=[1, 2, 2.5, 5, 10]))
    plot.set_xlim(*chart.x_ends)
    plot.set_ylim(*chart.y_ends)
    plot.grid(True)
    plot.set_xlabel(clean(chart.x_label))
    plot.set_ylabel(clean(chart.y_label))
    for i, curve in enumerate(chart.curves):
        _curve(plot, curve, i, theme)
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


def _curve(plot: Plot, curve: Curve, place: int, theme: Theme) -> None:
    index = place if curve.colour is None else curve.colour
    colour = theme.series[index % len(theme.series)]
    label = shorten(curve.label, 40)
    style = (0, (5, 3)) if curve.dashed else "-"
    steps = "steps-post" if curve.stepped else "default"
    drawn = len(curve.x) > 0
    if drawn:
        plot.plot(curve.x, curve.y, color=colour, lw=1.6, ls=style, drawstyle=steps, zorder=3, label=label)
    marks = curve.marks
    if marks is None:
        return
    if marks.low is not None and marks.high is not None:
        plot.vlines(marks.x, marks.low, marks.high, color=colour, lw=1.1, alpha=0.7, zorder=4)
    symbol: dict[str, Any] = {"marker": MARKERS[index % len(MARKERS)], "ms": 5.0, "mfc": colour}
    symbol |= {"mec": theme.surface, "mew": 0.6}
    plot.plot(marks.x, marks.y, ls="", zorder=5, label=None if drawn else label, **symbol)
