"""Quotas of users and addresses: their sessions, and the subscriptions and queues of these.

A limit of one client is no limit for somebody with many identifiers. Everything here follows from the sessions, so a
snapshot need not have it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import AddressValueError, IPv6Address
from typing import TYPE_CHECKING, Final

from surecast.protocol.broker.broker_settings import BrokerSettings

if TYPE_CHECKING:
    from surecast.protocol.broker.session import Session

__all__ = ["SESSION_SHARE", "Quota", "Quotas", "network_of", "shape_of"]

SESSION_SHARE: Final = 16 << 10
"""Bytes that each session may have in its queue, however full its quota is: who reads what it gets loses nothing."""

_UNLIMITED: Final = 1 << 62


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


@dataclass(slots=True)
class Quota:
    """Counts of one user or one address. Queued bytes are counted for the user, or the address where there is none.

    `limit` is the name of the limit of queued bytes in the configuration. `dropped` messages met it, and the log is
    told of the next one at `notice_at`: of the first, the tenth, the hundredth.
    """

    sessions: int = 0
    subscriptions: int = 0
    bytes_queued: int = 0
    bytes_max: int = field(default=_UNLIMITED, compare=False)
    limit: str = field(default="", compare=False)
    dropped: int = field(default=0, compare=False)
    notice_at: int = field(default=1, compare=False)


class Quotas:
    """Counts sessions, subscriptions and queued bytes for every user and every address."""

    def __init__(self, settings: BrokerSettings) -> None:
        self._settings = settings
        self._quotas: dict[tuple[str, str], Quota] = {}

    def limit(self, settings: BrokerSettings) -> None:
        """Takes other limits."""
        self._settings = settings
        for owner, quota in self._quotas.items():
            quota.bytes_max = self._bytes_max(owner)

    def _bytes_max(self, owner: tuple[str, str]) -> int:
        settings = self._settings
        return settings.user_queue_bytes_max if owner[0] == "user" else settings.address_queue_bytes_max

    def open(self, session: Session) -> None:
        """A session is there, with the subscriptions and the queue it has."""
        session.quota = Quota()
        for owner in reversed(_owners(session.user, session.address)):
            quota = self._quotas.get(owner)
            if quota is None:
                quota = self._quotas[owner] = Quota(bytes_max=self._bytes_max(owner), limit=f"{owner[0]}_queue_size")
            quota.sessions += 1
            session.quota = quota
        session.quota.bytes_queued += session.bytes_queued
        self.subscribed(session, len(session.subscriptions))

    def close(self, session: Session) -> None:
        """A session is gone, with the subscriptions and the queue it has."""
        self.subscribed(session, -len(session.subscriptions))
        session.quota.bytes_queued -= session.bytes_queued
        for owner in _owners(session.user, session.address):
            quota = self._quotas[owner]
            quota.sessions -= 1
            if not quota.sessions:
                del self._quotas[owner]

    def subscribed(self, session: Session, count: int) -> None:
        """A session has so many subscriptions more, or fewer."""
        for owner in _owners(session.user, session.address):
            self._quotas[owner].subscriptions += count

    def full_for_session(self, user: str, address: str) -> str:
        """Returns the limit that another session would break, empty if there is room."""
        settings = self._settings
        limits = {"user": settings.user_sessions_max, "address": settings.address_sessions_max}
        for owner in _owners(user, address):
            quota = self._quotas.get(owner)
            if quota is not None and quota.sessions >= limits[owner[0]]:
                return f"{owner[0]}_sessions"
        return ""

    def full_for_subscription(self, session: Session) -> str:
        """Returns the limit that another subscription would break, empty if there is room."""
        settings = self._settings
        limits = {"user": settings.user_subscriptions_max, "address": settings.address_subscriptions_max}
        for owner in _owners(session.user, session.address):
            if self._quotas[owner].subscriptions >= limits[owner[0]]:
                return f"{owner[0]}_subscriptions"
        return ""


def _owners(user: str, address: str) -> list[tuple[str, str]]:
    return [owner for owner in (("user", user), ("address", address)) if owner[1]]
