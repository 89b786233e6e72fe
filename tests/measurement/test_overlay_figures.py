"""A run of an overlay made up by hand: what is said of events that expired on their way, and when brokers were down."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.measurement.test_overlay_runs import system_of

from surecast.measurement import make_plan
from surecast.measurement.event_fates import EventFates
from surecast.measurement.faults import Crash
from surecast.measurement.load_clients import Received
from surecast.measurement.measured_events import LOST
from surecast.measurement.measured_report import build_report
from surecast.measurement.overlay_processes import BrokerCounts
from surecast.measurement.workload_drive import Measured
from surecast.report import QoSReport, check_accounts

BEGAN = 1_700_000_000.0
NAMES = ("b-1", "b-2", "b-3", "b-4")


def made_up(deadline: str = "2s", never: int = 5, **sections: str) -> Measured:
    """20 s in which all events arrive after 10 ms, but that subscriber `far` misses the first ones to its topic."""
    plan = make_plan(system_of("buffering", deadline, **sections), duration_s=20.0, warm_up_s=0.0)
    due = BEGAN + plan.events.time_s
    receivers = []
    for who in plan.system.subscribers:
        topics = [place for place, topic in enumerate(plan.system.topics) if topic.name in who.topics]
        wanted = np.flatnonzero(np.isin(plan.events.topic, topics)).tolist()
        came = {n: float(due[n]) + 0.01 for n in (wanted[never:] if who.name == "far" else wanted)}
        receivers.append(Received(who.name, came))
    crashes = [Crash(2, BEGAN + 4.0, False, BEGAN + 7.0), Crash(2, BEGAN + 15.0, False), Crash(3, BEGAN - 1.0, False)]
    return Measured(
        plan,
        BEGAN,
        BEGAN + 20.0,
        BEGAN + 20.5,
        due,
        due.copy(),
        due + 0.001,
        receivers,
        EventFates(),
        crashes,
        0.5,
        [],
        [],
        Path(),
        counts={name: BrokerCounts() for name in NAMES},
        collected=BEGAN + 21.0,
    )


def count(report: QoSReport, metric: str, detail: str = "") -> float:
    return report.value(metric, name="far", detail=detail)


def uncounted(report: QoSReport) -> list[str]:
    return [warning for warning in report.info.warnings if "counted as such by no broker" in warning]


def test_what_expired_on_its_way_is_expired_where_brokers_have_counted_it() -> None:
    measured = made_up()
    measured.counts["b-2"].add(
        {"published": 0, "received": 9, "delivered": 0, "expired": 1,
         "hops": [{"neighbour": "b-4", "offered": 9, "acknowledged": 5, "lost": 0, "detoured": 0, "on_link": 1,
                   "sent": {"events": 9}, "dropped": {"expired": 3}}]}
    )  # fmt: skip
    report = build_report(measured)
    assert check_accounts(report) == []
    assert count(report, "count_dropped", "expired") == 5
    assert count(report, "count_dropped", LOST) == 0
    assert count(report, "count_on_time") == count(report, "count_published") - 5
    assert not uncounted(report)
    assert any(note.startswith("5 events did not reach") for note in report.info.notes)


def test_what_no_broker_has_counted_as_expired_may_be_lost_and_is_warned_of() -> None:
    measured = made_up()
    measured.counts["b-2"].expired = 3
    (warning,) = uncounted(build_report(measured))
    assert warning.startswith("2 events that are taken for expired")


def test_what_cannot_have_expired_is_lost() -> None:
    report = build_report(made_up(deadline="1h"))
    assert count(report, "count_dropped", LOST) == 5
    assert any(warning.startswith("5 acknowledged events were lost") for warning in report.info.warnings)
    assert not uncounted(report)


def test_brokers_are_down_from_their_kill_until_they_are_up_and_never_for_want_of_events() -> None:
    report = build_report(made_up(never=0))
    metrics = ("availability", "mtbf_s", "mttr_s")
    told = {metric: report.values(metric, scope="broker") for metric in metrics}
    values = {name: {metric: told[metric][name] for metric in metrics if name in told[metric]} for name in NAMES}
    assert values["b-1"] == values["b-4"] == {"availability": 1.0}
    assert values["b-2"] == pytest.approx({"availability": 0.6, "mtbf_s": 6.0, "mttr_s": 3.0})
    assert values["b-3"] == pytest.approx({"availability": 0.0, "mtbf_s": 0.0})


@pytest.mark.parametrize(
    ("suspect_s", "start_up_s", "says"),
    [
        (0.09, 0.35, []),
        (0.11, 0.35, ["suspicion takes 0.11 s, 0.11 s of the scenario's time, which is more than a tenth of the mean"]),
        (0.09, 0.45, ["start-up takes 0.45 s, 0.45 s of the scenario's time, which is more than a tenth of the mean"]),
    ],
)
def test_suspicion_is_compared_with_links_too_and_start_up_with_brokers_alone(
    suspect_s: float, start_up_s: float, says: list[str]
) -> None:
    measured = made_up("1h", availability="{brokers: {mtbf: 60s, mttr: 4s}, links: {mtbf: 60s, mttr: 1s}}")
    measured.suspect_s, measured.start_up_s = suspect_s, start_up_s
    warnings = [each for each in build_report(measured).info.warnings if " takes " in each]
    assert len(warnings) == len(says)
    for warning, words in zip(warnings, says, strict=True):
        assert warning.startswith(words)
