"""Retained messages: the last one of each topic, for subscriptions to come (MQTT 5.0, section 3.3.1.3)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator

from surecast.protocol.broker.broker_settings import BrokerSettings
from surecast.protocol.broker.message import Message
from surecast.protocol.broker.state_journal import Journal
from surecast.protocol.mqtt import TopicMap

__all__ = ["Retained"]


class Retained:
    """The retained message of every topic that has one; all but those under `$` are durable."""

    def __init__(self, journal: Journal, settings: BrokerSettings):
        self._journal = journal
        self.settings = settings
        self.bytes = 0
        self._messages: TopicMap[Message] = TopicMap(settings.topic_levels_max)
        self._counts: Counter[str] = Counter()  # by client
        self._sizes: Counter[str] = Counter()
        self.expiry_check_at = math.inf
        """Nothing expires before."""

    def __len__(self) -> int:
        return len(self._messages)

    def get(self, topic: str) -> Message | None:
        """The retained message of a topic."""
        return self._messages.get(topic)

    def limit_for(self, message: Message) -> str:
        """Returns the limit that a message would break if it were kept, empty if there is room."""
        if not message.payload or not message.publisher:
            return ""
        settings, publisher = self.settings, message.publisher
        before = self._messages.get(message.topic)
        own = before is not None and before.publisher == publisher
        size = message.size - (0 if before is None else before.size)
        own_size = message.size - (before.size if own and before is not None else 0)
        if before is None and len(self._messages) >= settings.retained_max:
            return "retained"
        if size > 0 and self.bytes + size > settings.retained_bytes_max:
            return "retained_size"
        if not own and self._counts[publisher] >= settings.client_retained_max:
            return "client_retained"
        if own_size > 0 and self._sizes[publisher] + own_size > settings.client_retained_bytes_max:
            return "client_retained_size"
        return ""

    def store(self, message: Message) -> None:
        """Keeps a message; one without payload clears its topic."""
        before = self._messages.get(message.topic)
        if not message.payload:
            if before is not None:
                self.discard(before)
            return
        self._keep(message)
        if not message.topic.startswith("$"):
            self._journal.retained(message)
            if before is not None:
                self._journal.release(before)

    def _count(self, message: Message, sign: int) -> None:
        """Counts a message in, or out."""
        self.bytes += sign * message.size
        if message.publisher:
            for counts, step in ((self._counts, sign), (self._sizes, sign * message.size)):
                counts[message.publisher] += step
                if not counts[message.publisher]:
                    del counts[message.publisher]

    def restore(self, message: Message) -> None:
        """Takes back a message that is on disk already."""
        message.references += 1
        self._keep(message)

    def state(self) -> tuple[list[Message], list[str]]:
        """Returns what `adopt` needs besides the time to look for expiry: messages in the order of the tree, and the
        order of topics."""
        messages = [self._messages.get(topic) for topic in self._messages.in_tree_order()]
        return [message for message in messages if message is not None], list(self._messages)

    def adopt(self, messages: Iterable[Message], topics: Iterable[str], expiry_check_at: float) -> None:
        """Takes over the `state` of another."""
        for message in messages:
            self._messages[message.topic] = message
            message.references += not message.topic.startswith("$")
            self._count(message, 1)
        self._messages.arrange(topics)
        self.expiry_check_at = expiry_check_at

    def _keep(self, message: Message) -> None:
        before = self._messages.get(message.topic)
        if before is not None:
            self._count(before, -1)
        self._count(message, 1)
        self._messages[message.topic] = message
        self.expiry_check_at = min(self.expiry_check_at, message.expires_at)

    def discard(self, message: Message) -> None:
        """Clears a topic."""
        if (gone := self._messages.pop(message.topic)) is not None:
            self._count(gone, -1)
        if not message.topic.startswith("$"):
            self._journal.forget_retained(message)

    def matching(self, filter: str, now: float) -> Iterator[Message]:
        """The messages that a filter matches; expired ones are cleared on the way."""
        for _, message in self._messages.matching(filter):
            if message.expires_at <= now:
                self.discard(message)
            else:
                yield message

    def expire(self, now: float) -> None:
        """Clears all that has expired."""
        if self.expiry_check_at > now:
            return
        self.expiry_check_at = math.inf
        for topic in list(self._messages):
            message = self._messages.get(topic)
            if message is None:
                continue
            if message.expires_at <= now:
                self.discard(message)
            else:
                self.expiry_check_at = min(self.expiry_check_at, message.expires_at)
