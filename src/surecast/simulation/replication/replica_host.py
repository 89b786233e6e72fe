"""One simulated machine: a replica whose processor does one thing at a time, or waits for its disk."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from surecast.protocol.paxos import Context, Message, Replica, Turn
from surecast.protocol.paxos import paxos_messages as m
from surecast.protocol.paxos.journal import Record
from surecast.protocol.paxos.log_values import segments_of
from surecast.protocol.paxos.machine import Answer
from surecast.scenario.group import Group
from surecast.simulation.experiment import Clock, Machine
from surecast.simulation.replication.group_load import settings_of

__all__ = ["Counter", "Inbox", "Output", "ReplicaHost", "publications_in"]

Request = tuple[int, int, bytes]
_PROPOSALS = (m.Accept, m.Propose)
_VOTES = (m.Accepted, m.Voted)


class Counter:
    """The replicated application: it counts what it applies."""

    def __init__(self) -> None:
        self.executed = 0

    def execute(self, command: bytes, context: Context) -> bytes:
        """Counts a publication."""
        self.executed += 1
        return b"+"

    def snapshot(self) -> bytes:
        """The count."""
        return self.executed.to_bytes(8, "big")

    def restore(self, state: bytes) -> None:
        """Takes over a count."""
        self.executed = int.from_bytes(state, "big")


class Inbox:
    """The requests and messages that wait for the processor of a host."""

    __slots__ = ("is_tick", "messages", "requests")

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.messages: list[tuple[int, m.Message]] = []
        self.is_tick = False

    def __bool__(self) -> bool:
        return bool(self.requests or self.messages or self.is_tick)


@dataclass(frozen=True, slots=True)
class Output:
    """The records that are stored and the messages that leave then, `after_s` into a spell of work."""

    after_s: float
    messages: list[tuple[int, Message]] = field(default_factory=list)
    replies: list[tuple[int, list[Answer]]] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)


class ReplicaHost(Machine):
    """A replica that can crash; what is in `disk` survives.

    `cpu_s` adds up the processor time spent, `instances` the instances proposed here.
    """

    def __init__(self, replica: int, group: Group, clock: Clock, seed: int, rng: np.random.Generator):
        super().__init__(clock)
        self.id = replica
        self.group = group
        self.seed = seed
        self.rng = rng
        self.disk: dict[bytes, bytes] = {}
        self.replica: Replica | None = None
        self.cpu_s = 0.0
        self.instances = 0
        self._settings = settings_of(group)
        self._reset()

    def _reset(self) -> None:
        self.handler = Counter()
        self._executed = self._applied = self._proposed = 0
        self.inbox = Inbox()
        self.is_busy = False

    def start(self) -> None:
        """Starts from what is on the disk."""
        self.end_incarnation()
        self._reset()
        members = range(1, self.group.replicas + 1)
        self.replica = Replica(
            self.id, self.handler, members, self._settings, self.disk.items(), seed=self.seed, now=self.clock.now
        )
        self.replica.urgent = self.group.entry == "any"  # its publishers wait for what is chosen
        self._executed, self._applied = self.handler.executed, self.replica.applied

    def crash(self) -> None:
        """Everything but the disk is gone."""
        self.end_incarnation()
        self._reset()
        self.replica = None

    def store(self, records: list[Record]) -> None:
        """One commit reaches the disk, whole."""
        for key, value in records:
            if value is None:
                self.disk.pop(key, None)
            else:
                self.disk[key] = value

    def work(self, replica: Replica, inbox: Inbox, now_s: float) -> tuple[list[Output], float]:
        """Lets the replica do all that waits, as the loop of a real one does; what comes out, and how long it takes.

        A proposal leaves first; then is applied what is chosen, and answered; then the records of the turn are
        synced, and what rests on these leaves. Only then is applied what another replica said is chosen. While it
        syncs, a replica does nothing else.
        """
        replica.wake_at(now_s)
        outputs: list[Output] = []
        spent_s, synced_s = self._cost_in(inbox), 0.0
        for sender, message in inbox.messages:
            replica.receive(sender, message, now_s)
        if inbox.requests:
            replica.submit(inbox.requests, now_s)
        if inbox.is_tick:
            replica.tick(now_s)
        while replica.has_more:
            before = replica.applied
            turn = replica.take()
            spent_s += self._cost_out(turn) + self._apply_s(replica)
            outputs.append(Output(spent_s + synced_s, turn.messages, turn.replies))
            if turn.records:
                if not turn.after:
                    replies = replica.apply_chosen()
                    spent_s += self._apply_s(replica)
                    outputs.append(Output(spent_s + synced_s, replies=replies))
                synced_s += self.group.sync_s
            if turn.records or turn.after:
                outputs.append(Output(spent_s + synced_s, turn.after, records=turn.records))
            replica.synced(turn.number, now_s + spent_s + synced_s)
            spent_s += self._apply_s(replica)
            if turn.is_empty and replica.applied == before:
                break
        self.cpu_s += spent_s
        return outputs, spent_s + synced_s

    def _cost_in(self, inbox: Inbox) -> float:
        """Time to take what came: proposals of one replica that came together are read, stored and voted on as one."""
        costs, total = self.group.costs, self.group.costs.publication_s * len(inbox.requests)
        proposers = set()
        for sender, message in inbox.messages:
            if isinstance(message, _PROPOSALS):
                proposers.add(sender)
                total += costs.follower_publication_s * publications_in([message.value])
            elif isinstance(message, _VOTES):
                total += costs.peer_s / 2
            elif isinstance(message, m.Forward):
                total += costs.follower_publication_s * _requests_in(message.segments)
        return total + costs.follower_instance_s * len(proposers)

    def _cost_out(self, turn: Turn) -> float:
        """Time to propose: once for an instance, and for each replica that is told, be it of several at once."""
        sent = [(to, message.slot) for to, message in turn.messages if isinstance(message, _PROPOSALS)]
        proposed = {slot for _, slot in sent if slot > self._proposed}
        self._proposed = max(proposed, default=self._proposed)
        self.instances += len(proposed)
        return self.group.costs.instance_s * len(proposed) + self.group.costs.peer_s / 2 * len({to for to, _ in sent})

    def _apply_s(self, replica: Replica) -> float:
        """Time for what was applied since the last call: of the broker itself; a lone replica also orders it so."""
        count, self._executed = self.handler.executed - self._executed, self.handler.executed
        slots, self._applied = replica.applied - self._applied, replica.applied
        service, spent_s = self.group.service, 0.0
        if service is not None and count > 0:
            spent_s += float(service.sample(self.rng, count).sum())
        if self.group.replicas == 1:
            self.instances += slots
            spent_s += self.group.costs.instance_s * slots
        return spent_s


def publications_in(values: Iterable[bytes]) -> int:
    """Returns the number of publications in these values."""
    return sum(
        int.from_bytes(value[offset : offset + 4], "big") for value in values for _, _, offset in segments_of(value)
    )


def _requests_in(segments: Iterable[bytes]) -> int:
    return sum(int.from_bytes(segment[14:18], "big") for segment in segments)
