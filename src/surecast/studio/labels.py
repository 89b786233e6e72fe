"""Placement of names on a drawing: beside their markers, and over nothing else.

Works in pixels (or points), with y upwards. Every label tries places around its marker, near ones first; a place is
free if it touches no other label and no marker and stays inside. Lines under a label only make a place dearer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["DIRECTIONS", "Spot", "place_labels"]

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
