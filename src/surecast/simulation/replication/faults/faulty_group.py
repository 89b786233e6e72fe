"""A simulated world: replicas, disks, clocks, a network and clients, driven by one random generator.

It runs in two phases: first everything that the options allow goes wrong and only safety is asked for; then all is
healed, and everything asked must be answered and all replicas be equal within a bounded time.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any, Final, Literal, TypeAlias

from surecast.errors import ConfigurationError, OverloadError
from surecast.protocol.paxos import Answer, Message, Turn, Variant, decode, encode
from surecast.protocol.paxos.example_store import cas, get, incr, put
from surecast.protocol.paxos.incarnations import HistoryError
from surecast.protocol.paxos.log_values import stamp_of
from surecast.simulation.experiment.clock import NETWORK, Clock
from surecast.simulation.replication.faults.fault_options import (
    GroupOptions,
    divided,
    expand,
    forgetful,
    harsher,
    overtaking,
    stalled,
)
from surecast.simulation.replication.faults.faulty_host import FaultyHost
from surecast.simulation.replication.faults.history_checks import (
    AppliedLog,
    Operation,
    Violation,
    check_histories,
    check_time,
)
from surecast.simulation.replication.faults.nemesis import STEADY_S, Nemesis

__all__ = ["MODES", "Clients", "FaultyGroup", "Mode", "Outcome", "run_seed"]

_RETRY_S = 1.0


class Clients:
    """All clients of a world. Each has some requests in flight at a time, in windows."""

    def __init__(self, world: FaultyGroup):
        self.world = world
        self.operations: list[Operation] = []
        self._by_key: dict[tuple[int, int], Operation] = {}
        self._left: dict[int, int] = {}
        options = world.options
        for client in range(1, options.clients + 1):
            self._left[client] = options.requests
            for _ in range(options.in_flight):
                world.at(world.rng.uniform(0, 1), self._ask, client)

    @property
    def all_answered(self) -> bool:
        """True if every request of every client was answered."""
        return not any(self._left.values()) and all(operation.is_answered for operation in self.operations)

    def _ask(self, client: int) -> None:
        sequence = self.world.options.requests - self._left[client] + 1
        oldest = min(
            (
                operation.sequence
                for operation in self.operations
                if operation.client == client and not operation.is_answered
            ),
            default=0,
        )
        if not self._left[client]:
            return
        if oldest and sequence - oldest >= self.world.options.settings.reply_window:
            self.world.at(0.2, self._ask, client)  # the reply to an older one could be forgotten
            return
        self._left[client] -= 1
        world, rng = self.world, self.world.rng
        key = b"k%d" % rng.randrange(world.options.keys)
        number = str(rng.randrange(4)).encode()
        command = rng.choice(
            (incr(key), incr(key), put(key, number), get(key), cas(key, number, str(rng.randrange(4)).encode()))
        )
        operation = Operation(client, sequence, command, world.now)
        self.operations.append(operation)
        self._by_key[client, sequence] = operation
        world.applied_log.submitted[client, sequence] = command
        self._send(operation)

    def _send(self, operation: Operation) -> None:
        if operation.is_answered:
            return
        world, rng = self.world, self.world.rng
        hosts = list(world.hosts.values())
        if rng.random() < world.options.to_leader:
            hosts = [host for host in hosts if host.replica is not None and host.replica.leads] or hosts
        host = rng.choice(hosts)
        request = (operation.client, operation.sequence, operation.command)
        world.at(rng.expovariate(1 / world.options.delay_s), world.submit, host, [request])
        world.at(_RETRY_S * rng.uniform(0.7, 1.3), self._send, operation)

    def answered(self, replies: list[tuple[int, list[Answer]]]) -> None:
        """A replica answers; the answer may be lost on its way."""
        world, rng = self.world, self.world.rng
        for client, sequence, reply in (answer for _, answers in replies for answer in answers):
            operation = self._by_key.get((client, sequence))
            if operation is None or (not world.is_healed and rng.random() < world.options.loss):
                continue
            if reply is None:
                if not operation.is_answered:
                    raise Violation(
                        f"exactly once: request {(client, sequence)} is called too old, but was never answered"
                    )
                continue
            world.at(rng.expovariate(1 / world.options.delay_s), self._hear, operation, reply)

    def _hear(self, operation: Operation, reply: bytes) -> None:
        if operation.is_answered:
            if operation.reply != reply:
                raise Violation(f"exactly once: {operation.client} got {operation.reply!r}, then {reply!r}")
            return
        operation.answered_s, operation.reply = self.world.now, reply
        self.world.at(self.world.rng.expovariate(1 / 0.1), self._ask, operation.client)


Mode: TypeAlias = Literal["plain", "harsh", "divided", "forgetful", "overtaking", "stalled"]
MODES: Final[dict[Mode, Callable[[GroupOptions], GroupOptions]]] = {
    "plain": lambda options: options,
    "harsh": harsher,
    "divided": divided,
    "forgetful": forgetful,
    "overtaking": overtaking,
    "stalled": stalled,
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a run: the violated property, empty where all held, and counts of what happened."""

    options: GroupOptions
    violation: str
    slots: int
    counts: dict[str, int]

    @property
    def held(self) -> bool:
        """True if every property held."""
        return not self.violation


