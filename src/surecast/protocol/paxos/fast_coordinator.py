"""The fast step as its leader sees it: opens instances, and settles those that do not decide themselves."""

from __future__ import annotations

from surecast.protocol.paxos.fast_track import FastTrack
from surecast.protocol.paxos.leader import Leader
from surecast.protocol.paxos.log_values import NOOP
from surecast.protocol.paxos.node import Node
from surecast.protocol.paxos.paxos_messages import Close, Closed, Voted
from surecast.protocol.paxos.quorums import Vote, can_still_win, digest_of, pick_value

__all__ = ["FastCoordinator"]

_COLLISIONS_MAX = 4.0
_FADING = 0.9


class FastCoordinator:
    """Instances `first` to `last` are open to everyone in the leader's ballot; the leader itself proposes behind them.

    An open instance that collides or stays open for too long is settled in the classic step of the same ballot: the
    leader asks a majority to close it, and proposes what their votes demand. A fast vote that was heard counts as such
    an answer (coordinated recovery, Fast Paxos 3.2): an acceptor casts one vote in the fast step, and it stays.
    """

    def __init__(self, node: Node, leader: Leader, track: FastTrack):
        self.node = node
        self.leader = leader
        self.track = track
        self.reset()

    def reset(self) -> None:
        """A new ballot: nothing is open."""
        self.first = 1
        self.last = 0
        self.answers: dict[int, dict[int, Vote | None]] = {}
        self.seen_s: dict[int, float] = {}
        self.asked_s: dict[int, float] = {}
        self.collisions = 0.0
        self.cool_until_s = 0.0

    def healthy(self) -> bool:
        """Returns whether a fast quorum is up, nothing changes, and collisions are rare."""
        node = self.node
        membership = node.membership
        if node.settings.variant != "fast" or membership.changes or node.now < self.cool_until_s:
            return False
        ids = membership.at(node.applied + 1).ids
        alive = node.detector.alive([replica for replica in ids if replica != node.id], node.now)
        return len(alive) + (node.id in ids) >= membership.at(node.applied + 1).fast_quorum

    def is_open(self) -> bool:
        """Returns whether waiting requests go to open instances."""
        return self.last >= self.leader.next_slot - 1 and self.last > self.node.applied and self.healthy()

    def extend(self) -> None:
        """Opens the window where that is safe: behind all that earlier ballots left and all that was proposed."""
        node, leader = self.node, self.leader
        last = node.applied + node.settings.alpha
        if leader.next_slot <= leader.constrained or last < leader.next_slot or not self.healthy():
            return
        if leader.next_slot != self.last + 1:
            if node.applied < self.last:
                return  # earlier open instances are not decided yet
            self.first = leader.next_slot
        self.last = last
        leader.next_slot = last + 1
        self.track.open(leader.ballot, self.first, self.last)

    def on_voted(self, sender: int, message: Voted) -> None:
        """A fast vote is also an answer for the classic step."""
        if self.leader.leads and message.ballot == self.leader.ballot and message.value is not None:
            self._answer(sender, message.slot, (message.ballot, message.value))

    def on_closed(self, sender: int, message: Closed) -> None:
        """An acceptor closed an instance."""
        if self.leader.leads and message.ballot == self.leader.ballot:
            self._answer(sender, message.slot, None if message.value is None else (message.voted, message.value))

    def _answer(self, sender: int, slot: int, vote: Vote | None) -> None:
        if not self.node.applied < slot <= self.last:
            return
        answers = self.answers.setdefault(slot, {})
        if vote is not None or sender not in answers:
            answers[sender] = vote
        for number in range(max(self.first, self.node.applied + 1), slot + 1):
            self.seen_s.setdefault(number, self.node.now)

    def value_of(self, slot: int, digest: bytes) -> bytes | None:
        """A value that was told with a vote."""
        for vote in self.answers.get(slot, {}).values():
            if vote is not None and digest_of(vote[1]) == digest:
                return vote[1]
        return None

    def settle(self) -> None:
        """Closes what must be closed, and proposes where a majority has answered."""
        node, leader = self.node, self.leader
        frozen = not self.healthy()
        to_close = []
        for slot in range(max(self.first, node.applied + 1), self.last + 1):
            if slot in leader.instances or slot in node.chosen:
                continue
            configuration = node.membership.at(slot)
            answers = {one: vote for one, vote in self.answers.get(slot, {}).items() if one in configuration.ids}
            if slot not in self.asked_s and not (frozen or self._is_stuck(slot, answers, len(configuration.ids))):
                continue
            if configuration.has_quorum(answers):
                self.asked_s[slot] = node.now
                leader.propose(slot, pick_value(answers, len(configuration.ids)) or NOOP)
            elif node.now - self.asked_s.get(slot, -1e9) >= node.settings.resend_s:
                self.asked_s[slot] = node.now
                to_close.append(slot)
        if to_close:
            message = Close(leader.ballot, tuple(to_close))
            for replica in node.others():
                node.send(replica, message)
            node.send_after(node.id, message)

    def _is_stuck(self, slot: int, answers: dict[int, Vote | None], replicas: int) -> bool:
        cast = [vote[1] for vote in answers.values() if vote is not None]
        if len(cast) > 1 and not can_still_win(cast, replicas):
            self.collisions += 1.0
            if self.collisions > _COLLISIONS_MAX:
                self.collisions = 0.0
                self.cool_until_s = self.node.now + self.node.settings.cooldown_s
            return True
        seen_s = self.seen_s.get(slot)
        return seen_s is not None and self.node.now - seen_s >= self.node.settings.recover_s

    def applied(self, slot: int) -> None:
        """Forgets a decided instance."""
        self.answers.pop(slot, None)
        self.seen_s.pop(slot, None)
        self.asked_s.pop(slot, None)
        self.collisions *= _FADING

    def jumped(self) -> None:
        """Forgets what a snapshot replaced."""
        for table in (self.answers, self.seen_s, self.asked_s):
            for slot in [slot for slot in table if slot <= self.node.applied]:
                del table[slot]
