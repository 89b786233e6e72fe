"""The availability of a group against closed forms, a dumb chain of distinguishable replicas, and a simulation."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy.linalg import expm

from surecast.errors import AssumptionError
from surecast.prediction.replication import group_chain, reversible_chain
from surecast.prediction.replication.chain import GroupChain
from surecast.scenario import Failures, parse_distribution
from surecast.scenario.group import Group
from surecast.simulation.replication import simulate_outages

UP_S, DOWN_S, GAP_S = 90.0, 10.0, 0.5
FAILURES = Failures(parse_distribution("90s"), parse_distribution("10s"))


def chain_of(replicas: int, gap_s: float = 0.0, repair: str = "independent", stages: int = 1) -> GroupChain:
    found = group_chain(Group(replicas, failures=FAILURES, repair=repair), gap_s, stages)
    assert found is not None
    return found


def dumb_chain(replicas: int, gap_s: float) -> tuple[np.ndarray, np.ndarray]:
    """Every replica by its name, with the leader's name or -1: generator, and where it serves."""
    fails, mends, majority = 1 / UP_S, 1 / DOWN_S, replicas // 2 + 1
    states = [(mask, leader) for mask in range(2**replicas) for leader in range(-1, replicas)]
    index = {state: i for i, state in enumerate(states)}
    generator = np.zeros((len(states), len(states)))

    def move(before: tuple[int, int], after: tuple[int, int], rate: float) -> None:
        generator[index[before], index[after]] += rate

    for mask, leader in states:
        up = [i for i in range(replicas) if mask >> i & 1]
        for i in range(replicas):
            new = mask ^ (1 << i)
            enough = new.bit_count() >= majority
            lead = leader if enough and leader != i else -1
            move((mask, leader), (new, lead), fails if mask >> i & 1 else mends)
        if leader < 0 and len(up) >= majority:
            for i in up:
                move((mask, -1), (mask, i), 1 / gap_s / len(up))
    np.fill_diagonal(generator, 0.0)
    np.fill_diagonal(generator, -generator.sum(axis=1))
    serving = [leader >= 0 and mask >> leader & 1 and mask.bit_count() >= majority for mask, leader in states]
    return generator, np.array(serving, dtype=bool)


@pytest.mark.parametrize("replicas", [1, 3, 5, 7, 15])
def test_without_elections_it_is_the_binomial_of_independent_replicas(replicas: int) -> None:
    up = UP_S / (UP_S + DOWN_S)
    least = replicas // 2 + 1
    expected = sum(math.comb(replicas, k) * up**k * (1 - up) ** (replicas - k) for k in range(least, replicas + 1))
    assert chain_of(replicas).availability == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("replicas", [1, 3, 5])
