"""One simulated machine: a replica whose processor does one thing at a time, or waits for its disk."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from surecast.protocol.paxos import Context, Replica, Turn
from surecast.protocol.paxos import messages as m
from surecast.protocol.paxos.batches import segments_of
from surecast.scenario.group import Group
from surecast.simulate.replication.options import settings_of

__all__ = ["Counter", "Host", "Inbox", "Output", "publications_in"]

Request = tuple[int, int, bytes]
_PROPOSALS = (m.Accept, m.Propose)
_VOTES = (m.Accepted, m.Voted)


class Counter:
    """The replicated application: it counts what it carries out."""

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
    """What waits for the processor of a host."""

    __slots__ = ("is_tick", "messages", "requests")

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.messages: list[tuple[int, m.Message]] = []
        self.is_tick = False

    def __bool__(self) -> bool:
        return bool(self.requests or self.messages or self.is_tick)


@dataclass(frozen=True, slots=True)
class Output:
    """A turn `after_s` into a spell of work: what may go at once goes, or once it `is_stored` what had to wait."""

    after_s: float
    turn: Turn
    is_stored: bool = False


class Host:
    """A replica that can crash; what is in `disk` survives.

    `cpu_s` adds up the processor time spent, `instances` the instances proposed here.
    """

    def __init__(self, replica: int, group: Group, seed: int, rng: np.random.Generator):
        self.id = replica
        self.group = group
        self.seed = seed
        self.rng = rng
        self.disk: dict[bytes, bytes] = {}
        self.replica: Replica | None = None
        self.life = 0
        self.cpu_s = 0.0
        self.instances = 0
        self._settings = settings_of(group)
        self._reset()

    def _reset(self) -> None:
        self.handler = Counter()
        self._executed = self._applied = 0
        self.inbox = Inbox()
        self.is_busy = False

    def start(self, now_s: float) -> None:
        """Starts from what is on the disk."""
        self.life += 1
        self._reset()
        members = range(1, self.group.replicas + 1)
        self.replica = Replica(
            self.id, self.handler, members, self._settings, self.disk.items(), seed=self.seed, now=now_s
        )
        self._executed, self._applied = self.handler.executed, self.replica.applied

    def crash(self) -> None:
        """Everything but the disk is gone."""
        self.life += 1
        self._reset()
        self.replica = None

    def store(self, turn: Turn) -> None:
        """One commit reaches the disk, whole."""
        for key, value in turn.records:
            if value is None:
                self.disk.pop(key, None)
            else:
                self.disk[key] = value

    def work(self, replica: Replica, inbox: Inbox, now_s: float) -> tuple[list[Output], float]:
        """Lets the replica do all that waits, as the loop of a real one does; what comes out, and how long it takes.

        Proposals and answers leave before the records of a turn are synced, and what rests on these right after. Only
        then is carried out what another replica said is chosen. While it syncs, a replica does nothing else.
        """
        replica.node.now = now_s
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
            spent_s += self._cost_out(turn) + self._carried_out_s(replica)
            outputs.append(Output(spent_s + synced_s, turn))
            if turn.records:
                synced_s += self.group.sync_s
            if turn.records or turn.after:
                outputs.append(Output(spent_s + synced_s, turn, is_stored=True))
            replica.synced(turn.number, now_s + spent_s + synced_s)
            spent_s += self._carried_out_s(replica)
            if turn.is_empty and replica.applied == before:
                break
        self.cpu_s += spent_s
        return outputs, spent_s + synced_s

    def _cost_in(self, inbox: Inbox) -> float:
        costs, total = self.group.costs, self.group.costs.publication_s * len(inbox.requests)
        for _, message in inbox.messages:
            if isinstance(message, _PROPOSALS):
                total += costs.follower_instance_s + costs.follower_publication_s * publications_in([message.value])
            elif isinstance(message, _VOTES):
                total += costs.peer_s / 2
            elif isinstance(message, m.Forward):
                total += costs.follower_publication_s * _requests_in(message.segments)
        return total

    def _cost_out(self, turn: Turn) -> float:
        sent = [message for _, message in turn.messages if isinstance(message, _PROPOSALS)]
        proposed = len({message.slot for message in sent})
        self.instances += proposed
        return self.group.costs.instance_s * proposed + self.group.costs.peer_s / 2 * len(sent)

    def _carried_out_s(self, replica: Replica) -> float:
        """Time for what was carried out since the last call: of the broker itself; a lone replica also orders it so."""
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
    """How many publications these values have."""
    return sum(int.from_bytes(part[:4], "big") for value in values if value for _, _, part in segments_of(value))


def _requests_in(segments: Iterable[bytes]) -> int:
    return sum(int.from_bytes(segment[14:18], "big") for segment in segments)
