"""Failures of real machines in a run: which components brokers fail as, when, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from tests.measurement.test_overlay_runs import run, system_of

from surecast.errors import ConfigurationError, TraceError
from surecast.measurement import TraceReplay, make_plan
from surecast.scenario import System, build, parse_text

# a: up 0 to 40, 60 to 200; b: up 10 to 30, 50 to 200; never: never fails; short: observed as all, up to 100 alone.
AVT = "never 1 0 200\na 2 0 40 60 200\nb 2 10 30 50 200\nc 2 0 70 80 200\nd 2 0 90 95 200\nshort 1 0 100\n"


@pytest.fixture
def avt(tmp_path: Path) -> Path:
    path = tmp_path / "machines.avt"
    path.write_text(AVT, encoding="utf-8")
    return path


def changes(system: System, replay: TraceReplay, duration_s: float = 100.0) -> dict[str, list[float]]:
    plan = make_plan(system, duration_s=duration_s, warm_up_s=0.0, replay=replay)
    names = [broker.name for broker in system.overlay.brokers]
    return {name: trace.tolist() for name, trace in zip(names, plan.traces, strict=True)}


def test_brokers_fail_when_the_first_components_that_fit_did(avt: Path) -> None:
    system = system_of("none")
    replay = TraceReplay(avt, "avt", {})
    assert changes(system, replay) == {
        "b-1": [40.0, 60.0],
        "b-2": [0.0, 10.0, 30.0, 50.0],
        "b-3": [70.0, 80.0],
        "b-4": [90.0, 95.0],
    }
    plan = make_plan(system, duration_s=100.0, warm_up_s=0.0, replay=replay)
    assert plan.components == {"b-1": "a", "b-2": "b", "b-3": "c", "b-4": "d"}
    failures = plan.system.overlay.brokers[0].failures
    assert failures is not None
    assert (failures.mtbf_s, failures.mttr_s) == pytest.approx((80.0, 20.0))


def test_components_can_be_named_and_a_run_can_begin_later(avt: Path) -> None:
    replay = TraceReplay(avt, "avt", {"b-4": "a", "b-1": "never"}, start_s=20.0)
    assert changes(system_of("none"), replay) == {
        "b-1": [],
        "b-2": [10.0, 30.0],
        "b-3": [50.0, 60.0],
        "b-4": [20.0, 40.0],
    }


@pytest.mark.parametrize(
    ("replay", "says"),
    [
        ({"components": {"x": "a"}}, "x=a: there is no broker 'x': b-1, b-2, b-3, b-4"),
        ({"components": {"b-1": "x"}}, "has no component 'x'; it has 6, such as never, a, b, c, d"),
        ({"components": dict.fromkeys(("b-1", "b-2", "b-3", "b-4"), "a"), "start_s": 101.0}, "observed for 99s from"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_reason(avt: Path, replay: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        changes(system_of("none"), TraceReplay(avt, "avt", **({"components": {}} | replay)), 100.0)  # type: ignore[arg-type]


def test_too_few_components_are_refused(avt: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"3 of its 6 other components at most .* 4 brokers need one"):
        changes(system_of("none"), TraceReplay(avt, "avt", {}, start_s=65.0), 100.0)


def test_groups_and_wrong_files_are_refused(avt: Path, tmp_path: Path) -> None:
    group = build(parse_text("{surecast: 1, name: one, overlay: {brokers: [{name: b}]}, workload: {topics: [t], "
                             "publishers: [{name: p, home: b, topics: [t], rate: 1/s}], "
                             "subscribers: [{name: s, home: b, topics: [t]}]}, "
                             "delivery: {replication: {replicas: 3}}}"))  # fmt: skip
    with pytest.raises(ConfigurationError, match=r"delivery\.replication\.replicas: 3"):
        make_plan(group, duration_s=5.0, replay=TraceReplay(avt, "avt", {}))
    with pytest.raises(TraceError, match="no trace format 'csv'"):
        make_plan(system_of("none"), duration_s=5.0, replay=TraceReplay(avt, "csv", {}))


def test_a_run_goes_through_a_trace(avt: Path) -> None:
    plan, report = run(system_of("buffering"), 100.0, scale=12.0, replay=TraceReplay(avt, "avt", {"b-1": "never"}))
    assert report.value("availability", scope="broker", name="b-1") == 1.0
    for name in ("b-2", "b-3", "b-4"):
        assert report.value("availability", scope="broker", name=name) < 1.0
    assert any("b-2 as a, b-3 as b, b-4 as c" in note for note in report.info.notes)
    assert not math.isnan(report.value("reliability", name="far"))
    assert plan.components["b-1"] == "never"
