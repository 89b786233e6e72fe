"""What a placement problem takes from a scenario, and which scenarios it refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surecast.errors import AssumptionError, ConfigurationError
from surecast.planning.placement import placed_scenario, placement_problem
from surecast.scenario import Scenario, System, build, load_system
from surecast.scenario.spec.overlay import BuiltLinks

Make = Callable[..., tuple[Scenario, System]]


def changed(scenario: Scenario, part: str, **fields: Any) -> Scenario:
    return scenario.model_copy(update={part: getattr(scenario, part).model_copy(update=fields)})


def test_coinciding_classes_are_one(offices: Make, repository: Path) -> None:
    scenario, system = load_system(repository / "examples" / "company.yaml")
    problem = placement_problem(system, scenario)
    assert problem.copies.sum() == 500
    assert len(problem.copies) == 5
    assert len(problem.kinds) == 1
    assert system.class_workload is not None
    assert (problem.publications @ problem.copies).sum() == pytest.approx(500.0)
    scenario, system = offices()
    problem = placement_problem(system, scenario)
    assert len(problem.copies) == 13
    assert len(problem.kinds) > 1
    total = system.class_workload.subscription_rate_per_s.sum() if system.class_workload else 0.0
    assert (problem.subscriptions @ problem.copies).sum() == pytest.approx(total)


def test_costs(offices: Make) -> None:
    scenario, system = offices()
    names = [broker.name for broker in system.overlay.brokers]
    assert placement_problem(system, scenario, costs=2.5).costs.tolist() == [2.5] * 6
    by_name = placement_problem(system, scenario, costs={name: i + 1.0 for i, name in enumerate(names)})
    assert by_name.costs.tolist() == [1, 2, 3, 4, 5, 6]
    for costs, said in (({"x": 1.0}, "no broker 'x'"), ({names[0]: 1.0}, "has none"), (-1.0, "negative")):
        with pytest.raises(ConfigurationError, match=said):
            placement_problem(system, scenario, costs=costs)


def test_refusals(offices: Make) -> None:
    scenario, system = offices()
    client = scenario.workload.clients[0].model_copy(update={"home": "random"})
    at_random = changed(scenario, "workload", clients=[client])
    with pytest.raises(AssumptionError, match="clients client are at home at 'random'"):
        placement_problem(build(at_random), at_random)
    assert isinstance(scenario.overlay.links, BuiltLinks)
    star = changed(scenario, "overlay", links=scenario.overlay.links.model_copy(update={"build": "star"}))
    with pytest.raises(AssumptionError, match="spanning tree"):
        placement_problem(build(star), star)
    named = changed(scenario, "overlay", root="office-2")
    with pytest.raises(ConfigurationError, match=r"overlay.root is 'office-2'.*use central or first"):
        placement_problem(build(named), named)
    assert placement_problem(build(named), named, root="first").central is False
    placed = placed_scenario(scenario, system, ["office-1", "office-2"])
    with pytest.raises(AssumptionError, match="no candidates"):
        placement_problem(build(placed), placed)
    elsewhere = [broker.model_copy(update={"at": None, "count": 6, "name": "x"}) for broker in scenario.overlay.brokers]
    away = changed(scenario, "overlay", brokers=elsewhere)
    with pytest.raises(AssumptionError, match=r"broker x-\d does not stand at a candidate router"):
        placement_problem(build(away), away)


def test_refuses_wrong_arrays(offices: Make) -> None:
    scenario, system = offices(matching=", matching: index")
    assert placement_problem(system, scenario, entry_services=np.full((6, 2), 1e-7)).is_compiled
    with pytest.raises(ConfigurationError, match="entry_services must have a row of two numbers"):
        placement_problem(system, scenario, entry_services=np.zeros((5, 2)))
    with pytest.raises(ConfigurationError, match="statistics_of must name one of the 1 groups"):
        placement_problem(system, scenario, statistics_of=[1] * 13)


def test_a_placed_scenario_is_a_file_of_its_own(offices: Make) -> None:
    from surecast.scenario import parse_text

    scenario, system = offices()
    placed = placed_scenario(scenario, system, ["office-5", "office-2"])
    again = build(parse_text(placed.to_yaml()))
    assert [broker.name for broker in again.overlay.brokers] == ["office-2", "office-5"]
    for broker in again.overlay.brokers:
        assert broker == system.overlay.brokers[system.overlay.index[broker.name]]
    with pytest.raises(ConfigurationError, match="no broker 'nowhere'"):
        placed_scenario(scenario, system, ["nowhere"])
