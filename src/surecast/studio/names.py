"""Names on a network drawing: each beside its marker and over nothing else, in the units of whoever draws it.

Works in pixels (or points), with y upwards. Every label tries places around its marker, near ones first; a place is
free if it touches no other label and no marker and stays inside. Lines under a label only make a place dearer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from surecast.studio.chart import Chart, Names, Paths, Points
from surecast.studio.style import shorten

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["DIRECTIONS", "Frame", "PlacedName", "Spot", "TextLine", "place_labels", "place_names"]

Array = NDArray[np.float64]
DIRECTIONS: dict[str, tuple[int, int]] = {
    "middle right": (1, 0),
    "top center": (0, 1),
    "bottom center": (0, -1),
    "middle left": (-1, 0),
    "top right": (1, 1),
    "bottom right": (1, -1),
    "top left": (-1, 1),
    "bottom left": (-1, -1),
}
GAP, MARGIN = 3.0, 1.5
ROUNDS = 4


@dataclass(frozen=True, slots=True)
class Spot:
    """The place of one label: its centre, the direction from its marker, and whether it needs a leader line."""

    x: float
    y: float
    direction: str
    leader: bool


@dataclass(frozen=True, slots=True)
class _Choices:
    """The places one label may take: their centres and what each costs before any other label is looked at."""

    centres: Array
    names: tuple[str, ...]
    far: tuple[bool, ...]
    cost: Array


def place_labels(
    anchors: Array,
    radii: Array,
    sizes: Array,
    bounds: tuple[float, float, float, float],
    *,
    lines: Sequence[tuple[Array, float]] = (),
    preferred: Sequence[str] = (),
    distances: Sequence[float] = (0.0, 9.0, 20.0, 34.0, 52.0),
) -> list[Spot | None]:
    """Returns a place for each label, or None if none is free; earlier labels come first.

    `anchors` and `radii` are the markers, one for each label; `sizes` are widths and heights of the labels; `bounds`
    is (left, right, bottom, top); `lines` are points along what should not be written over, each with a weight.

    >>> spots = place_labels(np.array([[50., 50.]]), np.array([5.]), np.array([[20., 8.]]), (0, 100, 0, 100))
    >>> spots[0].direction, spots[0].x
    ('middle right', 68.0)
    """
    count = len(anchors)
    choices = [
        _choices(i, anchors, radii, sizes[i], bounds, lines, preferred[i] if preferred else "", distances)
        for i in range(count)
    ]
    chosen: list[int | None] = [None] * count
    for _ in range(ROUNDS):
        before = list(chosen)
        for i in range(count):
            chosen[i] = _best(i, choices, chosen, sizes)
        if chosen == before:
            break
    spots: list[Spot | None] = []
    for choice, k in zip(choices, chosen, strict=True):
        if k is None:
            spots.append(None)
            continue
        x, y = choice.centres[k]
        spots.append(Spot(float(x), float(y), choice.names[k], choice.far[k]))
    return spots


def _choices(
    i: int,
    anchors: Array,
    radii: Array,
    size: Array,
    bounds: tuple[float, float, float, float],
    lines: Sequence[tuple[Array, float]],
    preferred: str,
    distances: Sequence[float],
) -> _Choices:
    half = size / 2
    centres, names, far, cost = [], [], [], []
    for ring, distance in enumerate(distances):
        for rank, (name, (dx, dy)) in enumerate(DIRECTIONS.items()):
            reach = (radii[i] + GAP + distance) * (1.0 if dx == 0 or dy == 0 else math.sqrt(0.5))
            centres.append(anchors[i] + np.array([dx, dy]) * (reach + half))
            names.append(name)
            far.append(ring > 0)
            cost.append(0.4 * rank + 6.0 * ring - (3.0 if name == preferred else 0.0))
    where = np.array(centres)
    price = np.array(cost)
    left, right, bottom, top = bounds
    outside = (where[:, 0] - half[0] < left) | (where[:, 0] + half[0] > right)
    outside |= (where[:, 1] - half[1] < bottom) | (where[:, 1] + half[1] > top)
    beside = np.maximum(np.abs(where[:, None, :] - anchors[None, :, :]) - half, 0.0)
    on_marker = (np.hypot(beside[..., 0], beside[..., 1]) < radii[None, :] + MARGIN).any(axis=1)
    price[outside | on_marker] = math.inf
    for points, weight in lines:
        inside = (np.abs(where[:, None, :] - points[None, :, :]) < half + 1.0).all(axis=2)
        price += weight * np.minimum(inside.sum(axis=1), 10)
    return _Choices(where, tuple(names), tuple(far), price)


def _best(i: int, choices: list[_Choices], chosen: list[int | None], sizes: Array) -> int | None:
    """Returns the cheapest place that no other label holds."""
    mine = choices[i]
    price = mine.cost.copy()
    others = [(j, k) for j, k in enumerate(chosen) if k is not None and j != i]
    if others:
        held = np.array([choices[j].centres[k] for j, k in others])
        room = (sizes[[j for j, _ in others]] + sizes[i]) / 2 + MARGIN
        touching = (np.abs(mine.centres[:, None, :] - held[None, :, :]) < room[None, :, :]).all(axis=2).any(axis=1)
        price[touching] = math.inf
    best = int(np.argmin(price))
    return best if math.isfinite(price[best]) else None


Measure = Callable[[str, float], float]
"""Returns the width of a text in a size."""
NAME_LENGTH = 22
QUIET, SECOND_LESS, LINE_HEIGHT = 6.5, 2.0, 1.22
CROWD = 40
OBSTACLE_PX = 9.0
SAMPLE_STEP = 4.0


@dataclass(frozen=True, slots=True)
class Frame:
    """The part of the plane that a drawing shows, and the size of the drawing."""

    left: float
    right: float
    bottom: float
    top: float
    width: float
    height: float

    @classmethod
    def fitting(cls, chart: Chart, width: float, height: float) -> Frame:
        """Returns a frame around the chart with room for names at its edges."""
        (left, right), (bottom, top) = chart.x_ends, chart.y_ends
        if chart.form not in ("plane", "layers"):
            return cls(left, right, bottom, top, width, height)
        west, east, pad_y = (34.0, 34.0, 32.0) if chart.form == "plane" else (40.0, 96.0, 36.0)
        across = (right - left) / (width - west - east)
        up = (top - bottom) / (height - 2 * pad_y)
        if chart.form == "plane":
            across = up = max(across, up)
        spare_x = across * width - (right - left) - across * (west + east)
        spare_y = up * height - (top - bottom) - up * 2 * pad_y
        return cls(
            left - across * west - spare_x / 2,
            right + across * east + spare_x / 2,
            bottom - up * pad_y - spare_y / 2,
            top + up * pad_y + spare_y / 2,
            width,
            height,
        )

    def place(self, xy: Array) -> Array:
        """Converts positions on the plane to places from the drawing's lower left corner."""
        scale = np.array([self.width / (self.right - self.left), self.height / (self.top - self.bottom)])
        return np.asarray((xy.reshape(-1, 2) - np.array([self.left, self.bottom])) * scale, dtype=np.float64)

    def plane(self, x: float, y: float) -> tuple[float, float]:
        """Converts a place back to a position on the plane."""
        return (
            self.left + x / self.width * (self.right - self.left),
            self.bottom + y / self.height * (self.top - self.bottom),
        )


