"""Delays by client: means by hand, means and quantiles against a simulated network of queues."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
import pytest

from surecast.prediction.capacity import ALGORITHMS, notification_probability, predict_capacity
from surecast.scenario import System, build, parse_text

TREE = """
surecast: 1
name: tree
overlay:
  brokers:
    - {name: a, capacity: 100/s, service: SHAPE}
    - {name: b, capacity: 80/s, service: SHAPE}
    - {name: c, capacity: 120/s, service: SHAPE}
    - {name: d, capacity: 90/s, service: SHAPE}
  links:
    - {between: [a, b], latency: 5ms}
    - {between: [b, c], latency: 20ms}
    - {between: [b, d], latency: 1ms}
  root: b
workload:
  classes: [{name: k, weight: 2}, {name: m, weight: 1, service_factor: FACTOR}]
  clients: [{name: w, home: a}, {name: x, home: b}, {name: y, count: 2, home: c}, {name: z, home: d}]
  subscriptions: {active: 8, lifetime: 200s}
  publications: RATE/s
"""


def tree(rate: float, shape: str = "exponential", factor: float = 1.0) -> System:
    text = TREE.replace("SHAPE", shape).replace("RATE", str(rate)).replace("FACTOR", str(factor))
    return build(parse_text(text))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_means_are_sums_over_paths(algorithm: str) -> None:
    # M/M/1 queues, by walking every path: 1 / (capacity - rate) at every broker, and the latency of every link
    system = tree(40.0)
    report = predict_capacity(system, [algorithm])
    graph, overlay, workload = system.overlay.graph, system.overlay, system.class_workload
    at = [
        1 / (1 / broker.notification_service.mean_s - report.value("rate_in_per_s", name=broker.name))
        for broker in overlay.brokers
    ]
    published = workload.by_broker(workload.publication_rate_per_s, 4)
    totals = np.zeros(2)
    by_class = np.zeros((2, 2))
    for c, client in enumerate(workload.clients):
        rate = delay = 0.0
        for f in range(2):
            active = 200.0 * workload.subscription_rate_per_s[f, c]
            match = float(notification_probability("simple", active))
            for p in range(4):
                path = nx.shortest_path(graph, p, workload.client_home[c])
                way = sum(at[i] for i in path)
                way += sum(overlay.links[graph.edges[pair]["link"]].latency_s for pair in nx.utils.pairwise(path))
                weight = match * published[f, p]
                rate, delay = rate + weight, delay + weight * way
                by_class[f] += weight, weight * way
        totals += rate, delay
        assert report.value("throughput_per_s", name=client) == pytest.approx(rate)
        assert report.value("delay_mean_s", name=client) == pytest.approx(delay / rate)
    for f, name in enumerate(("k", "m")):
        assert report.value("delay_mean_s", scope="class", name=name) == pytest.approx(by_class[f, 1] / by_class[f, 0])
        assert report.value("throughput_per_s", scope="class", name=name) == pytest.approx(by_class[f, 0])
    assert report.value("throughput_per_s", scope="system") == pytest.approx(totals[0])
    assert report.value("delay_mean_s", scope="system") == pytest.approx(totals[1] / totals[0])


@pytest.mark.parametrize(
    ("shape", "rate", "factor", "mean_off", "quantile_off"),
    [
        ("exponential", 50.0, 1.0, 0.03, 0.06),
        # What leaves a queue with regular service is more regular than the Poisson stream that Eq. 29 takes it for.
        ("deterministic", 25.0, 1.0, 0.06, 0.15),
        ("{distribution: erlang, stages: 3}", 25.0, 2.0, 0.05, 0.08),
    ],
    ids=["exponential", "deterministic", "erlang-factors"],
)
def test_delays_are_those_of_a_simulated_network(
    flood: Callable[..., Any], shape: str, rate: float, factor: float, mean_off: float, quantile_off: float
) -> None:
    # Means are exact but for the independence of queues; quantiles also suffer from the gamma fit.
    system = tree(rate, shape, factor)
    report = predict_capacity(system, ["flooding"])
    seen, workload = flood(system, 60_000, 11), system.class_workload
    for c, client in enumerate(workload.clients):
        match = notification_probability("simple", 200.0 * workload.subscription_rate_per_s[:, c])[seen.kind]
        delays = seen.delay_s[:, workload.client_home[c]]
        mean = np.average(delays, weights=match)
        assert report.value("delay_mean_s", name=client) == pytest.approx(mean, rel=mean_off)
        for detail, level in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
            seen_s = np.quantile(delays, level, weights=match, method="inverted_cdf")
            found = report.value("delay_quantile_s", name=client, detail=detail)
            assert found == pytest.approx(seen_s, rel=quantile_off)


def test_who_receives_nothing_has_no_delay() -> None:
    text = TREE.replace("SHAPE", "exponential").replace("RATE", "5").replace("FACTOR", "1")
    system = build(parse_text(text))
    workload = system.class_workload
    rates = workload.subscription_rate_per_s.copy()
    rates[:, 0] = 0.0
    system = replace(system, class_workload=replace(workload, subscription_rate_per_s=rates))
    report = predict_capacity(system, ["flooding"])
    assert report.value("throughput_per_s", name="w") == 0.0
    assert not report.figures(metric="delay_mean_s", name="w")
    assert not report.figures(metric="delay_quantile_s", name="w")
    assert report.value("delay_mean_s", name="x") > 0


def test_clients_can_be_left_out() -> None:
    report = predict_capacity(tree(5.0), ["flooding"], by_client=False)
    assert not report.figures(scope="subscriber")
    assert not report.figures(scope="class")
    assert report.value("delay_quantile_s", scope="system", detail="p99") > 0


def test_measured_filters_decide_what_a_client_receives() -> None:
    # Every subscription asks for values up to 1, and a quarter of the notifications has one.
    text = (
        TREE.replace("SHAPE", "exponential")
        .replace("RATE", "5")
        .replace("FACTOR", "1")
        .replace(
            "workload:",
            "workload:\n  filters: [{name: v, value: {edges: [0, 1, 4], weights: [1, 3]}, interval: {ends: [0, 1]}}]",
        )
    )
    system = build(parse_text(text))
    report = predict_capacity(system, ["flooding"])
    active = 200.0 * system.class_workload.subscription_rate_per_s[:, 0]
    # Two ends of 0 and 1 hold the values between them half of the time.
    expected = (1 - np.exp(-active / 2)) / 4 @ system.class_workload.publication_rate_per_s.sum(axis=1)
    assert report.value("throughput_per_s", name="w") == pytest.approx(expected)
    assert report.value("notification_delay_latest_s") > 0


def test_time_spent_on_routing_tables_is_part_of_the_delay() -> None:
    plain = tree(20.0)
    text = TREE.replace("SHAPE", "exponential").replace("RATE", "20").replace("FACTOR", "1")
    slow = build(
        parse_text(
            text.replace("service: exponential}", "service: exponential, matching: {algorithm: index, match: 1ms}}")
        )
    )
    delays = [predict_capacity(each, ["flooding"]).value("delay_mean_s", name="w") for each in (plain, slow)]
    assert delays[1] > delays[0] + 1e-4
