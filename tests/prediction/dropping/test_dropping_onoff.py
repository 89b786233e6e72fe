"""The closed forms of the on/off queue against the stationary distribution of its truncated chain."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import diags_array, kron
from scipy.sparse.linalg import spsolve

from surecast.errors import AssumptionError, ConfigurationError
from surecast.prediction.dropping import (
    TargetVerdict,
    accepted_rate_per_s,
    arrival_limit_per_s,
    arrival_rate_for,
    join_probability_for,
    mean_number,
    rate_matrix,
    response_mean_s,
    stationary,
    success_share,
)

Array = NDArray[np.float64]
Case = tuple[float, float, float, float, float]

CASES: list[Case] = [
    (2.0, 8.0, 20.0, 20.0, 1.0),
    (2.0, 8.0, 20.0, 20.0, 0.25),
    (3.0, 8.0, 20.0, 20.0, 0.75),
    (0.05, 8.0, 20.0, 20.0, 0.5),
    (5.0, 8.0, 30.0, 7.0, 0.9),
    (0.4, 1.0, 3.0, 2.0, 0.6),
    (2.0, 8.0, 20.0, 20.0, 0.0),
]


def truncated(arrival: float, service: float, on: float, off: float, join: float, levels: int) -> Array:
    """The chain of the paper (its Fig. 3) cut off at a level and solved directly; columns: disconnected, connected."""
    switch = np.array([[-1.0 / off, 1.0 / off], [1.0 / on, -1.0 / on]])
    up, down = np.diag([arrival * join, arrival]), np.diag([0.0, service])
    below_top = diags_array(np.append(np.ones(levels - 1), 0.0))
    above_bottom = diags_array(np.append(0.0, np.ones(levels - 1)))
    shift = diags_array(np.ones(levels - 1), offsets=1, shape=(levels, levels))
    generator = kron(diags_array(np.ones(levels)), switch) + kron(shift, up) + kron(shift.T, down)
    generator = generator - kron(below_top, up) - kron(above_bottom, down)
    matrix = generator.T.tolil()
    matrix[0] = np.ones(2 * levels)
    right = np.zeros(2 * levels)
    right[0] = 1.0
    return np.asarray(spsolve(matrix.tocsc(), right)).reshape(levels, 2)


@pytest.mark.parametrize("case", CASES)
def test_the_distribution_is_that_of_the_truncated_chain(case: Case) -> None:
    """dropping Eqs. 13, 19, 22, 25."""
    levels = 2000
    dumb = truncated(*case, levels)
    found = stationary(*case, levels)
    assert np.abs(found - dumb).max() < 1e-10
    number = float(np.arange(levels) @ dumb.sum(axis=1))
    assert float(mean_number(*case)) == pytest.approx(number, rel=1e-9)
    joins = case[0] * float(dumb.sum(axis=0) @ [case[4], 1.0])
    assert float(accepted_rate_per_s(case[0], *case[2:])) == pytest.approx(joins, rel=1e-9)
    assert float(success_share(*case[2:])) == pytest.approx(joins / case[0], rel=1e-9)
    assert float(response_mean_s(*case)) == pytest.approx(number / joins, rel=1e-9)
    # all that joins is transmitted
    assert case[1] * float(dumb[1:, 1].sum()) == pytest.approx(joins, rel=1e-9)


@pytest.mark.parametrize("case", CASES)
def test_the_rate_matrix_solves_its_equation(case: Case) -> None:
    """dropping Eqs. 8 to 10, 14b."""
    arrival, service, on, off, join = case
    rate = rate_matrix(arrival, service, on, off, join)
    c0, c2 = np.diag([arrival * join, arrival]), np.diag([0.0, service])
    c1 = np.array([[-1.0 / off, 1.0 / off], [1.0 / on, -1.0 / on]]) - c0 - c2
    assert np.abs(c0 + rate @ c1 + rate @ rate @ c2).max() < 1e-12


@pytest.mark.parametrize("case", CASES)
def test_the_short_mean_is_the_printed_one(case: Case) -> None:
    """dropping Eq. 25 with A1 to A3 as printed."""
    lam, mu, on, off, z = case
    a, b, p = 1.0 / on, 1.0 / off, lam / mu
    a1 = p / ((b * (1 - p) - p * z * a) * (lam * z + b) * (a + b))
    a2 = a * (z * (lam + mu + a) + b) * ((lam * z + b) * (1 - p) * (1 - p + p * z) + p * z * (p * a * (1 - z) + b))
    a3 = (z * (lam + a) + b) * (p * a * (lam * z + b) * (1 - p + p * z) + (b - p * z * a) * (p * a * (1 - z) + b))
    assert a1 * (a2 + a3) == pytest.approx(float(mean_number(*case)), rel=1e-10)


def test_without_dropping_the_corrected_equation_holds() -> None:
    """dropping Eq. 27 with p' = lambda / (mu P_ON)."""
    lam, mu, on, off = 2.0, 8.0, 20.0, 30.0
    p_on = on / (on + off)
    load = lam / (mu * p_on)
    expected = (load + lam * off * (1.0 - p_on)) / (1.0 - load)
    assert float(mean_number(lam, mu, on, off)) == pytest.approx(expected, rel=1e-12)


