"""The checks themselves: each must refuse what it is there for."""

from __future__ import annotations

import pytest

from surecast.protocol.paxos.example_store import cas, get, incr, put
from surecast.protocol.paxos.log_values import join_segments, make_segment
from surecast.simulation.replication.faults import Violation
from surecast.simulation.replication.faults.history_checks import AppliedLog, Operation, check_histories

PUT, GET, INCR = put(b"k", b"1"), get(b"k"), incr(b"k")


def applied_log(*requests: tuple[int, int, bytes]) -> AppliedLog:
    made = AppliedLog()
    for slot, request in enumerate(requests, 1):
        made.submitted[request[:2]] = request[2]
        made.applied(1, slot, join_segments(0, [make_segment(1, slot, [request])]), bytes([slot]))
    return made


def test_agreement() -> None:
    made = applied_log((1, 1, PUT))
    with pytest.raises(Violation, match="agreement: replica 2 applies another value at 1"):
        made.applied(2, 1, b"", b"\1")
    with pytest.raises(Violation, match="running hash"):
        made.applied(2, 1, made.values[1], b"other")
    made.applied(1, 3, b"", b"")
    with pytest.raises(Violation, match="instance 2 was applied by nobody"):
        made.replay()


def test_validity() -> None:
    made = applied_log((1, 1, PUT))
    made.submitted.clear()
    with pytest.raises(Violation, match="validity"):
        made.replay()


def test_the_replay_applies_every_request_once() -> None:
    replay = applied_log(
        (1, 1, INCR), (1, 1, INCR), (1, 2, cas(b"k", b"1", b"7")), (1, 3, cas(b"k", b"1", b"8"))
    ).replay()
    assert replay.pairs == {b"k": b"7"}
    assert replay.replies == {(1, 1): b"+1", (1, 2): b"+", (1, 3): b"!7"}


def test_acknowledged_means_chosen_with_that_reply() -> None:
    replay = applied_log((1, 1, PUT)).replay()
    check_histories(replay, [Operation(1, 1, PUT, 0.0, 1.0, b"+"), Operation(2, 1, GET, 0.0)])
    with pytest.raises(Violation, match="durability"):
        check_histories(replay, [Operation(2, 1, GET, 0.0, 1.0, b"-")])
    with pytest.raises(Violation, match="exactly once"):
        check_histories(replay, [Operation(1, 1, PUT, 0.0, 1.0, b"-")])


def test_a_stale_read_is_not_linearizable() -> None:
    replay = applied_log((2, 1, GET), (1, 1, PUT)).replay()
    write, read = Operation(1, 1, PUT, 0.0, 1.0, b"+"), Operation(2, 1, GET, 0.5, 3.0, b"-")
    check_histories(replay, [write, read])  # they overlap: any order will do
    read.asked_s = 2.0
    with pytest.raises(Violation, match="linearizability"):
        check_histories(replay, [write, read])
