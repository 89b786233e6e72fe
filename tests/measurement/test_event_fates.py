"""The logs of several replicas, each with holes, make one whole; and pauses without acknowledgements are outages."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from surecast.broker.event_log import (
    Connected,
    Delivered,
    Disconnected,
    Dropped,
    EventLog,
    Expired,
    Published,
    Started,
)
from surecast.measurement.event_fates import read_fates, stamp
from surecast.measurement.faults import Crash, find_outages

AT = 1_700_000_000.0


def published(number: int) -> Published:
    return Published(AT + number, "p", "t", number, 1, 16, 1, None, AT + number - 0.25)


def fate(kind: type, number: int, at: float, *more: str) -> object:
    return kind(at, "s", "t", number, 1, 16, 0, *more, None, AT + number - 0.25)


def test_logs_of_replicas_complement_each_other(tmp_path: Path) -> None:
    with EventLog(tmp_path / "1") as log:
        for record in (
            Started(AT, "g-1"),
            Connected(AT + 0.5, "s"),
            published(1),
            fate(Delivered, 1, AT + 1.5),
            Disconnected(AT + 1.75, "s", "client"),
            published(2),
        ):
            log.append(record)  # type: ignore[arg-type]
    with EventLog(tmp_path / "2") as log:
        for record in (
            published(2),
            fate(Dropped, 2, AT + 2, "not-joined"),
            published(3),
            fate(Expired, 3, AT + 9),
            fate(Delivered, 1, AT + 1.5),
            published(99),
        ):
            log.append(record)  # type: ignore[arg-type]
    events = {stamp(AT + number - 0.25): number - 1 for number in (1, 2, 3)}
    event_fates = read_fates([[tmp_path / "1", tmp_path / "2", tmp_path / "never started"]], events)
    assert event_fates.accepted == {0: AT + 1, 1: AT + 2, 2: AT + 3}
    assert {n: each.outcome for n, each in event_fates.of("s").items()} == {
        0: "delivered",
        1: "not-joined",
        2: "expired",
    }
    assert [event_fates.was_connected("s", AT + at) for at in (0.25, 1, 2)] == [False, True, False]
    assert not event_fates.of("nobody")


def test_each_broker_of_an_overlay_has_clients_and_a_time_of_arrival_of_its_own(tmp_path: Path) -> None:
    own = {"1": (Connected(AT + 0.5, "s"), published(2)), "2": (Connected(AT + 0.75, "r"),)}
    later = Published(AT + 7, "p", "t", 2, 1, 16, 1, None, AT + 2 - 0.25)
    for name, records in own.items():
        with EventLog(tmp_path / name) as log:
            for record in (Started(AT, name), *records):
                log.append(record)
            if name == "2":
                for record in (Started(AT + 5, name), later):
                    log.append(record)
    event_fates = read_fates([[tmp_path / "1"], [tmp_path / "2"]], {stamp(AT + 2 - 0.25): 0})
    assert event_fates.accepted == {0: AT + 2}
    assert event_fates.reached == [{0: AT + 2}, {0: AT + 7}]
    assert [event_fates.was_connected(who, AT + 6) for who in ("s", "r")] == [True, False], "the second one crashed"
    assert event_fates.was_connected("r", AT + 4)


def test_a_crash_of_a_broker_that_is_alone_ends_all_connections(tmp_path: Path) -> None:
    with EventLog(tmp_path) as log:
        log.append(Started(AT, "b"))
        log.append(Connected(AT + 1, "s"))
        log.append(Started(AT + 5, "b"))
    event_fates = read_fates([[tmp_path]], {})
    assert event_fates.was_connected("s", AT + 4)
    assert not event_fates.was_connected("s", AT + 6)


@given(
    st.lists(st.floats(0.01, 2.0), min_size=1, max_size=30),
    st.lists(st.tuples(st.floats(0.0, 20.0), st.booleans()), max_size=3),
)
def test_outages_are_the_long_gaps(gaps: list[float], killed: list[tuple[float, bool]]) -> None:
    acknowledged = np.cumsum(gaps).tolist()
    end = acknowledged[-1] + 0.01
    crashes = [Crash(1, at, led) for at, led in killed]
    found = find_outages(acknowledged, crashes, 0.0, end)
    # By looking at every gap in turn.
    points = [0.0, *acknowledged, end]
    pairs = list(pairwise(points))
    hit: dict[tuple[float, float], list[float]] = {}
    for crash in crashes:
        near = [pair for pair in pairs if pair[1] > crash.killed_at and pair[0] <= crash.killed_at + 0.5]
        if near:
            hit.setdefault(max(near, key=lambda pair: pair[1] - pair[0]), []).append(crash.killed_at)
    expected = [
        (max(low, min(hit.get((low, high), [low]))), high)
        for low, high in pairs
        if high - low > (0.1 if (low, high) in hit else 0.25)
    ]
    assert [(each.start, each.end) for each in found] == expected


def test_a_failover_is_an_outage_after_the_loss_of_a_leader() -> None:
    acknowledged = [0.1 * i for i in range(10)] + [1.5, 1.6, 3.0]
    crashes = [Crash(2, 0.95, True), Crash(1, 1.65, False)]
    first, second = find_outages(acknowledged, crashes, 0.0, 3.05)
    assert (first.failover, second.failover) == (True, False)
    assert first.length_s == 1.5 - 0.95
