"""A group in one process: messages wait in a queue, commits are immediate unless a replica's disk is held."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from surecast.protocol.paxos import ExampleStore, Message, PaxosSettings, Replica, Turn

Link = Callable[[int, int, Message], bool]


class Group:
    """Replicas joined by a queue. `passes` says which messages get through. With `numbers` their starts have one."""

    def __init__(self, replicas: int = 3, numbers: bool = False, **settings: object):
        self.numbers = numbers
        self.starts: dict[int, int] = {}
        self.last_start = 0
        self.settings = PaxosSettings(**settings)  # type: ignore[arg-type]
        self.founders = tuple(range(1, replicas + 1))
        self.now = 0.0
        self.disks: dict[int, dict[bytes, bytes]] = {one: {} for one in self.founders}
        self.stores = {one: ExampleStore() for one in self.founders}
        self.replicas = {one: self._make(one) for one in self.founders}
        self.queue: deque[tuple[int, int, Message]] = deque()
        self.sent: list[tuple[int, int, Message]] = []
        self.replies: dict[tuple[int, int], bytes | None] = {}
        self.passes: Link = lambda source, to, message: True

    def _make(self, one: int, token: int = 0) -> Replica:
        self.last_start += 1
        self.starts[one] = self.last_start if self.numbers else 0
        return Replica(
            one,
            self.stores[one],
            self.founders,
            self.settings,
            records=self.disks[one].items(),
            token=token,
            start=self.starts[one],
            now=self.now,
        )

    def join(self, one: int, token: int) -> Replica:
        self.disks[one], self.stores[one] = {}, ExampleStore()
        self.replicas[one] = self._make(one, token)
        return self.replicas[one]

    def restart(self, one: int) -> Replica:
        self.stores[one] = ExampleStore()
        self.replicas[one] = self._make(one)
        return self.replicas[one]

    def commit(self, one: int, turn: Turn) -> None:
        for key, value in turn.records:
            if value is None:
                self.disks[one].pop(key, None)
            else:
                self.disks[one][key] = value

    def turn(self, one: int) -> None:
        replica = self.replicas[one]
        while True:
            turn = replica.take()
            for _, answers in turn.replies:
                for client, sequence, reply in answers:
                    self.replies[client, sequence] = reply
            self.commit(one, turn)
            for to, message in (*turn.messages, *turn.after):
                self.queue.append((one, to, message))
            replica.synced(turn.number, self.now)
            if turn.is_empty:
                return

    def settle(self) -> None:
        for one in self.replicas:
            self.turn(one)
        while self.queue:
            source, to, message = self.queue.popleft()
            self.sent.append((source, to, message))
            if to in self.replicas and self.passes(source, to, message):
                self.replicas[to].receive(source, message, self.now, self.starts[source])
                self.turn(to)

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += 0.02
            for replica in self.replicas.values():
                replica.tick(self.now)
            self.settle()

    def ask(self, one: int, client: int, sequence: int, command: bytes) -> bytes | None:
        self.replicas[one].submit([(client, sequence, command)], self.now)
        self.settle()
        return self.replies.get((client, sequence))

    @property
    def leader(self) -> Replica:
        return next(replica for replica in self.replicas.values() if replica.leads)

    def followers(self) -> list[int]:
        return [one for one, replica in self.replicas.items() if not replica.leads]
