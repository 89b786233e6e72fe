"""The effects of the messages of other replicas on a replica, and its answers.

Every promise and every vote leaves after it is durable (`send_after`); a rejection rests on nothing new.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from surecast.protocol.paxos import paxos_messages as m
from surecast.protocol.paxos.ballots import owner_of
from surecast.protocol.paxos.election import Election
from surecast.protocol.paxos.fast_coordinator import FastCoordinator
from surecast.protocol.paxos.fast_track import FastTrack
from surecast.protocol.paxos.leader import Stage
from surecast.protocol.paxos.log_values import Segment
from surecast.protocol.paxos.quorums import digest_of
from surecast.protocol.paxos.replica_view import ReplicaView
from surecast.protocol.paxos.snapshots import Snapshots

__all__ = ["Participant"]

_INTRODUCTIONS = frozenset((m.Rejoin, m.Admit, m.Refuse))
"""The messages that a replica may send before it is admitted."""
_QUIET = frozenset((m.Heartbeat, m.Checkpoint))
"""The messages that all send all the time, and that mostly tell nothing new."""


class Participant(ReplicaView):
    """A replica among others: `Replica` has these parts, and the loop that takes what comes out."""

    track: FastTrack
    coordinator: FastCoordinator
    election: Election
    snapshots: Snapshots
    _handlers: dict[type, Callable[[int, Any], None]]
    _starts: dict[int, int]
    _strangers: set[int]
    _awake_s: float
    _late_s: float
    _stored_chosen: int
    _unsettled: bool
    _want_more: bool

    def _message_handlers(self) -> dict[type, Callable[[int, Any], None]]:
        return {
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

    def receive(self, sender: int, message: m.Message, now: float, start: int = 0) -> None:
        """Takes a message of another replica, which drew this number at its start.

        HistoryError where this replica must not go on: another one remembers more of it than it does.
        """
        self.now = now
        if now - self._awake_s > self._late_s:
            self._excuse()
        if self._starts.get(sender, 0) != start and type(message) not in _INTRODUCTIONS:
            self.count("messages of starts that were not admitted")
            return
        self.detector.hear(sender, now)
        kind = type(message)
        self._handlers[kind](sender, message)
        if kind not in _QUIET or self._may_settle(message):
            self._unsettled = True

    def _excuse(self) -> None:
        """This replica did not run for a while: what that did to its view of the others is undone."""
        late_s = self.now - self._awake_s - self.settings.heartbeat_s
        self._awake_s = self.now
        self.excuse(late_s)
        self.election.excuse(late_s)
        self.admission.excuse(late_s)

    def _may_settle(self, message: m.Message | None) -> bool:
        """Returns whether something may be chosen, led or closed that was not before a quiet message, or a tick.

        Otherwise no turn is worth it: while nobody publishes, most would be empty.
        """
        is_behind = isinstance(message, m.Heartbeat) and message.applied > self.applied
        return is_behind or self.is_fast or self.leader.stage is Stage.PREPARING

    # Whom it follows, and whether it votes

    def _membership_changed(self, added: bool) -> None:
        """Where a configuration came in, its majority must promise too, before anything else is proposed."""
        self._check_voting()
        self._store_chosen()  # who votes must be known again at once after a start: the others may be gone by then
        if self.leader.stage is not Stage.IDLE:
            if not self.voting:
                self.leader.step_down()
            elif added:
                self.leader.prepare(self.election.next_ballot())
                self.election.campaign()

    def _check_voting(self) -> bool:
        """A replica votes once it is admitted and knows that the group counts on it; a blank one knows nothing."""
        is_member = not self.blank and self.membership.includes(self.id, self.token)
        self.voting = is_member and self.admission.is_admitted
        return self.voting

    def _discard(self, majority: frozenset[int]) -> None:
        """The state differs from that of a majority: it is replaced by theirs. Promises and votes are kept.

        Until then this replica neither votes nor applies anything. The new state must not be older: the acceptor
        has forgotten its votes on what was applied.
        """
        self.blank = True
        self.count("states discarded")
        self._check_voting()
        if self.leader.stage is not Stage.IDLE:
            self.leader.step_down()
        self.catch_up.begin_anew(self.applied, majority)

    def _campaign(self) -> None:
        self.count("elections begun")
        self.leader.prepare(self.election.next_ballot())
        self.election.campaign()

    def _follow(self, leader: int, ballot: int) -> None:
        if leader != self.id and self.leader.stage is not Stage.IDLE and ballot > self.leader.ballot:
            self.leader.step_down()
        if ballot > self.leader_ballot:
            self.leader_id, self.leader_ballot = leader, ballot
            self.submissions.all_again()
        if leader == self.leader_id:
            self.leader_heard_s = self.now
        if leader != self.id:
            self.election.followed()

    def _store_chosen(self) -> None:
        self._stored_chosen = self.applied
        self.journal.chosen(self.applied, self.machine.effects)

    # What messages do

    def _on_heartbeat(self, sender: int, message: m.Heartbeat) -> None:
        self.clocks.hear(sender, message.clock_us, message.sent_us, message.echo_us, self.now)
        self.see(message.ballot)
        self.aim(message.applied, sender)
        self.admission.saw(sender, message.promised, message.voted)
        if self.leader.leads:
            known = self.leader.peers_applied.get(sender, 0)
            self.leader.peers_applied[sender] = max(known, message.applied)
            if message.urgent:
                self.leader.mark_urgent(sender)
        if message.leading:
            if message.ballot < self.acceptor.promised:
                self._reject(sender)
            else:
                self._hear_leader(sender, message)
        if self.voting and sender not in self.membership.ids():
            self._strangers.add(
                sender
            )  # one that joins, or does not know that it left; it hears of us at the next tick

    def _hear_leader(self, sender: int, message: m.Heartbeat | m.Chosen) -> None:
        self._follow(sender, message.ballot)
        self.hear_chosen(message.ballot, message.applied)
        if message.fast_first <= message.fast_last:
            self.track.open(message.ballot, message.fast_first, message.fast_last)

    def _on_chosen(self, sender: int, message: m.Chosen) -> None:
        self.aim(message.applied, sender)
        if message.ballot >= self.acceptor.promised:
            self._hear_leader(sender, message)

    def _on_grant(self, sender: int, message: m.Grant) -> None:
        if self.election.on_grant(sender, message) and self.voting:
            self._campaign()

    def _on_prepare(self, sender: int, message: m.Prepare) -> None:
        self.see(message.ballot)
        if message.ballot > self.acceptor.promised:
            self.promised_s = self.now
        if owner_of(message.ballot) != sender or not self.voting:
            return
        if not self.acceptor.promise(message.ballot):
            self._reject(sender)
            return
        self.send_after(sender, m.Promise(message.ballot, self.applied, self.acceptor.after(self.applied)))
        if self.leader.stage is not Stage.IDLE and message.ballot > self.leader.ballot:
            self.leader.step_down()
        self.election.rest()

    def _on_promise(self, sender: int, message: m.Promise) -> None:
        self.admission.saw(sender, message.ballot, max((vote[0] for vote in message.votes), default=message.applied))
        self.leader.on_promise(sender, message)

    def _on_accepted(self, sender: int, message: m.Accepted) -> None:
        if sender != self.id:
            slots = message.slots
            voted = slots[0] if len(slots) == 1 else max(slots, default=message.applied)
            self.admission.saw(sender, message.ballot, voted)
        self.leader.on_accepted(sender, message)

    def _reject(self, sender: int) -> None:
        """Tells of a later promise; that rests on nothing new."""
        self.send(sender, m.Reject(self.acceptor.promised))

    def _on_reject(self, sender: int, message: m.Reject) -> None:
        self.see(message.ballot)
        if self.leader.stage is not Stage.IDLE and message.ballot > self.leader.ballot:
            self.leader.step_down()
            self.election.rest()

    def _on_accept(self, sender: int, message: m.Accept) -> None:
        if message.applied > self.target:
            self.aim(message.applied, sender)
        if owner_of(message.ballot) == sender and (not self.voting or self._vote(sender, message)):
            self._follow(sender, message.ballot)
            self.hear_chosen(message.ballot, message.applied)

    def _vote(self, sender: int, message: m.Accept) -> bool:
        """Phase 2b; true where the ballot is not outdated."""
        slot, ballot, acceptor = message.slot, message.ballot, self.acceptor
        if ballot != acceptor.promised and not acceptor.promise(ballot):
            self._reject(sender)
            return False
        if slot > self.applied + self.settings.vote_window:
            self.count("votes beyond the window")
            return True
        if slot > self.applied:
            acceptor.accept(ballot, slot, message.value)
        # What is applied is chosen, and then nothing else can be proposed in a later ballot: the vote may be told.
        self.acknowledge(ballot, slot)
        return True

    def _on_propose(self, sender: int, message: m.Propose) -> None:
        """Phase 2b of the fast step: the first proposal for an open instance gets the vote, which goes to all."""
        slot, acceptor = message.slot, self.acceptor
        self.track.used(slot)
        if not self.voting or not self.track.is_open(message.ballot, slot):
            self.count("fast proposals not open")
            return
        if not self.applied < slot <= self.applied + self.settings.vote_window:
            return
        again = acceptor.votes.get(slot) == (message.ballot, message.value)
        if not again and not acceptor.accept_fast(message.ballot, slot, message.value):
            return
        digest = digest_of(message.value)
        owner = owner_of(message.ballot)
        for replica in self.membership.ids():
            self.send_after(replica, m.Voted(message.ballot, slot, digest, message.value if replica == owner else None))

    def _on_voted(self, sender: int, message: m.Voted) -> None:
        self.admission.saw(sender, message.ballot, message.slot)
        self.track.on_voted(sender, message)
        self.coordinator.on_voted(sender, message)

    def _on_close(self, sender: int, message: m.Close) -> None:
        is_current = owner_of(message.ballot) == sender and (not self.voting or self._close(sender, message))
        if is_current and sender != self.id:
            self._follow(sender, message.ballot)

    def _close(self, sender: int, message: m.Close) -> bool:
        """Phase 1b of the classic step, for some instances; true where the ballot is not outdated."""
        acceptor = self.acceptor
        if not acceptor.promise(message.ballot):
            self._reject(sender)
            return False
        for slot in message.slots:
            if slot > self.applied:
                acceptor.close(message.ballot, slot)
            elif slot not in acceptor.votes:
                continue  # chosen, and forgotten: whoever asks has to catch up
            voted = acceptor.votes.get(slot)
            answer = m.Closed(message.ballot, slot, *(voted if voted else (0, None)))
            self.send_after(sender, answer)
        return True

    def _on_forward(self, sender: int, message: m.Forward) -> None:
        if not self.leader.leads:
            self.count("requests sent to a replica that does not lead", len(message.segments))
            return
        self.leader.mark_urgent(sender)
        for data in message.segments:
            segment = Segment.of(data)
            if self.machine.cached(segment) is None:
                self.leader.enqueue(segment)
            elif segment.key not in self.leader.held:
                self.count("requests applied before")  # P2S Algorithm 1, line 23; the origin has or gets the replies

    def _on_fetch(self, sender: int, message: m.Fetch) -> None:
        is_doubtful = self.agreement.is_doubtful
        if not self.catch_up.on_fetch(sender, message, is_doubtful) and self.applied >= message.slot:
            self.snapshots.take()
            self.catch_up.on_fetch(sender, message, is_doubtful)

    def _on_entries(self, sender: int, message: m.Entries) -> None:
        self.catch_up.on_entries(sender, message)
        self._want_more = bool(message.values) and message.applied >= message.first + len(message.values)

    def _on_part(self, sender: int, message: m.SnapshotPart) -> None:
        data = self.catch_up.on_part(sender, message)
        if data is None:
            return
        before = self.membership.encode()
        self.snapshots.restore(data)
        self.agreement.restored()
        self.blank = False
        self.journal.snapshot(self.applied, data)
        self._store_chosen()  # what was noted of the state before this one must not be compared with it at a start
        self.acceptor.truncate(self.applied)
        self.chosen = {slot: value for slot, value in self.chosen.items() if slot > self.applied}
        self.track.jumped(self.applied)
        self.coordinator.jumped()
        self.leader.jumped()
        if self.membership.encode() != before:
            self._membership_changed(added=True)
        self._check_voting()
        self.submissions.all_again()
        self._want_more = self.target > self.applied
