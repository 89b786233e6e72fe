"""The reply queue of P2S Algorithm 1: every request is applied once, and answered again where it comes again.

The queue is part of the replicated state: all replicas add and forget the same replies at the same instances.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from surecast.protocol.codec import U64, Layout, many, pair, pairs, sized

__all__ = ["ReplyCache", "Session"]


class Session:
    """The last replies to a client. All its requests up to `floor` are too old to be told new from old."""

    __slots__ = ("floor", "highest", "last_us", "replies")

    def __init__(self) -> None:
        self.floor = 0
        self.highest = 0
        self.last_us = 0
        self.replies: dict[int, bytes] = {}

    def add(self, sequence: int, reply: bytes, window: int) -> None:
        """Remembers a reply, and forgets those that fall out of the window."""
        self.replies[sequence] = reply
        if sequence > self.highest:
            self.highest = sequence
            floor = sequence - window
            if floor > self.floor:
                if floor == self.floor + 1:
                    self.replies.pop(floor, None)
                else:
                    self.replies = {number: kept for number, kept in self.replies.items() if number > floor}
                self.floor = floor


class ReplyCache:
    """The last replies to every client.

    >>> cache = ReplyCache(window=2, clients_max=10, expiry_us=1000)
    >>> session = cache.session(7)
    >>> for n in (1, 2, 3): session.add(n, b"reply", cache.window)
    >>> session.floor, sorted(session.replies)
    (1, [2, 3])
    """

    def __init__(self, window: int, clients_max: int, expiry_us: int):
        self.window = window
        self.clients_max = clients_max
        self.expiry_us = expiry_us
        self.sessions: dict[int, Session] = {}

    def session(self, client: int) -> Session:
        """The session of a client, a new one where there is none; the longest silent make room."""
        found = self.sessions.get(client)
        if found is None:
            if len(self.sessions) >= self.clients_max:
                by_age = sorted(self.sessions, key=lambda one: (self.sessions[one].last_us, one))
                for one in by_age[: max(1, self.clients_max // 8)]:
                    del self.sessions[one]
            found = self.sessions[client] = Session()
        return found

    def expire(self, time_us: int) -> None:
        """Forgets the clients that were silent for too long, by the time of the log."""
        oldest = time_us - self.expiry_us
        self.sessions = {client: session for client, session in self.sessions.items() if session.last_us >= oldest}

    def encode(self) -> bytes:
        """As bytes, for a snapshot; equal caches give equal bytes."""
        return _CACHE.encode(_Cache(sorted(self.sessions.items())))

    def decode(self, data: bytes) -> None:
        """Replaces the content by what `encode` wrote."""
        self.sessions = dict(_CACHE.decode(data).sessions)


class _Cache(NamedTuple):
    sessions: Sequence[tuple[int, Session]]


def _session(**fields: Any) -> Session:
    session = Session()
    for name, value in fields.items():
        setattr(session, name, value)
    return session


_SESSION: Final = Layout(
    "paxos replies",
    _session,
    floor=U64,
    highest=U64,
    last_us=U64,
    replies=pairs(U64, sized(), is_sorted=True),
)
_CACHE: Final = Layout("paxos replies", _Cache, sessions=many(pair(U64, _SESSION), None))
