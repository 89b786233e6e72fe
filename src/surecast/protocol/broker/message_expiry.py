"""Message expiry: how long a message may wait, and the removal of those that waited too long (MQTT 5.0, 3.3.2.3.3)."""

from __future__ import annotations

import math
from functools import partial

from surecast.protocol.broker.message import Delivery
from surecast.protocol.broker.queue_limits import expires_at
from surecast.protocol.broker.requests import PROPERTY
from surecast.protocol.broker.session import Session
from surecast.protocol.mqtt import Properties, Publish, passed_on_properties

__all__ = ["Meanings", "interval_of", "lifetime_of", "remove_expired"]

_DEADLINE = "deadline-ms"
_MEANINGS_MAX = 1_000
_MEANING_BYTES_MAX = 256


def interval_of(properties: Properties) -> float:
    """The message expiry interval, infinite if there is none (MQTT 5.0, section 3.3.2.3.3)."""
    return math.inf if properties.message_expiry_s is None else properties.message_expiry_s


def lifetime_of(properties: Properties) -> float:
    """Returns how long a message may wait: its expiry interval, or its deadline in milliseconds where that is shorter.

    >>> lifetime_of(Properties(message_expiry_s=2, user=(("deadline-ms", "1500"),)))
    1.5
    """
    lifetime_s = interval_of(properties)
    for name, value in properties.user:
        if name == _DEADLINE and value.isascii() and value.isdigit() and len(value) < 16:
            lifetime_s = min(lifetime_s, int(value) / 1000.0)
    return lifetime_s


class Meanings:
    """The meanings of properties for messages: what is passed on, how long a message may wait, its expiry interval.

    Many messages have the same ones, so those of the last short ones are remembered.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[bytes, float, float]] = {}

    def of(self, packet: Publish) -> tuple[bytes, float, float]:
        """Returns the meaning of the properties of a packet."""
        block = packet.raw_properties
        known = self._known.get(block)
        if known is not None:
            return known
        given = packet.properties
        meaning = (passed_on_properties(packet, PROPERTY), lifetime_of(given), interval_of(given))
        if 0 < len(block) <= _MEANING_BYTES_MAX:
            if len(self._known) >= _MEANINGS_MAX:
                self._known.clear()
            self._known[block] = meaning
        return meaning


def remove_expired(session: Session, now: float) -> list[Delivery]:
    """Takes the messages that have expired out of the queue of a session, and returns them."""
    if session.expiry_check_at > now:
        return []
    expired, session.expiry_check_at = session.waiting.take_expired(now, partial(expires_at, session))
    return expired
