"""Delays and deadlines count what takes time, or there is no figure: never reliability 1 and 0 s, marked exact."""

from __future__ import annotations

import math
import random

import pytest

from surecast import predict, simulate
from surecast.planning import admit
from surecast.prediction import SCHEMES, predict_capacity, predict_reliability
from surecast.report import QoSReport, check_accounts
from surecast.scenario import System, build, parse_text
from surecast.simulation import simulate_protocol, simulate_reliability

ONE = """
surecast: 1
name: one
overlay: {brokers: [{name: b, capacity: CAPACITY}]}
workload:
  topics: [t]
  deadline: 1s
  publishers: [{name: p, home: b, topics: [t], rate: 5/s}]
  subscribers: [{name: s, home: b, topics: [t], reliability_target: 0.9}]
"""
FAR = """
surecast: 1
name: far
overlay: {brokers: [{name: a}, {name: b}, {name: c}], links: [{between: [a, b], latency: LATENCY}, [b, c]]}
availability: {FAILURES}
workload:
  topics: [t]
  deadline: 1s
  publishers: [{name: p, home: b, topics: [t], rate: 5/s}]
  subscribers: [{name: s, home: a, topics: [t], reliability_target: 0.5}, {name: near, home: c, topics: [t]}]
delivery: {fault_tolerance: {scheme: buffering, retransmission_interval: 100ms}}
"""


def one(capacity: str = "5.5/s") -> System:
    return build(parse_text(ONE.replace("CAPACITY", capacity)))


def far(latency: str, failures: str = "") -> System:
    return build(parse_text(FAR.replace("LATENCY", latency).replace("FAILURES", failures)))


def queue_by_events(arrival_per_s: float, service_per_s: float, deadline_s: float, events: int) -> tuple[float, float]:
    """Share in time and mean delay of a single queue, event by event: a computation of its own."""
    draw = random.Random(7)
    arrives = free = total = 0.0
    in_time = 0
    for _ in range(events):
        arrives += draw.expovariate(arrival_per_s)
        free = max(free, arrives) + draw.expovariate(service_per_s)
        total += free - arrives
        in_time += free - arrives <= deadline_s
    return in_time / events, total / events


def test_a_queue_at_91_percent_misses_a_deadline_of_a_second() -> None:
    truth = 1.0 - math.exp(-0.5)  # M/M/1: P[T <= t] = 1 - exp(-(mu - lambda) t)
    share, mean_s = queue_by_events(5.0, 5.5, 1.0, 200_000)
    assert share == pytest.approx(truth, abs=0.02)
    assert mean_s == pytest.approx(2.0, rel=0.1)
    for report in (predict(one()), predict_reliability(one())):
        for variant in report.variants:
            assert report.value("reliability", name="s", variant=variant) == pytest.approx(truth, rel=1e-9)
            assert report.value("delay_mean_s", name="s", variant=variant) == pytest.approx(2.0, rel=1e-9)
            assert report.figure("reliability", name="s", variant=variant).how == "approximation"
        assert check_accounts(report) == []


def test_the_simulation_does_not_confirm_a_wrong_answer() -> None:
    system = one()
    report = simulate(system, runs=4, duration="30min", seed=1)
    figure = report.figure("reliability", name="s")
    assert figure.low is not None
    assert figure.high is not None
    assert figure.low <= 1.0 - math.exp(-0.5) <= figure.high
    # A simulation of failures alone says that it leaves queues out, and has no delay to show.
    walk = simulate_reliability(system, ["buffering"], runs=2, duration_s=60.0, seed=1)
    assert any("queueing and service at brokers (overlay.brokers.capacity" in text for text in walk.info.warnings)
    assert not walk.figures(metric="delay_mean_s")


def test_a_system_that_is_too_late_is_not_recommended() -> None:
    (promise,) = admit(one())
    assert not promise.met
    assert promise.reliability == pytest.approx(1.0 - math.exp(-0.5))
    (promise,) = admit(one("500/s"))
    assert promise.met
    (late,) = admit(far("2s"))
    assert not late.met
    assert late.reliability == 0.0
    assert late.other_home in ("b", "c")


