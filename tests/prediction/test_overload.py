"""Overload has no steady state: every model refuses it, and names the component with its load and its capacity."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from surecast.errors import SaturationError
from surecast.planning import admit, choose_homes, compare_schemes
from surecast.prediction import predict_coding, predict_dropping, predict_reliability
from surecast.prediction.composed import predict_composed
from surecast.prediction.overload import refuse_overload
from surecast.prediction.replication import predict_replication
from surecast.report import QoSReport
from surecast.scenario import System, build, parse_text
from surecast.scenario.saturation import broker_rates_per_s, event_loads
from surecast.simulation import simulate_dropping, simulate_protocol, simulate_reliability
from surecast.simulation.composed import simulate_composed
from surecast.simulation.replication import simulate_group_reliability, simulate_replication

PAIR = """
surecast: 1
name: pair
overlay:
  brokers: [{name: a, capacity: CAPACITY_A}, {name: b, capacity: CAPACITY_B}]
  links: [{between: [a, b], capacity: CAPACITY_LINK}]
workload:
  topics: [t]
  deadline: 1s
  publishers: [{name: p, home: a, topics: [t], rate: 5/s}]
  subscribers: [{name: s, home: b, topics: [t], reliability_target: 0.5}]
delivery: {}
"""


def pair(a: str = "100/s", b: str = "100/s", link: str = "100/s", delivery: str = "{}") -> System:
    text = PAIR.replace("CAPACITY_A", a).replace("CAPACITY_B", b).replace("CAPACITY_LINK", link)
    return build(parse_text(text.replace("delivery: {}", f"delivery: {delivery}")))


MODELS: dict[str, Callable[[System], object]] = {
    "reliability": predict_reliability,
    "one scheme": lambda system: predict_reliability(system, ["bypass"]),
    "composed": predict_composed,
    "admission": admit,
    "homes": choose_homes,
    "schemes": compare_schemes,
    "compiled": lambda system: simulate_reliability(system, runs=2, duration_s=10.0, seed=1),
    "protocol": lambda system: simulate_protocol(system, ["buffering"], runs=2, duration_s=10.0, seed=1),
    "composed simulation": lambda system: simulate_composed(
        system, mechanisms={}, runs=2, duration_s=10.0, seed=1, warm_up_s=0.0
    ),
}
OVERLOADED = {
    "broker a": (pair(a="4/s"), "broker a is overloaded: 5 events/s come, and it carries 4/s"),
    "at exactly 1": (pair(a="5/s"), "broker a is overloaded: 5 events/s come, and it carries 5/s"),
    "broker b": (pair(b="0.1/s"), "broker b is overloaded: 5 events/s come, and it carries 0.1/s"),
    "link": (pair(link="2/s"), "link a--b is overloaded: 5 events/s come, and it carries 2/s"),
}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("what", OVERLOADED)
def test_every_model_refuses_overload_by_name(what: str, model: str) -> None:
    system, said = OVERLOADED[what]
    with pytest.raises(SaturationError, match="is overloaded") as refusal:
        MODELS[model](system)
    assert said in str(refusal.value)


@pytest.mark.parametrize(
    "model",
    [
        predict_replication,
        predict_reliability,
        lambda system: simulate_replication(system, runs=2, duration_s=1.0, seed=1),
        lambda system: simulate_group_reliability(system, runs=2, duration_s=1.0, seed=1),
    ],
)
def test_a_group_is_refused_too(model: Callable[[System], QoSReport]) -> None:
    with pytest.raises(SaturationError, match="broker a"):
        model(pair(a="4/s", delivery="{replication: {replicas: 3}}"))


def test_a_group_that_orders_too_slowly_is_refused() -> None:
    slow = pair(delivery="{replication: {replicas: 3, publication_cost: 1s}}")
    with pytest.raises(SaturationError, match="broker a, a group of 3, is overloaded: 5 events/s come"):
        predict_reliability(slow)


def test_a_thousand_topic_events_on_brokers_of_four_hundred() -> None:
    system = build(
        parse_text("""
    surecast: 1
    name: busy
    overlay: {brokers: [{name: b, count: 3, capacity: 400/s}], links: {build: chain}}
    workload:
      topics: [t]
      publishers: [{name: p, home: b-1, topics: [t], rate: 1000/s}]
      subscribers: [{name: s, home: b-3, topics: [t]}]
    """)
    )
    with pytest.raises(SaturationError, match=r"broker b-1 is overloaded: 1000 .*so are broker b-2, broker b-3"):
        refuse_overload(system)


CLASSES = """
surecast: 1
name: both
overlay: {brokers: [{name: a, capacity: 100/s}, {name: b, capacity: 100/s}], links: [[a, b]]}
workload:
  classes: [{name: c, count: 50}]
  clients: [{name: x, home: a}, {name: y, home: b}]
  subscriptions: {active: 100, lifetime: 100s}
  publications: PUBLICATIONS
  topics: [t]
  publishers: [{name: p, home: a, topics: [t], rate: TOPICS}]
  subscribers: [{name: s, home: b, topics: [t]}]
