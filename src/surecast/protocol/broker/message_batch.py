"""A batch of published messages as the broker keeps it, for those who do not get its bytes at once as they came."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from surecast.protocol.broker.message import EventName, Message, text_field
from surecast.protocol.mqtt import PublishBatch

__all__ = ["Made", "MessageBatch"]

Made = dict[tuple[bool, int, int, int], bytes]
"""Packets with identifiers of their own, by version of the protocol, first identifier, first message, and count."""


class MessageBatch:
    """Messages that came together: the first has a `number`, the others follow. It is kept once for all sessions.

    `batch` are their packets, `publishers` who sent how many of them, in order. `sizes` is what each counts in a queue.
    Messages of their own are made of them when somebody needs these. `made` is what was last made of the packets for
    one session, with packet identifiers, for others that have got as many messages. `event` is the identity of the
    first, where sessions move between brokers.
    """

    __slots__ = (
        "_messages",
        "_other",
        "batch",
        "count",
        "event",
        "made",
        "number",
        "published_at",
        "publishers",
        "sizes",
    )

    def __init__(
        self,
        batch: PublishBatch,
        number: int,
        publishers: Sequence[tuple[str, int]],
        published_at: float,
        event: EventName | None = None,
    ) -> None:
        self.batch = batch
        self.number = number
        self.publishers = publishers
        self.published_at = published_at
        self.count = batch.count
        self.event = event
        self.sizes = batch.sizes(0, batch.count)
        self.made: Made = {}
        self._other: PublishBatch | None = None
        self._messages: list[Message] = []

    @property
    def messages(self) -> list[Message]:
        """The messages, one by one."""
        if not self._messages:
            self._messages = self._make()
        return self._messages

    def of_version(self, version_5: bool) -> PublishBatch:
        """Returns the packets in one version of the protocol."""
        if version_5 is self.batch.version_5:
            return self.batch
        if self._other is None:
            self._other = self.batch.converted()
        return self._other

    def part(self, begin: int, stop: int) -> MessageBatch:
        """Returns some of the messages, as a batch of their own."""
        publishers: list[tuple[str, int]] = []
        at = 0
        for publisher, count in self.publishers:
            some = min(at + count, stop) - max(at, begin)
            if some > 0:
                publishers.append((publisher, some))
            at += count
        event = self.event.plus(begin) if self.event is not None else None
        return MessageBatch(self.batch.part(begin, stop), self.number + begin, publishers, self.published_at, event)

    def _make(self) -> list[Message]:
        qos, retain, _ = self.batch.flags
        number, published_at = self.number, self.published_at
        payloads = iter(self.batch.payloads())
        fields = [
            (topic, field)
            for topic, first, last in self.batch.stretches()
            for field in (text_field(topic),)
            for _ in range(first, last)
        ]
        topics = iter(fields)
        made: list[Message] = []
        for publisher, count in self.publishers:
            for topic, field in islice(topics, count):
                made.append(
                    Message(number, topic, field, next(payloads), qos, retain, published_at=published_at,
                            publisher=publisher)
                )  # fmt: skip
                number += 1
        if self.event is not None:
            for place, message in enumerate(made):
                message.event = self.event.plus(place)
        return made
