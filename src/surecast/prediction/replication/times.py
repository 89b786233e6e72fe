"""The duration of an instance in a group, by its number of publications.

Times of an instance with k publications, on one processor at each replica, which does nothing else while its disk
syncs, and links of one delay:

    propose   p(k) = instance + t peer/2 + k publication
    commit    c(k) = 2 delay + follower instance + k follower publication + sync
    votes     v    = t peer/2
    apply a(k) = k service                                   at the leader, and as long at the followers
    in all    C(k) = p(k) + c(k) + v + a(k)

A leader tells t replicas of a proposal at once: as many as decide with it, or all where each has publishers of its own
(`entry: any`) and in the fast variant. The others hear of several instances together, and cost the leader and
themselves for these what they cost for one; nobody waits for them.

A leader for whom others wait when votes come proposes, applies while the proposal is voted on, and syncs; with one
instance in flight at a time (`batch`) it applies first. A follower hears what is chosen with the next proposal,
votes on that, and then applies; where no proposal waits it hears so at once, and votes on nothing while it carries
out. A leader that has an instance in flight collects what comes for a moment.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surecast.prediction.replication.bulk_service import Cycle, Mixture
from surecast.scenario.group import Group

__all__ = ["InstanceTimes"]

Array = NDArray[np.float64]
INTERVAL_SYNCS = 3.0
"""Proposals keep so many times what it takes to propose and sync from each other; `protocol.paxos` does that."""


@dataclass(frozen=True)
class InstanceTimes:
    """The times of an instance, in seconds, by its number of publications."""

    group: Group

    @property
    def peers(self) -> int:
        return self.group.replicas - 1

    @property
    def is_direct(self) -> bool:
        """True if any replica proposes."""
        return self.group.variant == "fast" and self.group.entry == "any" and self.peers > 0

    @property
    def urgent_peers(self) -> int:
        """Replicas that hear of a proposal at once."""
        if self.group.variant == "fast" or self.group.entry == "any" or not self.group.lazy_delay_s:
            return self.peers
        return self.group.majority - 1

    @property
    def begin_s(self) -> float:
        """The time that a proposal takes beside its publications."""
        return self.group.costs.instance_s + self.urgent_peers * self.group.costs.peer_s / 2

    @property
    def votes_s(self) -> float:
        """The time to receive the votes."""
        return self.urgent_peers * self.group.costs.peer_s / 2

    def propose(self, k: Array) -> Array:
        return self.begin_s + k * self.group.costs.publication_s

    def commit(self, k: Array) -> Array:
        group, costs = self.group, self.group.costs
        if not self.peers:
            return group.sync_s + 0.0 * k
        return 2 * group.delay_s + costs.follower_instance_s + k * costs.follower_publication_s + group.sync_s

    def apply(self, k: Array) -> Array:
        return k * self.group.service_s

    def decide(self, k: Array) -> Array:
        """From the begin of an instance, before which the leader was idle, until it is chosen."""
        return self.propose(k) + self.commit(k) + self.votes_s

    def whole(self, k: Array) -> Array:
        """From the begin of an instance to its acknowledgements."""
        return self.decide(k) + self.apply(k)

    # What it costs

    def together(self, instances_per_s: float) -> float:
        """Returns messages to and from a replica that gets lazy commit notifications, per instance.

        With one that is held back go those that follow until a timer ends that; the next is never at once.
        """
        single = np.ones(1)
        next_s = float((self.space if self.are_several else self.decide)(single)[0])
        return 1.0 / (1.0 + instances_per_s * max(0.0, self.group.lazy_delay_s + self.group.timer_s - next_s))

    def _heard(self, instances_per_s: float) -> float:
        """Replicas that take part in an instance, those that hear of several together in parts."""
        return self.urgent_peers + (self.peers - self.urgent_peers) * self.together(instances_per_s)

    def leader_cpu(self, k: Array, instances_per_s: float) -> Array:
        """Processor time of an instance at the leader; where any replica proposes, at each of them on average."""
        costs = self.group.costs
        own = costs.instance_s + self._heard(instances_per_s) * costs.peer_s + k * costs.publication_s
        own = own + self.apply(k)
        if self.is_direct:
            return (own + self.peers * self._voter_cpu(k, instances_per_s)) / self.group.replicas
        return own

    def follower_cpu(self, k: Array, instances_per_s: float) -> Array:
        """Processor time of an instance at each other replica, on average."""
        return (self.leader_cpu if self.is_direct else self._voter_cpu)(k, instances_per_s)

    def _voter_cpu(self, k: Array, instances_per_s: float) -> Array:
        costs = self.group.costs
        votes = self.peers * costs.peer_s / 2 if self.group.variant == "fast" else 0.0
        takes = costs.follower_instance_s * self._heard(instances_per_s) / max(self.peers, 1)
        return takes + votes + k * (costs.follower_publication_s + self.group.service_s)

    # One instance at a time

    def follow(self, k: Array) -> Array:
        """Returns the wait of a proposal that arrives right after the followers were told what to apply.

        A follower that receives both later votes first, but then has to apply too, which compensates for it.
        """
        return np.maximum(k * self.group.service_s - self.begin_s, 0.0)

    def before(self, ahead: Array) -> Array:
        """Returns the work of a leader before it proposes for waiting publications: with one instance at a time,
        applying.
        """
        return self.apply(ahead) if self.group.instances_max == 1 else 0.0 * ahead

    def driven_commit(self, k: Array, ahead: Array) -> Array:
        """From the proposal for those who waited until its votes are received: the leader may still apply and sync.

        Publications are taken as they come, while the one before is voted on.
        """
        publications_s, meanwhile = k * self.group.costs.publication_s, self.apply(ahead) - self.before(ahead)
        return np.asarray(np.maximum(self.commit(k), meanwhile + self.group.sync_s + publications_s))

    def driven(self, k: Array, ahead: Array) -> Array:
        """From when an instance is chosen, for which others waited, until theirs is."""
        return self.before(ahead) + self.begin_s + self.driven_commit(k, ahead) + self.votes_s

    def cycle(self, rate_per_s: float) -> Cycle:
        """Returns the bulk service of one instance at a time. The number applied before varies as the instances do."""
        single = np.ones(1)
        follow_s = float(self.follow(single)[0])
        left_s = follow_s + float(np.expm1(-rate_per_s * follow_s)) / rate_per_s if rate_per_s else 0.0
        return Cycle(
            lambda k: self._varied(self.driven(k, k), k),
            lambda k: self.decide(k) + self.follow(k),
            lambda k: self._varied(self.apply(k), k),
            float(self.decide(single)[0]) + left_s,
        )

    def alone(self, rate_per_s: float) -> Mixture:
        """Returns the time of an instance that finds the group idle: its followers may still apply the one before."""
        whole_s, follow_s = float(self.whole(np.ones(1))[0]), float(self.follow(np.ones(1))[0])
        soon = -float(np.expm1(-rate_per_s * follow_s))
        return Mixture(np.array([1.0 - soon, soon]), np.full(2, whole_s), np.array([0.0, follow_s]))

    def _varied(self, time: Array, k: Array) -> Array:
        """Returns a time that includes applying, as a constant with the same area under the wait."""
        return np.sqrt(time**2 + self._spread(k))

    def _spread(self, k: Array) -> Array:
        """Returns the variance of the time to apply."""
        service = self.group.service
        return k * (0.0 if service is None else service.squared_cv * service.mean_s**2)

    # Several at a time, or a lone replica

    @property
    def are_several(self) -> bool:
        """True if the next instance begins before the last one is chosen."""
        single = np.ones(1)
        if not self.peers or self.group.instances_max == 1:
            return False
        return float(self.space(single)[0]) < float(self.decide(single)[0])

    def window_limit(self, k: Array) -> Array:
        """Returns the time between two instances when the maximum number is in flight."""
        return self.whole(k) / self.group.instances_max

    def space(self, k: Array) -> Array:
        """Returns the time that a leader with an instance in flight collects for the next: at most until it is done."""
        whole = self.whole(k)
        if self.group.instances_max == 1:
            return whole
        if self.group.variant == "fast":
            return np.maximum(self.propose(k) + self.group.sync_s, self.window_limit(k))
        longest_s = max(self.group.batching_delay_s, INTERVAL_SYNCS * (self.begin_s + self.group.sync_s))
        return np.maximum(np.minimum(whole, longest_s), self.window_limit(k))

    def timed(self, k: Array, rate_per_s: float) -> Array:
        """Returns the proposal interval, and the lateness of the timer that ends it if nobody arrives meanwhile."""
        timer_s = self.group.timer_s
        if self.group.variant == "fast" or not rate_per_s:
            return self.space(k)
        return self.space(k) - float(np.expm1(-rate_per_s * timer_s)) / rate_per_s

    def gathering(self, k: Array, rate_per_s: float) -> Array:
        """Returns the time over which publications gather for the next instance."""
        busy = self.propose(k) + self.group.sync_s + self.votes_s + self.apply(k)
        return np.maximum(busy, self.timed(k, rate_per_s))

    def told_alone(self, k: Array, rate_per_s: float) -> Array:
        """Returns the share of the instances that followers hear of before the next proposal: no publication arrived
        until it was chosen.
        """
        return np.asarray(np.exp(-rate_per_s * self.decide(k)))

    def closed(self, k: Array, rate_per_s: float) -> Array:
        """Returns the time by which an instance delays later ones: a bulk service with as large an area under the wait.

        A single replica does everything at once. With several instances in flight, it is at least the proposal
        interval of the leader. A publication that arrives before the commit waits for the applying ahead, and one that
        arrives while the leader is busy waits for the rest of that. Followers first apply the instances that were
        committed to them separately, when no publication arrived early enough for the next proposal to carry it.
        """
        if not self.peers:
            return self._varied(self.whole(k), k)
        ahead, commit = self.votes_s + self.apply(k), self.commit(k)
        told_alone = self.told_alone(k, rate_per_s)
        follow = told_alone * self.follow(k)
        first, busy = np.minimum(ahead, commit), self.propose(k) + ahead + follow
        area = first * ahead - first**2 / 2 + (busy**2 + (1.0 + told_alone) * self._spread(k)) / 2
        return np.asarray(np.maximum(np.sqrt(2.0 * area), self.timed(k, rate_per_s)))
