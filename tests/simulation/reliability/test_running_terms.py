"""The terms of a running system: detection, refresh by link, time to start, schemes by topic; in formula, compiled
simulation and nodes alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from surecast.errors import AssumptionError, ScenarioError
from surecast.prediction import predict_reliability
from surecast.scenario import System, build, parse_text
from surecast.simulation import simulate_protocol, simulate_reliability
from surecast.simulation.reliability.protocol import simulate_world

TEXT = """
surecast: 1
name: terms
seed: 3
overlay:
  brokers: [{name: b, count: 5}]
  links: {build: random-graph, mean_degree: 3}
availability:
  brokers: {mtbf: 900s, mttr: 90s}
  links: {mtbf: 900s, mttr: 60s}
workload:
  topics: [t, u]
  deadline: %s
  publishers: [{name: p, home: b-1, topics: [t], rate: 1/20s}, {name: q, home: b-4, topics: [u], rate: 1/20s}]
  subscribers: [{name: s, count: 6, topics: [t]}, {name: r, count: 6, topics: [u]}]
delivery: {fault_tolerance: {refresh_interval: 30s, retransmission_interval: 0s, %s}}
"""
BYPASSES = ["bypass", "bypass-buffering"]


def system_of(terms: str, deadline: str = "90s") -> System:
    return build(parse_text(TEXT % (deadline, terms)))


def three(system: System, schemes: list[str]) -> list[dict[str, Any]]:
    """The reliability of every subscriber by formula, compiled and by nodes, for each scheme."""
    reports = (
        predict_reliability(system, schemes),
        simulate_reliability(system, schemes, runs=20, duration_s=86400, seed=5),
        simulate_protocol(system, schemes, runs=1, duration_s=10_000, seed=7),
    )
    return [
        {scheme: report.values("reliability", scope="subscriber", variant=scheme) for scheme in schemes}
        for report in reports
    ]


def differences(ones: dict[str, float], others: dict[str, float]) -> Any:
    assert ones.keys() == others.keys()
    return np.array([ones[name] - others[name] for name in ones])


@pytest.mark.parametrize("terms", ["detection: 20s, refresh: end-to-end", "detection: 10s, start: 10s"])
def test_formula_compiled_simulation_and_nodes_agree(terms: str) -> None:
    schemes = ["periodic-subscription", "buffering", *BYPASSES]
    formula, compiled, nodes = three(system_of(terms), schemes)
    for scheme in schemes:
        assert np.abs(differences(formula[scheme], compiled[scheme])).mean() < 0.012, (scheme, terms)
        # Over 10,000 s the mean of twelve subscribers is known to about 0.05.
        assert abs(differences(compiled[scheme], nodes[scheme]).mean()) < 0.05, (scheme, terms)


def test_detection_costs_bypass_what_is_sent_into_unnoticed_failures() -> None:
    plain, slow = system_of("detection: 0s"), system_of("detection: 30s")
    lost = [
        predict_reliability(system, BYPASSES).values("reliability", scope="subscriber", variant="bypass")
        for system in (plain, slow)
    ]
    by_walk = [
        simulate_reliability(system, BYPASSES, runs=20, duration_s=86400, seed=5).values(
            "reliability", scope="subscriber", variant="bypass"
        )
        for system in (plain, slow)
    ]
    predicted, simulated = differences(lost[0], lost[1]).mean(), differences(by_walk[0], by_walk[1]).mean()
    assert predicted > 0.005
    assert predicted == pytest.approx(simulated, rel=0.2)


def test_with_a_deadline_below_the_detection_time_storing_does_not_help() -> None:
    report = simulate_reliability(
        system_of("detection: 30s", deadline="10s"), BYPASSES, runs=5, duration_s=86400, seed=5
    )
    patient = simulate_reliability(system_of("detection: 30s"), BYPASSES, runs=5, duration_s=86400, seed=5)

    def mean(of: Any) -> float:
        return float(np.mean(list(of.values("reliability", scope="subscriber", variant="bypass-buffering").values())))

    assert mean(patient) - mean(report) > 0.005


def test_refresh_by_link_brings_tables_back_under_every_scheme() -> None:
    system = system_of("refresh: link")
    result = simulate_world(system, "none", duration_s=8_000, seed=1)
    assert result.lost["no routing entry"].sum() <= 0.002 * result.published.sum()
    assert result.on_time.sum() > 0.5 * result.published.sum()
    assert result.messages["comparison"] > 0
    report = predict_reliability(system, ["none", "periodic-subscription"])
    none, periodic = (report.values("reliability", scope="subscriber", variant=v) for v in report.variants)
    assert none == periodic


def test_topics_may_have_schemes_of_their_own() -> None:
    system = system_of("scheme: periodic-subscription, schemes: {u: buffering}")
    mixed = simulate_world(system, "periodic-subscription", duration_s=8_000, seed=1)
    plain, stored = (
        simulate_world(system_of("scheme: none"), scheme, duration_s=8_000, seed=1)
        for scheme in ("periodic-subscription", "buffering")
    )
    wants_t = np.array(["t" in subscriber.topics for subscriber in system.subscribers])
    assert mixed.on_time[wants_t].tolist() == plain.on_time[wants_t].tolist()
    assert mixed.on_time[~wants_t].tolist() == stored.on_time[~wants_t].tolist()
    assert mixed.on_time[~wants_t].sum() > plain.on_time[~wants_t].sum()
    with pytest.raises(AssumptionError, match=r"delivery\.fault_tolerance\.schemes"):
        predict_reliability(system, ["bypass"])
    with pytest.raises(AssumptionError, match=r"delivery\.fault_tolerance\.schemes"):
        simulate_reliability(system, ["bypass"], runs=1, duration_s=100, seed=1)
    with pytest.raises(ScenarioError, match="x"):
        system_of("schemes: {x: buffering}")