def test_the_stability_limit_is_where_the_queue_explodes() -> None:
    limit = float(arrival_limit_per_s(8.0, 20.0, 30.0, 0.4))
    assert limit == pytest.approx(8.0 / 1.6)
    assert float(mean_number(limit * (1 - 1e-9), 8.0, 20.0, 30.0, 0.4)) > 1e8
    with pytest.raises(AssumptionError, match="unstable"):
        mean_number(limit, 8.0, 20.0, 30.0, 0.4)
    assert np.isinf(mean_number(limit, 8.0, 20.0, 30.0, 0.4, refuse=False))


@given(
    target=st.floats(0.01, 200.0),
    arrival=st.floats(0.01, 20.0),
    service=st.floats(0.1, 20.0),
    on=st.floats(0.1, 100.0),
    off=st.floats(0.1, 100.0),
)
def test_the_join_probability_is_the_largest_that_meets_the_target(
    target: float, arrival: float, service: float, on: float, off: float
) -> None:
    answer = join_probability_for(target, arrival, service, on, off)
    verdict, join = TargetVerdict(int(answer.verdict)), float(answer.join_probability)

    def response(zeta: float) -> float:
        return float(response_mean_s(arrival, service, on, off, zeta, refuse=False))

    if verdict is TargetVerdict.UNSTABLE:
        assert arrival >= service
    elif verdict is TargetVerdict.IMPOSSIBLE:
        assert response(0.0) > target * (1 - 1e-9)
    elif verdict is TargetVerdict.NOT_NEEDED:
        assert join == 1.0
        assert response(1.0) <= target * (1 + 1e-9)
    else:
        assert response(join) == pytest.approx(target, rel=1e-6)
        assert response(min(join * 1.01 + 1e-6, 1.0)) >= response(join)
        # no larger one does: a dumb scan finds none
        scan = np.linspace(join, 1.0, 50)[1:] + 0.0
        assert (response_mean_s(arrival, service, on, off, scan, refuse=False) >= target * (1 - 1e-6)).all()


@given(
    target=st.floats(0.01, 200.0),
    service=st.floats(0.1, 20.0),
    on=st.floats(0.1, 100.0),
    off=st.floats(0.1, 100.0),
    join=st.floats(0.0, 1.0),
)
def test_the_arrival_rate_is_the_largest_that_meets_the_target(
    target: float, service: float, on: float, off: float, join: float
) -> None:
    answer = arrival_rate_for(target, service, on, off, join)
    limit = float(arrival_limit_per_s(service, on, off, join))
    if TargetVerdict(int(answer.verdict)) is TargetVerdict.IMPOSSIBLE:
        rates = limit * np.linspace(1e-6, 0.999, 60)
        assert (response_mean_s(rates, service, on, off, join) > target * (1 - 1e-6)).all()
    else:
        rate = float(answer.arrival_per_s)
        assert 0.0 < rate < limit
        assert float(response_mean_s(rate, service, on, off, join, refuse=False)) == pytest.approx(target, rel=1e-5)


def test_arrays_are_answered_element_by_element() -> None:
    rng = np.random.default_rng(5)
    target, arrival = rng.uniform(1, 30, (4, 1)), rng.uniform(0.1, 7.0, 5)
    answer = join_probability_for(target, arrival, 8.0, 20.0, 20.0)
    assert answer.join_probability.shape == answer.verdict.shape == (4, 5)
    for i in range(4):
        for j in range(5):
            one = join_probability_for(target[i, 0], arrival[j], 8.0, 20.0, 20.0)
            assert np.array_equal(one.join_probability, answer.join_probability[i, j], equal_nan=True)


@pytest.mark.parametrize("wrong", [0.0, -1.0, np.nan, np.inf])
def test_rates_and_times_that_are_none_are_refused_by_name(wrong: float) -> None:
    with pytest.raises(ConfigurationError, match=r"arrival_per_s: .* at index 1 must be above 0"):
        mean_number([1.0, wrong], 8.0, 20.0, 20.0, 1.0)
    with pytest.raises(ConfigurationError, match="target_s"):
        join_probability_for(wrong, 1.0, 8.0, 20.0, 20.0)
    with pytest.raises(ConfigurationError, match=r"join_probability: .* must be between 0 and 1"):
        mean_number(1.0, 8.0, 20.0, 20.0, 1.5)


def test_the_paper_setting() -> None:
    """dropping section IV.A: at zeta = 1 the queue saturates at 4 events/s."""
    assert float(arrival_limit_per_s(8.0, 20.0, 20.0, 1.0)) == 4.0
    # section IV.B: without dropping the response time cannot be less than 10 s
    rates = np.linspace(0.05, 3.9, 20)
    assert (response_mean_s(rates, 8.0, 20.0, 20.0, 1.0) > 10.0).all()
