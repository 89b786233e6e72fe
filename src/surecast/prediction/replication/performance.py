"""Throughput, latency and processor time of a group, from a few constants.

`times` has the times of an instance. Where one is in flight at a time, its publications gather while the one before is
voted on and applied; where several are, for as long as the leader leaves between two proposals.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from surecast.errors import ConfigurationError, SaturationError
from surecast.prediction.replication.bulk_service import BulkService, Mixture, solve_bulk_service, solve_cycle
from surecast.prediction.replication.times import InstanceTimes
from surecast.scenario.group import Group

__all__ = ["GroupPerformance", "predict_closed", "predict_open", "saturation_per_s"]

Array = NDArray[np.float64]
_ALWAYS_BUSY_PER_S = 1e15


@dataclass(frozen=True)
class GroupPerformance:
    """The performance of a group under a load. Processor times are per publication; `acknowledged` is the distribution
    of the time from its arrival to its acknowledgement, None where publishers go in step and all wait equally long.

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
        """Returns the time by which this share of the publications is acknowledged."""
        return self.acknowledged_mean_s if self.acknowledged is None else self.acknowledged.quantile_s(share)


def saturation_per_s(group: Group) -> float:
    """Publications per second that a group cannot exceed, however large its instances grow; inf without costs.

    >>> round(saturation_per_s(Group(3)))
    500000
    """
    many, times = np.array([1e9]), InstanceTimes(group)
    # in the limit no publication finds the group idle
    is_bulk = times.are_several or not times.peers
    closed = times.closed(many, _ALWAYS_BUSY_PER_S) if is_bulk else times.driven(many, many)
    slowest = float(np.maximum(closed, times.follower_cpu(many, 0.0))[0] / many[0])
    return math.inf if slowest <= 0 else 1.0 / slowest


def predict_open(group: Group, rate_per_s: float, name: str = "the group") -> GroupPerformance:
    """Returns the performance of a group under Poisson arrivals of publications; refuses a rate that it cannot order.

    >>> light = predict_open(Group(3), 10.0)
    >>> round(light.acknowledged_mean_s * 1e3, 2), round(light.batch_mean, 3)
    (1.33, 1.0)
    """
    if not 0 <= rate_per_s < math.inf:
        raise ConfigurationError(f"rate_per_s: {rate_per_s} must be 0 or more, and finite")
    times, capacity = InstanceTimes(group), saturation_per_s(group)
    answer = _several if times.are_several else _one_by_one if times.peers else _lone
    solution = answer(times, rate_per_s) if rate_per_s < capacity else None
    if solution is None:
        raise SaturationError(
            f"{name}: {rate_per_s:.6g} publications per second come, and {group.replicas} replicas order at most "
            f"{capacity:.6g}; lower the rates, or the broker's service time"
        )
    latency, batch, commit_s = solution
    collided = _collisions(times, rate_per_s / batch)
    if collided > 0:
        latency = latency.plus([(1.0 - collided, 0.0), (collided, float(times.commit(np.array([batch]))[0]))])
    latency = _through_others(times, latency, rate_per_s, batch)
    leader_cpu_s, follower_cpu_s = _cpu(times, batch, rate_per_s / batch)
    return GroupPerformance(
        rate_per_s, capacity, batch, latency.mean_s, latency, commit_s, leader_cpu_s, follower_cpu_s, collided
    )


def _lone(times: InstanceTimes, rate_per_s: float) -> tuple[Mixture, float, float] | None:
    """Returns the time to the acknowledgement, publications per instance and time to commit of a single replica."""
    batches = solve_bulk_service(rate_per_s, partial(times.closed, rate_per_s=rate_per_s))
    return None if batches is None else (batches.latency(times.whole), batches.batch_mean, times.group.sync_s)