def all_of(system: System) -> dict[str, QoSReport]:
    return {
        "predicted": predict_reliability(system),
        "compiled": simulate_reliability(system, runs=2, duration_s=60.0, seed=1),
        "protocol": simulate_protocol(system, ["buffering", "bypass"], runs=2, duration_s=60.0, seed=1),
    }


def test_latency_above_the_deadline_leaves_nothing_for_who_is_behind_it() -> None:
    for report in all_of(far("2s")).values():
        for variant in report.variants:
            assert report.value("reliability", name="s", variant=variant) == 0.0
            assert report.value("reliability", name="near", variant=variant) == pytest.approx(1.0, abs=1e-9)
        assert check_accounts(report) == []


def test_constant_latency_is_exact_where_nothing_waits() -> None:
    report = predict_reliability(far("300ms"), ["none", "buffering"])
    assert report.value("delay_mean_s", name="s", variant="none") == pytest.approx(0.3)
    assert report.value("delay_mean_s", name="near", variant="none") == 0.0
    assert report.figure("reliability", name="s", variant="none").how == "exact"
    assert report.value("delay_quantile_s", name="s", variant="buffering", detail="p99") == pytest.approx(0.3)


def test_latency_takes_away_from_the_time_to_wait_for_repairs() -> None:
    """An outage that is waited out in 1 s, and not in 0.6 s, as formula and simulation say."""
    system = far("400ms", "links: {mtbf: 20s, mttr: 2s}")
    none = far("0s", "links: {mtbf: 20s, mttr: 2s}")
    predicted = predict_reliability(system, ["buffering"]).value("reliability", name="s", variant="buffering")
    shorter = predict_reliability(none, ["buffering"]).value("reliability", name="s", variant="buffering")
    assert predicted < shorter - 0.01
    walk = simulate_reliability(system, ["buffering"], runs=8, duration_s=10_000.0, seed=3)
    assert walk.value("reliability", name="s", variant="buffering") == pytest.approx(predicted, abs=0.01)


@pytest.mark.parametrize("part", ["transmission", "link capacity"])
def test_a_delay_that_leaves_out_all_that_takes_time_is_not_printed(part: str) -> None:
    text = FAR.replace("LATENCY", "0s").replace("FAILURES", "")
    if part == "transmission":
        text = text.replace("topics: [t], reliability_target: 0.5", "topics: [t], service: 40/s")
    else:
        text = text.replace("latency: 0s", "capacity: 40/s")
    report = predict_reliability(build(parse_text(text)))
    assert not report.figures(metric="delay_mean_s")
    assert any("not modelled by the reliability model" in warning for warning in report.info.warnings)
    assert "exact" not in {figure.how for figure in report}


def test_who_transmits_slowly_is_composed_by_default() -> None:
    text = ONE.replace("CAPACITY", "5000/s").replace("reliability_target: 0.9", "service: 5.5/s")
    report = predict(build(parse_text(text)))
    assert report.value("reliability", name="s", variant="composed") == pytest.approx(1 - math.exp(-0.5), abs=1e-3)


def test_filter_classes_name_what_stands_beside_them() -> None:
    system = build(
        parse_text("""
    surecast: 1
    name: beside
    overlay: {brokers: [{name: a, capacity: 100/s}, {name: b, capacity: 100/s}], links: [[a, b]]}
    workload:
      classes: [{name: c, count: 9}]
      clients: [{name: x, home: a}, {name: y, home: b}]
      subscriptions: {active: 10, lifetime: 100s}
      publications: 10/s
      topics: [t]
      publishers: [{name: p, home: a, topics: [t], rate: 5/s}]
      subscribers: [{name: s, home: b, topics: [t]}]
    delivery: {replication: {replicas: 3}, fault_tolerance: {scheme: buffering}}
    """)
    )
    report = predict_capacity(system, ["flooding"])
    said = " ".join(report.info.warnings)
    for words in ("delivery.replication", "delivery.fault_tolerance", "the load by topics"):
        assert words in said
    assert "exact" not in {figure.how for figure in report}


def test_nothing_that_is_left_out_leaves_every_mark_as_it_was() -> None:
    plain = far("0s", "brokers: {mtbf: 1h, mttr: 1min}")
    report = predict_reliability(plain, [scheme for scheme in SCHEMES if scheme != "periodic-subscription"])
    assert report.figure("reliability", name="s", variant="bypass").how == "exact"
