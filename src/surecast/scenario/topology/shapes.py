"""Random connected graphs and layouts, from which the generators are made."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Pair",
    "in_disc",
    "link_count",
    "nearest_tree",
    "recursive_tree",
    "short_pairs",
    "tidy_tree",
    "uniform_pairs",
]

Array = NDArray[np.float64]
Pair = tuple[int, int]
WAXMAN_ROUTERS_MAX = 1500
WAXMAN_REACH = 0.25
"""The chance of a redundant link falls by a factor of e over this share of the longest distance."""


def link_count(routers: int, mean_degree: float) -> int:
    """Returns the number of links for a mean degree: at least those of a tree, at most one for each pair.

    >>> link_count(10, 3.0), link_count(10, 1.0), link_count(3, 8.0)
    (15, 9, 3)
    """
    pairs = routers * (routers - 1) // 2
    return min(max(math.floor(routers * mean_degree / 2 + 0.5), routers - 1), pairs)


def recursive_tree(rng: np.random.Generator, routers: int) -> list[Pair]:
    """Returns a random recursive tree: each router joins one of those before it, all equally likely."""
    if routers < 2:
        return []
    parents = rng.integers(0, np.arange(1, routers))
    return [(int(parent), child) for child, parent in enumerate(parents, start=1)]


def nearest_tree(xy: Array) -> list[Pair]:
    """Returns a tree in which each router joins the nearest of those before it."""
    pairs = []
    for child in range(1, len(xy)):
        away = xy[:child] - xy[child]
        pairs.append((int(np.argmin((away * away).sum(axis=1))), child))
    return pairs


def uniform_pairs(rng: np.random.Generator, routers: int, existing: list[Pair], count: int) -> list[Pair]:
    """Returns further pairs, all equally likely, none of them existing."""
    total = routers * (routers - 1) // 2
    drawn = rng.choice(total, size=min(total, count + len(existing)), replace=False)
    used = set(existing)
    pairs: list[Pair] = []
    for number in drawn.tolist():
        # Pairs are numbered (0,1), (0,2), (1,2), (0,3), ...
        high = (1 + math.isqrt(1 + 8 * number)) // 2
        pair = (number - high * (high - 1) // 2, high)
        if len(pairs) < count and pair not in used:
            pairs.append(pair)
    return pairs


def short_pairs(rng: np.random.Generator, xy: Array, existing: list[Pair], count: int) -> list[Pair]:
    """Returns further pairs, near ones more likely.

    Waxman, "Routing of multipoint connections", IEEE JSAC 6(9), 1988: the chance falls exponentially with distance.
    """
    if count == 0 or len(xy) > WAXMAN_ROUTERS_MAX:
        return uniform_pairs(rng, len(xy), existing, count) if count else []
    high, low = np.tril_indices(len(xy), k=-1)
    distance = np.hypot(*(xy[high] - xy[low]).T)
    # The largest of log weight plus Gumbel noise is a draw without replacement by weight.
    score = rng.gumbel(size=len(distance)) - distance / (WAXMAN_REACH * max(float(distance.max()), 1e-9))
    for a, b in existing:
        score[b * (b - 1) // 2 + a] = -np.inf
    best = np.argsort(-score, kind="stable")[:count]
    return [(int(low[i]), int(high[i])) for i in best]


def in_disc(rng: np.random.Generator, routers: int, centre: Array, radius: float) -> Array:
    """Returns points spread evenly over a disc."""
    angle = rng.uniform(0, 2 * math.pi, routers)
    distance = radius * np.sqrt(rng.uniform(0, 1, routers))
    return np.asarray(centre + np.stack([distance * np.cos(angle), distance * np.sin(angle)], axis=1))


def tidy_tree(parents: list[int], width: float, height: float) -> Array:
    """Positions of a tree, its root on top: leaves side by side, every parent above the middle of its children.

    Router 0 is the root, and `parents[i]` is the parent of router i + 1, which always comes before it.
    """
    routers = len(parents) + 1
    children: list[list[int]] = [[] for _ in range(routers)]
    depth = [0] * routers
    for child, parent in enumerate(parents, start=1):
        children[parent].append(child)
        depth[child] = depth[parent] + 1
    column, leaves = [0.0] * routers, 0
    stack = [0]
    while stack:
        router = stack.pop()
        if not children[router]:
            column[router] = float(leaves)
            leaves += 1
        stack.extend(reversed(children[router]))
    for router in range(routers - 1, -1, -1):
        if children[router]:
            column[router] = (column[children[router][0]] + column[children[router][-1]]) / 2
    x = np.array(column) * width / max(1, leaves - 1)
    y = (max(depth) - np.array(depth, dtype=np.float64)) * height / max(1, max(depth))
    return np.stack([x, y], axis=1)
