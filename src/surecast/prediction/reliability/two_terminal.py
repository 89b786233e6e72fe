"""Are two brokers connected by brokers and links that are up? The exact probability, where the graph allows.

The graph is cut into its blocks, which are independent given the brokers between them. In a block series and parallel
links and dead ends are reduced; what remains is swept (`frontier.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import networkx as nx

from surecast.prediction.reliability.frontier import plan_sweep, run_sweep

__all__ = ["STATES_MAX", "ConnectionSolver", "connection_probability"]

STATES_MAX = 200_000
"""States of a sweep at a time beyond which the exact computation is given up."""

Adjacency = dict[int, dict[int, float]]


def connection_probability(
    graph: nx.Graph[int],
    broker_up: Mapping[int, float] | Sequence[float],
    link_up: Mapping[int, float] | Sequence[float],
    s: int,
    t: int,
    *,
    states_max: int = STATES_MAX,
) -> float | None:
    """Returns P[brokers s and t are up and connected through brokers and links that are up]; None beyond `states_max`.

    `graph` is the overlay's (`Overlay.graph`): its nodes index `broker_up`, the attribute `link` of its edges indexes
    `link_up`. All components fail independently.

    >>> bridge = nx.Graph()
    >>> bridge.add_edges_from((a, b, {"link": i}) for i, (a, b) in enumerate([(0, 1), (0, 2), (1, 2), (1, 3), (2, 3)]))
    >>> connection_probability(bridge, [1.0] * 4, [0.5] * 5, 0, 3)
    0.5
    """
    return ConnectionSolver(graph, broker_up, link_up, states_max=states_max).probability(s, t)


class ConnectionSolver:
    """Connection probabilities of many pairs in one graph; what pairs have in common is computed once."""

    def __init__(
        self,
        graph: nx.Graph[int],
        broker_up: Mapping[int, float] | Sequence[float],
        link_up: Mapping[int, float] | Sequence[float],
        *,
        states_max: int = STATES_MAX,
    ):
        self.work = 0
        self.swept = 0
        self._up = broker_up
        self._states_max = states_max
        # blocks are the nodes -1, -2, ... of the tree, beside the brokers
        self._blocks: list[Adjacency] = []
        self._known: dict[tuple[int, int, int], float | None] = {}
        tree: nx.Graph[int] = nx.Graph()
        tree.add_nodes_from(graph)
        for block, edges in enumerate(nx.biconnected_component_edges(graph)):
            adjacency: Adjacency = {}
            for a, b in edges:
                up = float(link_up[graph.edges[a, b]["link"]])
                adjacency.setdefault(a, {})[b] = up
                adjacency.setdefault(b, {})[a] = up
            self._blocks.append(adjacency)
            tree.add_edges_from((-1 - block, v) for v in adjacency)
        self._above: dict[int, int] = {}
        self._depth: dict[int, int] = {}
        self._root: dict[int, int] = {}
        for root in graph:
            if root not in self._root:
                self._depth[root], self._root[root] = 0, root
                for above, below in nx.bfs_edges(tree, root):
                    self._above[below], self._root[below] = above, root
                    self._depth[below] = self._depth[above] + 1

    def chain(self, s: int, t: int) -> list[tuple[int, int, int]]:
        """Returns the blocks between two brokers, each with the brokers it is entered and left by; empty if they
        coincide.

        Block -1 stands for no connection at all.
        """
        if self._root[s] != self._root[t]:
            return [(-1, s, t)]
        near: list[int] = [s]
        far: list[int] = [t]
        # nodes of the tree of blocks and brokers, climbed from both ends up to where they meet
        while near[-1] != far[-1]:
            side = near if self._depth[near[-1]] >= self._depth[far[-1]] else far
            side.append(self._above[side[-1]])
        way = near + far[-2::-1]
        return [(-1 - way[i], way[i - 1], way[i + 1]) for i in range(1, len(way), 2)]

    def probability(self, s: int, t: int) -> float | None:
        """Returns P[s and t up and connected], or None if it would take too many states."""
        result = float(self._up[s])
        for block, a, b in self.chain(s, t):
            inside = 0.0 if block < 0 else self.in_block(block, a, b)
            if inside is None:
                return None
            result *= inside * float(self._up[b])
        return result

    def in_block(self, block: int, a: int, b: int) -> float | None:
        """Returns P[connected inside a block | both ends up]."""
        key = (block, min(a, b), max(a, b))
        if key not in self._known:
            adjacency = self._blocks[block]
            if len(adjacency) == 2:
                self._known[key] = adjacency[a][b]
            else:
                self._known[key] = self._sweep(adjacency, key[1], key[2])
        return self._known[key]

    def is_trivial(self, block: int) -> bool:
        """Returns whether a block is a single link."""
        return len(self._blocks[block]) == 2

    def size(self, block: int) -> int:
        """Brokers in a block."""
        return len(self._blocks[block])

    def _sweep(self, adjacency: Adjacency, a: int, b: int) -> float | None:
        node_up = {v: float(self._up[v]) for v in adjacency}
        reduced = reduce_block(adjacency, node_up, a, b)
        if len(reduced) == 2:
            return reduced[a].get(b, 0.0)
        value, work = run_sweep(plan_sweep(reduced, node_up, a, b), self._states_max)
        self.work += work
        self.swept += 1
        return value


def reduce_block(adjacency: Adjacency, node_up: Mapping[int, float], a: int, b: int) -> Adjacency:
    """Returns an equivalent smaller block: dead ends removed, brokers between two links merged into one link, links
    between the same brokers into one.

    >>> triangle = {0: {1: 0.5, 2: 0.5}, 1: {0: 0.5, 2: 0.5}, 2: {0: 0.5, 1: 0.5}}
    >>> reduce_block(triangle, {0: 1.0, 1: 1.0, 2: 0.8}, 0, 1)
    {0: {1: 0.6}, 1: {0: 0.6}}
    """
    reduced = {v: dict(neighbours) for v, neighbours in adjacency.items()}
    pending = [v for v in reduced if v not in (a, b)]
    while pending:
        v = pending.pop()
        if v not in reduced or len(reduced[v]) > 2:
            continue
        ends = list(reduced.pop(v).items())
        for u, _ in ends:
            del reduced[u][v]
        if len(ends) == 2:
            (u, first), (w, second) = ends
            series = first * node_up[v] * second
            parallel = 1.0 - (1.0 - series) * (1.0 - reduced[u].get(w, 0.0))
            reduced[u][w] = reduced[w][u] = parallel
        pending += [u for u, _ in ends if u not in (a, b)]
    return reduced
