"""What a broker does wrong is counted and named, and nothing is left behind."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace

import pytest
from tests.load.faulty_broker import Fault, FaultyBroker, Swapping, faithful, losing, repeating

from surecast.errors import ConfigurationError
from surecast.load import BrokerAccess, LoadError, LoadPlan, processes_use, run_load
from surecast.protocol.mqtt import V311, ReasonCode

SHORT = LoadPlan(
    BrokerAccess("127.0.0.1", 1, V311, timeout_s=5.0), rate_per_s=200, seconds=0.3, warm_up_s=0.1, probes_per_s=0.0
)


def at(broker: FaultyBroker, **changes: object) -> LoadPlan:
    return replace(SHORT, access=replace(SHORT.access, port=broker.port), **changes)


@pytest.mark.parametrize(
    ("fault", "qos", "counts"),
    [(faithful, 0, (0, 0, 0)), (losing, 0, (1, 0, 0)), (repeating, 1, (0, 0, 1)), (Swapping(), 1, (0, 1, 0))],
    ids=["faithful", "losing", "repeating", "swapping"],
)
def test_what_is_lost_disordered_or_repeated_is_counted(fault: Fault, qos: int, counts: tuple[int, int, int]) -> None:
    with FaultyBroker(fault) as broker:
        outcome = run_load(at(broker, qos=qos))
    received = outcome.received
    assert (outcome.lost, received.disordered, received.duplicates) == counts
    assert outcome.is_sound == (counts == (0, 0, 0))
    assert outcome.sent.unacknowledged == 0
    assert outcome.sent.sent == sum(outcome.sent.streams.values()) > 20


def test_a_broker_that_ends_connections_is_named() -> None:
    with FaultyBroker(publications_max=20) as broker, pytest.raises(LoadError, match="ended the connection of load-"):
        run_load(at(broker))


def test_a_broker_that_refuses_is_named_and_no_process_is_started() -> None:
    with FaultyBroker(reason=ReasonCode.BAD_USER_NAME_OR_PASSWORD) as broker:
        with pytest.raises(LoadError, match="refused the client load-run-0: bad user name or password"):
            run_load(at(broker))
        assert len(broker.connects) == 1


def test_no_broker_is_named() -> None:
    with FaultyBroker() as broker:
        plan = at(broker)
    with pytest.raises(LoadError, match="is the broker running at"):
        run_load(plan)


def test_nothing_is_retained_and_no_session_stays_also_when_a_run_fails() -> None:
    with FaultyBroker(publications_max=30) as broker:
        with pytest.raises(LoadError, match="ended"):
            run_load(at(broker, persistent=True, subscribers=2, retain=True))
        cleaned = {each.client_id for each in broker.connects if each.clean_start}
        lasting = {each.client_id for each in broker.connects if not each.clean_start}
    assert lasting == {"load-run-s0", "load-run-s1"}
    assert lasting <= cleaned


def test_what_cannot_be_removed_is_said() -> None:
    with FaultyBroker() as broker:
        plan = at(broker, persistent=True)
        stop = threading.Timer(0.0, broker._over.set)
        outcome = run_load(plan, on_progress=lambda activity, *_: stop.start() if _last(activity, stop) else None)
    assert outcome.lost >= 0
    assert any("load-run-s0" in problem and "may be left" in problem for problem in outcome.left_behind)


def _last(activity: str, stop: threading.Timer) -> bool:
    return activity.startswith("waiting") and not stop.ident


def test_a_closed_loop_goes_on_when_something_is_lost() -> None:
    with FaultyBroker(lambda number, data: [] if number == 2 else [data]) as broker:
        outcome = run_load(at(broker, rate_per_s=None, window=2, seconds=2.5))
    assert outcome.lost == 1
    assert outcome.sent.sent > 3


def test_use_of_processes() -> None:
    before = processes_use([os.getpid()])
    until = time.process_time() + 0.05
    while time.process_time() < until:
        pass
    after = processes_use([os.getpid()])
    assert after.processor_s - before.processor_s >= 0.045
    with pytest.raises(ConfigurationError, match="no such process"):
        processes_use([2**22 + 1])
