"""Which waiting message goes when something must go: of the least important topic the oldest, as a target asks."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from surecast.protocol.broker.message import Delivery, Message
from surecast.protocol.mqtt.topics import match

if TYPE_CHECKING:
    from surecast.protocol.broker.waiting_queue import WaitingQueue

__all__ = ["Importance"]


class Importance:
    """The messages that wait for one session, by rank: 0 is that of the first filter of `keep_first`, and a topic that
    matches none has the last rank.

    It is made when something must go for the first time; from then on each message that begins to wait is noted. One
    that waits no longer is forgotten when its turn comes: its place is before the first that waits, or it has none.

    >>> Importance(("alarm/#", "position/+"), ()).rank("position/7")
    1
    """

    __slots__ = ("_by_rank", "_filters")

    def __init__(self, keep_first: Sequence[str], waiting: Sequence[Delivery]):
        self._filters = tuple(keep_first)
        self._by_rank: list[deque[Delivery]] = [deque() for _ in range(len(self._filters) + 1)]
        for delivery in waiting:
            self.note(delivery)

    def rank(self, topic: str) -> int:
        """Returns the rank of a topic; the more important, the lower."""
        for rank, topic_filter in enumerate(self._filters):
            if match(topic_filter, topic):
                return rank
        return len(self._filters)

    def note(self, delivery: Delivery) -> None:
        """A message begins to wait, behind all others."""
        self._by_rank[self.rank(delivery.message.topic)].append(delivery)

    def less_important(self, message: Message, waiting: WaitingQueue) -> Delivery | None:
        """Returns the message that goes for a more important one; None if all that wait are as important."""
        for rank in range(len(self._filters), self.rank(message.topic), -1):
            for delivery in self._present(rank, waiting):
                return delivery
        return None

    def equally_important(self, message: Message, waiting: WaitingQueue) -> list[Delivery]:
        """Returns the messages that wait and are as important as another one, the oldest first."""
        return list(self._present(self.rank(message.topic), waiting))

    def _present(self, rank: int, waiting: WaitingQueue) -> Iterator[Delivery]:
        """Yields the messages of a rank that wait, after those at the front that do not are forgotten."""
        first = next(iter(waiting)).sequence if waiting else float("inf")
        noted = self._by_rank[rank]
        while noted and noted[0].sequence < first:
            noted.popleft()
        return (each for each in noted if each.sequence >= first)
