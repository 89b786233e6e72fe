"""The registry of subscribers: subscriptions by topic filter and, optionally, by content."""

from __future__ import annotations

from dataclasses import dataclass

from surecast.errors import OverloadError
from surecast.protocol.filters import Event, Filter, parse
from surecast.protocol.mqtt.topic_tree import TopicTree
from surecast.protocol.mqtt.topics import match

__all__ = ["RegisteredSubscription", "Registry"]


@dataclass(frozen=True, slots=True)
class RegisteredSubscription:
    """A subscription: the subscriber, its number for it, its home broker, topic filter and content filter."""

    subscriber: int
    number: int
    home: int
    topic: str
    content: Filter | None = None

    def wants(self, event: Event) -> bool:
        """Returns whether the content filter, if there is one, matches an event whose topic matches."""
        return self.content is None or self.content.matches(event)


class Registry:
    """All subscriptions.

    >>> registry = Registry(subscriptions_max=10)
    >>> _ = registry.add(7, 1, home=2, topic="stock/+", content="price > 35")
    >>> registry.interested(Event("stock/foo", {"price": 36})), registry.interested(Event("stock/foo", {"price": 3}))
    ({7: 2}, {})
    """

    def __init__(self, subscriptions_max: int):
        self.subscriptions_max = subscriptions_max
        self._tree: TopicTree[tuple[int, int], RegisteredSubscription] = TopicTree()
        self._by_number: dict[tuple[int, int], RegisteredSubscription] = {}
        self._numbers: dict[int, set[int]] = {}

    def __len__(self) -> int:
        return len(self._by_number)

    def add(self, subscriber: int, number: int, home: int, topic: str, content: str = "") -> RegisteredSubscription:
        """Files a subscription, in place of what the subscriber had under this number.

        A text that is no filter raises ConfigurationError, and one subscription too many OverloadError.
        """
        key = (subscriber, number)
        if key not in self._by_number and len(self._by_number) >= self.subscriptions_max:
            raise OverloadError(f"there are {self.subscriptions_max} subscriptions already; no more are taken")
        wanted = RegisteredSubscription(subscriber, number, home, topic, parse(content) if content else None)
        before = self._by_number.get(key)
        if before is not None and before.topic != topic:
            self._tree.unsubscribe(before.topic, key)
        self._tree.subscribe(topic, key, wanted)
        self._by_number[key] = wanted
        self._numbers.setdefault(subscriber, set()).add(number)
        return wanted

    def remove(self, subscriber: int, number: int) -> bool:
        """Removes a subscription. Returns whether there was one."""
        key = (subscriber, number)
        subscription = self._by_number.pop(key, None)
        if subscription is None:
            return False
        self._tree.unsubscribe(subscription.topic, key)
        self._numbers[subscriber].discard(number)
        if not self._numbers[subscriber]:
            del self._numbers[subscriber]
        return True

    def wants(self, subscriber: int, event: Event) -> bool:
        """Returns whether any subscription of a subscriber matches an event."""
        subscriptions = (self._by_number[subscriber, number] for number in self._numbers.get(subscriber, ()))
        return any(match(each.topic, event.class_name) and each.wants(event) for each in subscriptions)

    def interested(self, event: Event) -> dict[int, int]:
        """The subscribers that want an event, each with its home broker; the topic is the event's class."""
        matching = self._tree.match(event.class_name)
        return {wanted.subscriber: wanted.home for wanted in matching if wanted.wants(event)}
