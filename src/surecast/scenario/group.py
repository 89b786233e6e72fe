"""A broker as a group of replicas, resolved: what predictions and simulations of replication start from."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from surecast.documents.units import format_duration
from surecast.errors import ConfigurationError
from surecast.group_times import BATCHING_S, LAZY_DELAY_S
from surecast.scenario.distributions import Distribution
from surecast.scenario.system import Failures, System

__all__ = ["Group", "GroupCosts", "group_of", "groups_of", "is_replicated"]

LINK_DELAY_LEAST_S: Final = 1e-3


@dataclass(frozen=True, slots=True)
class GroupCosts:
    """Processor time of ordering, in seconds.

    Whoever proposes spends `instance_s` on an instance, and each other replica `follower_instance_s`. A proposal to
    one replica costs half of `peer_s` where it is sent, and a vote half of it where it is received. Several proposals
    that go together cost what one does, but for the first. A publication costs `publication_s` at the replica it comes
    to and `follower_publication_s` at the others.
    """

    instance_s: float = 60e-6
    peer_s: float = 20e-6
    publication_s: float = 2e-6
    follower_instance_s: float = 40e-6
    follower_publication_s: float = 1e-6

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigurationError(f"costs.{name}: {getattr(self, name)} must be 0 or more, and finite")


@dataclass(frozen=True, slots=True)
class Group:
    """A group of 2f+1 replicas: its protocol, its network and disks, its costs, and how each replica fails.

    `sync_s` is 0 where nothing is synced. `batching_delay_s` is how long a leader collects publications while an
    instance is in flight, and for how long it keeps to itself what is chosen in case another proposal follows.
    `lazy_delay_s` is for how long it holds back proposals to replicas that neither decide nor have publishers, so that
    they get several together. `timer_s` is how late timers are. `service` is the broker's own time for a publication,
    spent at every replica; None where that is negligible. `failures` are those of one replica, None if it never fails.

    >>> group = Group(5)
    >>> group.majority, group.fast_quorum, group.tolerated
    (3, 4, 2)
    """

    replicas: int = 3
    variant: str = "multi"
    window: int = 10
    entry: str = "leader"
    delay_s: float = 100e-6
    sync_s: float = 1e-3
    suspect_s: float = 0.25
    repair: str = "independent"
    batching_delay_s: float = BATCHING_S
    lazy_delay_s: float = LAZY_DELAY_S
    timer_s: float = 0.6e-3
    costs: GroupCosts = GroupCosts()
    service: Distribution | None = None
    failures: Failures | None = None

    def __post_init__(self) -> None:
        if self.replicas < 1 or self.replicas % 2 == 0:
            raise ConfigurationError(f"replicas: {self.replicas} must be an odd number, 1 or more")
        for name, allowed in (
            ("variant", ("multi", "batch", "fast")),
            ("entry", ("leader", "any")),
            ("repair", ("independent", "single")),
        ):
            if getattr(self, name) not in allowed:
                raise ConfigurationError(
                    f"{name}: {getattr(self, name)!r} is unknown; write one of {', '.join(allowed)}"
                )
        if self.window < 1:
            raise ConfigurationError(f"window: {self.window} must be 1 or more")
        for name in ("delay_s", "sync_s", "batching_delay_s", "lazy_delay_s", "timer_s"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigurationError(f"{name}: {getattr(self, name)} must be 0 or more, and finite")
        if not 0 < self.suspect_s < math.inf:
            raise ConfigurationError(f"suspect_s: {self.suspect_s} must be above 0 and finite")

    @property
    def tolerated(self) -> int:
        """Replicas that may be down (f)."""
        return self.replicas // 2

    @property
    def majority(self) -> int:
        """Votes that decide (f+1)."""
        return self.replicas // 2 + 1

    @property
    def fast_quorum(self) -> int:
        """Votes that decide a fast instance: three quarters, rounded up."""
        return -(-3 * self.replicas // 4)

    @property
    def instances_max(self) -> int:
        """Instances that may be in flight at a time."""
        return 1 if self.variant == "batch" else self.window

    @property
    def service_s(self) -> float:
        """Mean of the broker's own time for a publication."""
        return 0.0 if self.service is None else self.service.mean_s

    @property
    def heartbeat_s(self) -> float:
        """Time between two heartbeats."""
        return self.suspect_s / 5

    @property
    def election_step_s(self) -> float:
        """The additional time that each next replica waits before it stands for election."""
        return self.suspect_s / 5

    @property
    def backoff_s(self) -> float:
        """The largest random addition to that wait."""
        return 0.6 * self.suspect_s

    @property
    def file_fields(self) -> dict[str, Any]:
        """Returns the settings of replicas that run, as fields of a group's file or of a broker in an overlay's
        file. Costs are those of the machine, and so is a delay shorter than a message takes there.

        >>> Group(3, suspect_s=0.5).file_fields["paxos"]["heartbeat"]
        '0.1s'
        """
        return {
            "link_delay": format_duration(self.delay_s if self.delay_s >= LINK_DELAY_LEAST_S else 0.0),
            "paxos": {
                "variant": self.variant,
                "alpha": self.window,
                "suspect": format_duration(self.suspect_s),
                "heartbeat": format_duration(self.heartbeat_s),
            },
        }

    @property
    def label(self) -> str:
        """The name of the group in reports."""
        return f"{self.variant}, {self.replicas} replica{'s' if self.replicas > 1 else ''}"


def is_replicated(system: System) -> bool:
    """Returns whether a scenario has a replication section, even one with a single replica."""
    return "replication" in system.delivery.model_fields_set or system.delivery.replication.replicas > 1


def groups_of(system: System) -> tuple[Group | None, ...]:
    """Returns the group of each broker; None for one that is a single process.

    >>> from surecast.scenario import build, parse_text
    >>> system = build(parse_text('''
    ... {surecast: 1, name: two, overlay: {brokers: [{name: a}, {name: b}], links: [[a, b]]},
    ...  delivery: {replication: {replicas: 3, brokers: [b]}}}
    ... '''))
    >>> [None if group is None else group.replicas for group in groups_of(system)]
    [None, 3]
    """
    names, brokers = system.delivery.replication.brokers, system.overlay.brokers
    if not is_replicated(system):
        return (None,) * len(brokers)
    return tuple(group_of(system, i) if not names or broker.name in names else None for i, broker in enumerate(brokers))


def group_of(system: System, broker: int) -> Group:
    """Returns the group of replicas of a broker that is one.

    >>> from surecast.scenario import build, parse_text
    >>> system = build(parse_text('''
    ... {surecast: 1, name: one, overlay: {brokers: [{name: b}]}, delivery: {replication: {replicas: 5, sync: 2ms}}}
    ... '''))
    >>> group = group_of(system, 0)
    >>> group.replicas, group.sync_s, group.failures
    (5, 0.002, None)
    """
    replication, part = system.delivery.replication, system.overlay.brokers[broker]
    return Group(
        replicas=replication.replicas,
        variant=replication.variant,
        window=replication.window,
        entry=replication.entry,
        delay_s=replication.delay,
        sync_s=replication.sync if replication.durable else 0.0,
        suspect_s=replication.suspect,
        repair=replication.repair,
        costs=GroupCosts(
            replication.instance_cost,
            replication.peer_cost,
            replication.publication_cost,
            replication.follower_instance_cost,
            replication.follower_publication_cost,
        ),
        service=part.notification_service,
        failures=part.failures,
    )
