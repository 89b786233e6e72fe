"""Paths of packets through an overlay of limited capacity: maximum flows, single paths and trees.

>>> planner = PathPlanner(CapacityGraph.both_ways([(0, 1, 2.0), (1, 3, 2.0), (0, 2, 1.0), (2, 3, 1.0), (1, 2, 1.0)]))
>>> plan = planner.plan("maximum-flow", 0, [2, 3])
>>> plan.rate_per_s, plan.limits
(3.0, {2: 3.0, 3: 3.0})
>>> Schedule.of(plan, 40).forwarding(0).branches[0]
Branch(neighbour=1, count=27, blocks=((0, 27),))
"""

from surecast.protocol.paths.planner import PathPlanner
from surecast.scenario.paths import (
    PATH_KINDS,
    Block,
    Branch,
    CapacityGraph,
    Flow,
    FlowPath,
    Forwarding,
    Link,
    PathKind,
    PathPlan,
    Schedule,
    apportion,
    decompose,
    maximum_flow,
    shortest_tree,
    tree_plan,
    wide_plan,
    widest_path,
)

__all__ = [
    "PATH_KINDS",
    "Block",
    "Branch",
    "CapacityGraph",
    "Flow",
    "FlowPath",
    "Forwarding",
    "Link",
    "PathKind",
    "PathPlan",
    "PathPlanner",
    "Schedule",
    "apportion",
    "decompose",
    "maximum_flow",
    "shortest_tree",
    "tree_plan",
    "wide_plan",
    "widest_path",
]
