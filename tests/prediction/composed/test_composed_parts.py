"""What stands beside failures in the composed prediction: losses, queues on links, ways around, regular service."""

from __future__ import annotations

import math

import pytest

from surecast import predict
from surecast.prediction import predict_capacity
from surecast.prediction.composed import composes, predict_composed
from surecast.report import QoSReport, check_accounts
from surecast.scenario import System, build, parse_text

LINE = """
surecast: 1
name: line
overlay: {brokers: [{name: a BROKER}, {name: b BROKER}], links: [{between: [a, b] LINK}]}
availability: {FAILS}
workload:
  topics: [t]
  deadline: DEADLINE
  publishers: [{name: p, home: a, topics: [t], rate: 4/s}]
  subscribers: [{name: s, home: b, topics: [t]}]
delivery: {fault_tolerance: {scheme: SCHEME, retransmission_interval: 1s, refresh: link}}
"""


def line(scheme: str, *, broker: str = "", link: str = "", fails: str = "", deadline: str = "2500ms") -> System:
    words = {"SCHEME": scheme, "BROKER": broker, "LINK": link, "FAILS": fails, "DEADLINE": deadline}
    text = LINE
    for word, value in words.items():
        text = text.replace(word, value)
    return build(parse_text(text))


def value(report: QoSReport, metric: str = "reliability", name: str = "s") -> float:
    return report.value(metric, name=name, variant="composed")


def test_a_loss_costs_an_event_or_a_retransmission_interval() -> None:
    """Copies are sent at 0, 1 and 2 s, and then the event has expired."""
    for scheme, expected in (("none", 0.8), ("bypass", 0.8), ("buffering", 0.992), ("bypass-buffering", 0.992)):
        system = line(scheme, link=", loss: 0.2")
        assert composes(system)
        report = predict(system)
        assert value(report) == pytest.approx(expected, rel=1e-9), scheme
        assert check_accounts(report) == []
    assert value(predict(line("buffering", link=", loss: 0.2")), "delay_mean_s") == pytest.approx(
        (0.16 + 0.064) / 0.992
    )


def test_a_link_that_carries_little_is_a_queue() -> None:
    report = predict(line("none", link=", capacity: 5/s", deadline="1s"))
    assert value(report) == pytest.approx(1.0 - math.exp(-1.0), rel=1e-9)
    assert value(report, "delay_mean_s") == pytest.approx(1.0)


def test_latency_and_a_queue_share_the_deadline() -> None:
    report = predict(line("none", link=", capacity: 5/s, latency: 400ms", deadline="1s"))
    assert value(report) == pytest.approx(1.0 - math.exp(-0.6), rel=1e-9)


def test_with_one_way_going_around_is_waiting() -> None:
    fails = "links: {availability: 0.9, period: 20s}"
    known = predict_composed(line("buffering", broker=", capacity: 30/s", fails=fails), factors=False)
    found = predict_composed(line("bypass-buffering", broker=", capacity: 30/s", fails=fails), factors=False)
    assert value(found) == pytest.approx(value(known), abs=1e-4)
    assert value(found, "delay_mean_s") == pytest.approx(value(known, "delay_mean_s"), rel=0.01)


def test_nothing_waits_again_behind_the_same_regular_service() -> None:
    """Two brokers of 200 ms each, and events that come out of the first at least 200 ms apart."""
    regular = ", service: {distribution: deterministic, mean: 200ms}"
    report = predict_composed(line("none", broker=regular), factors=False)
    waits = 0.8 * 0.2 / (2.0 * 0.2)  # M/D/1
    assert report.value("delay_mean_s", name="a", variant="composed") == pytest.approx(waits + 0.2)
    assert report.value("delay_mean_s", name="b", variant="composed") == pytest.approx(0.2)


def test_a_repair_lets_in_what_waited_for_it() -> None:
    fails = "links: {availability: 0.98, period: 1000s}"
    slow, quick = (
        predict_composed(line("buffering", broker=f", capacity: {c}/s", fails=fails, deadline="1h"), factors=False)
        for c in (9, 900)
    )
    alone = line("buffering", broker=", capacity: 9/s", deadline="1h")
    extra = value(slow, "delay_mean_s") - value(quick, "delay_mean_s")
    assert extra > 1.5 * value(predict_composed(alone, factors=False), "delay_mean_s")


def test_topics_and_classes_load_the_same_brokers() -> None:
    system = build(
        parse_text("""
    surecast: 1
    name: both
    overlay: {brokers: [{name: a, capacity: 100/s}, {name: b, capacity: 100/s}], links: [[a, b]]}
    workload:
      classes: [{name: c, count: 9}]
      clients: [{name: x, home: a}, {name: y, home: b}]
      subscriptions: {active: 10, lifetime: 100s}
      publications: 20/s
      topics: [t]
      publishers: [{name: p, home: a, topics: [t], rate: 30/s}]
      subscribers: [{name: s, home: b, topics: [t]}]
    delivery: {routing: {algorithm: flooding}, fault_tolerance: {refresh: link}}
    """)
    )
    classes = predict_capacity(system, ["flooding"])
    utilisation = classes.value("utilisation", name="b", variant="flooding")
    assert utilisation == pytest.approx(0.5, abs=2e-3)  # flooding brings 20/s, and some control messages
    report = predict(system)
    assert report.value("utilisation", name="b", variant="composed") == pytest.approx(utilisation)
    alone = predict_composed(system, factors=False).value("utilisation", name="b", variant="composed")
    assert alone == pytest.approx(0.3)
