"""The messages of replicas; `wire` has the bytes.

Nobody changes a message. Most are frozen; those of every instance are not, because that makes them three times as dear.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

__all__ = [
    "Accept",
    "Accepted",
    "Admit",
    "Checkpoint",
    "Chosen",
    "Close",
    "Closed",
    "Entries",
    "Fetch",
    "Forward",
    "Grant",
    "Heartbeat",
    "Message",
    "PreVote",
    "Prepare",
    "Promise",
    "Propose",
    "Refuse",
    "Reject",
    "Rejoin",
    "SnapshotPart",
    "Voted",
]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The sender is up. `ballot` is its promise, or the ballot it leads. The fast instances are open to the last.

    `urgent`: somebody waits at the sender for what is chosen. `promised` and `voted` are the highest ballot and the
    last instance in its store. `clock_us` is the wall clock of the sender, `sent_us` its timer, and `echo_us` what the
    timer of the receiver shows at least, 0 where the sender does not know.
    """

    ballot: int
    leading: bool
    applied: int
    fast_first: int
    fast_last: int
    urgent: bool
    promised: int
    voted: int
    clock_us: int
    sent_us: int
    echo_us: int


@dataclass(frozen=True, slots=True)
class PreVote:
    """Would you promise this ballot? Asked first, so that a replica with a bad link does not topple a good leader."""

    ballot: int


@dataclass(frozen=True, slots=True)
class Grant:
    """Yes: the sender hears of no leader either."""

    ballot: int


@dataclass(frozen=True, slots=True)
class Prepare:
    """Phase 1a, for all instances at once."""

    ballot: int


@dataclass(frozen=True, slots=True)
class Promise:
    """Phase 1b: all up to `applied` is chosen; after it the votes, each of instance, ballot and value."""

    ballot: int
    applied: int
    votes: tuple[tuple[int, int, bytes], ...]


@dataclass(frozen=True, slots=True)
class Reject:
    """The sender has promised a later ballot."""

    ballot: int


@dataclass(slots=True)  # see above
class Accept:
    """Phase 2a. All up to `applied` is chosen."""

    ballot: int
    slot: int
    applied: int
    value: bytes


@dataclass(slots=True)  # see above
class Accepted:
    """Phase 2b, to the leader, for all instances of a turn at once."""

    ballot: int
    applied: int
    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Chosen:
    """All up to `applied` is chosen; the fast instances are open up to a last one."""

    ballot: int
    applied: int
    fast_first: int
    fast_last: int


@dataclass(frozen=True, slots=True)
class Propose:
    """A fast proposal, from any replica to the acceptors."""

    ballot: int
    slot: int
    value: bytes


@dataclass(frozen=True, slots=True)
class Voted:
    """Phase 2b of the fast step, to all; the value itself only to the leader, which may have to settle a collision."""

    ballot: int
    slot: int
    digest: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Close:
    """Phase 1a of the classic step, for some fast instances."""

    ballot: int
    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Closed:
    """Phase 1b of the classic step for one instance: the vote cast, ballot 0 and None where there is none."""

    ballot: int
    slot: int
    voted: int
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Forward:
    """Requests for the leader."""

    segments: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Fetch:
    """The sender lacks everything from `first` on; 0 asks for a snapshot, no older than `slot`. It has `offset` bytes
    of the one at `slot`."""

    first: int
    slot: int
    offset: int


@dataclass(frozen=True, slots=True)
class Entries:
    """Chosen values from `first` on; the sender has applied more up to `applied`."""

    first: int
    applied: int
    values: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class SnapshotPart:
    """A part of a snapshot of `size` bytes with the given digest."""

    slot: int
    size: int
    offset: int
    digest: bytes
    data: bytes


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The sender's running hash of effects at an instance that it has applied."""

    slot: int
    effects: bytes


@dataclass(frozen=True, slots=True)
class Rejoin:
    """The sender has started: what its store says of it (see `admission`), and its running hash at an instance."""

    incarnation: int
    promised: int
    voted: int
    slot: int
    hash: bytes
    starts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Admit:
    """The replica with this start number may take part; the running hash of the sender at an instance."""

    start: int
    slot: int
    hash: bytes


@dataclass(frozen=True, slots=True)
class Refuse:
    """The replica with this start number must not take part: a `Reason`, what was remembered, and what was told."""

    start: int
    reason: int
    seen: int
    told: int


Message: TypeAlias = (
    Heartbeat
    | PreVote
    | Grant
    | Prepare
    | Promise
    | Reject
    | Accept
    | Accepted
    | Chosen
    | Propose
    | Voted
    | Close
    | Closed
    | Forward
    | Fetch
    | Entries
    | SnapshotPart
    | Checkpoint
    | Rejoin
    | Admit
    | Refuse
)
