"""Throughput, latency and processor time of a group, from a few constants.

Times of an instance with k publications, on one processor at each replica, one disk that syncs all that waits in one
go, and links of one delay:

    propose   p(k) = instance + (n-1) peer/2 + k publication
    commit    c(k) = 2 delay + follower instance + k follower publication + sync (+ waiting for the disk)
    carry out a(k) = (n-1) peer/2 + k service                    at the leader, then
              f(k) = k service                                   at the followers, which vote on nothing meanwhile
    in all    C(k) = p(k) + c(k) + a(k)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from surecast.errors import AssumptionError, ConfigurationError
from surecast.predict.replication.gate import Gate, Mixture, Times, solve_gate
from surecast.scenario.group import Group

__all__ = ["GroupPerformance", "InstanceTimes", "predict_closed", "predict_open", "saturation_per_s"]

Array = NDArray[np.float64]
DISK_LEVELS = 8
"""The wait for a busy disk is uniform; its distribution is taken at so many points."""


@dataclass(frozen=True)
class GroupPerformance:
    """What a group does under a load. Processor times are of one publication; `acknowledged` is the distribution of
    the time from its arrival to its acknowledgement, None where publishers go in step and all wait equally long.

    `collisions` is the share of publications whose fast instance another replica proposes in too.
    """

    throughput_per_s: float
    capacity_per_s: float
    batch_mean: float
    acknowledged_mean_s: float
    acknowledged: Mixture | None
    commit_mean_s: float
    leader_cpu_s: float
    follower_cpu_s: float
    collisions: float = 0.0

    @property
    def instances_per_s(self) -> float:
        return self.throughput_per_s / self.batch_mean

    @property
    def utilisation(self) -> float:
        """Share of time in which the leader's processor is busy."""
        return self.throughput_per_s * self.leader_cpu_s

    def acknowledged_quantile_s(self, share: float) -> float:
        """The time by which this share of the publications is acknowledged."""
        return self.acknowledged_mean_s if self.acknowledged is None else self.acknowledged.quantile_s(share)


@dataclass(frozen=True)
class InstanceTimes:
    """The times of an instance, in seconds, by its number of publications."""

    group: Group

    @property
    def peers(self) -> int:
        return self.group.replicas - 1

    @property
    def is_direct(self) -> bool:
        """Whether any replica proposes."""
        return self.group.variant == "fast" and self.group.entry == "any" and self.peers > 0

    def propose(self, k: Array) -> Array:
        costs = self.group.costs
        return costs.instance_s + self.peers * costs.peer_s / 2 + k * costs.publication_s

    def commit(self, k: Array) -> Array:
        group, costs = self.group, self.group.costs
        if not self.peers:
            return group.sync_s + 0.0 * k
        return 2 * group.delay_s + costs.follower_instance_s + k * costs.follower_publication_s + group.sync_s

    def carry_out(self, k: Array) -> Array:
        return self.peers * self.group.costs.peer_s / 2 + k * self.group.service_s

    def follow(self, k: Array) -> Array:
        return k * self.group.service_s if self.peers else 0.0 * k

    def whole(self, k: Array) -> Array:
        """From the begin of an instance to its acknowledgements."""
        return self.propose(k) + self.commit(k) + self.carry_out(k)

    def leader_cpu(self, k: Array) -> Array:
        """Processor time of an instance at the leader; where any replica proposes, at each of them on average."""
        own = self.propose(k) + self.carry_out(k)
        if self.is_direct:
            return (own + self.peers * self._voter_cpu(k)) / self.group.replicas
        return own

    def follower_cpu(self, k: Array) -> Array:
        """Processor time of an instance at each other replica."""
        return self.leader_cpu(k) if self.is_direct else self._voter_cpu(k)

    def _voter_cpu(self, k: Array) -> Array:
        costs = self.group.costs
        votes = self.peers * costs.peer_s / 2 if self.group.variant == "fast" else 0.0
        return costs.follower_instance_s + votes + k * (costs.follower_publication_s + self.group.service_s)

    def window_limit(self, k: Array) -> Array:
        """Time between two instances where as many are under way as may be; each then waits for a disk that is busy."""
        return (self.whole(k) + self.group.sync_s / 2) / self.group.instances_max

    def gathering(self, k: Array, rate_per_s: float) -> Array:
        """How long those gather who go into the next instance together.

        With one instance under way, until it is done; if it followed another at once, its vote came later.
        """
        if self.group.instances_max == 1:
            whole = self.whole(k)
            return whole - np.expm1(-rate_per_s * whole) * self.follow(k)
        return np.maximum(self.propose(k) + self.carry_out(k), self.window_limit(k))

    def closed(self, k: Array) -> Array:
        """How long an instance makes later ones wait: as a gate with the same area under the wait.

        With one instance under way, all of it. With several, who comes before the commit waits for the carrying out
        ahead; who comes later waits for that and, since followers carry out before they vote, for theirs.
        """
        if self.group.instances_max == 1:
            return self.whole(k) + self.follow(k)
        ahead, commit = self.carry_out(k), self.commit(k)
        first = np.minimum(ahead, commit)
        spread = 0.0 if self.group.service is None else self.group.service.squared_cv * self.group.service_s**2 * k
        busy = self.propose(k) + ahead + self.follow(k)
        area = first * ahead - first**2 / 2 + (busy**2 + (2.0 if self.peers else 1.0) * spread) / 2
        gate: Array = np.maximum(np.sqrt(2.0 * area), self.window_limit(k))
        return gate


