"""Paths of packets that follow the changes of a network; `surecast.scenario.paths` has the graphs, flows and plans.

>>> from surecast.scenario.paths import CapacityGraph
>>> planner = PathPlanner(CapacityGraph.both_ways([(0, 1, 2.0), (1, 3, 2.0), (0, 2, 1.0), (2, 3, 1.0), (1, 2, 1.0)]))
>>> planner.plan("maximum-flow", 0, [2, 3]).rate_per_s
3.0
"""

from surecast.protocol.paths.planner import PathPlanner

__all__ = ["PathPlanner"]
