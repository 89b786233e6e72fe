"""What the stage Learn makes of tables, without Spark: its checks, and the one replica that it learns from."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from surecast.pipeline import RunReport
from surecast.pipeline.learn import Statistics, Times, learn_scenario
from surecast.pipeline.learn.statistics import Life, Published, Subscription
from surecast.tour.drive import Arrival, Live
from surecast.tour.learn import of_one_replica, verdicts_of

END = datetime(2024, 1, 1, 20, 30, tzinfo=UTC)
REPORT = RunReport(6, 100, 97, 2, {"no event": 1}, 100, {}, {}, 1.0)


def tables() -> dict[str, list[dict[str, Any]]]:
    early = datetime(2024, 1, 1, 20, 29, tzinfo=UTC)
    return {
        "channel_viewers": [
            {"start": early, "channel": "A", "viewers": 9},
            {"start": END, "channel": "A", "viewers": 2},
            {"start": END, "channel": "B+", "viewers": 1},
        ],
        "broker_books": [{"balanced": True}] * 3,
        "broker_uptime": [{"broker": "zap-2", "ended_by": "crash"}, {"broker": "zap-1", "ended_by": "stopped"}],
    }


def live() -> Live:
    told = [("A", b"1"), ("B%2B", b"1"), ("C", b"3"), ("A", b"2"), ("C", b"0")]
    return Live(killed=2, arrived={"one": [Arrival(0.0, f"zap/viewers/{name}", count) for name, count in told]})


def test_good_tables_pass() -> None:
    assert [one.holds for one in verdicts_of(REPORT, tables(), live()).all] == [True] * 4


@pytest.mark.parametrize("broken", [0, 1, 2, 3])
def test_a_fault_in_the_tables_is_found(broken: int) -> None:
    report, rows = REPORT, tables()
    if broken == 0:
        report = RunReport(6, 101, 97, 2, {"no event": 1}, 100, {}, {}, 1.0)
    elif broken == 1:
        rows["channel_viewers"][1]["viewers"] = 3
    elif broken == 2:
        rows["broker_books"] = [{"balanced": True}, {"balanced": False}]
    else:
        rows["broker_uptime"].append({"broker": "zap-3", "ended_by": "crash"})
    assert [one.holds for one in verdicts_of(report, rows, live()).all] == [n != broken for n in range(4)]


def test_three_copies_count_once() -> None:
    """The rate that is learned is that of one copy: 120 messages in 60 seconds."""
    brokers = ("zap-1", "zap-2", "zap-3")
    statistics = Statistics(
        lives=tuple(Life(broker, 0.0, 60.0, "open", True) for broker in brokers),
        on={(broker, "region-1"): Times.of([60.0]) for broker in brokers},
        published=(
            *(Published(broker, "region-1", "zap/events/1", 120) for broker in brokers),
            *(Published(broker, "", "zap/viewers/A", 500) for broker in brokers),
        ),
        windows={(broker, "region-1"): dict.fromkeys(range(60), 2) for broker in brokers},
        start_s=0.0,
        window_s=1.0,
        subscriptions=tuple(Subscription(broker, "one", "zap/#", True) for broker in brokers),
    )
    learned = learn_scenario(of_one_replica(statistics, "zap-2"))
    assert [one["name"] for one in learned.data["overlay"]["brokers"]] == ["zap-2"]
    assert learned.data["workload"]["topics"] == ["zap/events/1"]
    rates = [one.value for one in learned.estimates if one.what.startswith("rate of")]
    assert rates == [pytest.approx(2.0)]
