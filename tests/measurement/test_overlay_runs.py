"""Runs of overlays: real brokers that are killed or frozen, real links that are cut, by the simulation's traces."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surecast.errors import AssumptionError, ConfigurationError
from surecast.measurement import RunPlan, make_plan, run_plan
from surecast.measurement.overlay_processes import OverlayProcesses
from surecast.report import QoSReport, check_accounts
from surecast.scenario import Streams, System, build, load_system, parse_text
from surecast.simulation.reliability.compiled.traces import draw_trace
from surecast.simulation.replication.outages import group_trace

DIAMOND = """
surecast: 1
name: diamond
seed: 3
overlay:
  brokers: [{name: b, count: 4}]
  links: [[b-1, b-2], [b-2, b-4], [b-1, b-3], [b-3, b-4]]
  topic_trees: {root: b-1}
workload:
  topics: [stock, news]
  deadline: DEADLINE
  publishers:
    - {name: p, home: b-1, topics: [stock], rate: 20/s}
    - {name: q, home: b-4, topics: [news], rate: 10/s}
  subscribers:
    - {name: far, home: b-4, topics: [stock]}
    - {name: near, home: b-1, topics: [stock]}
    - {name: both, home: b-3, topics: [stock, news]}
delivery: {fault_tolerance: {scheme: SCHEME, refresh: REFRESH}}
"""


def system_of(scheme: str, deadline: str = "60s", refresh: str = "link", **sections: Any) -> System:
    text = DIAMOND.replace("SCHEME", scheme).replace("DEADLINE", deadline).replace("REFRESH", refresh)
    return build(parse_text(text + "".join(f"{name}: {value}\n" for name, value in sections.items())))


def run(system: System, duration_s: float, **options: Any) -> tuple[RunPlan, QoSReport]:
    plan = make_plan(system, duration_s=duration_s, warm_up_s=0.0, **options)
    report = run_plan(plan)
    assert check_accounts(report) == []
    return plan, report


def test_what_fails_when_is_what_the_first_run_of_a_simulation_draws() -> None:
    availability = "{brokers: {mtbf: 60s, mttr: 20s}, links: {mtbf: 30s, mttr: 5s}}"
    plan = make_plan(system_of("bypass", availability=availability), duration_s=500.0, warm_up_s=0.0)
    streams = Streams(plan.seed)
    overlay = plan.system.overlay
    for kind, components, traces in (
        ("broker", overlay.brokers, plan.traces),
        ("link", overlay.links, plan.link_traces),
    ):
        for component, trace in zip(components, traces, strict=True):
            starts, ends = draw_trace(component.failures, streams, f"run 0/{kind}", component.name, 500.0)
            down, up = trace[0::2], trace[1::2]
            first = 1 if len(starts) and starts[0] == 0.0 else 0
            assert np.array_equal(up, starts[first:])
            assert np.array_equal(down[down > 0.0], ends[np.isfinite(ends)][: len(down[down > 0.0])])


def test_without_failures_everything_arrives_once_and_tables_have_what_formulas_say() -> None:
    plan, report = run(system_of("bypass-buffering", refresh="end-to-end"), 4.0)
    for name in ("far", "near", "both"):
        assert report.value("reliability", name=name) == 1.0
        assert report.value("count_duplicate", name=name) == 0
        assert report.value("count_out_of_order", name=name) == 0
    # The tree is b-3, b-1, b-2, b-4. All but b-2 are home of somebody who wants stock, b-3 also of one who wants news;
    # each broker has an entry for each other home and topic.
    wanted = {"b-1": 3, "b-2": 4, "b-3": 2, "b-4": 3}
    for name, entries in wanted.items():
        assert report.value("table_entries", scope="broker", name=name, detail="remote") == entries
        assert report.value("availability", scope="broker", name=name) == 1.0
    # stock: b-1 to b-2 to b-4 and b-1 to b-3; news: b-4 to b-2 to b-1 to b-3.
    sent = report.value("messages_per_event", scope="system", name="", detail="notification")
    assert sent == pytest.approx(3.0, rel=0.02)
    assert len(plan.events) > 60


@pytest.mark.parametrize("freezes", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_broker_in_the_middle_that_fails_costs_nothing_under_bypass_with_buffering(freezes: bool) -> None:
    availability = "{each: {b-2: {mtbf: 4s, mttr: 3s}}}"
    plan, report = run(system_of("bypass-buffering", availability=availability), 10.0, freezes=freezes)
    assert any(len(trace) for trace in plan.traces), "something fails"
    availability_of = report.value("availability", scope="broker", name="b-2")
    trace = [min(10.0, time_s) for time_s in plan.traces[1].tolist()] + [10.0]
    down_s = sum(up - down for down, up in zip(trace[0::2], trace[1::2], strict=False))
    assert 0.0 < availability_of < 0.95
    if freezes:  # what was killed takes a while to start
        assert availability_of == pytest.approx(1.0 - down_s / 10.0, abs=0.1)
    for name in ("far", "near", "both"):
        assert report.value("reliability", name=name) == 1.0
        assert report.value("count_dropped", name=name, detail="lost although acknowledged") == 0
    assert report.value("reliability", name="near") == 1.0


@pytest.mark.parametrize("scheme", ["bypass-buffering", pytest.param("buffering", marks=pytest.mark.long)])
def test_no_event_is_lost_with_custody_where_none_can_expire_whatever_is_killed_and_cut(scheme: str) -> None:
    brokers = "b-1: {mtbf: 4.5s, mttr: 2s}, b-2: {mtbf: 4s, mttr: 2s}, b-4: {mtbf: 4.5s, mttr: 2s}"
    availability = f"{{each: {{{brokers}, b-1--b-3: {{mtbf: 2s, mttr: 1s}}}}}}"
    plan, report = run(system_of(scheme, "1h", availability=availability), 12.0)
    assert sum(len(trace) > 0 for trace in plan.traces) >= 2
    assert len(plan.link_traces[2]) > 1
    for name in ("far", "near", "both"):
        lost = report.value("count_dropped", name=name, detail="lost although acknowledged")
        expired = report.value("count_dropped", name=name, detail="expired")
        down = report.value("count_dropped", name=name, detail="home broker down")
        arrived, queued = (report.value(f"count_{fate}", name=name) for fate in ("on_time", "queued"))
        assert (lost, expired) == (0, 0)
        assert arrived + queued + down == report.value("count_published", name=name)
        assert arrived >= 10  # before the first kill; how long brokers take to start is the machine's


def test_a_link_that_is_cut_loses_what_a_tree_without_detours_cannot_carry() -> None:
    links = "{each: {b-1--b-2: {mtbf: 6s, mttr: 6s}}}"
    plan, report = run(system_of("none", refresh="end-to-end", availability=links), 24.0, scale=2.0)
    down_s = sum(up - down for down, up in zip(plan.link_traces[0][0::2], plan.link_traces[0][1::2], strict=False))
    assert down_s > 3.0
    assert report.value("reliability", name="near", variant="none") == 1.0
    far = report.value("reliability", name="far", variant="none")
    lost = report.value("share_dropped", name="far", detail="path down", variant="none")
    assert far + lost == pytest.approx(1.0, abs=0.05)
    assert far == pytest.approx(1.0 - down_s / 24.0, abs=0.12)
    assert any("suspicion takes" in warning for warning in report.info.warnings)


def test_a_broker_that_ends_by_itself_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_whole, seen = OverlayProcesses.wait_whole, []

    async def wait_and_kill_later(processes: OverlayProcesses) -> None:
        await wait_whole(processes)
        if not seen:
            seen.append(processes)
            asyncio.get_running_loop().call_later(2.0, processes._overlay.processes["b-3"].kill)

    monkeypatch.setattr(OverlayProcesses, "wait_whole", wait_and_kill_later)
    _, report = run(system_of("buffering"), 5.0)
    assert any("process 3 ended by itself" in warning for warning in report.info.warnings)


@pytest.mark.parametrize(
    ("detection", "scale", "times"),
    [
        ("1s", 5.0, {"suspect": "0.2s", "ping": "50ms"}),
        ("10s", 10.0, {"suspect": "1s", "ping": "0.1s"}),
        ("0.5s", 20.0, {"suspect": "50ms", "ping": "12.5ms"}),  # no sooner than a process may have to wait
        ("0s", 20.0, {}),
    ],
)
def test_neighbours_are_suspected_after_the_detection_time_of_the_scenario(
    detection: str, scale: float, times: dict[str, str]
) -> None:
    system = system_of(f"bypass, detection: {detection}")
    options = make_plan(system, duration_s=5.0, scale=scale).overlay_options()
    assert {name: options[name] for name in ("suspect", "ping") if name in options} == times


def test_options_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="an overlay has no leader, or one for each group"):
        make_plan(system_of("none"), duration_s=5.0, leader_kills_s=[1.0])
    one = build(parse_text("{surecast: 1, name: one, overlay: {brokers: [{name: b}]}, workload: {topics: [t], "
                           "publishers: [{name: p, home: b, topics: [t], rate: 1/s}], "
                           "subscribers: [{name: s, home: b, topics: [t]}]}}"))  # fmt: skip
    with pytest.raises(ConfigurationError, match="only brokers of an overlay are frozen"):
        make_plan(one, duration_s=5.0, freezes=True)


def test_subscribers_of_an_overlay_come_and_go_while_brokers_fail_and_no_event_is_unaccounted_for(
    repository: Path,
) -> None:
    changes = {"delivery.replication.replicas": 1, "availability.brokers.mtbf": "300s"}
    system = load_system(repository / "examples" / "composed.yaml", changes)[1]
    plan, report = run(system, 240.0, scale=12.0, client_processes=2)
    assert plan.keeps_all
    assert any(len(trace) for trace in plan.traces)
    for name in ("ledger", "desk", "rep", "driver"):
        assert report.value("count_dropped", name=name, detail="lost although acknowledged") == 0
        assert report.value("count_on_time", name=name) > 0
    for name in ("rep", "driver"):  # which join with a probability of 0.7 while they are away
        assert report.value("count_dropped", name=name, detail="rejected while disconnected") > 0
        assert 0.2 < report.value("availability", name=name) < 0.95
    assert set(report.variants) == {"buffering", "probabilistic"}


def test_brokers_of_an_overlay_are_groups_whose_replicas_fail_when_those_of_the_simulation_do(
    repository: Path,
) -> None:
    changes = {"availability.brokers.mtbf": "100s", "availability.brokers.mttr": "15s"}
    system = load_system(repository / "examples" / "composed.yaml", changes)[1]
    plan, report = run(system, 100.0, scale=10.0, patience_s=2.0)
    assert plan.keeps_all
    serving = group_trace(plan.group, np.zeros(1), horizon_s=plan.end_s, seed=plan.seed, name="run 0/north")
    replicas = [_up_times(plan.traces[number - 1]) for number in plan.processes_of[1]]
    for time_s in np.linspace(0.0, 99.0, 200).tolist():
        up = sum(any(start <= time_s < end for start, end in each) for each in replicas)
        assert (up >= 2) == bool(((serving[0] <= time_s) & (time_s < serving[1])).any())
    assert sum(time_s < plan.end_s for trace in plan.traces for time_s in trace[0::2]) >= 5, "replicas are killed"
    for name in ("ledger", "desk", "rep", "driver"):
        assert report.value("count_dropped", name=name, detail="lost although acknowledged") == 0
        assert sum(report.value(f"count_{fate}", name=name) for fate in ("on_time", "late", "queued")) > 0
    for name in ("office", "north", "south"):
        assert 0.0 <= report.value("availability", scope="broker", name=name) <= 1.0
        assert report.value("cpu_per_event_s", scope="broker", name=name) > 0
    assert not [warning for warning in report.info.warnings if "by itself" in warning or "balance" in warning]


def _up_times(changes: Any) -> list[tuple[float, float]]:
    edges = [0.0, *changes.tolist()] + ([] if len(changes) % 2 else [np.inf])
    return list(zip(edges[0::2], edges[1::2], strict=True))


def test_a_run_that_cannot_be_simulated_again_is_refused_before_it_begins(repository: Path, tmp_path: Path) -> None:
    system = load_system(repository / "examples" / "composed.yaml", {"delivery.replication.replicas": 1})[1]
    with pytest.raises(ConfigurationError, match=r"`executed`: .* subscribers that stay connected"):
        run_plan(make_plan(system, duration_s=5.0), executed=tmp_path / "executed.json")


CLASSES = """
surecast: 1
name: classes
seed: 5
overlay:
  brokers: [{name: b, count: 4, capacity: 5000/s}]
  links: [[b-1, b-2], [b-2, b-3], [b-2, b-4]]
  root: b-1
