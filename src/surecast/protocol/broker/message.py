"""A published message as the broker keeps it, and the bytes of it that subscribers get."""

from __future__ import annotations

import math
from typing import Protocol, Self

from surecast.protocol.mqtt.wire import variable_bytes

__all__ = ["Delivery", "EventName", "Message", "text_field"]

_EXPIRY = 0x02
_SUBSCRIPTION = 0x0B
_ALIAS = 0x23

Parts = tuple[bytes, bytes]
_Kind = tuple[bool, int, bool, tuple[int, ...]]


def text_field(text: str) -> bytes:
    """A text with its length in front."""
    data = text.encode()
    return len(data).to_bytes(2, "big") + data


class EventName(Protocol):
    """The identity of a publication among all brokers of an overlay."""

    @property
    def origin(self) -> str:
        """The broker that took it from its publisher."""

    @property
    def incarnation(self) -> int:
        """The start of that broker."""

    @property
    def number(self) -> int:
        """Its place among the publications there."""

    def plus(self, count: int) -> Self:
        """Returns the identity of the publication so many places further on."""


class Message:
    """One publication. It is kept once, however many sessions wait for it.

    `topic_field` is the topic with its length in front. `properties` are the encoded MQTT 5 properties that a
    subscriber gets unaltered. `expires_at` is when it is not sent any more, and `interval_end` when the expiry interval
    that subscribers are told is over: both infinite without an expiry, and not the same where a deadline comes first.
    `references` counts the durable queue entries and the retained topic that need it on disk. `size` is what counts
    against a queue's limit. `event` is its identity where sessions move between brokers.
    """

    __slots__ = (
        "_first",
        "_kind",
        "_others",
        "event",
        "expires_at",
        "interval_end",
        "number",
        "payload",
        "properties",
        "published_at",
        "publisher",
        "qos",
        "references",
        "retain",
        "size",
        "topic",
        "topic_field",
    )

    def __init__(
        self,
        number: int,
        topic: str,
        topic_field: bytes,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        properties: bytes = b"",
        expires_at: float = math.inf,
        published_at: float = 0.0,
        publisher: str = "",
        interval_end: float = math.inf,
    ):
        self.number = number
        self.topic = topic
        self.topic_field = topic_field
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.properties = properties
        self.expires_at = expires_at
        self.interval_end = interval_end
        self.published_at = published_at
        self.publisher = publisher
        self.references = 0
        self.event: EventName | None = None
        self.size = len(payload) + len(topic_field) + len(properties)
        self._kind: _Kind | None = None
        self._first: Parts = (b"", b"")
        self._others: dict[_Kind, Parts] | None = None

    def parts(self, version_5: bool, qos: int, retain: bool, identifiers: tuple[int, ...], now: float) -> Parts:
        """Returns the bytes before and after the packet identifier in a PUBLISH to a subscriber.

        Under QoS 0 there is no packet identifier and the packet is one after the other.
        """
        if self.interval_end != math.inf:
            return self._encode(version_5, qos, retain, identifiers, now, self.topic_field, 0)
        kind = (version_5, qos, retain, identifiers)
        if kind == self._kind:
            return self._first
        if self._kind is None:
            # Most messages are sent in one kind only.
            self._kind = kind
            self._first = self._encode(version_5, qos, retain, identifiers, now, self.topic_field, 0)
            return self._first
        if self._others is None:
            self._others = {}
        parts = self._others.get(kind)
        if parts is None:
            parts = self._others[kind] = self._encode(version_5, qos, retain, identifiers, now, self.topic_field, 0)
        return parts

    def aliased_parts(
        self, qos: int, retain: bool, identifiers: tuple[int, ...], now: float, alias: int, known: bool
    ) -> Parts:
        """As `parts`, with a topic alias; the topic is left out where the client knows the alias already."""
        return self._encode(True, qos, retain, identifiers, now, b"\0\0" if known else self.topic_field, alias)

    def _encode(
        self,
        version_5: bool,
        qos: int,
        retain: bool,
        identifiers: tuple[int, ...],
        now: float,
        topic_field: bytes,
        alias: int,
    ) -> Parts:
        tail = self.payload
        if not version_5:
            length = len(topic_field) + len(tail) + (2 if qos else 0)
            if length < 128:
                return bytes((0x30 | qos << 1 | retain, length)) + topic_field, tail
        else:
            properties = self.properties
            if self.interval_end != math.inf:
                # What is left, rounded up; nothing is left of a message in flight that is sent again after its time.
                left = min(max(0, math.ceil(self.interval_end - now)), 0xFFFFFFFF)
                properties = bytes((_EXPIRY,)) + left.to_bytes(4, "big") + properties
            if alias:
                properties = bytes((_ALIAS,)) + alias.to_bytes(2, "big") + properties
            for identifier in identifiers:
                properties += bytes((_SUBSCRIPTION,)) + variable_bytes(identifier)
            tail = variable_bytes(len(properties)) + properties + tail
        length = len(topic_field) + (2 if qos else 0) + len(tail)
        first = 0x30 | qos << 1 | retain
        return bytes((first,)) + variable_bytes(length) + topic_field, tail


class Delivery:
    """A message on its way to one session. `identifier` is 0 until it is sent; `released` once PUBREC came.

    `share` is the key of the shared subscription by which the message came, and empty if there is none. `sequence` is
    its place in the queue, -1 once it has left it without being delivered.
    """

    __slots__ = ("identifier", "identifiers", "message", "qos", "released", "retain", "sequence", "share")

    def __init__(self, message: Message, qos: int, retain: bool, identifiers: tuple[int, ...], sequence: int):
        self.message = message
        self.qos = qos
        self.retain = retain
        self.identifiers = identifiers
        self.sequence = sequence
        self.identifier = 0
        self.released = False
        self.share = ""
