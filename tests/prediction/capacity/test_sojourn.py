"""Times in queues: exact moments against simulated queues, gamma fits and quantiles against brute force."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import optimize, stats

from surecast.prediction.capacity.capacity_model import capacity_model
from surecast.prediction.capacity.delays import (
    Gammas,
    mixture_quantiles,
    path_sums,
    paths_of,
    service_cubes,
    sojourns_of,
)
from surecast.prediction.capacity.overlay_tree import broker_tree
from surecast.scenario import System, build, parse_text
from surecast.scenario.distributions import parse_distribution

LONE = """
surecast: 1
name: alone
overlay: {brokers: [{name: a, capacity: 10/s}]}
workload:
  classes: [{name: k}, {name: big, service_factor: 2, weight: 0.2}]
  clients: [{name: x, home: a}]
  subscriptions: {rate: 0.5/s, lifetime: 10s}
  publications: 5/s
"""


def lone(service: object) -> System:
    system = build(parse_text(LONE))
    law = parse_distribution(service).with_mean(0.1)
    broker = replace(system.overlay.brokers[0], notification_service=law, control_service=law)
    return replace(system, overlay=replace(system.overlay, brokers=(broker,)))


def lindley(system: System, messages: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Waiting times of an M/G/1 queue by Lindley's recursion, as a running minimum; and the factors of messages."""
    rng = np.random.default_rng(seed)
    workload, service = system.class_workload, system.overlay.brokers[0].notification_service
    rates = np.concatenate(
        [workload.publication_rate_per_s.sum(axis=1), 2 * workload.subscription_rate_per_s.sum(axis=1)]
    )
    kind = rng.choice(len(rates), size=messages, p=rates / rates.sum())
    factor = np.array([each.service_factor for each in workload.classes] * 2)[kind]
    work = service.sample(rng, messages) * factor
    steps = np.concatenate([[0.0], np.cumsum(work[:-1] - rng.exponential(1 / rates.sum(), messages - 1))])
    return steps - np.minimum.accumulate(steps), factor


@pytest.mark.parametrize(
    "service",
    [
        "exponential",
        "deterministic",
        {"distribution": "hyperexponential", "scv": 3},
        {"distribution": "erlang", "stages": 4},
    ],
    ids=["exponential", "deterministic", "hyperexponential", "erlang"],
)
def test_moments_are_those_of_a_simulated_queue(service: object) -> None:
    # capacity Eq. 29 and Takács's second moment, with two service factors in one queue
    system = lone(service)
    model = capacity_model(system)
    flows = model.flows("flooding")
    found = sojourns_of(model, flows, model.loads(flows), service_cubes(system, model))
    waiting, _ = lindley(system, 1_000_000, 7)
    law = system.overlay.brokers[0].notification_service
    for k, factor in enumerate(found.factors):
        own = law.mean_s * factor
        assert found.broker.mean_s[0, k] == pytest.approx(waiting.mean() + own, rel=0.04)
        variance = law.squared_cv * own**2
        assert found.broker.variance_s2[0, k] - variance == pytest.approx(waiting.var(), rel=0.12)


def test_an_mm1_queue_is_exponential() -> None:
    text = LONE.replace(", {name: big, service_factor: 2, weight: 0.2}", "")
    system = build(parse_text(text))
    model = capacity_model(system)
    flows = model.flows("flooding")
    times = sojourns_of(model, flows, model.loads(flows), service_cubes(system, model)).broker
    assert times.mean_s[0, 0] == pytest.approx(1 / (10 - 6))
    assert times.variance_s2[0, 0] == pytest.approx(1 / (10 - 6) ** 2)
    levels = np.array([0.5, 0.95, 0.99])
    found = mixture_quantiles(np.ones((1, 1)), times.flat(), levels)[0]
    assert found == pytest.approx(-np.log1p(-levels) / 4, rel=1e-9)


def test_two_mm1_queues_in_a_row_are_erlang() -> None:
    # Equal queues: the sum of two exponential times, which is a gamma distribution
    text = """
    surecast: 1
    name: two
    overlay:
      brokers: [{name: a, capacity: 10/s}, {name: b, capacity: 10/s}]
      links: [{between: [a, b], latency: 50ms}]
    workload:
      classes: [k]
      clients: [{name: x, home: a}, {name: y, home: b}]
      subscriptions: {rate: 0.000001/s, lifetime: 1s}
      publications: 6/s
    """
    system = build(parse_text(text))
    model = capacity_model(system)
    flows = model.flows("flooding")
    paths = paths_of(model.tree, sojourns_of(model, flows, model.loads(flows), service_cubes(system, model)))
    one = Gammas(paths.shift_s[0, 1], paths.mean_s[0, 1], paths.variance_s2[0, 1])
    found = mixture_quantiles(np.ones((1, 1)), one, np.array([0.5, 0.99]))[0]
    assert found == pytest.approx(0.05 + stats.gamma(2, scale=1 / 4).ppf([0.5, 0.99]), rel=1e-5)


@pytest.mark.parametrize("rows", [3, 3000], ids=["refined", "interpolated"])
def test_quantiles_of_mixtures(rows: int) -> None:
    rng = np.random.default_rng(3)
    parts = Gammas(rng.uniform(0, 0.3, 8), rng.uniform(0.001, 0.1, 8), rng.uniform(1e-6, 1e-2, 8))
    weights = rng.exponential(1.0, (rows, 8)) * (rng.random((rows, 8)) < 0.5)
    weights[0], weights[1] = np.eye(8)[2], 0.0
    levels = np.array([0.5, 0.95, 0.99])
    found = mixture_quantiles(weights, parts, levels)
    assert np.isnan(found[1]).all()
    shape, scale = parts.mean_s**2 / parts.variance_s2, parts.variance_s2 / parts.mean_s

    def below(time_s: float, share: np.ndarray) -> float:
        return float(share @ stats.gamma.cdf(time_s - parts.shift_s, shape, scale=scale))

    for row in (0, 2):
        share = weights[row] / weights[row].sum()
        for level, value in zip(levels, found[row], strict=True):
            expected = optimize.brentq(lambda t, q=level, s=share: below(t, s) - q, 0.0, 20.0, xtol=1e-12)
            assert value == pytest.approx(expected, rel=1e-6 if rows == 3 else 1e-2)


def test_constants_have_quantiles_too() -> None:
    parts = Gammas(np.array([0.1, 0.2, 0.3]), np.zeros(3), np.zeros(3))
    found = mixture_quantiles(np.array([[0.4, 0.4, 0.2], [1.0, 0.0, 0.0]]), parts, np.array([0.5, 0.95]))
    assert found == pytest.approx(np.array([[0.2, 0.3], [0.1, 0.1]]), rel=1e-9)


def test_sums_over_paths() -> None:
    brokers = ", ".join(f"{{name: {name}}}" for name in "abcde")
    links = "[[a, b], [c, b], [c, d], [e, b]]"
    text = f"{{surecast: 1, name: t, overlay: {{brokers: [{brokers}], links: {links}}}}}"
    tree = broker_tree(build(parse_text(text)).overlay)
    weight = np.random.default_rng(5).random((8, 2))
    found = path_sums(tree, weight)

    def walk(here: int, end: int, before: int) -> np.ndarray | None:
        if here == end:
            return np.zeros(2)
        for link in np.flatnonzero(tree.tail == here):
            if tree.head[link] != before:
                rest = walk(int(tree.head[link]), end, here)
                if rest is not None:
                    return weight[link] + rest
        return None

    for start in range(5):
        for end in range(5):
            assert found[start, end] == pytest.approx(walk(start, end, -1))