def test_with_one_repairer_it_is_the_machine_repair_queue(replicas: int) -> None:
    weights = [math.perm(replicas, k) * (DOWN_S / UP_S) ** k for k in range(replicas + 1)]
    expected = sum(weights[: replicas // 2 + 1]) / sum(weights)
    assert chain_of(replicas, repair="single").availability == pytest.approx(expected, rel=1e-12)


def test_small_shares_keep_their_digits() -> None:
    failures = Failures(parse_distribution("300d"), parse_distribution("30min"))
    found = group_chain(Group(7, failures=failures))
    assert found is not None
    down = failures.mttr_s / (failures.mtbf_s + failures.mttr_s)
    expected = sum(math.comb(7, k) * down**k * (1 - down) ** (7 - k) for k in range(4, 8))
    assert found.unavailability == pytest.approx(expected, rel=1e-9)
    assert expected < 1e-13


@pytest.mark.parametrize("replicas", [3, 5])
def test_it_is_the_chain_of_distinguishable_replicas(replicas: int) -> None:
    generator, serving = dumb_chain(replicas, GAP_S)
    reached = np.zeros(len(generator), dtype=bool)
    reached[np.argmax(serving)] = True
    for _ in range(len(generator)):
        reached |= (generator[reached] > 0).any(axis=0)
    generator, serving = generator[np.ix_(reached, reached)], serving[reached]
    system = np.vstack([generator.T, np.ones(len(generator))])
    share = np.linalg.lstsq(system, np.append(np.zeros(len(generator)), 1.0), rcond=None)[0]
    found = chain_of(replicas, GAP_S)
    assert len(found.generator) < len(generator)
    assert found.unavailability == pytest.approx(share[~serving].sum(), rel=1e-8)
    entered = share[serving] @ generator[np.ix_(serving, ~serving)]
    assert found.outages_per_s == pytest.approx(entered.sum(), rel=1e-8)
    inside = generator[np.ix_(~serving, ~serving)]
    for time_s in (0.1, 1.0, 10.0, 40.0):
        tail = entered / entered.sum() @ expm(inside * time_s).sum(axis=1)
        assert found.down_tail(time_s) == pytest.approx(tail, rel=1e-7)


@pytest.mark.parametrize("repair", ["independent", "single"])
@pytest.mark.parametrize("replicas", [3, 5])
def test_it_is_what_a_simulation_of_replicas_gives(replicas: int, repair: str) -> None:
    group = Group(replicas, failures=FAILURES, repair=repair)
    gaps = np.random.default_rng(1).exponential(GAP_S, 5000)
    found = chain_of(replicas, float(gaps.mean()), repair)
    outages, ups = [], []
    for seed in range(8):
        starts, ends = simulate_outages(group, gaps, horizon_s=1e5, seed=seed, warm_up_s=2000)
        outages.append(starts[1:] - ends[:-1])
        ups.append((ends - starts)[1:-1])
    failures = found.failures()
    for values, law in ((np.concatenate(ups), failures.up), (np.concatenate(outages), failures.down)):
        error_s = law.mean_s * math.sqrt(law.squared_cv / len(values))
        assert values.mean() == pytest.approx(law.mean_s, abs=4 * error_s)
    lengths = np.concatenate(outages)
    for q, length_s in zip((0.5, 0.9), found.down_quantiles_s((0.5, 0.9)), strict=True):
        assert np.mean(lengths <= length_s) == pytest.approx(q, abs=0.02)


def test_elections_in_stages_have_the_same_mean_and_less_variation() -> None:
    one, many = chain_of(3, GAP_S), chain_of(3, GAP_S, stages=20)
    assert many.availability == pytest.approx(one.availability, rel=1e-3)
    assert many.down_tail(2 * GAP_S) < one.down_tail(2 * GAP_S)
    assert many.down_quantiles_s([0.3])[0] == pytest.approx(GAP_S, rel=0.2)


@pytest.mark.parametrize("law", [{"distribution": "erlang", "mean": "90s", "stages": 3}, "90s"])
def test_other_times_are_replaced_by_phases(law: object) -> None:
    down = {"distribution": "lognormal", "mean": "10s", "cv": 2}
    failures = Failures(parse_distribution(law), parse_distribution(down))
    group = Group(3, failures=failures)
    found = group_chain(group)
    assert found is not None
    assert not found.is_exact
    assert found.availability == pytest.approx(0.972, rel=1e-9)  # of independent replicas only the means count
    starts, ends = simulate_outages(group, np.zeros(1), horizon_s=4e5, seed=3, warm_up_s=2000)
    assert (starts[1:] - ends[:-1]).mean() == pytest.approx(found.down_mean_s, rel=0.1)


def test_phases_with_one_repairer() -> None:
    failures = Failures(FAILURES.up, parse_distribution({"distribution": "erlang", "mean": "10s", "stages": 2}))
    group = Group(3, failures=failures, repair="single")
    found = group_chain(group)
    assert found is not None
    starts, ends = simulate_outages(group, np.zeros(1), horizon_s=4e5, seed=3, warm_up_s=2000)
    assert (ends - starts).sum() / 4e5 == pytest.approx(found.availability, abs=0.004)


def test_up_and_down_times_as_distributions() -> None:
    found = chain_of(3, GAP_S)
    failures = found.failures()
    assert failures.mtbf_s == pytest.approx(found.up_mean_s, rel=1e-9)
    assert failures.mttr_s == pytest.approx(found.down_mean_s, rel=1e-9)
    assert failures.availability == pytest.approx(found.availability, rel=1e-12)
    sample = failures.down.sample(np.random.default_rng(1), 20_000)
    assert np.mean(sample > 1.0) == pytest.approx(found.down_tail(1.0), abs=0.015)


@pytest.mark.parametrize("repair", ["independent", "single"])
@pytest.mark.parametrize("replicas", [1, 3, 5, 7])
def test_the_small_chain_is_reversible_and_near_the_exact_one(replicas: int, repair: str) -> None:
    failures = Failures(parse_distribution("2d"), parse_distribution("1h"))
    group = Group(replicas, failures=failures, repair=repair)
    small, exact = reversible_chain(group, 0.3), group_chain(group, 0.3)
    assert small is not None
    assert exact is not None
    flow = small.stationary[:, None] * small.generator
    assert np.allclose(flow, flow.T, rtol=1e-9, atol=0)
    assert small.unavailability == pytest.approx(exact.unavailability, rel=2e-2)
    assert small.up_mean_s == pytest.approx(exact.up_mean_s, rel=0.1)


def test_quantiles_grow() -> None:
    found = chain_of(5, GAP_S)
    lengths = found.down_quantiles_s((0.1, 0.5, 0.9, 0.99))
    assert all(a < b for a, b in pairwise(lengths))


@pytest.mark.parametrize("up_s", ["90s", "40d"])
@pytest.mark.parametrize("gap_s", [2e-3, GAP_S, 50.0])
@pytest.mark.parametrize("replicas", [1, 3, 5])
def test_a_quantile_is_exceeded_as_often_as_it_says(replicas: int, gap_s: float, up_s: str) -> None:
    """Elections of milliseconds and repairs of hours stand in one chain; the tail is a matrix exponential in one go."""
    failures = Failures(
        parse_distribution(up_s), parse_distribution({"distribution": "erlang", "stages": 2, "mean": "3h"})
    )
    found = group_chain(Group(replicas, failures=failures), gap_s, 2)
    assert found is not None
    shares = (1e-4, 0.3, 0.5, 0.9, 0.999)
    for share, length_s in zip(shares, found.down_quantiles_s(shares), strict=True):
        assert found.down_tail(length_s) == pytest.approx(1.0 - share, rel=1e-5)
    assert found.down_quantiles_s(()) == []


def test_replicas_that_never_fail_have_no_chain() -> None:
    assert group_chain(Group(3)) is None
    assert reversible_chain(Group(3)) is None


def test_too_many_phases_are_refused() -> None:
    times = {"distribution": "erlang", "mean": "90s", "stages": 3}
    failures = Failures(parse_distribution(times), parse_distribution(times))
    with pytest.raises(AssumptionError, match=r"15 replicas.*3 and 3 phases.*availability\.brokers"):
        group_chain(Group(15, failures=failures))