def saturation_per_s(group: Group) -> float:
    """Publications per second that a group cannot exceed, however large its instances grow; inf without costs.

    >>> round(saturation_per_s(Group(3)))
    500000
    """
    many = np.array([1e9])
    closed = float(InstanceTimes(group).closed(many)[0] / many[0])
    follower = float(InstanceTimes(group).follower_cpu(many)[0] / many[0])
    slowest = max(closed, follower)
    return math.inf if slowest <= 0 else 1.0 / slowest


def predict_open(group: Group, rate_per_s: float, name: str = "the group") -> GroupPerformance:
    """A group under publications at random (a Poisson process); refuses a rate that it cannot order.

    >>> light = predict_open(Group(3), 10.0)
    >>> round(light.acknowledged_mean_s * 1e3, 2), round(light.batch_mean, 3)
    (1.35, 1.0)
    """
    if not 0 <= rate_per_s < math.inf:
        raise ConfigurationError(f"rate_per_s: {rate_per_s} must be 0 or more, and finite")
    times, capacity = InstanceTimes(group), saturation_per_s(group)
    gate = solve_gate(rate_per_s, times.closed) if rate_per_s < capacity else None
    gathered = solve_gate(rate_per_s, partial(times.gathering, rate_per_s=rate_per_s)) if gate is not None else None
    if gate is None or gathered is None:
        raise AssumptionError(
            f"{name}: {rate_per_s:.6g} publications per second come, and {group.replicas} replicas order at most "
            f"{capacity:.6g}; lower the rates, or the broker's service time"
        )
    batch = gathered.batch_mean
    busy = _disk_busy(group, rate_per_s / batch)
    disk = [(1.0 - busy, 0.0)]
    disk += [(busy / DISK_LEVELS, (i + 0.5) / DISK_LEVELS * group.sync_s) for i in range(DISK_LEVELS) if busy > 0]
    commit = float(times.commit(np.array([batch]))[0])
    collided = _collisions(times, rate_per_s / batch)
    latency = gate.latency(times.whole).plus(disk)
    if collided > 0:
        latency = latency.plus([(1.0 - collided, 0.0), (collided, commit)])
    latency = _forwarded(times, latency, batch)
    return GroupPerformance(
        rate_per_s,
        capacity,
        batch,
        latency.mean_s,
        latency,
        commit + busy * group.sync_s / 2 + _behind(times, gathered),
        _per_publication(gathered, times.leader_cpu),
        _per_publication(gathered, times.follower_cpu) if times.peers else 0.0,
        collided,
    )


def predict_closed(group: Group, publishers: int, window: int = 1, think_s: float = 0.0) -> GroupPerformance:
    """A group under publishers that each keep `window` publications under way, the next `think_s` after an answer.

    They fall into step: m cohorts take turns, each an instance, so that the round of C(k) and the thinking takes m
    times what one instance keeps the next one waiting: the sync, the busiest processor, or with one instance under way
    all of it.

    >>> alone = predict_closed(Group(3), publishers=1)
    >>> round(alone.throughput_per_s), round(alone.acknowledged_mean_s * 1e3, 3)
    (745, 1.343)
    """
    if publishers < 1 or window < 1:
        raise ConfigurationError(f"publishers, window: {publishers} and {window} must both be 1 or more")
    if not 0 <= think_s < math.inf:
        raise ConfigurationError(f"think_s: {think_s} must be 0 or more, and finite")
    times, population = InstanceTimes(group), publishers * window
    k, round_s = _in_step(times, population, think_s)
    return GroupPerformance(
        population / round_s,
        saturation_per_s(group),
        float(k[0]),
        round_s - think_s,
        None,
        float(times.commit(k)[0]),
        float(times.leader_cpu(k)[0] / k[0]),
        float(times.follower_cpu(k)[0] / k[0]) if times.peers else 0.0,
    )


