"""Simulated clients of the example store: they ask, wait, ask again elsewhere under the same identity, and remember."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surecast.protocol.paxos import Answer
from surecast.protocol.paxos.example_store import cas, get, incr, put
from surecast.simulation.replication.faults.checks import Operation, Violation

if TYPE_CHECKING:
    from surecast.simulation.replication.faults.faulty_group import World

__all__ = ["Clients"]

_RETRY_S = 1.0


class Clients:
    """All clients of a world. Each has some requests in flight at a time, in windows."""

    def __init__(self, world: World):
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
            (one.sequence for one in self.operations if one.client == client and not one.is_answered), default=0
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
