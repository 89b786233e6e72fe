"""The state of a group besides that of its broker, in snapshots: a table of its fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from surecast.protocol.codec import REST, U16, U32, U64, Layout, many, pair, pairs, sized
from surecast.protocol.group.backup import PARTS, Parts
from surecast.protocol.group.moves import NEWCOMER, Newcomer

__all__ = ["GROUP_STATE", "GroupState", "SourceState"]


class SourceState(NamedTuple):
    """One replica as a source of commands: those that came too early, and its connections, by their numbers there and
    in the broker."""

    replica: int
    incarnation: int
    next: int
    early: Sequence[bytes]
    connections: Sequence[tuple[int, int]]


class GroupState(NamedTuple):
    """The times of the log and of the last sweep, what content filters decided, rules and limits as they were written,
    and the parts of the state; `broker` is the snapshot of the broker."""

    time_us: int
    swept_us: int
    decisions: int
    access: bytes
    limits: bytes
    backup: Parts
    sources: Sequence[SourceState]
    newcomers: Sequence[Newcomer]
    applications: dict[str, bytes]
    broker: bytes


_SOURCE: Final = Layout(
    "source",
    SourceState,
    replica=U16,
    incarnation=U64,
    next=U64,
    early=many(sized()),
    connections=many(pair(U64, U64)),
)
GROUP_STATE: Final = Layout(
    "group snapshot",
    GroupState,
    time_us=U64,
    swept_us=U64,
    decisions=U32,
    access=sized(),
    limits=sized(),
    backup=PARTS,
    sources=many(_SOURCE),
    newcomers=many(NEWCOMER),
    applications=pairs(sized(is_text=True), sized(), is_sorted=True),
    broker=REST,
)
