"""Demand that is refreshed from end to end: periodic subscription as the *reliability* paper has it (section 2.4.1).

The home broker of a subscription sends it along the whole tree, and again every R. Each broker notes from which
neighbour it came last, and passes it on to the others. An entry that is not refreshed in time is taken out. So a broker
that has lost its table has it again after the next refresh, and not before. A subscription travels by itself: there are
no summaries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple, TypeAlias

from surecast.errors import PeerError
from surecast.protocol.demand.demand_table import DemandTable
from surecast.protocol.demand.filter_hashes import FilterHashes
from surecast.protocol.demand.joint_filter import JointFilter
from surecast.protocol.demand.summaries import DemandChange
from surecast.protocol.demand.tree_demand import FLOODING, LOCAL

__all__ = ["Subscription", "SubscriptionKey", "SubscriptionRecord", "Subscriptions"]

_VOID_MAX: Final = 100_000

Issue: TypeAlias = tuple[int, int]
"""The incarnation of a home broker, and how often it has issued subscriptions."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """The clients of the broker `home` want events, or want them no longer; of two issues the later one holds."""

    tree: int
    home: str
    issued: Issue
    joint: JointFilter
    is_wanted: bool = True


@dataclass(frozen=True, slots=True)
class SubscriptionRecord:
    """A subscription on disk, with the neighbour from which it came."""

    source: str
    issued: Issue


class SubscriptionKey(NamedTuple):
    """Whose subscription it is, and to what."""

    home: str
    joint: JointFilter


@dataclass(slots=True)
class _Entry:
    source: str
    issued: Issue
    refreshed_s: float


Outgoing: TypeAlias = list[tuple[str, Subscription]]


class Subscriptions:
    """The subscriptions of one tree at one broker. An entry of another broker that is older than the time-out goes.

    >>> b2 = Subscriptions(0, "b2", 1, {"b1": "simple", "b3": "simple"}, timeout_s=180.0)
    >>> wanted = Subscription(0, "b3", (1, 0), JointFilter("stock"))
    >>> [to for to, _ in b2.receive("b3", wanted, now=0.0)]
    ['b1']
    >>> b2.receive("b3", wanted, now=1.0)  # the same issue again, by another way
    []
    >>> b2.expire(now=180.0), len(b2), b2.expire(now=181.0), len(b2)
    (None, 1, None, 0)
    """

    def __init__(
        self,
        tree: int,
        broker: str,
        incarnation: int,
        algorithms: Mapping[str, str],
        *,
        parent: str | None = None,
        is_rooted: bool = False,
        timeout_s: float = inf,
        void_s: float = 180.0,
    ):
        self.tree = tree
        always = [hop for hop, algorithm in algorithms.items() if algorithm == FLOODING or hop == parent]
        self.table = DemandTable([LOCAL, *algorithms], always, by_topic=[LOCAL])
        self.changed: dict[SubscriptionKey, SubscriptionRecord | None] = {}
        """The entries of other brokers that changed since this was emptied, for a caller that keeps them on disk."""
        self._broker = broker
        self._incarnation = incarnation
        self._timeout_s = timeout_s
        self._void_s = void_s
        told = [hop for hop, algorithm in algorithms.items() if algorithm != FLOODING]
        self._heard = tuple(hop for hop in told if hop != parent)
        self._told = [hop for hop in told if hop == parent] if is_rooted else told
        self._own: dict[JointFilter, None] = {}
        self._entries: dict[SubscriptionKey, _Entry] = {}
        self._void: dict[SubscriptionKey, _Entry] = {}
        self._count = 0

    def __len__(self) -> int:
        """The number of entries of other brokers."""
        return len(self._entries)

    def announced_sum(self, neighbour: str) -> int | None:
        """Returns the sum of hashes over all that was passed on to a neighbour; None where nothing ever is."""
        if neighbour not in self._told:
            return None
        passed_on: FilterHashes[JointFilter] = FilterHashes()
        passed_on.change(added=[key.joint for key, entry in self._entries.items() if entry.source != neighbour])
        passed_on.change(added=self._own)
        return passed_on.root[2]

    def local(self, added: Iterable[JointFilter] = (), removed: Iterable[JointFilter] = ()) -> Outgoing:
        """Takes in what this broker's own clients want now, and what they want no longer; returns what to send."""
        frames: Outgoing = []
        for joint in removed:
            if joint in self._own:
                del self._own[joint]
                self.table.apply(LOCAL, DemandChange(removed=(joint,)))
                frames += self._issue(joint, is_wanted=False)
        for joint in added:
            if joint.satisfiable and joint not in self._own:
                frames += self.refresh(joint)
        return frames

    def refresh(self, joint: JointFilter) -> Outgoing:
        """Sends a subscription of this broker's own clients again, and takes it in where it is new."""
        if joint not in self._own:
            self.table.apply(LOCAL, DemandChange(added=(joint,)))
            self._own[joint] = None
        return self._issue(joint)

    def refresh_all(self) -> Outgoing:
        """Sends all subscriptions of this broker's own clients again."""
        return [frame for joint in self._own for frame in self._issue(joint)]

    def receive(self, source: str, frame: Subscription, now: float) -> Outgoing:
        """Takes in a subscription of a neighbour, or of a broker around one; returns what to send to whom."""
        if source not in self._heard:
            raise PeerError(f"{source} sent a subscription on tree {self.tree}, over a link that carries none")
        key = SubscriptionKey(frame.home, frame.joint)
        entry = self._entries.get(key)
        known = entry or self._void.get(key)
        if frame.home == self._broker or (known is not None and frame.issued <= known.issued):
            return []  # by another way, or back to where it came from
        self._void.pop(key, None)
        if entry is not None:
            del self._entries[key]
        is_moved = entry is None or entry.source != source
        if entry is not None and (is_moved or not frame.is_wanted):
            self.table.apply(entry.source, DemandChange(removed=(frame.joint,)))
        if frame.is_wanted:
            if is_moved:
                self.table.apply(source, DemandChange(added=(frame.joint,)))
                self.changed[key] = SubscriptionRecord(source, frame.issued)
            self._entries[key] = _Entry(source, frame.issued, now)
        else:
            # What remains of it keeps an older issue that is still on its way from bringing it back.
            self._void[key] = _Entry(source, frame.issued, now)
            if len(self._void) > _VOID_MAX:
                del self._void[next(iter(self._void))]
            if entry is not None:
                self.changed[key] = None
        return [(hop, frame) for hop in self._told if hop != source]

    def expire(self, now: float) -> None:
        """Takes out what was not refreshed in time."""
        while self._entries:
            key, entry = next(iter(self._entries.items()))  # the one that was refreshed longest ago
            if entry.refreshed_s >= now - self._timeout_s:
                break
            del self._entries[key]
            self.table.apply(entry.source, DemandChange(removed=(key.joint,)))
            self.changed[key] = None
        while self._void:
            key, entry = next(iter(self._void.items()))
            if entry.refreshed_s >= now - self._void_s:
                break
            del self._void[key]

    def restore(self, records: Mapping[SubscriptionKey, SubscriptionRecord], now: float) -> None:
        """Takes over from disk what was known before a restart."""
        for key, record in records.items():
            if record.source in self._heard:  # else the plan has changed
                self.table.apply(record.source, DemandChange(added=(key.joint,)))
                self._entries[key] = _Entry(record.source, record.issued, now)

    def _issue(self, joint: JointFilter, *, is_wanted: bool = True) -> Outgoing:
        self._count += 1
        frame = Subscription(self.tree, self._broker, (self._incarnation, self._count), joint, is_wanted)
        return [(hop, frame) for hop in self._told]
