"""The linear program of the optimal policy against thresholds tried one by one."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from surecast.errors import AssumptionError
from surecast.prediction.dropping import (
    OnOffQueue,
    ResponseTarget,
    TargetVerdict,
    alternating,
    evaluate,
    largest_parameter,
    optimal_policy,
    program_bound,
    threshold_policy,
)
from surecast.scenario.mechanism import Mechanism

SMALL = OnOffQueue.exponential(0.9, 2.0, 4.0, 3.0)


def table(off: float, on: float, top: int) -> Mechanism:
    def row(threshold: float) -> tuple[float, ...]:
        return (*(min(max(threshold - n, 0.0), 1.0) for n in range(top)), 0.0)

    return Mechanism(join_table=(row(off), row(on)))


def best_of_all_thresholds(queue: OnOffQueue, target_s: float, top: int) -> float:
    """The largest share over all pairs of thresholds, one of them split finely: never more than the optimum."""
    best = 0.0
    for off in range(top):
        for on in range(1, top + 1):
            answer = evaluate(queue, table(off, on, top))
            if answer.response_mean_s <= target_s:
                best = max(best, answer.success_share)
            for part in np.linspace(0.02, 0.98, 49):
                for split in (table(off + part, on, top), table(off, on - part, top)):
                    mixed = evaluate(queue, split)
                    if mixed.response_mean_s <= target_s:
                        best = max(best, mixed.success_share)
    return best


@pytest.mark.parametrize("target_s", [1.2, 2.5])
def test_no_pair_of_thresholds_beats_the_program_and_one_nearly_reaches_it(target_s: float) -> None:
    top = 7
    program = program_bound(SMALL, target_s, top, protect_connected=False)
    tried = best_of_all_thresholds(SMALL, target_s, top)
    assert tried <= program.success_share + 1e-9
    assert tried == pytest.approx(program.success_share, abs=5e-3)
    found = optimal_policy(SMALL, target_s, protect_connected=False)
    assert found.answer is not None
    assert found.answer.success_share >= program.success_share - 1e-9
    assert found.answer.success_share == pytest.approx(found.bound_share, abs=1e-7)
    assert found.answer.response_mean_s == pytest.approx(target_s, rel=1e-9)


def test_random_policies_never_beat_the_program() -> None:
    rng = np.random.default_rng(11)
    bound = program_bound(SMALL, 2.5, 8, protect_connected=False).success_share
    for _ in range(300):
        rows = [(*np.sort(rng.random(8))[::-1].tolist(), 0.0) for _ in range(2)]
        answer = evaluate(SMALL, Mechanism(join_table=(rows[0], rows[1])))
        assert answer.success_share <= bound + 1e-9 or answer.response_mean_s > 2.5


@pytest.mark.parametrize("arrival", [0.5, 2.0, 6.0])
def test_with_protection_the_optimum_is_one_threshold(arrival: float) -> None:
    queue = OnOffQueue.exponential(arrival, 8.0, 20.0, 20.0)
    found = optimal_policy(queue, 7.0)
    assert found.answer is not None
    assert found.mechanism is not None
    assert found.verdict is TargetVerdict.DROPPING
    assert found.answer.success_share == pytest.approx(found.bound_share, abs=1e-8)
    assert found.answer.lost_while_connected == 0.0
    assert found.truncation < 1e-9
    row = found.mechanism.join_table
    assert row is not None
    assert sum(0.0 < entry < 1.0 for entry in row[0]) <= 1
    # every way of turning events away does worse, and dropping while connected may do better
    for parameter in ("join_probability", "buffer_size"):
        other = largest_parameter(queue, parameter, ResponseTarget(7.0)).answer
        assert other is not None
        if other.lost_while_connected == 0.0:
            assert other.success_share < found.answer.success_share
    free = optimal_policy(queue, 7.0, protect_connected=False)
    assert free.answer is not None
    assert free.answer.success_share >= found.answer.success_share - 1e-12


def test_verdicts_of_the_optimal_policy() -> None:
    assert optimal_policy(SMALL, 500.0).verdict is TargetVerdict.NOT_NEEDED
    assert optimal_policy(SMALL, 0.01).verdict is TargetVerdict.IMPOSSIBLE
    busy = OnOffQueue.exponential(9.0, 8.0, 20.0, 20.0)
    assert optimal_policy(busy, 7.0).verdict is TargetVerdict.UNSTABLE
    # which dropping while connected helps
    found = optimal_policy(busy, 7.0, protect_connected=False)
    assert found.answer is not None
    assert found.answer.success_share == pytest.approx(found.bound_share, abs=1e-7)


def test_other_periods_have_a_threshold_but_no_program() -> None:
    half = np.array([[-0.2, 0.2], [0.0, -0.2]])
    queue = OnOffQueue(1.0, 4.0, alternating((np.array([1.0, 0.0]), half), (np.ones(1), np.array([[-0.1]]))))
    with pytest.raises(AssumptionError, match="exponential"):
        program_bound(queue, 2.0, 10)
    mechanism = threshold_policy(queue, ResponseTarget(2.0))
    assert mechanism is not None
    assert evaluate(queue, mechanism).response_mean_s == pytest.approx(2.0, rel=1e-9)
    assert threshold_policy(queue, ResponseTarget(0.001)) is None
    assert math.isclose(evaluate(queue, mechanism).lost_while_connected, 0.0)


@pytest.mark.parametrize("arrival", [1e-8, 1e-6, 1.0 / 86_400, 1e-4, 1e-3, 0.01, 0.05, 0.5, 2.0, 5.0, 7.0, 7.7])
@pytest.mark.parametrize("protect", [True, False])
def test_the_program_is_solved_at_low_and_high_rates(arrival: float, protect: bool) -> None:
    queue = OnOffQueue.exponential(arrival, 8.0, 20.0, 20.0)
    found = optimal_policy(queue, 7.0, protect_connected=protect)
    assert found.verdict is TargetVerdict.DROPPING
    assert found.answer is not None
    assert found.answer.success_share == pytest.approx(found.bound_share, abs=1e-8)
    assert found.answer.response_mean_s == pytest.approx(7.0, rel=1e-9)
    join = largest_parameter(queue, "join_probability", ResponseTarget(7.0)).answer
    assert join is not None
    assert found.answer.success_share >= join.success_share - 1e-9


def test_the_threshold_is_found_where_the_solver_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = OnOffQueue.exponential(2.0, 8.0, 20.0, 20.0)
    solved = optimal_policy(queue, 7.0)
    gives_up = SimpleNamespace(status=2, success=False, message="infeasible")
    monkeypatch.setattr("surecast.prediction.dropping.optimal.linprog", lambda *_, **__: gives_up)
    found = optimal_policy(queue, 7.0)
    assert found.mechanism == solved.mechanism
    assert math.isnan(found.bound_share)
    with pytest.raises(AssumptionError, match="was not solved"):
        optimal_policy(queue, 7.0, protect_connected=False)


def test_events_that_never_meet_join_like_a_coin() -> None:
    # one event a day finds an empty queue: it takes (1 + r)/service, and a mean disconnected period more if it comes
    # then, so the target leaves a share x of those with x * 20 / (1 + x) = 7 - 0.25
    share = 6.75 / (20.0 - 6.75)
    found = optimal_policy(OnOffQueue.exponential(1.0 / 86_400, 8.0, 20.0, 20.0), 7.0)
    assert found.bound_share == pytest.approx((1.0 + share) / 2.0, rel=1e-5)


@pytest.mark.parametrize("protect", [True, False])
def test_a_target_is_impossible_just_below_the_closed_form_and_possible_just_above(protect: bool) -> None:
    queue = OnOffQueue.exponential(2.0, 8.0, 20.0, 10.0)
    least_s = 1.5 / (6.0 if protect else 8.0)
    assert optimal_policy(queue, 0.999 * least_s, protect_connected=protect).verdict is TargetVerdict.IMPOSSIBLE
    found = optimal_policy(queue, 1.001 * least_s, protect_connected=protect)
    assert found.answer is not None
    assert found.answer.response_mean_s <= 1.001 * least_s * (1.0 + 1e-9)


@pytest.mark.parametrize(
    ("arrival", "service", "period_s", "target_s"), [(3.9999, 8.0, 20.0, 1e5), (1e5, 8e5, 3600.0, 7.0)]
)
def test_targets_that_allow_endless_queues_are_refused(
    arrival: float, service: float, period_s: float, target_s: float
) -> None:
    queue = OnOffQueue.exponential(arrival, service, period_s, period_s)
    with pytest.raises(AssumptionError, match="up to 1024 events"):
        optimal_policy(queue, target_s)
    with pytest.raises(AssumptionError, match="every threshold"):
        threshold_policy(queue, ResponseTarget(target_s))
