"""Searches for the best placement of brokers for content-based routing."""

from surecast.planning.placement.evaluate import Evaluation, evaluate
from surecast.planning.placement.exhaustive import CASES_MAX, count_placements, plan_placement
from surecast.planning.placement.find import Miss, constraints_of, find_placement, misses, placed_scenario
from surecast.planning.placement.goals import OBJECTIVES, Constraints, pareto_front
from surecast.planning.placement.local import search_placement
from surecast.planning.placement.pieces import kept_placements
from surecast.planning.placement.placement_plan import FRONT, PlacementCase, PlacementPlan, SearchEnd
from surecast.planning.placement.placement_reliability import PlacementReliability
from surecast.planning.placement.problem import PlacementProblem, placement_problem

__all__ = [
    "CASES_MAX",
    "FRONT",
    "OBJECTIVES",
    "Constraints",
    "Evaluation",
    "Miss",
    "PlacementCase",
    "PlacementPlan",
    "PlacementProblem",
    "PlacementReliability",
    "SearchEnd",
    "constraints_of",
    "count_placements",
    "evaluate",
    "find_placement",
    "kept_placements",
    "misses",
    "pareto_front",
    "placed_scenario",
    "placement_problem",
    "plan_placement",
    "search_placement",
]
