"""Placements by rule, and problems at another load."""

from __future__ import annotations

import itertools
import math

import numpy as np
from numpy.typing import NDArray

from surecast.errors import AssumptionError, ConfigurationError
from surecast.planning.placement import PlacementProblem

__all__ = ["at_load", "one_per_domain"]

_MOST = 4096


def at_load(problem: PlacementProblem, subscriptions: float) -> PlacementProblem:
    """Returns the problem with another mean number of active subscriptions; publications stay as frequent.

    >>> from surecast.planning.placement import placement_problem
    >>> from surecast.scenario import load_system
    >>> scenario, system = load_system("examples/company.yaml")
    >>> round(at_load(placement_problem(system, scenario), 1000).active_subscriptions)
    1000
    """
    if not (math.isfinite(subscriptions) and subscriptions > 0.0):
        raise ConfigurationError(f"a load of {subscriptions:g} active subscriptions: it must be above 0 and finite")
    now = problem.active_subscriptions
    if now <= 0.0:
        raise AssumptionError(
            f"{problem.name} has no subscriptions, so there is nothing to scale; give workload.subscriptions.active"
        )
    return problem.scaled(subscriptions=subscriptions / now)


def one_per_domain(problem: PlacementProblem) -> NDArray[np.bool_]:
    """Returns every placement with exactly one broker in each domain that has candidates, a row of booleans each.

    >>> from surecast.planning.placement import placement_problem
    >>> from surecast.scenario import load_system
    >>> scenario, system = load_system("examples/company.yaml")
    >>> one_per_domain(placement_problem(system, scenario)).shape
    (32, 10)
    """
    members: dict[str, list[int]] = {}
    for i, domain in enumerate(problem.domains):
        members.setdefault(domain, []).append(i)
    count = math.prod(len(places) for places in members.values())
    if count > _MOST:
        raise AssumptionError(
            f"{problem.name} has {count:,} placements with one broker in each of its {len(members)} domains; a sweep "
            f"draws at most {_MOST:,} of them"
        )
    chosen = list(itertools.product(*members.values()))
    placements = np.zeros((len(chosen), len(problem.candidates)), dtype=np.bool_)
    for row, places in enumerate(chosen):
        placements[row, list(places)] = True
    return placements