def _in_step(times: InstanceTimes, population: int, think_s: float) -> tuple[Array, float]:
    """Publications of a cohort, and the time in which all cohorts have had their turn.

    So many publications at random fill on average m (1 - (1 - 1/m)^population) of m turns. Where more than m - 1 of
    the turns of a round are filled, m cohorts drive each other; otherwise there is room for all, and nobody waits.
    """
    forward = _forward_s(times) * times.peers / times.group.replicas
    for cohorts in range(1, population + 1):
        k = np.array([population / cohorts])
        round_s = float(times.whole(k)[0]) + forward + think_s
        driven_s = cohorts * _spacing_s(times, k)
        if cohorts == 1 and think_s == 0:
            return k, round_s
        if cohorts > 1 and round_s <= driven_s * (1.0 + 1e-9):
            filled = cohorts * (1.0 - (1.0 - 1.0 / cohorts) ** population)
            if filled > cohorts - 1:
                return k, driven_s
            k = np.array([population / filled])
            break
    else:
        k = np.ones(1)
    return k, float(times.whole(k)[0]) + forward + think_s


def _spacing_s(times: InstanceTimes, k: Array) -> float:
    """Least time between two instances."""
    if times.group.instances_max == 1:
        return float((times.whole(k) + times.follow(k))[0])
    parts = (times.propose(k) + times.carry_out(k), times.follower_cpu(k), times.window_limit(k))
    return max(times.group.sync_s, *(float(part[0]) for part in parts))


def _per_publication(gate: Gate, cpu: Times) -> float:
    return float(gate.share @ cpu(gate.sizes)) / gate.batch_mean


def _behind(times: InstanceTimes, gate: Gate) -> float:
    """Mean wait of a proposal for replicas that still carry out the instance before.

    Who came while the leader was busy waits for all of it, who came later for what is left.
    """
    follow, rate = times.follow(gate.sizes), gate.rate_per_s
    if not rate or not follow.any():
        return 0.0
    one = times.group.instances_max == 1
    ahead = times.carry_out(gate.sizes)
    idle = np.exp(-rate * (times.whole(gate.sizes) if one else ahead))
    left = follow + np.expm1(-rate * follow) / rate
    waits = (1.0 - idle) * follow + idle * left
    if not one:  # who came before the commit of the instance before is chosen while the leader carries that out
        first = np.minimum(ahead, times.commit(gate.sizes))
        waits += rate * (first * ahead - first**2 / 2)
    return float(gate.share @ waits)


def _disk_busy(group: Group, instances_per_s: float) -> float:
    """Share of the instances that find the disk busy: it syncs on as long as something came during the last sync."""
    load = instances_per_s * group.sync_s
    if load <= 0 or group.instances_max == 1:
        return 0.0
    return load / (load + math.exp(-load))


def _collisions(times: InstanceTimes, instances_per_s: float) -> float:
    """Share of the instances in which two replicas propose, neither knowing of the other's proposal."""
    if not times.is_direct:
        return 0.0
    unknown_s = times.group.delay_s + float(times.propose(np.ones(1))[0])
    return -math.expm1(-2.0 * unknown_s * instances_per_s * times.peers / times.group.replicas)


def _forward_s(times: InstanceTimes) -> float:
    """What a publication takes longer that comes to a replica which does not propose."""
    if times.group.entry == "leader" or times.is_direct or not times.peers:
        return 0.0
    return 2 * times.group.delay_s


def _forwarded(times: InstanceTimes, latency: Mixture, batch: float) -> Mixture:
    """With forwarding to the leader; and the answer comes when the replica has carried it out, after the leader."""
    extra = _forward_s(times)
    if not extra and (times.group.entry == "leader" or times.is_direct or not times.peers):
        return latency
    n = times.group.replicas
    return latency.plus([(1 / n, 0.0), (times.peers / n, extra + batch * times.group.service_s)])
