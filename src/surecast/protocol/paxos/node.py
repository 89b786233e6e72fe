"""The state that the roles of one replica share: who it is, what it knows, and what it is about to say and store."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from surecast.protocol.paxos.acceptor import Acceptor
from surecast.protocol.paxos.ballots import classic, owner_of, round_of
from surecast.protocol.paxos.clocks import Clocks
from surecast.protocol.paxos.journal import Journal, Record
from surecast.protocol.paxos.machine import Answer, Machine
from surecast.protocol.paxos.paxos_messages import Accepted, Message
from surecast.protocol.paxos.paxos_settings import PaxosSettings

__all__ = ["Detector", "Node", "Turn"]

_CANDIDATE = 4.0
"""For so many times `suspect_s` nobody stands against a replica that was promised a ballot."""
_STEPS = 2.0
"""A peer is suspected after so many times the longest silence that it lately broke, or after `suspect_s`."""
_PATIENCE = 8.0
"""And after so many times `suspect_s` in any case."""
_FORGET_S = 20.0
"""The time until an unusually long silence is forgotten."""


@dataclass(slots=True)  # not frozen: that would make it three times as dear, and there are many
class Turn:
    """The output of a replica. The shell commits the turns in order, each as a whole.

    `messages` may go at once. `after` must wait until the records of this turn and of all before are durable; then
    the shell says so with `Replica.synced`. `replies` may go at once: a majority has stored what they follow from.
    """

    number: int
    records: list[Record]
    messages: list[tuple[int, Message]]
    after: list[tuple[int, Message]]
    replies: list[tuple[int, list[Answer]]]

    @property
    def is_empty(self) -> bool:
        """Returns whether there is nothing to do."""
        return not (self.records or self.messages or self.after or self.replies)


class Detector:
    """Remembers when each replica was heard last, and how long it is usually silent. One not heard of for a while is
    suspected. That may be wrong; only liveness rests on it.

    Two things tell a slow machine from a dead peer. Time in which this replica itself did not run counts against
    nobody: what its peers said meanwhile is still unread. And a peer that was heard in larger and larger steps is given
    more time.

    >>> detector = Detector(suspect_s=1.0)
    >>> detector.hear(2, now=5.0)
    >>> detector.alive([1, 2], now=5.9), detector.alive([1, 2], now=6.1)
    ([2], [])
    >>> detector.excuse(0.5, now=6.1)  # of the time since then this replica slept half a second
    >>> detector.alive([1, 2], now=6.4), detector.alive([1, 2], now=6.6)
    ([2], [])
    """

    def __init__(self, suspect_s: float):
        self.suspect_s = suspect_s
        self.heard_s: dict[int, float] = {}
        self.silences: dict[int, tuple[float, float]] = {}
        self._notable_s = suspect_s / _STEPS
        self._longest_s = _PATIENCE * suspect_s

    def hear(self, replica: int, now: float) -> None:
        """Any message is a sign that it is up."""
        silence_s = now - self.heard_s.get(replica, now)
        if self._notable_s < silence_s <= self._longest_s and _STEPS * silence_s > self.patience_s(replica, now):
            self.silences[replica] = (silence_s, now)  # after a longer one it was away, not slow
        self.heard_s[replica] = now

    def meet(self, replica: int, now: float) -> None:
        """A replica has connected anew: it is there, and its silence before says nothing about how slow it is."""
        self.heard_s[replica] = now

    def patience_s(self, replica: int, now: float) -> float:
        """Returns how long a replica may be silent before it is suspected."""
        silence = self.silences.get(replica)
        if silence is None:
            return self.suspect_s
        silence_s, at_s = silence
        patience_s = _STEPS * silence_s * (1.0 - (now - at_s) / _FORGET_S)
        if patience_s <= self.suspect_s:
            del self.silences[replica]
        return min(max(self.suspect_s, patience_s), self._longest_s)

    def excuse(self, late_s: float, now: float) -> None:
        """This replica did not run for so long: its peers may have said something that it has not read yet."""
        for replica, heard_s in self.heard_s.items():
            self.heard_s[replica] = min(now, heard_s + late_s)

    def alive(self, replicas: Iterable[int], now: float) -> list[int]:
        """Those not suspected."""
        heard_s = self.heard_s
        return [one for one in replicas if heard_s.get(one, -inf) >= now - self.patience_s(one, now)]


class Node:
    """The shared state of the roles."""

    # With slots, as these are looked up dozens of times for every message.
    __slots__ = (
        "acceptor",
        "acks",
        "acks_ballot",
        "after",
        "applied",
        "blank",
        "chosen",
        "clocks",
        "counts",
        "detector",
        "highest_round",
        "hint",
        "id",
        "is_fast",
        "journal",
        "late_s",
        "leader_ballot",
        "leader_heard_s",
        "leader_id",
        "machine",
        "membership",
        "messages",
        "now",
        "promised_s",
        "seed",
        "settings",
        "started",
        "stored",
        "target",
        "target_source",
        "to_self",
        "token",
        "voting",
    )

    def __init__(self, replica: int, token: int, settings: PaxosSettings, machine: Machine, seed: int, clocks: Clocks):
        self.id = replica
        self.token = token
        self.settings = settings
        self.is_fast = settings.variant == "fast"
        self.machine = machine
        self.membership = machine.membership
        self.seed = seed
        self.clocks = clocks
        self.now = 0.0
        self.journal = Journal()
        self.acceptor = Acceptor(self.journal)
        self.detector = Detector(settings.suspect_s)
        self.started = False  # the incarnation is durable: what is said cannot be mistaken for an earlier incarnation
        self.stored = (0, 0)  # the highest promise, and the last instance voted on or applied, that are durable
        self.blank = False  # nothing is known of the group's state yet
        self.voting = False
        self.leader_id = 0
        self.leader_ballot = 0
        self.leader_heard_s = -inf
        self.promised_s = -inf
        self.applied = machine.applied  # kept here too: it is asked for dozens of times for every message
        self.late_s = 0.0  # time in which this replica did not run though it should have
        self.highest_round = 0
        self.hint = (0, 0)  # in which ballot the leader said that all up to which instance is chosen
        self.target = 0  # the highest instance known to be chosen anywhere
        self.target_source = 0
        self.chosen: dict[int, bytes] = {}
        self.acks: list[int] = []
        self.acks_ballot = 0
        self.counts: dict[str, int] = {}
        self.messages: list[tuple[int, Message]] = []
        self.after: list[tuple[int, Message]] = []
        self.to_self: list[Message] = []

    def restore(self, snapshot: bytes) -> None:
        """Replaces the state by that of a snapshot."""
        self.machine.decode(snapshot)
        self.applied = self.machine.applied

    def others(self) -> list[int]:
        """All other replicas that vote now or soon."""
        return [replica for replica in self.membership.ids() if replica != self.id]

    def send(self, to: int, message: Message) -> None:
        """Says something that rests on nothing this replica has yet to store."""
        (self.messages if self.started else self.after).append((to, message))

    def send_after(self, to: int, message: Message) -> None:
        """Says something once all of this turn is durable, perhaps to itself."""
        if to == self.id:
            self.to_self.append(message)
        else:
            self.after.append((to, message))

    def acknowledge(self, ballot: int, slot: int) -> None:
        """Tells the owner of a ballot of a vote in it, together with the other votes of this turn."""
        if ballot != self.acks_ballot:
            self.flush_acks()
            self.acks_ballot = ballot
        self.acks.append(slot)

    def flush_acks(self) -> None:
        """Votes of one turn in one ballot make one message."""
        if self.acks:
            self.send_after(owner_of(self.acks_ballot), Accepted(self.acks_ballot, self.applied, tuple(self.acks)))
            self.acks = []

    def count(self, reason: str, number: int = 1) -> None:
        """Counts what was dropped, and why."""
        self.counts[reason] = self.counts.get(reason, 0) + number

    def see(self, ballot: int) -> None:
        """Remembers the highest round, so that the next own ballot is above it."""
        self.highest_round = max(self.highest_round, round_of(ballot))

    def hear_chosen(self, ballot: int, upto: int) -> None:
        """The leader of a ballot says that all up to an instance is chosen."""
        if (ballot, upto) > self.hint:
            self.hint = (ballot, upto)

    def aim(self, slot: int, source: int) -> None:
        """Somebody knows more than this replica."""
        if slot > self.target:
            self.target, self.target_source = slot, source

    def told(self, slot: int) -> bytes | None:
        """The value of an instance that the leader said is chosen, where this replica voted for it in that ballot.

        In one ballot the leader proposes one value, and says that an instance is chosen only where it knows that this
        value is. So the vote is for the chosen value, whichever ballot chose it.
        A fast vote proves nothing: there, others may have voted for another value in the same ballot.
        """
        ballot, upto = self.hint
        voted = self.acceptor.votes.get(slot)
        return voted[1] if slot <= upto and voted is not None and voted[0] == classic(ballot) else None

    def leader_alive(self) -> bool:
        """Returns whether a leader was heard of lately."""
        if not self.leader_id:
            return False
        return self.now - self.leader_heard_s <= self.detector.patience_s(self.leader_id, self.now)

    def candidate_alive(self) -> bool:
        """Returns whether another replica that is there was promised a ballot lately: it will soon lead, or give up."""
        owner = owner_of(self.acceptor.promised)
        if not owner or owner == self.id or self.now - self.promised_s > _CANDIDATE * self.settings.suspect_s:
            return False
        return bool(self.detector.alive([owner], self.now))

    def excuse(self, late_s: float) -> None:
        """This replica itself did not run for so long, which counts against nobody."""
        self.late_s += late_s
        self.detector.excuse(late_s, self.now)
        self.leader_heard_s = min(self.now, self.leader_heard_s + late_s)
