"""Requests of the clients of this replica, until they are applied: sent to whoever proposes, and again if need be."""

from __future__ import annotations

from collections.abc import Sequence

from surecast.errors import OverloadError
from surecast.protocol.paxos.log_values import Request, Segment, make_segment
from surecast.protocol.paxos.machine import Answer
from surecast.protocol.paxos.node import Node
from surecast.protocol.paxos.paxos_messages import Forward

__all__ = ["Submissions"]


class Submissions:
    """Segments in flight. The same segment may be proposed several times; the reply queue makes it count once."""

    def __init__(self, node: Node, incarnation: int):
        self.node = node
        self.number = incarnation << 32
        self.segments: dict[int, Segment] = {}
        self.sent_s: dict[int, float] = {}
        self.fresh: dict[int, None] = {}
        self.bytes = 0

    def submit(self, requests: Sequence[Request] | bytes) -> int:
        """Takes requests; OverloadError where too many wait already."""
        segment = make_segment(self.node.id, self.number + 1, requests)
        if self.bytes + segment.size > self.node.settings.queue_bytes_max:
            self.node.count("requests beyond the queue")
            raise OverloadError(
                f"paxos replica {self.node.id}: {self.bytes} bytes of requests are in flight, and "
                f"queue_bytes_max is {self.node.settings.queue_bytes_max}; send them again later"
            )
        self.number += 1
        self.segments[self.number] = segment
        self.fresh[self.number] = None
        self.bytes += segment.size
        return self.number

    def done(self, number: int) -> None:
        """A segment is applied."""
        segment = self.segments.pop(number, None)
        if segment is not None:
            self.bytes -= segment.size
            self.fresh.pop(number, None)
            self.sent_s.pop(number, None)

    def again(self, number: int) -> None:
        """A segment lost its instance."""
        if number in self.segments:
            self.fresh[number] = None

    def all_again(self) -> None:
        """The leader changed: it may know nothing of what is in flight."""
        self.fresh = dict.fromkeys(self.segments)

    def tick(self) -> None:
        """Whatever was not applied for a while goes again."""
        until_s = self.node.now - self.node.settings.retry_s
        for number, sent_s in self.sent_s.items():
            if sent_s <= until_s:
                self.fresh[number] = None

    def answer(self) -> list[tuple[int, list[Answer]]]:
        """P2S Algorithm 1, line 25: answers from the queue of replies what was applied before.

        That happens where a client asks again, and where a snapshot took the place of the instance with the reply.
        """
        found = []
        for number in list(self.fresh):
            answers = self.node.machine.cached(self.segments[number])
            if answers is not None:
                found.append((number, answers))
                self.done(number)
        return found

    def forward(self, leader: int) -> None:
        """Sends the next segments to the leader, as many as go into one value."""
        taken = self.take(self.node.settings.value_bytes_max)
        self.node.send(leader, Forward(tuple([segment.whole() for segment in taken])))

    def take(self, bytes_max: int) -> list[Segment]:
        """The next segments to send, at least one where there is one."""
        taken: list[Segment] = []
        size = 0
        for number in list(self.fresh):
            segment = self.segments[number]
            if taken and size + segment.size > bytes_max:
                break
            taken.append(segment)
            size += segment.size
            del self.fresh[number]
            self.sent_s[number] = self.node.now
        return taken
