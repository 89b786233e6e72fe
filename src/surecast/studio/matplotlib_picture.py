"""A chart as a picture, by Matplotlib: SVG or PNG. All use of Matplotlib is in this module."""

from __future__ import annotations

import math
import textwrap
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

import matplotlib
import matplotlib.ticker
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke

from surecast.studio import wording
from surecast.studio.chart import Area, Bars, Chart, Line, Names, Paths, Points, ticks_between
from surecast.studio.names import Frame, PlacedName, place_names
from surecast.studio.style import SYMBOLS, Theme, clean, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Plot

__all__ = ["picture"]

FONTS = ("Noto Sans CJK SC", "Noto Sans CJK JP", "PingFang SC", "Microsoft YaHei", "Arial Unicode MS")
WIDE_IN, SQUARE_IN, EDGE_IN = 9.0, 6.4, 0.2
TITLE_PT, TEXT_PT, SMALL_PT = 13.0, 9.0, 7.5
NAME_SIZES_PT = (TEXT_PT, SMALL_PT, 6.0)
PT_PER_PX, IN_PER_PX = 0.7, 0.0092
PAGE_AROUND_PX = 140.0
DPI = 100.0
PLOT_IN_MAX = 14.0
LINE_IN, LEGEND_ROW_IN, HANDLE_IN, RULE_IN = 0.17, 0.17, 0.62, 0.19
LEGEND_COLUMNS_MAX = 5
BAR_IN = 1.9
DASHES, DOTS = (0, (5, 3)), (0, (1, 2))
MARKERS = dict(zip(SYMBOLS, ("o", "s", "^", "D", "v", "P", "X", "p", "*"), strict=True))


def picture(chart: Chart, suffix: str, width: int, theme: Theme) -> bytes:
    """Returns the bytes of the picture as ``.svg`` or ``.png``; a PNG is `width` pixels wide."""
    with _style(theme):
        ruler = _Ruler()
        room = _Room.of(chart, ruler)
        frame = Frame.fitting(chart, room.plot_in[0] * 72, room.plot_in[1] * 72)
        names, left_out = place_names(chart, frame, ruler.width_pt, NAME_SIZES_PT, PT_PER_PX)
        lines = [*map(clean, chart.lines), *textwrap.wrap(clean(chart.caption), int(room.width_in / 0.065))]
        if left_out:
            lines.append(f"{wording.count(left_out, 'name')} left out for want of room")
        height_in = 0.47 + LINE_IN * len(lines) + room.above_in + room.plot_in[1] + room.below_in
        figure = _figure(room.width_in, height_in)
        plot = figure.add_axes(
            (
                room.left_in / room.width_in,
                room.below_in / height_in,
                room.plot_in[0] / room.width_in,
                room.plot_in[1] / height_in,
            )
        )
        _axes(plot, chart, frame, ruler, theme)
        pen = _Pen(plot, chart, theme)
        for depth, layer in enumerate(chart.layers):
            pen.draw(layer, 2 + depth / len(chart.layers))
        pen.rules()
        for name in names:
            pen.write(name, frame)
        _head(figure, chart, lines, ruler, theme)
        _legend(figure, chart, room, theme)
        return _saved(figure, suffix, width, chart.title)


@contextmanager
def _style(theme: Theme) -> Iterator[None]:
    """Sets Matplotlib's own defaults with our look on top, whatever the user's settings; restores them afterwards.

    Names are never read as mathematics, and the same figure always gives the same bytes. Characters that no font
    here can write become boxes, without a warning.
    """
    installed = set(fontManager.get_font_names())
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(
            {
                "font.family": ["DejaVu Sans", *(font for font in FONTS if font in installed)],
                "font.size": TEXT_PT,
                "text.parse_math": False,
                "text.color": theme.ink,
                "axes.labelcolor": theme.ink,
                "axes.labelsize": TEXT_PT,
                "axes.edgecolor": theme.grid,
                "axes.linewidth": 0.8,
                "axes.facecolor": theme.surface,
                "axes.axisbelow": True,
                "figure.facecolor": theme.surface,
                "grid.color": theme.grid,
                "grid.linewidth": 0.6,
                "xtick.color": theme.muted,
                "ytick.color": theme.muted,
                "xtick.labelsize": SMALL_PT + 0.5,
                "ytick.labelsize": SMALL_PT + 0.5,
                "xtick.major.size": 0,
                "ytick.major.size": 0,
                "legend.frameon": False,
                "legend.fontsize": TEXT_PT - 1,
                "svg.hashsalt": "surecast",
                "svg.fonttype": "path",
            }
        )
        yield


