"""Leader election: whoever hears of no leader for long enough asks the others whether they do, and only then stands.

The wait grows with the rank, so that usually one replica stands alone, and has a random part, so that two that campaign
at once do not go on doing so. It doubles with every ballot that failed, not with every question: asking costs nothing.
Whoever stands gives its ballot time: disks, links and machines may be slow, and one that gives its ballot up while
promises are on their way begins all over. The random part is a hash of the seed, the replica and the question.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from hashlib import blake2b

from surecast.protocol.paxos.ballots import first_ballot, owner_of
from surecast.protocol.paxos.node import Node
from surecast.protocol.paxos.paxos_messages import Grant, PreVote

__all__ = ["Election", "jitter"]

_DOUBLINGS_MAX = 3
_STANDING = 8
"""So many times longer than for a leader a replica waits for the promises that it asked for."""


@lru_cache(maxsize=256)
def jitter(seed: int, replica: int, attempt: int) -> float:
    """A number from 0 to 1 that looks random.

    >>> round(jitter(1, 2, 3), 3) == round(jitter(1, 2, 3), 3), 0 <= jitter(1, 2, 4) < 1
    (True, True)
    """
    digest = blake2b(struct.pack(">QQQ", seed & (1 << 64) - 1, replica, attempt), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


class Election:
    """The wait for a leader, and the grants gathered."""

    def __init__(self, node: Node):
        self.node = node
        self.attempt = 0
        self.questions = 0
        self.ballot = 0
        self.granted_by: set[int] = set()
        self._deadline_s: float | None = 0.0
        self._rested_s = self._patience_s = 0.0
        self._wait_for: tuple[int, tuple[int, ...]] = (-1, ())
        self._wait_s = 0.0

    def rest(self) -> None:
        """A leader was heard of, or this replica asked for pre-votes: wait anew."""
        node = self.node
        detector = node.detector
        self._rested_s, self._deadline_s = node.now, None
        self._patience_s = detector.patience_s(node.leader_id, node.now) if detector.silences else detector.suspect_s

    @property
    def deadline_s(self) -> float:
        """The time at which this replica does something, unless it rests again. Nothing is computed before it is asked
        for: this replica rests at every proposal."""
        if self._deadline_s is None:
            questions, ids = self.questions, self.node.membership.ids()
            if ids is not self._wait_for[1] or questions != self._wait_for[0]:
                self._wait_for, self._wait_s = (questions, ids), self._wait(ids, questions)
            wait_s = self._wait_s + self._patience_s
            if self.attempt > 1:  # at some length an election has the time that disks and links need for it
                wait_s *= 1 << min(self.attempt - 1, _DOUBLINGS_MAX)
            self._deadline_s = self._rested_s + wait_s
        return self._deadline_s

    def campaign(self) -> None:
        """This replica asked for promises: wait for them, longer with every ballot that failed."""
        self.attempt += 1
        self.ballot = 0
        self.rest()
        self._deadline_s = self.deadline_s + (_STANDING - 1) * self.node.settings.suspect_s

    def excuse(self, late_s: float) -> None:
        """This replica did not run for so long, and may not have read yet what a leader said: it waits on."""
        node = self.node
        self._deadline_s = max(self.deadline_s + late_s, node.now + node.settings.heartbeat_s)

    def _wait(self, ids: tuple[int, ...], questions: int) -> float:
        node, settings = self.node, self.node.settings
        rank = ids.index(node.id) if node.id in ids else len(ids)
        return rank * settings.election_step_s + settings.backoff_s * jitter(node.seed, node.id, questions)

    def followed(self) -> None:
        """There is a leader: whatever this replica wanted is off."""
        if self.attempt or self.questions or self.ballot:
            self.ballot = 0
            self.attempt = self.questions = 0
        self.rest()

    def next_ballot(self) -> int:
        """An own ballot above all seen."""
        self.node.highest_round += 1
        return first_ballot(self.node.highest_round, self.node.id)

    def ask_for_pre_votes(self) -> bool:
        """Asks for pre-votes; true where one's own is enough."""
        node = self.node
        self.questions += 1
        node.count("leaders suspected")
        # The round is not used up: it is only taken, durably, when enough grant it.
        self.ballot = first_ballot(node.highest_round + 1, node.id)
        self.granted_by = {node.id}
        for other in node.others():
            node.send(other, PreVote(self.ballot))
        self.rest()
        return node.membership.has_quorums(self.granted_by)

    def on_pre_vote(self, sender: int, message: PreVote) -> None:
        """Grants whoever asks while no leader is heard of, nor one that is about to be. This promises nothing."""
        node = self.node
        if not node.voting or sender not in node.membership.ids() or node.leader_alive():
            return
        if node.candidate_alive() and sender != owner_of(node.acceptor.promised):
            return
        if message.ballot > node.acceptor.promised:
            node.send(sender, Grant(message.ballot))

    def on_grant(self, sender: int, message: Grant) -> bool:
        """Counts a grant; true where they became a majority."""
        if message.ballot != self.ballot or not self.ballot:
            return False
        self.granted_by.add(sender)
        return self.node.membership.has_quorums(self.granted_by)
