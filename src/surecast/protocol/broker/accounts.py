"""The accounts of users and addresses: their sessions, and the subscriptions of these.

A limit of one client is no limit for somebody with many identifiers. Everything here follows from the sessions, so a
snapshot need not have it.
"""

from __future__ import annotations

from collections import Counter
from ipaddress import AddressValueError, IPv6Address
from typing import TYPE_CHECKING

from surecast.protocol.broker.settings import BrokerSettings

if TYPE_CHECKING:
    from surecast.protocol.broker.session import Session

__all__ = ["Accounts", "network_of", "shape_of"]


def network_of(peer: str) -> str:
    """The address that a connection is counted under: that of IPv4, the network of 64 bits of IPv6.

    Who has an address of IPv6 mostly has all of such a network.

    >>> network_of("10.0.0.7:40000"), network_of("[2001:db8:1:2:3:4:5:6]:1883"), network_of("local socket")
    ('10.0.0.7', '2001:db8:1:2::/64', 'local socket')
    """
    host, colon, port = peer.rpartition(":")
    if not colon or not port.isdigit():
        return peer
    host = host.removeprefix("[").removesuffix("]").partition("%")[0]
    try:
        address = IPv6Address(host)
    except AddressValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return f"{IPv6Address(int(address) >> 64 << 64)}/64"


def shape_of(filter: str, share: str) -> str:
    """Returns where a filter has wildcards, and its share; empty for a plain filter.

    Of the filters of one shape at most one matches a topic. So a session with few shapes gets a message few times,
    and finding out costs little, however many subscriptions it has.

    >>> shape_of("a/+/c/#", ""), shape_of("x/+/y/#", ""), shape_of("a/b", ""), shape_of("a", "group")
    ('/+//#', '/+//#', '', '$share/group/')
    """
    if not share and "+" not in filter and "#" not in filter:
        return ""
    levels = "/".join(level if level in ("+", "#") else "" for level in filter.split("/"))
    return f"$share/{share}/{levels}" if share else levels


class Accounts:
    """Counts sessions and subscriptions for every user and every address."""

    def __init__(self) -> None:
        self._sessions: Counter[tuple[str, str]] = Counter()
        self._subscriptions: Counter[tuple[str, str]] = Counter()

    def open(self, session: Session) -> None:
        """A session is there, with the subscriptions it has."""
        for owner in _owners(session.user, session.address):
            self._sessions[owner] += 1
        self.subscribed(session, len(session.subscriptions))

    def close(self, session: Session) -> None:
        """A session is gone, with the subscriptions it has."""
        for owner in _owners(session.user, session.address):
            _take(self._sessions, owner, 1)
        self.subscribed(session, -len(session.subscriptions))

    def subscribed(self, session: Session, count: int) -> None:
        """A session has so many subscriptions more, or fewer."""
        for owner in _owners(session.user, session.address):
            _take(self._subscriptions, owner, -count)

    def full_for_session(self, user: str, address: str, settings: BrokerSettings) -> str:
        """Returns the limit that another session would break, empty if there is room."""
        limits = {"user": settings.user_sessions_max, "address": settings.address_sessions_max}
        return self._full(self._sessions, user, address, limits, "sessions")

    def full_for_subscription(self, session: Session, settings: BrokerSettings) -> str:
        """Returns the limit that another subscription would break, empty if there is room."""
        limits = {"user": settings.user_subscriptions_max, "address": settings.address_subscriptions_max}
        return self._full(self._subscriptions, session.user, session.address, limits, "subscriptions")

    @staticmethod
    def _full(counts: Counter[tuple[str, str]], user: str, address: str, limits: dict[str, int], what: str) -> str:
        for owner in _owners(user, address):
            if counts[owner] >= limits[owner[0]]:
                return f"{owner[0]}_{what}"
        return ""


def _owners(user: str, address: str) -> list[tuple[str, str]]:
    return [owner for owner in (("user", user), ("address", address)) if owner[1]]


def _take(counts: Counter[tuple[str, str]], owner: tuple[str, str], count: int) -> None:
    counts[owner] -= count
    if not counts[owner]:
        del counts[owner]