@dataclass(frozen=True, slots=True)
class TextLine:
    """A line of text in one size, with its width and height."""

    text: str
    size: float
    quiet: bool
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class PlacedName:
    """A name with its lines and its place; `leader_to` is the mark it is joined to if it stands far off."""

    lines: tuple[TextLine, ...]
    spot: Spot
    leader_to: tuple[float, float] | None
    centred: bool

    @property
    def size(self) -> tuple[float, float]:
        """Width and height of the lines together."""
        return _size(self.lines)


def place_names(
    chart: Chart, frame: Frame, measure: Measure, sizes: Sequence[float], scale: float
) -> tuple[list[PlacedName], int]:
    """Returns the names that have a place, and how many marks stay without one for want of room.

    `sizes` are those of the text, the best first; `scale` is the length of a pixel.
    """
    layers = [layer for layer in reversed(chart.layers) if isinstance(layer, Names) and not layer.centred]
    marked = np.concatenate([np.zeros((0, 2)), *(frame.place(layer.xy) for layer in layers)])
    obstacles, obstacle_radii = _obstacles(chart, frame, marked, scale)
    anchors = np.concatenate([marked, obstacles])
    radii = np.concatenate(
        [*(scale * np.asarray(layer.radii_px, dtype=np.float64) for layer in layers), obstacle_radii]
    )
    sides = [side for layer in layers for side in layer.sides] + [""] * len(obstacles)
    loud = sum(len(layer.texts) for layer in layers if not layer.quiet)
    paths = [layer for layer in chart.layers if isinstance(layer, Paths) and layer.avoid > 0]
    lines = [(_sampled(frame, layer.paths), layer.avoid) for layer in paths]
    placed, least_missing = [], loud + 1
    ways = [(sizes[0], True), *((size, False) for size in sizes)]
    for size, with_seconds in ways if loud <= CROWD else ways[2:]:
        blocks = [block for layer in layers for block in _blocks(layer, measure, size, with_seconds)]
        extents = np.array([*map(_size, blocks), *([(0.0, 0.0)] * len(obstacles))]).reshape(-1, 2)
        bounds = (0.0, frame.width, 0.0, frame.height)
        spots = place_labels(anchors, radii, extents, bounds, lines=lines, preferred=sides)[: len(blocks)]
        quiet = [layer.quiet for layer in layers for _ in layer.texts]
        missing = sum(spot is None and not q for spot, q in zip(spots, quiet, strict=True))
        if missing < least_missing:
            least_missing = missing
            placed = [
                PlacedName(block, spot, (float(x), float(y)) if spot.leader and not q else None, False)
                for block, spot, (x, y), q in zip(blocks, spots, marked, quiet, strict=True)
                if spot is not None and block
            ]
        if not missing:
            break
    return _with_centred(chart, frame, measure, placed, anchors, radii), least_missing if loud else 0


