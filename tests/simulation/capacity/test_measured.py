"""Classes with measured filters: what is drawn follows the statistics, and prediction and simulation agree."""

from __future__ import annotations

import numpy as np
import pytest

from surecast.prediction.capacity import predict_capacity
from surecast.scenario import System, build, parse_text
from surecast.scenario.system import AttributeStatistics, FilterClass, Histogram
from surecast.simulation.capacity import simulate_routing
from surecast.simulation.capacity.client_behaviour import draw_event, draw_filter, repeats

SYSTEM = """
surecast: 1
name: measured
overlay: {brokers: [{name: a, capacity: 400/s}, {name: b, capacity: 400/s}, {name: c, capacity: 400/s}],
          links: {build: chain}}
workload:
  classes: [{name: stock, count: 8}]
  filters:
    - {name: price, value: {edges: [0, 10, 50, 200], weights: [60, 30, 10]},
       interval: {centre: {edges: [0, 10, 200], weights: [1, 1]}, width: {edges: [0, 5, 20], weights: [3, 1]}},
       constrained: 0.8}
    - {name: grade, value: [1, 1, 2, 3], interval: {ends: values}, constrained: 0.5}
  clients: [{name: x, home: a}, {name: y, home: b}, {name: z, home: c}]
  subscriptions: {active: 120, lifetime: 20s}
  publications: 40/s
"""


@pytest.fixture(scope="module")
def system() -> System:
    return build(parse_text(SYSTEM))


def test_intervals_and_values_follow_their_histograms() -> None:
    value = Histogram((0.0, 1.0, 3.0), (0.75, 0.25))
    price = AttributeStatistics("price", value, centre=Histogram((5.0,), (1.0,)), width=value, constrained=0.25)
    stock = FilterClass("stock", filters=(price,))
    rng = np.random.default_rng(5)
    events = [draw_event(stock, rng).get("price") for _ in range(4000)]
    assert np.mean([float(v or 0.0) < 1.0 for v in events]) == pytest.approx(0.75, abs=0.03)
    wanted = [draw_filter(stock, rng) for _ in range(4000)]
    asked = [constraint for each in wanted for _, constraint in each.constraints]
    assert len(asked) / 4000 == pytest.approx(0.25, abs=0.03)
    widths = np.array([c.high - c.low for c in asked])  # type: ignore[union-attr]
    assert (widths < 1.0).mean() == pytest.approx(0.75, abs=0.05)
    assert all(c.low + c.high == pytest.approx(10.0) for c in asked)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("constrained", "discrete", "equal"), [(1.0, False, False), (0.5, False, True), (1.0, True, True)]
)
def test_equal_filters_are_expected_where_they_can_occur(constrained: float, discrete: bool, equal: bool) -> None:
    ends = Histogram((1.0, 2.0), (0.5, 0.5)) if discrete else Histogram((1.0, 2.0), (1.0,))
    each = FilterClass("c", filters=(AttributeStatistics("g", ends, ends=ends, constrained=constrained),))
    assert repeats(each) == equal


@pytest.mark.parametrize("algorithm", ["peer-to-peer simple", "peer-to-peer covering", "hierarchical merging"])
def test_prediction_and_simulation_agree_on_tables_and_rates(system: System, algorithm: str) -> None:
    predicted = predict_capacity(system, [algorithm], by_client=False)
    simulated = simulate_routing(system, [algorithm], duration_s=30.0, warm_up_s=5.0, runs=5, seed=3, check=True)
    compared = 0
    for figure in simulated.figures(scope="broker"):
        if figure.metric not in ("table_entries", "rate_in_per_s", "utilisation"):
            continue
        value = predicted.value(figure.metric, scope="broker", name=figure.name, detail=figure.detail)
        assert figure.low is not None
        assert figure.high is not None
        slack = 2.2 * (figure.high - figure.low) / 2.0 + 0.01 * abs(value)
        assert figure.value == pytest.approx(value, abs=slack), (figure.metric, figure.name, figure.detail)
        compared += 1
    assert compared >= 15
