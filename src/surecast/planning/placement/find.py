"""The way to find a placement: every one evaluated where that is possible, otherwise a search.

A placement can then be a scenario of its own, to predict, simulate, draw or save.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from surecast.documents.units import seconds_of
from surecast.errors import ConfigurationError
from surecast.planning.placement.evaluate import checked_algorithms
from surecast.planning.placement.exhaustive import CASES_MAX, Progress, count_placements, plan_placement
from surecast.planning.placement.goals import Constraints
from surecast.planning.placement.local import search_placement
from surecast.planning.placement.placement_plan import FRONT, PlacementPlan
from surecast.planning.placement.placement_reliability import PlacementReliability
from surecast.planning.placement.problem import PlacementProblem
from surecast.scenario import Scenario, System
from surecast.scenario.build.collect import expand

__all__ = ["constraints_of", "find_placement", "placed_scenario"]


COMPARED_MAX: Final = 20_000
"""Placements up to which the result of a search is compared with the optimum."""


def constraints_of(
    scenario: Scenario,
    *,
    max_delay: str | float | None = None,
    max_subscription_delay: str | float | None = None,
    **limits: float | None,
) -> Constraints:
    """Returns the targets of a scenario as constraints, with the limits that are given in their place."""
    return Constraints.of_targets(
        scenario.targets,
        max_notification_delay_s=seconds_of("`max_delay`", max_delay, is_positive=True),
        max_subscription_delay_s=seconds_of("`max_subscription_delay`", max_subscription_delay, is_positive=True),
        **limits,
    )


def find_placement(
    problem: PlacementProblem,
    scenario: Scenario,
    *,
    objective: str = "worst-delay",
    constraints: Constraints,
    algorithms: Sequence[str] | None = None,
    front: Sequence[str] = FRONT,
    search: bool = False,
    restarts: int = 8,
    evaluations_max: int = 20_000,
    workers: int = 1,
    checkpoint: Path | str | None = None,
    resume: bool = True,
    progress: Progress | None = None,
) -> PlacementPlan:
    """Evaluates all placements where they are few enough, and searches otherwise; the arguments are those of both.

    After a search all are evaluated where that is quick: the plan has them as its `optimum`.
    """
    chosen = checked_algorithms(algorithms)
    reliability = None
    if constraints.min_reliability is not None:
        reliability = PlacementReliability(problem, scenario.system, scenario)
    common: dict[str, Any] = {
        "objective": objective,
        "constraints": constraints,
        "algorithms": chosen,
        "reliability": reliability,
        "progress": progress,
    }
    count = count_placements(problem, constraints)
    if not count:
        cheapest = problem.costs.min()
        raise ConfigurationError(f"`max_cost` {constraints.max_cost:g}: the cheapest broker costs {cheapest:g}")
    if not search and count * len(chosen) <= CASES_MAX:
        return plan_placement(problem, workers=workers, checkpoint=checkpoint, resume=resume, front=front, **common)
    plan = search_placement(
        problem,
        restarts=restarts,
        evaluations_max=evaluations_max,
        exact_max=0,
        seed=scenario.seed,
        front=front,
        **common,
    )
    if count > COMPARED_MAX or problem.plain is not None:
        return plan
    return replace(plan, optimum=plan_placement(problem, front=(objective,), **common))


def placed_scenario(scenario: Scenario, system: System, brokers: Iterable[str]) -> Scenario:
    """Returns the scenario with only the named brokers, each written out at its router; all else is as before.

    >>> from surecast.scenario import build, load_system
    >>> scenario, system = load_system("examples/company.yaml")
    >>> placed = build(placed_scenario(scenario, system, ["office-2", "office-7"]))
    >>> [broker.name for broker in placed.overlay.brokers], len(placed.overlay.links)
    (['office-2', 'office-7'], 1)
    """
    wanted = set(brokers)
    index = system.overlay.index
    for name in sorted(wanted):
        if name not in index:
            raise ConfigurationError(f"there is no broker {name!r} to place; there are: {', '.join(list(index)[:10])}")
    if not wanted or system.network is None:
        raise ConfigurationError("a placement needs at least one broker, in a physical network")
    entries = []
    for entry in scenario.overlay.brokers:
        count = entry.count
        if entry.at == "candidates" and count is None:
            count = len(system.overlay.candidates)
        for name in expand(entry.name, count):
            router = system.overlay.brokers[index[name]].router
            if name in wanted and router is not None:
                router_name = system.network.routers[router].name
                entries.append(entry.model_copy(update={"name": name, "count": None, "at": router_name}))
    overlay = scenario.overlay.model_copy(update={"brokers": entries, "candidates": []})
    return scenario.model_copy(update={"overlay": overlay})
