"""Logs with known parameters become a scenario that has them, and that answers as the original does."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.pipeline.learn.logs_known import Truth, known_log, statistics_of

from surecast.errors import AssumptionError, ConfigurationError
from surecast.pipeline.learn import Learned, Statistics, learn_scenario, read_filter_samples
from surecast.pipeline.learn.component_times import broker_periods, find_components, join_replicas, serving
from surecast.pipeline.learn.log_statistics import (
    AvailabilityRow,
    ObservedPublications,
    ObservedSubscription,
    ReplicaSet,
    UptimeRow,
)
from surecast.pipeline.learn.samples import Times
from surecast.prediction import predict_dropping, predict_reliability
from surecast.scenario import build, load_system, parse_text

TRUTH = Truth()


@pytest.fixture(scope="module")
def learned() -> list[Learned]:
    return [learn_scenario(statistics_of(known_log(TRUTH, seed), TRUTH.broker)) for seed in range(20)]


def test_parameters_of_the_log_are_in_their_intervals(learned: list[Learned]) -> None:
    truths = {"hub mtbf": TRUTH.up_s, "hub mttr": TRUTH.down_s}
    truths |= {f"rate of {name}": rate for name, rate in TRUTH.rates.items()}
    for i in range(TRUTH.subscribers):
        truths |= {f"s{i} on": TRUTH.on_s, f"s{i} off": TRUTH.off_s, f"service time of s{i}": TRUTH.service_s}
    inside = total = 0
    for answer in learned:
        found = {estimate.what: estimate for estimate in answer.estimates}
        assert truths.keys() <= found.keys()
        for what, truth in truths.items():
            inside += found[what].low <= truth <= found[what].high
            total += 1
    assert inside >= 0.9 * total


def test_the_file_says_where_each_value_comes_from(learned: list[Learned]) -> None:
    text = learned[0].to_yaml()
    scenario = parse_text(text)
    assert scenario.to_data() == parse_text(scenario.to_yaml()).to_data()
    for estimate in learned[0].estimates:
        assert f"# {estimate.comment()}" in text or f"# - {estimate.comment()}" in text
    for missing in learned[0].missing:
        assert f"# - {missing}" in text
    assert {each.what for each in learned[0].missing} >= {"workload.filters", "service time of brokers", "locality"}
    json.dumps(learned[0].as_dict(), allow_nan=False)


def original() -> str:
    return f"""
surecast: 1
name: original
overlay: {{brokers: [{{name: hub}}]}}
availability: {{each: {{hub: {{mtbf: {TRUTH.up_s}s, mttr: {TRUTH.down_s}s}}}}}}
workload:
  topics: [plant/p1, plant/p2]
  deadline: {TRUTH.deadline_s}s
  publishers:
    - {{name: p1, home: hub, topics: [plant/p1], rate: 1/s}}
    - {{name: p2, home: hub, topics: [plant/p2], rate: 0.5/s}}
  subscribers:
    - {{name: s, count: 3, home: hub, topics: all, connectivity: {{on: 20s, off: 10s}}, service: 8/s}}
