"""Names on a picture of a scene: brokers first, then links and routers wherever room is left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray

from surecast.studio.frame import Frame, small_network_names
from surecast.studio.labels import Spot, place_labels
from surecast.studio.style import SMALL_PT, TEXT_PT, Theme, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Plot
    from matplotlib.figure import Figure

    from surecast.studio.scene import Scene

__all__ = ["draw_labels"]

Array = NDArray[np.float64]
NAME_LENGTH = 22
BROKER_LABELS_MAX = 200
LATENCY_LABELS_MAX = 20
LINE_STEP_PT = 4.0
CROWD = 40
ON_THE_LINK = "on the link"


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of text in one size, with its measured width and height in points."""

    text: str
    size_pt: float
    muted: bool
    width: float
    height: float


def draw_labels(figure: Figure, plot: Plot, scene: Scene, frame: Frame, radii: Array, theme: Theme) -> int:
    """Writes the names, and returns how many brokers are left without one for want of room."""
    if not scene.brokers and not scene.routers:
        return 0
    pen = _Pen(figure, plot, frame, theme)
    bold = 2.5 if len(scene.brokers) <= CROWD else 1.0
    curves, paths = [link.curve for link in scene.links], [link.path for link in scene.links]
    lines = ((_sampled(curves, frame), bold), (_sampled(paths, frame), 0.8))
    order = _by_importance(scene)
    anchors = frame.points(np.array([scene.brokers[i].xy for i in order]).reshape(-1, 2))
    reach = np.array([radii[i] + (3.5 if scene.brokers[i].is_root else 0.5) for i in order])
    towns, town_xy = small_network_names(scene, frame)
    diamonds = frame.points(scene.candidates)
    markers = np.concatenate([anchors, town_xy, diamonds])
    on_diamond = [bool((np.hypot(*(diamonds - town).T) < 1.0).any()) for town in town_xy]
    circles = np.concatenate([reach, np.where(on_diamond, 6.0, 2.5), np.full(len(diamonds), 6.0)])
    least_missing, best = len(order) + 1, None
    ways = ((TEXT_PT, True), (TEXT_PT, False), (SMALL_PT, False), (6.0, False))
    for size, with_clients in ways if len(order) <= CROWD else ways[2:]:
        blocks = [pen.broker(scene.brokers[i].name, scene.brokers[i].clients * with_clients, size) for i in order]
        blocks += [[pen.line(town, 6.5, muted=True)] for town in towns] + [[] for _ in diamonds]
        spots = place_labels(
            markers,
            circles,
            np.array([_block_size(block) for block in blocks]).reshape(-1, 2),
            (0, frame.width_pt, 0, frame.height_pt),
            lines=lines,
            preferred=[scene.brokers[i].label_at for i in order] + [""] * (len(markers) - len(order)),
        )
        missing = sum(spot is None for spot in spots[: len(order)])
        if missing < least_missing:
            least_missing, best = missing, (blocks, spots)
        if not missing:
            break
    assert best is not None
    blocks, spots = best
    for i, (block, spot) in enumerate(zip(blocks, spots, strict=True)):
        if spot is not None and block:
            pen.write(block, spot, markers[i] if spot.leader and i < len(order) else None)
    _draw_latencies(pen, scene, frame, markers, circles, [s for s in zip(blocks, spots, strict=True) if s[1]])
    return least_missing


class _Pen:
    """Measures and writes text on one plot."""

    def __init__(self, figure: Figure, plot: Plot, frame: Frame, theme: Theme):
        self.figure, self.plot, self.frame, self.theme = figure, plot, frame, theme

    def line(self, text: str, size_pt: float, *, muted: bool = False) -> _Line:
        shown = shorten(text, NAME_LENGTH)
        sample = self.figure.text(0, 0, shown, fontsize=size_pt)
        box = sample.get_window_extent()
        sample.remove()
        per_pt = self.figure.dpi / 72
        return _Line(shown, size_pt, muted, box.width / per_pt, size_pt * 1.22)

    def broker(self, name: str, clients: str, size_pt: float) -> list[_Line]:
        second = [self.line(clients, size_pt - 2.0, muted=True)] if clients else []
        return [self.line(name, size_pt), *second]

    def write(self, block: list[_Line], spot: Spot, leader_to: Array | None = None) -> None:
        """Writes the lines of one label, and joins a far one to its marker by a thin line."""
        width, height = _block_size(block)
        side = "left" if "right" in spot.direction else "right" if "left" in spot.direction else "center"
        x = spot.x + {"left": -width / 2, "right": width / 2, "center": 0.0}[side]
        y = spot.y + height / 2
        if leader_to is not None:
            ends = np.array([self.frame.plane(*leader_to), self.frame.plane(spot.x, spot.y)])
            self.plot.plot(*ends.T, color=self.theme.muted, lw=0.6, zorder=7)
        for line in block:
            text = self.plot.text(
                *self.frame.plane(x, y - line.height / 2),
                line.text,
                fontsize=line.size_pt,
                ha=side,
                va="center_baseline",
                color=self.theme.muted if line.muted else self.theme.ink,
                zorder=10,
            )
            if spot.direction == ON_THE_LINK:
                text.set_bbox({"facecolor": self.theme.surface, "edgecolor": "none", "pad": 1.0})
            else:
                text.set_path_effects([withStroke(linewidth=2.4, foreground=self.theme.surface)])
            y -= line.height


def _draw_latencies(
    pen: _Pen,
    scene: Scene,
    frame: Frame,
    markers: Array,
    circles: Array,
    written: list[tuple[list[_Line], Spot | None]],
) -> None:
    """Draws the latency of each link on its middle, if nothing else is there."""
    if len(scene.links) > LATENCY_LABELS_MAX:
        return
    boxes = [(spot.x, spot.y, *_block_size(block)) for block, spot in written if spot is not None]
    for link in scene.links:
        if not link.latency:
            continue
        block = [pen.line(link.latency, 6.5, muted=True)]
        width, height = _block_size(block)
        x, y = (float(v) for v in frame.points(link.middle))
        clear = np.hypot(*np.maximum(np.abs(markers - (x, y)) - (width / 2, height / 2), 0.0).T) > circles + 1
        covered = any(abs(x - a) < (width + w) / 2 and abs(y - b) < (height + h) / 2 for a, b, w, h in boxes)
        if clear.all() and not covered:
            pen.write(block, Spot(x, y, ON_THE_LINK, False))
            boxes.append((x, y, width, height))


def _block_size(block: list[_Line]) -> tuple[float, float]:
    return (max((line.width for line in block), default=0.0), sum(line.height for line in block))


def _by_importance(scene: Scene) -> list[int]:
    brokers = scene.brokers
    return sorted(range(len(brokers)), key=lambda i: (not brokers[i].is_root, -brokers[i].size))[:BROKER_LABELS_MAX]


def _sampled(curves: list[Array], frame: Frame) -> Array:
    """Returns points along curves, a few points apart."""
    parts = [np.zeros((0, 2))]
    for curve in (frame.points(curve) for curve in curves if len(curve) > 1):
        length = float(np.hypot(*np.diff(curve, axis=0).T).sum())
        positions = np.linspace(0, len(curve) - 1, max(2, int(length / LINE_STEP_PT)))
        whole = np.arange(len(curve))
        parts.append(
            np.column_stack([np.interp(positions, whole, curve[:, 0]), np.interp(positions, whole, curve[:, 1])])
        )
    return np.concatenate(parts)
