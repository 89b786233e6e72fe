"""One replica of a replicated state machine: messages and ticks in, turns out.

replica = Replica(1, handler, members=[1, 2, 3], records=store.items())
replica.receive(sender, message, now)   # or submit(...), or tick(now); as many as there are
turn = replica.take()                   # send turn.messages and turn.replies
store.commit(turn.records)              # then send turn.after
replica.synced(turn.number, now)        # and take the next turn
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from surecast.protocol.paxos import paxos_messages as m
from surecast.protocol.paxos.admission import Admission
from surecast.protocol.paxos.agreement import Agreement
from surecast.protocol.paxos.ballots import owner_of
from surecast.protocol.paxos.catch_up import CatchUp
from surecast.protocol.paxos.clocks import Clocks
from surecast.protocol.paxos.election import Election
from surecast.protocol.paxos.fast_coordinator import FastCoordinator
from surecast.protocol.paxos.fast_track import FastTrack
from surecast.protocol.paxos.handler import Handler
from surecast.protocol.paxos.incarnations import STARTS_KEPT, Incarnation
from surecast.protocol.paxos.journal import Restored, read_records
from surecast.protocol.paxos.leader import Leader, Stage
from surecast.protocol.paxos.learner import Learner
from surecast.protocol.paxos.log_values import Request, Segment, check_requests
from surecast.protocol.paxos.machine import VERIFY, Answer, Machine, Observer
from surecast.protocol.paxos.membership import CONFIGURATION_CLIENT, Membership, replace_command
from surecast.protocol.paxos.node import Node, Turn
from surecast.protocol.paxos.paxos_settings import PaxosSettings
from surecast.protocol.paxos.replica_view import ReplicaView
from surecast.protocol.paxos.snapshots import Shelf, Snapshots
from surecast.protocol.paxos.submissions import Submissions
from surecast.protocol.paxos.voter import Voter

__all__ = ["Replica"]

_CHOSEN_EVERY = 16
"""How many instances are applied before it is stored again how far they are known to be chosen."""
_INTRODUCTIONS = frozenset((m.Rejoin, m.Admit, m.Refuse))
"""The messages that a replica may send before it is admitted."""
_LATE = 0.5
"""A replica that had no turn for this share of `suspect_s` did not run: it is ticked several times in a heartbeat."""


class Replica(ReplicaView):
    """A founder (`token` 0), a replica that joins later (any other token, drawn at random), or one that starts again.

    `members` are the founders; for a replica that joins, whom to ask. `records` is what the store holds: where it holds
    this replica's state, that counts, and not `members`. A replica that lost its store must not start again under its
    number: it is replaced by a new one (`replace`). So a founder begins with an empty store only where it `founds`.
    `start` is drawn at random at each start: by it the others notice a store that was set back (see `admission`); with
    0 nobody checks. `seed` varies the waits of the election. `epoch_s` is how far the wall clock of this replica is
    ahead of `now`; the shell tells `clocks` when that changes. `observer` is told of every instance applied. `shelf` is
    where the shell has snapshots that it writes beside the replica.
    """

    def __init__(
        self,
        replica: int,
        handler: Handler,
        members: Iterable[int],
        settings: PaxosSettings | None = None,
        records: Iterable[tuple[bytes, bytes]] = (),
        token: int = 0,
        start: int = 0,
        founds: bool = True,
        seed: int = 0,
        now: float = 0.0,
        epoch_s: float = 0.0,
        observer: Observer | None = None,
        shelf: Shelf | None = None,
    ):
        settings = settings or PaxosSettings()
        found = read_records(records)
        members = found.members if found.replica else tuple(members)
        token = found.token if found.replica else token
        found.check(replica, token, members, founds)
        machine = Machine(handler, Membership.founding(members, settings.alpha), settings, observer)
        self.clocks = Clocks(replica, epoch_s, now)
        self.node = node = Node(replica, token, settings, machine, seed, self.clocks)
        node.now = now
        self.track = FastTrack(node)
        self.leader = Leader(node)
        self.coordinator = FastCoordinator(node, self.leader, self.track)
        self.voter = Voter(node, self.track)
        self.election = Election(node)
        self.catch_up = CatchUp(node)
        self.snapshots = Snapshots(node, self.catch_up.transfer, shelf)
        self.agreement = Agreement(node, self._discard)
        self.submissions = Submissions(node, found.incarnation + 1)
        self.learner = Learner(
            node,
            self.leader,
            self.track,
            self.coordinator,
            self.submissions,
            self.snapshots,
            self._membership_changed,
        )
        self.urgent = False
        """Whether somebody waits at this replica for what is chosen: then the leader lets it know at once."""
        self._number = 0
        self._own: dict[int, list[m.Message]] = {}
        self._heartbeat_s = now
        self._awake_s = now
        self._late_s = _LATE * settings.suspect_s
        self._stored_chosen = found.chosen
        self._storing: tuple[int, float, int, int] | None = None
        self._want_more = False
        self._unsettled = True
        self._strangers: set[int] = set()
        incarnation = Incarnation(
            found.incarnation + 1, (start, *found.starts)[:STARTS_KEPT], found.promised, found.voted
        )
        node.journal.identity(replica, token, members)
        node.journal.incarnations(incarnation.number, incarnation.starts)
        self._restore(found)
        self.admission = Admission(node, incarnation, found.seen)
        self._starts = self.admission.starts  # local alias: it is looked up for every message
        self._check_voting()
        self.election.rest()
        self._handlers: dict[type, Callable[[int, Any], None]] = {
            m.Heartbeat: self._on_heartbeat,
            m.PreVote: self.election.on_pre_vote,
            m.Grant: self._on_grant,
            m.Prepare: self._on_prepare,
            m.Promise: self._on_promise,
            m.Reject: self._on_reject,
            m.Accept: self._on_accept,
            m.Accepted: self._on_accepted,
            m.Chosen: self._on_chosen,
            m.Propose: self._on_propose,
            m.Voted: self._on_voted,
            m.Close: self._on_close,
            m.Closed: self.coordinator.on_closed,
            m.Forward: self._on_forward,
            m.Fetch: self._on_fetch,
            m.Entries: self._on_entries,
            m.SnapshotPart: self._on_part,
            m.Checkpoint: self.agreement.on_checkpoint,
            m.Rejoin: self.admission.on_rejoin,
            m.Admit: self.admission.on_admit,
            m.Refuse: self.admission.on_refuse,
        }

    def _restore(self, found: Restored) -> None:
        node = self.node
        if found.snapshot_slot or found.pieces:
            self.snapshots.resume(found)
        else:
            node.blank = node.token != 0
        node.acceptor.promised = found.promised
        node.acceptor.votes = found.votes
        node.acceptor.closed = found.closed
        node.see(found.promised)
        node.target = found.chosen
        while node.applied < found.chosen and (voted := found.votes.get(node.applied + 1)) is not None:
            self.snapshots.log_bytes += len(voted[1])
            node.apply(voted[1], 0)
        if node.applied == found.chosen:
            self.agreement.replayed(node.applied, found.effects)
        node.acceptor.highest = found.voted
        node.stored = (found.promised, found.voted)
        node.clocks.settle(node.membership.configurations, node.now)

    # What goes in

    def meet(self, sender: int, now: float) -> None:
        """Another replica has connected anew: its silence before says nothing about how slow it is."""
        self.node.detector.meet(sender, now)

    def take_notices(self) -> list[tuple[str, str]]:
        """What an operator should know of since the last call: a kind and a text each."""
        told = [("agreement", line) for line in self.agreement.notices]
        told += [("admission", line) for line in self.admission.notices]
        self.agreement.notices.clear()
        self.admission.notices.clear()
        return told

    def submit(self, requests: Sequence[Request] | bytes, now: float) -> int:
        """Takes requests of clients, one by one or packed by `pack_requests`.

        Returns the number under which the replies will come out of a turn. OverloadError where too many wait.
        """
        self.node.now = now
        if isinstance(requests, bytes):
            check_requests(requests)
        return self.submissions.submit(requests)

    def replace(self, old: int, new: int, token: int, now: float) -> int:
        """Asks for a change of the membership: a new replica, created with this token, replaces an old one."""
        return self.submit([(CONFIGURATION_CLIENT, 0, replace_command(old, new, token))], now)

    def verify(self, now: float) -> int:
        """Asks that all replicas hash their whole state, at one instance: the reply is `+` and its number."""
        return self.submit([(CONFIGURATION_CLIENT, 0, VERIFY)], now)

    def receive(self, sender: int, message: m.Message, now: float, start: int = 0) -> None:
        """Takes a message of another replica, which drew this number at its start.

        HistoryError where this replica must not go on: another one remembers more of it than it does.
        """
        node = self.node
        node.now = now
        if now - self._awake_s > self._late_s:
            self._excuse()
        if self._starts.get(sender, 0) != start and type(message) not in _INTRODUCTIONS:
            node.count("messages of starts that were not admitted")
            return
        node.detector.hear(sender, now)
        self._handlers[type(message)](sender, message)
        self._unsettled = True

    # When requests are handed in

    def batching_delay_until(self, size: int, now: float) -> float | None:
        """Returns the time until which to delay requests of `size` bytes, or None to submit them now."""
        self.node.now = now
        return self.leader.batching_delay_until(size)

    def flush(self, now: float) -> None:
        """Proposes what waits, and what is submitted in this turn, without a batching delay."""
        self.node.now = now
        self.leader.flush()

    def wake_at(self, now: float) -> None:
        """It is so late now: what was to wait until then waits no longer."""
        self.node.now = now

    def tick(self, now: float) -> None:
        """Time has passed. Call it several times in each `heartbeat_s`, whether anything happened or not."""
        node = self.node
        node.now = now
        if now - self._awake_s > self._late_s:
            self._excuse()
        self._awake_s = now
        if now - self._heartbeat_s >= node.settings.heartbeat_s or now < self._heartbeat_s:
            self._heartbeat_s = now
            for other in (*node.others(), *sorted(self._strangers)):
                node.send(other, self._heartbeat(other))
            self._strangers.clear()
            self.agreement.tick()
        node.clocks.settle(node.membership.configurations, now)
        self.leader.tick()
        self.catch_up.tick()
        self.submissions.tick()
        self.admission.tick()
        if self.admission.settle():
            self._check_voting()
        if self.leader.leads:
            node.leader_heard_s = now
            self.election.rest()
        elif node.voting and now >= self.election.deadline_s:
            self._seek()
        self._unsettled = True

    def _excuse(self) -> None:
        """This replica did not run for a while: what that did to its view of the others is undone."""
        node = self.node
        late_s = node.now - self._awake_s - node.settings.heartbeat_s
        self._awake_s = node.now
        node.excuse(late_s)
        self.election.excuse(late_s)
        self.admission.excuse(late_s)

    def _seek(self) -> None:
        """No leader was heard of for long enough."""
        if self.node.candidate_alive():
            self.election.rest()
            return
        self.leader.step_down()
        if self.election.ask_for_pre_votes():
            self._campaign()

    def synced(self, number: int, now: float) -> None:
        """The records of all turns up to this one are durable."""
        node = self.node
        if self._storing is not None and number >= self._storing[0]:
            self.leader.stored_in(now - self._storing[1])
            node.stored = self._storing[2:]
            self._storing = None
        node.now = now
        node.started = True
        if self._own:
            for turn in sorted(turn for turn in self._own if turn <= number):
                for message in self._own.pop(turn):
                    self._handlers[type(message)](node.id, message)
            self._unsettled = True
        if self._unsettled:
            self._settle()

    def apply_chosen(self) -> list[tuple[int, list[Answer]]]:
        """Applies what is known to be chosen; the replies may go at once.

        For a shell that has something better to do between sending the messages of a turn and storing its records.
        """
        if self._unsettled:
            self._settle()
        return self.learner.take_replies()

    @property
    def has_more(self) -> bool:
        """Whether the next turn may have something in it."""
        node, leader = self.node, self.leader
        return bool(
            self._unsettled
            or node.after
            or node.messages
            or node.acks
            or node.to_self
            or node.journal.records
            or self.learner.replies
            or self._want_more
            or self.submissions.fresh
            or (leader.queue and node.settings.variant == "fast")
            or ((wake_s := self.wake_s) is not None and wake_s <= node.now)
        )

    @property
    def wake_s(self) -> float | None:
        """When a turn is needed though nothing may have arrived; None where a tick is early enough."""
        return self.leader.wake_s() if self.leader.leads else None

    def take(self) -> Turn:
        """All that came out since the last turn.

        What is known to be chosen is applied first, except where somebody waits for a vote or a proposal of this turn:
        then it is applied when that is on its way, by `apply_chosen` or `synced`.
        """
        node = self.node
        if self.submissions.fresh:
            self._dispatch()
        leader = self.leader
        leads = leader.leads
        if leads and self._unsettled and leader.queue:
            self._lead()
        if self._unsettled and not node.acks:
            self._settle()
            leads = leader.leads
            if self.submissions.fresh:
                self._dispatch()
        if leads:
            self._lead()
        if node.acks:
            node.flush_acks()
        if self._want_more:
            self._want_more = False
            self.catch_up.ask()
        if node.journal.records and node.applied >= self._stored_chosen + _CHOSEN_EVERY:
            self._store_chosen()  # nothing rests on it but a quicker start: it is not worth a commit of its own
        self._number += 1
        if node.to_self:
            self._own[self._number], node.to_self = node.to_self, []
        if node.journal.records and self._storing is None:
            self._storing = (self._number, node.now, node.acceptor.promised, node.acceptor.highest)
        messages, node.messages = node.messages, []
        after, node.after = node.after, []
        return Turn(self._number, node.journal.take(), messages, after, self.learner.take_replies())

    # What happens in between

    def _store_chosen(self) -> None:
        self._stored_chosen = self.node.applied
        self.node.journal.chosen(self.node.applied, self.node.machine.effects)

    def _heartbeat(self, to: int) -> m.Heartbeat:
        leads = self.leader.leads
        ballot = self.leader.ballot if leads else self.node.acceptor.promised
        first, last = self.coordinator.first, self.coordinator.last
        told = (*self.node.stored, *self.node.clocks.shown(to, self.node.now))
        return m.Heartbeat(ballot, leads, self.node.applied, first, last, self.urgent, *told)

    def _dispatch(self) -> None:
        """Requests go into the own queue, to the acceptors or to the leader (P2S Algorithm 1, lines 22 to 26)."""
        node, settings = self.node, self.node.settings
        self.learner.answer_known()
        direct = settings.variant == "fast" and settings.allow_direct
        while self.submissions.fresh:
            if self.leader.leads:
                for segment in self.submissions.take(settings.queue_bytes_max):
                    self.leader.enqueue(segment)
            elif (
                direct
                and node.voting
                and node.leader_alive()
                and (stamp_us := self.time_us()) is not None
                and (slot := self.track.free_slot())
            ):
                taken = self.submissions.take(settings.value_bytes_max)
                self.voter.on_propose(self.track.propose(slot, taken, stamp_us))
            elif node.leader_alive() and node.leader != node.id and node.started:
                self.submissions.forward(node.leader)
            else:
                return

    def _lead(self) -> None:
        node, leader = self.node, self.leader
        stamp_us = node.clocks.time_us(node.machine.context.time_us, node.now)
        fast = self.coordinator.is_open()
        while fast and leader.queue and stamp_us is not None and (slot := self.track.free_slot()):
            self.voter.on_propose(self.track.propose(slot, leader.take_batch(), stamp_us))
        leader.pump(stamp_us, fast)
        if node.settings.variant == "fast":
            last = self.coordinator.last
            self.coordinator.settle()
            self.coordinator.extend()
            if self.coordinator.last > last:
                leader.notified = -1
        if (notifies_s := leader.commit_notification_at()) is not None and notifies_s <= node.now:
            leader.notify_commit(m.Chosen(leader.ballot, node.applied, self.coordinator.first, self.coordinator.last))
        if (lazy_due_s := leader.lazy_due_at()) is not None and lazy_due_s <= node.now:
            leader.send_lazy()

    def _settle(self) -> None:
        """Applies whatever is known to be chosen, and leads where enough have promised."""
        self._unsettled = False
        self.learner.learn()
        if self.leader.stage is Stage.PREPARING and self.leader.try_to_lead():
            self.election.attempt = self.election.questions = 0
            self.coordinator.reset()
            self._follow(self.node.id, self.leader.ballot)

    def _check_voting(self) -> bool:
        """A replica votes once it is admitted and knows that the group counts on it; a blank one knows nothing."""
        node = self.node
        is_member = not node.blank and node.membership.includes(node.id, node.token)
        node.voting = is_member and self.admission.is_admitted
        return node.voting

    def _membership_changed(self, added: bool) -> None:
        """Where a configuration came in, its majority must promise too, before anything else is proposed."""
        self._check_voting()
        self._store_chosen()  # who votes must be known again at once after a start: the others may be gone by then
        if self.leader.stage is not Stage.IDLE:
            if not self.node.voting:
                self.leader.step_down()
            elif added:
                self.leader.prepare(self.election.next_ballot())
                self.election.campaign()

    def _discard(self, majority: frozenset[int]) -> None:
        """The state differs from that of a majority: it is replaced by theirs. Promises and votes are kept.

        Until then this replica neither votes nor applies anything. The new state must not be older: the acceptor
        has forgotten its votes on what was applied.
        """
        self.node.blank = True
        self.node.count("states discarded")
        self._check_voting()
        if self.leader.stage is not Stage.IDLE:
            self.leader.step_down()
        self.catch_up.begin_anew(self.node.applied, majority)

    def _campaign(self) -> None:
        self.node.count("elections begun")
        self.leader.prepare(self.election.next_ballot())
        self.election.campaign()

    def _follow(self, leader: int, ballot: int) -> None:
        node = self.node
        if leader != node.id and self.leader.stage is not Stage.IDLE and ballot > self.leader.ballot:
            self.leader.step_down()
        if ballot > node.leader_ballot:
            node.leader, node.leader_ballot = leader, ballot
            self.submissions.all_again()
        if leader == node.leader:
            node.leader_heard_s = node.now
        if leader != node.id:
            self.election.followed()

    # What messages do

    def _on_heartbeat(self, sender: int, message: m.Heartbeat) -> None:
        node = self.node
        node.clocks.hear(sender, message.clock_us, message.sent_us, message.echo_us, node.now)
        node.see(message.ballot)
        node.aim(message.applied, sender)
        self.admission.saw(sender, message.promised, message.voted)
        if self.leader.leads:
            known = self.leader.peers_applied.get(sender, 0)
            self.leader.peers_applied[sender] = max(known, message.applied)
            if message.urgent:
                self.leader.mark_urgent(sender)
        if message.leading:
            if message.ballot < node.acceptor.promised:
                self.voter.reject(sender)
            else:
                self._hear_leader(sender, message)
        if node.voting and sender not in node.membership.ids():
            self._strangers.add(
                sender
            )  # one that joins, or does not know that it left; it hears of us at the next tick

    def _hear_leader(self, sender: int, message: m.Heartbeat | m.Chosen) -> None:
        self._follow(sender, message.ballot)
        self.node.hear_chosen(message.ballot, message.applied)
        self.track.open(message.ballot, message.fast_first, message.fast_last)

    def _on_chosen(self, sender: int, message: m.Chosen) -> None:
        self.node.aim(message.applied, sender)
        if message.ballot >= self.node.acceptor.promised:
            self._hear_leader(sender, message)

    def _on_grant(self, sender: int, message: m.Grant) -> None:
        if self.election.on_grant(sender, message) and self.node.voting:
            self._campaign()

    def _on_prepare(self, sender: int, message: m.Prepare) -> None:
        node = self.node
        node.see(message.ballot)
        if message.ballot > node.acceptor.promised:
            node.promised_s = node.now
        if owner_of(message.ballot) == sender and self.voter.on_prepare(sender, message):
            if self.leader.stage is not Stage.IDLE and message.ballot > self.leader.ballot:
                self.leader.step_down()
            self.election.rest()

    def _on_promise(self, sender: int, message: m.Promise) -> None:
        self.admission.saw(sender, message.ballot, max((vote[0] for vote in message.votes), default=message.applied))
        self.leader.on_promise(sender, message)

    def _on_accepted(self, sender: int, message: m.Accepted) -> None:
        if sender != self.node.id:
            slots = message.slots
            voted = slots[0] if len(slots) == 1 else max(slots, default=message.applied)
            self.admission.saw(sender, message.ballot, voted)
        self.leader.on_accepted(sender, message)

    def _on_reject(self, sender: int, message: m.Reject) -> None:
        self.node.see(message.ballot)
        if self.leader.stage is not Stage.IDLE and message.ballot > self.leader.ballot:
            self.leader.step_down()
            self.election.rest()

    def _on_accept(self, sender: int, message: m.Accept) -> None:
        self.node.aim(message.applied, sender)
        if owner_of(message.ballot) == sender and self.voter.on_accept(sender, message):
            self._follow(sender, message.ballot)
            self.node.hear_chosen(message.ballot, message.applied)

    def _on_propose(self, sender: int, message: m.Propose) -> None:
        self.voter.on_propose(message)

    def _on_voted(self, sender: int, message: m.Voted) -> None:
        self.admission.saw(sender, message.ballot, message.slot)
        self.track.on_voted(sender, message)
        self.coordinator.on_voted(sender, message)

    def _on_close(self, sender: int, message: m.Close) -> None:
        if owner_of(message.ballot) == sender and self.voter.on_close(sender, message) and sender != self.node.id:
            self._follow(sender, message.ballot)

    def _on_forward(self, sender: int, message: m.Forward) -> None:
        if not self.leader.leads:
            self.node.count("requests sent to a replica that does not lead", len(message.segments))
            return
        self.leader.mark_urgent(sender)
        for data in message.segments:
            self.leader.enqueue(Segment((data,), len(data)))

    def _on_fetch(self, sender: int, message: m.Fetch) -> None:
        is_doubtful = self.agreement.is_doubtful
        if not self.catch_up.on_fetch(sender, message, is_doubtful) and self.node.applied >= message.slot:
            self.snapshots.take()
            self.catch_up.on_fetch(sender, message, is_doubtful)

    def _on_entries(self, sender: int, message: m.Entries) -> None:
        self.catch_up.on_entries(sender, message)
        self._want_more = bool(message.values) and message.applied >= message.first + len(message.values)

    def _on_part(self, sender: int, message: m.SnapshotPart) -> None:
        node = self.node
        data = self.catch_up.on_part(sender, message)
        if data is None:
            return
        before = node.membership.encode()
        self.snapshots.restore(data)
        self.agreement.restored()
        node.blank = False
        node.journal.snapshot(node.applied, data)
        self._store_chosen()  # what was noted of the state before this one must not be compared with it at a start
        node.acceptor.truncate(node.applied)
        node.chosen = {slot: value for slot, value in node.chosen.items() if slot > node.applied}
        self.track.jumped(node.applied)
        self.coordinator.jumped()
        self.leader.jumped()
        if node.membership.encode() != before:
            self._membership_changed(added=True)
        self._check_voting()
        self.submissions.all_again()
        self._want_more = node.target > node.applied
