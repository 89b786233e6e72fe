"""The composed simulation: against a plain second implementation, against its parts, and against the prediction."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from surecast.errors import ConfigurationError
from surecast.prediction.composed import composed_mechanisms, predict_composed
from surecast.report import QoSReport, check_accounts
from surecast.scenario import System, build, parse_text
from surecast.scenario.group import group_of
from surecast.scenario.saturation import broker_rates_per_s
from surecast.simulation import simulate_reliability
from surecast.simulation.composed import simulate_composed
from surecast.simulation.composed.kernels import EXPIRED, HOME_DOWN, PATH_DOWN, REACHED, UNDER_WAY, travel
from surecast.simulation.dropping import simulate_dropping
from surecast.simulation.reliability.compiled.up_intervals import join
from surecast.simulation.replication.group_load import OpenLoad
from surecast.simulation.replication.group_load_run import simulate_group


def random_system(seed: int, scheme: str) -> System:
    """A random tree of two to four brokers in which everything happens."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 5))
    links = ", ".join(f"[b{int(rng.integers(0, i))}, b{i}]" for i in range(1, count))
    homes = [f"b{int(h)}" for h in rng.integers(0, count, 4)]
    on, off = rng.uniform(20, 60, 2)
    up, down = rng.uniform(600, 1500), rng.uniform(20, 80)
    policy = [
        "{policy: none}",
        "{policy: probabilistic, join_probability: 0.5}",
        "{policy: finite-buffer, buffer_size: 30}",
    ]
    replicas = int(rng.choice([1, 3]))
    replication = f", replication: {{replicas: {replicas}}}" if replicas > 1 else ""
    return build(
        parse_text(f"""
surecast: 1
name: random
overlay:
  brokers: [{", ".join(f"{{name: b{i}, capacity: {rng.uniform(15, 40):.1f}/s}}" for i in range(count))}]
  links: [{links}]
availability: {{brokers: {{mtbf: {up:.1f}s, mttr: {down:.1f}s}}, links: {{availability: 0.98, period: 600s}}}}
workload:
  topics: [t, u]
  deadline: 40s
  publishers:
    - {{name: p, home: {homes[0]}, topics: [t], rate: 1/s}}
    - {{name: q, home: {homes[1]}, topics: [t, u], rate: 1/s}}
  subscribers:
    - {{name: s, home: {homes[2]}, topics: [t]}}
    - {{name: r, home: {homes[3]}, topics: [t, u], connectivity: {{on: {on:.1f}s, off: {off:.1f}s}}, service: 10/s}}
delivery:
  fault_tolerance: {{scheme: {scheme}, retransmission_interval: 4s, refresh_interval: 10s}}
  dropping: {policy[int(rng.integers(0, 3))]}{replication.replace(", replication", chr(10) + "  replication")}
""")
    )


def simulated(system: System, *, runs: int = 8, duration_s: float = 15_000.0, seed: int = 5) -> QoSReport:
    return simulate_composed(
        system, mechanisms=composed_mechanisms(system), runs=runs, duration_s=duration_s, warm_up_s=300.0, seed=seed
    )


def figure_of(report: QoSReport, metric: str, name: str) -> Any:
    (figure,) = report.select(metric=metric, name=name)
    return figure


