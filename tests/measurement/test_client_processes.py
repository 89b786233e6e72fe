"""Clients of a run in several processes: what they have seen is put together, and one that ends fails the run."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.measurement.test_overlay_runs import system_of

from surecast.errors import OverloadError
from surecast.measurement import client_processes, make_plan, run_plan
from surecast.measurement.client_processes import ClientProcess
from surecast.measurement.client_share import Share, stamps_of
from surecast.measurement.event_fates import stamp
from surecast.measurement.measurement_plan import PlannedEvents
from surecast.measurement.workload_drive import measure
from surecast.report import check_accounts


@given(gaps=st.lists(st.floats(0.0, 1e-5), min_size=1, max_size=50), scale=st.sampled_from([1.0, 60.0, 5400.0]))
def test_no_two_events_have_the_same_stamp_and_each_is_the_first_that_is_free(gaps: list[float], scale: float) -> None:
    plan = make_plan(system_of("none"), duration_s=5.0)
    times = np.cumsum(gaps)
    none = np.zeros(len(times), dtype=np.int64)
    object.__setattr__(plan, "events", PlannedEvents(times, none, none, times))
    object.__setattr__(plan, "scale", scale)
    last, expected = 0, []
    for time_s in times.tolist():
        last = max(last + 1, stamp(1_700_000_000.5 + time_s / scale))
        expected.append(last)
    assert stamps_of(plan, 1_700_000_000.5).tolist() == expected


def test_each_client_is_in_one_share() -> None:
    plan = make_plan(system_of("none"), duration_s=5.0, client_processes=3)
    homes = (("a:1",), ("b:2",), ("c:3", "c:4", "c:5"), ("d:6",))
    shares = [Share(plan, number, 3, homes) for number in range(3)]
    for place in range(10):
        assert sum(share.has(place) for share in shares) == 1
    assert shares[0].addresses_for(0, 1) == ["a:1"]
    assert shares[0].addresses_for(2, 1) == ["c:4", "c:5", "c:3"]


def test_what_several_processes_have_seen_adds_up_while_brokers_fail() -> None:
    availability = "{each: {b-2: {mtbf: 4s, mttr: 2s}, b-1--b-3: {mtbf: 2s, mttr: 1s}}}"
    plan = make_plan(
        system_of("buffering", "1h", availability=availability), duration_s=8.0, warm_up_s=0.0, client_processes=3
    )
    report = run_plan(plan)
    assert check_accounts(report) == []
    published = {name: report.value("count_published", name=name) for name in ("far", "near", "both")}
    of_topic = [int((plan.events.topic == place).sum()) for place in range(2)]
    assert published == {"far": of_topic[0], "near": of_topic[0], "both": sum(of_topic)}
    for name in published:
        assert report.value("count_dropped", name=name, detail="lost although acknowledged") == 0
        fates = (("on_time", ""), ("queued", ""), ("dropped", "home broker down"))
        counts = [report.value(f"count_{fate}", name=name, detail=detail) for fate, detail in fates]
        assert sum(counts) == published[name]
    assert report.value("count_on_time", name="near") > 0
    said = [note for note in report.info.notes if note.startswith("client process")]
    assert [note.split(":")[0] for note in said] == [f"client process {number} of 3" for number in (1, 2, 3)]
    assert sum(int(note.split(": ")[1].split()[0]) for note in said) == len(plan.events)


def test_a_client_process_that_ends_is_named_and_the_run_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    begin, seen = ClientProcess.begin, []

    async def begin_and_kill_later(clients: ClientProcess, began: float) -> None:
        await begin(clients, began)
        seen.append(clients.process_id)
        if clients.share.number == 1:
            asyncio.get_running_loop().call_later(1.0, os.kill, clients.process_id, signal.SIGKILL)

    monkeypatch.setattr(client_processes.ClientProcess, "begin", begin_and_kill_later)
    plan = make_plan(system_of("none"), duration_s=30.0, warm_up_s=0.0, client_processes=2)
    with pytest.raises(OverloadError, match=r"client process 2 of 2 \(process \d+\) was ended by signal 9; the run"):
        asyncio.run(measure(plan, tmp_path))
    assert len(seen) == 2
    for process in seen:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


def test_an_error_in_a_client_process_is_that_of_the_run(tmp_path: Path) -> None:
    async def ask() -> None:
        clients = ClientProcess(Share(make_plan(system_of("none"), duration_s=5.0), 0, 2, (("no:where",),) * 4))
        try:
            await clients.start()
            await clients.subscribe()
        finally:
            await clients.close()

    with pytest.raises(Exception, match="the port must be a number"):
        asyncio.run(ask())
