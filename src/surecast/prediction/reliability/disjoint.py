"""The paper's lower bound of the connection probability: disjoint paths (reliability Eq. 12)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import networkx as nx

__all__ = ["disjoint_path_bound", "disjoint_paths"]

_COST_SCALE = 1e6


def disjoint_paths(
    graph: nx.Graph[int],
    broker_up: Mapping[int, float] | Sequence[float],
    link_up: Mapping[int, float] | Sequence[float],
    s: int,
    t: int,
) -> list[list[int]]:
    """As many paths from s to t without a broker in common as there are, and of these the most reliable ones.

    They come from a maximum flow in which each broker is split into an entry and an exit, of least cost where the cost
    is the logarithm of the unavailability. Paths taken greedily may be fewer.

    >>> ring = nx.cycle_graph(4)
    >>> nx.set_edge_attributes(ring, {edge: i for i, edge in enumerate(ring.edges)}, "link")
    >>> sorted(disjoint_paths(ring, [0.9] * 4, [1.0] * 4, 0, 2))
    [[0, 1, 2], [0, 3, 2]]
    """
    if s == t:
        return [[s]]
    split: nx.DiGraph[tuple[int, int]] = nx.DiGraph()
    for v in graph:
        if v not in (s, t):
            split.add_edge((v, 0), (v, 1), capacity=1, weight=_cost(float(broker_up[v])))
    for a, b in graph.edges:
        link = graph.edges[a, b]["link"]
        for u, v in ((a, b), (b, a)):
            if u != t and v != s:
                split.add_edge((u, 1), (v, 0), capacity=1, weight=_cost(float(link_up[link])))
    if (s, 1) not in split or (t, 0) not in split:
        return []
    flow = nx.max_flow_min_cost(split, (s, 1), (t, 0))
    onward = {u: [v for v, amount in flow.get((u, 1), {}).items() if amount] for u in graph}
    paths = []
    for first, _ in onward[s]:
        path = [s, first]
        while path[-1] != t:
            path.append(onward[path[-1]][0][0])
        paths.append(path)
    return paths


def disjoint_path_bound(
    graph: nx.Graph[int],
    broker_up: Mapping[int, float] | Sequence[float],
    link_up: Mapping[int, float] | Sequence[float],
    s: int,
    t: int,
) -> float:
    """Returns a lower bound of the connection probability: P[one of the disjoint paths is up].

    As printed the fraction of Eq. 12 is flattened: each factor is 1 - r_i / (a_first a_last).

    >>> ring = nx.cycle_graph(4)
    >>> nx.set_edge_attributes(ring, {edge: i for i, edge in enumerate(ring.edges)}, "link")
    >>> round(disjoint_path_bound(ring, [0.9] * 4, [1.0] * 4, 0, 2), 12) == round(0.9**2 * (1 - 0.1**2), 12)
    True
    """
    ends = float(broker_up[s]) * (float(broker_up[t]) if s != t else 1.0)
    if s == t:
        return ends
    none_up = 1.0
    for path in disjoint_paths(graph, broker_up, link_up, s, t):
        inner = math.prod(float(broker_up[v]) for v in path[1:-1])
        # reliability Eq. 12
        none_up *= 1.0 - inner * math.prod(float(link_up[graph.edges[pair]["link"]]) for pair in pairwise(path))
    return ends * (1.0 - none_up)


def _cost(up: float) -> int:
    return round(-math.log(max(up, 1e-12)) * _COST_SCALE)