def _one_by_one(times: InstanceTimes, rate_per_s: float) -> tuple[Mixture, float, float] | None:
    """Returns the same with one instance in flight at a time."""
    batches = solve_cycle(rate_per_s, times.cycle(rate_per_s))
    if batches is None:
        return None
    # the publications applied first were collected before those of this instance arrived
    ahead, weight = batches.sizes[:, None], batches.driving
    latency = batches.latency(
        lambda k: weight @ times.driven(k[None, :], ahead) + times.apply(k),
        lambda k: times.whole(k) + times.follow(k),
        times.alone(rate_per_s),
    )
    # where others wait, a leader proposes for them in the turn in which it answers
    alone = float(times.told_alone(np.array([batches.batch_mean]), rate_per_s)[0])
    latency = latency.plus([(alone, 0.0), (1.0 - alone, times.begin_s)])
    rested = batches.closed_s - times.propose(batches.sizes) - times.votes_s
    driven = weight @ times.driven_commit(batches.sizes[None, :], ahead)
    return latency, batches.batch_mean, float(batches.share @ np.where(batches.begun > 0, rested, driven))


def _several(times: InstanceTimes, rate_per_s: float) -> tuple[Mixture, float, float] | None:
    """Returns the same with several instances in flight."""
    batches = solve_bulk_service(rate_per_s, partial(times.closed, rate_per_s=rate_per_s))
    gathered = solve_bulk_service(rate_per_s, partial(times.gathering, rate_per_s=rate_per_s))
    if batches is None or gathered is None:
        return None
    batch = np.array([gathered.batch_mean])
    alone = float(np.exp(-rate_per_s * times.whole(batch))[0])
    latency = batches.latency(times.whole).plus([(alone, 0.0), (1.0 - alone, times.begin_s)])
    held_s = math.prod(_held(times, rate_per_s, gathered.batch_mean))
    return latency, gathered.batch_mean, float(times.commit(batch)[0]) + _behind(times, gathered) + held_s


def predict_closed(group: Group, publishers: int, window: int = 1, think_s: float = 0.0) -> GroupPerformance:
    """Returns the performance of a group under publishers that each keep `window` publications in flight, the next
    `think_s` after an answer.

    They fall into step: m cohorts take turns, each an instance, so that the round of C(k) and the thinking takes m
    times what one instance keeps the next one waiting: the sync, the busiest processor, or with one instance in flight
    all of it.

    >>> alone = predict_closed(Group(3), publishers=1)
    >>> round(alone.throughput_per_s), round(alone.acknowledged_mean_s * 1e3, 3)
    (756, 1.323)
    """
    if publishers < 1 or window < 1:
        raise ConfigurationError(f"publishers, window: {publishers} and {window} must both be 1 or more")
    if not 0 <= think_s < math.inf:
        raise ConfigurationError(f"think_s: {think_s} must be 0 or more, and finite")
    times, population = InstanceTimes(group), publishers * window
    k, round_s = _in_step(times, population, think_s)
    batch, rate_per_s = float(k[0]), population / round_s
    cpu_s, commit_s = _cpu(times, batch, rate_per_s / batch), float(times.commit(k)[0])
    return GroupPerformance(rate_per_s, saturation_per_s(group), batch, round_s - think_s, None, commit_s, *cpu_s)


def _in_step(times: InstanceTimes, population: int, think_s: float) -> tuple[Array, float]:
    """Publications of a cohort, and the time in which all cohorts have had their turn.

    So many publications at random fill on average m (1 - (1 - 1/m)^population) of m turns. Where more than m - 1 of
    the turns of a round are filled, m cohorts drive each other; otherwise there is room for all, and nobody waits.
    """
    is_forwarded = times.group.entry == "any" and not times.is_direct
    forward = 2 * times.group.delay_s * times.peers / times.group.replicas if is_forwarded else 0.0
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
    """Returns the least time between two instances."""
    follower = times.follower_cpu(k, 0.0)
    if not times.peers:
        return float(times.whole(k)[0])
    if not times.are_several:
        # publications of a cohort come together, and are taken together
        return float(np.maximum(np.maximum(times.driven(k, k), times.decide(k) + times.before(k)), follower)[0])
    busy = times.propose(k) + times.votes_s + times.apply(k)
    parts = (busy, times.space(k), follower, times.window_limit(k))
    return max(times.group.sync_s, *(float(part[0]) for part in parts))


