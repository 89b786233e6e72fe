"""Closed forms over the Poisson number of subscriptions, against recursions, integrals and random intervals."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, localcontext

import numpy as np
import pytest
from scipy.integrate import dblquad, quad
from scipy.stats import poisson

from surecast.errors import ConfigurationError
from surecast.prediction.capacity import (
    ROUTINGS,
    notification_probability,
    remote_entries,
    subscription_probability,
)

COUNTS = [1e-3, 0.1, 0.5, 0.999, 1.0, 1.5, 7.0, 60.0, 198.0, 202.0, 1000.0]


def unmatched(most: int) -> np.ndarray:
    """q_k = 1 - p_n(k) (capacity Eq. 14) by its stable recursion."""
    q = np.ones(most + 1)
    for k in range(1, most + 1):
        q[k] = (1.0 + k * q[k - 1]) / (2 * k + 1)
    return q


def mixed(values: np.ndarray, x: float) -> float:
    return float(poisson.pmf(np.arange(len(values)), x) @ values)


def by_number(most: int) -> dict[tuple[str, str], np.ndarray]:
    """p_n(k), p_s(k) and E_r(k) for k = 0 ... most."""
    k, q = np.arange(most + 1), unmatched(most)
    some = (k > 0).astype(float)
    uncovered = np.cumsum(q) / (k + 1)
    return {
        ("notify", "flooding"): np.ones(most + 1),
        ("notify", "simple"): 1.0 - q,
        ("notify", "covering"): 1.0 - q,
        ("notify", "identity"): some,
        ("notify", "merging"): np.where(k > 0, (2 * k - 1) / (2 * k + 1), 0.0),
        ("subscribe", "flooding"): np.zeros(most + 1),
        ("subscribe", "simple"): np.ones(most + 1),
        ("subscribe", "identity"): 1.0 - some,
        ("subscribe", "covering"): uncovered,
        ("subscribe", "merging"): (4 * k + 1) / ((k + 1) * (2 * k + 1)),
        ("entries", "flooding"): np.zeros(most + 1),
        ("entries", "simple"): k.astype(float),
        ("entries", "identity"): some,
        ("entries", "merging"): some,
        ("entries", "covering"): np.concatenate([[0.0], np.cumsum(q)[:-1]]),
    }


FUNCTIONS = {
    "notify": notification_probability,
    "subscribe": subscription_probability,
    "entries": remote_entries,
}


@pytest.mark.parametrize("routing", ROUTINGS)
@pytest.mark.parametrize("what", list(FUNCTIONS))
def test_the_closed_form_is_the_poisson_mixture(what: str, routing: str) -> None:
    # capacity Eqs. 5, 12, 20
    values = by_number(2000)[what, routing]
    found = FUNCTIONS[what](routing, COUNTS)
    assert found == pytest.approx([mixed(values, x) for x in COUNTS], rel=1e-11, abs=1e-14)


@pytest.mark.parametrize("k", [0, 1, 2, 5, 17])
def test_the_recursion_is_the_printed_integral(k: int) -> None:
    # capacity Eqs. 6, 13
    point = quad(lambda v: 1.0 - (1.0 - 2.0 * v * (1.0 - v)) ** k, 0.0, 1.0)[0]
    assert by_number(k)["notify", "simple"][k] == pytest.approx(point, abs=1e-12)
    covered = 2.0 * dblquad(lambda b, a: 1.0 - (1.0 - 2.0 * a * (1.0 - b)) ** k, 0.0, 1.0, lambda a: a, 1.0)[0]
    assert by_number(k)["subscribe", "covering"][k] == pytest.approx(1.0 - covered, abs=1e-9)


@pytest.mark.parametrize("x", [0.3, 4.0, 50.0])
def test_the_closed_form_is_the_integral_over_intervals(x: float) -> None:
    # capacity Eqs. 6, 13 with a Poisson number: (1 - c)^k becomes exp(-c x)
    point = quad(lambda v: 1.0 - np.exp(-2.0 * x * v * (1.0 - v)), 0.0, 1.0)[0]
    assert notification_probability("simple", x) == pytest.approx(point, rel=1e-10)
    bare = 2.0 * dblquad(lambda b, a: np.exp(-2.0 * x * a * (1.0 - b)), 0.0, 1.0, lambda a: a, 1.0)[0]
    assert subscription_probability("covering", x) == pytest.approx(bare, rel=1e-8)


@pytest.mark.parametrize("k", [1, 2, 3, 6])
def test_random_intervals_behave_so(k: int) -> None:
    rng = np.random.default_rng(k)
    runs = 200_000
    low, high = np.sort(rng.random((runs, k, 2)), axis=2).transpose(2, 0, 1)
    new_low, new_high = np.sort(rng.random((runs, 2)), axis=1).T
    value = rng.random(runs)
    expected, error = by_number(k), 5.0 * 0.5 / np.sqrt(runs)
    matched = ((low <= value[:, None]) & (value[:, None] <= high)).any(axis=1)
    assert matched.mean() == pytest.approx(expected["notify", "covering"][k], abs=error)
    hull = (low.min(axis=1) <= value) & (value <= high.max(axis=1))
    assert hull.mean() == pytest.approx(expected["notify", "merging"][k], abs=error)
    covered = ((low <= new_low[:, None]) & (new_high[:, None] <= high)).any(axis=1)
    assert 1.0 - covered.mean() == pytest.approx(expected["subscribe", "covering"][k], abs=error)
    widened = (new_low < low.min(axis=1)) | (new_high > high.max(axis=1))
    assert widened.mean() == pytest.approx(expected["subscribe", "merging"][k], abs=error)
    # The printed p_s(k) of merging is excluded by the same sample.
    assert abs(widened.mean() - (4 * k + 1) / (2 * k + 1) ** 2) > error
    within = (low[:, :, None] >= low[:, None, :]) & (high[:, :, None] <= high[:, None, :])
    entries = (within.sum(axis=2) == 1).sum(axis=1)
    assert entries.mean() == pytest.approx(expected["entries", "covering"][k], abs=k * error)


def test_few_subscriptions_keep_their_digits() -> None:
    # p_n(1) = 1/3 under all three, p_s(1) = 5/6 under both
    for routing in ("simple", "covering", "merging"):
        assert notification_probability(routing, [1e-12, 1e-300]) == pytest.approx([1e-12 / 3, 1e-300 / 3], rel=1e-11)
    for routing in ("covering", "merging"):
        assert subscription_probability(routing, [0.0, 1e-300, 1e-9]) == pytest.approx(1.0 - np.array([0, 0, 1e-9 / 6]))


def power_series(x: float, term: Callable[[int, Decimal, Decimal], Decimal]) -> float:
    """The sum of (-x)^n term(n, n!, (2n+1)!!) in 130 digits, which its alternation cannot eat up."""
    with localcontext() as context:
        context.prec = 130
        power, factorial, odd, total = Decimal(1), Decimal(1), Decimal(1), Decimal(0)
        for n in range(900):
            total += power * term(n, factorial, odd)
            power *= -Decimal(x)
            factorial *= n + 1
            odd *= 2 * n + 3
        return float(total)


@pytest.mark.parametrize("x", [1e-9, 0.0078, 0.0079, 0.999, 1.0, 3.0, 22.0, 120.0, 199.9, 200.1])
def test_the_closed_forms_are_right_to_the_last_digits(x: float) -> None:
    # capacity Eqs. 12, 20: the power series of the closed forms, where doubles would lose everything
    matched = power_series(x, lambda n, _, odd: -1 / odd if n else Decimal(0))
    assert notification_probability("simple", x) == pytest.approx(matched, rel=4e-15)
    bare = power_series(x, lambda n, _, odd: 1 / (odd * (n + 1)))
    assert subscription_probability("covering", x) == pytest.approx(bare, rel=4e-15)
    hull = power_series(x, lambda n, full, odd: 1 / full - 2 * Decimal(2) ** n / odd if n else Decimal(0))
    assert notification_probability("merging", x) == pytest.approx(hull, rel=4e-15)
    wider = power_series(x, lambda n, full, odd: 3 / (full * (n + 1)) - 2 * Decimal(2) ** n / odd)
    assert subscription_probability("merging", x) == pytest.approx(wider, rel=2e-14)


def test_many_subscriptions_have_their_limits() -> None:
    x = np.array([1e6, 1e12])
    assert 1.0 - notification_probability("covering", x) == pytest.approx(1.0 / x, rel=1e-3)
    assert 1.0 - notification_probability("merging", x) == pytest.approx(1.0 / x, rel=1e-3)
    assert x * subscription_probability("merging", x) == pytest.approx([2.0, 2.0], rel=1e-5)
    logs = np.log(x / 2.0) + np.euler_gamma + 2.0 * np.log(2.0)
    assert remote_entries("covering", x) == pytest.approx(logs, rel=1e-6)


@pytest.mark.parametrize("routing", ["covering", "merging", "simple"])
def test_load_never_falls_when_subscriptions_grow(routing: str) -> None:
    x = np.geomspace(1e-6, 1e8, 4000)
    assert (np.diff(x * subscription_probability(routing, x)) > -1e-9).all()
    assert (np.diff(notification_probability(routing, x)) >= -1e-15).all()


def test_what_is_no_number_of_subscriptions_is_refused() -> None:
    for wrong in (-1.0, np.nan, np.inf):
        with pytest.raises(ConfigurationError, match="number of subscriptions"):
            notification_probability("simple", [1.0, wrong])
    with pytest.raises(ConfigurationError, match="there is no routing"):
        remote_entries("gossip", 1.0)