def _obstacles(chart: Chart, frame: Frame, marked: Array, scale: float) -> tuple[Array, Array]:
    """Returns the large marks that have no name of their own, and their radii."""
    places, radii = [np.zeros((0, 2))], [np.zeros(0)]
    for layer in chart.layers:
        if isinstance(layer, Points) and len(layer.x):
            xy = frame.place(np.column_stack([layer.x, layer.y]))
            sizes = np.broadcast_to(np.asarray(layer.size_px, dtype=np.float64), len(xy))
            alone = [not (np.hypot(*(marked - place).T) < 1.0).any() for place in xy] if len(marked) else True
            chosen = (sizes >= OBSTACLE_PX) & alone
            places.append(xy[chosen])
            radii.append(scale * sizes[chosen] / 2)
    return np.concatenate(places), np.concatenate(radii)


def _blocks(layer: Names, measure: Measure, size: float, with_seconds: bool) -> list[tuple[TextLine, ...]]:
    seconds = layer.seconds if with_seconds and layer.seconds else [""] * len(layer.texts)
    size = min(size, QUIET) if layer.quiet else size
    blocks = []
    for text, second in zip(layer.texts, seconds, strict=True):
        block = [_line(text, measure, size, layer.quiet)]
        blocks.append((*block, _line(second, measure, size - SECOND_LESS, True)) if second else tuple(block))
    return blocks


def _line(text: str, measure: Measure, size: float, quiet: bool) -> TextLine:
    shown = shorten(text, NAME_LENGTH)
    return TextLine(shown, size, quiet, measure(shown, size), size * LINE_HEIGHT)


def _size(block: tuple[TextLine, ...]) -> tuple[float, float]:
    return (max((line.width for line in block), default=0.0), sum(line.height for line in block))


def _with_centred(
    chart: Chart, frame: Frame, measure: Measure, placed: list[PlacedName], anchors: Array, radii: Array
) -> list[PlacedName]:
    """Adds the names that stand on their place, if nothing else is there."""
    boxes = [(name.spot.x, name.spot.y, *name.size) for name in placed]
    added = []
    for layer in chart.layers:
        if not isinstance(layer, Names) or not layer.centred:
            continue
        for (x, y), block in zip(frame.place(layer.xy), _blocks(layer, measure, QUIET, False), strict=True):
            width, height = _size(block)
            clear = np.hypot(*np.maximum(np.abs(anchors - (x, y)) - (width / 2, height / 2), 0.0).T) > radii + 1
            covered = any(abs(x - a) < (width + w) / 2 and abs(y - b) < (height + h) / 2 for a, b, w, h in boxes)
            if clear.all() and not covered:
                added.append(PlacedName(block, Spot(float(x), float(y), "", False), None, True))
                boxes.append((x, y, width, height))
    return placed + added


def _sampled(frame: Frame, paths: Sequence[Array]) -> Array:
    """Returns points along curves, a few units apart."""
    parts = [np.zeros((0, 2))]
    for curve in (frame.place(path) for path in paths if len(path) > 1):
        length = float(np.hypot(*np.diff(curve, axis=0).T).sum())
        positions = np.linspace(0, len(curve) - 1, max(2, int(length / SAMPLE_STEP)))
        whole = np.arange(len(curve))
        parts.append(np.column_stack([np.interp(positions, whole, curve[:, i]) for i in range(2)]))
    return np.concatenate(parts)
