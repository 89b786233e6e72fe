"""What a broker wants done. It does nothing itself: whoever runs it carries out the effects, in their order.

The order is a promise: every `Store` and `Discard` must be durable before any effect behind it in the same list is
carried out. An acknowledgement therefore never leaves before the event it acknowledges is on disk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from surecast.protocol.overlay.messages import Event, EventId, Message

__all__ = [
    "Deliver",
    "Discard",
    "Drop",
    "Effect",
    "HandledEvent",
    "Key",
    "Record",
    "Send",
    "Store",
    "StoredEvent",
    "StoredSubscription",
    "event_key",
    "subscription_key",
]

Key: TypeAlias = tuple[str, str, str | int]


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event on disk, with its forwarding set: the neighbours that have to acknowledge it."""

    event: Event
    waiting: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HandledEvent:
    """What remains of an event on disk until it expires, so that a duplicate is known as one.

    `accepted` says whether this broker answered for it; if not, it only handed it to its own subscribers.
    """

    event_id: EventId
    expires_s: float
    accepted: bool


@dataclass(frozen=True, slots=True)
class StoredSubscription:
    """A routing entry on disk: from which neighbour it came, empty for a subscriber of this broker."""

    subscriber: str
    topic: str
    source: str
    issued_s: float


Record: TypeAlias = StoredEvent | HandledEvent | StoredSubscription


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message to a neighbour; `again` where the same was sent to it before and not acknowledged."""

    to: str
    message: Message
    again: bool = False


@dataclass(frozen=True, slots=True)
class Deliver:
    """Hand an event to a subscriber of this broker."""

    subscriber: str
    event: Event


@dataclass(frozen=True, slots=True)
class Store:
    """Write a record to the non-volatile store, in place of what is there under the key."""

    key: Key
    record: Record


@dataclass(frozen=True, slots=True)
class Discard:
    """Remove a record from the non-volatile store."""

    key: Key


@dataclass(frozen=True, slots=True)
class Drop:
    """This broker gives up on an event for those who would have got it through the neighbour `to`.

    `to` is empty where the broker drops all of it. The reason is `expired`, `store full`, `path down` (a detour ended
    at a failed hop) or `unknown state` (a broker without disk cannot tell whether it delivered it before its crash).
    """

    event: Event
    to: str
    reason: str


Effect: TypeAlias = Send | Deliver | Store | Discard | Drop


def event_key(event_id: EventId) -> Key:
    """Where an event is kept in the non-volatile store."""
    return ("event", event_id.publisher, event_id.number)


def subscription_key(subscriber: str, topic: str) -> Key:
    """Where a routing entry is kept in the non-volatile store."""
    return ("subscription", topic, subscriber)
