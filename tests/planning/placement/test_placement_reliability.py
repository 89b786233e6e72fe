"""The reliability of placements against the reliability model of the system that each placement makes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from surecast.planning.placement import (
    Constraints,
    PlacementReliability,
    placed_scenario,
    placement_problem,
    plan_placement,
    search_placement,
)
from surecast.prediction import predict_reliability
from surecast.scenario import Publisher, Scenario, Subscriber, System, Topic, build

Make = Callable[..., tuple[Scenario, System]]


def worst_client(scenario: Scenario, system: System, names: list[str]) -> float:
    """Every client as a publisher with a topic of its own, and one subscriber for each pair of clients."""
    built = build(placed_scenario(scenario, system, names))
    workload = built.class_workload
    assert workload is not None
    clients = range(len(workload.clients))
    topics = tuple(Topic(str(i), 1.0) for i in clients)
    flat = replace(
        built,
        topics=topics,
        publishers=tuple(Publisher(str(i), workload.client_home[i], (str(i),), 1.0, 60.0) for i in clients),
        subscribers=tuple(Subscriber(f"{j}/{i}", workload.client_home[j], (str(i),)) for j in clients for i in clients),
        overlay=replace(built.overlay, trees={t.name: tuple(range(len(built.overlay.links))) for t in topics}),
    )
    scheme = scenario.delivery.fault_tolerance.scheme
    found = predict_reliability(flat, [scheme]).values("reliability", scope="subscriber", variant=scheme)
    weight = workload.subscription_rate_per_s.T @ workload.publication_rate_per_s
    served = [j for j in clients if weight[j].sum() > 0]
    return min(float(sum(weight[j, i] * found[f"{j}/{i}"] for i in clients) / weight[j].sum()) for j in served)


@pytest.mark.parametrize("scheme", ["none", "periodic-subscription", "buffering", "bypass", "bypass-buffering"])
def test_the_worst_client_is_that_of_the_reliability_model(offices: Make, scheme: str) -> None:
    scenario, system = offices(scheme=scheme)
    problem = placement_problem(system, scenario)
    reliability = PlacementReliability(problem, system, scenario)
    masks = np.array([[n >> i & 1 == 1 for i in range(6)] for n in (0b100, 0b11, 0b110110)])
    found = reliability.worst(masks)
    for mask, value in zip(masks, found, strict=True):
        names = [name for name, chosen in zip(problem.candidates, mask, strict=True) if chosen]
        assert value == pytest.approx(worst_client(scenario, system, names), abs=1e-9)


def test_a_target_rules_placements_out(offices: Make) -> None:
    scenario, system = offices(scheme="buffering")
    problem = placement_problem(system, scenario)
    reliability = PlacementReliability(problem, system, scenario)
    free = plan_placement(problem, objective="headroom", reliability=reliability)
    values = free.reliability[np.isfinite(free.reliability)]
    target = float(np.quantile(values, 0.9))
    limits = Constraints(min_reliability=target)
    plan = plan_placement(problem, objective="headroom", constraints=limits, reliability=reliability)
    assert plan.best is not None
    assert plan.best.reliability is not None
    assert plan.best.reliability >= target
    assert 0 < plan.feasible_count < free.feasible_count
    near = search_placement(
        problem, objective="headroom", constraints=limits, reliability=reliability, exact_max=0, restarts=4
    )
    assert near.best == plan.best
