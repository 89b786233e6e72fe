"""A scene as a picture, by Matplotlib: SVG or PNG."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke

from surecast.studio import wording
from surecast.studio.frame import Frame
from surecast.studio.scene_labels import draw_labels
from surecast.studio.style import (
    SMALL_PT,
    TEXT_PT,
    TITLE_PT,
    WIDE_IN,
    Theme,
    availability_map,
    matplotlib_style,
    new_figure,
    save_figure,
    shorten,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Plot
    from matplotlib.figure import Figure

    from surecast.studio.scene import Scene

__all__ = ["scene_picture"]

LEGEND_COLUMNS = 4
LEGEND_ROW_IN = 0.2
HEAD_IN = 0.86
BAR_IN = 1.9


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Sizes in points that shrink as the drawing fills."""

    broker_least: float
    broker_more: float
    router: float
    physical: float
    overlay: float


def scene_picture(scene: Scene, suffix: str, width: int, theme: Theme) -> bytes:
    """Returns the bytes of the picture."""
    with matplotlib_style(theme):
        handles = _legend_handles(scene, theme)
        foot_in = LEGEND_ROW_IN * -(-len(handles) // LEGEND_COLUMNS) + 0.16
        left_in, below_in = (0.72, 0.3) if scene.axes else (0.2, 0.08)
        plot_in = (WIDE_IN - left_in - 0.2, _plot_height_in(scene))
        height_in = HEAD_IN + plot_in[1] + below_in + foot_in
        figure = new_figure(WIDE_IN, height_in)
        box = (left_in / WIDE_IN, (foot_in + below_in) / height_in, plot_in[0] / WIDE_IN, plot_in[1] / height_in)
        plot = figure.add_axes(box)
        sizes = _sizes(scene)
        radii = np.array([sizes.broker_least + sizes.broker_more * b.size for b in scene.brokers])
        frame = Frame.fitting(scene, plot_in[0] * 72, plot_in[1] * 72)
        _prepare(plot, scene, frame)
        _draw_network(plot, scene, sizes, theme)
        _draw_overlay(plot, scene, sizes, theme)
        _draw_brokers(plot, scene, radii, theme)
        left_out = draw_labels(figure, plot, scene, frame, radii, theme)
        _head(figure, scene, theme, left_out)
        figure.legend(
            handles=handles,
            loc="lower left",
            bbox_to_anchor=(0.1 / WIDE_IN, 0.04 / height_in),
            ncols=LEGEND_COLUMNS,
            borderpad=0.2,
            labelspacing=0.45,
            columnspacing=1.8,
            handletextpad=0.6,
        )
        return save_figure(figure, suffix, width, scene.title)


def _plot_height_in(scene: Scene) -> float:
    """Returns a height for the shape, with one row of text for each broker that stands below another."""
    if scene.equal:
        return max(3.4, 8.3 * scene.ratio)
    return float(np.clip(0.42 * scene.rows, 3.4, 14.0))


def _sizes(scene: Scene) -> _Sizes:
    crowd = float(np.clip(np.sqrt(24 / max(1, len(scene.brokers))), 0.45, 1.0))
    if not scene.equal:
        crowd = min(1.0, (72 * _plot_height_in(scene) - 52) / max(1, scene.rows - 1) / 40)
    routers = sum(len(group.xy) for group in scene.routers)
    return _Sizes(
        broker_least=5.5 * crowd,
        broker_more=(7.5 if scene.clients_max else 2.0) * crowd,
        router=float(np.clip(30 / np.sqrt(max(1, routers)), 1.5, 4.5)),
        physical=float(np.clip(9 / np.sqrt(max(1, len(scene.physical))), 0.28, 1.0)),
        overlay=float(np.clip(2.4 * crowd, 1.1, 2.2)),
    )


def _prepare(plot: Plot, scene: Scene, frame: Frame) -> None:
    plot.set_xlim(frame.left, frame.right)
    plot.set_ylim(frame.bottom, frame.top)
    if scene.axes is None:
        plot.set_axis_off()
        return
    for axis, ticks, limits in (
        (plot.xaxis, scene.axes.x_ticks, (frame.left, frame.right)),
        (plot.yaxis, scene.axes.y_ticks, (frame.bottom, frame.top)),
    ):
        shown = [tick for tick in ticks if limits[0] <= tick[0] <= limits[1]]
        axis.set_ticks([position for position, _ in shown], labels=[text for _, text in shown])
    plot.grid(True)


def _draw_network(plot: Plot, scene: Scene, sizes: _Sizes, theme: Theme) -> None:
    plot.add_collection(
        LineCollection(list(scene.physical), colors=theme.physical, linewidths=sizes.physical, zorder=1), autolim=False
    )
    for group in scene.routers:
        colour = theme.steady if group.series is None else theme.series[group.series]
        plot.scatter(group.xy[:, 0], group.xy[:, 1], s=sizes.router**2, c=colour, alpha=0.75, linewidths=0, zorder=2)
    hollow = plot.scatter(scene.candidates[:, 0], scene.candidates[:, 1], s=62, marker="D", zorder=6)
    hollow.set(facecolors="none", edgecolors=theme.ink, linewidths=1.3)


def _draw_overlay(plot: Plot, scene: Scene, sizes: _Sizes, theme: Theme) -> None:
    paths = [link.path for link in scene.links if len(link.path) > 1]
    band = LineCollection(paths, colors=theme.overlay, linewidths=3.4, alpha=0.22, capstyle="round", zorder=3)
    curves = [link.curve for link in scene.links]
    casing = LineCollection(curves, colors=theme.surface, linewidths=sizes.overlay + 1.8, zorder=4)
    links = LineCollection(curves, colors=theme.overlay, linewidths=sizes.overlay, capstyle="round", zorder=5)
    for collection in (band, casing, links):
        plot.add_collection(collection, autolim=False)


def _draw_brokers(plot: Plot, scene: Scene, radii: Any, theme: Theme) -> None:
    colours = availability_map(theme)
    for broker, radius in sorted(zip(scene.brokers, radii, strict=True), key=lambda pair: -pair[1]):
        fill = theme.steady if broker.availability is None else colours(scene.shade(broker.availability))
        (marker,) = plot.plot(*broker.xy, "o", ms=2 * radius, mfc=fill, mec=theme.overlay, mew=1.1, zorder=8)
        marker.set_path_effects([withStroke(linewidth=2.6, foreground=theme.surface)])
        if broker.is_root:
            plot.plot(*broker.xy, "o", ms=2 * radius + 5.5, mfc="none", mec=theme.accent, mew=1.8, zorder=9)


def _head(figure: Figure, scene: Scene, theme: Theme, left_out: int) -> None:
    """Draws title, counts and the colour bar, in the strip above the drawing."""
    height_in = float(figure.get_size_inches()[1])
    left = 0.2 / WIDE_IN
    has_bar = bool(scene.shade_ticks)
    figure.text(
        left,
        1 - 0.12 / height_in,
        shorten(scene.title, 52 if has_bar else 72),
        fontsize=TITLE_PT,
        fontweight="bold",
        va="top",
    )
    lines = list(scene.counts)
    if left_out:
        lines.append(f"{wording.count(left_out, 'name')} left out for want of room")
    figure.text(
        left,
        1 - 0.4 / height_in,
        "\n".join(lines),
        fontsize=TEXT_PT - 0.5,
        color=theme.muted,
        va="top",
        linespacing=1.4,
    )
    if not has_bar:
        return
    bar = figure.add_axes(
        ((WIDE_IN - BAR_IN - 0.45) / WIDE_IN, 1 - 0.42 / height_in, BAR_IN / WIDE_IN, 0.09 / height_in)
    )
    scale = figure.colorbar(ScalarMappable(None, availability_map(theme)), cax=bar, orientation="horizontal")
    scale.set_ticks([position for position, _ in scene.shade_ticks], labels=[text for _, text in scene.shade_ticks])
    scale.outline.set_visible(False)
    bar.set_title("availability of brokers (log scale)", fontsize=SMALL_PT, color=theme.muted, pad=3)


def _legend_handles(scene: Scene, theme: Theme) -> list[Line2D]:
    def dot(label: str, marker: str, size: float, face: str, edge: str, width: float = 1.1) -> Line2D:
        return Line2D([], [], ls="", marker=marker, ms=size, mfc=face, mec=edge, mew=width, label=label)

    handles = []
    shares = scene.availabilities
    larger = " (larger: more clients)" if scene.clients_max and len(scene.brokers) > 1 else ""
    if shares:
        up = f", up {wording.percent(shares[0])} of the time" if len(set(shares)) == 1 else ""
        handles.append(dot(f"broker{up}{larger}", "o", 8, theme.ramp[-1 if up else 3], theme.overlay))
    if len(shares) < len(scene.brokers):
        handles.append(
            dot(f"broker that never fails{larger if not shares else ''}", "o", 8, theme.steady, theme.overlay)
        )
    if any(broker.is_root for broker in scene.brokers):
        handles.append(dot("root broker", "o", 9.5, "none", theme.accent, 1.8))
    if len(scene.candidates):
        handles.append(dot("free candidate position", "D", 6, "none", theme.ink, 1.3))
    if scene.links:
        handles.append(Line2D([], [], color=theme.overlay, lw=2.2, label="overlay link"))
    if any(len(link.path) > 1 for link in scene.links):
        handles.append(Line2D([], [], color=theme.overlay, lw=3.4, alpha=0.3, label="its physical path"))
    if len(scene.physical):
        handles.append(Line2D([], [], color=theme.physical, lw=1.0, label="physical link"))
    for group in scene.routers:
        colour = theme.steady if group.series is None else theme.series[group.series]
        handles.append(dot(shorten(group.label, 30), "o", 4.5, colour, "none", 0))
    return handles
