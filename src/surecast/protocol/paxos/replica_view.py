"""A replica as others see it, without changing it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from surecast.protocol.paxos.admission import Admission
from surecast.protocol.paxos.agreement import Agreement
from surecast.protocol.paxos.catch_up import CatchUp
from surecast.protocol.paxos.leader import Leader
from surecast.protocol.paxos.node import Node
from surecast.protocol.paxos.submissions import Submissions

__all__ = ["ReplicaStatus", "ReplicaView"]


class ReplicaStatus(NamedTuple):
    """The figures of a replica; `surecast.broker.replica.NodeStatus` says what each of them means.

    `silent_s` says how long nothing has come from each replica that was ever heard.
    """

    voting: bool
    ballot: int
    applied: int
    chosen: int
    hash: str
    queue_bytes: int
    clock_ahead_s: float | None
    late_s: float
    counts: Mapping[str, int]
    blank: bool
    snapshot_bytes: int
    snapshot_size: int
    effects: str
    compared: int
    verified: int
    verified_hash: str
    alarm: str
    known: tuple[int, ...]
    silent_s: Mapping[int, float]


class ReplicaView(Node):
    """A replica as its shell sees it; `Replica` has these parts."""

    leader: Leader
    agreement: Agreement
    admission: Admission
    catch_up: CatchUp
    submissions: Submissions

    @property
    def incarnation(self) -> int:
        """The number of its start."""
        return self.submissions.number >> 32

    @property
    def is_joining(self) -> bool:
        """Returns whether it does not vote, or has no state yet."""
        return self.blank or not self.voting

    @property
    def log_time_us(self) -> int:
        """The time of the last entry applied."""
        return self.machine.context.time_us

    @property
    def known_leader(self) -> int:
        """The replica that leads, as far as this one knows; 0 where it has not heard of one lately."""
        if self.leader.leads:
            return self.id
        return self.leader_id if self.leader_alive() else 0

    def alive(self, replicas: Iterable[int]) -> list[int]:
        """Those that are not suspected."""
        return self.detector.alive(replicas, self.now)

    @property
    def hash(self) -> bytes:
        """The running hash of all that was applied: equal on all replicas that applied equally much."""
        return self.machine.hash

    @property
    def leads(self) -> bool:
        """Returns whether this replica leads, as far as it knows."""
        return self.leader.leads

    def time_us(self, now: float | None = None) -> int | None:
        """The group's time, for stamps of entries; None while the clocks of too few members are known."""
        return self.clocks.time_us(self.machine.context.time_us, self.now if now is None else now)

    def status(self, now: float) -> ReplicaStatus:
        """Returns all figures."""
        machine, agreement = self.machine, self.agreement
        snapshot_bytes, snapshot_size = self.catch_up.transfer.progress
        verified, verified_hash = machine.verified
        return ReplicaStatus(
            voting=self.voting,
            ballot=self.leader.ballot if self.leads else self.leader_ballot,
            applied=self.applied,
            chosen=max(self.applied, self.target),
            hash=self.hash.hex(),
            queue_bytes=self.submissions.bytes + self.leader.queue_bytes,
            clock_ahead_s=self.clocks.ahead_s(),
            late_s=self.late_s,
            counts=dict(self.counts),
            blank=self.blank,
            snapshot_bytes=snapshot_bytes,
            snapshot_size=snapshot_size,
            effects=machine.effects.hex(),
            compared=agreement.compared,
            verified=verified,
            verified_hash=verified_hash.hex(),
            alarm=agreement.alarm,
            known=tuple(sorted(self.admission.starts)),
            silent_s={one: round(max(0.0, now - at_s), 3) for one, at_s in self.detector.heard_s.items()},
        )
