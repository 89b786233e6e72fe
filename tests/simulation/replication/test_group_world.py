"""A group in virtual time: by hand under light load, under failures, and over years."""

from __future__ import annotations

import math

import numpy as np
import pytest

from surecast.errors import ConfigurationError, SaturationError
from surecast.scenario import Failures, build, parse_distribution, parse_text
from surecast.scenario.group import Group, GroupCosts
from surecast.simulation.replication import (
    ClosedLoad,
    OpenLoad,
    measure_failovers,
    replication_simulation,
    simulate_group,
    simulate_group_reliability,
    simulate_outages,
    simulate_replication,
)
from surecast.simulation.replication.simulated_group import GroupWorld

SERVICE = parse_distribution({"distribution": "deterministic", "mean": "2ms"})
FAILURES = Failures(parse_distribution("90s"), parse_distribution("10s"))


@pytest.mark.parametrize("variant", ["multi", "batch", "fast"])
@pytest.mark.parametrize("replicas", [1, 3, 5])
def test_one_publication_takes_what_its_parts_take(replicas: int, variant: str) -> None:
    costs, peers = GroupCosts(60e-6, 20e-6, 2e-6, 40e-6, 1e-6), replicas - 1
    group = Group(replicas, variant, costs=costs, service=SERVICE)
    run = simulate_group(group, ClosedLoad(1, think_s=0.02), duration_s=0.3, seed=1)
    told = peers if variant == "fast" else peers // 2  # the others are told when nobody waits any more
    parts_us = 60 + told * 10 + 2 + 1000 + told * 10 + 2000
    if peers:
        parts_us += 2 * 100 + 41
    assert np.median(run.acknowledged_s) == pytest.approx(parts_us * 1e-6, rel=1e-6)
    assert len(run.acknowledged_s) == run.published == run.instances


def test_who_publishes_on_without_a_pause_waits_for_followers_that_apply() -> None:
    run = simulate_group(Group(3, service=SERVICE), ClosedLoad(1), duration_s=0.1, seed=1)
    # the 72 us of proposing pass meanwhile
    assert np.median(run.acknowledged_s) == pytest.approx((1241 + 2000 + 2010) * 1e-6, rel=1e-6)


def test_first_of_all_by_hand() -> None:
    world = GroupWorld(Group(3, service=SERVICE), seed=5)
    world.clock.run(2.0)
    assert world.leader is not None
    one = world.publish(1)
    world.clock.run(2.1)
    # nobody has decided anything yet: both followers are told at once
    assert one.acknowledged_s - one.asked_s == pytest.approx((82 + 1241 + 2020) * 1e-6, abs=2e-6)


@pytest.mark.parametrize(("variant", "answers_us"), [("multi", (3393, 6413)), ("batch", (3393, 6644))])
def test_a_leader_applies_while_others_vote(variant: str, answers_us: tuple[int, int]) -> None:
    world = GroupWorld(Group(3, variant, service=SERVICE, lazy_delay_s=2e-3), seed=5)
    world.clock.run(2.0)
    world.publish(1)
    world.clock.run(2.5)
    first = world.publish(1)
    world.clock.run(2.5005)
    second = world.publish(2)
    world.clock.run(2.6)
    # The votes are there 72 + 1241 us after the first is asked, and take 10. Then, multi: the next proposal takes 70,
    # applying 2000 and the sync 1000, before which the next votes are there; the other follower is told (10).
    # Batch: applying takes 2000, the next proposal 70, its votes 1241; the other follower is told meanwhile.
    # Votes take 10 and applying 2000 again.
    times = [one.acknowledged_s - first.asked_s for one in (first, second)]
    assert times == pytest.approx([time_us * 1e-6 for time_us in answers_us], abs=2e-6)


