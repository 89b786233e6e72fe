"""Scenarios for runs of a few seconds, and the runs themselves: all at once, as they must not collide."""

from __future__ import annotations

import json
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from surecast.measurement import RunPlan, make_plan, run_plan
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
    both = COMING.replace("service: 30/s}", "service: 30/s}, {name: wall, home: b, topics: [t]}")
    expiring = build_system(both, delivery={"dropping": {"policy": "expiry", "lifetime": "3s"}})
    return {
        "crash": crash,
        "group": make_plan(group, duration_s=5.0, seed=3, leader_kills_s=[2.0]),
        "buffer": make_plan(build_system(COMING, delivery=BUFFER), scale=5.0, duration_s=40.0, seed=4),
        "expiring": make_plan(expiring, scale=5.0, duration_s=30.0, seed=4),
        "classes": make_plan(build_system(CLASSES), scale=2.0, duration_s=10.0, seed=1),
        "joining": make_plan(joining, scale=5.0, duration_s=40.0, warm_up_s=2.0, seed=5),
    }


class Runs:
    """Runs that go on at the same time, each asked for when it is needed."""

    def __init__(self, pool: ThreadPoolExecutor):
        self.plans = plans()
        self._reports: dict[str, Future[QoSReport]] = {n: pool.submit(run_plan, p) for n, p in self.plans.items()}

    def __call__(self, name: str) -> tuple[RunPlan, QoSReport]:
        return self.plans[name], self._reports[name].result(timeout=120)


@pytest.fixture(scope="session")
def runs() -> Runs:
    """All runs, at their end. A pause in which no process was killed is the machine's: none of these counts here."""
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(6) as pool:
        patch.setattr("surecast.measurement.faults.OUTAGE_LEAST_S", PAUSE_MAX_S)
        return Runs(pool)
