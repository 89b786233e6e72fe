"""The time that a group is without a leader after its leader failed.

Every follower waits `suspect_s`, one step more for each rank, and a random part, counted from when it last heard of
the leader. The first one whose wait is over asks the others, stands, gets its promises and orders what waits.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from surecast.scenario.group import Group

__all__ = ["election_wait_s", "failover_s"]

Array = NDArray[np.float64]

TICKS_PER_HEARTBEAT = 4
"""Ticks of a replica's clock in one interval between heartbeats."""


def failover_s(group: Group, rate_per_s: float = 0.0) -> float:
    """Returns the mean time from the failure of a leader to the next acknowledgement; 0 for a single replica.

    Under load followers hear of their leader with every publication, and not only with heartbeats; and the first
    instance of the next leader has all that came to it meanwhile.

    >>> 0.3 < failover_s(Group(3)) < 0.35
    True
    """
    if group.replicas == 1:
        return 0.0
    heartbeat, rate = group.heartbeat_s, rate_per_s
    # last heard: the age of the last heartbeat is uniform, that of the last instance exponential; the mean of the less
    age = heartbeat / 2.0
    if rate * heartbeat > 1e-6:
        age = (1.0 - (1.0 - math.exp(-rate * heartbeat)) / (rate * heartbeat)) / rate
    waits = group.suspect_s - age + election_wait_s(group) + heartbeat / TICKS_PER_HEARTBEAT / 2.0
    # the last word of the leader; pre-votes and grants; the own ballot stored, asking and promises stored; an instance
    messages, syncs = 1 + 2 + 2 + 2, 1 + 1 + 1
    gap = waits + messages * group.delay_s + syncs * group.sync_s + group.costs.instance_s + group.service_s
    backlog = rate * gap / (group.replicas - 1)
    return gap + backlog * (group.service_s + group.costs.publication_s)


def election_wait_s(group: Group, points: int = 4001) -> float:
    """Returns the mean of the shortest wait of the followers beyond `suspect_s`.

    Who led before is not among them. The next leader of each is the one with the shortest wait, so that leaders are a
    chain; the mean is over its stationary state.
    """
    n, step, spread = group.replicas, group.election_step_s, group.backoff_s
    times = np.linspace(0.0, (n - 1) * step + spread, points)
    ranks = np.arange(n)[:, None] * step
    tail = 1.0 - np.clip((times - ranks) / spread, 0.0, 1.0)
    density = ((times >= ranks) & (times < ranks + spread)) / spread
    next_leader, wait = np.zeros((n, n)), np.zeros(n)
    for leader in range(n):
        others = [j for j in range(n) if j != leader]
        wait[leader] = np.trapezoid(tail[others].prod(axis=0), times)
        for j in others:
            rest = [i for i in others if i != j]
            next_leader[leader, j] = np.trapezoid(density[j] * tail[rest].prod(axis=0), times)
    next_leader /= next_leader.sum(axis=1, keepdims=True)
    share = np.full(n, 1.0 / n)
    for _ in range(200):
        share = 0.5 * share + 0.5 * (share @ next_leader)  # halved: between two replicas the lead goes to and fro
    return float(share @ wait)
