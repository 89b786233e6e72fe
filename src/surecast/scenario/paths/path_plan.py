"""The paths of an event's packets from its publisher's broker to those of its subscribers.

Three choices: a tree (of shortest paths, or a given one), one path for each subscriber (the widest), or a maximum flow
to each. Maximum flows to several sinks are a choice for *coding*: every sink then receives at the multicast capacity,
the minimum of their maximum flows, with each link carrying no more than the largest flow any one sink has on it.
Forwarding without coding has to send each sink its own packets, and does not reach this rate in general.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from surecast.errors import ConfigurationError, refuse_unknown
from surecast.scenario.paths.flow import Flow, FlowPath, decompose, maximum_flow
from surecast.scenario.paths.graph import CapacityGraph, Link

__all__ = [
    "PATH_KINDS",
    "PathKind",
    "PathPlan",
    "flow_plan",
    "plan_paths",
    "shortest_tree",
    "tree_plan",
    "truncate",
    "wide_plan",
    "widest_path",
]

PathKind: TypeAlias = Literal["tree", "single-path", "maximum-flow"]
PATH_KINDS: Final[tuple[PathKind, ...]] = ("tree", "single-path", "maximum-flow")


@dataclass(frozen=True, slots=True)
class PathPlan:
    """Paths to every sink that can be reached, each sink's rates adding up to `rate_per_s`.

    `rate_per_s` is the multicast capacity for maximum flow, and what the narrowest link of all paths carries for the
    others; it is infinite where no link has a capacity. `limits` says what could flow to each sink alone.
    """

    kind: PathKind
    source: int
    rate_per_s: float
    paths: dict[int, tuple[FlowPath, ...]]
    limits: dict[int, float]
    unreachable: tuple[int, ...] = ()

    @property
    def sinks(self) -> tuple[int, ...]:
        return tuple(self.paths)

    def sink_links(self, sink: int) -> dict[Link, float]:
        """Returns the flow to one sink on each link."""
        total: dict[Link, float] = {}
        for path in self.paths[sink]:
            for link in path.links:
                total[link] = total.get(link, 0.0) + path.rate_per_s
        return total

    def coded_links(self) -> dict[Link, float]:
        """Returns the links that carry the multicast, and how much with coding: the largest flow of any sink on each.

        >>> two_ways = (FlowPath((0, 1, 3), 2.0), FlowPath((0, 2, 3), 1.0))
        >>> PathPlan("maximum-flow", 0, 3.0, {3: two_ways}, {3: 3.0}).coded_links()
        {(0, 1): 2.0, (1, 3): 2.0, (0, 2): 1.0, (2, 3): 1.0}
        """
        most: dict[Link, float] = {}
        for sink in self.paths:
            for link, rate_per_s in self.sink_links(sink).items():
                most[link] = max(most.get(link, 0.0), rate_per_s)
        return most


def plan_paths(
    graph: CapacityGraph,
    kind: PathKind,
    source: int,
    sinks: Iterable[int],
    flow: Callable[[CapacityGraph, int, int], Flow] = maximum_flow,
) -> PathPlan:
    """Paths of one kind from a source to some sinks. A sink at the source itself needs no path.

    >>> square = CapacityGraph.both_ways([(0, 1, 2.0), (1, 3, 2.0), (0, 2, 1.0), (2, 3, 1.0)])
    >>> [plan_paths(square, kind, 0, [3]).rate_per_s for kind in PATH_KINDS]
    [2.0, 2.0, 3.0]
    """
    refuse_unknown("kind of paths", [kind], PATH_KINDS)
    wanted = sorted(set(sinks) - {source})
    if kind == "tree":
        return tree_plan(graph, source, wanted, shortest_tree(graph, source, wanted))
    if kind == "single-path":
        return wide_plan(graph, source, wanted)
    return flow_plan(source, {sink: flow(graph, source, sink) for sink in wanted})


def flow_plan(source: int, flows: Mapping[int, Flow]) -> PathPlan:
    """Returns the plan of coded delivery: every sink gets the multicast capacity, the minimum of the maximum flows."""
    limits = {sink: flow.rate_per_s for sink, flow in flows.items() if flow.rate_per_s > 0.0}
    rate_per_s = min(limits.values(), default=0.0)
    paths = {sink: truncate(decompose(flows[sink]), rate_per_s) for sink in limits}
    unreachable = tuple(sink for sink in flows if sink not in limits)
    return PathPlan("maximum-flow", source, rate_per_s, paths, limits, unreachable)


def truncate(paths: tuple[FlowPath, ...], rate_per_s: float) -> tuple[FlowPath, ...]:
    """Returns the first of some paths that together carry a rate.

    >>> truncate((FlowPath((0, 1), 3.0), FlowPath((0, 2, 1), 3.0)), 4.0)
    (FlowPath(nodes=(0, 1), rate_per_s=3.0), FlowPath(nodes=(0, 2, 1), rate_per_s=1.0))
    """
    truncated: list[FlowPath] = []
    left = rate_per_s
    for path in paths:
        if left <= rate_per_s * 1e-9:
            break
        truncated.append(FlowPath(path.nodes, min(path.rate_per_s, left)))
        left -= path.rate_per_s
    return tuple(truncated)


def widest_path(graph: CapacityGraph, source: int, sink: int) -> FlowPath | None:
    """Returns the path whose narrowest link or node is widest, of fewest links among those; None if there is none.

    >>> graph = CapacityGraph({(0, 1): 1.0, (0, 2): 9.0, (2, 1): 4.0})
    >>> widest_path(graph, 0, 1)
    FlowPath(nodes=(0, 2, 1), rate_per_s=4.0)
    """
    ahead = _neighbours(graph)
    width = _reach(graph, ahead, source, None).get(sink, (0.0, 0, ()))[0]
    if width == 0.0:
        return None
    # Among the paths of this width the shortest need not be of the widest beginnings, so it is searched on its own.
    _, _, nodes = _reach(graph, ahead, source, width)[sink]
    return FlowPath(nodes, width)


def wide_plan(graph: CapacityGraph, source: int, sinks: Iterable[int]) -> PathPlan:
    """Returns one path for each sink, at the best rate that one path for each can have.

    All paths carry every packet, so the sink with the narrowest widest path decides the rate. Links that carry it are
    wide enough for all; on these the shortest paths are taken, which form a tree, so that no node gets a packet twice.

    >>> wide_plan(CapacityGraph({(0, 1): 1.0, (0, 2): 9.0, (2, 1): 4.0}), 0, [1, 2]).paths[1]
    (FlowPath(nodes=(0, 2, 1), rate_per_s=4.0),)
    """
    ahead = _neighbours(graph)
    widest = _reach(graph, ahead, source, None)
    wanted = list(sinks)
    limits = {sink: widest[sink][0] for sink in wanted if sink in widest}
    reached = _reach(graph, ahead, source, min(limits.values(), default=0.0))
    return plan_of("single-path", graph, source, {s: reached[s][2] if s in reached else None for s in wanted}, limits)


def shortest_tree(graph: CapacityGraph, source: int, sinks: Iterable[int]) -> set[Link]:
    """Returns the links of shortest paths, by number of links, from a source to some sinks, directed away from the
    source.

    >>> sorted(shortest_tree(CapacityGraph.both_ways([(0, 1, 1.0), (1, 2, 1.0), (0, 2, 1.0)]), 0, [1, 2]))
    [(0, 1), (0, 2)]
    """
    reached = _reach(graph, _neighbours(graph), source, 0.0)
    paths = [reached[sink][2] for sink in sinks if sink in reached]
    return {link for nodes in paths for link in itertools.pairwise(nodes)}


def tree_plan(graph: CapacityGraph, source: int, sinks: Iterable[int], tree: Iterable[Link]) -> PathPlan:
    """Returns the plan along the links of a given tree, whichever way they are written.

    >>> graph = CapacityGraph.both_ways([(0, 1, 5.0), (1, 2, 3.0)])
    >>> tree_plan(graph, 0, [1, 2], [(0, 1), (2, 1)]).rate_per_s
    3.0
    """
    beside: dict[int, set[int]] = {}
    for a, b in tree:
        beside.setdefault(a, set()).add(b)
        beside.setdefault(b, set()).add(a)
    way: dict[int, tuple[int, ...]] = {source: (source,)}
    todo = [source]
    while todo:
        node = todo.pop()
        for other in sorted(beside.get(node, ())):
            if other in way:
                if len(way[node]) < 2 or way[node][-2] != other:
                    raise ConfigurationError(f"tree from node {source}: its links close a cycle at node {other}")
            elif graph.capacity(node, other) > 0.0 and graph.node_capacity(other) > 0.0:
                way[other] = (*way[node], other)
                todo.append(other)
    return plan_of("tree", graph, source, {sink: way.get(sink) for sink in sinks})


def plan_of(
    kind: PathKind,
    graph: CapacityGraph,
    source: int,
    ways: dict[int, tuple[int, ...] | None],
    limits: dict[int, float] | None = None,
) -> PathPlan:
    """Returns the plan of one path for each sink: all of them carry every packet, so the narrowest of all limits the
    rate."""
    if limits is None:
        limits = {sink: _width(graph, nodes) for sink, nodes in ways.items() if nodes is not None}
    rate_per_s = min(limits.values(), default=0.0)
    paths: dict[int, tuple[FlowPath, ...]] = {
        sink: (FlowPath(nodes, rate_per_s),) for sink, nodes in ways.items() if nodes is not None
    }
    unreachable = tuple(sink for sink, nodes in ways.items() if nodes is None)
    return PathPlan(kind, source, rate_per_s, paths, limits, unreachable)


def _width(graph: CapacityGraph, nodes: tuple[int, ...]) -> float:
    links = [graph.capacity(a, b) for a, b in itertools.pairwise(nodes)]
    return min([*links, *(graph.node_capacity(node) for node in nodes)], default=math.inf)


def _neighbours(graph: CapacityGraph) -> dict[int, list[tuple[int, float]]]:
    """Returns the next nodes of each node, with the capacity of the link and the node behind it."""
    ahead: dict[int, list[tuple[int, float]]] = {}
    for (a, b), capacity_per_s in graph.links():
        ahead.setdefault(a, []).append((b, min(capacity_per_s, graph.node_capacity(b))))
    return ahead


def _reach(
    graph: CapacityGraph, ahead: dict[int, list[tuple[int, float]]], source: int, least: float | None
) -> dict[int, tuple[float, int, tuple[int, ...]]]:
    """Returns width, length and nodes of the best path to every node: the widest, or the shortest of at least some
    width."""
    first = graph.node_capacity(source)
    if first == 0.0:
        return {}
    best: dict[int, tuple[float, int, tuple[int, ...]]] = {}
    todo: list[tuple[float, int, tuple[int, ...], float]] = [(0.0, 0, (source,), first)]
    while todo:
        _, length, nodes, width = heapq.heappop(todo)
        if nodes[-1] in best:
            continue
        best[nodes[-1]] = (width, length, nodes)
        for node, capacity_per_s in ahead.get(nodes[-1], ()):
            if node in best or capacity_per_s <= 0.0 or (least is not None and capacity_per_s < least):
                continue
            narrowest = min(width, capacity_per_s)
            key = -narrowest if least is None else 0.0
            heapq.heappush(todo, (key, length + 1, (*nodes, node), narrowest))
    return best
