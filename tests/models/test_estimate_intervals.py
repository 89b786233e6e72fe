"""Intervals of predicted figures, against the interval of a figure that follows from the estimates in closed form."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from surecast import Scenario, predict, simulate
from surecast.errors import ConfigurationError
from surecast.models.estimate_intervals import observed_system
from surecast.scenario import parse_text

MTBF, MTTR = (30.0, 20.0, 45.0), (1.0, 0.5, 2.0)


def written(numbers: tuple[float, float, float]) -> str:
    return f"{{estimate: {numbers[0]}h, low: {numbers[1]}h, high: {numbers[2]}h}}"


def scenario(mtbf: str = written(MTBF), mttr: str = written(MTTR), rate: str = "1/s") -> Scenario:
    """One broker that fails: the reliability is its availability, whatever the scheme."""
    return parse_text(f"""
surecast: 1
name: one
overlay: {{brokers: [{{name: b}}]}}
availability: {{brokers: {{mtbf: {mtbf}, mttr: {mttr}}}}}
workload:
  topics: [t]
  publishers: [{{name: p, home: b, topics: [t], rate: {rate}}}]
  subscribers: [{{name: s, home: b, topics: [t]}}]
delivery: {{fault_tolerance: {{scheme: bypass}}}}
""")


def interval(**options: object) -> tuple[float, float, float]:
    found = predict(scenario(), schemes=["bypass"], **options)  # type: ignore[arg-type]
    figure = found.figure("reliability", name="s", variant="bypass")
    assert figure.low is not None
    assert figure.high is not None
    return figure.low, figure.value, figure.high


def exact_interval() -> tuple[float, float]:
    """Of up / (up + down): its odds up / down are lognormal, as the estimates are."""
    spread = math.hypot(math.log(45 / 30) / norm.ppf(0.975), math.log(2.0) / norm.ppf(0.975))
    odds = [30.0 * math.exp(sign * norm.ppf(0.975) * spread) for sign in (-1, 1)]
    return odds[0] / (1 + odds[0]), odds[1] / (1 + odds[1])


def test_the_interval_of_an_availability_is_that_of_its_odds() -> None:
    low, value, high = interval(draws=1000)
    assert value == pytest.approx(30 / 31)
    exact = exact_interval()
    assert low == pytest.approx(exact[0], abs=0.004)
    assert high == pytest.approx(exact[1], abs=0.002)


def test_variance_shares_name_the_worse_known_value_first() -> None:
    report = predict(scenario(), schemes=["bypass"])
    sentence = next(
        note for note in report.info.notes if note.startswith("variance of bypass: subscriber s, reliability")
    )
    # log(2)² of log(2)² + log(1.5)²
    assert "from availability.brokers.mttr, " in sentence
    share = float(sentence.split(": ")[2].split("%")[0]) / 100
    assert share == pytest.approx(math.log(2) ** 2 / (math.log(2) ** 2 + math.log(1.5) ** 2), abs=0.08)


def test_the_same_draws_give_the_same_intervals() -> None:
    assert interval(draws=60) == interval(draws=60)
    assert interval(draws=60) != interval(draws=40)


def test_without_estimates_or_draws_there_is_no_interval() -> None:
    plain = predict(scenario("30h", "1h"), schemes=["bypass"])
    assert plain.figure("reliability", name="s", variant="bypass").low is None
    assert predict(scenario(), schemes=["bypass"], draws=0) == plain
    with pytest.raises(ConfigurationError, match="`draws` 7"):
        predict(scenario(), draws=7)
    with pytest.raises(ConfigurationError, match="`over`"):
        predict(scenario().system, over="9d")


def test_over_a_window_the_interval_is_that_of_the_windows() -> None:
    """What a simulation of one window shows lies within it: 95 % of the windows, of which failures alone are random."""
    over = predict(scenario("30h", "1h"), schemes=["bypass"], over="20d", draws=400)
    figure = over.figure("reliability", name="s", variant="bypass")
    assert figure.low is not None
    assert figure.high is not None
    seen = [
        simulate(scenario("30h", "1h", "1/min"), schemes=["bypass"], runs=2, duration="10d", seed=seed).value(
            "reliability", name="s", variant="bypass"
        )
        for seed in range(30)
    ]
    inside = np.mean([figure.low <= share <= figure.high for share in seen])
    assert 0.85 <= inside <= 1.0
    assert figure.high - figure.low < 3.0 * (np.quantile(seen, 0.975) - np.quantile(seen, 0.025))


def test_a_window_without_failures_never_fails() -> None:
    system = scenario("1000d", "1s").system
    assert observed_system(system, 60.0, 1, 0).overlay.brokers[0].failures is None
    failures = observed_system(scenario("1h", "1h").system, 1e7, 1, 0).overlay.brokers[0].failures
    assert failures is not None
    assert failures.mtbf_s == pytest.approx(3600.0, rel=0.1)


def test_draws_that_overload_are_counted_and_left_out() -> None:
    found = scenario("30h", "1h", "{estimate: 8/s, low: 6/s, high: 10.5/s}").change(
        {"overlay.brokers[0].capacity": "10/s"}
    )
    report = predict(found)
    (warning,) = [w for w in report.info.warnings if w.startswith("intervals:")]
    assert "broker b is overloaded" in warning
    assert "of 200 draws have no answer" in warning
