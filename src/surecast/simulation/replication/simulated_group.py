"""A group in virtual time: the real replica code on simulated processors, disks and links, with publishers.

A processor takes all that waits at once, and then does what the loop of a real replica does, which waits while its disk
syncs. What comes out leaves as soon as the time up to there is over. Timers are late by a constant. Links have one
delay and lose nothing. The connection of a publisher to a replica that fails breaks at once; it then sends what is
in flight to another one.
"""

from __future__ import annotations

from collections.abc import Callable

from surecast.protocol.paxos import Message
from surecast.protocol.paxos import paxos_messages as m
from surecast.protocol.paxos.machine import Answer
from surecast.scenario.group import Group
from surecast.scenario.streams import Streams
from surecast.simulation.experiment.clock import CLIENTS, NETWORK, TIMERS, Clock
from surecast.simulation.replication.group_load import TICKS_PER_HEARTBEAT, ClosedLoad, Load, OpenLoad
from surecast.simulation.replication.replica_host import Output, ReplicaHost

__all__ = ["GroupWorld", "SimulatedPublication"]


class SimulatedPublication:
    """A publication: its publisher, the time and host of the request, and of its acknowledgement (-1: not yet)."""

    __slots__ = ("acknowledged_s", "asked_s", "client", "host", "sequence")

    def __init__(self, client: int, sequence: int, asked_s: float):
        self.client = client
        self.sequence = sequence
        self.asked_s = asked_s
        self.host = 0
        self.acknowledged_s = -1.0


