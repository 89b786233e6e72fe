"""Scenarios for runs of a few seconds, and the runs themselves: all at once, as they must not collide."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.patience import PATIENCE_S

from surecast.measurement import RunPlan, make_plan, run_plan
from surecast.measurement.measured_report import build_report
from surecast.measurement.workload_drive import Measured, measure, run_folder
from surecast.report import QoSReport
from surecast.scenario import System, build, parse_text

PAUSE_MAX_S = 60.0

STEADY = """
surecast: 1
name: steady
overlay: {brokers: [{name: b}]}
workload:
  topics: [t, u]
  deadline: 2s
  publishers: [{name: p, count: 2, home: b, topics: [t, u], rate: 20/s}]
  subscribers: [{name: s, home: b, topics: [t]}, {name: all, home: b, topics: [t, u]}]
"""
COMING = """
surecast: 1
name: coming
overlay: {brokers: [{name: b}]}
workload:
  topics: [t]
  publishers: [{name: p, home: b, topics: [t], rate: 3/s}]
  subscribers: [{name: s, home: b, topics: [t], connectivity: {on: 5s, off: 5s}, service: 30/s}]
"""
CLASSES = """
surecast: 1
name: classes
overlay: {brokers: [{name: b}]}
workload:
  classes: [{name: c, count: 2}]
  clients: [{name: k, count: 3, home: b}]
  subscriptions: {active: 12, lifetime: 5s}
  publications: 10/s
delivery: {routing: {scheme: peer-to-peer, algorithm: covering}}
"""
BUFFER = {"dropping": {"policy": "finite-buffer", "buffer_size": 4}}


def build_system(text: str, **changes: object) -> System:
    """A scenario with further sections."""
    return build(parse_text(text + "".join(f"{name}: {json.dumps(value)}\n" for name, value in changes.items())))


def plans() -> dict[str, RunPlan]:
    """A broker that crashes once, a group whose leader is killed, subscribers that come and go, and filter classes."""
    crash = replace(make_plan(build_system(STEADY), duration_s=6.0, seed=3), traces=(np.array([1.5, 3.0]),))
    group = build_system(STEADY, delivery={"replication": {"replicas": 3}})
    joining = build_system(COMING, delivery={"dropping": {"policy": "probabilistic", "join_probability": 0.3}})
    target = COMING.replace("service: 30/s}", "service: 30/s, response_target: 0.6s}")
    asking = build_system(target, delivery={"dropping": {"policy": "probabilistic", "join_probability": "auto"}})
    both = COMING.replace("service: 30/s}", "service: 30/s}, {name: wall, home: b, topics: [t]}")
    expiring = build_system(both, delivery={"dropping": {"policy": "expiry", "lifetime": "3s"}})
    return {
        "crash": crash,
        "group": make_plan(group, duration_s=5.0, seed=3, leader_kills_s=[2.0]),
        "buffer": make_plan(build_system(COMING, delivery=BUFFER), scale=5.0, duration_s=40.0, seed=4),
        "expiring": make_plan(expiring, scale=5.0, duration_s=30.0, seed=4),
        "classes": make_plan(build_system(CLASSES), scale=2.0, duration_s=10.0, seed=1),
        "asking": make_plan(asking, scale=10.0, duration_s=50.0, warm_up_s=10.0, seed=6, asks_targets=True),
        "joining": make_plan(joining, scale=5.0, duration_s=40.0, warm_up_s=2.0, seed=5),
    }


def carry_out(plan: RunPlan) -> tuple[Measured | None, QoSReport]:
    """Carries a plan out as `run_plan` does; returns all that was seen, but for filter classes."""
    if plan.system.class_workload is not None:
        return None, run_plan(plan)
    with run_folder() as folder:
        measured = asyncio.run(measure(plan, Path(folder)))
    return measured, build_report(measured)


class Runs:
    """Runs that go on at the same time, each asked for when it is needed."""

    def __init__(self, pool: ThreadPoolExecutor):
        self.plans = plans()
        self._results = {name: pool.submit(carry_out, plan) for name, plan in self.plans.items()}

    def __call__(self, name: str) -> tuple[RunPlan, QoSReport]:
        return self.plans[name], self._results[name].result(PATIENCE_S)[1]

    def measured(self, name: str) -> Measured:
        measured = self._results[name].result(PATIENCE_S)[0]
        assert measured is not None
        return measured


@pytest.fixture(scope="session")
def runs() -> Runs:
    """All runs, at their end. A pause in which no process was killed is the machine's: none of these counts here."""
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(7) as pool:
        patch.setattr("surecast.measurement.faults.OUTAGE_LEAST_S", PAUSE_MAX_S)
        return Runs(pool)
