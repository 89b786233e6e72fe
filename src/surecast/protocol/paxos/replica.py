"""One replica of a replicated state machine: messages and ticks in, turns out.

replica = Replica(1, handler, members=[1, 2, 3], records=store.items())
replica.receive(sender, message, now)   # or submit(...), or tick(now); as many as there are
turn = replica.take()                   # send turn.messages and turn.replies
store.commit(turn.records)              # then send turn.after
replica.synced(turn.number, now)        # and take the next turn
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from surecast.protocol.paxos import paxos_messages as m
from surecast.protocol.paxos.admission import Admission
from surecast.protocol.paxos.agreement import Agreement
from surecast.protocol.paxos.catch_up import CatchUp
from surecast.protocol.paxos.clocks import Clocks
from surecast.protocol.paxos.election import Election
from surecast.protocol.paxos.fast_coordinator import FastCoordinator
from surecast.protocol.paxos.fast_track import FastTrack
from surecast.protocol.paxos.handler import Handler
from surecast.protocol.paxos.incarnations import STARTS_KEPT, Incarnation
from surecast.protocol.paxos.journal import Restored, read_records
from surecast.protocol.paxos.leader import Leader, Stage
from surecast.protocol.paxos.log_values import Request, check_requests
from surecast.protocol.paxos.machine import VERIFY, Answer, Machine, Observer
from surecast.protocol.paxos.membership import CONFIGURATION_CLIENT, Membership, replace_command
from surecast.protocol.paxos.node import Turn
from surecast.protocol.paxos.pacing import Pacing
from surecast.protocol.paxos.participant import Participant
from surecast.protocol.paxos.paxos_settings import PaxosSettings
from surecast.protocol.paxos.quorums import digest_of
from surecast.protocol.paxos.snapshots import Shelf, Snapshots
from surecast.protocol.paxos.submissions import Submissions

__all__ = ["Replica"]

_CHOSEN_EVERY = 16
"""How many instances are applied before it is stored again how far they are known to be chosen."""
_LATE = 0.5
"""A replica that had no turn for this share of `suspect_s` did not run: it is ticked several times in a heartbeat."""


class Replica(Participant):
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
        super().__init__(replica, token, settings, machine, seed, Clocks(replica, epoch_s, now))
        self.now = now
        self.track = FastTrack(self)
        self.leader = Leader(self)
        self.pacing: Pacing = self.leader  # for the shell
        self.coordinator = FastCoordinator(self, self.leader, self.track)
        self.election = Election(self)
        self.catch_up = CatchUp(self)
        self.snapshots = Snapshots(self, self.catch_up.transfer, shelf)
        self.agreement = Agreement(self, self._discard)
        self.submissions = Submissions(self, found.incarnation + 1)
        self._replies: list[tuple[int, list[Answer]]] = []
        self.urgent = False
        """Returns whether somebody waits at this replica for what is chosen: then the leader lets it know at once."""
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
        self.journal.identity(replica, token, members)
        self.journal.incarnations(incarnation.number, incarnation.starts)
        self._restore(found)
        self.admission = Admission(self, incarnation, found.seen)
        self._starts = self.admission.starts  # local alias: it is looked up for every message
        self._check_voting()
        self.election.rest()
        self._handlers = self._message_handlers()

    def _restore(self, found: Restored) -> None:
        if found.snapshot_slot or found.pieces:
            self.snapshots.resume(found)
        else:
            self.blank = self.token != 0
        self.acceptor.promised = found.promised
        self.acceptor.votes = found.votes
        self.acceptor.closed = found.closed
        self.see(found.promised)
        self.target = found.chosen
        while self.applied < found.chosen and (voted := found.votes.get(self.applied + 1)) is not None:
            self.snapshots.log_bytes += len(voted[1])
            self.machine.apply(voted[1], 0)
            self.applied = self.machine.applied
        if self.applied == found.chosen:
            self.agreement.replayed(self.applied, found.effects)
        self.acceptor.highest = found.voted
        self.stored = (found.promised, found.voted)
        self.clocks.settle(self.membership.configurations, self.now)

    # What goes in

    def meet(self, sender: int, now: float) -> None:
        """Another replica has connected anew: its silence before says nothing about how slow it is."""
        self.detector.meet(sender, now)

    def take_notices(self) -> list[tuple[str, str]]:
        """Returns what an operator should know of since the last call: a kind and a text each."""
        told = [("agreement", line) for line in self.agreement.notices]
        told += [("admission", line) for line in self.admission.notices]
        self.agreement.notices.clear()
        self.admission.notices.clear()
        return told

    def submit(self, requests: Sequence[Request] | bytes, now: float) -> int:
        """Takes requests of clients, one by one or packed by `pack_requests`.

        Returns the number under which the replies will come out of a turn. OverloadError where too many wait.
        """
        self.now = now
        if isinstance(requests, bytes):
            check_requests(requests)
        return self.submissions.submit(requests)

    def replace(self, old: int, new: int, token: int, now: float) -> int:
        """Asks for a change of the membership: a new replica, created with this token, replaces an old one."""
        return self.submit([(CONFIGURATION_CLIENT, 0, replace_command(old, new, token))], now)

    def verify(self, now: float) -> int:
        """Asks that all replicas hash their whole state, at one instance: the reply is `+` and its number."""
        return self.submit([(CONFIGURATION_CLIENT, 0, VERIFY)], now)

    def wake_at(self, now: float) -> None:
        """It is so late now: what was to wait until then waits no longer."""
        self.now = now

    def tick(self, now: float) -> None:
        """Time has passed. Call it several times in each `heartbeat_s`, whether anything happened or not."""
        self.now = now
        if now - self._awake_s > self._late_s:
            self._excuse()
        self._awake_s = now
        if now - self._heartbeat_s >= self.settings.heartbeat_s or now < self._heartbeat_s:
            self._heartbeat_s = now
            for other in (*self.others(), *sorted(self._strangers)):
                self.send(other, self._heartbeat(other))
            self._strangers.clear()
            self.agreement.tick()
        self.clocks.settle(self.membership.configurations, now)
        self.leader.tick()
        self.catch_up.tick()
        self.submissions.tick()
        self.admission.tick()
        if self.admission.settle():
            self._check_voting()
        if self.leader.leads:
            self.leader_heard_s = now
            self.election.rest()
        elif self.voting and now >= self.election.deadline_s:
            self._seek()
        if self._may_settle(None):
            self._unsettled = True

    def _seek(self) -> None:
        """No leader was heard of for long enough."""
        if self.candidate_alive():
            self.election.rest()
            return
        self.leader.step_down()
        if self.election.ask_for_pre_votes():
            self._campaign()

    def synced(self, number: int, now: float) -> None:
        """The records of all turns up to this one are durable."""
        if self._storing is not None and number >= self._storing[0]:
            self.leader.stored_in(now - self._storing[1])
            self.stored = self._storing[2:]
            self._storing = None
        self.now = now
        self.started = True
        if self._own:
            for turn in [turn for turn in self._own if turn <= number]:  # in their order
                for message in self._own.pop(turn):
                    self._handlers[type(message)](self.id, message)
            self._unsettled = True
        if self._unsettled:
            self._settle()

    def apply_chosen(self) -> list[tuple[int, list[Answer]]]:
        """Applies what is known to be chosen; the replies may go at once.

        For a shell that has something better to do between sending the messages of a turn and storing its records.
        """
        if self._unsettled:
            self._settle()
        replies, self._replies = self._replies, []
        return replies

    @property
    def has_more(self) -> bool:
        """Returns whether the next turn may have something in it."""
        leader = self.leader
        return bool(
            self._unsettled
            or self.after
            or self.messages
            or self.acks
            or self.to_self
            or self.journal.records
            or self._replies
            or self._want_more
            or self.submissions.fresh
            or (leader.queue and self.is_fast)
            or (leader.leads and (wake_s := leader.wake_s()) is not None and wake_s <= self.now)
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
        if self.submissions.fresh:
            self._dispatch()
        leader = self.leader
        if self._unsettled:
            if leader.queue and leader.leads:
                self._lead()
            if not self.acks:
                self._settle()
                if self.submissions.fresh:
                    self._dispatch()
        if leader.leads:
            self._lead()
        if self.acks:
            self.flush_acks()
        if self._want_more:
            self._want_more = False
            self.catch_up.ask()
        if self.journal.records and self.applied >= self._stored_chosen + _CHOSEN_EVERY:
            self._store_chosen()  # nothing rests on it but a quicker start: it is not worth a commit of its own
        self._number += 1
        if self.to_self:
            self._own[self._number], self.to_self = self.to_self, []
        if self.journal.records and self._storing is None:
            self._storing = (self._number, self.now, self.acceptor.promised, self.acceptor.highest)
        messages, self.messages = self.messages, []
        after, self.after = self.after, []
        replies, self._replies = self._replies, []
        return Turn(self._number, self.journal.take(), messages, after, replies)

    # What happens in between

    def _heartbeat(self, to: int) -> m.Heartbeat:
        leads = self.leader.leads
        ballot = self.leader.ballot if leads else self.acceptor.promised
        first, last = self.coordinator.first, self.coordinator.last
        told = (*self.stored, *self.clocks.shown(to, self.now))
        return m.Heartbeat(ballot, leads, self.applied, first, last, self.urgent, *told)

    def _dispatch(self) -> None:
        """Requests go into the own queue, to the acceptors or to the leader (P2S Algorithm 1, lines 22 to 26)."""
        settings = self.settings
        self._replies += self.submissions.answer()
        direct = self.is_fast and settings.allow_direct
        while self.submissions.fresh:
            if self.leader.leads:
                for segment in self.submissions.take(settings.queue_bytes_max):
                    self.leader.enqueue(segment)  # nothing of it is applied, by `answer`
            elif (
                direct
                and self.voting
                and self.leader_alive()
                and (stamp_us := self.time_us()) is not None
                and (slot := self.track.free_slot())
            ):
                taken = self.submissions.take(settings.value_bytes_max)
                self._on_propose(self.id, self.track.propose(slot, taken, stamp_us))
            elif self.leader_alive() and self.leader_id != self.id and self.started:
                self.submissions.forward(self.leader_id)
            else:
                return

    def _lead(self) -> None:
        leader = self.leader
        stamp_us = self.clocks.time_us(self.machine.context.time_us, self.now)  # it notes when the log's time changed
        if leader.queue or self.is_fast or leader.is_bound:
            fast = self.is_fast and self._lead_fast(stamp_us)
            leader.pump(stamp_us, fast)
            if self.is_fast:
                last = self.coordinator.last
                self.coordinator.settle()
                self.coordinator.extend()
                if self.coordinator.last > last:
                    leader.notified = -1
        if (
            leader.notified < self.applied
            and (notifies_s := leader.commit_notification_at()) is not None
            and notifies_s <= self.now
        ):
            leader.notify_commit(m.Chosen(leader.ballot, self.applied, self.coordinator.first, self.coordinator.last))
        if leader.lazy and (lazy_due_s := leader.lazy_due_at()) is not None and lazy_due_s <= self.now:
            leader.send_lazy()

    def _lead_fast(self, stamp_us: int | None) -> bool:
        """Proposes in open instances; returns whether others may be proposed in too."""
        if not self.coordinator.is_open():
            return False
        while self.leader.queue and stamp_us is not None and (slot := self.track.free_slot()):
            self._on_propose(self.id, self.track.propose(slot, self.leader.take_batch(), stamp_us))
        return True

    def _settle(self) -> None:
        """Applies whatever is known to be chosen, in order, and leads where enough have promised."""
        self._unsettled = False
        slot = before = self.applied + 1
        digests = self.track.digests
        while not self.blank:  # one that is blank has nothing to begin with
            value = self.chosen.get(slot)
            if value is None and slot <= self.hint[1]:
                value = self.told(slot)
            if value is None and slot in digests:
                value = self._won(slot)
            if value is None:
                break
            self._apply(slot, value)
            slot += 1
        if slot != before:
            self.snapshots.advance()
        if self.leader.stage is Stage.PREPARING and self.leader.try_to_lead():
            self.election.attempt = self.election.questions = 0
            self.coordinator.reset()
            self._follow(self.id, self.leader.ballot)

    def _won(self, slot: int) -> bytes | None:
        """The value with a fast quorum of votes, where it is at hand."""
        digest = self.track.winner(slot, self.membership.at(slot))
        if digest is None:
            return None
        voted = self.acceptor.votes.get(slot)
        if voted is not None and digest_of(voted[1]) == digest:
            return voted[1]
        self.aim(slot, self.leader_id)
        return self.coordinator.value_of(slot, digest)

    def _apply(self, slot: int, value: bytes) -> None:
        membership = self.membership
        self.acceptor.learn(slot, value)
        self.snapshots.log_bytes += len(value)
        before = membership.configurations
        done = self.machine.apply(value, self.id)
        self.applied = self.machine.applied
        self.chosen.pop(slot, None)
        for origin, number, answers in done:
            if origin == self.id and answers is not None:
                self.submissions.done(number)
                self._replies.append((number, answers))
        if self.leader.leads or self.is_fast:  # whoever only follows holds nothing and has nothing in flight
            keys = [(origin, number) for origin, number, _ in done]
            self.leader.applied(slot, value, keys)
            if self.is_fast:
                self._applied_fast(slot, keys)
        if before is not (now := membership.configurations):
            self._membership_changed(now[-1] != before[-1])

    def _applied_fast(self, slot: int, keys: list[tuple[int, int]]) -> None:
        """Own proposals that lost the instance go again."""
        self.coordinator.applied(slot)
        for segment in self.track.applied(slot):
            key = segment.key
            if key not in keys:
                self.leader.return_to_queue(segment)
                if key[0] == self.id and not self.leader.leads:
                    self.submissions.again(key[1])
