"""What brokers send each other, and what a broker wants done.

There is one control message, `Update`: it revokes filters and announces others at once. A subscription is an update
with one filter added, a revocation one with that filter removed; a revocation carries along everything that it
uncovers, and a subscription the filters that it makes superfluous. So each subscription and each revocation costs at
most one control message per link, as Eq. 18 of *capacity* assumes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from surecast.protocol.filters import Event, Filter

__all__ = ["Deliver", "Effect", "Message", "Notify", "Send", "Update"]


@dataclass(frozen=True, slots=True)
class Update:
    """The sender's entries at the receiver change: these filters go, those come. A filter may be named repeatedly
    where each subscription has an entry of its own (simple routing)."""

    removed: tuple[Filter, ...] = ()
    added: tuple[Filter, ...] = ()


@dataclass(frozen=True, slots=True)
class Notify:
    """An event on its way to the brokers of its subscribers."""

    event: Event


Message: TypeAlias = Update | Notify


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message to a neighbour. Messages to one neighbour must arrive in the order in which they were sent."""

    to: str
    message: Message


@dataclass(frozen=True, slots=True)
class Deliver:
    """Hand an event to a client of this broker."""

    client: str
    event: Event


Effect: TypeAlias = Send | Deliver
