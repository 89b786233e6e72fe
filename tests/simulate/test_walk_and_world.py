"""The fast walk and the protocol code in virtual time are two implementations of one process: they agree."""

from __future__ import annotations

import numpy as np
import pytest

from surecast.report import QoSReport
from surecast.scenario import System, build, parse_text
from surecast.simulate import simulate_protocol, simulate_reliability

TEXT = """
surecast: 1
name: both
seed: 3
overlay:
  brokers: [{name: b, count: 5}]
  links: {build: random-graph, mean_degree: 3}
availability:
  brokers: {mtbf: 1500s, mttr: 120s}
  links: {mtbf: 900s, mttr: 60s}
workload:
  topics: [t, u]
  deadline: 90s
  publishers: [{name: p, home: b-1, topics: [t], rate: 1/10s}, {name: q, home: b-4, topics: [u], rate: 1/10s}]
  subscribers: [{name: s, count: 10, topics: [t]}, {name: r, count: 10, topics: [u]}]
delivery: {fault_tolerance: {refresh_interval: 10s, retransmission_interval: 2s}}
"""
SCHEMES = ["periodic-subscription", "buffering", "bypass", "bypass-buffering"]


@pytest.fixture(scope="module")
def system() -> System:
    return build(parse_text(TEXT))


@pytest.fixture(scope="module")
def reports(system: System) -> tuple[QoSReport, QoSReport]:
    """The fast simulation over 40 days, the slow one over one day."""
    walk = simulate_reliability(system, SCHEMES, runs=40, duration_s=86400, seed=5)
    return walk, simulate_protocol(system, SCHEMES, runs=4, duration_s=21600, seed=6)


def test_both_give_every_subscriber_the_same_reliability(reports: tuple[QoSReport, QoSReport]) -> None:
    for scheme in SCHEMES:
        fast, slow = (report.values("reliability", scope="subscriber", variant=scheme) for report in reports)
        assert fast.keys() == slow.keys()
        differences = np.array([slow[name] - fast[name] for name in fast])
        # Over one day a subscriber's reliability is known to about 0.03.
        assert abs(differences.mean()) < 0.025, (scheme, differences.mean())
        assert np.abs(differences).max() < 0.08, (scheme, differences)


@pytest.mark.parametrize("kind", ["notification", "acknowledgement", "retransmission"])
def test_both_count_the_same_messages(reports: tuple[QoSReport, QoSReport], kind: str) -> None:
    for scheme in SCHEMES:
        figures = [
            list(report.figures(scope="system", metric="messages_per_event", variant=scheme, detail=kind))
            for report in reports
        ]
        values = [found[0].value if found else 0.0 for found in figures]
        assert values[1] == pytest.approx(values[0], rel=0.25, abs=0.05), (scheme, kind)
