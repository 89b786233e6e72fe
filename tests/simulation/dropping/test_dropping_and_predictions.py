"""Formulas and simulation of the paper's comparison, side by side: the same figures under the same names."""

from __future__ import annotations

from pathlib import Path

import pytest

from surecast.prediction.dropping import find_mechanisms, predict_dropping
from surecast.report import QoSReport
from surecast.scenario import load_system
from surecast.simulation.dropping import simulate_dropping

EXAMPLE = Path(__file__).parents[3] / "examples" / "dropping.yaml"
POLICIES = ("none", "probabilistic", "expiry", "finite-buffer", "optimal")


@pytest.fixture(scope="module")
def reports() -> tuple[QoSReport, QoSReport]:
    _, system = load_system(EXAMPLE)
    mechanisms = {policy: find_mechanisms(system, policy) for policy in POLICIES}
    simulated = simulate_dropping(
        system, mechanisms=mechanisms, runs=20, duration_s=20_000, warm_up_s=500, seed=system.seed
    )
    return predict_dropping(system, POLICIES), simulated


@pytest.mark.parametrize("policy", POLICIES)
def test_every_simulated_figure_is_close_to_the_predicted(reports: tuple[QoSReport, QoSReport], policy: str) -> None:
    predicted, simulated = reports
    compared = set()
    for figure in predicted.figures(variant=policy):
        key = {"scope": figure.scope, "name": figure.name, "variant": policy, "detail": figure.detail}
        for other in simulated.figures(metric=figure.metric, **key):
            compared.add(figure.metric)
            if other.low is not None and other.high is not None:
                # Twice the 95 % interval, and 1 % for what the formulas leave out.
                half = (other.high - other.low) + 0.01 * figure.value
                assert abs(other.value - figure.value) <= half, (str(figure), str(other))
            else:
                assert other.value == pytest.approx(figure.value, abs=0.02), (str(figure), str(other))
    assert {"success_share", "response_mean_s", "delay_mean_s", "share_dropped", "queue_length_mean"} <= compared
    assert {"targets_met_share", "rate_in_per_s"} <= compared
    assert ("failed_connected_share" in compared) == (policy != "expiry")
    assert ("buffer_size" in compared) == (policy == "finite-buffer")
    assert ("event_lifetime_s" in compared) == (policy == "expiry")
    assert {"response_quantile_s", "join_probability", "throughput_per_s", "availability", "utilisation"} <= compared
