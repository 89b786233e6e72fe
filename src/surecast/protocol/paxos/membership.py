"""Who votes on which instance, and how that changes.

A change is decided by an instance like a command, and holds from alpha instances later on (classic Multi-Paxos): the
leader of an instance has applied everything alpha below it, so it knows who votes on it. One change at a time.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from surecast.errors import ConfigurationError
from surecast.protocol.codec import U8, U16, U64, Layout, many, pair
from surecast.protocol.paxos.ballots import MAX_REPLICA
from surecast.protocol.paxos.quorums import classic_quorum, fast_quorum

__all__ = ["CONFIGURATION_CLIENT", "Configuration", "Membership", "replace_command"]

CONFIGURATION_CLIENT: Final = 0
"""The client whose commands change the membership; they are not handed to the application."""
_REPLACE: Final = struct.Struct(">HHQ")


def replace_command(old: int, new: int, token: int) -> bytes:
    """The command that replaces a replica by a new one, which was created with this token."""
    return _REPLACE.pack(old, new, token)


@dataclass(frozen=True, slots=True)
class Configuration:
    """The replicas that vote from an instance on, by rank, each with the token it was created with."""

    since: int
    members: tuple[tuple[int, int], ...]
    ids: tuple[int, ...] = field(init=False)
    _set: frozenset[int] = field(init=False, repr=False, compare=False)
    quorum: int = field(init=False)
    fast_quorum: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", tuple(replica for replica, _ in self.members))
        object.__setattr__(self, "_set", frozenset(self.ids))
        object.__setattr__(self, "quorum", classic_quorum(len(self.members)))
        object.__setattr__(self, "fast_quorum", fast_quorum(len(self.members)))

    def has_quorum(self, replicas: Collection[int]) -> bool:
        """Returns whether a majority is among them.

        >>> Configuration(1, ((1, 0), (2, 0), (3, 0))).has_quorum({1, 3, 9})
        True
        """
        return len(self._set.intersection(replicas)) >= self.quorum


class Membership:
    """The configuration of the next instance, and a later one where a change is on its way.

    >>> membership = Membership.founding([1, 2, 3], alpha=10)
    >>> membership.execute(7, replace_command(2, 4, 99))
    b'+17'
    >>> membership.at(16).ids, membership.at(17).ids, membership.execute(8, replace_command(4, 5, 98))
    ((1, 2, 3), (1, 4, 3), b'!one change at a time')
    """

    def __init__(self, configurations: Iterable[Configuration], alpha: int, highest: int):
        self._set(tuple(configurations))
        self.alpha = alpha
        self.highest = highest

    @classmethod
    def founding(cls, members: Iterable[int], alpha: int) -> Membership:
        """The first membership of a group."""
        ids = tuple(members)
        if not ids or len(set(ids)) != len(ids) or not all(0 < replica <= MAX_REPLICA for replica in ids):
            raise ConfigurationError(f"paxos.members: {list(ids)} must be different numbers from 1 to {MAX_REPLICA}")
        return cls([Configuration(1, tuple((replica, 0) for replica in ids))], alpha, max(ids))

    def at(self, slot: int) -> Configuration:
        """Who votes on an instance, of those after the last applied one."""
        last = self.configurations[-1]
        return last if slot >= last.since else self.configurations[0]

    @property
    def changes(self) -> bool:
        """Returns whether a change is on its way."""
        return len(self.configurations) > 1

    def ids(self) -> tuple[int, ...]:
        """All that vote now or soon, by rank."""
        return self._ids

    def _set(self, configurations: tuple[Configuration, ...]) -> None:
        self.configurations = configurations
        self._ids = tuple(dict.fromkeys(replica for part in configurations for replica in part.ids))

    def includes(self, replica: int, token: int) -> bool:
        """Returns whether the replica created with this token votes now or soon."""
        return any((replica, token) in part.members for part in self.configurations)

    def has_quorums(self, replicas: Collection[int]) -> bool:
        """Returns whether a majority of every configuration is among them."""
        return all(part.has_quorum(replicas) for part in self.configurations)

    def execute(self, slot: int, command: bytes) -> bytes:
        """Applies a change decided at `slot`: `+` and where it takes effect, or `!` and why not."""
        if len(command) != _REPLACE.size:
            return b"!not a change of the membership"
        old, new, token = _REPLACE.unpack(command)
        current = self.configurations[-1]
        if (new, token) in current.members and old not in current.ids:
            return b"+%d" % current.since  # the same change came twice
        if self.changes:
            return b"!one change at a time"
        if old not in current.ids:
            return b"!not a member"
        if new <= self.highest or new > MAX_REPLICA or token == 0:
            return b"!the number of the new replica must be larger than all before, its token not 0"
        members = tuple((new, token) if replica == old else (replica, own) for replica, own in current.members)
        self.highest = new
        self._set((*self.configurations, Configuration(slot + self.alpha, members)))
        return b"+%d" % (slot + self.alpha)

    def passed(self, slot: int) -> bool:
        """Forgets what no later instance needs; true where a change took effect."""
        if self.changes and slot + 1 >= self.configurations[1].since:
            self._set(self.configurations[1:])
            return True
        return False

    def encode(self) -> bytes:
        """As bytes, for a snapshot."""
        return _MEMBERSHIP.encode(self)

    def become(self, data: bytes) -> None:
        """Replaces it by what `encode` wrote."""
        other = self.decode(data, self.alpha)
        self._set(other.configurations)
        self.highest = other.highest

    @classmethod
    def decode(cls, data: bytes, alpha: int) -> Membership:
        """Reads what `encode` wrote.

        >>> Membership.decode(Membership.founding([1, 2, 3], 10).encode(), 10).ids()
        (1, 2, 3)
        """
        fields = _MEMBERSHIP.decode(data)
        return cls(fields["configurations"], alpha, fields["highest"])


_MEMBERSHIP: Final[Layout[Any]] = Layout(
    "paxos membership",
    dict,
    highest=U16,
    configurations=many(
        Layout("paxos membership", Configuration, since=U64, members=many(pair(U16, U64), U8)),
        U8,
    ),
)
