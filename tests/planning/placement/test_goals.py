"""Constraints, the best case and the Pareto front."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from surecast.errors import ConfigurationError
from surecast.planning.placement import Constraints, evaluate, pareto_front, placement_problem
from surecast.planning.placement.goals import best_case, losses, violations
from surecast.scenario import Scenario, System

Make = Callable[..., tuple[Scenario, System]]


@given(arrays(np.float64, st.tuples(st.integers(0, 30), st.integers(1, 4)), elements=st.integers(0, 5).map(float)))
def test_the_front_by_comparing_all_pairs(points: np.ndarray) -> None:
    front = set(pareto_front(points).tolist())
    for i, row in enumerate(points):
        beaten = any((other <= row).all() and (other < row).any() for other in points)
        first = not any((other == row).all() for other in points[:i])
        assert (i in front) == (not beaten and first)


def test_the_front_of_allowed_rows_only() -> None:
    points = np.array([[1.0, 1.0], [2.0, 2.0], [np.inf, 0.0], [-np.inf, 9.0]])
    assert pareto_front(points, np.array([False, True, True, True])).tolist() == [1, 3]


def test_ties_go_to_the_next_loss_and_then_to_the_first() -> None:
    loss = np.array([[2.0, 1.0 + 1e-13], [1.0, np.inf]])
    cost = np.array([[0.0, 1.0], [3.0, 0.0]])
    allowed = np.ones((2, 2), dtype=np.bool_)
    assert best_case([loss, cost], allowed) == (0, 1)
    assert best_case([loss], allowed) == (0, 1)
    assert best_case([np.full((2, 2), np.inf)], allowed) is None
    assert best_case([loss], ~allowed) is None


def test_violations_are_zero_where_every_limit_is_kept(offices: Make) -> None:
    scenario, system = offices(capacity="[60/s, 150/s]")
    found = evaluate(placement_problem(system, scenario), range(1, 64))
    assert 0 < found.overloaded.sum() < found.overloaded.size
    limits = Constraints(
        max_utilisation=0.9,
        max_notification_delay_s=0.2,
        max_subscription_delay_s=0.15,
        min_headroom=1.05,
        max_brokers=5,
    )
    kept = (
        ~found.overloaded
        & (found.utilisation <= 0.9)
        & (np.nan_to_num(found.notification_delay_worst_s) <= 0.2)
        & (np.nan_to_num(found.subscription_delay_worst_s) <= 0.15)
        & (found.headroom_factor >= 1.05)
        & (found.brokers <= 5)[:, None]
    )
    assert 0 < kept.sum() < kept.size
    assert np.array_equal(violations(found, limits) == 0.0, kept)
    assert np.isinf(losses(found, "worst-delay")[found.overloaded]).all()
    assert (losses(found, "headroom") == -found.headroom_factor).all()


def test_limits_must_make_sense() -> None:
    with pytest.raises(ConfigurationError, match="`max_brokers` 0: give a number above 0"):
        Constraints(max_brokers=0)
    with pytest.raises(ConfigurationError, match="a share is at most 1"):
        Constraints(min_reliability=1.5)
