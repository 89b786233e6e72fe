"""Plans that follow the network: flows are kept while they stay maximal, and found anew when they do not."""

from __future__ import annotations

from collections.abc import Iterable

from surecast.scenario.paths import CapacityGraph, Flow, PathKind, PathPlan, maximum_flow, plan_paths

__all__ = ["PathPlanner"]


class PathPlanner:
    """Paths in a network whose capacities change and whose parts fail. `revision` counts the changes.

    Changes go through the planner. A maximum flow stays one as long as no link gets less than the flow on it, and none
    that it fills gets more: a minimum cut holds only filled links, so its capacity stays what it was.

    >>> planner = PathPlanner(CapacityGraph.both_ways([(0, 1, 2.0), (1, 3, 2.0), (0, 2, 1.0), (2, 3, 1.0)]))
    >>> planner.plan("maximum-flow", 0, [3]).rate_per_s
    3.0
    >>> planner.fail_link(0, 2)
    >>> planner.plan("maximum-flow", 0, [3]).rate_per_s, planner.flows_found
    (2.0, 2)
    """

    def __init__(self, graph: CapacityGraph, flows_max: int = 10_000):
        self.graph = graph
        self.flows_max = flows_max
        self.revision = 0
        self.flows_found = 0
        self._flows: dict[tuple[int, int], Flow] = {}

    def set_link(self, a: int, b: int, capacity_per_s: float) -> None:
        """A link has a new capacity."""
        before = self.graph.capacity(a, b)
        self.graph.set_link(a, b, capacity_per_s)
        self._link_changed(a, b, before)

    def fail_link(self, a: int, b: int) -> None:
        """One direction of a link fails."""
        before = self.graph.capacity(a, b)
        self.graph.fail_link(a, b)
        self._link_changed(a, b, before)

    def restore_link(self, a: int, b: int) -> None:
        """One direction of a link works again."""
        before = self.graph.capacity(a, b)
        self.graph.restore_link(a, b)
        self._link_changed(a, b, before)

    def set_node(self, node: int, capacity_per_s: float) -> None:
        """A node has a new capacity."""
        self.graph.set_node(node, capacity_per_s)
        self._node_changed(node, more=True)

    def fail_node(self, node: int) -> None:
        """A node fails, and with it all its links."""
        self.graph.fail_node(node)
        self._node_changed(node, more=False)

    def restore_node(self, node: int) -> None:
        """A node works again."""
        self.graph.restore_node(node)
        self._node_changed(node, more=True)

    def flow(self, source: int, sink: int) -> Flow:
        """The maximum flow between two nodes, found anew only if the network gave reason to."""
        key = (source, sink)
        flow = self._flows.get(key)
        if flow is None:
            flow = self._flows[key] = maximum_flow(self.graph, source, sink)
            self.flows_found += 1
            if len(self._flows) > self.flows_max:
                del self._flows[next(iter(self._flows))]
        return flow

    def plan(self, kind: PathKind, source: int, sinks: Iterable[int]) -> PathPlan:
        """Paths of one kind from a source to some sinks. A sink at the source itself needs no path."""
        return plan_paths(self.graph, kind, source, sinks, lambda _, a, b: self.flow(a, b))

    def _link_changed(self, a: int, b: int, before_per_s: float) -> None:
        now_per_s = self.graph.capacity(a, b)
        if now_per_s == before_per_s:
            return
        self.revision += 1
        kept = {}
        for key, flow in self._flows.items():
            used = flow.links.get((a, b), 0.0)
            # Where rounding could hide that a link is full, the minimum cut says so.
            if used <= now_per_s and (now_per_s < before_per_s or (used < before_per_s and (a, b) not in flow.cut)):
                kept[key] = flow
        self._flows = kept

    def _node_changed(self, node: int, more: bool) -> None:
        """A node that works better may matter to any flow; one that fails, to those through it."""
        self.revision += 1
        if more:
            self._flows.clear()
            return
        touched = {key for key, flow in self._flows.items() if any(node in link for link in flow.links)}
        self._flows = {k: f for k, f in self._flows.items() if k not in touched and node not in k}
