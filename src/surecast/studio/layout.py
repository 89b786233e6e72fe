"""Positions of routers and brokers on a plane, the same on every run.

A network with coordinates keeps them; a broker tree without a network is drawn in layers, from the root outwards;
any other graph by stress majorisation, which makes drawn distances follow distances in hops.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import networkx as nx
import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from surecast.scenario.network import Network

__all__ = ["Axes", "GraphLayout", "NetworkLayout", "arc", "graph_layout", "network_layout", "s_curve", "spread"]

Array = NDArray[np.float64]
Shape = Literal["rightwards", "downwards", "radial", "force"]
LEAVES_IN_LAYERS_MAX = 36
STRESS_NODES_MAX = 1200
COUSINS_APART = 1.4  # leaves of different parents stand this much further apart than those of one


@dataclass(frozen=True)
class Axes:
    """Labelled ticks of a plane: positions on it and what to write there, with the unit."""

    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]


@dataclass(frozen=True)
class NetworkLayout:
    """Positions of routers; `axes` is None where the positions mean nothing but the picture."""

    xy: Array
    axes: Axes | None


@dataclass(frozen=True)
class GraphLayout:
    """Positions of brokers, the shape they were laid out in, and how many must fit side by side."""

    xy: Array
    shape: Shape
    rows: int


def network_layout(network: Network) -> NetworkLayout:
    """Routers where they are: kilometres, or degrees with longitude shrunk by the cosine of the mean latitude."""
    xy = np.array([(r.x, r.y) for r in network.routers], dtype=np.float64).reshape(-1, 2)
    if not np.isfinite(xy).all() or (len(xy) > 1 and np.ptp(xy, axis=0).max() == 0):
        return NetworkLayout(graph_layout(network.graph, 0).xy, None)
    if not network.located:
        return NetworkLayout(xy, None)
    if not network.geographic:
        (x0, y0), (x1, y1) = xy.min(axis=0), xy.max(axis=0)
        x_ticks, y_ticks = (tuple((t, f"{t:,.12g} km") for t in _ticks(*ends)) for ends in ((x0, x1), (y0, y1)))
        return NetworkLayout(xy, Axes(x_ticks, y_ticks))
    longitude = _unwrapped(xy[:, 0])
    latitude = xy[:, 1]
    shrink = max(0.2, math.cos(math.radians(float(latitude.mean()))))
    x_ticks = tuple((t * shrink, _degrees(t, "EW")) for t in _ticks(longitude.min(), longitude.max()))
    y_ticks = tuple((t, _degrees(t, "NS")) for t in _ticks(latitude.min(), latitude.max()))
    return NetworkLayout(np.column_stack([longitude * shrink, latitude]), Axes(x_ticks, y_ticks))


def graph_layout(graph: nx.Graph[int], root: int) -> GraphLayout:
    """Returns positions for a connected graph without coordinates: layers for a tree, else stress majorisation.

    >>> layout = graph_layout(nx.path_graph(3), 0)
    >>> layout.shape, layout.xy[1:, 1].tolist()
    ('downwards', [-1.0, -2.0])
    """
    n = graph.number_of_nodes()
    if n <= 1:
        return GraphLayout(np.zeros((n, 2)), "force", 1)
    if nx.is_tree(graph):
        return _tree(graph, root)
    if n > STRESS_NODES_MAX:
        hub = max(graph.nodes, key=lambda v: (graph.degree[v], -v))
        nearest: nx.Graph[int] = nx.Graph(nx.bfs_tree(graph, hub))
        return GraphLayout(_radial(*_ranks(nearest, hub)[:2]), "radial", 1)
    return GraphLayout(_stress(graph), "force", 1)


def _tree(graph: nx.Graph[int], root: int) -> GraphLayout:
    depth, across, leaves = _ranks(graph, root)
    levels = int(depth.max()) + 1
    if leaves > LEAVES_IN_LAYERS_MAX or levels > LEAVES_IN_LAYERS_MAX:
        return GraphLayout(_radial(depth, across), "radial", 1)
    if levels > leaves:
        return GraphLayout(np.column_stack([across, -depth]), "downwards", levels)
    return GraphLayout(np.column_stack([depth, -across]), "rightwards", math.ceil(across.max()) + 1)


def _ranks(graph: nx.Graph[int], root: int) -> tuple[Array, Array, int]:
    """Returns the depth of each node below the root, its place across (a parent amid its children), and the number of
    leaves."""
    n = graph.number_of_nodes()
    depth, across = np.zeros(n), np.zeros(n)
    children: dict[int, list[int]] = {v: [] for v in range(n)}
    order: list[int] = []
    stack, visited = [root], {root}
    while stack:  # depth first, children in the order of their indices
        v = stack.pop()
        order.append(v)
        for w in sorted(set(graph.neighbors(v)) - visited, reverse=True):
            visited.add(w)
            children[v].append(w)
            depth[w] = depth[v] + 1
            stack.append(w)
    parent = {w: v for v, below in children.items() for w in below}
    leaves = [v for v in order if not children[v]]
    for before, v in pairwise(leaves):
        across[v] = across[before] + (1.0 if parent[v] == parent[before] else COUSINS_APART)
    for v in reversed(order):
        if children[v]:
            across[v] = (across[children[v][0]] + across[children[v][-1]]) / 2
    return depth, across, len(leaves)


def _radial(depth: Array, across: Array) -> Array:
    """Layers as circles around the root."""
    angle = math.pi / 2 - 2 * math.pi * across / (across.max() + 1)
    return np.column_stack([depth * np.cos(angle), depth * np.sin(angle)])


def _stress(graph: nx.Graph[int]) -> Array:
    """Positions whose distances are as near to the distances in hops as a plane allows.

    Starts from classical scaling and follows with majorisation (the SMACOF iteration), weights 1 / hops².
    """
    n = graph.number_of_nodes()
    hops = np.full((n, n), float(n))
    for v, reached in nx.all_pairs_shortest_path_length(graph):
        hops[v, list(reached)] = list(reached.values())
    hops[hops == n] = hops[hops < n].max() + 1.0  # parts that are not connected stand side by side
    np.fill_diagonal(hops, 0.0)
    xy = _classical_scaling(hops)
    weights = np.zeros_like(hops)
    np.divide(1.0, hops**2, out=weights, where=hops > 0)
    laplacian = np.diag(weights.sum(axis=1)) - weights
    inverse = np.linalg.inv(laplacian + 1.0 / n) - 1.0 / n
    for _ in range(300 if n <= 200 else 60):
        drawn = np.linalg.norm(xy[:, None, :] - xy[None, :, :], axis=2)
        pull = np.zeros_like(hops)
        np.divide(-weights * hops, drawn, out=pull, where=drawn > 1e-9)
        np.fill_diagonal(pull, 0.0)
        np.fill_diagonal(pull, -pull.sum(axis=1))
        moved = inverse @ (pull @ xy)
        settled = float(np.abs(moved - xy).max()) < 1e-4
        xy = moved
        if settled:
            break
    return _landscape(xy)


def _classical_scaling(hops: Array) -> Array:
    n = len(hops)
    centre = np.eye(n) - 1.0 / n
    values, vectors = np.linalg.eigh(-centre @ hops**2 @ centre / 2.0)
    xy = vectors[:, -2:][:, ::-1] * np.sqrt(np.maximum(values[-2:][::-1], 1e-6))
    turn = math.pi * (3.0 - math.sqrt(5.0)) * np.arange(n)  # parts twins that scaling puts on one spot
    return np.asarray(xy + 0.05 * np.column_stack([np.cos(turn), np.sin(turn)]), dtype=np.float64)


def _landscape(xy: Array) -> Array:
    """Turns points so that the longest extent lies across, and the first node stands left of the middle and above
    it."""
    centred = xy - xy.mean(axis=0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    turned = centred @ axes.T
    signs = np.where(turned[0] * np.array([1.0, -1.0]) > 0, -1.0, 1.0)
    return np.asarray(turned * signs, dtype=np.float64)


def spread(xy: Array, radius: float) -> Array:
    """Separates points that stand on one spot, on a circle around it.

    >>> spread(np.zeros((2, 2)), 1.0).round(3).tolist()
    [[0.0, 1.0], [0.0, -1.0]]
    """
    parted = xy.copy()
    spots: dict[tuple[float, float], list[int]] = {}
    for i, (x, y) in enumerate(xy):
        spots.setdefault((float(x), float(y)), []).append(i)
    for members in spots.values():
        if len(members) > 1:
            angle = math.pi / 2 - 2 * math.pi * np.arange(len(members)) / len(members)
            parted[members] += radius * np.column_stack([np.cos(angle), np.sin(angle)])
    return parted


def arc(start: Array, end: Array, bulge: float, points: int = 24) -> Array:
    """Returns a curve from start to end that leaves the straight line by `bulge` times its length at most."""
    along = end - start
    control = (start + end) / 2 + 2 * bulge * np.array([-along[1], along[0]])
    t = np.linspace(0.0, 1.0, points)[:, None]
    return np.asarray((1 - t) ** 2 * start + 2 * t * (1 - t) * control + t**2 * end, dtype=np.float64)


def s_curve(start: Array, end: Array, axis: int, points: int = 24) -> Array:
    """Returns a curve that leaves `start` and meets `end` along the given axis, as branches of a tree do."""
    first, last = start.copy(), end.copy()
    first[axis] = last[axis] = (start[axis] + end[axis]) / 2
    t = np.linspace(0.0, 1.0, points)[:, None]
    curve = (1 - t) ** 3 * start + 3 * t * (1 - t) ** 2 * first + 3 * t**2 * (1 - t) * last + t**3 * end
    return np.asarray(curve, dtype=np.float64)


def _unwrapped(longitude: Array) -> Array:
    """Longitudes cut where no router is, so that a network across the date line stays in one piece."""
    turned = np.mod(longitude, 360.0)
    ordered = np.sort(turned)
    gaps = np.diff(np.append(ordered, ordered[0] + 360.0))
    west = ordered[(int(np.argmax(gaps)) + 1) % len(ordered)]
    unwrapped = np.where(turned < west, turned + 360.0, turned)
    return np.asarray(unwrapped - 360.0 * round(float(unwrapped.mean()) / 360.0), dtype=np.float64)


def _ticks(low: float, high: float, wanted: int = 6) -> list[float]:
    """Returns round numbers between low and high, about as many as wanted.

    >>> _ticks(0.0, 97.0)
    [0.0, 20.0, 40.0, 60.0, 80.0]
    """
    extent = float(high) - float(low)
    if not extent > 0:
        return [round(float(low), 6)]
    raw = extent / wanted
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1.0, 2.0, 2.5, 5.0, 10.0) if m * power >= raw * 0.999)
    first = math.ceil(float(low) / step - 1e-9)
    return [round(k * step, 12) for k in range(first, math.floor(float(high) / step + 1e-9) + 1)]


def _degrees(value: float, letters: str) -> str:
    """Returns a longitude or latitude as text.

    >>> _degrees(-74.0, "EW"), _degrees(190.0, "EW"), _degrees(0.0, "NS")
    ('74°W', '170°W', '0°')
    """
    if letters == "EW":
        value = (value + 180.0) % 360.0 - 180.0
    return "0°" if value == 0 else f"{abs(value):g}°{letters[0] if value > 0 else letters[1]}"
