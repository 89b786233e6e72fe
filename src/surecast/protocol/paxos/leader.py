"""The proposer: asks for promises, proposes, and counts votes."""

from __future__ import annotations

from collections import deque
from enum import Enum

from surecast.protocol.paxos.log_values import NOOP, Segment, join_segments
from surecast.protocol.paxos.node import Node
from surecast.protocol.paxos.paxos_messages import Accept, Accepted, Chosen, Prepare, Promise
from surecast.protocol.paxos.quorums import Vote, pick_value

__all__ = ["Instance", "Leader", "Stage"]

_INTERVAL_STORES = 3.0
"""The proposal interval is at least so many times what it takes to store a value and to apply what is chosen before."""
_FLUSH_BYTES = 8 << 10
"""So much is worth an instance of its own while another one is in flight."""
_LARGE_BYTES = 36 << 10
_LARGE_INTERVAL = 0.6
"""After an instance that was worth haste and is chosen, fewer bytes than these wait for this share of the space."""
_SMOOTHING = 0.1
"""Weight of the newest in the mean of the times that storing took."""
_URGENT_S = 1.0
"""How long a replica stays urgent after it said that a client waits there."""


class Stage(Enum):
    """How far a replica is on its way to lead."""

    IDLE = "idle"
    PREPARING = "preparing"
    LEADING = "leading"


class Instance:
    """A proposal in flight."""

    __slots__ = ("acks", "sent_s", "value")

    def __init__(self, value: bytes, sent_s: float):
        self.value = value
        self.acks: set[int] = set()
        self.sent_s = sent_s


