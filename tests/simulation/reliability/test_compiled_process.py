"""The stochastic process itself: stationary starts, agreement with closed forms, random streams."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.linalg import expm

from surecast.errors import AssumptionError
from surecast.report import QoSReport, check_accounts
from surecast.scenario import Distribution, Streams, System, build, parse_distribution, parse_text
from surecast.scenario.system import Failures
from surecast.simulation.equilibrium import residual_times
from surecast.simulation.reliability.compiled import SCHEMES, simulate_reliability
from surecast.simulation.reliability.compiled.traces import draw_trace

SHAPES: list[dict[str, Any]] = [
    {"distribution": "exponential", "mean": "10s"},
    {"distribution": "deterministic", "mean": "10s"},
    {"distribution": "erlang", "mean": "10s", "stages": 3},
    {"distribution": "hyperexponential", "mean": "10s", "scv": 4},
    {"distribution": "hyperexponential", "probabilities": [0.2, 0.8], "means": ["30s", "2s"]},
    {"distribution": "uniform", "low": "2s", "high": "12s"},
    {"distribution": "uniform", "low": "2s", "high": "12s", "mean": "20s"},
    {"distribution": "weibull", "mean": "10s", "shape": 0.7},
    {"distribution": "weibull", "mean": "10s", "shape": 2},
    {"distribution": "lognormal", "mean": "10s", "cv": 1},
    {"distribution": "phase-type", "initial": [0.5, 0.5], "rates": [[0, 0.3], [0, 0]], "exits": [0.1, 0.5]},
    {"distribution": "empirical", "values": ["1s", "5s", "20s"], "weights": [5, 2, 1]},
    {"distribution": "empirical", "values": ["1s", "5s", "20s"], "mean": "8s"},
]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "-".join(str(v) for v in shape.values())[:30])
def test_residual_times_have_the_equilibrium_moments(shape: dict[str, Any]) -> None:
    """E[R] = m2 / (2 m1) and E[R^2] = m3 / (3 m1): renewal theory."""
    distribution = parse_distribution(shape)
    m1, m2, m3 = distribution.moments()
    left = residual_times(distribution, np.random.default_rng(1), 200_000)
    for power, expected in ((1, m2 / (2 * m1)), (2, m3 / (3 * m1))):
        error = float((left**power).std()) / math.sqrt(len(left))
        assert abs(float((left**power).mean()) - expected) < 5 * error


@pytest.mark.parametrize(("up", "down"), [(1, 2), (3, 7), (8, 9), (10, 11)])
def test_a_component_is_stationary_from_the_start(up: int, down: int) -> None:
    """The share of components that are up is the availability at every moment, not only in the long run."""
    failures = Failures(parse_distribution(SHAPES[up]), parse_distribution(SHAPES[down]))
    times = np.array([0.0, 1.0, 4.0, 9.0, 25.0])
    count = 4000
    states = np.zeros(len(times))
    for i in range(count):
        starts, ends = draw_trace(failures, Streams(5), "broker", f"b{i}", 30.0)
        states += [bool(((starts <= t) & (t < ends)).any()) for t in times]
    error = math.sqrt(failures.availability * (1 - failures.availability) / count)
    assert np.abs(states / count - failures.availability).max() < 4 * error


def test_a_longer_horizon_only_adds_to_the_trace() -> None:
    failures = Failures(parse_distribution("10s"), parse_distribution(SHAPES[8]))
    short, long = (draw_trace(failures, Streams(5), "broker", "b", horizon) for horizon in (500.0, 5000.0))
    assert short[0][-1] <= 500
    assert long[0][-1] > 4900
    assert np.array_equal(short[0], long[0][: len(short[0])])
    assert np.array_equal(short[1], long[1][: len(short[1])])


def test_an_unknown_distribution_is_refused() -> None:
    class Strange(Distribution):
        distribution: str = "strange"

    with pytest.raises(AssumptionError, match="strange distribution"):
        residual_times(Strange(mean="3s"), np.random.default_rng(1), 1)


BROKER, LINK = (9000.0, 1000.0), (5400.0, 600.0)
"""Mean times up and down."""


def system(links: str, lifetime: str = "900s", extra: str = "", clients: str = "") -> System:
    return build(
        parse_text(f"""
        surecast: 1
        name: small
        overlay: {{brokers: [{{name: a}}, {{name: b}}, {{name: c}}{extra}], links: {links}, topic_trees: {{root: a}}}}
        availability:
          brokers: {{mtbf: 9000s, mttr: 1000s}}
          links: {{mtbf: 5400s, mttr: 600s}}
          {clients}
        workload:
          topics: [t, u]
          deadline: {lifetime}
          publishers:
          - {{name: p, home: a, topics: [t], rate: 1/min}}
          - {{name: q, home: b, topics: [u], rate: 1/min}}
          subscribers:
          - {{name: s, home: b, topics: [t]}}
          - {{name: far, home: c, topics: [u]}}
        """)
    )


def simulate(system: System, schemes: list[str], **more: Any) -> QoSReport:
    options: dict[str, Any] = {"runs": 20, "duration_s": 30 * 86400.0, "seed": 11}
    options |= {"refresh_interval_s": 0.0, "retransmission_interval_s": 0.0, **more}
    report = simulate_reliability(system, schemes, **options)
    assert check_accounts(report) == []
    return report


def assert_agrees(report: QoSReport, scheme: str, name: str, expected: float, factor: float = 1.5) -> None:
    """Within one and a half 95 % half-widths, which are at most one percent."""
    figure = report.figure("reliability", name=name, variant=scheme)
    assert figure.low is not None
    assert figure.high is not None
    assert figure.high - figure.low < 0.02
    assert abs(figure.value - expected) < factor * (figure.high - figure.low) / 2


def delay_distribution(time: float) -> float:
    """P[d <= t] of one hop whose first broker is up when the event comes (reliability Eqs. 5 to 10)."""
    states = [(i & 1, i >> 1 & 1, i >> 2 & 1) for i in range(8)]
    means = (BROKER, LINK, BROKER)
    rates = np.zeros((8, 8))
    for i, state in enumerate(states[:7]):
        for component, (up_s, down_s) in enumerate(means):
            rates[i, i ^ (1 << component)] = 1 / up_s if state[component] else 1 / down_s
        rates[i, i] = -rates[i].sum()
    start = np.zeros(8)
    for i, state in enumerate(states):
        if state[0]:
            shares = [up_s / (up_s + down_s) for up_s, down_s in means]
            start[i] = math.prod(a if up else 1 - a for a, up in zip(shares[1:], state[1:], strict=True))
    return float((start @ expm(rates * time))[7])


def test_one_hop_agrees_with_the_closed_forms() -> None:
    """Eq. 3 for periodic subscription and, on a tree, bypass; Eq. 4 with Eqs. 5 to 10 for buffering."""
    line = system("[[a, b], [b, c]]")
    report = simulate(line, ["periodic-subscription", "buffering", "bypass", "bypass-buffering"])
    direct = 0.9 * 0.9 * 0.9  # reliability Eq. 3
    in_time = 0.9 * delay_distribution(900.0)  # reliability Eq. 4
    for name in ("s", "far"):
        assert_agrees(report, "periodic-subscription", name, direct)
        assert_agrees(report, "bypass", name, direct)
        assert_agrees(report, "buffering", name, in_time)
        assert_agrees(report, "bypass-buffering", name, in_time)


def test_client_links_are_two_more_factors() -> None:
    """Footnote 3: the publisher's link at publication, the subscriber's at delivery."""
    line = system("[[a, b], [b, c]]", clients="clients: {mtbf: 950s, mttr: 50s}")
    report = simulate(line, ["periodic-subscription", "buffering"])
    assert_agrees(report, "periodic-subscription", "s", 0.95**2 * 0.9**3)
    assert_agrees(report, "buffering", "s", 0.95**2 * 0.9 * delay_distribution(900.0))
    in_time = 0.9 * delay_distribution(900.0)
    lost = report.value("share_dropped", name="s", detail="client link down", variant="buffering")
    assert lost == pytest.approx(0.05 * (1 + 0.95 * in_time), abs=0.003)


def test_bypass_agrees_with_two_disjoint_paths() -> None:
    """Eq. 12, which is exact on a triangle: each factor is 1 - r_i / (a_b0 a_blast)."""
    report = simulate(system("[[a, b], [b, c], [a, c]]"), ["bypass"])
    direct, around = 0.9, 0.9 * 0.9 * 0.9
    assert_agrees(report, "bypass", "s", 0.9 * 0.9 * (1 - (1 - direct) * (1 - around)))  # reliability Eq. 12


def test_every_event_in_the_end() -> None:
    """With a long lifetime all that gets into the overlay arrives: Eq. 4 tends to a_b0, as does Eq. 13."""
    report = simulate(system("[[a, b], [b, c]]", lifetime="20d"), ["buffering", "bypass-buffering"])
    for scheme in ("buffering", "bypass-buffering"):
        assert_agrees(report, scheme, "far", 0.9)
        assert report.value("share_dropped", name="far", detail="expired", variant=scheme) == 0.0
        assert report.value("share_queued", name="far", variant=scheme) == 0.0


def test_schemes_are_ordered_on_the_same_traces() -> None:
    """Common random numbers: run by run, no scheme may be worse than one it extends."""
    report = simulate(system("[[a, b], [b, c], [a, c]]"), list(SCHEMES), runs=2)
    value = {scheme: report.value("reliability", name="s", variant=scheme) for scheme in SCHEMES}
    assert value["none"] == 0 < value["periodic-subscription"] < value["buffering"] < value["bypass-buffering"]
    assert value["periodic-subscription"] < value["bypass"] < value["bypass-buffering"]
    lossy = simulate(
        system("[[a, b], [b, c], [a, c]]"),
        list(SCHEMES),
        runs=2,
        refresh_interval_s=60.0,
        retransmission_interval_s=60.0,
    )
    for scheme in ("periodic-subscription", "buffering"):
        assert lossy.value("reliability", name="s", variant=scheme) < value[scheme]


def test_a_further_broker_changes_no_other_stream() -> None:
    before = simulate(system("[[a, b], [b, c]]"), ["buffering", "bypass"], runs=3)
    after = simulate(system("[[d, a], [a, b], [b, c]]", extra=", {name: d}"), ["buffering", "bypass"], runs=3)
    for name in ("s", "far"):
        assert list(before.figures(name=name)) == list(after.figures(name=name))


def test_a_subscriber_without_a_publisher_has_no_reliability() -> None:
    lonely = build(parse_text(
        "{surecast: 1, name: x, overlay: {brokers: [{name: a}]}, workload: {topics: [t, u], "
        "publishers: [{name: p, home: a, topics: [t], rate: 1/s}], "
        "subscribers: [{name: s, home: a, topics: [t]}, {name: n, home: a, topics: [u]}]}}"
    ))  # fmt: skip
    report = simulate(lonely, list(SCHEMES), runs=2, duration_s=100.0)
    assert set(report.values("reliability", scope="subscriber", variant="bypass")) == {"s"}
    assert report.info.notes[-2] == "1 subscribers have no matching publisher, and so no reliability"