def test_who_neither_decides_nor_has_publishers_hears_of_several_together() -> None:
    group = Group(3)
    world = GroupWorld(group, seed=5)
    world.clock.run(2.0)
    world.offer(ClosedLoad(1), 2.1)
    world.clock.run(2.1)
    before = {host.id: host.cpu_s for host in world.hosts.values()}
    done = len(world.publications)
    world.offer(ClosedLoad(1), 3.1)
    world.clock.run(3.2)
    assert world.leader is not None
    count = len(world.publications) - done
    leader_s = world.hosts[world.leader.id].cpu_s - before[world.leader.id]
    least_s, most_s = sorted(host.cpu_s - before[host.id] for host in world.hosts.values() if host is not world.leader)
    assert most_s == pytest.approx(count * 41e-6, rel=0.01)
    # one message for all of `lazy_delay_s`, a timer's lateness, and what is left of the instance in flight
    together = (least_s - count * 1e-6) / 40e-6
    assert 1 / (group.lazy_delay_s + group.timer_s + 1.4e-3) < together < 1 / group.lazy_delay_s
    assert leader_s == pytest.approx(count * 82e-6 + together * 20e-6, rel=0.01)


def test_the_same_seed_gives_the_same_run() -> None:
    first, again, other = (
        simulate_group(Group(3), OpenLoad(300.0, 3), duration_s=0.5, seed=seed).acknowledged_s for seed in (1, 1, 2)
    )
    assert first.tolist() == again.tolist() != other.tolist()


@pytest.mark.parametrize("entry", ["leader", "any"])
@pytest.mark.parametrize("variant", ["multi", "batch", "fast"])
def test_every_publication_is_acknowledged_once_through_failures(variant: str, entry: str) -> None:
    world = GroupWorld(Group(3, variant, entry=entry), seed=3)
    world.clock.run(2.0)
    world.offer(OpenLoad(50.0, 4), 8.0)
    for _ in range(3):
        world.clock.run(world.clock.now + 1.0)
        leader = world.leader
        assert leader is not None
        world.crash(leader)
        world.clock.run(world.clock.now + 1.0)
        world.start(leader)
    world.clock.run(12.0)
    assert all(one.acknowledged_s >= one.asked_s for one in world.publications)
    replicas = [host.replica for host in world.hosts.values()]
    assert len({replica.hash for replica in replicas if replica is not None}) == 1
    # one that was sent to a leader that failed and again to the next is applied once
    assert {host.handler.executed for host in world.hosts.values()} == {len(world.publications)}


def test_without_a_majority_nothing_is_acknowledged_until_it_is_back() -> None:
    world = GroupWorld(Group(3), seed=3, down=frozenset({2, 3}))
    world.clock.run(2.0)
    one = world.publish(1)
    world.clock.run(5.0)
    assert one.acknowledged_s < 0
    world.start(world.hosts[2])
    world.clock.run(10.0)
    assert 5.0 < one.acknowledged_s < 8.0


def test_with_none_up_publishers_wait() -> None:
    world = GroupWorld(Group(1), seed=3, down=frozenset({1}))
    one = world.publish(1)
    world.clock.run(1.0)
    world.start(world.hosts[1])
    world.clock.run(4.0)
    assert one.acknowledged_s > 1.0


def test_failures_of_replicas_reach_the_latency() -> None:
    failing = Group(3, failures=Failures(parse_distribution("8s"), parse_distribution("1s")))
    run = simulate_group(failing, OpenLoad(40.0, 2), duration_s=20.0, seed=9)
    calm = simulate_group(Group(3), OpenLoad(40.0, 2), duration_s=20.0, seed=9)
    assert run.acknowledged_s.max() > 0.2 > calm.acknowledged_s.max()


def test_fail_overs_take_at_least_the_silence_that_is_suspected() -> None:
    group = Group(3, suspect_s=0.1)
    gaps = measure_failovers(group, 20.0, count=4, seed=1)
    assert len(gaps) == 4
    assert (gaps > group.suspect_s - group.heartbeat_s).all()
    assert (gaps < 3 * group.suspect_s).all()
    assert not len(measure_failovers(Group(1), 20.0, count=4, seed=1))


