"""The scenario that real taxi trips make: what is measured is what the trips have."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import yaml

from surecast.scenario import load_system


@pytest.fixture(scope="module")
def taxi(repository: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("plan_taxi", repository / "benchmarks" / "plan_taxi.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules["plan_taxi"] = module
    spec.loader.exec_module(module)
    return module


def test_trips_become_a_scenario(taxi: ModuleType, real_data: Path, tmp_path: Path) -> None:
    source = real_data / taxi.TRIPS
    if not source.exists():
        pytest.skip(f"no taxi trips at {source}")
    trips = taxi.read_trips(source)
    assert 4000 < len(trips.zone) <= 5002
    described = taxi.taxi_scenario(
        trips, real_data / taxi.NETWORK, subscriptions=500.0, interval_s=3.0, locality=0.6, own=1
    )  # fmt: skip
    file = tmp_path / "taxi.yaml"
    file.write_text(yaml.safe_dump(described), encoding="utf-8")
    _, system = load_system(file)
    workload = system.class_workload
    assert workload is not None
    # A taxi sends one message each three seconds while it is under way.
    assert workload.publication_rate_per_s.sum() == pytest.approx(trips.duration_s.sum() / 3.0 / trips.span_s, rel=1e-3)
    assert workload.active_subscriptions == pytest.approx(500.0)
    # Shares of the zones are those of the trips, the busiest first, and it alone has statistics of its own.
    busiest = max(set(trips.zone), key=trips.zone.count)
    assert workload.classes[0].name == f"zone-{busiest[0]}-{busiest[1]}"
    share = workload.publication_rate_per_s[0].sum() / workload.publication_rate_per_s.sum()
    assert share == pytest.approx(trips.zone.count(busiest) / len(trips.zone))
    assert len({each.filters for each in workload.classes}) == 2
    fares = trips.attributes["fare"][np.array([zone == busiest for zone in trips.zone])]
    filters = workload.classes[0].filters
    assert filters is not None
    histogram = filters[0].value
    assert histogram.points[0] == fares.min()
    assert histogram.points[-1] == fares.max()
    below = sum(w for edge, w in zip(histogram.points[1:], histogram.weights, strict=True) if edge <= 10.0)
    assert below == pytest.approx((fares < 10.0).mean(), abs=0.1)
