"""A comparison as a picture, by Matplotlib: SVG or PNG."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.ticker import MaxNLocator

from surecast.studio.style import (
    MARKERS,
    SQUARE_IN,
    TITLE_PT,
    Theme,
    matplotlib_style,
    new_figure,
    save_figure,
    shorten,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Plot

    from surecast.studio.scatter import Comparison

__all__ = ["scatter_picture"]

LEGEND_ROW_IN = 0.185


def scatter_picture(comparison: Comparison, suffix: str, width: int, theme: Theme) -> bytes:
    """Returns the bytes of the picture."""
    with matplotlib_style(theme):
        side_in = SQUARE_IN - 0.78 - 0.3
        foot_in = LEGEND_ROW_IN * (len(comparison.series) + 1) + 0.12
        height_in = 0.5 + side_in + 0.55 + foot_in
        figure = new_figure(SQUARE_IN, height_in)
        plot = figure.add_axes(
            (0.78 / SQUARE_IN, (foot_in + 0.55) / height_in, side_in / SQUARE_IN, side_in / height_in)
        )
        _draw(plot, comparison, theme)
        title = figure.text(0.2 / SQUARE_IN, 1 - 0.14 / height_in, shorten(comparison.title, 52), va="top")
        title.set(fontsize=TITLE_PT, fontweight="bold")
        figure.legend(
            handles=plot.get_legend_handles_labels()[0],
            loc="lower left",
            bbox_to_anchor=(0.62 / SQUARE_IN, 0.04 / height_in),
            labelspacing=0.5,
        )
        return save_figure(figure, suffix, width, comparison.title)


def _draw(plot: Plot, comparison: Comparison, theme: Theme) -> None:
    ends = (comparison.low, comparison.high)
    plot.set_xlim(*ends)
    plot.set_ylim(*ends)
    plot.set_aspect("equal")
    plot.grid(True)
    for axis in (plot.xaxis, plot.yaxis):
        axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    x_label, y_label = comparison.axes
    plot.set_xlabel(x_label)
    plot.set_ylabel(y_label)
    points = sum(len(series.x) for series in comparison.series)
    size = 6.5 if points <= 60 else 5.0 if points <= 400 else 3.0
    for i, series in enumerate(comparison.series):
        colour = theme.series[i % len(theme.series)]
        if series.low is not None and series.high is not None:
            plot.vlines(series.x, series.low, series.high, color=colour, lw=1.0, alpha=0.55, zorder=3)
        plot.plot(
            series.x,
            series.y,
            ls="",
            marker=MARKERS[i % len(MARKERS)],
            ms=size,
            mfc=colour,
            mec=theme.surface,
            mew=0.6,
            alpha=0.9,
            zorder=4,
            label=": ".join(comparison.legend(series)),
        )
    plot.plot(ends, ends, color=theme.ink, lw=1.1, ls=(0, (5, 3)), zorder=2, label="both agree")
