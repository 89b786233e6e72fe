"""Simulated queues against what is known of them: M/M/1, the ON/OFF queue, and Markov chains solved outright."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.linalg import null_space

from surecast.errors import AssumptionError, ConfigurationError
from surecast.scenario import parse_distribution
from surecast.scenario.mechanism import Mechanism
from surecast.simulation.dropping import QueueSweep, simulate_queue
from surecast.simulation.dropping.queue_kernel import OVERFLOW
from surecast.simulation.dropping.queue_sweep import QueueEstimate


def agrees(estimate: QueueEstimate, exact: object, relative: float) -> None:
    """The interval is as narrow as it should be, and the exact value within one and a half of its half-widths."""
    value = np.asarray(exact, dtype=float)
    assert (estimate.half_width <= relative * value).all(), estimate.half_width / value
    assert (np.abs(estimate.value - value) <= 1.5 * estimate.half_width + 1e-12).all(), (estimate, value)


def test_always_connected_it_is_the_m_m_1_queue() -> None:
    rates = np.array([1.0, 4.0, 6.0])
    result = simulate_queue(rates, 8.0, None, None, runs=10, duration_s=20_000, warm_up_s=100, seed=1)
    agrees(result.response_mean_s, 1 / (8.0 - rates), 0.03)
    agrees(result.queue_length_mean, rates / (8.0 - rates), 0.03)
    agrees(result.utilisation, rates / 8.0, 0.01)
    np.testing.assert_array_equal(result.success_share.value, 1.0)
    # The response time of the M/M/1 queue is exponential.
    for share in (0.5, 0.9, 0.99):
        exact = -math.log1p(-share) / (8.0 - rates)
        np.testing.assert_allclose(result.response_quantile_s(share), exact, rtol=0.03)


def test_general_service_times_give_pollaczek_khinchine() -> None:
    fixed = parse_distribution("deterministic")
    result = simulate_queue(6.0, 8.0, None, None, service=fixed, duration_s=20_000, warm_up_s=100, seed=1)
    agrees(result.response_mean_s, 1 / 8 + 6 / 64 / 2 / (1 - 6 / 8), 0.02)


@pytest.mark.parametrize("zeta", [0.25, 0.5, 0.75, 1.0])
def test_probabilistic_on_off_queue(zeta: float) -> None:
    """dropping Eqs. 25, 28 in their short form: E(n) with r = T_OFF / T_ON."""
    rates, mu, t_off, t_on = np.array([0.5, 2.0, 3.0]), 8.0, 15.0, 20.0
    r, off = t_off / t_on, t_off / (t_on + t_off)
    loaded = rates * (1 + zeta * r)
    number = (loaded + rates**2 * zeta**2 * r * t_off) / (mu - loaded) + rates * zeta * t_off * off
    joined = rates * (1 - off * (1 - zeta))
    mechanism = Mechanism(join_probability=zeta)
    result = simulate_queue(rates, mu, t_on, t_off, mechanism, runs=20, duration_s=50_000, warm_up_s=1000, seed=2)
    agrees(result.queue_length_mean, number, 0.06)
    agrees(result.response_mean_s, number / joined, 0.06)
    agrees(result.success_share, joined / rates, 0.02)
    if zeta < 1:
        agrees(result.join_probability, np.full(3, zeta), 0.02)


def test_input_queue_adds_its_mean_to_the_delay() -> None:
    """dropping Eq. 1."""
    result = simulate_queue([2.0, 6.0], 8.0, None, None, input_per_s=16.0, duration_s=20_000, warm_up_s=100, seed=3)
    both = result.delay_mean_s.value - result.response_mean_s.value
    np.testing.assert_allclose(both, 1 / (16.0 - np.array([2.0, 6.0])), rtol=0.02)


def chain(rate: float, mu: float, t_on: float, t_off: float, mechanism: Mechanism, levels: int) -> dict[str, float]:
    """Stationary figures of the chain (state, number) with exponential lifetimes, by solving all its equations."""
    theta = 1.0 / mechanism.lifetime_s
    size = mechanism.buffer_size or levels
    rows = mechanism.join_table or ((mechanism.join_probability,), (1.0,))
    index = {(s, n): 2 * n + s for n in range(levels + 1) for s in (0, 1)}
    q = np.zeros((len(index), len(index)))

    def joins(s: int, n: int) -> float:
        if mechanism.protect_connected and s == 1:
            return 1.0
        return rows[s][min(n, len(rows[s]) - 1)] if n < size else 0.0

    for (s, n), i in index.items():
        q[i, index[1 - s, n]] += 1 / t_on if s else 1 / t_off
        if n < levels:
            q[i, index[s, n + 1]] += rate * joins(s, n)
        if n > 0:
            q[i, index[s, n - 1]] += (mu if s else 0.0) + n * theta
    np.fill_diagonal(q, q.diagonal() - q.sum(axis=1))
    p = null_space(q.T)[:, 0]
    p = p / p.sum()
    transmitted = mu * sum(p[index[1, n]] for n in range(1, levels + 1))
    on = t_on / (t_on + t_off)
    return {
        "success_share": transmitted / rate,
        "queue_length_mean": sum(n * p[i] for (_, n), i in index.items()),
        "utilisation": transmitted / mu,
        "join_probability": sum(p[index[0, n]] * joins(0, n) for n in range(levels + 1)) / (1 - on),
        "overflow": sum(p[i] for (s, n), i in index.items() if n >= size),
    }


@pytest.mark.parametrize(
    "mechanism",
    [
        Mechanism(buffer_size=12),
        Mechanism(join_probability=0.6, buffer_size=20),
        Mechanism(lifetime_s=15.0, lifetime_distribution="exponential"),
        Mechanism(join_probability=0.5, lifetime_s=20.0, lifetime_distribution="exponential"),
        Mechanism(join_probability=0.7, buffer_size=15, lifetime_s=20.0, lifetime_distribution="exponential"),
        Mechanism(buffer_size=10, protect_connected=True),
        Mechanism(join_table=((1.0, 1.0, 1.0, 0.8, 0.4, 0.1, 0.0), (1.0,) * 15 + (0.5, 0.0))),
    ],
    ids=lambda mechanism: mechanism.name,
)
def test_mechanisms_and_hybrids_against_their_markov_chain(mechanism: Mechanism) -> None:
    exact = chain(2.0, 8.0, 20.0, 20.0, mechanism, 120)
    result = simulate_queue(2.0, 8.0, 20.0, 20.0, mechanism, runs=20, duration_s=40_000, warm_up_s=500, seed=4)
    for name in ("success_share", "queue_length_mean", "utilisation", "join_probability"):
        agrees(getattr(result, name), exact[name], 0.03)
    if mechanism.buffer_size is not None and not mechanism.protect_connected:
        overflow = result.counts[..., OVERFLOW].sum() / result.published
        assert overflow == pytest.approx(exact["overflow"], rel=0.03)


def test_m_m_1_k_loses_what_the_formula_says() -> None:
    rho, k = 0.75, 5
    exact = (1 - rho) * rho**k / (1 - rho ** (k + 1))
    result = simulate_queue(6.0, 8.0, None, None, Mechanism(buffer_size=k), duration_s=20_000, seed=5)
    agrees(result.failed_connected_share, exact, 0.03)
    into = Mechanism(input_buffer_size=k)
    result = simulate_queue(6.0, math.inf, None, None, into, input_per_s=8.0, duration_s=20_000, seed=5)
    agrees(result.success_share, 1 - exact, 0.01)


def test_protection_means_no_failures_while_connected() -> None:
    """dropping Fig. 7: the share of the events that arrive while connected that are dropped."""
    choices = [
        Mechanism(join_probability=0.3),
        Mechanism(buffer_size=5),
        Mechanism(lifetime_s=10.0),
        Mechanism(buffer_size=5, lifetime_s=10.0, protect_connected=True),
    ]
    failed = simulate_queue(6.0, 8.0, 20.0, 20.0, choices, duration_s=5000, seed=6).failed_connected_share.value
    assert failed[0] == failed[3] == 0
    assert failed[1] > 0.01
    assert failed[2] > 0.01


def test_a_point_does_not_depend_on_other_points_and_longer_runs_only_add() -> None:
    shape = parse_distribution({"distribution": "hyperexponential", "scv": 4})
    on = parse_distribution({"distribution": "lognormal", "mean": "20s", "cv": 2})

    def some(rates: list[float], **more: float) -> QueueSweep:
        mechanism = Mechanism(buffer_size=30, lifetime_s=50.0, lifetime_distribution="exponential")
        return simulate_queue(rates, 8.0, on, 10.0, mechanism, service=shape, runs=3, duration_s=5000, seed=7, **more)

    alone, among = some([1.0]), some([1.0, 3.0])
    np.testing.assert_array_equal(alone.counts[:, 0], among.counts[:, 0])
    np.testing.assert_array_equal(alone.sums[:, 0], among.sums[:, 0])
    np.testing.assert_array_equal(alone.responses[0], among.responses[0])
    parallel = some([1.0, 3.0], workers=2)
    np.testing.assert_array_equal(parallel.counts, among.counts)


def test_runs_are_added_until_the_half_width_is_small_enough() -> None:
    result = simulate_queue(2.0, 8.0, 20.0, 20.0, runs=5, duration_s=5000, seed=8, relative_half_width=0.05)
    assert result.runs > 5
    assert result.response_mean_s.half_width <= 0.05 * result.response_mean_s.value
    few = simulate_queue(2.0, 8.0, 20.0, 20.0, duration_s=500, runs=2, seed=8, relative_half_width=1e-6, max_runs=4)
    assert few.runs == 4


def test_parameters_are_broadcast() -> None:
    rates = np.array([[1.0], [2.0]])
    choices = [Mechanism(join_probability=zeta) for zeta in (0.0, 0.5, 1.0)]
    result = simulate_queue(rates, 8.0, 20.0, 20.0, choices, duration_s=2000, seed=9)
    assert result.success_share.value.shape == (2, 3)
    assert (np.diff(result.success_share.value, axis=1) > 0).all()
    assert result.published.shape == result.delay_quantile_s(0.5).shape == (2, 3)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((4.0, 8.0, 20.0, 20.0), AssumptionError, "the queue would grow for ever"),
        ((0.0, 8.0, 20.0, 20.0), ConfigurationError, "point 0: arrival_per_s 0.0"),
        ((1.0, 8.0, 20.0, None), ConfigurationError, "on and off go together"),
        ((1.0, 8.0, 20.0, -1.0), ConfigurationError, "off: a mean period of -1.0 s"),
    ],
)
def test_refuses_what_it_cannot_simulate(arguments, error, message) -> None:
    with pytest.raises(error, match=message):
        simulate_queue(*arguments, duration_s=100, seed=1)


def test_refuses_an_overloaded_input_queue() -> None:
    with pytest.raises(AssumptionError, match="input queue that processes 1/s"):
        simulate_queue(2.0, 8.0, None, None, input_per_s=1.0, duration_s=100, seed=1)
