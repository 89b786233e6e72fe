"""The expected latest delivery against Monte Carlo: random subscriptions, independent exponential times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
import pytest

from surecast.prediction.capacity import predict_capacity
from surecast.prediction.capacity.filter_statistics import statistics_of
from surecast.prediction.capacity.latest import contents_of
from surecast.scenario import System, build, parse_text
from surecast.scenario.system import AttributeStatistics, Histogram

STAR = "[[hub, b-1], [hub, b-2], [hub, b-3], [hub, b-4], [hub, b-5]]"
CHAIN = "[[hub, b-1], [b-1, b-2], [b-2, b-3], [b-3, b-4], [b-4, b-5]]"
MIXED = "[[hub, b-1], [hub, b-2], [b-2, b-3], [b-2, b-4], [b-4, b-5]]"


def system_of(links: str, active: float, seed: int = 0, latency_s: float = 0.002) -> System:
    text = f"""
    surecast: 1
    name: small
    overlay:
      brokers: [{{name: hub, capacity: 200/s}}, {{name: b, count: 5, capacity: 100/s}}]
      links: {links}
    workload:
      classes: [{{name: k, count: 3}}]
      clients: [{{name: h, home: hub}}, CLIENTS]
      subscriptions: {{active: {active}, lifetime: 1000s}}
      publications: 30/s
    """
    clients = ", ".join(f"{{name: c{i}, home: b-{i}}}" for i in range(1, 6))
    system = build(parse_text(text.replace("CLIENTS", clients)))
    rng = np.random.default_rng(seed)
    workload, overlay = system.class_workload, system.overlay
    spread = rng.uniform(0.2, 1.8, workload.publication_rate_per_s.shape)
    workload = replace(
        workload,
        publication_rate_per_s=workload.publication_rate_per_s * spread,
        subscription_rate_per_s=workload.subscription_rate_per_s * spread[:, ::-1],
    )
    links_ = tuple(replace(link, latency_s=latency_s * rng.random()) for link in overlay.links)
    return replace(system, class_workload=workload, overlay=replace(overlay, links=links_))


def sampled(system: System, report: Any, algorithm: str, runs: int, fixed: bool) -> tuple[float, float]:
    """Mean latest delivery and its standard error; `fixed` puts the mean in place of every random time."""
    rng = np.random.default_rng(23)
    overlay, workload = system.overlay, system.class_workload
    brokers, graph = len(overlay.brokers), overlay.graph
    published = workload.by_broker(workload.publication_rate_per_s, brokers)
    active = 1000.0 * workload.by_broker(workload.subscription_rate_per_s, brokers)
    drawn = rng.choice(published.size, size=runs, p=(published / published.sum()).ravel())
    kind, origin = np.divmod(drawn, brokers)
    mean = np.array(
        [
            1
            / (1 / each.notification_service.mean_s - report.value("rate_in_per_s", name=each.name, variant=algorithm))
            for each in overlay.brokers
        ]
    )
    times = np.broadcast_to(mean, (runs, brokers)) if fixed else rng.exponential(mean, (runs, brokers))
    # Presence the long way: numbers of subscriptions, their intervals, and whether one holds the value.
    value = rng.random(runs)
    wanted = np.zeros((runs, brokers), dtype=bool)
    numbers = rng.poisson(active[kind])
    for b in range(brokers):
        of = np.repeat(np.arange(runs), numbers[:, b])
        ends = np.sort(rng.random((len(of), 2)), axis=1)
        wanted[of[(ends[:, 0] <= value[of]) & (value[of] <= ends[:, 1])], b] = True
    arrival = np.zeros((runs, brokers))
    for p in range(brokers):
        rows = origin == p
        for d in range(brokers):
            path = nx.shortest_path(graph, p, d)
            latency = sum(overlay.links[graph.edges[pair]["link"]].latency_s for pair in nx.utils.pairwise(path))
            arrival[rows, d] = latency + times[rows][:, path].sum(axis=1)
    reached = wanted.any(axis=1)
    latest = np.where(wanted, arrival, 0.0).max(axis=1)[reached]
    return float(latest.mean()), float(latest.std() / np.sqrt(len(latest)))


@pytest.mark.parametrize("links", [STAR, CHAIN, MIXED], ids=["star", "chain", "mixed"])
@pytest.mark.parametrize("active", [2.0, 40.0])
@pytest.mark.parametrize("algorithm", ["flooding", "hierarchical identity", "peer-to-peer covering"])
def test_the_mean_of_the_maximum(links: str, active: float, algorithm: str) -> None:
    # capacity section 3.6: the delay of a notification is that of its latest delivery
    system = system_of(links, active, seed=4)
    report = predict_capacity(system, [algorithm])
    best = report.value("notification_delay_latest_s")
    middle = report.value("notification_delay_latest_s", detail="mean-path")
    worst = report.value("notification_delay_latest_s", detail="worst-path")
    for value, fixed in ((best, False), (middle, True)):
        expected, error = sampled(system, report, algorithm, 30_000, fixed)
        assert value == pytest.approx(expected, abs=4 * error + 0.003 * expected)
    assert middle <= best
    assert middle <= worst * (1 + 1e-12)


def test_one_broker_has_no_maximum() -> None:
    text = """
    surecast: 1
    name: alone
    overlay: {brokers: [{name: a, capacity: 80/s}]}
    workload:
      classes: [k]
      clients: [{name: x, home: a}]
      subscriptions: {rate: 10/s, lifetime: 10s}
      publications: 40/s
    """
    report = predict_capacity(build(parse_text(text)), ["flooding"])
    for detail in ("", "mean-path", "worst-path"):
        assert report.value("notification_delay_latest_s", detail=detail) == pytest.approx(1 / 20, rel=2e-3)


def test_latency_alone_is_exact() -> None:
    # No service times: the latest delivery is the farthest broker that wants it.
    system = system_of(STAR, 1e6)
    brokers = tuple(replace(each, notification_service=None, control_service=None) for each in system.overlay.brokers)
    links = tuple(replace(link, latency_s=0.01 * (i + 1)) for i, link in enumerate(system.overlay.links))
    workload = system.class_workload
    rates = np.zeros_like(workload.publication_rate_per_s)
    rates[:, 0] = 1.0
    system = replace(
        system,
        overlay=replace(system.overlay, brokers=brokers, links=links),
        class_workload=replace(workload, publication_rate_per_s=rates),
    )
    report = predict_capacity(system, ["flooding"])
    for detail in ("", "mean-path", "worst-path"):
        assert report.value("notification_delay_latest_s", detail=detail) == pytest.approx(0.05, rel=1e-3)


def test_a_simulated_network_agrees(flood: Callable[..., Any]) -> None:
    # Queues in place of independent times: branches share the past of their common brokers.
    system = system_of(MIXED, 8.0, seed=2)
    report = predict_capacity(system, ["flooding"])
    seen, workload = flood(system, 40_000, 3), system.class_workload
    rng = np.random.default_rng(4)
    value = rng.random(len(seen.kind))
    active = 1000.0 * workload.by_broker(workload.subscription_rate_per_s, 6)[seen.kind]
    wanted = rng.random(active.shape) < -np.expm1(-active * (2 * value * (1 - value))[:, None])
    latest = np.where(wanted, seen.delay_s, 0.0).max(axis=1)[wanted.any(axis=1)]
    assert report.value("notification_delay_latest_s") == pytest.approx(latest.mean(), rel=0.03)


def test_what_reaches_nobody_has_no_latest_delivery() -> None:
    system = system_of(STAR, 5.0)
    workload = system.class_workload
    none = replace(workload, subscription_rate_per_s=0.0 * workload.subscription_rate_per_s)
    report = predict_capacity(replace(system, class_workload=none), ["flooding"])
    assert not report.figures(metric="notification_delay_latest_s")
    assert not report.figures(metric="delay_mean_s", scope="system")


def test_measured_contents_keep_their_mean() -> None:
    measured = (
        AttributeStatistics(
            "u", Histogram((0.0, 1.0, 3.0), (0.5, 0.5)), Histogram((0.0, 3.0), (1.0,)), constrained=0.5
        ),
        AttributeStatistics("v", Histogram((1.0, 2.0, 3.0), (0.2, 0.3, 0.5)), Histogram((1.0, 3.0), (0.5, 0.5))),
    )
    workload = system_of(STAR, 5.0).class_workload
    classes = tuple(replace(each, filters=measured) for each in workload.classes)
    match, weight = contents_of(replace(workload, classes=classes))[statistics_of(measured)]
    assert weight.sum() == pytest.approx(1.0)
    expected = statistics_of(measured).matching_entries("simple", np.array([1.0]))[0]
    assert match @ weight == pytest.approx(expected, rel=1e-6)
    for x in (0.5, 3.0, 20.0):
        some = statistics_of(measured).notification_probability("simple", np.array([x]))[0]
        assert 1 - np.exp(-x * match) @ weight == pytest.approx(some, rel=0.02)


def test_too_many_classes_leave_the_best_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surecast.prediction.capacity.latest._CELLS_MAX", 10)
    report = predict_capacity(system_of(STAR, 5.0), ["flooding"])
    assert {f.detail for f in report.figures(metric="notification_delay_latest_s")} == {"mean-path", "worst-path"}
    assert any("too many" in note for note in report.info.notes)