def _figure(width_in: float, height_in: float) -> Figure:
    """Returns a figure that no window and no global state knows of."""
    figure = Figure(figsize=(width_in, height_in), dpi=DPI)
    FigureCanvasAgg(figure)
    return figure


def _saved(figure: Figure, suffix: str, width: int, title: str) -> bytes:
    content = BytesIO()
    if suffix == ".svg":
        figure.savefig(content, format="svg", metadata={"Title": clean(title), "Creator": "Surecast", "Date": None})
    else:
        # Half a hundredth of a pixel more, lest the product be rounded down to one pixel less.
        dpi = (width + 0.005) / float(figure.get_size_inches()[0])
        figure.savefig(content, format="png", dpi=dpi, metadata={"Software": "Surecast"})
    return content.getvalue()


class _Ruler:
    """Measures text as its font writes it."""

    def __init__(self) -> None:
        self._figure = _figure(1.0, 1.0)

    def width_pt(self, text: str, size_pt: float) -> float:
        """Returns the width of a text of one or several lines in points."""
        sample = self._figure.text(0, 0, text, fontsize=size_pt)
        width = sample.get_window_extent().width
        sample.remove()
        return float(width * 72 / DPI)

    def fitting(self, text: str, size_pt: float, width_in: float) -> str:
        """Returns as much of a text as fits into a width."""
        shown = clean(text)
        while len(shown) > 4 and self.width_pt(shown, size_pt) > 72 * width_in:
            shown = shorten(shown, len(shown) - 2)
        return shown


@dataclass(frozen=True)
class _Room:
    """The room of each part of the picture, in inches."""

    width_in: float
    left_in: float
    plot_in: tuple[float, float]
    above_in: float
    below_in: float
    legend_columns: int

    @classmethod
    def of(cls, chart: Chart, ruler: _Ruler) -> _Room:
        width_in = SQUARE_IN if chart.form == "square" else WIDE_IN
        left_in = EDGE_IN
        if not chart.y.hidden:
            texts = [text for _, text in ticks_between(chart.y, *chart.y_ends)]
            left_in += 0.08 + max((ruler.width_pt(text, SMALL_PT + 0.5) for text in texts), default=0.0) / 72
            left_in = min(left_in, 0.45 * width_in) + (0.22 if chart.y.title else 0.0)
        across_in = width_in - left_in - EDGE_IN - (0.1 if chart.x.title else 0.0)
        high_in = max(8.3 * chart.ratio, (chart.height_px_min - PAGE_AROUND_PX) * IN_PER_PX)
        high_in = across_in if chart.form == "square" else min(PLOT_IN_MAX, high_in)
        labelled = sum(rule.upright and bool(rule.label) for rule in chart.rules)
        axis_in = 0.06 if chart.x.hidden else 0.52 if chart.x.title else 0.28
        widths = [ruler.width_pt(_entry(label), TEXT_PT - 1) / 72 + HANDLE_IN for label in chart.entries]
        columns, rows = _legend_columns(widths, width_in - 2 * EDGE_IN)
        foot_in = LEGEND_ROW_IN * rows + 0.14 if rows else 0.06
        return cls(width_in, left_in, (across_in, high_in), 0.06 + RULE_IN * labelled, axis_in + foot_in, columns)


def _legend_columns(widths_in: list[float], room_in: float) -> tuple[int, int]:
    """Returns as many columns as fit, filled one after the other, and the number of rows."""
    for columns in range(min(LEGEND_COLUMNS_MAX, len(widths_in)), 1, -1):
        rows = math.ceil(len(widths_in) / columns)
        if sum(max(widths_in[i : i + rows]) for i in range(0, len(widths_in), rows)) <= room_in:
            return math.ceil(len(widths_in) / rows), rows
    return 1, len(widths_in)