workload:
  classes: [{name: class, count: 6}]
  clients: [{name: client, count: 8, home: random}]
  subscriptions: {active: 60, lifetime: {distribution: exponential, mean: 8s}}
  publications: 30/s
delivery: {routing: ROUTING}
"""


def test_filter_classes_over_several_groups_are_refused() -> None:
    text = CLASSES.replace("ROUTING}", "{scheme: hierarchical, algorithm: merging}, replication: {replicas: 3}}")
    with pytest.raises(AssumptionError, match=r"delivery\.replication\.replicas: 3: with filter classes"):
        make_plan(build(parse_text(text)), duration_s=5.0)


@pytest.mark.parametrize(
    "routing",
    [
        "{scheme: hierarchical, algorithm: merging}",
        pytest.param("{scheme: peer-to-peer, algorithm: covering}", marks=pytest.mark.long),
    ],
)
def test_every_event_of_a_filter_class_reaches_who_asks_for_it_over_several_brokers(routing: str) -> None:
    system = build(parse_text(CLASSES.replace("ROUTING", routing)))
    plan = make_plan(system, duration_s=8.0, warm_up_s=0.0)
    assert plan.overlay is not None
    assert {tree.refresh for tree in plan.overlay.trees} == {"link"}
    report = run_plan(plan)
    assert not [warning for warning in report.info.warnings if "did not reach" in warning]
    variant = report.variants[0]
    assert report.value("throughput_per_s", scope="system", name="", variant=variant) > 10.0
    assert report.value("message_rate_per_s", scope="system", name="", detail="notification", variant=variant) > 1.0
    assert report.value("table_entries", scope="broker", name="b-2", detail="remote", variant=variant) > 0.0
    for kind in ("notification", "control"):  # what links carry is what brokers send, and what comes to them besides
        total = report.value("message_rate_per_s", scope="system", name="", detail=kind, variant=variant)
        traffic = report.values("traffic_per_s", scope="overlay_link", detail=kind, variant=variant)
        arrived = report.values("rate_in_per_s", scope="broker", detail=kind, variant=variant)
        assert total == pytest.approx(sum(traffic.values()))
        assert sum(arrived.values()) > total > 1.0
