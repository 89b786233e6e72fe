"""Throughput, latency and processor time of a group, from a few constants.

Times of an instance with k publications, on one processor at each replica, which does nothing else while its disk
syncs, and links of one delay:

    propose   p(k) = instance + (n-1) peer/2 + k publication
    commit    c(k) = 2 delay + follower instance + k follower publication + sync
    carry out a(k) = (n-1) peer/2 + k service                    at the leader, then
              f(k) = k service                                   at the followers
    in all    C(k) = p(k) + c(k) + a(k)

A follower hears what is chosen with the next proposal, votes on that, and then carries out; where no proposal waits it
hears so at once, and votes on nothing while it carries out. A leader that has an instance under way collects what comes
for a moment.
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
_ALWAYS_BUSY_PER_S = 1e15
SPACE_SYNCS = 3.0
"""Proposals keep so many syncs from each other; `protocol.paxos` does that."""


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
        """Time between two instances where as many are under way as may be."""
        return self.whole(k) / self.group.instances_max

    def space(self, k: Array) -> Array:
        """How long a leader that has an instance under way collects for the next: at most until that is done."""
        whole = self.whole(k)
        if self.group.instances_max == 1:
            return whole
        if self.group.variant == "fast":
            return np.maximum(self.propose(k) + self.group.sync_s, self.window_limit(k))
        longest_s = max(self.group.moment_s, SPACE_SYNCS * self.group.sync_s)
        return np.maximum(np.minimum(whole, longest_s), self.window_limit(k))

    def gathering(self, k: Array) -> Array:
        """How long those gather who go into the next instance together."""
        return np.maximum(self.propose(k) + self.group.sync_s + self.carry_out(k), self.space(k))

    def told_alone(self, k: Array, rate_per_s: float) -> Array:
        """Share of the instances that followers hear of before the next proposal.

        Nobody came until it was committed, nor while the one before was carried out after a proposal had gone.
        """
        none = np.exp(-rate_per_s * (self.propose(k) + self.commit(k)))
        left = -np.expm1(-rate_per_s * self.carry_out(k))
        return np.asarray(none * (1.0 - left) / (1.0 - none * left))

    def closed(self, k: Array, rate_per_s: float) -> Array:
        """How long an instance makes later ones wait: as a gate with the same area under the wait.

        At least for the space that the leader leaves. Where several are under way, who comes before the commit waits
        for the carrying out ahead, and who comes while the leader is busy for the rest of that. Followers first carry
        out what they have heard of, where nobody came soon enough for the next proposal to tell it.
        """
        ahead, commit = self.carry_out(k), self.commit(k)
        told_alone = self.told_alone(k, rate_per_s)
        follow = told_alone * self.follow(k)
        spread = 0.0 if self.group.service is None else self.group.service.squared_cv * self.group.service_s**2 * k
        first, busy = np.minimum(ahead, commit), self.propose(k) + ahead + follow
        area = first * ahead - first**2 / 2 + (busy**2 + (1.0 + told_alone if self.peers else 1.0) * spread) / 2
        gate: Array = np.where(
            self.space(k) < self.whole(k), np.maximum(np.sqrt(2.0 * area), self.space(k)), self.whole(k) + follow
        )
        return gate


def saturation_per_s(group: Group) -> float:
    """Publications per second that a group cannot exceed, however large its instances grow; inf without costs.

    >>> round(saturation_per_s(Group(3)))
    500000
    """
    many, times = np.array([1e9]), InstanceTimes(group)
    # in the limit nobody finds the group idle
    closed = float(times.closed(many, _ALWAYS_BUSY_PER_S)[0] / many[0])
    follower = float(times.follower_cpu(many)[0] / many[0])
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
    gate = solve_gate(rate_per_s, partial(times.closed, rate_per_s=rate_per_s)) if rate_per_s < capacity else None
    gathered = solve_gate(rate_per_s, times.gathering) if gate is not None else None
    if gate is None or gathered is None:
        raise AssumptionError(
            f"{name}: {rate_per_s:.6g} publications per second come, and {group.replicas} replicas order at most "
            f"{capacity:.6g}; lower the rates, or the broker's service time"
        )
    batch = gathered.batch_mean
    typical = np.array([batch])
    commit = float(times.commit(typical)[0])
    collided = _collisions(times, rate_per_s / batch)
    # where others wait, a leader proposes for them in the turn in which it answers
    alone = float(np.exp(-rate_per_s * times.whole(typical))[0])
    latency = gate.latency(times.whole).plus([(alone, 0.0), (1.0 - alone, float(times.propose(typical)[0]))])
    if collided > 0:
        latency = latency.plus([(1.0 - collided, 0.0), (collided, commit)])
    latency = _through_others(times, latency, rate_per_s, batch)
    return GroupPerformance(
        rate_per_s,
        capacity,
        batch,
        latency.mean_s,
        latency,
        commit + _behind(times, gathered) + math.prod(_held(times, rate_per_s, batch)),
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
    """Least time between two instances."""
    if times.group.instances_max == 1:
        return max(float(times.whole(k)[0]), float(times.follower_cpu(k)[0]))
    busy = times.propose(k) + times.carry_out(k)
    parts = (busy, times.space(k), times.follower_cpu(k), times.window_limit(k))
    return max(times.group.sync_s, *(float(part[0]) for part in parts))


def _per_publication(gate: Gate, cpu: Times) -> float:
    return float(gate.share @ cpu(gate.sizes)) / gate.batch_mean


def _behind(times: InstanceTimes, gate: Gate) -> float:
    """Mean wait of a proposal for followers that carry out the instance before, and of a commit for the leader."""
    follow, rate = times.follow(gate.sizes), gate.rate_per_s
    if not rate or not follow.any():
        return 0.0
    ahead = times.carry_out(gate.sizes)
    # who came while the leader carried out waits for all of theirs, who came later for what is left of it
    came = -np.expm1(-rate * ahead)
    left = follow + np.expm1(-rate * follow) / rate
    waits = times.told_alone(gate.sizes, rate) * (came * follow + (1.0 - came) * left)
    several = times.space(gate.sizes) < times.whole(gate.sizes)
    # with several under way, one that was proposed before the commit of another is chosen while that is carried out
    first = np.minimum(ahead, times.commit(gate.sizes))
    waits += several * rate * (first * ahead - first**2 / 2)
    return float(gate.share @ waits)


def _collisions(times: InstanceTimes, instances_per_s: float) -> float:
    """Share of the instances in which two replicas propose, neither knowing of the other's proposal."""
    if not times.is_direct:
        return 0.0
    unknown_s = times.group.delay_s + float(times.propose(np.ones(1))[0])
    return -math.expm1(-2.0 * unknown_s * instances_per_s * times.peers / times.group.replicas)


def _held(times: InstanceTimes, rate_per_s: float, batch: float) -> tuple[float, float]:
    """How often a leader is syncing its next proposal when votes come, and how long these then wait.

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
    extra_s = 2 * group.delay_s + vote_s * (busy / 2 + with_next) + batch * group.service_s
    return latency.plus([(1 / group.replicas, 0.0), (times.peers / group.replicas, extra_s)])
