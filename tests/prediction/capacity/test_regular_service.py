"""What leaves a broker of regular service is spaced out: waits behind it are said to be too long."""

from __future__ import annotations

import pytest

from surecast.prediction import predict_capacity
from surecast.scenario import build, parse_text

SYSTEM = """
surecast: 1
name: pair
overlay: {brokers: [{name: a, capacity: 900/s, service: SERVICE}, {name: b, capacity: 900/s}], links: [[a, b]]}
workload:
  classes: [{name: c, count: 2}]
  clients: [{name: x, home: a}, {name: y, home: b}]
  subscriptions: {active: 4, lifetime: 100s}
  publications: 600/s
"""


def warnings_of(service: str) -> tuple[str, ...]:
    return predict_capacity(build(parse_text(SYSTEM.replace("SERVICE", service)))).info.warnings


@pytest.mark.parametrize("service", ["deterministic", "{distribution: erlang, stages: 4}"])
def test_regular_service_is_named_and_nothing_is_called_underestimated(service: str) -> None:
    found = warnings_of(service)
    (warning,) = [w for w in found if "waiting times behind other brokers are too long" in w]
    assert "the service of a is regular" in warning
    assert not any("delays are underestimated" in w for w in found)


def test_random_service_is_not() -> None:
    found = warnings_of("exponential")
    assert not any("too long" in w for w in found)
    assert any("delays are underestimated" in w for w in found)
