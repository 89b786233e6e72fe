"""Cost of consensus without disks and links: three replicas in one process that hand each other messages.

Run it without arguments; it takes about half a minute. Time is CPU time of all replicas together, divided by three
for the cost a replica. The handler answers with nothing: what remains is the protocol, the batch and the reply queue.
"""

from __future__ import annotations

import time
from collections import deque

from surecast.protocol.paxos import Context, Message, PaxosSettings, Replica, Variant, decode, encode, pack_requests

REPLICAS = 3
ROUNDS = 5
PAYLOAD = bytes(64)


class Silent:
    """A handler that does nothing."""

    def execute(self, command: bytes, context: Context) -> bytes:
        return b""

    def snapshot(self) -> bytes:
        return b""

    def restore(self, state: bytes) -> None:
        pass


class Group:
    """Replicas joined by a queue; a commit takes no time."""

    def __init__(self, variant: Variant, wire: bool):
        settings = PaxosSettings(variant=variant, snapshot_every=10_000)
        ids = range(1, REPLICAS + 1)
        self.replicas = {one: Replica(one, Silent(), ids, settings) for one in ids}
        self.queue: deque[tuple[int, int, Message | bytes]] = deque()
        self.wire = wire
        self.now = 0.0
        self.answered = 0
        while not any(replica.leads for replica in self.replicas.values()):
            self.now += 0.02
            for replica in self.replicas.values():
                replica.tick(self.now)
            self.run()
        self.leader = next(replica for replica in self.replicas.values() if replica.leads)

    def run(self) -> None:
        """Hands messages over until nothing moves."""
        for replica in self.replicas.values():
            self.turn(replica)
        while self.queue:
            # All that waits for one replica is one turn, as a shell reads all that its sockets have.
            source, to, message = self.queue.popleft()
            replica = self.replicas[to]
            replica.receive(source, decode(message) if isinstance(message, bytes) else message, self.now)
            if not self.queue or self.queue[0][1] != to:
                self.turn(replica)

    def turn(self, replica: Replica) -> None:
        while not (turn := replica.take()).is_empty:
            for to, message in (*turn.messages, *turn.after):
                self.queue.append((replica.id, to, encode(message) if self.wire else message))
            for _, answers in turn.replies:
                self.answered += len(answers)
            replica.synced(turn.number, self.now)
        replica.synced(turn.number, self.now)


def measure(variant: Variant, batch: int, wire: bool) -> float:
    """CPU seconds of an instance with a batch of commands, on all replicas together; the best of some rounds."""
    group = Group(variant, wire)
    count = max(20, 20_000 // (batch + 20))
    best = 1e9
    sequence = 0
    for _ in range(ROUNDS):
        pieces = []
        for _ in range(count):
            sequence += 1
            pieces.append(pack_requests([(client + 1, sequence, PAYLOAD) for client in range(batch)]))
        group.answered = 0
        start = time.process_time()
        for piece in pieces:
            group.leader.submit(piece, group.now)
            group.run()
        best = min(best, (time.process_time() - start) / count)
        assert group.answered == count * batch, (group.answered, count * batch)
    return best


def main() -> None:
    print(f"{REPLICAS} replicas, 64-byte commands, one instance at a time")
    print(
        f"{'variant':8}{'wire':>6}{'batch':>7}{'us/instance/replica':>21}{'ns/command/replica':>20}{'commands/s':>12}"
    )
    for variant in ("multi", "batch", "fast"):
        for wire in (False, True):
            for batch in (1, 10, 100, 1_000):
                seconds = measure(variant, batch, wire)
                each = seconds / REPLICAS
                print(
                    f"{variant:8}{'yes' if wire else 'no':>6}{batch:>7}{each * 1e6:>21.1f}"
                    f"{each / batch * 1e9:>20.0f}{batch / seconds:>12.0f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
