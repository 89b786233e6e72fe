"""Phase-type fits keep what they promise of a distribution."""

from __future__ import annotations

import numpy as np
import pytest

from surecast.errors import AssumptionError
from surecast.prediction import fit_phase_type
from surecast.prediction.reliability.component_chains import component_of
from surecast.scenario import Distribution, Failures, parse_distribution


def moments(distribution: Distribution, stages_max: int = 100) -> tuple[float, float, float]:
    initial, matrix = fit_phase_type(distribution, stages_max)
    assert initial.sum() == pytest.approx(1.0)
    assert (matrix.sum(axis=1) <= 1e-12).all()
    inverse = np.linalg.inv(-matrix)
    first = initial @ inverse
    second = first @ inverse
    return float(first.sum()), float(2 * second.sum()), float(6 * (second @ inverse).sum())


@pytest.mark.parametrize(
    "text",
    [
        "30s",
        {"distribution": "lognormal", "mean": "20s", "cv": 3},
        {"distribution": "lognormal", "mean": "20s", "cv": 0.3},
        {"distribution": "weibull", "mean": "5s", "shape": 0.6},
        {"distribution": "weibull", "mean": "5s", "shape": 1.0},
        {"distribution": "weibull", "mean": "5s", "shape": 2.5},
        {"distribution": "uniform", "low": "1s", "high": "9s"},
        {"distribution": "empirical", "values": ["1s", "2s", "40s"]},
    ],
)
def test_two_moments_are_kept(text: object) -> None:
    distribution = parse_distribution(text)
    assert moments(distribution)[:2] == pytest.approx(distribution.moments()[:2])


@pytest.mark.parametrize(
    "text",
    [
        {"distribution": "erlang", "mean": "7s", "stages": 5},
        {"distribution": "hyperexponential", "probabilities": [0.2, 0.8], "means": ["1s", "9s"]},
        {"distribution": "hyperexponential", "mean": "4s", "scv": 5},
        {"distribution": "phase-type", "initial": [0.3, 0.7], "rates": [[0, 2], [1, 0]], "exits": [1, 3]},
    ],
)
def test_distributions_of_phases_are_taken_as_they_are(text: object) -> None:
    distribution = parse_distribution(text)
    assert moments(distribution) == pytest.approx(distribution.moments())


def test_where_stages_are_limited_the_mean_is_kept() -> None:
    constant = parse_distribution({"distribution": "deterministic", "mean": "3s"})
    first, second, _ = moments(constant, stages_max=10)
    assert first == pytest.approx(3.0)
    assert second / first**2 - 1 == pytest.approx(0.1)


def test_a_component_with_too_many_phases_is_refused_by_name() -> None:
    many = {
        "distribution": "phase-type",
        "initial": [1.0] + [0.0] * 11,
        "rates": [[0.0] * 12 for _ in range(12)],
        "exits": [1.0] * 12,
    }
    with pytest.raises(AssumptionError, match="link a-b"):
        component_of("link a-b", Failures(parse_distribution("9s"), parse_distribution(many)))
