"""Message expiry: how long a message may wait, and the removal of those that waited too long (MQTT 5.0, 3.3.2.3.3)."""

from __future__ import annotations

import math

from surecast.protocol.broker.message import Delivery
from surecast.protocol.broker.session import Session
from surecast.protocol.mqtt import Properties

__all__ = ["interval_of", "lifetime_of", "remove_expired"]

_DEADLINE = "deadline-ms"


def interval_of(properties: Properties) -> float:
    """The message expiry interval, infinite if there is none (MQTT 5.0, section 3.3.2.3.3)."""
    return math.inf if properties.message_expiry_s is None else properties.message_expiry_s


def lifetime_of(properties: Properties) -> float:
    """How long a message may wait: its expiry interval, or its deadline in milliseconds where that is shorter.

    >>> lifetime_of(Properties(message_expiry_s=2, user=(("deadline-ms", "1500"),)))
    1.5
    """
    lifetime_s = interval_of(properties)
    for name, value in properties.user:
        if name == _DEADLINE and value.isascii() and value.isdigit() and len(value) < 16:
            lifetime_s = min(lifetime_s, int(value) / 1000.0)
    return lifetime_s


def remove_expired(session: Session, now: float) -> list[Delivery]:
    """Takes the messages that have expired out of the queue of a session, and returns them."""
    if session.expiry_check_at > now:
        return []
    expired, session.expiry_check_at = session.waiting.take_expired(now)
    return expired