def _entry(label: str) -> str:
    """Returns a label as the legend has it, on one line."""
    return shorten(": ".join(label.split("\n")), 90)


def _axes(plot: Plot, chart: Chart, frame: Frame, ruler: _Ruler, theme: Theme) -> None:
    for set_ends, axis, name, described, ends in (
        (plot.set_xlim, plot.xaxis, "x", chart.x, (frame.left, frame.right)),
        (plot.set_ylim, plot.yaxis, "y", chart.y, (frame.bottom, frame.top)),
    ):
        if described.log:
            plot.set(**{f"{name}scale": "log"})
            axis.set_minor_locator(matplotlib.ticker.NullLocator())
        room = _room_of_texts(plot, chart, ruler) if name == "x" else 0.0
        set_ends(ends[0], ends[0] + (ends[1] - ends[0]) / (1 - room) if room else ends[1])
        low, high = plot.get_xlim() if name == "x" else plot.get_ylim()
        ticks = ticks_between(described, low, high)
        axis.set_ticks([value for value, _ in ticks], labels=[_clean_lines(text) for _, text in ticks])
        axis.set_label_text(clean(described.title))
        if not described.ruled:
            axis.set_tick_params(labelcolor=theme.ink)
        if described.hidden:
            axis.set_visible(False)
        elif described.ruled:
            plot.grid(True, axis="x" if axis is plot.xaxis else "y")
    if chart.form == "square":
        plot.set_aspect("equal")
    if any(isinstance(layer, Bars) for layer in chart.layers):
        plot.spines[["top", "right", "left"]].set_visible(False)
    if chart.x.hidden and chart.y.hidden:
        plot.set_axis_off()


def _clean_lines(text: str) -> str:
    """Returns a text of several lines with each of them cleaned."""
    return "\n".join(map(clean, text.split("\n")))


def _room_of_texts(plot: Plot, chart: Chart, ruler: _Ruler) -> float:
    """Returns the share of the plot that the texts at the ends of bars need."""
    texts = [text for layer in chart.layers if isinstance(layer, Bars) for text in layer.texts]
    if not texts:
        return 0.0
    across_pt = 72 * plot.bbox.width / DPI
    return min(0.5, (10 + max(ruler.width_pt(text, SMALL_PT) for text in texts)) / across_pt)