@pytest.mark.parametrize("replicas", [1, 3, 5])
def test_availability_is_that_of_independent_replicas(replicas: int) -> None:
    """Against the binomial: of independent replicas without elections."""
    group, least = Group(replicas, failures=FAILURES), replicas // 2 + 1
    expected = sum(math.comb(replicas, k) * 0.9**k * 0.1 ** (replicas - k) for k in range(least, replicas + 1))
    shares = []
    for seed in range(10):
        starts, ends = simulate_outages(group, np.zeros(1), horizon_s=1e5, seed=seed)
        assert (starts[1:] > ends[:-1]).all()
        shares.append(float((ends - starts).sum()) / 1e5)
    assert np.mean(shares) == pytest.approx(expected, abs=0.004)


def test_a_group_that_never_fails_has_no_outage() -> None:
    starts, ends = simulate_outages(Group(3), np.zeros(1), horizon_s=10.0, seed=1)
    assert (starts.tolist(), ends.tolist()) == ([0.0], [10.0])


SCENARIO = """
surecast: 1
name: small
overlay: {brokers: [{name: a}, {name: b}], links: [[a, b]]}
availability: {brokers: {mtbf: 1d, mttr: 1h}}
workload:
  topics: [t]
  deadline: 60s
  publishers: [{name: p, home: a, topics: [t], rate: 50/s}]
  subscribers: [{name: s, home: b, topics: [t]}]
delivery: {replication: {replicas: 3}}
"""


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replication_simulation, "FAILOVERS", 2)
    monkeypatch.setattr(replication_simulation, "CYCLES", 100)


@pytest.mark.usefixtures("few")
def test_the_report_has_every_broker_and_is_the_same_for_the_same_seed() -> None:
    system = build(parse_text(SCENARIO))
    seen: list[tuple[int, int]] = []

    def progress(done: int, total: int) -> None:
        seen.append((done, total))

    first = simulate_replication(system, runs=2, duration_s=1.0, seed=4, progress=progress)
    again = simulate_replication(system, runs=2, duration_s=1.0, seed=4)
    assert [str(figure) for figure in first] == [str(figure) for figure in again]
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert first.value("throughput_per_s", name="b") == pytest.approx(50, rel=0.4)
    assert {figure.name for figure in first} == {"a", "b"}


@pytest.mark.usefixtures("few")
def test_overload_is_refused_and_slow_ordering_warned_of() -> None:
    text = SCENARIO.replace("{name: a}", "{name: a, service: {distribution: deterministic, mean: 30ms}}")
    with pytest.raises(SaturationError, match="broker a is overloaded: 50 events/s come"):
        simulate_replication(build(parse_text(text)), runs=2, duration_s=2.0, seed=1)
    text = SCENARIO.replace(
        "replication: {", "replication: {publication_cost: 200ms, follower_publication_cost: 200ms, "
    )
    report = simulate_replication(build(parse_text(text)), runs=2, duration_s=2.0, seed=1)
    assert any("broker a: some publications" in warning for warning in report.info.warnings)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: OpenLoad(-1.0), "rate_per_s: -1.0"),
        (lambda: OpenLoad(1.0, 0), "publishers: 0"),
        (lambda: ClosedLoad(0), "publishers, window: 0 and 1"),
        (lambda: ClosedLoad(1, think_s=-1), "think_s: -1"),
        (lambda: simulate_replication(build(parse_text(SCENARIO)), runs=0), "runs: 0"),
        (lambda: simulate_replication(build(parse_text(SCENARIO)), duration_s=0), "duration_s: 0"),
        (lambda: simulate_group_reliability(build(parse_text(SCENARIO)), runs=0, duration_s=1, seed=1), "runs: 0"),
    ],
)
def test_what_is_wrong_is_named(call: object, message: str) -> None:
    assert callable(call)
    with pytest.raises(ConfigurationError, match=message):
        call()
