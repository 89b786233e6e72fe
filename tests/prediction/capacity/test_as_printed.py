"""Merging with the probability that the paper prints, and routing algorithms of one's own in placements."""

from __future__ import annotations

import math

import numpy as np
import pytest

from surecast import Scenario
from surecast.planning.placement import evaluate, placement_problem
from surecast.planning.sweeps import count_optimal
from surecast.prediction import predict_capacity
from surecast.prediction.capacity import RoutingLaw, register_routing, unregister_routing
from surecast.prediction.capacity.filter_probabilities import (
    AS_PRINTED,
    notification_probability,
    printed_subscription_probability,
    remote_entries,
    subscription_probability,
)

FOUR = [f"peer-to-peer {how}" for how in ("covering", "merging", AS_PRINTED)]


def poisson_mean(x: float, corrected: bool) -> float:
    """capacity Eq. 20 term by term: p_s(k) as printed, (4k+1) / (2k+1)², or right, (4k+1) / ((k+1)(2k+1))."""
    term, total = math.exp(-x), 0.0
    for k in range(int(x + 40.0 * math.sqrt(x) + 60.0)):
        total += term * (4 * k + 1) / ((k + 1 if corrected else 2 * k + 1) * (2 * k + 1))
        term *= x / (k + 1)
    return total


@pytest.mark.parametrize("x", [0.0, 0.3, 1.0, 12.0, 150.0, 199.0, 201.0, 400.0, 650.0])
def test_the_printed_probability_is_the_sum_over_the_poisson_distribution(x: float) -> None:
    assert float(printed_subscription_probability(np.array([x]))[0]) == pytest.approx(poisson_mean(x, False), rel=1e-6)
    assert float(subscription_probability("merging", x)) == pytest.approx(poisson_mean(x, True), rel=1e-9)


def test_as_printed_misses_half_of_the_control_traffic_of_merging() -> None:
    many = np.array([200.0, 5000.0])
    ratio = printed_subscription_probability(many) / subscription_probability("merging", many)
    assert ratio == pytest.approx([0.5, 0.5], abs=0.01)


@pytest.fixture(scope="module")
def company() -> Scenario:
    return Scenario.load("examples/company.yaml")


def test_prediction_takes_it_by_name_and_never_by_default(company: Scenario) -> None:
    report = predict_capacity(company.system, FOUR)
    assert report.variants == tuple(FOUR)
    problem = placement_problem(company.system, company)
    control = evaluate(problem, [0b1111111111], FOUR[1:], headroom=False).control_rate_per_s[0]
    assert control[1] < 0.75 * control[0]
    assert not any(AS_PRINTED in name for name in predict_capacity(company.system).variants)


def test_placements_take_an_algorithm_of_ones_own(company: Scenario) -> None:
    """One with the laws of merging has the figures of merging, in whatever order it is asked for."""
    register_routing(
        "mine",
        RoutingLaw(
            lambda x: notification_probability("merging", x),
            lambda x: subscription_probability("merging", x),
            lambda x: remote_entries("merging", x),
        ),
    )
    try:
        problem = placement_problem(company.system, company).scaled(subscriptions=0.1)
        names = ["hierarchical mine", "peer-to-peer merging", "peer-to-peer mine", "hierarchical merging"]
        found = evaluate(problem, [0b1, 0b1010011, 0b1111111111], names)
        for name in ("notification_delay_worst_s", "utilisation", "control_rate_per_s", "headroom_factor"):
            figures = getattr(found, name)
            assert figures[:, 0] == pytest.approx(figures[:, 3], rel=1e-6, nan_ok=True), name
            assert figures[:, 2] == pytest.approx(figures[:, 1], rel=1e-6, nan_ok=True), name
    finally:
        unregister_routing("mine")


def test_as_printed_merging_wins_more_placements_at_low_load(company: Scenario) -> None:
    """As in the paper's Figure 6: with half of its control traffic left out it is best where covering is."""
    problem = placement_problem(company.system, company).scaled(publications=0.2)
    right = count_optimal(problem, 100.0, FOUR[:2])
    printed = count_optimal(problem, 100.0, [FOUR[0], FOUR[2]])
    assert right[0] > 900
    assert printed[1] > 900