class _Pen:
    """Draws the layers of a chart on one plot, each above those before it."""

    def __init__(self, plot: Plot, chart: Chart, theme: Theme):
        self.plot, self.chart, self.theme = plot, chart, theme
        self.ramp = LinearSegmentedColormap.from_list("ramp", theme.ramp)

    def colour(self, layer: Line | Area | Points | Bars | Paths) -> str:
        return self.theme.colour(self.chart.colour(layer))

    def draw(self, layer: Any, depth: float) -> None:
        match layer:
            case Line():
                look: Any = {"color": self.colour(layer), "lw": PT_PER_PX * layer.width_px, "alpha": layer.opacity}
                shape: Any = {"ls": DASHES if layer.dashed else "-"}
                shape["drawstyle"] = "steps-post" if layer.stepped else "default"
                self.plot.plot(layer.x, layer.y, zorder=depth, **look, **shape)
            case Area():
                low, high = (np.asarray(edge, dtype=np.float64) for edge in (layer.low, layer.high))
                look = {"edgecolor": self.theme.surface, "lw": 0.5}
                self.plot.fill_between(layer.x, low, high, facecolor=self.colour(layer), zorder=depth - 1, **look)
            case Points():
                self._points(layer, depth)
            case Bars():
                self._bars(layer, depth)
            case Paths():
                self._paths(layer, depth)

    def _points(self, layer: Points, depth: float) -> None:
        colour = self.colour(layer)
        if layer.low is not None and layer.high is not None:
            stroke: Any = {"color": colour, "lw": 1.1, "alpha": layer.interval_opacity, "zorder": 1.9}
            places = layer.y if layer.across else layer.x
            (self.plot.hlines if layer.across else self.plot.vlines)(places, layer.low, layer.high, **stroke)
        face: Any = colour if layer.shades is None else self.ramp(np.asarray(layer.shades, dtype=np.float64))
        edge = self.theme.colour(layer.edge)
        sizes = PT_PER_PX * np.asarray(layer.size_px, dtype=np.float64)
        self.plot.scatter(
            layer.x,
            layer.y,
            s=sizes**2,
            c="none" if layer.hollow else face,
            marker=MARKERS[_symbol(self.chart, layer)],
            edgecolors=colour if layer.hollow else edge,
            linewidths=PT_PER_PX * layer.edge_px,
            alpha=None if layer.opacity == 1.0 else layer.opacity,
            clip_on=layer.symbol != "x",
            zorder=depth,
        )

    def _bars(self, layer: Bars, depth: float) -> None:
        colours = [self.colour(layer)] * len(layer.values)
        if layer.marked is not None:
            colours[layer.marked] = self.theme.accent
        self.plot.barh(layer.places, layer.values, layer.thickness, color=colours, zorder=depth)
        self.plot.axvline(0, color=self.theme.muted, lw=0.8, zorder=3)
        ground = {"boxstyle": "square,pad=0.08", "facecolor": self.theme.surface, "edgecolor": "none"}
        for place, value, text in zip(layer.places, layer.values, layer.texts, strict=True):
            # A value below zero stands right of the zero line, where its row is empty.
            end = (0.0 if math.isnan(value) else max(0.0, float(value)), float(place))
            self.plot.annotate(
                text,
                end,
                (3, 0),
                textcoords="offset points",
                va="center",
                fontsize=SMALL_PT,
                bbox=ground,
                zorder=6,
                color=self.theme.muted if math.isnan(value) else self.theme.ink,
            )

    def _paths(self, layer: Paths, depth: float) -> None:
        width = PT_PER_PX * layer.width_px
        look: Any = {"alpha": layer.opacity, "capstyle": "round"}
        paths = [path for path in layer.paths if len(path) > 1]
        if layer.cased:
            casing = LineCollection(paths, colors=self.theme.surface, linewidths=width + 1.8, zorder=depth)
            self.plot.add_collection(casing, autolim=False)
        lines = LineCollection(paths, colors=self.colour(layer), linewidths=width, zorder=depth + 1e-3, **look)
        self.plot.add_collection(lines, autolim=False)

    def rules(self) -> None:
        for span in self.chart.spans:
            self.plot.axvspan(span.low, span.high, color=self.theme.accent, alpha=0.14, lw=0, zorder=1)
        row = 0
        for rule in self.chart.rules:
            colour = self.theme.colour(rule.colour)
            look: Any = {"color": colour, "lw": 1.1, "ls": DASHES if rule.dashed else DOTS, "zorder": 5}
            (self.plot.axvline if rule.upright else self.plot.axhline)(rule.value, **look)
            position: Any = ((rule.value, 1), (0, 3 + 72 * RULE_IN * row), ("data", "axes fraction"))
            if not rule.upright:
                position = ((1, rule.value), (-4, 3), ("axes fraction", "data"))
            share = self.chart.share(rule.value) if rule.upright else 1.0
            side: Any = "right" if share > 0.7 else "left" if share < 0.15 else "center"
            text = self.plot.annotate(
                shorten(rule.label, 60), position[0], position[1], position[2], textcoords="offset points", ha=side
            )
            text.set(va="bottom", fontsize=TEXT_PT - 1, color=colour)
            row += rule.upright and bool(rule.label)

    def write(self, name: PlacedName, frame: Frame) -> None:
        """Writes the lines of one name, and joins a far one to its mark by a thin line."""
        width, height = name.size
        direction = name.spot.direction
        side = "left" if "right" in direction else "right" if "left" in direction else "center"
        x = name.spot.x + {"left": -width / 2, "right": width / 2, "center": 0.0}[side]
        y = name.spot.y + height / 2
        if name.leader_to is not None:
            ends = np.array([frame.plane(*name.leader_to), frame.plane(name.spot.x, name.spot.y)])
            self.plot.plot(*ends.T, color=self.theme.muted, lw=0.6, zorder=3.5)
        for line in name.lines:
            position = frame.plane(x, y - line.height / 2)
            colour = self.theme.muted if line.quiet else self.theme.ink
            text = self.plot.text(*position, line.text, fontsize=line.size, color=colour, zorder=10)
            text.set(ha=side, va="center_baseline")
            if name.centred:
                text.set_bbox({"facecolor": self.theme.surface, "edgecolor": "none", "pad": 1.0})
            else:
                text.set_path_effects([withStroke(linewidth=2.4, foreground=self.theme.surface)])
            y -= line.height


