"""The formulas of a group's performance against the real replica code in virtual time, and against dumb versions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from surecast.broker.replica import node
from surecast.broker.replica.group_file import PaxosSpec
from surecast.errors import AssumptionError, ConfigurationError
from surecast.prediction.replication import failover_s, predict_closed, predict_open, saturation_per_s, times
from surecast.prediction.replication.bulk_service import Cycle, Mixture, solve_bulk_service, solve_cycle
from surecast.prediction.replication.election_time import election_wait_s
from surecast.protocol.paxos import pacing
from surecast.scenario import parse_distribution
from surecast.scenario.group import Group, GroupCosts
from surecast.simulation.replication import ClosedLoad, OpenLoad, measure_failovers, simulate_group

SERVICE = parse_distribution({"distribution": "deterministic", "mean": "2ms"})


def dumb_bulk_service(
    rate_per_s: float, fixed_s: float, each_s: float, count: int, seed: int
) -> tuple[float, np.ndarray]:
    """Arrivals one by one through a bulk server; the mean batch, and how long each takes until its batch is done."""
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(1 / rate_per_s, count))
    times, batches, at, open_s = [], 0, 0, 0.0
    while at < count:
        begin = max(open_s, arrivals[at])
        size = int(np.searchsorted(arrivals, begin, side="right")) - at
        open_s = begin + fixed_s + each_s * size
        times += (open_s - arrivals[at : at + size]).tolist()
        batches += 1
        at += size
    return count / batches, np.array(times)


@pytest.mark.parametrize(("rate", "each_s"), [(20.0, 0.0), (100.0, 0.0), (100.0, 0.005), (1000.0, 0.0005)])
def test_the_bulk_service_is_that_of_arrivals_one_by_one(rate: float, each_s: float) -> None:
    fixed_s = 0.01
    batches = solve_bulk_service(rate, lambda k: fixed_s + each_s * k)
    assert batches is not None
    batch, times = dumb_bulk_service(rate, fixed_s, each_s, 100_000, seed=3)
    latency = batches.latency(lambda k: fixed_s + each_s * k)
    assert batches.batch_mean == pytest.approx(batch, rel=0.02)
    assert latency.mean_s == pytest.approx(times.mean(), rel=0.02)
    assert batches.share.sum() == pytest.approx(1)
    for q in (0.2, 0.5, 0.95):
        assert latency.quantile_s(q) == pytest.approx(np.quantile(times, q), rel=0.03)


def dumb_cycle(rate_per_s: float, cycle: Cycle, count: int, seed: int) -> tuple[float, np.ndarray]:
    """Arrivals one by one through a bulk server that rests; the mean batch, and how long each waits for its batch to
    begin."""
    arrivals = np.cumsum(np.random.default_rng(seed).exponential(1 / rate_per_s, count))
    waits, batches, at, size, open_s = [], 0, 0, 1, 0.0

    def until(time_s: float) -> int:
        return int(np.searchsorted(arrivals, time_s, side="right")) - at

    while at < count:
        if waiting := until(open_s):
            begin_s, closed_s = open_s, float(cycle.driven(np.array([waiting]))[0])
        elif waiting := until(rested_s := open_s + float(cycle.rest(np.array([size]))[0])):
            begin_s, closed_s = rested_s, float(cycle.rested(np.array([waiting]))[0])
        else:
            waiting, begin_s, closed_s = 1, arrivals[at], cycle.alone_s
        waits += (begin_s - arrivals[at : at + waiting]).tolist()
        at, size, open_s, batches = at + waiting, waiting, begin_s + closed_s, batches + 1
    return count / batches, np.array(waits)


@pytest.mark.parametrize("rate", [30.0, 120.0])
def test_a_bulk_server_that_rests_is_that_of_arrivals_one_by_one(rate: float) -> None:
    cycle = Cycle(lambda k: 0.004 + 0.005 * k, lambda k: 0.008 + 0.001 * k, lambda k: 0.005 * k, 0.006)
    batches = solve_cycle(rate, cycle)
    assert batches is not None
    batch, waits = dumb_cycle(rate, cycle, 100_000, seed=3)
    found = batches.latency(lambda k: 0.0 * k)
    assert batches.batch_mean == pytest.approx(batch, rel=0.02)
    assert found.mean_s == pytest.approx(waits.mean(), rel=0.02)
    assert found.quantile_s(0.95) == pytest.approx(np.quantile(waits, 0.95), rel=0.03)


def test_a_bulk_server_of_many_takes_their_number_as_fixed() -> None:
    batches = solve_bulk_service(1e5, lambda k: 0.01 + 5e-6 * k)
    assert batches is not None
    assert batches.batch_mean == pytest.approx(1e5 * 0.01 / (1 - 0.5), rel=1e-6)
    assert solve_bulk_service(1e5, lambda k: 0.01 + 2e-5 * k) is None


def test_a_mixture_of_uniform_times() -> None:
    both = Mixture(np.array([0.25, 0.75]), np.array([1.0, 2.0]), np.array([0.0, 2.0])).plus([(0.5, 0.0), (0.5, 1.0)])
    assert both.mean_s == pytest.approx(0.25 * 1 + 0.75 * 3 + 0.5)
    assert both.tail(10.0) == 0
    assert both.tail(both.quantile_s(0.7)) == pytest.approx(0.3, abs=1e-6)


@pytest.mark.parametrize(
    ("group", "rate", "within"),
    [
        (Group(1, service=SERVICE), 90.0, 0.06),
        (Group(3, service=SERVICE), 90.0, 0.08),
        (Group(3, "batch", service=SERVICE), 90.0, 0.12),
        (Group(3, sync_s=0.0), 2000.0, 0.05),
        (Group(3), 1000.0, 0.03),
        (Group(3, entry="any"), 1000.0, 0.1),
        (Group(3, "batch"), 1000.0, 0.03),
        (Group(7, delay_s=2e-3), 500.0, 0.05),
        (Group(3, "fast"), 500.0, 0.05),
        (Group(3, "fast", entry="any", sync_s=0.0), 100.0, 0.1),
        (Group(3), 8000.0, 0.04),
    ],
)
def test_open_loop_latency_is_that_of_the_real_code(group: Group, rate: float, within: float) -> None:
    found = predict_open(group, rate)
    runs = [
        simulate_group(group, OpenLoad(rate, 24), duration_s=500 / rate, seed=11, run=run, drain_s=0.2)
        for run in range(3)
    ]
    times = np.concatenate([run.acknowledged_s for run in runs])
    assert found.acknowledged_mean_s == pytest.approx(times.mean(), rel=within)
    assert found.acknowledged_quantile_s(0.5) == pytest.approx(np.quantile(times, 0.5), rel=within + 0.03)
    batch = sum(len(run.acknowledged_s) for run in runs) / sum(run.instances for run in runs)
    assert found.batch_mean == pytest.approx(batch, rel=0.1)
    if group.replicas > 1:
        commit = np.concatenate([run.commit_s for run in runs]).mean()
        assert found.commit_mean_s == pytest.approx(commit, rel=0.12)
    if group.variant != "fast":
        cpu = sum(run.leader_cpu_s for run in runs) / len(times)
        assert found.leader_cpu_s == pytest.approx(cpu, rel=0.1)


@pytest.mark.parametrize("variant", ["multi", "batch"])
@pytest.mark.parametrize(
    ("publishers", "window", "think_s", "within"),
    # with long thinking both 4 and 5 cohorts go on for ever once they have formed, whose times differ by a fifth
    [
        (1, 1, 0.0, 0.02),
        (50, 1, 0.0, 0.02),
        (8, 1, 5e-4, 0.03),
        (8, 1, 5e-3, 0.2),
        (50, 1, 5e-4, 0.06),
        (50, 16, 5e-4, 0.2),
    ],
)
def test_closed_loop_throughput_is_that_of_the_real_code(
    variant: str, publishers: int, window: int, think_s: float, within: float
) -> None:
    group = Group(3, variant)
    found = predict_closed(group, publishers, window, think_s)
    load = ClosedLoad(publishers, window, think_s)
    run = simulate_group(group, load, duration_s=0.1, seed=2, drain_s=0.05)
    assert found.throughput_per_s == pytest.approx(run.throughput_per_s, rel=within)
    assert found.acknowledged_mean_s == pytest.approx(run.acknowledged_s.mean(), rel=within)


def test_light_load_by_hand() -> None:
    costs = GroupCosts(60e-6, 20e-6, 2e-6, 40e-6, 1e-6)
    found = predict_open(Group(3, costs=costs, service=SERVICE), 1e-6)
    propose, commit, apply = 60 + 10 + 2, 200 + 41 + 1000, 10 + 2000
    assert found.acknowledged_mean_s == pytest.approx((propose + commit + apply) * 1e-6, rel=1e-6)
    # the other follower costs as much, only later
    assert found.leader_cpu_s == pytest.approx((propose + apply + 20) * 1e-6, rel=1e-6)
    assert found.follower_cpu_s == pytest.approx((41 + 2000) * 1e-6, rel=1e-6)
    assert predict_open(Group(1, costs=costs), 0.0).acknowledged_mean_s == pytest.approx(1062e-6)


def test_saturation_is_where_the_real_code_stops_keeping_up() -> None:
    group = Group(3, service=SERVICE)
    # followers apply while the leader does: it is that of one replica
    assert saturation_per_s(group) == pytest.approx(1 / (2e-3 + 2e-6), rel=1e-3)
    below, above = (simulate_group(group, OpenLoad(rate, 24), duration_s=4.0, seed=3) for rate in (250.0, 600.0))
    assert below.throughput_per_s == pytest.approx(below.published / 4, rel=0.03)
    assert above.throughput_per_s < 0.9 * above.published / 4
    with pytest.raises(AssumptionError, match=r"broker b: 510 publications per second come.*order at most 499"):
        predict_open(group, 510.0, "broker b")


def test_more_replicas_more_delay_and_syncs_cost_latency() -> None:
    def mean(group: Group) -> float:
        return predict_open(group, 2000.0).acknowledged_mean_s

    assert mean(Group(3)) < mean(Group(5)) < mean(Group(7))
    assert mean(Group(3)) < mean(Group(3, delay_s=1e-3))
    assert mean(Group(3, window=10, delay_s=5e-3)) < mean(Group(3, "batch", delay_s=5e-3))
    assert mean(Group(3, sync_s=0.0)) < mean(Group(3))


@pytest.mark.parametrize(("delay_s", "gain"), [(1e-4, 1.0), (5e-3, 0.75)])
def test_a_window_pays_where_messages_take_long_and_costs_nothing_elsewhere(delay_s: float, gain: float) -> None:
    # where an instance takes no longer than three syncs there is one at a time, in either variant
    groups = [Group(3, variant, delay_s=delay_s) for variant in ("multi", "batch")]
    predicted = [predict_open(group, 1000.0).acknowledged_mean_s for group in groups]
    simulated = [
        simulate_group(group, OpenLoad(1000.0), duration_s=1.5, seed=1).acknowledged_s.mean() for group in groups
    ]
    assert predicted == pytest.approx(simulated, rel=0.03)
    assert predicted[0] / predicted[1] == pytest.approx(gain, abs=0.03)


def test_prediction_and_product_have_the_same_constants() -> None:
    settings = PaxosSpec().settings
    assert settings.proposal_interval_s == settings.commit_notification_s == Group().batching_delay_s
    assert (settings.lazy_delay_s, node._TIMER_S) == (Group().lazy_delay_s, Group().timer_s)
    assert pacing._INTERVAL_STORES == times.INTERVAL_SYNCS


def test_collisions_are_counted_in_the_fast_variant() -> None:
    direct = Group(3, "fast", entry="any")
    rare, frequent = predict_open(direct, 10.0), predict_open(direct, 2000.0)
    assert rare.collisions < 0.01 < 0.15 < frequent.collisions < 1
    assert predict_open(Group(3, "fast"), 2000.0).collisions == 0


def test_without_any_cost_nothing_saturates() -> None:
    group = Group(1, sync_s=0.0, costs=GroupCosts(0, 0, 0, 0, 0))
    assert saturation_per_s(group) == math.inf
    assert predict_open(group, 1e6).acknowledged_mean_s == 0


def test_varying_service_costs_more() -> None:
    exponential = parse_distribution("2ms")
    mean = [predict_open(Group(1, service=law), 200.0).acknowledged_mean_s for law in (SERVICE, exponential)]
    run = simulate_group(Group(1, service=exponential), OpenLoad(200.0), duration_s=10, seed=5)
    assert mean[0] < mean[1]
    assert mean[1] == pytest.approx(run.acknowledged_s.mean(), rel=0.15)


def test_the_shortest_wait_of_an_election_by_sampling() -> None:
    group, rng = Group(5), np.random.default_rng(1)
    leader, waits = 0, []
    for _ in range(20_000):
        wait = np.arange(5) * group.election_step_s + rng.uniform(0, group.backoff_s, 5)
        wait[leader] = math.inf
        leader = int(wait.argmin())
        waits.append(wait[leader])
    assert election_wait_s(group) == pytest.approx(np.mean(waits), rel=0.02)


@pytest.mark.parametrize(("group", "rate"), [(Group(3), 0.0), (Group(3, service=SERVICE), 60.0)])
def test_fail_over_is_that_of_the_real_code(group: Group, rate: float) -> None:
    gaps = np.concatenate([measure_failovers(group, rate, count=4, seed=3, run=run) for run in range(8)])
    assert len(gaps) == 32
    assert failover_s(group, rate) == pytest.approx(gaps.mean(), rel=0.08)
    assert failover_s(Group(1)) == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: predict_open(Group(3), -1.0), "rate_per_s: -1.0"),
        (lambda: predict_closed(Group(3), 0), "publishers, window: 0 and 1"),
        (lambda: predict_closed(Group(3), 1, think_s=math.inf), "think_s: inf"),
        (lambda: Group(4), "replicas: 4 must be an odd number"),
        (lambda: Group(3, "slow"), "variant: 'slow' is unknown; write one of multi, batch, fast"),
        (lambda: Group(3, window=0), "window: 0"),
        (lambda: Group(3, delay_s=-1), "delay_s: -1"),
        (lambda: Group(3, suspect_s=0), "suspect_s: 0"),
        (lambda: GroupCosts(peer_s=-1), "costs.peer_s: -1"),
    ],
)
def test_what_is_wrong_is_named(call: object, message: str) -> None:
    assert callable(call)
    with pytest.raises(ConfigurationError, match=message):
        call()