def run_seed(seed: int, replicas: int = 3, variant: Variant = "multi", mode: Mode = "plain") -> Outcome:
    """Expands a seed and runs it. The same seed gives the same run, event by event.

    >>> run_seed(1).held
    True
    """
    world = FaultyGroup(MODES[mode](expand(seed, replicas, variant)))
    violation = ""
    try:
        world.run()
    except Violation as error:
        violation = str(error)
    return Outcome(world.options, violation, max(world.applied_log.values, default=0), world.counts)


_TICK_S = 0.05
_CHECK_EVERY = 50
"""After so many steps it is asked whether all is well."""
_TIME_S = 2.0
"""The distance by which the group's time may be behind the right clocks when all is well: heartbeats are in flight."""
_SETTLE_S = 4 * _TICK_S
"""A machine that started again knows a bare majority at first, and so the slowest of their clocks: it has so long."""
_TIMER_S = 0.001
"""By how much timers are late."""


class FaultyGroup:
    """One run of a group."""

    def __init__(self, options: GroupOptions):
        self.options = options
        self.rng = random.Random(f"world {options.seed} {options.replicas} {options.variant}")
        self.stall_rng = random.Random(f"stalls {options.seed} {options.replicas} {options.variant}")
        self.clock_rng = random.Random(f"clocks {options.seed} {options.replicas} {options.variant}")
        self.clock = Clock()
        self.is_healed = False
        self.applied_log = AppliedLog()
        self.hosts: dict[int, FaultyHost] = {}
        self.blocked: set[tuple[int, int, type]] = set()  # from whom, to whom, what kind of message
        self.counts = {"messages": 0, "crashes": 0, "commits": 0, "replacements": 0, "partitions": 0}
        self.counts |= {"disks set back": 0, "disks wiped": 0, "refused": 0, "stalls": 0}
        self.led: set[int] = set()  # ballots of leaders once the group has one
        members = tuple(range(1, options.replicas + 1))
        for replica in members:
            self.add_host(replica, members, 0)
        self.clients = Clients(self)
        self.nemesis = Nemesis(self)

    @property
    def now(self) -> float:
        """The time in this world."""
        return self.clock.now

    def at(self, delay_s: float, action: Callable[..., None], *arguments: Any) -> None:
        """Does something later."""
        self.clock.at(self.clock.now + delay_s, NETWORK, action, *arguments)

    def add_host(self, replica: int, members: tuple[int, ...], token: int) -> FaultyHost:
        """A new machine with an empty disk."""
        options, rng = self.options, self.rng
        host = FaultyHost(replica, self.clock, members, token, options.settings, options.seed, self._applied)
        host.rate = 1.0 + rng.uniform(-options.drift, options.drift)
        host.offset_s = rng.uniform(0, 100 * options.drift)
        host.is_wrong = bool(options.wrong_clocks_s) and replica <= (options.replicas - 1) // 2
        self.set_clock(host)
        host.disk_s = options.disk_s * (5 if rng.random() < options.slow_disk else 1)
        self.hosts[replica] = host
        self.start(host)
        return host

    def set_clock(self, host: FaultyHost) -> None:
        """Sets a wall clock: to the right time, or to a wrong one."""
        wrong_s = self.options.wrong_clocks_s if host.is_wrong else 0.0
        host.set_clock(self.clock_rng.uniform(-wrong_s, wrong_s))

    def _applied(self, replica: int, slot: int, value: bytes, running: bytes) -> None:
        if slot not in self.applied_log.values and (stamp_us := stamp_of(value)):
            check_time(f"the stamp of {slot}", stamp_us / 1e6, -inf, *self._right_clocks())
        self.applied_log.applied(replica, slot, value, running)

    def _right_clocks(self) -> tuple[float, float]:
        """The latest that a right clock shows, and by how much others may be wrong about it."""
        options = self.options
        latest_s = max(host.wall_s for host in self.hosts.values() if not host.is_wrong)
        return latest_s, 0.001 + 2 * options.drift * (options.faults_s + options.heal_s)

    def start(self, host: FaultyHost) -> None:
        """Starts a machine."""
        try:
            host.start(self.rng.getrandbits(64) | 1 if self.options.checked else 0)
        except ConfigurationError:
            self._refused(host)
            return
        self._later(host, 0.0, self.turn)
        self._later(host, self.rng.uniform(0, _TICK_S), self._tick)

    def _later(self, host: FaultyHost, delay_s: float, action: Callable[..., None], *arguments: Any) -> None:
        """A machine does something later, in this incarnation."""
        host.later(self.now + delay_s, NETWORK, action, host, *arguments)

    def _tick(self, host: FaultyHost) -> None:
        if host.replica is None:
            return
        if stall_s := self._stalls(host):
            self._later(host, stall_s, self._tick)
            return
        host.replica.tick(host.timer_s)
        if host.replica.leads and self.now > STEADY_S:
            self.led.add(host.replica.leader.ballot)
        self._later(host, _TICK_S / host.rate, self._tick)
        self.turn(host)

    def _stalls(self, host: FaultyHost) -> float:
        """For how long a machine does not run; what it is to do waits as long."""
        return max(host.stalled_until_s - self.now, 0.0)

    def crash(self, host: FaultyHost) -> None:
        """A machine stops at once; it comes back later unless it is gone for good."""
        if host.replica is None:
            return
        self.counts["crashes"] += 1
        kept = self.rng.randint(0, len(host.unsynced)) if self.rng.random() < self.options.torn else 0
        host.crash(kept)
        if not host.is_gone:
            self.at(self.rng.expovariate(1 / self.options.down_s), self.restart, host)

    def restart(self, host: FaultyHost) -> None:
        """Brings a machine up where it is down."""
        if host.replica is None and not host.is_gone:
            self.start(host)

    def _refused(self, host: FaultyHost) -> None:
        """A machine stops for good: its disk is not the one that the others know."""
        self.counts["refused"] += 1
        host.is_gone = True
        host.crash(0)

    def _crashes_here(self, host: FaultyHost) -> bool:
        """Every durability point is a chance to crash."""
        if self.is_healed or self.rng.random() >= self.options.crash:
            return False
        self.crash(host)
        return True

    def turn(self, host: FaultyHost) -> None:
        """Takes what a replica has to say and to store."""
        if host.replica is None:
            return
        turn = host.replica.take()
        if self._crashes_here(host):
            return  # nothing said, nothing stored
        self.clients.answered(turn.replies)
        for to, message in turn.messages:
            self.send(host.id, to, message)
        host.unsynced.append(turn)
        if self._crashes_here(host):
            return  # said, but not stored
        if self.rng.random() < self.options.apply_early:
            self.clients.answered(host.replica.apply_chosen())
            if self._crashes_here(host):
                return  # applied and answered, but not stored
        if not host.is_writing:
            self._write(host)
        self._set_timer(host)

    def _set_timer(self, host: FaultyHost) -> None:
        """Gives a replica a turn at the time that it asks for."""
        if host.replica is None or (clock_s := host.replica.wake_s) is None:
            return
        wakes_s = max(self.now, host.time_s(clock_s)) + _TIMER_S
        if host.wakes_s is None or wakes_s < host.wakes_s:
            host.wakes_s = wakes_s
            self._later(host, wakes_s - self.now, self._wake, wakes_s)

    def _wake(self, host: FaultyHost, wakes_s: float) -> None:
        if host.replica is None or host.wakes_s != wakes_s:
            return  # an earlier timer took the place of this one
        if stall_s := self._stalls(host):
            self._later(host, stall_s, self._wake, wakes_s)
            return
        host.wakes_s = None
        host.replica.wake_at(host.timer_s)
        self.turn(host)

    def _write(self, host: FaultyHost) -> None:
        """Writes all turns that wait, in one go: group commit."""
        turns = list(host.unsynced)
        host.is_writing = True
        if not host.disk_s or not any(turn.records for turn in turns):
            self._written(host, turns)
            return
        self._later(host, self.rng.expovariate(1 / host.disk_s), self._written, turns)

    def _written(self, host: FaultyHost, turns: list[Turn]) -> None:
        if stall_s := self._stalls(host):
            self._later(host, stall_s, self._written, turns)
            return
        self.counts["commits"] += 1
        for turn in turns:
            host.store(turn)
            host.unsynced.popleft()
        for turn in turns:
            self._stored(host, turn)
        if host.replica is not None:
            host.is_writing = False
            if host.unsynced:
                self._write(host)

    def _stored(self, host: FaultyHost, turn: Turn) -> None:
        if host.replica is None:
            return
        if self._crashes_here(host):
            return  # stored, but the votes not told
        for to, message in turn.after:
            self.send(host.id, to, message)
        if self._crashes_here(host):
            return  # told, but not known here
        before = host.replica.applied
        host.replica.synced(turn.number, host.timer_s)
        if host.replica.applied != before or not turn.is_empty:
            self.turn(host)

    def send(self, source: int, to: int, message: Message) -> None:
        """Puts a message on the network, which may lose, double, delay and reorder it."""
        options, rng = self.options, self.rng
        self.counts["messages"] += 1
        if (source, to, type(message)) in self.blocked or to not in self.hosts:
            return
        if not self.is_healed and rng.random() < options.loss:
            return
        copies = 2 if not self.is_healed and rng.random() < options.duplication else 1
        content = encode(message) if options.wire else None
        start = self.hosts[source].number
        for _ in range(copies):
            delay_s = rng.expovariate(1 / options.delay_s)
            if rng.random() < options.straggling and not self.is_healed:
                delay_s *= 10
            self.at(delay_s, self._deliver, source, start, to, message if content is None else decode(content))

    def _deliver(self, source: int, start: int, to: int, message: Message) -> None:
        host = self.hosts[to]
        if stall_s := self._stalls(host):
            self.at(stall_s, self._deliver, source, start, to, message)
            return
        if host.replica is not None and (source, to, type(message)) not in self.blocked:
            try:
                host.replica.receive(source, message, host.timer_s, start)
            except HistoryError:
                self._refused(host)
                return
            self.turn(host)

    def submit(self, host: FaultyHost, requests: list[tuple[int, int, bytes]]) -> None:
        """A client's requests reach a machine."""
        if stall_s := self._stalls(host):
            self.at(stall_s, self.submit, host, requests)
            return
        if host.replica is not None:
            try:
                host.replica.submit(requests, host.timer_s)
            except OverloadError:
                return
            self.turn(host)

    def _run(self, until_s: float, done: Callable[[], bool]) -> bool:
        while not self.clock.run(until_s, most=_CHECK_EVERY):
            if done():
                return True
        return done()

    def run(self) -> None:
        """Both phases; raises Violation where a property does not hold."""
        options = self.options
        self._run(options.faults_s, lambda: False)
        self.is_healed = True
        self.nemesis.heal()
        if not self._run(options.faults_s + options.heal_s, self._is_well):
            raise Violation(f"liveness: {self._what_is_wrong()} {options.heal_s:g} s after the last fault")
        if options.steady and len(self.led) > 1:
            raise Violation(f"steadiness: {len(self.led)} replicas led in turn, though none failed")
        try:
            self._check_clocks()
        except Violation:
            self._run(self.now + _SETTLE_S, lambda: False)
            self._check_clocks()
        replay = self.applied_log.replay()
        check_histories(replay, self.clients.operations)
        for host in self.members():
            if host.handler.pairs != replay.pairs:
                raise Violation(f"exactly once: the state of replica {host.id} is not that of the log")

    def _check_clocks(self) -> None:
        """All members agree on the time with the right clocks, whatever the others show."""
        latest_s, slack_s = self._right_clocks()
        earliest_s = min(host.wall_s for host in self.hosts.values() if not host.is_wrong)
        for host in self.members():
            if host.replica is not None and (time_us := host.replica.time_us()) is not None:
                check_time(f"replica {host.id}", time_us / 1e6, earliest_s - _TIME_S, latest_s, slack_s)

    def members(self) -> list[FaultyHost]:
        """The machines that vote, by the replica that has applied most."""
        up = [host for host in self.hosts.values() if host.replica is not None]
        latest = max(up, key=lambda host: host.replica.applied if host.replica else 0)
        assert latest.replica is not None
        return [self.hosts[number] for number in latest.replica.membership.ids()]

    def _is_well(self) -> bool:
        if not self.clients.all_answered or not self.nemesis.is_done:
            return False
        replicas = [host.replica for host in self.members()]
        first = replicas[0]
        if first is None or first.applied < max(self.applied_log.values, default=0):
            return False
        if any(replica is None or replica.membership.changes for replica in replicas):
            return False
        voters = all(replica is not None and replica.voting for replica in replicas)
        return voters and all(replica is not None and replica.hash == first.hash for replica in replicas)

    def _what_is_wrong(self) -> str:
        waiting = sum(not operation.is_answered for operation in self.clients.operations)
        states = [
            f"{host.id}:{host.replica.applied}{'L' if host.replica.leads else ''}"
            for host in self.hosts.values()
            if host.replica is not None
        ]
        replacing = "" if self.nemesis.is_done else ", a replacement is not done"
        return f"{waiting} requests wait{replacing}, replicas are at {' '.join(states)}"
