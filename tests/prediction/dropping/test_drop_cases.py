"""Questions about one subscriber: parameters, targets and rates that belong together."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from surecast.errors import AssumptionError, ConfigurationError
from surecast.prediction.dropping import OnOffQueue, arrival_rate_for, evaluate
from surecast.prediction.dropping.cases import MECHANISMS, Case, all_gives, find, gives_of, rates_meeting
from surecast.scenario.mechanism import Mechanism
from surecast.simulation import simulate_queue

CASE = Case(2.0, 8.0, 20.0, 20.0, 16.0, target_s=7.0)
ALONE = replace(CASE, input_per_s=math.inf)


@pytest.mark.parametrize("case", [CASE, ALONE, replace(CASE, quantile=0.9), replace(ALONE, quantile=0.95)])
def test_what_is_found_meets_the_target_and_hardly_more(case: Case) -> None:
    for given in all_gives(case, MECHANISMS[1:]):
        assert given.met, given.kind
        assert given.outcome is not None
        reached = given.outcome.delay_mean_s if case.quantile is None else given.law.quantile_s(case.quantile)
        if given.kind == "finite-buffer":
            size = given.mechanism.buffer_size
            assert size is not None
            assert not gives_of(case, Mechanism(buffer_size=size + 1)).met
        else:
            assert reached == pytest.approx(7.0, rel=1e-7), given.kind


@pytest.mark.parametrize("lifetime", ["deterministic", "exponential"])
def test_delays_through_the_input_queue_are_those_of_the_simulation(lifetime: str) -> None:
    """Quantiles from publication on, against events followed one by one; the formula is an approximation here."""
    mechanism = Mechanism(lifetime_s=20.0, lifetime_distribution=lifetime)  # type: ignore[arg-type]
    case = Case(6.0, 8.0, 20.0, 20.0, 16.0)
    given = gives_of(case, mechanism)
    sweep = simulate_queue(6.0, 8.0, 20.0, 20.0, mechanism, input_per_s=16.0, runs=10, duration_s=20_000, seed=3)
    for q in (0.5, 0.95):
        assert given.law.quantile_s(q) == pytest.approx(float(sweep.delay_quantile_s(q)), rel=0.05)


def test_rates_that_meet_a_target_agree_with_the_closed_form() -> None:
    """dropping Eq. 28, solved for the arrival rate."""
    for join in (0.0, 0.2, 0.35):
        found = rates_meeting(ALONE, Mechanism(join_probability=join))
        expected = float(arrival_rate_for(7.0, 8.0, 20.0, 20.0, join).arrival_per_s)
        assert found is not None
        assert found.high_per_s == pytest.approx(expected, rel=1e-9)
    assert rates_meeting(ALONE, Mechanism()) is None


def test_rates_of_a_buffer_are_found_by_looking() -> None:
    found = rates_meeting(ALONE, Mechanism(buffer_size=22))
    assert found is not None
    assert math.isinf(found.high_per_s)
    for rate, meets in ((found.low_per_s * 1.001, True), (found.low_per_s * 0.999, False), (50.0, True)):
        queue = OnOffQueue.exponential(rate, 8.0, 20.0, 20.0)
        assert (evaluate(queue, Mechanism(buffer_size=22)).response_mean_s <= 7.0) == meets


def test_refusals_say_why() -> None:
    assert "unstable" in gives_of(replace(CASE, arrival_per_s=5.0), Mechanism(join_probability=0.9)).refusal
    assert "0.404762 s" in find(replace(CASE, target_s=0.3), "probabilistic").refusal
    impossible = find(replace(ALONE, target_s=0.2, quantile=0.9), "probabilistic")
    # while everything is dropped when away, the queue is that of an M/M/1 with interruptions
    law = evaluate(ALONE.outlet.queue, Mechanism(join_probability=0.0))
    assert f"{law.quantile_s(0.9):.6g} s" in impossible.refusal
    with pytest.raises(AssumptionError, match="input queue is unstable"):
        replace(CASE, arrival_per_s=16.0)
    with pytest.raises(ConfigurationError, match="on_s"):
        replace(CASE, on_s=math.nan)
    with pytest.raises(ConfigurationError, match="depends on a target"):
        find(replace(CASE, target_s=None), "expiry")
