"""One run of a group under load, and the fail-overs of a group whose leaders are made to fail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surecast.scenario.group import Group
from surecast.simulation.experiment.clock import CLIENTS
from surecast.simulation.experiment.host import FailureTrace, run_streams
from surecast.simulation.replication.group_load import Load, OpenLoad
from surecast.simulation.replication.replica_host import ReplicaHost
from surecast.simulation.replication.simulated_group import GroupWorld, SimulatedPublication

__all__ = ["GroupRun", "election_gaps", "measure_failovers", "simulate_group"]

Floats = NDArray[np.float64]

ELECTION_MARGIN = 8
"""A group is left to itself for so many times `suspect_s` before anything is asked of it, so that somebody leads."""
FAILOVERS = 10
"""Fail-overs measured of each group, from which the lengths of elections are drawn."""
PROBE = 0
"""The client that asks whether the group is back."""


@dataclass(frozen=True)
class GroupRun:
    """The measurements of one run, over `duration_s` of load.

    `acknowledged_s` has the times of the publications that were acknowledged, `commit_s` those of the instances.
    Processor times are totals: of the leader, and of the other replicas on average.
    """

    duration_s: float
    published: int
    acknowledged_s: Floats
    commit_s: Floats
    instances: int
    leader_cpu_s: float
    follower_cpu_s: float
    throughput_per_s: float


def simulate_group(
    group: Group, load: Load, *, duration_s: float, seed: int, run: int = 0, drain_s: float | None = None
) -> GroupRun:
    """Offers a load to a group for some virtual time; replicas fail and come back by the group's failures.

    >>> found = simulate_group(Group(3), OpenLoad(100.0), duration_s=1.0, seed=1)
    >>> found.published == len(found.acknowledged_s), round(float(np.median(found.acknowledged_s)) * 1e3, 2)
    (True, 1.32)
    """
    streams = run_streams(seed, run)
    traces = {}
    if group.failures is not None:
        traces = {
            i: FailureTrace(group.failures, streams.generator("replica", str(i))) for i in range(1, group.replicas + 1)
        }
    down = frozenset(i for i, trace in traces.items() if not trace.starts_up)
    world = GroupWorld(group, streams.seed, down)
    warm_s = ELECTION_MARGIN * group.suspect_s
    drain = 4 * group.suspect_s if drain_s is None else drain_s
    for i, trace in traces.items():
        _follow(world, world.hosts[i], trace, warm_s + duration_s + drain)
    world.clock.run(warm_s)
    before = {i: (host.cpu_s, host.instances) for i, host in world.hosts.items()}
    world.offer(load, warm_s + duration_s)
    world.clock.run(warm_s + duration_s)
    leader = world.leader
    leads = 0 if leader is None else leader.id
    in_time = sum(publication.acknowledged_s >= 0 for publication in world.publications)
    world.clock.run(warm_s + duration_s + drain)
    cpu = {i: host.cpu_s - before[i][0] for i, host in world.hosts.items()}
    others = [cpu[i] for i in cpu if i != leads]
    times = np.array(
        [
            publication.acknowledged_s - publication.asked_s
            for publication in world.publications
            if publication.acknowledged_s >= 0
        ]
    )
    return GroupRun(
        duration_s,
        len(world.publications),
        times,
        np.array([end - begin for begin, end in world.commits if begin >= warm_s]),
        sum(host.instances - before[i][1] for i, host in world.hosts.items()),
        cpu.get(leads, 0.0),
        float(np.mean(others)) if others else 0.0,
        in_time / duration_s,
    )


def _follow(world: GroupWorld, host: ReplicaHost, trace: FailureTrace, until_s: float) -> None:
    """Lets a machine fail and come back as its trace says."""
    is_up = trace.starts_up
    for time_s in trace:
        if time_s > until_s:
            return
        world.clock.at(time_s, CLIENTS, world.crash if is_up else world.start, host)
        is_up = not is_up


def measure_failovers(group: Group, rate_per_s: float, *, count: int, seed: int, run: int = 0) -> Floats:
    """Times from the failure of a leader to the next acknowledgement, `count` of them one after the other.

    Each leader fails at a random moment and is back before the next one does. The first is not counted: who leads first
    is not whoever leads in the long run.

    >>> gaps = measure_failovers(Group(3), 50.0, count=3, seed=1)
    >>> bool((0.2 < gaps).all() and (gaps < 0.5).all())
    True
    """
    if group.replicas == 1:
        return np.zeros(0)
    world = GroupWorld(group, run_streams(seed, run).seed)
    pause_s = ELECTION_MARGIN * group.suspect_s / 2
    world.clock.run(2 * pause_s)
    # the load only has to show how often followers hear of their leader, and how much waits for the next one
    world.offer(OpenLoad(min(rate_per_s, 20.0 / group.heartbeat_s)), (count + 2) * 4 * pause_s)
    gaps: list[float] = []
    for _ in range(count + 1):
        world.clock.run(world.clock.now + pause_s + group.heartbeat_s * 4 * float(world.rng.random()))
        failed = world.leader
        if failed is None:
            continue
        gaps.append(_gap_s(world, failed, pause_s))
        world.start(failed)
    return np.array(gaps[1:], dtype=np.float64)


def election_gaps(groups: Sequence[Group | None], loads: Sequence[float], seed: int) -> list[Floats]:
    """Measured lengths of elections, by group; those that differ only in how they fail share theirs."""
    measured: dict[tuple[object, ...], Floats] = {}
    gaps = []
    for group, rate_per_s in zip(groups, loads, strict=True):
        if group is None or group.failures is None or group.replicas == 1:
            gaps.append(np.zeros(0))
            continue
        key = (group.service, rate_per_s)
        if key not in measured:
            measured[key] = measure_failovers(group, rate_per_s, count=FAILOVERS, seed=seed)
        gaps.append(measured[key])
    return gaps


def _gap_s(world: GroupWorld, failed: ReplicaHost, limit_s: float) -> float:
    answered: list[float] = []

    def hear(publication: SimulatedPublication) -> None:
        answered.append(publication.acknowledged_s)

    began_s = world.clock.now
    world.crash(failed)
    world.on_answer = hear
    world.publish(PROBE)
    while not answered:
        world.clock.run(world.clock.now + limit_s / 4)
    world.on_answer = None
    return answered[0] - began_s
