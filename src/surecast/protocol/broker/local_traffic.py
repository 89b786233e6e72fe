"""Publications and subscriptions of the clients of a broker, collected for whoever carries them to other brokers.

A broker that stands alone has none, and pays one comparison for each batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from surecast.protocol.broker.message import Message
from surecast.protocol.broker.session import Subscription
from surecast.protocol.mqtt import PublishBatch

__all__ = ["LocalTraffic", "Publication"]


class Publication(NamedTuple):
    """Messages that a client published and that were taken; `publisher` is the key of its session."""

    publisher: str
    messages: PublishBatch | Message


class LocalTraffic:
    """The publications and the changes of subscriptions since the last turn.

    Shared subscriptions, and topics that begin with `$`, are the broker's own: they are left out.
    """

    def __init__(self) -> None:
        self.publications: list[Publication] = []
        self.subscriptions: list[tuple[Subscription, int]] = []
        """Subscriptions that began (1) and ended (-1), in order."""
        self.refuses: Callable[[str], bool] | None = None
        """Tells whether messages of QoS 1 and 2 to a topic are refused, where that may be."""

    def publish(self, publisher: str, batch: PublishBatch, begin: int, stop: int) -> None:
        """Notes some messages of a batch."""
        self.publications.append(Publication(publisher, batch.part(begin, stop)))

    def publish_message(self, message: Message) -> None:
        """Notes a message."""
        if not message.topic.startswith("$"):
            self.publications.append(Publication(message.publisher, message))

    def shift(self, subscription: Subscription, by: int) -> None:
        """Notes that a subscription began or ended."""
        if not subscription.share and not subscription.filter.startswith("$"):
            self.subscriptions.append((subscription, by))
