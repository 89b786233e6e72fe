"""What clients and brokers say to each other. All of it is immutable: a message can be in many places."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

__all__ = [
    "Ack",
    "ClientMessage",
    "Detour",
    "Event",
    "EventId",
    "EventMessage",
    "LinkState",
    "Message",
    "Publish",
    "Subscribe",
    "Unsubscribe",
]


class EventId(NamedTuple):
    """Names an event: its publisher, and the publisher's own count of its events."""

    publisher: str
    number: int


@dataclass(frozen=True, slots=True)
class Event:
    """What is published. It lives `lifetime_s` from its publication, infinitely where nothing is said.

    >>> Event(EventId("p1", 0), "Stock", published_s=10.0, lifetime_s=5.0).expires_s
    15.0
    """

    id: EventId
    topic: str
    published_s: float
    lifetime_s: float = float("inf")
    payload: bytes = b""

    @property
    def expires_s(self) -> float:
        return self.published_s + self.lifetime_s


@dataclass(frozen=True, slots=True)
class Subscribe:
    """A subscriber wants a topic. It is issued again to refresh it; `issued_s` tells the issues apart."""

    subscriber: str
    topic: str
    issued_s: float


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """A subscriber no longer wants a topic; whatever it issued before `issued_s` is void."""

    subscriber: str
    topic: str
    issued_s: float


@dataclass(frozen=True, slots=True)
class Publish:
    """A publisher hands an event to its home broker."""

    event: Event


@dataclass(frozen=True, slots=True)
class EventMessage:
    """An event on its way from broker to broker.

    With `origin` empty it is *assured*: the receiver stores it and acknowledges it. Otherwise it is sent at best
    effort, and `origin` is the broker that started this attempt: a broker passes each attempt on once.
    """

    event: Event
    origin: str = ""


@dataclass(frozen=True, slots=True)
class Ack:
    """The receiver has stored this event and answers for it from now on."""

    event_id: EventId


@dataclass(frozen=True, slots=True)
class LinkState:
    """The neighbours that `origin` cannot reach directly; a higher `sequence` replaces a lower one."""

    origin: str
    sequence: int
    down: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Detour:
    """A message on its way around a failure, routed by its sender.

    `path` are the brokers still to pass after the receiver, ending with the one it is meant for. That one treats the
    message as if its neighbour `via` on the topic tree had sent it.
    """

    path: tuple[str, ...]
    via: str
    message: EventMessage | Subscribe | Unsubscribe


ClientMessage: TypeAlias = Subscribe | Unsubscribe | Publish
Message: TypeAlias = Subscribe | Unsubscribe | EventMessage | Ack | LinkState | Detour
