"""Positions of routers: the meaning of the file's coordinates, and positions for routers without coordinates."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Sequence

    from surecast.scenario.topology.raw import RawTopology, ReadOptions

__all__ = ["Meaning", "Positions", "counted", "drawing_layout", "locate"]

Array = NDArray[np.float64]
Meaning = Literal["geographic", "kilometres", "unknown scale", "none"]
SWEEPS_MAX = 1000
STABLE = 1e-9
"""Relative change of a sweep below which places no longer move: about a centimetre on Earth."""


@dataclass(frozen=True, slots=True)
class Positions:
    """Coordinates of every router, one row each, and what they mean. Rows are empty of sense if `meaning` is none."""

    xy: Array
    meaning: Meaning


def counted(count: int, total: int, noun: str, verb: str) -> str:
    """Returns the start of a note; the verb is given in the plural.

    >>> counted(1, 34, "router", "have"), counted(3, 34, "router", "have"), counted(5, 5, "link", "join")
    ('1 of 34 routers has', '3 of 34 routers have', 'all 5 links join')
    """
    share = f"all {total}" if 1 < count == total else f"{count} of {total}"
    singular = {"have": "has", "are": "is"}.get(verb, verb + "s")
    return f"{share} {noun}{'s' if total != 1 else ''} {singular if count == 1 else verb}"


def locate(raw: RawTopology, pairs: Sequence[tuple[int, int]], options: ReadOptions, notes: list[str]) -> Positions:
    """Positions of all routers of a connected topology."""
    positions = [router.position for router in raw.routers]
    placed = np.array([position is not None for position in positions])
    xy = np.array([position or (0.0, 0.0) for position in positions], dtype=np.float64)
    if len(positions) > 2 and placed.sum() > 1 and (np.ptp(xy[placed], axis=0) == 0).all():
        notes.append(f"{counted(int(placed.sum()), len(positions), 'router', 'have')} the same coordinates: not used")
        placed[:] = False
    if not placed.any():
        return Positions(xy, "none")
    meaning = _meaning(raw, xy[placed], options, notes)
    if meaning == "kilometres":
        xy *= options.km_per_unit or 1.0
    if not placed.all():
        missing = counted(int((~placed).sum()), len(positions), "router", "have")
        notes.append(
            f"{missing} no coordinates: placed at the mean of {'its' if ' has' in missing else 'their'} neighbours"
        )
        xy = _at_mean_of_neighbours(xy, placed, np.array(pairs, dtype=np.intp), meaning == "geographic")
    return Positions(xy, meaning)


def _meaning(raw: RawTopology, xy: Array, options: ReadOptions, notes: list[str]) -> Meaning:
    if raw.coordinates == "geographic":
        return "geographic"
    if options.km_per_unit is not None:
        return "kilometres"
    if raw.coordinates == "either" and (np.abs(xy) <= (180, 90)).all():
        notes.append("coordinates taken as longitude and latitude: all of them lie within their range")
        return "geographic"
    return "unknown scale"


def _at_mean_of_neighbours(xy: Array, fixed: NDArray[np.bool_], pairs: NDArray[np.intp], geographic: bool) -> Array:
    """Moves routers without coordinates to the mean of their neighbours until none moves any more.

    On Earth the mean is taken on the sphere, so that Tokyo and Los Angeles have theirs in the Pacific.
    """
    points = _on_sphere(xy) if geographic else xy.copy()
    size = float(np.ptp(points[fixed], axis=0).max()) or 1.0
    ends = np.concatenate([pairs, pairs[:, ::-1]])
    ends = ends[~fixed[ends[:, 0]]]
    mover, neighbour = ends[:, 0], ends[:, 1]
    placed = fixed.copy()
    for _ in range(SWEEPS_MAX):
        total, count = np.zeros_like(points), np.zeros(len(points))
        use = placed[neighbour]
        np.add.at(total, mover[use], points[neighbour[use]])
        np.add.at(count, mover[use], 1.0)
        reached = count > 0
        mean = total[reached] / count[reached, None]
        if geographic:
            # Neighbours at opposite ends of the Earth have no mean; any place will do if it is always the same.
            mean[:, 2] += 1e-12
            mean /= np.linalg.norm(mean, axis=1)[:, None]
        settled = bool(placed.all()) and float(np.abs(points[reached] - mean).max()) < STABLE * size
        points[reached] = mean
        placed |= reached
        if settled:
            break
    moved = _in_degrees(points) if geographic else points
    return np.where(fixed[:, None], xy, moved)


def _on_sphere(degrees: Array) -> Array:
    lon, lat = np.radians(degrees[:, 0]), np.radians(degrees[:, 1])
    return np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], axis=1)


def _in_degrees(points: Array) -> Array:
    lon, lat = np.arctan2(points[:, 1], points[:, 0]), np.arcsin(np.clip(points[:, 2], -1, 1))
    return np.asarray(np.degrees(np.stack([lon, lat], axis=1)))


Pairs = NDArray[np.intp]
PIVOTS_MAX = 50
PIVOT_WORK_MAX = 5_000_000
DENSE_ROUTERS_MAX = 2000
DENSE_SHARE = 0.8
OUTLIER = 3.0
SPREAD_ROUTERS_MAX = 1200
SPREAD_STEPS = 60
GOLDEN_ANGLE = np.pi * (3 - np.sqrt(5))


def drawing_layout(routers: int, pairs: Pairs, lengths: Array) -> Array:
    """Positions of the routers of a connected network, one row each; the mean link is as long as the mean of `lengths`.

    Where most pairs have a link, their lengths decide; else the hops between routers do.

    >>> square = np.array([[0, 1], [1, 2], [2, 3], [3, 0]])
    >>> xy = drawing_layout(4, square, np.full(4, 10.0))
    >>> [round(float(np.hypot(*(xy[a] - xy[b])))) for a, b in square]
    [10, 10, 10, 10]
    """
    if routers < 3:
        return np.array([[0.0, 0.0], [float(lengths[0]) if len(lengths) else 1.0, 0.0]])[:routers]
    if len(pairs) > DENSE_SHARE * routers * (routers - 1) / 2 and routers <= DENSE_ROUTERS_MAX:
        xy = _apart(_by_lengths(routers, pairs, lengths))
    else:
        xy = _apart(_by_hops(routers, pairs))
        if routers <= SPREAD_ROUTERS_MAX:
            xy = _spread(xy, pairs)
    drawn = np.hypot(*(xy[pairs[:, 0]] - xy[pairs[:, 1]]).T).mean()
    return np.asarray((xy - xy.min(axis=0)) * float(np.mean(lengths)) / max(float(drawn), 1e-12))


def _by_lengths(routers: int, pairs: Pairs, lengths: Array) -> Array:
    """Returns positions by classical multidimensional scaling: distances on the plane close to the lengths of the
    links."""
    # A few very long links would press all others into one spot.
    lengths = np.minimum(lengths, OUTLIER * float(np.median(lengths)))
    distance = np.full((routers, routers), float(lengths.max()))
    distance[pairs[:, 0], pairs[:, 1]] = distance[pairs[:, 1], pairs[:, 0]] = lengths
    np.fill_diagonal(distance, 0.0)
    squared = distance**2
    centred = -0.5 * (squared - squared.mean(axis=0) - squared.mean(axis=1)[:, None] + squared.mean())
    values, vectors = np.linalg.eigh(centred)
    return np.asarray(_signed(vectors[:, -2:][:, ::-1]) * np.sqrt(np.maximum(values[-2:][::-1], 0.0)))


def _by_hops(routers: int, pairs: Pairs) -> Array:
    """Returns positions by pivot scaling: two directions along which the hops to a few far apart routers vary most.

    Brandes and Pich, "Eigensolver methods for progressive multidimensional scaling of large data", GD 2006.
    """
    neighbours: list[list[int]] = [[] for _ in range(routers)]
    for a, b in pairs.tolist():
        neighbours[a].append(b)
        neighbours[b].append(a)
    pivots = int(np.clip(PIVOT_WORK_MAX // (routers + 2 * len(pairs)), 3, min(PIVOTS_MAX, routers)))
    nearest, pivot, columns = np.full(routers, np.inf), 0, []
    for _ in range(pivots):
        hops = _hops_from(pivot, neighbours)
        columns.append(hops)
        nearest = np.minimum(nearest, hops)
        pivot = int(np.argmax(nearest))
    squared = np.stack(columns, axis=1) ** 2
    centred = -0.5 * (squared - squared.mean(axis=0) - squared.mean(axis=1)[:, None] + squared.mean())
    _, vectors = np.linalg.eigh(centred.T @ centred)
    return np.asarray(centred @ _signed(vectors[:, -2:][:, ::-1]))


def _hops_from(start: int, neighbours: list[list[int]]) -> Array:
    hops = [-1] * len(neighbours)
    hops[start] = 0
    queue = deque([start])
    while queue:
        router = queue.popleft()
        for other in neighbours[router]:
            if hops[other] < 0:
                hops[other] = hops[router] + 1
                queue.append(other)
    return np.array(hops, dtype=np.float64)


def _signed(vectors: Array) -> Array:
    """Returns an eigenvector with a positive largest entry, since it has no sign of its own."""
    largest = np.argmax(np.abs(vectors), axis=0)
    return np.asarray(vectors * np.where(vectors[largest, np.arange(vectors.shape[1])] < 0, -1.0, 1.0))


def _apart(xy: Array) -> Array:
    """Shifts every router a little, each in its own direction: routers alike in all hops would coincide."""
    order = np.arange(len(xy))
    radius = 0.02 * (float(np.ptp(xy, axis=0).max()) or 1.0) * np.sqrt((order + 1) / len(xy))
    direction = np.stack([np.cos(order * GOLDEN_ANGLE), np.sin(order * GOLDEN_ANGLE)], axis=1)
    return np.asarray(xy + radius[:, None] * direction)


def _spread(xy: Array, pairs: Pairs) -> Array:
    """Spreads routers: links pull and routers push, less and less, so that links become alike in length.

    Fruchterman and Reingold, "Graph drawing by force-directed placement", 1991.
    """
    points = ((xy - xy.mean(axis=0)) / max(float(np.ptp(xy, axis=0).max()), 1e-12)).astype(np.float32)
    ideal = float(np.sqrt(1.0 / len(points)))
    for step in range(SPREAD_STEPS):
        dx = points[:, None, 0] - points[None, :, 0]
        dy = points[:, None, 1] - points[None, :, 1]
        push = ideal**2 / np.maximum(dx * dx + dy * dy, 1e-6)
        force = np.stack([(dx * push).sum(axis=1), (dy * push).sum(axis=1)], axis=1)
        along = points[pairs[:, 0]] - points[pairs[:, 1]]
        pull = along * (np.hypot(along[:, 0], along[:, 1]) / ideal)[:, None]
        np.add.at(force, pairs[:, 0], -pull)
        np.add.at(force, pairs[:, 1], pull)
        size = np.maximum(np.hypot(force[:, 0], force[:, 1]), 1e-9)
        heat = 0.1 * (1 - step / SPREAD_STEPS)
        points += force * (np.minimum(size, heat) / size)[:, None]
    return np.asarray(points, dtype=np.float64)