class Leader:
    """The state of one ballot of this replica, and the requests waiting for an instance.

    `leads` is whether it may propose: no property, as it is asked several times for every message.
    """

    def __init__(self, node: Node):
        self.node = node
        self.stage = Stage.IDLE
        self.leads = False
        self.ballot = 0
        self.promises: dict[int, Promise] = {}
        self.reports: dict[int, dict[int, Vote]] = {}
        self.constrained = 0
        self.next_slot = 1
        self.instances: dict[int, Instance] = {}
        self.decided: set[int] = set()  # instances that votes in this ballot chose, not yet applied
        self.peers_applied: dict[int, int] = {}
        self.queue: deque[Segment] = deque()
        self.queue_bytes = 0
        self.held: set[tuple[int, int]] = set()
        self.asked_s = 0.0
        self.notified = 0
        self._proposed_s = 0.0
        self._proposed_bytes = 0
        self._flushes = False
        self._gap_s = 0.0
        self._store_s = 0.0
        self._urgent_until_s: dict[int, float] = {}
        self._deciding: set[int] = set()
        self._lazy: list[tuple[int, Accept | Chosen]] = []
        self._lazy_since_s = 0.0
        self._lazy_bytes = 0

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
        self._lazy = []

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

    def proposes_at(self) -> float | None:
        """When what waits may go into an instance; None where nothing waits, or as many are in flight as may be."""
        node, settings = self.node, self.node.settings
        if not self.queue or self.stage is not Stage.LEADING or self.next_slot > node.applied + settings.window:
            return None
        if not node.clocks.are_known:
            return None
        if not self.instances or self._flushes or self.queue_bytes >= settings.value_bytes_max:
            return node.now
        return self._proposed_s + self._proposal_interval_s()

    def batching_delay_until(self, size: int) -> float | None:
        """Returns the time until which to delay a batch of `size` bytes, or None to submit it now.

        Before that they would wait here, or cost less together with more. They should where they may be proposed at
        once, where others wait already, and where this replica does not lead.
        """
        settings = self.node.settings
        if (
            self.queue
            or self._flushes
            or self.stage is not Stage.LEADING
            or size >= settings.value_bytes_max
            or settings.variant == "fast"
        ):
            return None
        if self.instances:
            proposal_interval_s = self._proposal_interval_s()
        elif self._proposed_bytes >= _FLUSH_BYTES and size < _LARGE_BYTES:
            # Where much is in flight, fewer and larger instances cost less.
            proposal_interval_s = _LARGE_INTERVAL * settings.proposal_interval_s
        else:
            return None
        until_s = self._proposed_s + proposal_interval_s
        return until_s if until_s > self.node.now else None

    def may_flush(self, size: int) -> bool:
        """Returns whether so many bytes are worth an instance beside the one in flight, where nothing else is to do."""
        within = self.next_slot <= self.node.applied + self.node.settings.window
        return size >= _FLUSH_BYTES and len(self.instances) < 2 and within and self.leads

    def flush(self) -> None:
        """Proposes what waits without a batching delay."""
        self._flushes = True

    def _proposal_interval_s(self) -> float:
        """Time between proposals while one is in flight.

        Storing holds up the votes that are due meanwhile: where it takes long, the next proposal leaves them time.
        """
        proposal_interval_s = self.node.settings.proposal_interval_s
        return max(proposal_interval_s, _INTERVAL_STORES * self._store_s) if proposal_interval_s else 0.0

    def stored_in(self, time_s: float) -> None:
        """The records of a turn took so long to be stored."""
        self._store_s += _SMOOTHING * (max(0.0, time_s) - self._store_s)

    def commit_notification_at(self) -> float | None:
        """Returns when a commit notification of its own is due; None where proposals have said it."""
        if self.stage is not Stage.LEADING or self.notified >= self.node.applied:
            return None
        commit_notification_s = self.node.settings.commit_notification_s
        return (
            self._proposed_s + commit_notification_s
            if self._gap_s < commit_notification_s and self.notified >= 0
            else self.node.now
        )

    def wake_s(self) -> float | None:
        """Returns when the first of its timers is due; None where none runs."""
        first_s = self.commit_notification_at() if self.notified < self.node.applied else None
        if self.queue and (at_s := self.proposes_at()) is not None and (first_s is None or at_s < first_s):
            first_s = at_s
        if self._lazy and (at_s := self.lazy_due_at()) is not None and (first_s is None or at_s < first_s):
            first_s = at_s
        return first_s

    def enqueue(self, segment: Segment) -> None:
        """Takes requests, each segment once, as many as the queue holds; the origin of the others comes again."""
        key = segment.key
        if key in self.held:
            return
        if self.node.machine.cached(segment) is not None:
            self.node.count("requests applied before")  # P2S Algorithm 1, line 23; the origin has or gets the replies
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
            elif fast or slot > applied + settings.window:
                return
            elif self.queue and stamp_us is not None:
                if self.instances and (self.proposes_at() or 0.0) > node.now:
                    return
                value = join_segments(stamp_us, self.take_batch())
            elif membership.changes and slot < membership.configurations[-1].since:
                value = NOOP  # nothing waits, but a change of the membership does
            else:
                return
            self.next_slot = slot + 1
            self.propose(slot, value)

    def _constraint(self, slot: int) -> bytes:
        ids = self.node.membership.at(slot).ids
        votes = {sender: report.get(slot) for sender, report in self.reports.items() if sender in ids}
        return pick_value(votes, len(ids)) or NOOP

    def mark_urgent(self, replica: int) -> None:
        """A client waits at another replica for what is chosen: for a while it is sent everything at once."""
        if self._is_lazy(replica):
            self.send_lazy()  # it has to apply first what it was not told yet
        self._urgent_until_s[replica] = self.node.now + _URGENT_S

    def _is_lazy(self, replica: int) -> bool:
        """Returns whether a proposal to a replica may wait: others decided the last one, and no client waits there.

        Whoever decides the next instance is never among them; in the fast variant all do. Where one that decided is
        down, the others hear of the proposal `lazy_delay_s` later, and decide from then on.
        """
        settings = self.node.settings
        if not settings.lazy_delay_s or not self._deciding or replica in self._deciding or settings.variant == "fast":
            return False
        return self._urgent_until_s.get(replica, 0.0) <= self.node.now

    def _send_or_delay(self, replica: int, message: Accept | Chosen, size: int) -> None:
        if not self._is_lazy(replica):
            self.node.send(replica, message)
            return
        if not self._lazy:
            self._lazy_since_s, self._lazy_bytes = self.node.now, 0
        self._lazy.append((replica, message))
        self._lazy_bytes += size

    def lazy_due_at(self) -> float | None:
        """Returns when the delayed messages are due; None where there are none."""
        if not self._lazy:
            return None
        settings = self.node.settings
        return (
            self._lazy_since_s + settings.lazy_delay_s if self._lazy_bytes < settings.value_bytes_max else self.node.now
        )

    def send_lazy(self) -> None:
        """Sends the delayed messages."""
        lazy, self._lazy = self._lazy, []
        for replica, message in lazy:
            self.node.send(replica, message)

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
        message = Accept(self.ballot, slot, chosen, value)
        for replica in node.membership.at(slot).ids:
            if replica != node.id:
                self._send_accept(replica, message)
        node.acceptor.accept(self.ballot, slot, value)
        node.acknowledge(self.ballot, slot)
        self.notified = max(self.notified, chosen)

    def _send_accept(self, replica: int, message: Accept) -> None:
        """Sends a proposal unless the replica is too far behind: then it has to catch up first."""
        known = self.peers_applied.get(replica, message.slot)
        if message.slot - known > self.node.settings.vote_window:
            self.node.count("proposals held back from a slow replica")
        else:
            self._send_or_delay(replica, message, len(message.value))

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
            message = Accept(self.ballot, slot, node.applied, instance.value)
            for replica in node.membership.at(slot).ids:
                if replica not in instance.acks and replica != node.id:
                    self._send_accept(replica, message)
