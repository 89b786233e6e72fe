"""Retained messages: the last one of each topic, for subscriptions to come (MQTT 5.0, section 3.3.1.3)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from surecast.protocol.broker.durable import Journal
from surecast.protocol.broker.message import Message
from surecast.protocol.mqtt import TopicMap

__all__ = ["Retained"]


class Retained:
    """The retained message of every topic that has one; all but those under `$` are durable."""

    def __init__(self, journal: Journal, levels_max: int, count_max: int):
        self._journal = journal
        self.count_max = count_max
        self._messages: TopicMap[Message] = TopicMap(levels_max)
        self._expiry_check_at = math.inf  # nothing expires before

    def __len__(self) -> int:
        return len(self._messages)

    def get(self, topic: str) -> Message | None:
        """The retained message of a topic."""
        return self._messages.get(topic)

    def store(self, message: Message) -> bool:
        """Keeps a message; one without payload clears its topic. False if there are too many already."""
        before = self._messages.get(message.topic)
        if not message.payload:
            if before is not None:
                self.discard(before)
            return True
        if before is None and len(self._messages) >= self.count_max:
            return False
        self._keep(message)
        if not message.topic.startswith("$"):
            self._journal.retained(message)
            if before is not None:
                self._journal.release(before)
        return True

    def restore(self, message: Message) -> None:
        """Takes back a message that is on disk already."""
        message.references += 1
        self._keep(message)

    def state(self) -> tuple[list[Message], list[str], float]:
        """What `adopt` needs: messages in the order of the tree, the order of topics, when to look for expiry."""
        found = [self._messages.get(topic) for topic in self._messages.in_tree_order()]
        return [message for message in found if message is not None], list(self._messages), self._expiry_check_at

    def adopt(self, messages: Iterable[Message], topics: Iterable[str], expiry_check_at: float) -> None:
        """Takes over the `state` of another."""
        for message in messages:
            self._messages[message.topic] = message
        self._messages.arrange(topics)
        self._expiry_check_at = expiry_check_at

    def _keep(self, message: Message) -> None:
        self._messages[message.topic] = message
        self._expiry_check_at = min(self._expiry_check_at, message.expires_at)

    def discard(self, message: Message) -> None:
        """Clears a topic."""
        self._messages.pop(message.topic)
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
        if self._expiry_check_at > now:
            return
        self._expiry_check_at = math.inf
        for topic in list(self._messages):
            message = self._messages.get(topic)
            if message is None:
                continue
            if message.expires_at <= now:
                self.discard(message)
            else:
                self._expiry_check_at = min(self._expiry_check_at, message.expires_at)
