"""One simulated machine: a replica with a processor that does one turn at a time, and a disk that syncs."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from surecast.protocol.paxos import Context, Replica, Turn
from surecast.protocol.paxos import messages as m
from surecast.protocol.paxos.batches import segments_of
from surecast.scenario.group import Group
from surecast.simulate.replication.options import settings_of

__all__ = ["Counter", "Host", "Inbox", "publications_in"]

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

    __slots__ = ("is_tick", "messages", "requests", "synced")

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.messages: list[tuple[int, m.Message]] = []
        self.synced: list[Turn] = []
        self.is_tick = False

    def __bool__(self) -> bool:
        return bool(self.requests or self.messages or self.synced or self.is_tick)


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
        self.inbox = Inbox()
        self.is_busy = False
        self.is_writing = False
        self.unsynced: list[Turn] = []

    def start(self, now_s: float) -> None:
        """Starts from what is on the disk."""
        self.life += 1
        self._reset()
        members = range(1, self.group.replicas + 1)
        self.replica = Replica(
            self.id, self.handler, members, self._settings, self.disk.items(), seed=self.seed, now=now_s
        )

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

    def work(self, replica: Replica, inbox: Inbox, now_s: float) -> tuple[list[Turn], float]:
        """Lets the replica do all that waits; the turns that come out, and the processor time they take."""
        executed, applied = self.handler.executed, replica.applied
        cost_s = self._cost_in(inbox)
        for sender, message in inbox.messages:
            replica.receive(sender, message, now_s)
        for turn in inbox.synced:
            replica.synced(turn.number, now_s)
        if inbox.requests:
            replica.submit(inbox.requests, now_s)
        if inbox.is_tick:
            replica.tick(now_s)
        turns = [replica.take()]
        while not self.group.sync_s and (turns[-1].records or turns[-1].after or len(turns) == 1):
            # without syncing a turn is stored at once, and what follows from that belongs to it
            replica.synced(turns[-1].number, now_s)
            turns.append(replica.take())
        cost_s += sum(map(self._cost_out, turns))
        if self.group.replicas == 1:
            self.instances += replica.applied - applied
            cost_s += self.group.costs.instance_s * (replica.applied - applied)
        cost_s += self._service_s(self.handler.executed - executed)
        self.cpu_s += cost_s
        return turns, cost_s

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

    def _service_s(self, count: int) -> float:
        service = self.group.service
        return float(service.sample(self.rng, count).sum()) if service is not None and count > 0 else 0.0


def publications_in(values: Iterable[bytes]) -> int:
    """How many publications these values have."""
    return sum(int.from_bytes(part[:4], "big") for value in values if value for _, _, part in segments_of(value))


def _requests_in(segments: Iterable[bytes]) -> int:
    return sum(int.from_bytes(segment[14:18], "big") for segment in segments)
