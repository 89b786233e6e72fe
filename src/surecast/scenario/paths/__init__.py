"""Paths of packets through an overlay of limited capacity: maximum flows, single paths and trees.

What predictions and the protocol both need: pure functions of a graph, without a planner that follows its changes.

>>> graph = CapacityGraph.both_ways([(0, 1, 2.0), (1, 3, 2.0), (0, 2, 1.0), (2, 3, 1.0), (1, 2, 1.0)])
>>> plan = plan_paths(graph, "maximum-flow", 0, [2, 3])
>>> plan.rate_per_s, plan.limits
(3.0, {2: 3.0, 3: 3.0})
>>> Schedule.of(plan, 40).forwarding(0).branches[0]
Branch(neighbour=1, count=27, blocks=((0, 27),))
"""

from surecast.scenario.paths.flow import Flow, FlowPath, decompose, maximum_flow
from surecast.scenario.paths.graph import CapacityGraph, Link
from surecast.scenario.paths.path_plan import (
    PATH_KINDS,
    PathKind,
    PathPlan,
    plan_paths,
    shortest_tree,
    tree_plan,
    wide_plan,
    widest_path,
)
from surecast.scenario.paths.schedule import Block, Branch, Forwarding, Schedule, apportion

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
    "Schedule",
    "apportion",
    "decompose",
    "maximum_flow",
    "plan_paths",
    "shortest_tree",
    "tree_plan",
    "wide_plan",
    "widest_path",
]
