"""The checks of the live run find what they are there for, each shown a run with one fault."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from surecast.tour.live import gap_of, verdicts_of
from surecast.tour.live_clients import TABLET, ArrivedMessage, Live, SentMessage

CHANNELS = ("A", "B", "C")
STATUS: list[dict[str, Any]] = [{"replica": n, "applied": 40, "hash": "abc"} for n in (1, 2, 3)]


def good_run() -> Live:
    """Ten messages of one event each, from two publishers, at two subscribers, with the counts that follow."""
    live = Live(began=100.0, ended=120.0, killed=2, killed_at=105.5)
    viewers = dict.fromkeys(CHANNELS, 0)
    for n in range(10):
        channel = CHANNELS[n % 3]
        payload = f"2024-01-01,20:00:{n:02d},10.0.0.{n + 1},{channel},{channel}".encode()
        live.sent.append(SentMessage(n % 2 + 1, 1, payload, 100.0 + n, 100.0 + n, 100.2 + n))
        viewers[channel] += 1
        for name in ("one", "two"):
            arrived = live.arrived.setdefault(name, [])
            arrived.append(ArrivedMessage(100.3 + n, f"zap/events/{n % 2 + 1}", payload))
            arrived.append(ArrivedMessage(100.4 + n, f"zap/viewers/{channel}", str(viewers[channel]).encode()))
    live.arrived[TABLET] = []
    return live


def lose(live: Live) -> None:
    live.arrived["two"] = [one for one in live.arrived["two"] if one.payload != live.sent[4].payload]


def swap(live: Live) -> None:
    one = live.arrived["two"]
    one[6], one[8] = one[8], one[6]


def swap_statistics(live: Live) -> None:
    one = live.arrived["two"]
    one[7], one[9] = one[9], one[7]


def miscount(live: Live) -> None:
    one = live.arrived["one"]
    one[-1] = ArrivedMessage(one[-1].at, one[-1].topic, b"17")


def test_a_good_run_passes() -> None:
    assert [one.holds for one in verdicts_of(good_run(), STATUS)] == [True] * 5


@pytest.mark.parametrize(("came", "again", "events"), [(6, 1, 0), (6, 2, 1), (8, 8, 4), (9, 4, 2), (20, 11, 5)])
def test_what_is_delivered_again_after_a_change_of_connection_is_no_fault(came: int, again: int, events: int) -> None:
    """The last `again` of the first `came` messages come twice; among them may be two counts of one channel."""
    live = good_run()
    arrived = live.arrived["one"]
    arrived[came:came] = [dataclasses.replace(one, again=True) for one in arrived[came - again : came]]
    found = verdicts_of(live, STATUS)
    assert [one.holds for one in found] == [True] * 5
    assert f"{events} event messages came twice" in found[2].evidence


def test_what_is_sent_again_may_come_for_the_first_time() -> None:
    live = good_run()
    arrived = live.arrived["one"]
    arrived[5:9] = [dataclasses.replace(one, again=True) for one in arrived[3:9]]
    assert [one.holds for one in verdicts_of(live, STATUS)] == [True] * 5


def test_what_comes_twice_on_one_connection_is_a_fault() -> None:
    live = good_run()
    live.arrived["one"][8:8] = live.arrived["one"][6:8]
    assert [one.holds for one in verdicts_of(live, STATUS)] == [True, True, False, True, True]


def test_what_was_not_acknowledged_may_be_lost() -> None:
    live = good_run()
    live.sent[4].acknowledged_at = None
    for name in ("one", "two"):
        live.arrived[name] = [one for one in live.arrived[name] if one.payload != live.sent[4].payload]
    assert verdicts_of(live, STATUS)[0].holds


@pytest.mark.parametrize(
    ("fault", "broken"), [(lose, {0, 1, 2}), (swap, {1, 2}), (swap_statistics, {2}), (miscount, {2, 3})]
)
def test_a_fault_is_found(fault: Callable[[Live], None], broken: set[int]) -> None:
    live = good_run()
    fault(live)
    found = verdicts_of(live, STATUS)
    assert {n for n, one in enumerate(found) if one.holds is False} == broken


@pytest.mark.parametrize(
    ("change", "holds"),
    [
        ({"hash": "other"}, False),  # equally far, and different
        ({"applied": 39, "hash": "other"}, None),  # behind: nothing can be said
        ({"applied": 40, "hash": "abc"}, True),
    ],
)
def test_replicas_are_compared(change: dict[str, Any], holds: bool | None) -> None:
    status = copy.deepcopy(STATUS)
    status[2] |= change
    assert verdicts_of(good_run(), status)[4].holds is holds


def test_a_replica_that_does_not_answer_leaves_it_open() -> None:
    assert verdicts_of(good_run(), [*STATUS[:2], {"replica": 3, "error": "no answer"}])[4].holds is None


def test_the_gap_is_that_of_messages_sent_after_the_kill() -> None:
    live = good_run()
    # killed at 105.5; the next message is sent at 106.0 and acknowledged at 106.2
    assert gap_of(live) == pytest.approx(0.7)