@pytest.mark.parametrize("scheme", ["periodic-subscription", "buffering"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_prediction_is_near_the_simulation(seed: int, scheme: str) -> None:
    """Within the 95 % interval, or off by no more than the independence that is assumed costs (background/composed)."""
    system = random_system(seed, scheme)
    predicted, found = predict_composed(system, factors=False), simulated(system)
    assert check_accounts(found) == []
    for name in ("s", "r"):
        for metric, bias in (("reliability", 0.03), ("success_share", 0.02)):
            figure = figure_of(found, metric, name)
            value = predicted.value(metric, name=name, variant="composed")
            half = (figure.high - figure.low) / 2
            assert abs(value - figure.value) <= half + bias, (name, metric, value, figure)
        figure = figure_of(found, "delay_mean_s", name)
        value = predicted.value("delay_mean_s", name=name, variant="composed")
        half = (figure.high - figure.low) / 2
        assert abs(value - figure.value) <= half + 0.25 * figure.value, (name, value, figure)


def line(text: str) -> System:
    return build(parse_text(f"surecast: 1\nname: line\n{text}"))


@pytest.mark.parametrize("refresh", ["end-to-end", "link"])
def test_without_queues_and_disconnections_it_is_the_walk(refresh: str) -> None:
    """The components fail at the same times as in the walk; only the publications are at others."""
    text = """
overlay: {brokers: [{name: a}, {name: b}, {name: c}], links: [[a, b], [b, c]]}
availability: {brokers: {availability: 0.9, period: 600s}, links: {availability: 0.97, period: 400s}}
workload:
  topics: [t]
  deadline: 40s
  publishers: [{name: p, home: a, topics: [t], rate: 2/s}]
  subscribers: [{name: s, home: c, topics: [t]}, {name: r, home: b, topics: [t]}]
delivery: {fault_tolerance: {retransmission_interval: 4s, refresh_interval: 10s, refresh: REFRESH}}
"""
    system = line(text.replace("REFRESH", refresh))
    for scheme in ("none", "periodic-subscription", "buffering"):
        walked = simulate_reliability(system, [scheme], runs=3, duration_s=20_000, seed=3)
        found = simulate_composed(system, scheme, runs=3, duration_s=20_000, seed=3)
        for name in ("s", "r"):
            for figure in walked.select(name=name, metric="share_dropped"):
                mine = [f.value for f in found.select(name=name, metric="share_dropped") if f.detail == figure.detail]
                assert (mine[0] if mine else 0.0) == pytest.approx(figure.value, abs=0.006), (scheme, figure)
            if scheme == "buffering":
                expected = walked.value("delay_mean_s", name=name)
                assert found.value("delay_mean_s", name=name) == pytest.approx(expected, rel=0.05)


def test_without_failures_at_one_broker_it_is_the_simulation_of_dropping() -> None:
    system = line("""
overlay: {brokers: [{name: b, capacity: 12/s, service: exponential}]}
workload:
  topics: [t]
  deadline: 30s
  publishers: [{name: p, home: b, topics: [t], rate: 2/s}]
  subscribers: [{name: s, home: b, topics: [t], connectivity: {on: 20s, off: 20s}, service: 8/s}]
delivery: {dropping: {policy: probabilistic, join_probability: 0.4}}
""")
    known = simulate_dropping(system, runs=8, duration_s=20_000, seed=1)
    found = simulated(system, duration_s=20_000)
    for metric in ("success_share", "delay_mean_s", "response_mean_s"):
        a, b = figure_of(known, metric, "s"), figure_of(found, metric, "s")
        assert max(a.low, b.low) <= min(a.high, b.high), (a, b)
    # M/M/1
    assert found.value("delay_mean_s", name="b") == pytest.approx(0.1, rel=0.03)


def test_a_group_takes_as_long_as_the_consensus_code() -> None:
    system = line("""
overlay: {brokers: [{name: b}]}
workload:
  topics: [t]
  publishers: [{name: p, home: b, topics: [t], rate: 50/s}]
  subscribers: [{name: s, home: b, topics: [t]}]
delivery: {replication: {replicas: 3}}
""")
    found = simulate_composed(system, runs=2, duration_s=200, seed=1).value("delay_mean_s", name="s")
    group = group_of(system, 0)
    real = simulate_group(group, OpenLoad(broker_rates_per_s(system)[0]), duration_s=10.0, seed=1).acknowledged_s.mean()
    assert found == pytest.approx(float(real), rel=0.05)


def test_it_depends_on_the_seed_alone() -> None:
    system = random_system(4, "buffering")
    a, b = (simulated(system, runs=2, duration_s=2000, seed=9) for _ in range(2))
    assert [f.value for f in a] == [f.value for f in b]
    other = simulated(system, runs=2, duration_s=2000, seed=10)
    assert [f.value for f in a] != [f.value for f in other]


def test_what_cannot_be_simulated_is_refused_by_name() -> None:
    system = random_system(1, "buffering")
    with pytest.raises(ConfigurationError, match="no scheme 'teleport'"):
        simulate_composed(system, "teleport", runs=2, duration_s=100, seed=1)
    report = simulate_composed(system, runs=2, duration_s=100, seed=1)
    assert any("without a dropping mechanism" in warning for warning in report.info.warnings)


Up = list[tuple[float, float]]


def worked(where: Up, time: float, work: float) -> float:
    for start, end in where:
        if end > time:
            time = max(time, start)
            if time + work <= end:
                return time + work
            work, time = work - (end - time), end
    return math.inf


def plainly(
    times: list[float], services: list[list[float]], ups: list[Up], links: list[Up], rules: tuple[bool, float, float]
) -> list[tuple[int, float]]:
    """A line of brokers, one event at a time from a list that is sorted anew at every step: slow, and short."""
    stores, interval, lives_s = rules
    fates: list[tuple[int, float]] = [(UNDER_WAY, math.inf)] * len(times)
    free, drawn = [0.0] * len(ups), [0] * len(ups)
    pending = [(time, event, 0) for event, time in enumerate(times)]

    def up(where: Up, time: float) -> bool:
        return any(a <= time < b for a, b in where)

    while pending:
        pending.sort()
        now, event, at = pending.pop(0)
        if at == 0 and not up(ups[0], now):
            fates[event] = (HOME_DOWN, math.inf)
            continue
        work = services[at][drawn[at]]
        drawn[at] += 1
        left = free[at] = worked(ups[at], max(now, free[at]), work)
        if not stores and not any(a <= now and left < b for a, b in ups[at]):
            fates[event] = (PATH_DOWN, math.inf)
            continue
        if at == len(ups) - 1:
            fates[event] = (REACHED, left)
            continue
        attempt, tries = left, 0
        while not (up(ups[at], attempt) and up(links[at], attempt) and up(ups[at + 1], attempt)):
            tries += 1
            attempt = left + tries * interval
            if not stores or attempt > times[event] + lives_s:
                break  # what is late by queues alone goes on
        if tries and not stores:
            fates[event] = (PATH_DOWN, math.inf)
        elif tries and attempt > times[event] + lives_s:
            fates[event] = (EXPIRED, math.inf)
        else:
            pending.append((attempt, event, at + 1))
    return fates


def random_ups(rng: np.random.Generator) -> Up:
    edges = np.cumsum(rng.exponential(np.tile([5.0, 35.0], 30)))
    return [(float(a), float(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)] + [(5000.0, math.inf)]


@pytest.mark.parametrize("stores", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_travel_is_what_a_plain_simulation_does(seed: int, stores: bool) -> None:
    rng = np.random.default_rng(seed)
    brokers, interval, lives_s = 3, 2.0, 25.0
    ups, links = [random_ups(rng) for _ in range(brokers)], [random_ups(rng) for _ in range(brokers - 1)]
    times = np.sort(rng.uniform(0.0, 300.0, 150))
    services = rng.exponential(0.8, (brokers, len(times)))
    expected = plainly(times.tolist(), services.tolist(), ups, links, (stores, interval, lives_s))
    lists = [(np.array([a for a, _ in up]), np.array([b for _, b in up])) for up in ups]
    hops = []
    for i, link in enumerate(links):
        parts = [ups[i], link, ups[i + 1]]
        cuts = sorted({edge for part in parts for pair in part for edge in pair})
        both = [(a, b) for a, b in pairwise(cuts) if all(any(s <= a and b <= e for s, e in p) for p in parts)]
        hops.append((np.array([a for a, _ in both]), np.array([b for _, b in both])))
    count = len(times)
    events = (times, np.zeros(count, np.int64), times + lives_s, np.arange(count))
    nodes, zero = np.arange(brokers), np.zeros(brokers, np.int64)
    tree = (nodes, nodes - 1, 2 * np.maximum(nodes - 1, 0), np.array([0, 1, 2, 2]), np.array([1, 2]))
    never = np.full(brokers, -1)
    targets = (np.arange(brokers + 1), zero, np.array([False, False, True]), never, never)
    over = (np.zeros(4), np.zeros(4), np.zeros(5, np.int64), np.zeros(0, np.int64))
    fates, arrivals, sums = np.zeros(count, np.int32), np.full(count, math.inf), np.zeros((brokers, 2))
    drawn, starts = np.append(services.ravel(), 0.0), np.arange(brokers) * count
    took = (drawn, starts, np.full(brokers, count), np.zeros((brokers, 1)), np.zeros((0, 1)))
    some = np.zeros(0, np.int64)
    graph = (np.zeros(brokers + 1, np.int64), some, some)
    table = np.zeros((1, brokers), np.int64)
    around = (graph, np.zeros(0), some, zero, zero, table, zero, nodes - 1, np.array([1, 0, 2, 1]))
    rules = (np.array([stores]), interval, np.array([False]), np.array([False]))
    travel(
        events, tree, targets, over, join(lists), join(hops), join([(np.empty(0), np.empty(0))]),
        np.zeros((brokers, 7)), took, rules, around, (np.zeros(0), some, np.zeros(0)),
        (0.0, 300.0, 4000.0), np.ones(1, np.uint64), fates, arrivals, sums,
    )  # fmt: skip
    assert fates.tolist() == [fate for fate, _ in expected]
    assert arrivals == pytest.approx([time for _, time in expected])
    assert {REACHED, HOME_DOWN} <= set(fates.tolist())


@pytest.mark.parametrize("scheme", ["bypass", "bypass-buffering"])
def test_ways_around_losses_and_queues_on_links_are_as_predicted(scheme: str) -> None:
    system = line(f"""
overlay:
  brokers: [{{name: b, count: 4, capacity: 20/s}}]
  links: {{build: ring, loss: 0.05, capacity: 12/s, latency: 20ms}}
availability: {{brokers: {{availability: 0.95, period: 400s}}, links: {{availability: 0.95, period: 300s}}}}
workload:
  topics: [t]
  deadline: 20s
  publishers: [{{name: p, home: b-1, topics: [t], rate: 2/s}}]
  subscribers: [{{name: s, home: b-3, topics: [t]}}, {{name: r, home: b-2, topics: [t]}}]
delivery: {{fault_tolerance: {{scheme: {scheme}, retransmission_interval: 2s}}}}
""")
    predicted, found = predict_composed(system, factors=False), simulated(system, runs=6, duration_s=12_000.0)
    assert check_accounts(found) == []
    for name in ("s", "r"):
        figure = figure_of(found, "reliability", name)
        assert predicted.value("reliability", name=name, variant="composed") == pytest.approx(figure.value, abs=0.03)
    reasons = {f.detail for f in found.select(metric="share_dropped", name="s")}
    assert ("lost on a link" in reasons) == ("partitioned" in reasons) == (scheme == "bypass")


def test_each_topic_has_its_own_scheme() -> None:
    """As predicted; what is stored waits for repairs, what is not is lost or goes around."""
    system = line("""
overlay: {brokers: [{name: b, count: 4, capacity: 20/s}], links: {build: ring}}
availability: {brokers: {availability: 0.92, period: 400s}, links: {availability: 0.95, period: 300s}}
workload:
  topics: [t, u, v]
  deadline: 30s
  publishers: [{name: p, home: b-1, topics: [t, u, v], rate: 1.5/s}]
  subscribers: [{name: s, home: b-3, topics: [t]}, {name: r, home: b-3, topics: [u]}, {name: q, home: b-3, topics: [v]}]
delivery:
  fault_tolerance: {scheme: none, refresh: link, retransmission_interval: 2s, schemes: {u: buffering, v: bypass}}
""")
    predicted, found = predict_composed(system, factors=False), simulated(system, runs=6, duration_s=12_000.0)
    assert check_accounts(found) == check_accounts(predicted) == []
    reasons = {"s": "path down", "r": "expired", "q": "partitioned"}
    for name, reason in reasons.items():
        figure = figure_of(found, "reliability", name)
        assert predicted.value("reliability", name=name, variant="composed") == pytest.approx(figure.value, abs=0.03)
        for report in (predicted, found):
            lost = {f.detail for f in report.select(metric="share_dropped", name=name) if f.value > 1e-9}
            assert reason in lost
            assert not lost & (set(reasons.values()) - {reason, "path down"}), name


def test_messages_queue_on_links_and_come_back_as_acknowledgements() -> None:
    """A link of 5/s with 4/s is M/M/1; acknowledgements take half of the sender's broker."""
    system = line("""
overlay: {brokers: [{name: a, capacity: 10/s}, {name: b}], links: [{between: [a, b], capacity: 5/s}]}
workload:
  topics: [t]
  publishers: [{name: p, home: a, topics: [t], rate: 4/s}]
  subscribers: [{name: s, home: b, topics: [t]}]
delivery: {fault_tolerance: {scheme: buffering, refresh: link}}
""")
    found = simulated(system, runs=6, duration_s=10_000.0)
    assert found.value("delay_mean_s", name="a") == pytest.approx(0.5, rel=0.1)
    assert found.value("delay_mean_s", name="s") == pytest.approx(1.5, rel=0.1)


def test_what_is_late_by_queues_alone_is_delivered_late() -> None:
    system = line("""
overlay: {brokers: [{name: a, capacity: 5/s}, {name: b, capacity: 5/s}], links: [[a, b]]}
workload:
  topics: [t]
  deadline: 500ms
  publishers: [{name: p, home: a, topics: [t], rate: 4/s}]
  subscribers: [{name: s, home: b, topics: [t]}]
delivery: {fault_tolerance: {scheme: none}}
""")
    for scheme in ("none", "buffering"):
        found = simulate_composed(system, scheme, runs=2, duration_s=3000.0, seed=2)
        assert found.value("success_share", name="s") == pytest.approx(1.0)
        assert found.value("share_late", name="s") > 0.5


BUSY = """
surecast: 1
name: busy
overlay: {brokers: [{name: b, capacity: 10/s}]}
workload:
  topics: [t]
  deadline: 1min
  publishers: [{name: p, home: b, topics: [t], rate: RATE}]
  subscribers: [{name: s, home: b, topics: [t]}]
"""


def warned(rate: str, duration_s: float, warm_up_s: float = 0.0) -> list[str]:
    system = build(parse_text(BUSY.replace("RATE", rate)))
    report = simulate_composed(system, runs=4, duration_s=duration_s, warm_up_s=warm_up_s, seed=1)
    return [warning for warning in report.info.warnings if "remembers its start" in warning]


def test_a_queue_near_saturation_is_warned_about_until_runs_are_long_enough() -> None:
    # 2 U s (1 + c) / (1 - U)² = 2 * 0.95 * 0.1 * 2 / 0.0025 = 152 s
    (warning,) = warned("9.5/s", 2000.0)
    assert warning.startswith(
        "composed: broker b has a utilisation of 0.95: its queue remembers its start for about 152 s"
    )
    assert "a warm-up of 760 s" in warning
    assert "a duration of 7.6e+03 s" in warning
    assert warned("9.5/s", 8000.0, 760.0) == []
    assert warned("5/s", 2000.0) == []