"""


def both(publications: str, topics: str) -> System:
    return build(parse_text(CLASSES.replace("PUBLICATIONS", publications).replace("TOPICS", topics)))


def test_topics_and_classes_load_a_broker_together() -> None:
    refuse_overload(both("60/s", "10/s"))
    refuse_overload(both("10/s", "60/s"))
    with pytest.raises(SaturationError, match=r"broker [ab] is overloaded under .* by filter classes and the rest by"):
        refuse_overload(both("90/s", "60/s"))


def test_an_algorithm_that_overloads_is_a_comparison_and_all_of_them_are_a_refusal() -> None:
    system = both("110/s", "1/s")  # flooding takes every notification to both brokers
    refuse_overload(system)
    with pytest.raises(SaturationError, match="under flooding"):
        refuse_overload(system, ["flooding"])
    with pytest.raises(SaturationError, match="overloaded"):
        refuse_overload(both("1000/s", "1/s"))


def test_loads_count_an_event_once_however_many_get_it() -> None:
    system = build(
        parse_text("""
    surecast: 1
    name: fan
    overlay: {brokers: [{name: b, count: 3, capacity: 100/s}], links: {build: star}}
    workload:
      topics: [t, unheard]
      publishers: [{name: p, home: b-2, topics: [t, unheard], rate: 8/s}]
      subscribers: [{name: s, count: 5, home: b-1, topics: [t]}, {name: u, home: b-3, topics: [t]}]
    delivery: {fault_tolerance: {refresh: link}}
    """)
    )
    assert broker_rates_per_s(system) == [4.0, 8.0, 4.0]
    assert [round(load.utilisation, 6) for load in event_loads(system)] == [0.04, 0.08, 0.04]


def test_acknowledgements_refreshes_and_copies_are_load() -> None:
    system = pair(delivery="{fault_tolerance: {scheme: buffering, refresh: end-to-end, refresh_interval: 10s}}")
    loads = {load.component: round(load.utilisation, 6) for load in event_loads(system)}
    # a gets 5 events and 5 acknowledgements, and a refresh of t every 10 s; b gets the events
    assert loads == {"broker a": 0.101, "broker b": 0.05, "link a--b": 0.051}
    lossy = replace(system, overlay=replace(system.overlay, links=(replace(system.overlay.links[0], loss=0.2),)))
    assert event_loads(lossy)[1].rate_per_s == pytest.approx(4.0)  # no copy is sent again within 1 s
    patient = tuple(replace(publisher, deadline_s=math.inf) for publisher in lossy.publishers)
    assert event_loads(replace(lossy, publishers=patient))[1].rate_per_s == pytest.approx(5.0 / 0.8)


def test_a_link_has_its_capacity_in_each_direction() -> None:
    system = build(
        parse_text("""
    surecast: 1
    name: duplex
    overlay: {brokers: [{name: a}, {name: b}], links: [{between: [a, b], capacity: 5/s}]}
    workload:
      topics: [t]
      publishers: [{name: p, home: a, topics: [t], rate: 4/s}, {name: q, home: b, topics: [t], rate: 4/s}]
      subscribers: [{name: s, home: a, topics: [t]}, {name: u, home: b, topics: [t]}]
    """)
    )
    refuse_overload(system)
    assert sorted(load.rate_per_s for load in event_loads(system)) == [4.0, 4.0]


def test_packets_load_the_home_brokers() -> None:
    text = PAIR.replace("CAPACITY_A", "100/s").replace("CAPACITY_B", "100/s").replace("CAPACITY_LINK", "1000/s")
    coded = build(parse_text(text.replace("delivery: {}", "delivery: {coding: {packets: 32, paths: tree}}")))
    with pytest.raises(SaturationError, match="broker a is overloaded: 160 packets/s come"):
        predict_coding(coded)


def test_a_broker_that_drops_later_is_refused_at_its_input_queue() -> None:
    system = build(
        parse_text("""
    surecast: 1
    name: commuter
    overlay: {brokers: [{name: b, capacity: 1/s}]}
    workload:
      topics: [t]
      publishers: [{name: p, home: b, topics: [t], rate: 2/s}]
      subscribers: [{name: s, home: b, topics: [t], connectivity: {on: 20s, off: 20s}, service: 8/s}]
    """)
    )
    for model in (predict_dropping, lambda s: simulate_dropping(s, runs=2, duration_s=10.0, seed=1)):
        with pytest.raises(SaturationError, match="broker b"):
            model(system)