"""


def test_the_learned_scenario_predicts_what_the_original_does() -> None:
    truth = replace(TRUTH, duration_s=6000.0)
    answer = learn_scenario(statistics_of(known_log(truth, 11), truth.broker))
    found, wanted = build(parse_text(answer.to_yaml())), build(parse_text(original()))
    for metric, answers in (
        ("delay_mean_s", [predict_dropping(system) for system in (found, wanted)]),
        ("reliability", [predict_reliability(system, ["buffering"]) for system in (found, wanted)]),
    ):
        figures = [answer.figures(metric=metric, scope="subscriber") for answer in answers]
        means = [float(np.mean([figure.value for figure in each])) for each in figures]
        assert len(figures[0]) == len(figures[1]) == 3
        assert means[0] == pytest.approx(means[1], rel=0.15), metric


def test_crashes_are_known_to_half_a_sign_of_life() -> None:
    incarnations = [UptimeRow("b", 0.0, 100.0, "crash", False), UptimeRow("b", 104.0, 150.0, "stopped", True)]
    periods = broker_periods(incarnations, 60.0)
    assert [(p.up, p.start_s, p.end_s, p.start_seen, p.end_seen) for p in periods] == [
        (True, 0.0, 102.0, False, True),
        (False, 102.0, 104.0, True, True),
        (True, 104.0, 150.0, True, False),
    ]


def test_a_stop_is_an_end_only_where_a_start_follows() -> None:
    """Who stops a broker and starts it again had it down; who stops it for good has ended the observation."""
    incarnations = [UptimeRow("b", 0.0, 100.0, "stopped", True), UptimeRow("b", 130.0, 200.0, "stopped", True)]
    periods = broker_periods(incarnations, 60.0)
    assert [(p.up, p.length_s, p.end_seen) for p in periods] == [
        (True, 100.0, True),
        (False, 30.0, True),
        (True, 70.0, False),
    ]


def test_links_and_machines_of_traces() -> None:
    rows = []
    for name in ("a--b", "b--c"):
        rows += [AvailabilityRow("avt", "t", name, True, 100.0 * i, 100.0 * i + 90.0) for i in range(30)]
    components = {each.name: each for each in find_components(Statistics(intervals=tuple(rows)))}
    assert components["a--b"].kind == "link"
    assert components["a--b"].times.down.ends == 29
    answer = learn_scenario(Statistics(intervals=tuple(rows)))
    system = build(parse_text(answer.to_yaml()))
    assert [broker.name for broker in system.overlay.brokers] == ["a", "b", "c"]
    failures = system.overlay.links[0].failures
    assert failures is not None
    assert failures.mttr_s == pytest.approx(10.0, rel=1e-3)
    # Times that are always the same are no exponential ones, and nothing that is fitted is as steady.
    assert all("exponential rejected" in each.verdict for each in answer.estimates if "mttr" in each.what)


def test_users_of_a_trace_are_subscribers() -> None:
    rng = np.random.default_rng(4)
    turns = np.cumsum(rng.exponential(50.0, 200))
    rows = [AvailabilityRow("activity", "t", "ann", True, a, b) for a, b in zip(turns[::2], turns[1::2], strict=True)]
    answer = learn_scenario(Statistics(intervals=tuple(rows)))
    (subscriber,) = build(parse_text(answer.to_yaml())).subscribers
    assert subscriber.connectivity is not None
    for estimate in answer.estimates:
        assert estimate.low <= 50.0 <= estimate.high
    assert {"publishers", "topics of subscribers"} <= {each.what for each in answer.missing}


def test_a_component_that_never_failed_is_named_with_its_limit() -> None:
    answer = learn_scenario(Statistics(incarnations=(UptimeRow("b", 0.0, 3600.0, "open", True),)))
    assert "availability" not in answer.data
    (missing,) = [each for each in answer.missing if each.what == "availability of broker b"]
    assert "above 975.9" in missing.why


def two_brokers() -> Statistics:
    incarnations = tuple(UptimeRow(name, 0.0, 640.0, "open", True) for name in ("east", "west"))
    windows = {("east", "p"): dict.fromkeys(range(64), 10), ("west", "q"): dict.fromkeys(range(64), 5)}
    return Statistics(
        incarnations=incarnations,
        published=(
            ObservedPublications("east", "p", "news", 600),
            ObservedPublications("east", "p", "rain", 40),
            ObservedPublications("west", "q", "rain", 320),
        ),
        windows=windows,
        window_s=10.0,
        subscriptions=(
            ObservedSubscription("east", "s", "#", True),
            ObservedSubscription("west", "t", "$share/g/rain", False),
        ),
        arrivals=50,
        lifetimes=Times.of([5.0, 9.0, 2.0, 4.0, 6.0] * 9, [3.0]),
    )


def test_uneven_publishers_are_divided_by_topic() -> None:
    answer = learn_scenario(two_brokers())
    publishers = {each["name"]: each for each in answer.data["workload"]["publishers"]}
    assert publishers.keys() == {"p: news", "p: rain", "q"}
    assert publishers["p: news"]["rate"] == "0.9375/s"
    subscribers = {each["name"]: each["topics"] for each in answer.data["workload"]["subscribers"]}
    assert subscribers == {"s": ["news", "rain"], "t": ["rain"]}
    assert any(each.what == "overlay.links" for each in answer.missing)


def test_classes_have_hot_spots_filters_and_lifetimes(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    lines = [f'{{"attributes": {{"price": {i % 50}}}}}' for i in range(200)]
    path.write_text("\n".join([*lines, *['{"filter": "price in [10, 30]"}'] * 20]))
    answer = learn_scenario(two_brokers(), workload="classes", samples=read_filter_samples(path))
    system = build(parse_text(answer.to_yaml()))
    workload = system.class_workload
    assert workload is not None
    assert {each.name: each.hot_spot for each in workload.classes} == {"news": "east", "rain": "west"}
    assert workload.publication_rate_per_s.sum() == pytest.approx(1.5, rel=1e-5)
    assert workload.subscription_rate_per_s.sum() == pytest.approx(50 / 640, rel=1e-5)
    local = {each.what: each for each in answer.estimates if each.what.startswith("locality")}
    assert local["locality of rain"].value == pytest.approx(320 / 360)
    statistics = workload.classes[0].filters
    assert statistics is not None
    assert statistics[0].width is not None
    assert statistics[0].width.points == (20.0,)


def test_what_is_refused() -> None:
    with pytest.raises(AssumptionError, match="broker_events, broker_uptime and availability are empty"):
        learn_scenario(Statistics())
    with pytest.raises(ConfigurationError, match="write topics or classes"):
        learn_scenario(two_brokers(), workload="both")
    with pytest.raises(AssumptionError, match="no subscription that ended"):
        learn_scenario(Statistics(incarnations=(UptimeRow("b", 0.0, 9.0, "open", True),)), workload="classes")


def test_a_base_keeps_its_overlay_and_delivery(tmp_path: Path) -> None:
    path = tmp_path / "base.yaml"
    path.write_text(
        "surecast: 1\nname: base\noverlay:\n  brokers: [{name: east}, {name: mid, capacity: 90/s}, {name: west}]\n"
        "  links: [[east, mid], [mid, west]]\ndelivery: {fault_tolerance: {scheme: bypass}}\n"
    )
    answer = learn_scenario(two_brokers(), base=load_system(path))
    scenario = parse_text(answer.to_yaml())
    assert scenario.delivery.fault_tolerance.scheme == "bypass"
    assert len(build(scenario).overlay.links) == 2
    path.write_text("surecast: 1\nname: base\noverlay: {brokers: [{name: east}]}\n")
    with pytest.raises(ConfigurationError, match="west is no broker of the scenario base; it has east"):
        learn_scenario(two_brokers(), base=load_system(path))


def replicated() -> Statistics:
    """Three replicas, of which one fails twice, one once; 120 messages in 60 s; a probe, and counts of the broker."""
    incarnations = [
        UptimeRow("zap-1", 0.0, 20.0, "crash", True),
        UptimeRow("zap-1", 24.0, 40.0, "crash", True),
        UptimeRow("zap-1", 46.0, 60.0, "open", True),
        UptimeRow("zap-2", 0.0, 60.0, "open", True),
        UptimeRow("zap-3", 0.0, 30.0, "crash", True),
        UptimeRow("zap-3", 32.0, 60.0, "open", True),
    ]
    joined, groups = join_replicas(incarnations, {f"zap-{n}": ("zap", 3) for n in (1, 2, 3)}, {})
    return Statistics(
        incarnations=joined,
        groups=groups,
        published=(ObservedPublications("zap", "region-1", "zap/events/1", 120),),
        aside=(
            ObservedPublications("zap", "probe 1", "surecast-run/probe", 9),
            ObservedPublications("zap", "", "zap/viewers/A", 500),
        ),
        windows={("zap", "region-1"): dict.fromkeys(range(60), 2)},
        start_s=0.0,
        window_s=1.0,
        subscriptions=(
            ObservedSubscription("zap", "one", "zap/#", True),
            ObservedSubscription("zap", "two", "zap/viewers/A", True),
        ),
    )


def test_replicas_of_a_group_are_one_broker() -> None:
    learned = learn_scenario(replicated())
    assert learned.data["overlay"]["brokers"] == [{"name": "zap"}]
    assert learned.data["delivery"] == {"replication": {"replicas": 3}}
    # Of each process: 3 ends of times up in 168 s, and 3 of times down in 12 s.
    values = {each.what: (each.value, each.n) for each in learned.estimates}
    assert values["zap mtbf"] == (pytest.approx(168.0 / 3), 3)
    assert values["zap mttr"] == (pytest.approx(12.0 / 3), 3)
    assert values["rate of region-1"] == (pytest.approx(2.0), 120)
    assert learned.data["workload"]["topics"] == ["zap/events/1"]
    assert [each["name"] for each in learned.data["workload"]["publishers"]] == ["region-1"]
    assert [each["name"] for each in learned.data["workload"]["subscribers"]] == ["one"]
    said = " ".join(learned.notes)
    assert "zap is a group of 3 replicas, with the logs of 3" in said
    assert "9 messages of probes, on surecast-run/probe, are left out" in said
    assert "500 messages that brokers published themselves, on zap/viewers/A, are left out" in said


def test_groups_of_different_sizes_are_not_estimated() -> None:
    alone = UptimeRow("alone", 0.0, 60.0, "open", True)
    both = replace(replicated(), incarnations=(*replicated().incarnations, alone))
    learned = learn_scenario(both)
    assert "delivery" not in learned.data
    assert "delivery.replication.replicas" in {each.what for each in learned.missing}


@pytest.mark.parametrize("logs", [1, 2, 3])
@pytest.mark.parametrize("seed", range(5))
def test_a_group_serves_while_a_majority_is_up(seed: int, logs: int) -> None:
    """Against a look at each tenth of a second; replicas without a log are taken as up."""
    rng = np.random.default_rng(seed)
    incarnations = []
    for number in range(1, logs + 1):
        edges = np.sort(rng.choice(np.arange(1, 100), 6, replace=False)).astype(float)
        for start_s, end_s, ended_by in zip(edges[::2], edges[1::2], ["crash", "crash", "open"], strict=True):
            incarnations.append(UptimeRow(f"g-{number}", float(start_s), float(end_s), ended_by, True))
    found = serving("g", ReplicaSet(3, tuple(incarnations)), {})
    for at_s in np.arange(0.05, 100.0, 0.1):
        up = sum(incarnation.up_from_s < at_s < incarnation.up_to_s for incarnation in incarnations) + (3 - logs)
        wanted = up >= 2 and any(incarnation.up_from_s < at_s < incarnation.up_to_s for incarnation in incarnations)
        assert wanted == any(incarnation.up_from_s < at_s < incarnation.up_to_s for incarnation in found), at_s
