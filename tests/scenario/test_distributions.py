"""Moments of every distribution, against numerical integration of its density and against its own sampler."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from scipy import integrate, linalg, stats

from surecast.scenario.distributions import Distribution, Hyperexponential, PhaseType, parse_distribution

CASES: dict[str, dict[str, Any]] = {
    "exponential": {"distribution": "exponential", "mean": "3s"},
    "deterministic": {"distribution": "deterministic", "mean": "250ms"},
    "erlang": {"distribution": "erlang", "mean": "2s", "stages": 3},
    "hyperexponential": {"distribution": "hyperexponential", "mean": "2s", "scv": 5},
    "branches": {"distribution": "hyperexponential", "probabilities": [0.3, 0.7], "means": ["1s", "5s"]},
    "uniform": {"distribution": "uniform", "low": "1s", "high": "4s"},
    "weibull": {"distribution": "weibull", "mean": "5s", "shape": 0.7},
    "lognormal": {"distribution": "lognormal", "mean": "5s", "cv": 0.8},
    "phase-type": {
        "distribution": "phase-type",
        "initial": [0.6, 0.4],
        "rates": [[0, 2], [0.5, 0]],
        "exits": [1, 3],
    },
    "empirical": {"distribution": "empirical", "values": ["1s", "2s", "6s"], "weights": [1, 2, 1]},
    "rescaled": {"distribution": "empirical", "values": ["1s", "2s", "6s"], "mean": "1min"},
}


def density(case: str, t: float) -> float:
    """The density, from SciPy or from first principles: independent of the code under test."""
    match case:
        case "exponential":
            return float(stats.expon(scale=3).pdf(t))
        case "erlang":
            return float(stats.gamma(3, scale=2 / 3).pdf(t))
        case "branches":
            return 0.3 * math.exp(-t) + 0.7 / 5 * math.exp(-t / 5)
        case "uniform":
            return float(stats.uniform(1, 3).pdf(t))
        case "weibull":
            return float(stats.weibull_min(0.7, scale=5 / math.gamma(1 + 1 / 0.7)).pdf(t))
        case "lognormal":
            sigma = math.sqrt(math.log(1 + 0.8**2))
            return float(stats.lognorm(sigma, scale=5 * math.exp(-(sigma**2) / 2)).pdf(t))
        case "phase-type":
            s = np.array([[-3.0, 2.0], [0.5, -3.5]])
            return float(np.array([0.6, 0.4]) @ linalg.expm(s * t) @ np.array([1.0, 3.0]))
    raise AssertionError(case)


@pytest.mark.parametrize("case", ["exponential", "erlang", "branches", "uniform", "weibull", "lognormal", "phase-type"])
def test_moments_equal_the_integral_of_the_density(case: str) -> None:
    distribution = parse_distribution(CASES[case])
    cuts = [0, 0.01, 0.1, 1, 4, 10, 40, 200, 2000, 40000]
    for k, moment in enumerate(distribution.moments(), 1):
        pieces = [integrate.quad(lambda t, k=k: t**k * density(case, t), a, b)[0] for a, b in itertools.pairwise(cuts)]
        assert moment == pytest.approx(sum(pieces), rel=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_samples_have_the_moments(case: str) -> None:
    distribution = parse_distribution(CASES[case])
    times = distribution.sample(np.random.default_rng(1), 400_000)
    assert times.shape == (400_000,)
    assert times.min() >= 0
    first, second, third = distribution.moments()
    assert times.mean() == pytest.approx(first, rel=0.02)
    assert (times**2).mean() == pytest.approx(second, rel=0.08)
    assert (times**3).mean() == pytest.approx(third, rel=0.5)


@pytest.mark.parametrize("case", CASES)
def test_another_mean_keeps_the_shape(case: str) -> None:
    distribution = parse_distribution(CASES[case])
    scaled = distribution.with_mean(distribution.mean_s * 7)
    for k, (before, after) in enumerate(zip(distribution.moments(), scaled.moments(), strict=True), 1):
        assert after == pytest.approx(before * 7**k, rel=1e-12)
    assert scaled.squared_cv == pytest.approx(distribution.squared_cv, rel=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_round_trip(case: str) -> None:
    distribution = parse_distribution(CASES[case])
    assert parse_distribution(distribution.model_dump(mode="json", exclude_defaults=True)) == distribution


def test_scv_alone_gives_balanced_branches() -> None:
    distribution = parse_distribution(CASES["hyperexponential"])
    assert isinstance(distribution, Hyperexponential)
    probabilities, means = distribution.branches()
    assert probabilities @ means == pytest.approx(2)
    assert probabilities[0] * means[0] == pytest.approx(probabilities[1] * means[1])
    assert distribution.squared_cv == pytest.approx(5)


def test_an_scv_of_one_is_exponential() -> None:
    distribution = parse_distribution({"distribution": "hyperexponential", "mean": "2s", "scv": 1})
    assert distribution.moments() == pytest.approx(parse_distribution("2s").moments())


def test_phase_type_generator_follows_the_mean() -> None:
    distribution = parse_distribution(CASES["phase-type"]).with_mean(10.0)
    assert isinstance(distribution, PhaseType)
    initial, matrix = distribution.generator()
    assert float(initial @ np.linalg.inv(-matrix) @ np.ones(2)) == pytest.approx(10)


def test_short_forms() -> None:
    assert parse_distribution("1400/s").mean_s == pytest.approx(1 / 1400)
    assert parse_distribution({"mean": "5ms"}).kind == "exponential"
    assert not parse_distribution("exponential").has_mean
    with pytest.raises(ValueError, match="no mean"):
        _ = parse_distribution("exponential").mean_s


@pytest.mark.parametrize(
    "value",
    [
        "sometimes",
        "0/s",
        {"distribution": "erlang", "mean": "5s"},
        {"distribution": "exponential", "mean": "0s"},
        {"distribution": "hyperexponential", "scv": 0.5},
        {"distribution": "hyperexponential", "probabilities": [0.5, 0.6], "means": ["1s", "2s"]},
        {"distribution": "uniform", "low": "5s", "high": "2s"},
        {"distribution": "phase-type", "initial": [1, 0], "rates": [[0, 1], [1, 0]], "exits": [0, 0]},
        {"distribution": "empirical", "values": []},
        {"distribution": "empirical", "values": ["1s"], "weights": [0]},
    ],
)
def test_what_is_no_distribution(value: object) -> None:
    with pytest.raises(ValidationError):
        parse_distribution(value)


def test_the_base_class_refuses_to_guess() -> None:
    with pytest.raises(TypeError, match="moments"):
        Distribution(distribution="?", mean="1s").moments()