class GroupWorld:
    """One run of a group. The same group, seed and calls give the same run."""

    def __init__(self, group: Group, seed: int, down: frozenset[int] = frozenset()):
        self.group = group
        self.clock = Clock()
        self.streams = Streams(seed)
        self.rng = self.streams.generator("replication", "load")
        self.publications: list[SimulatedPublication] = []
        self.commits: list[tuple[float, float]] = []
        self.on_answer: Callable[[SimulatedPublication], None] | None = None
        self._open: dict[tuple[int, int], SimulatedPublication] = {}
        self._sequences: dict[int, int] = {}
        self._proposed: dict[tuple[int, int], float] = {}
        self._load: Load | None = None
        self._load_until_s = 0.0
        self._turn = 0
        self.hosts = {
            i: ReplicaHost(
                i,
                group,
                self.clock,
                int(self.streams.generator("replication", "seed").integers(2**32)),
                self.streams.generator("replication/service", str(i)),
            )
            for i in range(1, group.replicas + 1)
        }
        for host in self.hosts.values():
            if host.id not in down:
                self.start(host)

    # Machines

    def start(self, host: ReplicaHost) -> None:
        """Brings a machine up; what publishers hold back because none was up goes to it."""
        host.start()
        for other in self.hosts.values():
            if other is not host and other.replica is not None:
                # As when its link comes up: it was down, which says nothing about how slow it is.
                other.replica.meet(host.id, self.clock.now)
        tick_s = self.group.heartbeat_s / TICKS_PER_HEARTBEAT
        host.later(self.clock.now + tick_s * float(self.rng.random()), TIMERS, self._tick, host, tick_s)
        self._wake(host)
        for publication in [publication for publication in self._open.values() if not publication.host]:
            self._send(publication)

    def crash(self, host: ReplicaHost) -> None:
        """A machine stops at once."""
        host.crash()
        self._proposed = {key: value for key, value in self._proposed.items() if key[0] != host.id}
        for publication in [publication for publication in self._open.values() if publication.host == host.id]:
            self._send(publication)

    @property
    def leader(self) -> ReplicaHost | None:
        """The machine that leads, by its own knowledge; the last elected if two think so."""
        leading = [host for host in self.hosts.values() if host.replica is not None and host.replica.leads]
        return max(leading, key=lambda host: host.replica.leader.ballot if host.replica else 0, default=None)

    def _tick(self, host: ReplicaHost, tick_s: float) -> None:
        host.inbox.is_tick = True
        self._wake(host)
        host.later(self.clock.now + tick_s, TIMERS, self._tick, host, tick_s)

    def _wake(self, host: ReplicaHost) -> None:
        if not host.is_busy and host.replica is not None:
            host.is_busy = True
            # after all else that happens at this moment: what arrives together is done together
            host.later(self.clock.now, CLIENTS, self._begin, host)

    def _begin(self, host: ReplicaHost) -> None:
        if host.replica is None:
            return
        inbox, applied = host.inbox, host.replica.applied
        host.inbox = type(inbox)()
        outputs, spent_s = host.work(host.replica, inbox, self.clock.now)
        for slot in range(applied + 1, host.replica.applied + 1):
            sent_s = self._proposed.pop((host.id, slot), None)
            if sent_s is not None:
                self.commits.append((sent_s, self.clock.now))
        for output in outputs:
            host.later(self.clock.now + output.after_s, NETWORK, self._leave, host, output)
        host.later(self.clock.now + spent_s, NETWORK, self._finish, host)

    def _leave(self, host: ReplicaHost, output: Output) -> None:
        host.store(output.records)
        self._post(host, output.messages)
        self._answer(output.replies)

    def _finish(self, host: ReplicaHost) -> None:
        if host.replica is None:
            return
        host.is_busy = False
        if host.inbox:
            self._wake(host)
        elif (wake_s := host.replica.wake_s) is not None:
            host.later(max(self.clock.now, wake_s) + self.group.timer_s, TIMERS, self._wake, host)

    def _post(self, host: ReplicaHost, messages: list[tuple[int, Message]]) -> None:
        for to, message in messages:
            if isinstance(message, m.Accept | m.Propose):
                self._proposed.setdefault((host.id, message.slot), self.clock.now)
            self.clock.at(self.clock.now + self.group.delay_s, NETWORK, self._deliver, host.id, to, message)

    def _deliver(self, source: int, to: int, message: Message) -> None:
        host = self.hosts[to]
        if host.replica is not None:
            host.inbox.messages.append((source, message))
            self._wake(host)

    # Publishers

    def offer(self, load: Load, until_s: float) -> None:
        """Begins to publish now; the last publication is asked for before `until_s`."""
        self._load, self._load_until_s = load, until_s
        if isinstance(load, ClosedLoad):
            for client in range(1, load.publishers + 1):
                for _ in range(load.window):
                    self.clock.at(self.clock.now + load.think_s * self.rng.random(), CLIENTS, self._publish, client)
        elif load.rate_per_s > 0:
            self._next(load)

    def _next(self, load: OpenLoad) -> None:
        when_s = self.clock.now + float(self.rng.standard_exponential()) / load.rate_per_s
        if when_s < self._load_until_s:
            self.clock.at(when_s, CLIENTS, self._arrive, load)

    def _arrive(self, load: OpenLoad) -> None:
        self._publish(1 + int(self.rng.integers(load.publishers)))
        self._next(load)

    def _publish(self, client: int) -> None:
        if self.clock.now < self._load_until_s:
            self.publish(client)

    def publish(self, client: int) -> SimulatedPublication:
        """A client publishes now."""
        self._sequences[client] = self._sequences.get(client, 0) + 1
        publication = SimulatedPublication(client, self._sequences[client], self.clock.now)
        self.publications.append(publication)
        self._open[client, publication.sequence] = publication
        self._send(publication)
        return publication

    def _send(self, publication: SimulatedPublication) -> None:
        """To the leader, or to each replica that is up in turn; nowhere while none is up."""
        host = self.leader if self.group.entry == "leader" else None
        if host is None:
            up = [host for host in self.hosts.values() if host.replica is not None]
            self._turn += 1
            host = up[self._turn % len(up)] if up else None
        publication.host = 0 if host is None else host.id
        if host is not None:
            host.inbox.requests.append((publication.client, publication.sequence, b""))
            self._wake(host)

    def _answer(self, replies: list[tuple[int, list[Answer]]]) -> None:
        for _, answers in replies:
            for client, sequence, _ in answers:
                publication = self._open.pop((client, sequence), None)
                if publication is None:
                    continue
                publication.acknowledged_s = self.clock.now
                if self.on_answer is not None:
                    self.on_answer(publication)
                if isinstance(self._load, ClosedLoad):
                    self.clock.at(self.clock.now + self._load.think_s, CLIENTS, self._publish, client)
