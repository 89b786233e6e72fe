"""The acceptor: what this replica promised and voted for. All of it is durable before anybody hears of it."""

from __future__ import annotations

from surecast.protocol.paxos.ballots import CHOSEN, base, classic
from surecast.protocol.paxos.journal import Journal

__all__ = ["Acceptor"]


class Acceptor:
    """One promise for all instances, a vote for each, and the instances closed to fast votes.

    >>> acceptor = Acceptor(Journal())
    >>> acceptor.promise(4), acceptor.promise(2), acceptor.accept(2, 1, b"late"), acceptor.accept(4, 1, b"v")
    (True, False, False, True)
    >>> acceptor.votes
    {1: (5, b'v')}
    """

    def __init__(self, journal: Journal):
        self.journal = journal
        self.promised = 0
        self.votes: dict[int, tuple[int, bytes]] = {}
        self.closed: dict[int, int] = {}
        self.highest = 0  # the last instance voted on, or applied

    def promise(self, ballot: int) -> bool:
        """Promises to take part in no ballot before this one (phase 1b)."""
        if ballot < self.promised:
            return False
        if ballot > self.promised:
            self.promised = ballot
            self.journal.promise(ballot)
        return True

    def accept(self, ballot: int, slot: int, value: bytes) -> bool:
        """Votes for what the owner of the ballot proposes (phase 2b)."""
        if ballot != self.promised and not self.promise(ballot):
            return False
        number = classic(ballot)
        voted = self.votes.get(slot)
        if voted is None or voted[0] < number:
            self._vote(slot, number, value)
        return True

    def accept_fast(self, ballot: int, slot: int, value: bytes) -> bool:
        """Votes for what any replica proposes, once in each ballot (Fast Paxos, phase 2b after *any*)."""
        voted = self.votes.get(slot)
        if ballot != self.promised or (voted is not None and voted[0] >= ballot) or self.closed.get(slot, 0) >= ballot:
            return False
        self._vote(slot, ballot, value)
        return True

    def close(self, ballot: int, slot: int) -> bool:
        """Promises not to cast a fast vote of this ballot on an instance any more: phase 1b of its classic step."""
        if not self.promise(ballot):
            return False
        if self.closed.get(slot, 0) < base(ballot):
            self.closed[slot] = base(ballot)
            self.journal.close(slot, base(ballot))
        return True

    def learn(self, slot: int, value: bytes) -> None:
        """Keeps a chosen value in place of a vote that may be for another one."""
        voted = self.votes.get(slot)
        if voted is None or voted[1] != value:
            self._vote(slot, CHOSEN, value)

    def _vote(self, slot: int, ballot: int, value: bytes) -> None:
        """Puts a vote in the place of an earlier one."""
        voted = self.votes.get(slot)
        if voted is not None and voted[0] != ballot:
            self.journal.forget_vote(slot, voted[0])
        if slot > self.highest:
            self.highest = slot
        self.votes[slot] = (ballot, value)
        self.journal.vote(slot, ballot, value)

    def after(self, slot: int) -> tuple[tuple[int, int, bytes], ...]:
        """All votes after an instance: what a promise tells."""
        return tuple((number, *self.votes[number]) for number in sorted(self.votes) if number > slot)

    def truncate(self, slot: int) -> None:
        """Forgets everything up to an instance, which is applied."""
        self.highest = max(self.highest, slot)
        for number in [number for number in (*self.votes, *self.closed) if number <= slot]:
            self.forget(number)

    def forget(self, number: int) -> None:
        """Forgets an instance, which is applied."""
        if (voted := self.votes.pop(number, None)) is not None:
            self.journal.forget_vote(number, voted[0])
        if self.closed.pop(number, None) is not None:
            self.journal.forget_close(number)