def _symbol(chart: Chart, points: Points) -> str:
    colour = chart.colour(points)
    return points.symbol or (SYMBOLS[colour % len(SYMBOLS)] if isinstance(colour, int) else SYMBOLS[0])


def _head(figure: Figure, chart: Chart, lines: list[str], ruler: _Ruler, theme: Theme) -> None:
    """Writes the title and the lines under it, and draws the colour scale beside them."""
    width_in, height_in = (float(size) for size in figure.get_size_inches())
    left = EDGE_IN / width_in
    scale = chart.scale
    room_in = width_in - 2 * EDGE_IN - (BAR_IN + 0.6 if scale is not None else 0.0)
    title = ruler.fitting(chart.title, 1.08 * TITLE_PT, room_in)
    figure.text(left, 1 - 0.14 / height_in, title, va="top", fontsize=TITLE_PT, fontweight="bold")
    for i, line in enumerate(lines):
        y_in = 0.43 + LINE_IN * i
        figure.text(left, 1 - y_in / height_in, line, va="top", fontsize=TEXT_PT - 1, color=theme.muted)
    if scale is None:
        return
    box = ((width_in - BAR_IN - 0.45) / width_in, 1 - 0.42 / height_in, BAR_IN / width_in, 0.09 / height_in)
    bar = figure.add_axes(box)
    ramp = ScalarMappable(None, LinearSegmentedColormap.from_list("ramp", theme.ramp))
    drawn = figure.colorbar(ramp, cax=bar, orientation="horizontal")
    drawn.set_ticks([position for position, _ in scale.ticks], labels=[text for _, text in scale.ticks])
    drawn.outline.set_visible(False)
    bar.set_title(scale.title, fontsize=SMALL_PT, color=theme.muted, pad=3)


def _legend(figure: Figure, chart: Chart, room: _Room, theme: Theme) -> None:
    if not chart.entries:
        return
    handles = [_handle(chart, label, theme) for label in chart.entries]
    figure.legend(
        handles=handles,
        labels=[_entry(label) for label in chart.entries],
        loc="lower left",
        bbox_to_anchor=(EDGE_IN / room.width_in, 0.04 / float(figure.get_size_inches()[1])),
        ncols=room.legend_columns,
        borderaxespad=0,
        columnspacing=1.6,
        handletextpad=0.6,
    )


def _handle(chart: Chart, label: str, theme: Theme) -> Line2D | Patch:
    """Returns the sample of a label: its line, its mark, or both."""
    layers = [layer for layer in chart.layers if not isinstance(layer, Names) and layer.label == label]
    layers = [layer for layer in layers if layer.in_legend]
    sample = Line2D([], [], ls="")
    for layer in layers:
        colour = theme.colour(chart.colour(layer))
        match layer:
            case Area() | Bars():
                return Patch(facecolor=colour)
            case Line():
                sample.set(color=colour, lw=PT_PER_PX * layer.width_px, ls=DASHES if layer.dashed else "-")
            case Paths():
                width = max(1.0, PT_PER_PX * layer.width_px)
                sample.set(color=colour, lw=min(3.4, width), ls="-", alpha=max(0.3, layer.opacity))
            case Points():
                face = theme.ramp[3] if layer.shades is not None else colour
                size = PT_PER_PX * float(np.clip(np.max(layer.size_px, initial=7.0), 7.0, 12.0))
                sample.set(marker=MARKERS[_symbol(chart, layer)], markersize=size)
                sample.set(markerfacecolor="none" if layer.hollow else face)
                sample.set(markeredgecolor=colour if layer.hollow else theme.colour(layer.edge))
                sample.set(markeredgewidth=PT_PER_PX * layer.edge_px)
    return sample
