"""The cost of refreshing subscriptions only now and then, against a direct simulation of the process."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from surecast.prediction import predict_reliability
from surecast.prediction.reliability.component_chains import components_of
from surecast.prediction.reliability.static_routes import RouteParts, route_up, with_refresh
from surecast.scenario import System, build, parse_text

Times = NDArray[np.float64]

LINE = """
surecast: 1
name: line
overlay:
  brokers: [{{name: b, count: {brokers}}}]
  links: {{build: chain}}
availability:
  brokers: {{mtbf: {broker_up}s, mttr: {broker_down}s}}
  links: {{mtbf: {link_up}s, mttr: {link_down}s}}
workload:
  topics: [t]
  publishers: [{{name: p, home: b-1, topics: [t], rate: 1/s}}]
  subscribers: [{{name: s, home: b-{brokers}, topics: [t]}}]
delivery: {{fault_tolerance: {{refresh: end-to-end, refresh_interval: {interval}s, subscription_timeout: {timeout}s}}}}
"""


def line(
    brokers: int, broker: tuple[float, float], link: tuple[float, float], interval: float, timeout: float
) -> System:
    text = LINE.format(
        brokers=brokers,
        broker_up=broker[0],
        broker_down=broker[1],
        link_up=link[0],
        link_down=link[1],
        interval=interval,
        timeout=timeout,
    )
    return build(parse_text(text))


def trace(rng: np.random.Generator, mean_up: float, mean_down: float, horizon: float) -> tuple[Times, Times]:
    """Starts and ends of up times, from a stationary start."""
    cycles = int(horizon / (mean_up + mean_down) * 1.2) + 50
    times = np.empty(2 * cycles)
    times[0::2], times[1::2] = rng.exponential(mean_up, cycles), rng.exponential(mean_down, cycles)
    if rng.random() < mean_down / (mean_up + mean_down):
        times[0] = 0.0
    changes = np.cumsum(times)
    return np.concatenate([[0.0], changes[1::2]])[:cycles], changes[0::2]


def up_since(up: tuple[Times, Times], when: Times) -> Times:
    """Start of the up time at each moment; infinite where it is down."""
    starts, ends = up
    at = np.searchsorted(starts, when, side="right") - 1
    return np.where(when < ends[at], starts[at], np.inf)


def simulated(system: System, interval: float, timeout: float, seed: int) -> tuple[float, float]:
    """Shares of moments at which the route is up, and at which every broker of it has an entry besides."""
    rng = np.random.default_rng(seed)
    horizon = 2.5e7
    overlay = system.overlay
    brokers, links = (
        [trace(rng, c.failures.mtbf_s, c.failures.mttr_s, horizon) for c in group if c.failures]
        for group in (overlay.brokers, overlay.links)
    )
    when = np.sort(rng.uniform(horizon / 100, horizon, 400_000))
    refreshes = np.arange(rng.uniform(0, interval), horizon, interval)
    all_up = np.ones(len(when), dtype=bool)
    for component in (*brokers, *links):
        all_up &= np.isfinite(up_since(component, when))
    held = all_up.copy()
    through = np.ones(len(refreshes), dtype=bool)
    for i in range(len(brokers) - 1, -1, -1):
        if i < len(links):
            through &= np.isfinite(up_since(links[i], refreshes))
        through &= np.isfinite(up_since(brokers[i], refreshes))
        got = refreshes[through]
        last = got[np.maximum(np.searchsorted(got, when, side="right") - 1, 0)]
        held &= (last <= when) & (when - last < timeout) & (up_since(brokers[i], when) <= last)
    return float(all_up.mean()), float(held.mean())


@pytest.mark.parametrize(
    ("brokers", "broker", "link", "interval", "timeout"),
    [
        (1, (900, 100), (900, 100), 300, 900),
        (3, (900, 100), (500, 100), 100, 300),
        (4, (2000, 300), (400, 60), 30, 90),
        (4, (3000, 200), (600, 100), 400, 2000),
        (3, (5000, 200), (1000, 20), 300, 301),
    ],
)
def test_against_the_process_itself(
    brokers: int, broker: tuple[float, float], link: tuple[float, float], interval: float, timeout: float
) -> None:
    system = line(brokers, broker, link, interval, timeout)
    up, held = simulated(system, interval, timeout, seed=brokers)
    predicted = predict_reliability(system, ["periodic-subscription"])
    missing = predicted.value("share_dropped", name="s", detail="no routing entry")
    assert predicted.value("reliability", name="s") == pytest.approx(held, abs=0.015)
    # most of the noise is in whether the route is up
    assert missing == pytest.approx(up - held, abs=0.004, rel=0.06)
    ideal = predict_reliability(system, ["periodic-subscription"], ideal=True)
    # reliability Eq. 3
    exact = (broker[0] / sum(broker)) ** brokers * (link[0] / sum(link)) ** (brokers - 1)
    assert ideal.value("reliability", name="s") == pytest.approx(exact, rel=1e-12)
    assert [figure.how for figure in ideal.figures(metric="reliability", name="s")] == ["exact"]


def test_one_broker_has_a_closed_form() -> None:
    """P[up, and up at the last refresh]: the mean of exp(-failure rate * age) over the age."""
    system = line(1, (900, 100), (900, 100), 300, 900)
    expected = 0.9 * (1 - math.exp(-300 / 900)) / (300 / 900)
    report = predict_reliability(system, ["periodic-subscription"])
    assert report.value("reliability", name="s") == pytest.approx(expected, rel=1e-10)


def test_short_intervals_tend_to_the_ideal() -> None:
    system = line(4, (900, 100), (500, 100), 1e-3, 3e-3)
    parts = components_of(system)
    route = RouteParts(np.array([0, 3]), np.arange(4), np.arange(3))
    ideal = route_up(route, parts.broker_up, parts.link_up)
    assert with_refresh(route, np.array([0]), parts, 1e-6, 3e-6) == pytest.approx(ideal, rel=1e-6)
    coarse = with_refresh(route, np.array([0]), parts, 100.0, 300.0)
    assert coarse < with_refresh(route, np.array([0]), parts, 10.0, 30.0)
