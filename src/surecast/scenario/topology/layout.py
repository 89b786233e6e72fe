"""Positions for drawing, for networks whose routers have no coordinates. The same network always looks the same."""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

__all__ = ["drawing_layout"]

Array = NDArray[np.float64]
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
