"""A run made up by hand: every event's fate is known, and so is every figure."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from surecast.measurement import make_plan
from surecast.measurement.client_share import Lateness
from surecast.measurement.event_fates import EventFate, EventFates
from surecast.measurement.faults import Crash
from surecast.measurement.load_clients import Received
from surecast.measurement.measured_events import LOST, count_out_of_order
from surecast.measurement.measured_report import build_report
from surecast.measurement.workload_drive import Measured
from surecast.report import QoSReport, check_accounts
from surecast.scenario import build, parse_text

BEGAN = 1_700_000_000.0
SCALE = 10.0


def made_up(steady: bool, lost: bool = False) -> Measured:
    """100 s of the scenario in 10 s: an event each 0.1 s of real time, taken 1 ms later, there 0.1 s after that.

    Every tenth event is not taken, and every tenth, beginning with the fifth, is dropped; the last waits for ever.
    """
    subscriber: dict[str, object] = {"name": "s", "home": "b", "topics": ["t"]}
    subscriber |= {} if steady else {"connectivity": {"on": "20s", "off": "20s"}, "response_target": "2s"}
    workload = {
        "topics": ["t"],
        "publishers": [{"name": "p", "home": "b", "topics": ["t"], "rate": "1/s", "deadline": "2s"}],
        "subscribers": [subscriber],
    }
    dropping = {"policy": "probabilistic", "join_probability": 0.5}
    delivery = {} if steady else {"dropping": dropping}
    system = build(
        parse_text(
            "{surecast: 1, name: made, overlay: {brokers: [{name: b}]}, "
            f"workload: {json.dumps(workload)}, delivery: {json.dumps(delivery)}}}"
        )
    )
    plan = make_plan(system, scale=SCALE, duration_s=100.0, seed=1)
    size = 100
    events = type(plan.events)(
        np.arange(size, dtype=np.float64) + 0.5,
        np.zeros(size, dtype=np.int64),
        np.zeros(size, dtype=np.int64),
        np.full(size, np.inf),
    )
    object.__setattr__(plan, "events", events)
    due = BEGAN + events.time_s / SCALE
    numbers = range(size)
    taken = {n: float(due[n]) + 0.001 for n in numbers if n % 10}
    dropped = {n: EventFate("not-joined" if not steady else "queue-full", taken[n]) for n in numbers if n % 10 == 5}
    if lost:
        dropped.pop(15)
    arrived = {n: taken[n] + 0.1 for n in taken if n % 10 != 5 and n != 99}
    receiver = Received("subscriber s", arrived | {99: BEGAN + 60.0})  # when the queues were emptied
    changes = {"subscriber s": [(BEGAN, True), (BEGAN + 5.0, False)]}
    event_fates = EventFates(taken, {"subscriber s": dropped}, changes)
    answers = [BEGAN + 0.05 * i for i in range(201) if not 60 <= i < 80]
    return Measured(
        plan,
        BEGAN,
        BEGAN + 10.0,
        BEGAN + 10.5,
        due,
        due.copy(),
        np.array([due[n] + 0.002 if n in taken else 0.0 for n in numbers]),
        [receiver],
        event_fates,
        [Crash(1, BEGAN + 3.0, False, BEGAN + 4.0)],
        0.5,
        [answers],
        [],
        Path(),
    )


def value(report: QoSReport, metric: str, detail: str = "", scope: str = "subscriber") -> float:
    name = {"subscriber": "s", "broker": "b"}.get(scope, "")
    return report.value(metric, scope=scope, name=name, detail=detail)


def test_a_steady_subscriber() -> None:
    report = build_report(made_up(steady=True))
    assert check_accounts(report) == []
    counts = {
        ("count_published", ""): 100,
        ("count_on_time", ""): 79,
        ("count_late", ""): 0,
        ("count_queued", ""): 1,
        ("count_dropped", ""): 20,
        ("count_dropped", "home broker down"): 10,
        ("count_dropped", LOST): 0,
    }
    assert {key: value(report, *key) for key in counts} == counts
    assert value(report, "reliability") == pytest.approx(0.79)
    assert value(report, "reliability", scope="system") == pytest.approx(0.79)
    assert value(report, "delay_mean_s") == pytest.approx(10 * 0.101, rel=1e-4)
    assert value(report, "response_mean_s") == pytest.approx(10 * 0.1, rel=1e-4)
    assert value(report, "delay_quantile_s", "p99") == pytest.approx(1.01, rel=1e-4)
    assert value(report, "throughput_per_s") == pytest.approx(0.79)
    # 79 events wait 1 s each in 100 s; the last one from 99.51 s on.
    assert value(report, "queue_length_mean") == pytest.approx((79 * 1.0 + 0.49) / 100, rel=1e-3)


def test_the_broker() -> None:
    report = build_report(made_up(steady=True))
    assert value(report, "throughput_per_s", scope="broker") == pytest.approx(0.9)
    # acknowledgements are the machine's own, and not scaled
    assert value(report, "acknowledgement_mean_s", scope="broker") == pytest.approx(0.002, rel=1e-3)
    assert value(report, "availability", scope="broker") == pytest.approx(0.9)
    assert value(report, "mttr_s", scope="broker") == pytest.approx(10.0)
    assert value(report, "mtbf_s", scope="broker") == pytest.approx(90.0)


def test_a_subscriber_that_comes_and_goes() -> None:
    report = build_report(made_up(steady=False))
    assert check_accounts(report) == []
    assert report.variants == ("probabilistic",)
    assert value(report, "success_share") == pytest.approx(0.79)
    assert value(report, "count_dropped", "rejected while disconnected") == 10
    assert value(report, "availability") == pytest.approx(0.5, abs=1e-6)
    assert value(report, "targets_met_share") == 1.0
    # 45 of 50 events are taken while it is away; besides, 5 that were turned away before that must have been too.
    assert value(report, "join_probability") == pytest.approx(40 / 50)


def test_the_loss_of_an_acknowledged_event_is_counted_and_warned_of() -> None:
    report = build_report(made_up(steady=True, lost=True))
    assert value(report, "count_dropped", LOST) == 1
    assert "1 acknowledged events were lost: neither delivered, dropped, expired nor queued" in report.info.warnings


def test_accounts_of_the_broker_that_do_not_balance_are_warned_of() -> None:
    measured = made_up(steady=True)
    accounts = {"matched": 5, "delivered": 2, "dropped": {}, "expired": 0, "queued": 3}
    measured.accounts.append({"client": "c", "inflight": 1, "waiting": 1, "accounts": accounts})
    assert any("accounts of c do not balance" in warning for warning in build_report(measured).info.warnings)


def test_what_comes_before_its_turn_is_out_of_order() -> None:
    measured = made_up(steady=True)
    receiver = measured.receivers[0]
    assert count_out_of_order(measured) == [0]
    moved = receiver.first.pop(31)
    receiver.first[31] = moved
    assert count_out_of_order(measured) == [1]


def test_what_processes_of_clients_were_late_by_is_said_of_each() -> None:
    measured = made_up(steady=True)
    measured.lateness = [Lateness(60, 0.001, 0.002, 500, 0, 0.004), Lateness(40, 0.02, 0.3, 500, 6, 0.07)]
    report = build_report(measured)
    assert [note for note in report.info.notes if note.startswith("client process 1 of 2: 60 events")]
    (late,) = [note for note in report.info.notes if note.startswith("client process 2 of 2")]
    assert "one in a hundred 0.02 s late or more, the latest 0.3 s" in late
    assert "6 of 500 wake-ups came more than 0.05 s late, the latest 0.07 s" in late
    # A deadline is 2 s, 0.2 s of real time: a twentieth of it is 0.01 s.
    assert [warning for warning in report.info.warnings if warning.startswith("client process")] == [
        "client process 2 of 2 fell behind: one of its events in a hundred was sent 0.2 s late or more, in the "
        "scenario's time; use a lower time scale or rate, or more client processes",
        "client process 2 of 2 was late: more than one in a hundred of its wake-ups came more than 0.5 s late, in the "
        "scenario's time, and it has noticed arrivals so much late; use a lower time scale or rate, or more client "
        "processes",
    ]
