"""The search for the best parameters, against the formula where there is one, and against exhaustive tries."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq

from surecast.errors import AssumptionError, ConfigurationError
from surecast.scenario.mechanism import Mechanism
from surecast.simulation.dropping import best_hybrid, simulate_queue

QUEUE = (2.0, 8.0, 20.0, 20.0)


def mean_response(zeta: float) -> float:
    """dropping Eqs. 25 and 28, short form, at the parameters of `QUEUE`."""
    rate, mu, on, off = QUEUE
    load = rate * (1 + zeta * off / on)
    number = (load + (rate * zeta) ** 2 * off / on * off) / (mu - load) + rate * zeta * off * 0.5
    return number / (rate * (1 + zeta) / 2)


def test_join_probability_is_the_root_of_the_formula() -> None:
    root = brentq(lambda zeta: mean_response(zeta) - 7.0, 0.01, 1.0)
    found = best_hybrid(*QUEUE, target_s=7.0, vary=["join_probability"], runs=4, duration_s=100_000, seed=1)
    assert found.mechanism.join_probability == pytest.approx(root, rel=0.08)
    delay = found.figures.delay_mean_s
    assert abs(delay.value[0] - 7.0) < 3 * delay.half_width[0]


def test_buffer_is_the_largest_that_meets_the_target() -> None:
    found = best_hybrid(*QUEUE, target_s=7.0, vary=["buffer_size"], seed=2)
    sizes = [Mechanism(buffer_size=size) for size in range(1, 60)]
    tried = simulate_queue(*QUEUE, sizes, runs=4, duration_s=20_000, warm_up_s=500, seed=2)
    meets = np.flatnonzero(tried.delay_mean_s.value <= 7.0)
    assert found.mechanism.buffer_size == int(meets[-1]) + 1


def test_two_parameters_are_at_least_as_good_as_each_alone() -> None:
    seen = {"runs": 4, "duration_s": 20_000, "warm_up_s": 500, "seed": 3}

    def share(mechanism: Mechanism) -> float:
        result = simulate_queue(*QUEUE, mechanism, **seen)
        assert result.delay_mean_s.value <= 7.0
        return float(result.success_share.value)

    names = ["join_probability", "buffer_size"]
    single = [share(best_hybrid(*QUEUE, target_s=7.0, vary=[name], **seen).mechanism) for name in names]
    both = best_hybrid(*QUEUE, target_s=7.0, vary=names, **seen)
    assert share(both.mechanism) >= max(single)
    assert best_hybrid(*QUEUE, target_s=7.0, vary=names[::-1], **seen).mechanism == both.mechanism


def test_what_is_not_varied_stays() -> None:
    base = Mechanism(lifetime_s=40.0, lifetime_distribution="exponential", protect_connected=True)
    found = best_hybrid(*QUEUE, target_s=5.0, vary=["join_probability"], base=base, runs=2, duration_s=5000, seed=4)
    assert found.mechanism.lifetime_s == 40.0
    assert found.mechanism.protect_connected
    assert found.figures.failed_connected_share.value[0] == 0


def test_refuses_what_cannot_be_found() -> None:
    with pytest.raises(ConfigurationError, match="vary: name some of"):
        best_hybrid(*QUEUE, target_s=7.0, vary=["speed"], seed=1)
    with pytest.raises(ConfigurationError, match="target_s: 0"):
        best_hybrid(*QUEUE, target_s=0.0, seed=1)
    with pytest.raises(AssumptionError, match="no join_probability gives a mean delay of"):
        best_hybrid(*QUEUE, target_s=0.01, vary=["join_probability"], runs=2, duration_s=2000, seed=1)
