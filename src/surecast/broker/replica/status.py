"""The status of a replica, as it is seen from outside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["NodeStatus", "PeerStatus"]


@dataclass(frozen=True, slots=True)
class PeerStatus:
    """Another replica, as seen from one: `up` is the link to it, `heard` the link from it.

    `silent_s` is how long nothing has come from it, None where nothing ever has since this one started.
    Its clock is ahead of the own one by `clock_ahead_s`, give or take `clock_error_s`; None before that was measured.
    """

    replica: int
    address: str
    is_member: bool
    up: bool
    heard: bool
    queued_bytes: int
    dropped: int
    clock_ahead_s: float | None
    clock_error_s: float | None
    silent_s: float | None = None


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """A replica at one moment.

    `leader` is 0 where none is known. `chosen` is the last instance known to be chosen anywhere, `applied` the last one
    applied here; `hash` runs over all of them, so that replicas that applied equally much can be compared.
    `effects` runs over what they changed, and replicas compare it by themselves: `compared` is the last instance at
    which a majority was equal, and `alarm` says who differs. `verified` is the last instance at which the whole state
    was hashed, and `verified_hash` that hash.
    `queue_bytes` are requests that wait here, of own clients and, where it leads, of all. One that is `blank` has no
    state yet; of a snapshot of `snapshot_size` bytes that comes in `snapshot_bytes` are here.
    `clock_ahead_s` is how far the own clock is ahead of what the clocks of a majority have reached; None while unknown.
    `late_s` is time in which the replica did not run though it should have, since its start. `known` are the other
    replicas that have run in this group before, as far as this one remembers.
    """

    group: str
    replica: int
    leader: int
    leads: bool
    voting: bool
    ballot: int
    applied: int
    chosen: int
    hash: str
    members: tuple[int, ...]
    peers: tuple[PeerStatus, ...]
    queue_bytes: int
    clock_ahead_s: float | None
    late_s: float
    counts: Mapping[str, int]
    blank: bool = False
    snapshot_bytes: int = 0
    snapshot_size: int = 0

    effects: str = ""
    compared: int = 0
    verified: int = 0
    verified_hash: str = ""
    alarm: str = ""
    known: tuple[int, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)
