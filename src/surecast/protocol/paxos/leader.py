"""The proposer: asks for promises, proposes, and counts votes."""

from __future__ import annotations

from collections.abc import Container
from enum import Enum

from surecast.protocol.paxos.log_values import NOOP, Segment, join_segments
from surecast.protocol.paxos.node import Node
from surecast.protocol.paxos.pacing import Instance, Pacing
from surecast.protocol.paxos.paxos_messages import Accept, Accepted, Chosen, Prepare, Promise
from surecast.protocol.paxos.quorums import Vote, pick_value

__all__ = ["Leader", "Stage"]


class Stage(Enum):
    """The stages on the way to lead."""

    IDLE = "idle"
    PREPARING = "preparing"
    LEADING = "leading"


class Leader(Pacing):
    """The state of one ballot of this replica, and the requests waiting for an instance.

    When it proposes is in `pacing`.
    """

    def __init__(self, node: Node):
        super().__init__(node)
        self.stage = Stage.IDLE
        self.ballot = 0
        self.promises: dict[int, Promise] = {}
        self.reports: dict[int, dict[int, Vote]] = {}
        self.constrained = 0
        self.decided: set[int] = set()  # instances that votes in this ballot chose, not yet applied
        self.peers_applied: dict[int, int] = {}
        self.held: set[tuple[int, int]] = set()
        self.asked_s = 0.0

    def prepare(self, ballot: int) -> None:
        """Phase 1a. The own ballot is durable before anyone hears of it, so that it is never used twice."""
        node = self.node
        self._turn_to(Stage.PREPARING)
        self.ballot, self.asked_s = ballot, node.now
        self._clear()
        node.acceptor.promise(ballot)
        for other in node.others():
            node.send_after(other, Prepare(ballot))
        node.send_after(node.id, Promise(ballot, node.applied, node.acceptor.after(node.applied)))

    def step_down(self) -> None:
        """Proposes no more. Whoever sent requests will send them to the next leader."""
        self._turn_to(Stage.IDLE)
        self._clear()
        if self.node.leader_id == self.node.id:
            self.node.leader_id = 0

    def _turn_to(self, stage: Stage) -> None:
        self.stage, self.leads = stage, stage is Stage.LEADING

    def _clear(self) -> None:
        self.promises.clear()
        self.reports.clear()
        self.instances.clear()
        self.decided.clear()
        self.peers_applied.clear()
        self.queue.clear()
        self.held.clear()
        self.queue_bytes = 0
        self._flushes = False
        self._deciding = set()
        self.lazy = []

    def on_promise(self, sender: int, message: Promise) -> None:
        """Collects phase 1b."""
        if self.stage is Stage.PREPARING and message.ballot == self.ballot:
            self.promises[sender] = message
            self.node.aim(message.applied, sender)

    def try_to_lead(self) -> bool:
        """Leads as soon as majorities of all configurations in force promised and all they know as chosen is applied.

        Then every promise has told all its votes after the last instance applied here.
        """
        node = self.node
        if self.stage is not Stage.PREPARING or not node.membership.has_quorums(self.promises):
            return False
        if node.applied < max(promise.applied for promise in self.promises.values()):
            return False
        self._turn_to(Stage.LEADING)
        for sender, promise in self.promises.items():
            self.reports[sender] = {slot: (ballot, value) for slot, ballot, value in promise.votes}
            self.peers_applied[sender] = promise.applied
        self.constrained = max((max(report, default=0) for report in self.reports.values()), default=0)
        self.next_slot = node.applied + 1
        self.notified = -1
        return True

    def enqueue(self, segment: Segment) -> None:
        """Takes requests, each segment once, as many as the queue holds; the origin of the others comes again."""
        key = segment.key
        if key in self.held:
            return
        if self.queue_bytes + segment.size > self.node.settings.queue_bytes_max:
            self.node.count("requests beyond the leader's queue")
            return
        self.held.add(key)
        self.queue.append(segment)
        self.queue_bytes += segment.size

    def return_to_queue(self, segment: Segment) -> None:
        """Takes requests back that lost a fast instance."""
        if self.leads and segment.key in self.held:
            self.queue.appendleft(segment)
            self.queue_bytes += segment.size

    def take_batch(self) -> list[Segment]:
        """As many waiting segments as go into one value."""
        segments: list[Segment] = []
        size = 0
        while self.queue and (not segments or size + self.queue[0].size <= self.node.settings.value_bytes_max):
            segment = self.queue.popleft()
            size += segment.size
            segments.append(segment)
        self.queue_bytes -= size
        return segments

    @property
    def is_bound(self) -> bool:
        """Returns whether instances follow that are not for what waits: of an earlier ballot, or to end a change."""
        return self.constrained > self.node.applied or len(self.node.membership.configurations) > 1

    def pump(self, stamp_us: int | None, fast: bool) -> None:
        """Proposes what can be proposed: first what earlier ballots may have chosen, then what waits.

        What waits needs a stamp. Without one, while the clocks of too few members are known, it waits on: entries that
        were stamped too early would expire too early as soon as the time is known.
        """
        node, settings = self.node, self.node.settings
        membership, applied = node.membership, node.applied  # nothing is applied here
        if self.next_slot <= applied:
            self.next_slot = applied + 1
        while (slot := self.next_slot) <= applied + settings.alpha:
            if slot <= self.constrained:
                value = self._constraint(slot)
            elif fast or slot > applied + self._window:
                return
            elif self.queue and stamp_us is not None:
                if self.instances and (self.proposes_at() or 0.0) > node.now:
                    return
                value = join_segments(stamp_us, self.take_batch())
            elif len(membership.configurations) > 1 and slot < membership.configurations[-1].since:
                value = NOOP  # nothing waits, but a change of the membership does
            else:
                return
            self.next_slot = slot + 1
            self.propose(slot, value)

    def _constraint(self, slot: int) -> bytes:
        ids = self.node.membership.at(slot).ids
        votes = {sender: report.get(slot) for sender, report in self.reports.items() if sender in ids}
        return pick_value(votes, len(ids)) or NOOP

    def notify_commit(self, message: Chosen) -> None:
        """Sends a commit notification: how far instances are chosen."""
        self.notified = message.applied
        for other in self.node.others():
            self._send_or_delay(other, message, 0)

    def propose(self, slot: int, value: bytes) -> None:
        """Phase 2a. The others may hear of it before it is stored here; the own vote counts when it is stored."""
        node = self.node
        self._gap_s, self._proposed_s = node.now - self._proposed_s, node.now
        self._proposed_bytes = len(value)
        self._flushes = False
        self.instances[slot] = Instance(value, node.now)
        chosen = node.applied
        while chosen + 1 in self.decided:
            chosen += 1
        self._send_accept(Accept(self.ballot, slot, chosen, value), {node.id})
        node.acceptor.accept(self.ballot, slot, value)
        node.acknowledge(self.ballot, slot)
        self.notified = max(self.notified, chosen)

    def _send_accept(self, message: Accept, without: Container[int]) -> None:
        """Sends a proposal to all who vote but some, and those too far behind: they have to catch up first."""
        slot, size, known = message.slot, len(message.value), self.peers_applied
        for replica in self.node.membership.at(slot).ids:
            if replica in without:
                continue
            if slot - known.get(replica, slot) > self.node.settings.vote_window:
                self.node.count("proposals held back from a slow replica")
            else:
                self._send_or_delay(replica, message, size)

    def on_accepted(self, sender: int, message: Accepted) -> None:
        """Counts phase 2b: a value with a majority is chosen."""
        if not self.leads or message.ballot != self.ballot:
            return
        self.peers_applied[sender] = max(message.applied, self.peers_applied.get(sender, 0))
        at = self.node.membership.at
        for slot in message.slots:
            instance = self.instances.get(slot)
            if instance is None:
                continue
            instance.acks.add(sender)
            if slot > self.node.applied and at(slot).has_quorum(instance.acks):
                self.node.chosen[slot] = instance.value
                self.decided.add(slot)
                del self.instances[slot]
                if instance.acks != self._deciding:
                    self._deciding = instance.acks
                    self.send_lazy()

    def applied(self, slot: int, value: bytes, keys: list[tuple[int, int]]) -> None:
        """An instance is decided and applied.

        Where another value is chosen than was proposed, a later ballot chose it. Whoever voted here for the other one
        must not hear from this leader that the instance is chosen: it would take its own vote for the chosen value.
        """
        instance = self.instances.pop(slot, None)
        self.decided.discard(slot)
        self.held.difference_update(keys)
        if instance is not None and instance.value != value:
            self.step_down()

    def jumped(self) -> None:
        """A snapshot took the place of instances: whether a proposal for one of them was chosen is not known."""
        if any(slot <= self.node.applied for slot in self.instances):
            self.step_down()

    def tick(self) -> None:
        """Sends again what was not answered; a leader that hears no majority gives up."""
        node = self.node
        if self.stage is Stage.PREPARING and node.now - self.asked_s >= node.settings.resend_s:
            self.asked_s = node.now
            for other in node.others():
                if other not in self.promises:
                    node.send_after(other, Prepare(self.ballot))
        elif self.leads:
            alive = [node.id, *node.detector.alive(node.others(), node.now)]
            if not node.membership.has_quorums(alive):
                self.step_down()
                return
            self._resend()

    def _resend(self) -> None:
        node = self.node
        for slot in [slot for slot in self.instances if slot <= node.applied]:
            del self.instances[slot]
        for slot, instance in self.instances.items():
            if node.now - instance.sent_s < node.settings.resend_s:
                continue
            instance.sent_s = node.now
            self._send_accept(Accept(self.ballot, slot, node.applied, instance.value), {*instance.acks, node.id})
