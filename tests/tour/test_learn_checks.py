"""What the stage Learn makes of tables, without Spark: its checks."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from surecast.pipeline import RunReport
from surecast.pipeline.learn import Learned
from surecast.tour.learn import prediction_of, verdicts_of
from surecast.tour.live_clients import ArrivedMessage, Live

END = datetime(2024, 1, 1, 20, 30, tzinfo=UTC)
ACCOUNTS = ("messages", "receivers", "delivered", "dropped", "expired", "waiting", "overdrawn", "unpublished")
REPORT = RunReport(6, 100, 97, 2, {"no event": 1}, 100, {}, {}, 1.0)


def tables() -> dict[str, list[dict[str, Any]]]:
    early = datetime(2024, 1, 1, 20, 29, tzinfo=UTC)
    return {
        "channel_viewers": [
            {"start": early, "channel": "A", "viewers": 9},
            {"start": END, "channel": "A", "viewers": 2},
            {"start": END, "channel": "B+", "viewers": 1},
        ],
        "broker_accounts": [{"broker": "zap", "balanced": True} | dict.fromkeys(ACCOUNTS, 1)],
        "broker_uptime": [{"broker": "zap-2", "ended_by": "crash"}, {"broker": "zap-1", "ended_by": "stopped"}],
    }


def live() -> Live:
    told = [("A", b"1"), ("B%2B", b"1"), ("C", b"3"), ("A", b"2"), ("C", b"0")]
    return Live(killed=2, arrived={"one": [ArrivedMessage(0.0, f"zap/viewers/{name}", count) for name, count in told]})


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
        rows["broker_accounts"][0]["balanced"] = False
    else:
        rows["broker_uptime"].append({"broker": "zap-3", "ended_by": "crash"})
    assert [one.holds for one in verdicts_of(report, rows, live()).all] == [n != broken for n in range(4)]


TOLD = [{"client": "tablet", "messages": 40, "on_time": 30, "late": 0, "unknown": 0}]


def learned(published: str = "t") -> Learned:
    """A learned scenario of a tablet that comes and goes, and of a broadcaster."""
    connectivity = {"on": "2s", "off": "1s"}
    tablet = {"name": "tablet", "home": "zap", "topics": ["t"], "connectivity": connectivity}
    workload = {
        "topics": ["t", "u"],
        "publishers": [{"name": "p", "home": "zap", "topics": [published], "rate": "2/s"}],
        "subscribers": [tablet, {"name": "broadcaster", "home": "zap", "topics": ["t", "u"]}],
    }
    overlay = {"brokers": [{"name": "zap"}]}
    dropping = {"policy": "probabilistic", "join_probability": 0.5}
    data = {"surecast": 1, "name": "b", "overlay": overlay, "workload": workload, "delivery": {"dropping": dropping}}
    return Learned(data, (), ())


def test_the_tablet_is_predicted_from_what_was_learned() -> None:
    assert "the tablet gets 83.3 % of its events" in prediction_of(learned(), TOLD).text


def test_a_tablet_that_the_models_cannot_serve_is_no_failure() -> None:
    """In a run on a busy machine the logs may not tell who publishes what the tablet subscribed to."""
    text = prediction_of(learned(published="u"), TOLD).text
    assert text == (
        "The models have no answer for the tablet: by the learned scenario nobody publishes what it subscribed to. "
        "By the log it got 75.0 % of 40."
    )
