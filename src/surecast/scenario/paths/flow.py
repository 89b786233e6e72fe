"""Maximum flow from one node to another, found by augmenting paths, and its decomposition into paths.

The search is a library's: Edmonds and Karp's choice of shortest augmenting paths by networkx, and SciPy's where all
capacities are whole numbers and the graph is large. Neither promises a flow without cycles, so cycles are taken out
here; they carry nothing from source to sink.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from dataclasses import dataclass
from typing import Final

from surecast.errors import AssumptionError, ConfigurationError
from surecast.scenario.paths.graph import CapacityGraph, Link

__all__ = ["Flow", "FlowPath", "decompose", "maximum_flow"]

LARGE_LINKS: Final = 200
"""From this number of links on, SciPy is worth the way there: twice as fast at 240, five times at 2,000."""

_INT_MAX: Final = 2**31 - 1
_RELATIVE: Final = 1e-9
"""Flows below this part of the largest are rounding."""


@dataclass(frozen=True, slots=True)
class FlowPath:
    """A path from source to sink, and the packets per second that it carries."""

    nodes: tuple[int, ...]
    rate_per_s: float

    @property
    def links(self) -> tuple[Link, ...]:
        return tuple(zip(self.nodes, self.nodes[1:], strict=False))


@dataclass(frozen=True, slots=True)
class Flow:
    """A flow without cycles: what each link carries. `cut` are the saturated links of a minimum cut, from which no
    better flow is possible; a node whose capacity is the limit stands there as (node, node)."""

    source: int
    sink: int
    rate_per_s: float
    links: dict[Link, float]
    cut: tuple[Link, ...]


def maximum_flow(graph: CapacityGraph, source: int, sink: int, library: str = "") -> Flow:
    """Returns the maximum flow from source to sink, and its links. Capacities of nodes, both ends included, are kept.

    `library` is `networkx` or `scipy`; left out, the one that suits.

    >>> graph = CapacityGraph({(0, 1): 3.0, (0, 2): 2.0, (1, 3): 2.0, (2, 3): 4.0, (1, 2): 5.0})
    >>> flow = maximum_flow(graph, 0, 3)
    >>> flow.rate_per_s, flow.cut
    (5.0, ((0, 1), (0, 2)))
    """
    if source == sink:
        raise ConfigurationError(f"maximum flow: source and sink are both node {source}; name two different nodes")
    for node in (source, sink):
        if node not in graph:
            raise ConfigurationError(f"maximum flow: node {node} has no link and no capacity in the graph")
    split = _Split(graph, source, sink)
    _must_be_bounded(split)
    if library not in ("", "networkx", "scipy"):
        raise ConfigurationError(f"maximum flow: unknown library {library!r}; write networkx or scipy")
    if library == "scipy" and not split.is_whole:
        raise ConfigurationError("maximum flow: SciPy takes whole capacities below 2^31 only; use networkx")
    scipy_wanted = library == "scipy" or (not library and split.is_whole and len(split.arcs) >= LARGE_LINKS)
    on_arcs = _by_scipy(split) if scipy_wanted else _by_networkx(split)
    top = max(on_arcs.values(), default=0.0)
    on_arcs = {arc: amount for arc, amount in on_arcs.items() if amount > top * _RELATIVE}
    cut = split.minimum_cut(on_arcs, top * _RELATIVE)
    _cancel_cycles(on_arcs)
    links = {link: on_arcs[arc] for link, arc in split.arc_of.items() if arc in on_arcs}
    rate_per_s = math.fsum(v for (a, _), v in links.items() if a == source)
    rate_per_s -= math.fsum(v for (_, b), v in links.items() if b == source)
    return Flow(source, sink, rate_per_s, links, cut)


def decompose(flow: Flow) -> tuple[FlowPath, ...]:
    """Paths that together carry a flow: shortest first, each with what its narrowest link has left.

    Every path empties a link, so there are no more paths than links.

    >>> decompose(Flow(0, 3, 5.0, {(0, 1): 3.0, (0, 2): 2.0, (1, 3): 2.0, (1, 2): 1.0, (2, 3): 3.0}, ()))
    (FlowPath(nodes=(0, 1, 3), rate_per_s=2.0), FlowPath(nodes=(0, 2, 3), rate_per_s=2.0),
     FlowPath(nodes=(0, 1, 2, 3), rate_per_s=1.0))
    """
    left: dict[int, dict[int, float]] = {}
    for (a, b), amount in sorted(flow.links.items()):
        left.setdefault(a, {})[b] = amount
    tiny = flow.rate_per_s * _RELATIVE
    paths: list[FlowPath] = []
    while (nodes := _shortest(left, flow.source, flow.sink)) is not None:
        steps = list(itertools.pairwise(nodes))
        rate_per_s = min(left[a][b] for a, b in steps)
        for a, b in steps:
            left[a][b] -= rate_per_s
            if left[a][b] <= tiny:
                del left[a][b]
        if rate_per_s > tiny:
            paths.append(FlowPath(nodes, rate_per_s))
    return tuple(paths)


class _Split:
    """A graph as maximum-flow routines take it: a node of limited capacity becomes two with an arc between them."""

    def __init__(self, graph: CapacityGraph, source: int, sink: int):
        self.graph = graph
        self.arcs: dict[Link, float] = {}
        self.arc_of: dict[Link, Link] = {}
        links = list(graph.links())
        nodes = sorted({source, sink, *(node for link, _ in links for node in link)})
        self.entry: dict[int, int] = {}
        self.exit: dict[int, int] = {}
        count = 0
        for node in nodes:
            capacity_per_s = graph.node_capacity(node)
            self.entry[node] = self.exit[node] = count
            count += 1
            if capacity_per_s < math.inf:
                self.exit[node] = count
                self.arcs[count - 1, count] = capacity_per_s
                count += 1
        for (a, b), capacity_per_s in links:
            arc = (self.exit[a], self.entry[b])
            self.arcs[arc] = capacity_per_s
            self.arc_of[a, b] = arc
        self.count = count
        self.source, self.sink = self.entry[source], self.exit[sink]
        self.ends = (source, sink)

    @property
    def is_whole(self) -> bool:
        """True if SciPy can compute it: whole capacities, whose sum at the source does not overflow."""
        if not all(c <= _INT_MAX and c == int(c) for c in self.arcs.values() if c < math.inf):
            return False
        return self.finite_total() < _INT_MAX

    def finite_total(self) -> float:
        return math.fsum(c for c in self.arcs.values() if c < math.inf)

    def bounded(self) -> dict[Link, float]:
        """Capacities with the infinite ones cut to more than can ever flow."""
        most = self.finite_total() + 1.0
        return {arc: min(c, most) for arc, c in self.arcs.items()}

    def minimum_cut(self, on_arcs: dict[Link, float], tiny: float) -> tuple[Link, ...]:
        """Returns the arcs out of the set that the source can still reach in the residual graph, as links and nodes."""
        ahead: dict[int, list[int]] = {}
        for (a, b), capacity in self.arcs.items():
            if capacity - on_arcs.get((a, b), 0.0) > tiny:
                ahead.setdefault(a, []).append(b)
            if on_arcs.get((a, b), 0.0) > tiny:
                ahead.setdefault(b, []).append(a)
        reached = {self.source}
        todo = [self.source]
        while todo:
            for node in ahead.get(todo.pop(), ()):
                if node not in reached:
                    reached.add(node)
                    todo.append(node)
        cut = [link for link, (a, b) in self.arc_of.items() if a in reached and b not in reached]
        limits = [n for n in self.entry if self.entry[n] in reached and self.exit[n] not in reached]
        return tuple(sorted([*cut, *((node, node) for node in limits)]))


def _must_be_bounded(split: _Split) -> None:
    """Refuses a path of unlimited links, which has no maximum flow; the message names it."""
    ahead: dict[int, dict[int, float]] = {}
    for (a, b), capacity in split.arcs.items():
        if capacity == math.inf:
            ahead.setdefault(a, {})[b] = capacity
    path = _shortest(ahead, split.source, split.sink)
    if path is not None:
        name = {number: node for numbers in (split.entry, split.exit) for node, number in numbers.items()}
        nodes = " - ".join(str(name[number]) for number in path)
        raise AssumptionError(
            f"maximum flow from node {split.ends[0]} to {split.ends[1]}: no link on the path {nodes} has a capacity, "
            "so the flow has no maximum; give links a capacity"
        )


def _by_networkx(split: _Split) -> dict[Link, float]:
    import networkx as nx
    from networkx.algorithms.flow import edmonds_karp

    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(split.count))
    graph.add_edges_from((a, b, {"capacity": capacity}) for (a, b), capacity in split.bounded().items())
    residual = edmonds_karp(graph, split.source, split.sink)
    flows = {(a, b): float(data["flow"]) for a, b, data in residual.edges(data=True)}
    return {arc: flows[arc] for arc in split.arcs if flows.get(arc, 0.0) > 0.0}


def _by_scipy(split: _Split) -> dict[Link, float]:
    import numpy as np
    from scipy.sparse import coo_array, csr_array
    from scipy.sparse.csgraph import maximum_flow as scipy_maximum_flow

    capacities = split.bounded()
    ends = np.array(list(capacities), dtype=np.int32).reshape(-1, 2)
    values = np.array(list(capacities.values()), dtype=np.int32)
    matrix = csr_array(coo_array((values, (ends[:, 0], ends[:, 1])), shape=(split.count, split.count)))
    flow = scipy_maximum_flow(matrix, split.source, split.sink).flow.tocoo()
    return {
        (int(a), int(b)): float(amount)
        for a, b, amount in zip(flow.row, flow.col, flow.data, strict=True)
        if amount > 0 and (int(a), int(b)) in split.arcs
    }


def _cancel_cycles(on_arcs: dict[Link, float]) -> None:
    """Takes circulations out of a flow, one cycle at a time; each empties an arc."""
    ahead: dict[int, dict[int, float]] = {}
    for (a, b), amount in sorted(on_arcs.items()):
        ahead.setdefault(a, {})[b] = amount
    clean: set[int] = set()
    for start in list(ahead):
        trail: list[int] = [start] if start not in clean else []
        index_of = {start: 0}
        while trail:
            step = next((b for b in ahead.get(trail[-1], ()) if b not in clean), None)
            if step is None:
                clean.add(trail.pop())
                continue
            if step not in index_of or index_of[step] >= len(trail) or trail[index_of[step]] != step:
                index_of[step] = len(trail)
                trail.append(step)
                continue
            cycle = [*trail[index_of[step] :], step]
            arcs = list(itertools.pairwise(cycle))
            least = min(ahead[a][b] for a, b in arcs)
            for a, b in arcs:
                ahead[a][b] -= least
                on_arcs[a, b] = ahead[a][b]
                if ahead[a][b] <= 0.0:
                    del ahead[a][b], on_arcs[a, b]
            del trail[index_of[step] + 1 :]


def _shortest(ahead: dict[int, dict[int, float]], source: int, sink: int) -> tuple[int, ...] | None:
    """Returns a path of fewest steps; None if there is none."""
    before: dict[int, int] = {source: source}
    todo = deque([source])
    while todo:
        node = todo.popleft()
        if node == sink:
            path = [node]
            while path[-1] != source:
                path.append(before[path[-1]])
            return tuple(reversed(path))
        for following in ahead.get(node, ()):
            if following not in before:
                before[following] = node
                todo.append(following)
    return None