def _cpu(times: InstanceTimes, batch: float, instances_per_s: float) -> tuple[float, float]:
    """Processor time of one publication, at the leader and at each other replica."""
    k = np.array([batch])
    leader, follower = (float(cpu(k, instances_per_s)[0]) / batch for cpu in (times.leader_cpu, times.follower_cpu))
    return leader, follower if times.peers else 0.0


def _behind(times: InstanceTimes, batches: BulkService) -> float:
    """Returns the mean wait of a proposal for followers that apply the last instance, and of a commit for the
    leader."""
    follow, rate = times.follow(batches.sizes), batches.rate_per_s
    if not rate or not follow.any():
        return 0.0
    ahead = times.votes_s + times.apply(batches.sizes)
    # a publication that came while the leader applied waits for all of the followers' work, a later one for the rest
    during = -np.expm1(-rate * ahead)
    left = follow + np.expm1(-rate * follow) / rate
    waits = times.told_alone(batches.sizes, rate) * (during * follow + (1.0 - during) * left)
    # one that was proposed before the commit of another is chosen while that is applied
    first = np.minimum(ahead, times.commit(batches.sizes))
    waits += rate * (first * ahead - first**2 / 2)
    return float(batches.share @ waits)


def _collisions(times: InstanceTimes, instances_per_s: float) -> float:
    """Returns the share of the instances in which two replicas propose, neither knowing of the other's proposal."""
    if not times.is_direct:
        return 0.0
    unknown_s = times.group.delay_s + float(times.propose(np.ones(1))[0])
    return -math.expm1(-2.0 * unknown_s * instances_per_s * times.peers / times.group.replicas)


def _held(times: InstanceTimes, rate_per_s: float, batch: float) -> tuple[float, float]:
    """Returns the probability that a leader is syncing its next proposal when votes come, and how long these then wait.

    It leaves no space between fast instances.
    """
    group, typical = times.group, np.array([batch])
    if group.variant != "fast" or times.is_direct or not times.peers:
        return 0.0, 0.0
    own_s = float(times.propose(typical)[0]) + group.sync_s
    held_s = 2.0 * own_s - float((times.propose(typical) + times.commit(typical))[0])
    return -math.expm1(-rate_per_s * own_s), max(0.0, held_s)


def _through_others(times: InstanceTimes, latency: Mixture, rate_per_s: float, batch: float) -> Mixture:
    """With what processors that sync add: they take nothing else meanwhile.

    A publication that comes to a follower waits for it, goes to the leader, and is answered when the follower has voted
    on the proposal with which it heard of it. Where a replica proposes itself, it waits for its own processor and for
    the last of a fast quorum.
    """
    group, typical = times.group, np.array([batch])
    if not times.peers or (group.entry == "leader" and group.variant != "fast"):
        return latency
    vote_s = group.sync_s + group.costs.follower_instance_s
    busy = min(1.0, rate_per_s / batch * vote_s)
    if times.is_direct:
        voters = group.fast_quorum - 1
        return latency.plus([(1.0 - busy, 0.0), (busy, vote_s * (0.5 + voters / (voters + 1.0)))])
    if group.entry == "leader":
        again, held_s = _held(times, rate_per_s, batch)
        return latency.plus([(1.0 - again, 0.0), (again, held_s)])
    with_next = 1.0 - float(times.told_alone(typical, rate_per_s)[0])
    extra_s = 2 * group.delay_s + vote_s * (busy / 2 + with_next) + (1.0 - with_next) * batch * group.service_s
    return latency.plus([(1 / group.replicas, 0.0), (times.peers / group.replicas, extra_s)])
