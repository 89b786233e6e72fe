"""Scenarios for placement, small enough to check by the plain capacity model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from surecast.documents.reading import parse_source
from surecast.scenario import Scenario, System
from surecast.scenario.load import parse_scenario

TEMPLATE = """
surecast: 1
name: offices
seed: {seed}
network: {{kind: transit-stub, domains: 3, routers: 100, link_capacity: {link_capacity}, router_capacity: 20000/s}}
overlay:
  candidates: {candidates}
  brokers:
    - {{name: office, at: candidates, capacity: {capacity}, service: {{distribution: erlang, stages: 3}},
       control_service: {{distribution: exponential, mean: 1ms}}{matching}}}
  links: {{build: spanning-tree, by: {by}}}
  root: {root}
availability:
  brokers: {{availability: [0.9, 0.99], period: 1000s}}
  links: {{availability: [0.9, 0.99], period: 500s}}
  clients: {{availability: 0.98, period: 500s}}
workload:
  deadline: 60s
  popularity_exponent: 0.7
  classes:
    - {{name: local, count: 4, hot_spot: random, locality: 1.0, service_factor: 1.5}}
    - {{name: wide, count: 6, hot_spot: random, locality: 0.6}}
    - {{name: even, count: 3{filters}}}
  clients: [{{name: client, count: 25, at: random, home: nearest}}]
  subscriptions: {{active: {active}, lifetime: 60s}}
  publications: {publications}
delivery:
  fault_tolerance: {{scheme: {scheme}}}
"""

Make = Callable[..., tuple[Scenario, System]]


@pytest.fixture(scope="session")
def offices() -> Make:
    """Makes the scenario and its system; six candidates in three domains."""

    def make(**fields: object) -> tuple[Scenario, System]:
        chosen = {
            "seed": 5,
            "candidates": "{per_domain: 2}",
            "capacity": "400/s",
            "link_capacity": "[3000/s, 6000/s]",
            "by": "hops",
            "root": "central",
            "active": 600,
            "publications": "60/s",
            "scheme": "buffering",
            "matching": "",
            "filters": "",
            **fields,
        }
        return parse_scenario(parse_source(TEMPLATE.format(**chosen), "offices", Path()))

    return make
